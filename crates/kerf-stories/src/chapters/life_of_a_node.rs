//! From a pending pod to an instance that is gone.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{Event, Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kerf_api::{
    NodeClaim, NodePool, TERMINATION_FINALIZER, annotations,
    conditions::{Conditioned, LAUNCHED, REGISTERED},
    labels, taints,
};
use kube::ResourceExt;
use serde_json::json;

use super::{all_run, launching::gone, let_go, no_node, on_eight_cpus, one_ready_node, with_pool};
use crate::{World, build};

pub async fn a_pending_pod_gets_a_node(world: World) {
    let pool = with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    let pods = world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    assert_eq!(
        pods[0].spec.as_ref().and_then(|spec| spec.node_name.clone()),
        Some(node.name_any())
    );
    assert_eq!(node.labels()[labels::NODE_POOL], pool.name_any());
    assert_eq!(node.labels()[labels::REGISTERED], "true");
    assert_eq!(node.labels()[labels::INITIALIZED], "true");
    assert!(node.finalizers().iter().any(|one| one == TERMINATION_FINALIZER));
    assert_eq!(node.owner_references()[0].uid, claim.uid().unwrap_or_default());
    let on_node = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    assert!(!on_node.iter().any(|taint| taint.key == taints::UNREGISTERED), "{on_node:?}");
    assert_eq!(node.labels()[labels::INSTANCE_TYPE], "c-2x-amd64-linux");
}

pub async fn pods_that_fit_together_share_one_node(world: World) {
    with_pool(&world, &json!({})).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        world.create(build::pod(name, &on_eight_cpus())).await;
    }
    world.until("all pods run", async |world: &World| all_run(world, 6).await).await;
    world.until("the node is ready", one_ready_node).await;
}

pub async fn a_deleted_claim_takes_its_node_along(world: World) {
    let (claim, node) = drained_with_a_pod(&world).await;
    let_go(&world, &claim, &node).await;
}

/// The whole life of one node: provisioned, registered, initialised, drained with a pod on it, terminated.
pub async fn from_pending_pod_to_nothing(world: &World) {
    drained_with_a_pod(world).await;
    world.until("everything is gone", no_node).await;
}

async fn drained_with_a_pod(world: &World) -> (NodeClaim, Node) {
    with_pool(world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&claim).await;
    (claim, node)
}

pub async fn a_deleted_node_takes_its_claim_along(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.delete(&pod).await;
    world.delete(&node).await;
    let_go(&world, &claim, &node).await;
}

pub async fn a_drain_waits_for_a_disruption_budget(world: World) {
    with_pool(&world, &json!({})).await;
    let budget = world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    let pods = world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&claim).await;
    let blocked = world
        .until("the drain says what holds it", async |world: &World| {
            let events = world.list::<Event>().await;
            let about = events.into_iter().filter(|event| {
                event.reason.as_deref() == Some("FailedDraining")
                    && event.involved_object.name.as_deref() == Some(&node.name_any())
            });
            let messages: Vec<String> = about.filter_map(|event| event.message).collect();
            // The drain's own count of pods comes beside it, before or after.
            let budget = messages.iter().find(|it| it.contains("violates a PDB")).cloned();
            budget.ok_or_else(|| format!("{messages:?}"))
        })
        .await;
    let pod = format!("{}/{}", pods[0].namespace().unwrap_or_default(), pods[0].name_any());
    let expected = format!("Failed to drain node, evicting pod violates a PDB (Pod={pod})");
    assert_eq!(blocked, expected);
    assert!(world.get(&claim).await.is_some());
    world.delete::<PodDisruptionBudget>(&budget).await;
    let_go(&world, &claim, &node).await;
}

pub async fn a_pod_that_fits_nowhere_is_told_why(world: World) {
    with_pool(&world, &json!({})).await;
    let huge = json!({"containers": [
        {"name": "main", "image": "main", "resources": {"requests": {"cpu": "1k"}}},
    ]});
    world.create(build::pod("huge", &huge)).await;
    let message = world
        .until("the pod gets an event", async |world: &World| {
            let events = world.list::<Event>().await;
            let told = events.into_iter().find(|event| {
                event.reason.as_deref() == Some("FailedScheduling")
                    && event.source.as_ref().and_then(|source| source.component.as_deref())
                        == Some("karpenter")
            });
            told.and_then(|event| event.message).ok_or_else(|| "no event".to_owned())
        })
        .await;
    assert!(message.starts_with("Failed to schedule pod, "), "{message}");
    world.create(build::pod("a", &json!({}))).await;
    world
        .until("another pod is not kept waiting", async |world: &World| {
            let pods = world.list::<Pod>().await;
            let running = pods.iter().any(|pod| {
                pod.name_any() == "a"
                    && pod.status.as_ref().and_then(|status| status.phase.as_deref())
                        == Some("Running")
            });
            if running { Ok(()) } else { Err("pod a does not run".into()) }
        })
        .await;
}

