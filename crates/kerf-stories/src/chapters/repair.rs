//! Nodes that are broken are replaced by disruption, unless too many are.

pub mod legacy;
pub mod reboot;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{
    DisruptionReason, NodeClaim, NodePool, ObjectExt, Setback,
    annotations::{DO_NOT_DISRUPT, DO_NOT_REPAIR},
    taints,
};
use kerf_testbed::CloudFault;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    all_run, counted,
    disruption::{self, nothing_is_marked},
    launching::gone,
    one_ready_node, told, with_pool,
};
use crate::{Stage, World, build};

const DECISIONS: &str = "karpenter_voluntary_disruption_decisions_total";
const REPAIRED: &str = "karpenter_nodeclaims_unhealthy_disrupted_total";

pub async fn an_unwell_node_is_replaced_after_ten_minutes(world: World) {
    let nodes = three_nodes(&world).await;
    kill(&world, &nodes[..1]);
    world.pass(Duration::from_mins(9)).await;
    assert!(is_kept(&world, &nodes[0]).await, "given up too early");
    let message = told(&world, "NodeRepairScheduled", &nodes[0]).await;
    assert!(message.is_ok_and(|it| it.starts_with("condition Ready=Unknown is tolerated until ")));
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    assert_eq!(nothing_is_marked(&world).await, Ok(()));
    // What takes its place comes first.
    assert_eq!(counted(&world, DECISIONS, &["decision=\"replace\"", "reason=\"unhealthy\""]), 1);
    let labels = ["condition=\"ready\"", "termination_mode=\"forceful\""];
    assert_eq!(counted(&world, REPAIRED, &labels), 1);
    assert_eq!(world.list::<NodeClaim>().await.len(), 3);
    assert!(is_kept(&world, &nodes[1]).await && is_kept(&world, &nodes[2]).await);
}

/// The kubelet says all the while that the node is ready.
pub async fn a_fault_that_kwok_plays_is_repaired_after_half_a_minute(world: World) {
    let nodes = three_nodes(&world).await;
    turns_true(&world, &nodes[0], "KWOKUnhealthy").await;
    world.pass(Duration::from_secs(25)).await;
    assert!(is_kept(&world, &nodes[0]).await, "given up too early");
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    assert!(is_kept(&world, &nodes[1]).await && is_kept(&world, &nodes[2]).await);
    let labels = ["condition=\"kwok_unhealthy\"", "termination_mode=\"eventual\""];
    assert_eq!(counted(&world, REPAIRED, &labels), 1);
}

pub async fn an_unwell_node_of_another_provider_is_left_alone(world: World) {
    with_pool(&world, &json!({})).await;
    let class = json!({"nodeClassRef": {"group": "example.com", "kind": "Other", "name": "o"}});
    let claim = world.create(build::claim("foreign", &class)).await;
    world.patch_status(&claim, json!({"status": {"providerID": "other://1"}})).await;
    let node = world.create(build::object::<Node>(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "foreign", "labels": claim.labels()},
        "spec": {"providerID": "other://1"},
    })));
    let unwell = json!({
        "type": "Ready", "status": "False", "reason": "Dead", "message": "",
        "lastHeartbeatTime": world.now(), "lastTransitionTime": world.now(),
    });
    world.patch_status(&node.await, json!({"status": {"conditions": [unwell]}})).await;
    world.pass(Duration::from_mins(30)).await;
    let claim = world.get(&claim).await.unwrap_or_else(|| panic!("it is gone"));
    assert!(!claim.is_deleting() && claim.annotations().is_empty());
}

