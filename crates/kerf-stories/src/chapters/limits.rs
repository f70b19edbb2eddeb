//! A pool never has more than its limits allow.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kerf_api::{
    NodeClaim, NodePool, ObjectExt,
    conditions::{Conditioned, DISRUPTION_REASON, DRIFTED, READY},
};
use kerf_model::{Quantity, Resources};
use kerf_provider_kwok::labels::INSTANCE_CPU;
use kerf_testbed::{Fault, Matching, Verb};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    all_run, condition, is_running, one_ready_node, runs, static_capacity::most_claims_at_once,
    told, with_pool,
};
use crate::{World, build};

pub async fn the_number_of_nodes_is_never_exceeded(world: World) {
    with_pool(&world, &json!({"limits": {"nodes": "2"}})).await;
    for name in ["a", "b", "c", "d"] {
        world.create(alone(name)).await;
    }
    world
        .until("two pods run and two get an event", async |world: &World| {
            let running = world.list::<Pod>().await.iter().filter(|pod| is_running(pod)).count();
            let told = world.list::<Event>().await.into_iter().filter_map(|event| event.message);
            let told = told.filter(|message| message.contains("its limit of nodes is reached"));
            match (running, told.count()) {
                (2, 2..) => Ok(()),
                counts => Err(format!("{counts:?}")),
            }
        })
        .await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 2);
}

pub async fn pods_that_come_one_after_the_other_do_not_exceed_it_either(world: World) {
    with_pool(&world, &json!({"limits": {"nodes": "2"}})).await;
    let mut running = Vec::new();
    for name in ["a", "b"] {
        let pod = world.create(alone(name)).await;
        running.push(world.until("the pod runs", async |w: &World| runs(w, &pod).await).await);
    }
    let third = world.create(alone("c")).await;
    let why = world
        .until("the third gets an event", async |w: &World| {
            told(w, "FailedScheduling", &third).await
        })
        .await;
    let reached = "its limit of nodes is reached (limit 2, used 2, left 0)";
    assert!(why.contains(reached), "{why}");
    assert_eq!(world.list::<NodeClaim>().await.len(), 2);
}

pub async fn a_limit_of_cpu_counts_whole_machines(world: World) {
    // One pod of one CPU needs a machine of two, and then nothing is left.
    with_pool(&world, &json!({"limits": {"cpu": "2"}})).await;
    let first = world.create(alone("a")).await;
    world.until("the pod runs", async |w: &World| runs(w, &first).await).await;
    let second = world.create(alone("b")).await;
    let why = world
        .until("the second gets an event", async |w: &World| {
            told(w, "FailedScheduling", &second).await
        })
        .await;
    let reached = "exceeds its limits (cpu: limit 2, used 2, left 0, the smallest of them has 2)";
    assert!(why.contains(reached), "{why}");
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
}

pub async fn there_is_room_again_when_a_node_goes(world: World) {
    with_pool(&world, &json!({"limits": {"nodes": "1"}})).await;
    let first = world.create(alone("a")).await;
    world.until("the pod runs", async |w: &World| runs(w, &first).await).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    let second = world.create(alone("b")).await;
    world
        .until("the second gets an event", async |w: &World| {
            told(w, "FailedScheduling", &second).await
        })
        .await;
    // The drain takes the first pod, after the taint: were it deleted here, the second could be bound
    // to the old node and be evicted with it.
    world.delete(&claim).await;
    world.until("the second runs", async |w: &World| runs(w, &second).await).await;
    let (other, _) = world.until("on the only node", one_ready_node).await;
    assert_ne!(other.uid(), claim.uid());
}

/// A pool of at most 608 nodes had 627 of them upstream (kubernetes-sigs/karpenter#2915). Here as many pods want a node
/// each, in batches that come while the nodes of the one before are on their way.
pub async fn a_limit_of_608_nodes_is_kept_when_627_are_wanted(world: World) {
    let pool = with_pool(&world, &json!({"limits": {"nodes": "608"}})).await;
    let spec = alone("a").spec.map(|spec| json!(spec)).unwrap_or_default();
    for (name, pods) in [("a", 400), ("b", 207), ("c", 20)] {
        world.create(build::deployment(name, pods, &spec)).await;
        world.pass(Duration::from_millis(2500)).await;
    }
    world.pass(Duration::from_mins(10)).await;
    let ready = world.list::<NodeClaim>().await.iter().filter(|claim| claim.is_true(READY)).count();
    assert_eq!(ready, 608);
    assert_eq!(world.get(&pool).await.and_then(|pool| Some(pool.status?.nodes)), Some(608));
    let running = world.list::<Pod>().await.iter().filter(|pod| is_running(pod)).count();
    assert_eq!(running, 608);
    assert_eq!(most_claims_at_once(&world.event_log()), 608);
}

