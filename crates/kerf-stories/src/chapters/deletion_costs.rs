//! Pods that `ReplicaSets` are to remove first.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kerf_api::{
    NodeClaim,
    annotations::{DELETION_COST_MANAGED, DO_NOT_DISRUPT, POD_DELETION_COST},
    labels,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{all_run, counted, with_pool};
use crate::{World, build, pods};

const WRITES: &str = "karpenter_pod_deletion_cost_pod_annotation_writes_total";
const EVICTIONS: &str = "karpenter_pods_eviction_requests_total";

pub async fn a_workload_that_shrinks_empties_a_node_and_nothing_is_evicted(world: World) {
    let [expected, left] = from_three_nodes_to_two(&world).await;
    assert_eq!(left, expected, "the pods of the node with costs went");
    assert_eq!(counted(&world, EVICTIONS, &[]), 0);
}

/// Three nodes are full. A third of the pods goes, and with them one node; no pod is started again. Returns which pods should be
/// left, as things stood before, and which are.
pub async fn from_three_nodes_to_two(world: &World) -> [BTreeSet<String>; 2] {
    let web = with_three_full_nodes(world, "30s").await;
    let first = world
        .until("the pods of one node have a cost", async |world: &World| {
            let costly = with_cost(&all_run(world, 9).await?);
            let nodes: BTreeSet<_> = costly.iter().filter_map(pods::node_name).collect();
            if (costly.len(), nodes.len()) == (3, 1) {
                Ok(costly)
            } else {
                Err(format!("{} pods on {} nodes", costly.len(), nodes.len()))
            }
        })
        .await;
    let before = names(&world.list::<Pod>().await);
    world.patch(&web, json!({"spec": {"replicas": 6}})).await;
    world
        .until("one node is gone", async |world: &World| {
            all_run(world, 6).await?;
            let (nodes, claims) =
                (world.list::<Node>().await.len(), world.list::<NodeClaim>().await.len());
            if (nodes, claims) == (2, 2) { Ok(()) } else { Err(format!("{nodes}, {claims}")) }
        })
        .await;
    let left = names(&world.list::<Pod>().await);
    let expected: BTreeSet<_> = before.difference(&names(&first)).cloned().collect();
    let log = world.event_log_if_any().map(|log| log.to_string()).unwrap_or_default();
    assert!(left.is_subset(&before), "a pod was started again: {left:?} of {before:?}\n{log}");
    [expected, left]
}

pub async fn a_cost_of_somebody_else_stays_and_its_replica_set_is_left_alone(world: World) {
    // A cheap node full of small pods is one that the savings threshold would hold back.
    let mut changes = disruptable("30s");
    changes["disruption"]["consolidationSavingsThreshold"] = json!(0);
    with_pool(&world, &changes).await;
    let small = json!({"containers": [{"name": "main", "image": "main",
        "resources": {"requests": {"cpu": "100m"}}}]});
    for name in ["own", "other"] {
        world.create::<Deployment>(build::deployment(name, 2, &small)).await;
    }
    let all = world.until("the pods run", async |world: &World| all_run(world, 4).await).await;
    let of = |all: &[Pod], app: &str| -> Vec<Pod> {
        all.iter().filter(|pod| pod.labels()["app"] == app).cloned().collect()
    };
    let cost = |pod: &Pod| pod.annotations().get(POD_DELETION_COST).cloned();
    let chosen = of(&all, "other")[0].clone();
    world.patch(&chosen, json!({"metadata": {"annotations": {POD_DELETION_COST: "100"}}})).await;
    world
        .until("only the others have a cost", async |world: &World| {
            let all = all_run(world, 4).await?;
            let own: Vec<_> = of(&all, "own").iter().filter_map(cost).collect();
            let other: Vec<_> = of(&all, "other").iter().filter_map(cost).collect();
            let negative = own.iter().filter(|cost| cost.starts_with('-')).count();
            if negative == 2 && other == ["100"] {
                Ok(())
            } else {
                Err(format!("{own:?} {other:?}"))
            }
        })
        .await;
}

pub async fn with_the_gate_off_costs_of_kerf_go_and_others_stay(world: World) {
    let mut world = world;
    marked_pods(&world).await;
    world.stop_operator().await;
    world.start_operator().await;
    only_foreign_costs_are_left(&world).await;
}