/// Neither its grace period, nor what nodes and pods ask for.
pub async fn neither_pods_nor_annotations_hold_a_repair_back(world: World) {
    let changes = json!({"template": {"spec": {"terminationGracePeriod": "24h"}}});
    let nodes = three_nodes_of_pool(&world, &changes).await;
    world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    let keep = json!({"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}});
    world.patch(&nodes[0], keep.clone()).await;
    for pod in world.list::<Pod>().await {
        world.patch(&pod, keep.clone()).await;
    }
    kill(&world, &nodes[..1]);
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
}

pub async fn a_veto_keeps_an_unwell_node(world: World) {
    let nodes = three_nodes(&world).await;
    veto(&world, &nodes[0], Some("true")).await;
    turns_true(&world, &nodes[0], "KWOKUnhealthy").await;
    let words = "repair is blocked through the \"karpenter.sh/do-not-repair\" annotation";
    disruption::told(&world, &nodes[0].name_any(), "DisruptionBlocked", words).await;
    world.pass(Duration::from_mins(30)).await;
    assert!(is_kept(&world, &nodes[0]).await);
    // Another value means nothing.
    veto(&world, &nodes[0], Some("soon")).await;
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
}

/// Its replacement is on its way.
pub async fn a_veto_ends_a_repair_that_is_under_way(world: World) {
    let nodes = three_nodes(&world).await;
    world.cloud().on_next(1, CloudFault::NeverRegisters);
    turns_true(&world, &nodes[0], "KWOKUnhealthy").await;
    world
        .until("its replacement is there", async |world: &World| {
            let claims = world.list::<NodeClaim>().await.len();
            if claims == 4 { Ok(()) } else { Err(format!("{claims} claims")) }
        })
        .await;
    veto(&world, &nodes[0], Some("true")).await;
    world
        .until("the repair is taken back", async |world: &World| nothing_is_marked(world).await)
        .await;
    world.pass(Duration::from_mins(30)).await;
    assert!(is_kept(&world, &nodes[0]).await);
    assert_eq!(counted(&world, REPAIRED, &[]), 0);
}

pub async fn a_budget_of_none_keeps_unwell_nodes(world: World) {
    let none = json!([{"nodes": "0", "reasons": ["Unhealthy"]}]);
    let nodes = three_nodes_of_pool(&world, &json!({"disruption": {"budgets": none}})).await;
    turns_true(&world, &nodes[0], "KWOKUnhealthy").await;
    world.pass(Duration::from_mins(30)).await;
    assert!(is_kept(&world, &nodes[0]).await);
    let pool = world.list::<NodePool>().await.remove(0);
    let one = json!([{"nodes": "1", "reasons": ["Unhealthy"]}]);
    world.patch(&pool, json!({"spec": {"disruption": {"budgets": one}}})).await;
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
}

pub async fn too_many_unwell_nodes_are_left_alone(world: World) {
    let nodes = three_nodes(&world).await;
    kill(&world, &nodes[..2]);
    let why = world
        .until("repair says why not", async |w: &World| {
            told(w, "NodeRepairBlocked", &nodes[0]).await
        })
        .await;
    let words =
        "more than 20% of nodes in nodepool \"default\" are unhealthy (unhealthy=2, nodes=3; ";
    assert!(why.starts_with(words), "{why}");
    let pool = world.list::<NodePool>().await.remove(0);
    assert_eq!(told(&world, "NodeRepairBlocked", &pool).await, Ok(why));
    world.pass(Duration::from_mins(30)).await;
    assert!(is_kept(&world, &nodes[0]).await && is_kept(&world, &nodes[1]).await);
    // One of them recovers, and the other is a matter of repair again.
    let mended = world.get(&nodes[1]).await.unwrap_or_else(|| panic!("it is gone"));
    veto(&world, &mended, Some("true")).await;
    world.until("its node is gone", gone(&nodes[0])).await;
    assert!(is_kept(&world, &nodes[1]).await);
}

/// A fifth of the nodes at once, and a budget of a tenth.
pub async fn a_wave_of_broken_nodes_is_replaced_under_the_budget(world: World) {
    let paced = json!({"disruption": {"budgets": [{"nodes": "10%"}]}});
    let nodes = nodes_of_pool(&world, 20, &paced).await;
    let (broken, healthy) = nodes.split_at(4);
    for node in broken {
        turns_true(&world, node, "KWOKUnhealthy").await;
    }
    // The budget is of all nodes there are, those that take the place of others among them.
    let (mut most, mut allowed) = (0, 2);
    loop {
        world.pass(Duration::from_secs(2)).await;
        let left: Vec<Node> = world.list().await;
        allowed = allowed.max(left.len().div_ceil(10));
        let is_left = |node: &&Node| left.iter().any(|one| one.uid() == node.uid());
        assert_eq!(healthy.iter().filter(is_left).count(), healthy.len(), "a healthy one went");
        let goes = |node: &&Node| {
            let spec = node.spec.as_ref();
            let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
            taints.iter().any(|taint| taint.key == taints::DISRUPTED)
        };
        most = most.max(left.iter().filter(goes).count());
        if !broken.iter().any(|node| is_left(&node)) {
            break;
        }
    }
    assert!((1..=allowed).contains(&most), "{most} at a time");
    world.until("all pods run", async |world: &World| all_run(world, 20).await).await;
}

/// A detector that cannot make up its mind.
pub async fn a_fault_that_comes_and_goes_is_tolerated(world: World) {
    let nodes = three_nodes(&world).await;
    for _ in 0..20 {
        turns_true(&world, &nodes[0], "KWOKUnhealthy").await;
        world.pass(Duration::from_secs(25)).await;
        turns(&world, &nodes[0], "KWOKUnhealthy", "False").await;
        world.pass(Duration::from_secs(10)).await;
    }
    assert!(is_kept(&world, &nodes[0]).await);
    assert_eq!(counted(&world, DECISIONS, &["reason=\"unhealthy\""]), 0);
}

pub async fn a_repair_that_cannot_be_launched_is_tried_less_and_less_often(world: World) {
    let nodes = three_nodes(&world).await;
    world.cloud().at_rate(1.0, CloudFault::InsufficientCapacity);
    turns_true(&world, &nodes[0], "KWOKUnhealthy").await;
    world.pass(Duration::from_hours(2)).await;
    assert!(is_kept(&world, &nodes[0]).await, "it goes only when another is there");
    let claims = world.list::<NodeClaim>().await;
    let claim = claims.iter().find(|claim| {
        claim.status.as_ref().is_some_and(|status| status.node_name == nodes[0].name_any())
    });
    let setback = claim.and_then(Setback::read).unwrap_or_else(|| panic!("no setback"));
    assert_eq!(setback.reason, DisruptionReason::Unhealthy);
    // After 1, 2, 4, 8, 16, 32 and 60 minutes of rest.
    assert!((6..=8).contains(&setback.failures), "{setback:?}");
    world.cloud().clear();
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
}

/// For the tests that kill the operator on the way.
pub async fn from_unwell_to_replaced(world: &World) {
    with_pool(world, &json!({})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (_, node) = world.until("the node is ready", one_ready_node).await;
    turns_true(world, &node, "KWOKUnhealthy").await;
    world.until("its node is gone", gone(&node)).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("one node is left", one_ready_node).await;
    world.until("nothing is marked", async |world: &World| nothing_is_marked(world).await).await;
}

async fn veto(world: &World, node: &Node, value: Option<&str>) {
    world.patch(node, json!({"metadata": {"annotations": {DO_NOT_REPAIR: value}}})).await;
}

async fn three_nodes(world: &World) -> Vec<Node> {
    three_nodes_of_pool(world, &json!({})).await
}

/// Each with a pod that stays where it is, whatever becomes of the node.
async fn three_nodes_of_pool(world: &World, changes: &Value) -> Vec<Node> {
    nodes_of_pool(world, 3, changes).await
}

async fn nodes_of_pool(world: &World, nodes: u32, changes: &Value) -> Vec<Node> {
    with_pool(world, changes).await;
    let always = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    let stays = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"].map(always);
    let repel = json!({
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}},
        }]}},
        "tolerations": stays,
    });
    world.create(build::deployment("a", nodes, &repel)).await;
    let pods = usize::try_from(nodes).unwrap_or(usize::MAX);
    world.until("all pods run", async |world: &World| all_run(world, pods).await).await;
    world.list().await
}