/// A claim for a pod is being created while a drifted node is to be replaced. There is room for one of the two.
pub async fn a_replacement_leaves_the_room_to_a_claim_that_is_to_come(world: World) {
    let pool = a_node_of_two_cpus_that_has_to_become_one_of_four(&world).await;
    let creations = Matching::any().verb(Verb::Create).resource("nodeclaims");
    in_the_meantime(&world, creations, async || drop(world.create(of_two_cpus("b")).await)).await;
    world.patch(&pool, replaceable("100%")).await;
    both_run_within_six_cpus(&world).await;
}

/// The other way round: the replacement is decided, and its candidate being marked, when the pod comes.
pub async fn a_claim_for_a_pod_leaves_the_room_to_a_replacement_that_is_to_come(world: World) {
    let pool = a_node_of_two_cpus_that_has_to_become_one_of_four(&world).await;
    let marks = Matching::writes().resource("nodes");
    in_the_meantime(&world, marks, async || drop(world.patch(&pool, replaceable("100%")).await))
        .await;
    world.create(of_two_cpus("b")).await;
    both_run_within_six_cpus(&world).await;
}

/// The pool may have six CPUs and buys machines of four from now on, and the pod on its machine of two stays where it is until
/// the budget allows its move.
async fn a_node_of_two_cpus_that_has_to_become_one_of_four(world: &World) -> NodePool {
    let mut spec = json!({"limits": {"cpu": "6"}});
    build::merge(&mut spec, &replaceable("0")["spec"]);
    let pool = with_pool(world, &spec).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let mut requirements = json!(pool.spec.template.spec.requirements);
    if let Some(requirements) = requirements.as_array_mut() {
        requirements.push(json!({"key": INSTANCE_CPU, "operator": "In", "values": ["4"]}));
    }
    let template = json!({"spec": {"template": {"spec": {"requirements": requirements}}}});
    world.patch(&pool, template).await;
    world.until("it has drifted", condition(&claim, DRIFTED, "True")).await;
    pool
}

fn replaceable(nodes: &str) -> Value {
    json!({"spec": {"disruption": {"budgets": [{"nodes": nodes}]}}})
}

/// Has the operator make a call that takes half a minute, and returns as soon as it has made it.
async fn in_the_meantime(world: &World, slow: Matching, begin: impl AsyncFnOnce()) {
    let calls = world.faults().times(slow.clone());
    world.faults().on_next(1, slow, Fault::Delay(Duration::from_secs(30)));
    begin().await;
    world
        .until("the slow call is made", async |_: &World| match calls.so_far().len() {
            0 => Err("it was not made".to_owned()),
            _ => Ok(()),
        })
        .await;
}

/// Both pods come to run on what the pool may have, and it never has more. What is on its way out does not count.
async fn both_run_within_six_cpus(world: &World) {
    world
        .until("both pods run on nodes of the new kind", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            let staying =
                claims.iter().filter(|it| !it.is_deleting() && !it.is_true(DISRUPTION_REASON));
            let mut total = Resources::new();
            for capacity in staying.filter_map(|claim| Some(&claim.status.as_ref()?.capacity)) {
                total.add(&Resources::from_api(capacity).map_err(|error| error.to_string())?);
            }
            let cpus = total.amount("cpu");
            assert!(cpus <= Quantity::from_units(6), "the pool has {cpus} CPUs and its limit is 6");
            all_run(world, 2).await?;
            let drifted = claims.iter().filter(|claim| claim.is_true(DRIFTED)).count();
            if drifted == 0 {
                Ok(())
            } else {
                Err(format!("{drifted} of {} drifted", claims.len()))
            }
        })
        .await;
}

fn of_two_cpus(name: &str) -> Pod {
    let requests = json!({"requests": {"cpu": "2"}});
    build::pod(
        name,
        &json!({"containers": [{"name": "main", "image": "main", "resources": requests}]}),
    )
}

/// A pod that shares its machine with none of its kind: their ports clash.
fn alone(name: &str) -> Pod {
    build::pod(
        name,
        &json!({"containers": [{
            "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {"requests": {"cpu": "1"}},
        }]}),
    )
}