pub async fn a_node_class_that_does_not_exist_makes_its_pool_unready(world: World) {
    let pool = world.create(build::pool("default", &json!({}))).await;
    let reason = world
        .until("the pool says why it is not ready", async |world: &World| {
            let pool = world.get::<NodePool>(&pool).await.ok_or("the pool is gone")?;
            let condition = pool.condition("NodeClassReady").ok_or("no condition yet")?;
            if condition.status == "False" {
                Ok(condition.reason.clone())
            } else {
                Err("unknown".into())
            }
        })
        .await;
    assert_eq!(reason, "NodeClassNotFound");
    world.create(build::pod("a", &json!({}))).await;
    // The class comes late, and everything goes on from there.
    world.create(build::node_class("default", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
}

pub async fn an_operator_that_was_killed_finds_everything_again(mut world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world
        .until("a claim is launched", async |world: &World| {
            let claim = world.only::<NodeClaim>().await?;
            if claim.is_true(LAUNCHED) { Ok(()) } else { Err("not launched".into()) }
        })
        .await;
    world.kill_operator();
    world.start_operator().await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&pod).await;
    // A pod that is still there when its node goes is planned for elsewhere.
    world.until("the pod is gone", gone(&pod)).await;
    world.delete(&claim).await;
    world.kill_operator();
    world.start_operator().await;
    world.until("everything is gone", no_node).await;
}

pub async fn a_restart_does_not_move_the_last_pod_event(mut world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let event_time = async |world: &World| {
        let claim = world.only::<NodeClaim>().await?;
        let time = claim.status.and_then(|status| status.last_pod_event_time);
        time.map(|time| time.0).ok_or_else(|| "not written yet".to_owned())
    };
    let before = world.until("the pod's arrival is noted", event_time).await;
    world.stop_operator().await;
    world.pass(Duration::from_hours(1)).await;
    world.start_operator().await;
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(world.until("the time is there", event_time).await, before);
}

pub async fn an_expired_claim_is_replaced(world: World) {
    with_pool(&world, &json!({"template": {"spec": {"expireAfter": "1h"}}})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let (old, _) = world.until("the node is ready", one_ready_node).await;
    world.pass(Duration::from_mins(58)).await;
    let kept = world.get(&old).await.map(|claim| claim.metadata.deletion_timestamp);
    assert_eq!(kept, Some(None), "it went too early");
    world.pass(Duration::from_mins(3)).await;
    world
        .until("another claim is ready and the first is gone", async |world: &World| {
            let (claim, _) = one_ready_node(world).await?;
            if claim.uid() == old.uid() { Err("still the first".into()) } else { Ok(()) }
        })
        .await;
    let metrics = world.metrics();
    for counted in
        ["karpenter_nodeclaims_disrupted_total", "karpenter_pods_disruption_initiated_total"]
    {
        let expired = format!("{counted}{{reason=\"expired\",nodepool=\"default\"");
        let line = metrics.lines().find(|line| line.starts_with(&expired)).unwrap_or_default();
        assert!(line.ends_with("} 1"), "{counted} of the one claim with its one pod: {line}");
    }
}

pub async fn a_claim_whose_node_never_comes_is_given_up_after_fifteen_minutes(world: World) {
    world.create(build::node_class("default", &json!({"nodeRegistrationDelay": "24h"}))).await;
    world.create(build::pool("default", &json!({}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let first = world
        .until("a claim is launched", async |world: &World| {
            let claim = world.only::<NodeClaim>().await?;
            if claim.is_true(LAUNCHED) { Ok(claim) } else { Err("not launched".into()) }
        })
        .await;
    assert!(!first.is_true(REGISTERED));
    world.pass(Duration::from_mins(14)).await;
    assert!(world.get(&first).await.is_some(), "given up too early");
    world.pass(Duration::from_mins(2)).await;
    assert!(world.get(&first).await.is_none(), "not given up");
}

pub async fn a_grace_period_bounds_the_drain(world: World) {
    let changes = json!({"template": {"spec": {"terminationGracePeriod": "10m"}}});
    with_pool(&world, &changes).await;
    world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&claim).await;
    world.pass(Duration::from_mins(9)).await;
    let claim = world.get(&claim).await.unwrap_or_else(|| panic!("gone before its time"));
    assert!(claim.annotations().contains_key(annotations::TERMINATION_TIMESTAMP));
    world.until("everything is gone", no_node).await;
}