async fn turns_true(world: &World, node: &Node, condition: &str) {
    turns(world, node, condition, "True").await;
}

async fn turns(world: &World, node: &Node, condition: &str, to: &str) {
    let node = world.get(node).await.unwrap_or_else(|| panic!("it is gone"));
    let status = node.status.as_ref();
    let mut conditions = json!(status.and_then(|status| status.conditions.as_ref()));
    if let Some(all) = conditions.as_array_mut() {
        all.retain(|one| one["type"] != condition);
        all.push(json!({
            "type": condition, "status": to, "reason": "Played", "message": "",
            "lastHeartbeatTime": world.now(), "lastTransitionTime": world.now(),
        }));
    }
    world.patch_status(&node, json!({"status": {"conditions": conditions}})).await;
}

fn kill(world: &World, nodes: &[Node]) {
    let Stage::Testbed { actors, .. } = world.stage() else {
        panic!("only machines of the testbed die")
    };
    for node in nodes {
        actors.kill_node(&node.name_any());
    }
}

async fn is_kept(world: &World, node: &Node) -> bool {
    let claims = world.list::<NodeClaim>().await;
    let name = node.name_any();
    let of_node = |claim: &&NodeClaim| claim.status.as_ref().is_some_and(|it| it.node_name == name);
    claims.iter().filter(of_node).any(|claim| !claim.is_deleting())
}
