//! A pool never has more than its limits allow.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, READY},
};
use kube::ResourceExt;
use serde_json::json;

use super::{
    is_running, one_ready_node, runs, static_capacity::most_claims_at_once, told, with_pool,
};
use crate::{World, build};

pub async fn the_number_of_nodes_is_never_exceeded(world: World) {
    with_pool(&world, &json!({"limits": {"nodes": "2"}})).await;
    for name in ["a", "b", "c", "d"] {
        world.create(alone(name)).await;
    }
    world
        .until("two pods run and two are told why not", async |world: &World| {
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
        .until("the third is told", async |w: &World| told(w, "FailedScheduling", &third).await)
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
        .until("the second is told", async |w: &World| told(w, "FailedScheduling", &second).await)
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
        .until("the second is told", async |w: &World| told(w, "FailedScheduling", &second).await)
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