/// Pods as an operator with the gate on leaves them, and one that it has nothing to do with.
pub async fn marked_pods(world: &World) {
    for (name, cost, mark) in [
        ("a", "-7", Some("-7")),
        ("b", "-2147483648", Some("-2147483648")),
        // Somebody has changed it since.
        ("changed", "50", Some("-7")),
        ("foreign", "60", None),
    ] {
        let mut pod: Pod = build::pod(name, &json!({}));
        let annotations = pod.annotations_mut();
        annotations.insert("team".to_owned(), "blue".to_owned());
        annotations.insert(POD_DELETION_COST.to_owned(), cost.to_owned());
        annotations.extend(mark.map(|mark| (DELETION_COST_MANAGED.to_owned(), mark.to_owned())));
        world.create(pod).await;
    }
}

pub async fn only_foreign_costs_are_left(world: &World) {
    world
        .until("only the costs of others are left", async |world: &World| {
            let all = world.list::<Pod>().await;
            let shown = |pod: &Pod| {
                let annotations = pod.annotations();
                let cost = annotations.get(POD_DELETION_COST).map_or("-", String::as_str);
                let mark = annotations.get(DELETION_COST_MANAGED).map_or("-", String::as_str);
                let team = annotations.get("team").map_or("-", String::as_str);
                format!("{} {cost} {mark} {team}", pod.name_any())
            };
            let mut shown: Vec<_> = all.iter().map(shown).collect();
            shown.sort();
            let expected = ["a - - blue", "b - - blue", "changed 50 - blue", "foreign 60 - blue"];
            if shown == expected { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await;
}

pub async fn an_order_that_stays_is_not_written_again(world: World) {
    with_three_full_nodes(&world, "30s").await;
    let written = || counted(&world, WRITES, &["result=\"updated\""]);
    world
        .until("one node has costs", async |_: &World| {
            let written = written();
            if written == 3 { Ok(()) } else { Err(format!("{written} writes")) }
        })
        .await;
    // Something happens now and then.
    for round in 0..6 {
        let name = format!("visitor-{round}");
        let visitor = json!({"nodeSelector": {"no": "node"}});
        let visitor = world.create::<Pod>(build::pod(&name, &visitor)).await;
        world.pass(Duration::from_mins(10)).await;
        world.delete(&visitor).await;
    }
    assert_eq!(written(), 3);
    assert_eq!(counted(&world, WRITES, &[]), 3, "nothing was tried either");
}

pub async fn pods_of_a_node_that_leaves_go_first(world: World) {
    with_three_full_nodes(&world, "Never").await;
    // Its drain waits for one pod.
    let all = world.until("the pods run", async |world: &World| all_run(world, 9).await).await;
    let node = pods::node_name(&all[0]).unwrap_or_default().to_owned();
    let here = |all: &[Pod]| -> Vec<Pod> {
        all.iter().filter(|pod| pods::node_name(pod) == Some(node.as_str())).cloned().collect()
    };
    for pod in here(&all) {
        let held = json!({"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}});
        world.patch(&pod, held).await;
    }
    let claims = world.list::<NodeClaim>().await;
    let claim = claims.iter().find(|claim| claim.node_name() == node);
    world.delete::<NodeClaim>(claim.unwrap_or_else(|| panic!("a claim of {node}"))).await;
    world
        .until("its pods have the least cost", async |world: &World| {
            let all = world.list::<Pod>().await;
            let least = i32::MIN.to_string();
            let cost = |pod: &Pod| pod.annotations().get(POD_DELETION_COST) == Some(&least);
            let (there, elsewhere) = (here(&all), all.iter().filter(|pod| cost(pod)).count());
            if there.len() == 3 && there.iter().all(cost) && elsewhere == 3 {
                Ok(())
            } else {
                Err(format!("{} of {} pods, {elsewhere}", there.len(), all.len()))
            }
        })
        .await;
}

/// A deployment of nine pods, three on each of three nodes, none of which can take another.
async fn with_three_full_nodes(world: &World, consolidate_after: &str) -> Deployment {
    with_pool(world, &disruptable(consolidate_after)).await;
    let on_four_cpus = json!({"nodeSelector": {labels::INSTANCE_TYPE: "c-4x-amd64-linux"}});
    let web = world.create::<Deployment>(build::deployment("web", 9, &on_four_cpus)).await;
    world.until("the pods run", async |world: &World| all_run(world, 9).await).await;
    assert_eq!(world.list::<Node>().await.len(), 3);
    web
}

/// One node of three at a time may go.
fn disruptable(consolidate_after: &str) -> Value {
    json!({"disruption": {"consolidateAfter": consolidate_after, "budgets": [{"nodes": "1"}]}})
}

fn with_cost(pods: &[Pod]) -> Vec<Pod> {
    let costly = pods.iter().filter(|pod| pod.annotations().contains_key(POD_DELETION_COST));
    costly.cloned().collect()
}

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}
