//! From a claim to a node that is ready for its pods, and what happens when that fails.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim, NodePool, TERMINATION_FINALIZER,
    conditions::{Conditioned, INITIALIZED, LAUNCHED, READY, REGISTERED},
    labels, taints,
};
use kerf_testbed::CloudFault;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{condition, counted, let_go, one_ready_node, ready_pool, runs, told, with_pool};
use crate::{World, build};

pub async fn a_claim_that_nothing_can_meet_is_given_up_with_a_reason(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    let impossible = json!({"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["none"]});
    let claim = world.create(build::claim("c", &json!({"requirements": [impossible]}))).await;
    let why = world
        .until("the claim says why", async |world: &World| {
            told(world, "InsufficientCapacityError", &claim).await
        })
        .await;
    assert!(why.contains("instance type"), "{why}");
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn a_claim_whose_class_is_missing_is_given_up_with_a_reason(world: World) {
    let claim = world.create(build::claim("c", &json!({}))).await;
    let why = world
        .until("the claim says why", async |world: &World| {
            told(world, "InsufficientCapacityError", &claim).await
        })
        .await;
    let class = &claim.spec.node_class_ref;
    assert!(why.contains(&format!("{} {} does not exist", class.kind, class.name)), "{why}");
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn a_claim_whose_class_is_not_ready_is_given_up(world: World) {
    let class = world.create(build::node_class("default", &json!({}))).await;
    let not_ready = json!({
        "type": "Ready", "status": "False", "reason": "Broken", "message": "it is broken",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    world.patch_status(&class, json!({"status": {"conditions": [not_ready]}})).await;
    let claim = world.create(build::claim("c", &json!({}))).await;
    world.until("the claim is gone", gone(&claim)).await;
    world
        .until("it is counted", async |world: &World| {
            let counted = "karpenter_nodeclaims_disrupted_total{reason=\"nodeclass_not_ready\"";
            let metrics = world.metrics();
            if metrics.lines().any(|it| it.starts_with(counted)) { Ok(()) } else { Err(metrics) }
        })
        .await;
}

pub async fn a_cloud_that_limits_calls_is_left_alone_as_long_as_it_says(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    world.cloud().on_next(1, CloudFault::Throttled(Duration::from_secs(40)));
    let start = world.now();
    for name in ["a", "b", "c"] {
        world.create(build::claim(name, &json!({}))).await;
    }
    let claims = world.list::<NodeClaim>().await;
    for claim in &claims {
        let why = world.until("the claim says why", condition(claim, LAUNCHED, "Unknown"));
        assert!(why.await.starts_with("Throttled: "), "{}", claim.name_any());
    }
    for claim in &claims {
        world.until("the claim is launched", condition(claim, LAUNCHED, "True")).await;
    }
    let took = world.now().duration_since(start).as_secs();
    assert!((40..45).contains(&took), "all wait for the same answer, and no longer: {took} s");
    let failed = "karpenter_cloudprovider_errors_total";
    assert_eq!(counted(&world, failed, &["method=\"Create\"", "error=\"ThrottledError\""]), 1);
}

pub async fn an_operator_is_not_ready_before_its_provider_has_started(mut world: World) {
    world.kill_operator();
    world.cloud().on_next(3, CloudFault::StartRefused);
    let start = world.now();
    world.start_operator().await;
    let took = world.now().duration_since(start).as_secs();
    assert!((7..9).contains(&took), "tried again after 1, 2 and 4 seconds: {took} s");
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
}

pub async fn a_launch_that_is_not_allowed_is_told_and_tried_again_after_a_minute(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    world.cloud().on_next(1, CloudFault::Unauthorized);
    let start = world.now();
    let claim = world.create(build::claim("c", &json!({}))).await;
    let why = world
        .until("the claim says why", async |world: &World| {
            told(world, "Unauthorized", &claim).await
        })
        .await;
    assert!(why.contains("not allowed to call RunInstances"), "{why}");
    world.until("the claim is launched", condition(&claim, LAUNCHED, "True")).await;
    let took = world.now().duration_since(start).as_secs();
    assert!((60..65).contains(&took), "{took} s");
}

/// Nothing is written on them, whatever it is that ours would get: finalizers, labels, conditions, hashes, an end.
pub async fn what_belongs_to_another_provider_is_left_alone(world: World) {
    let class = json!({"group": "example.com", "kind": "Other", "name": "o"});
    let template = json!({"template": {"spec": {"nodeClassRef": class}}, "replicas": 2});
    let pool = world.create(build::pool("foreign", &template)).await;
    let mut claim = build::claim("foreign", &json!({"nodeClassRef": class, "expireAfter": "1s"}));
    claim.labels_mut().insert(labels::NODE_POOL.into(), pool.name_any());
    let claim = world.create(claim).await;
    let node: Node = build::object(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "foreign", "finalizers": [TERMINATION_FINALIZER]},
        "spec": {"providerID": "other://foreign"},
    }));
    let node = world.create(node).await;
    world.delete(&node).await;
    // What is done to ours meanwhile would have been done to the others.
    world.create(build::node_class("default", &json!({}))).await;
    let ours = world.create(build::claim("ours", &json!({}))).await;
    world.until("ours is ready", condition(&ours, READY, "True")).await;
    world.delete(&ours).await;
    world.until("ours is gone", gone(&ours)).await;
    let version = |object: Option<String>| object.unwrap_or_else(|| panic!("it is gone"));
    let claim_now = world.get(&claim).await.and_then(|claim| claim.resource_version());
    assert_eq!(version(claim_now), version(claim.resource_version()), "the claim was changed");
    let pool_now = world.get(&pool).await.and_then(|pool| pool.resource_version());
    assert_eq!(version(pool_now), version(pool.resource_version()), "the pool was changed");
    let foreign = world.get(&node).await.unwrap_or_else(|| panic!("the node was let go"));
    let on_node = foreign.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(!on_node.iter().any(|taint| taint.key == taints::DISRUPTED), "{on_node:?}");
    world.patch(&node, json!({"metadata": {"finalizers": null}})).await;
}

pub async fn a_node_without_its_taint_is_registered_and_reported(world: World) {
    let claim = launched_without_node(&world).await;
    world.create(node_of_instance("late", &claim)).await;
    world.until("the claim is ready", condition(&claim, READY, "True")).await;
    let why = world
        .until("the claim gets an event", async |world: &World| {
            told(world, "UnregisteredTaintMissing", &claim).await
        })
        .await;
    assert!(why.starts_with("Missing karpenter.sh/unregistered taint"), "{why}");
    world.delete(&claim).await;
    world.until("the claim is gone", gone(&claim)).await;
}

/// A kubelet registers its node with all taints. What removes a start-up taint may be faster than the operator, which was
/// away for a moment, say; put back, the taint would stay for ever.
pub async fn a_start_up_taint_that_was_removed_before_registration_stays_away(mut world: World) {
    world.create(build::node_class("default", &json!({"nodeRegistrationDelay": "24h"}))).await;
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let tainted = json!({"taints": [taint("kept")], "startupTaints": [taint("started")]});
    let claim = world.create(build::claim("c", &tainted)).await;
    world.until("the claim is launched", condition(&claim, LAUNCHED, "True")).await;
    let claim = world.get(&claim).await.unwrap_or_else(|| panic!("it is gone"));
    world.kill_operator();
    let mut node = serde_json::to_value(node_of_instance("late", &claim)).unwrap_or_default();
    node["spec"]["taints"] = json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]);
    let node = world.create(build::object::<Node>(node)).await;
    world.start_operator().await;
    world.until("the claim is ready", condition(&claim, READY, "True")).await;
    let node = world.get(&node).await.unwrap_or_else(|| panic!("the node is gone"));
    let on_node = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let keys: Vec<_> = on_node.iter().map(|taint| taint.key.as_str()).collect();
    assert!(keys.contains(&"kept") && !keys.contains(&"started"), "{keys:?}");
}

/// Somebody copied a Node, say. Both go with the claim.
pub async fn a_claim_takes_all_its_nodes_along(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    let claim = world.create(build::claim("c", &json!({}))).await;
    world.until("the claim is ready", condition(&claim, READY, "True")).await;
    let claim = world.get(&claim).await.unwrap_or_else(|| panic!("it is gone"));
    let node = world.only::<Node>().await.unwrap_or_else(|error| panic!("{error}"));
    let twin = world.create(node_of_instance("twin", &claim)).await;
    world.delete(&claim).await;
    let_go(&world, &claim, &node).await;
    world.until("its twin is gone", gone(&twin)).await;
}

/// Which of the two is it? Neither is taken, and neither goes with the claim.
pub async fn an_instance_with_two_nodes_is_not_registered(mut world: World) {
    let claim = launched_without_node(&world).await;
    world.kill_operator();
    for name in ["one", "other"] {
        world.create(node_of_instance(name, &claim)).await;
    }
    world.start_operator().await;
    let why = world.until("the claim says so", condition(&claim, REGISTERED, "False")).await;
    assert_eq!(why, "MultipleNodesFound: Invariant violated, matched multiple nodes");
    world.delete(&claim).await;
    world.until("the claim is gone", gone(&claim)).await;
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(world.list::<Node>().await.len(), 2);
}

pub async fn a_claim_without_a_pool_is_given_up_like_any_other(world: World) {
    world.create(build::node_class("default", &json!({"nodeRegistrationDelay": "24h"}))).await;
    let mut claim = build::claim("c", &json!({}));
    claim.labels_mut().insert(labels::NODE_POOL.into(), "gone".into());
    let claim = world.create(claim).await;
    world.pass(Duration::from_mins(14)).await;
    assert!(world.get(&claim).await.is_some(), "given up too early");
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn the_label_of_the_class_comes_back(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    let claim = world.create(build::claim("c", &json!({}))).await;
    world.until("the claim is ready", condition(&claim, READY, "True")).await;
    let node = world.only::<Node>().await.unwrap_or_else(|error| panic!("{error}"));
    let class = &claim.spec.node_class_ref;
    let label = &labels::node_class(&class.group, &class.kind);
    let lost = json!({"metadata": {"labels": {label: null}}});
    world.patch(&claim, lost.clone()).await;
    world.patch(&node, lost).await;
    let class = Some(claim.spec.node_class_ref.name.clone());
    world
        .until("the label is back", async |world: &World| {
            let on_claim = world.get(&claim).await.and_then(|it| it.labels().get(label).cloned());
            let on_node = world.get(&node).await.and_then(|it| it.labels().get(label).cloned());
            if on_claim == class && on_node == class {
                Ok(())
            } else {
                Err(format!("{on_claim:?} {on_node:?}"))
            }
        })
        .await;
    world.delete(&claim).await;
}

pub async fn a_start_up_taint_holds_a_node_back_until_somebody_removes_it(world: World) {
    let taint = json!({"key": "example.com/agent", "effect": "NoSchedule"});
    with_pool(&world, &json!({"template": {"spec": {"startupTaints": [taint]}}})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let claim = world
        .until("the claim waits for the taint to go", async |world: &World| {
            let claim = world.only::<NodeClaim>().await?;
            let reason = claim.condition(INITIALIZED).map(|it| it.reason.clone());
            match reason.as_deref() {
                Some("StartupTaintsExist") => Ok(claim),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    assert!(claim.is_true(REGISTERED));
    let message = claim.condition(INITIALIZED).map(|it| it.message.clone()).unwrap_or_default();
    assert!(message.contains("example.com/agent:NoSchedule"), "{message}");
    let node = world.only::<Node>().await.unwrap_or_else(|error| panic!("{error}"));
    world.patch(&node, json!({"spec": {"taints": null}})).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    let (_, node) = world.until("the node is ready", one_ready_node).await;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(!taints.iter().any(|taint| taint.key == "example.com/agent"), "it came back");
}

pub async fn conditions_tell_how_far_a_claim_has_come(world: World) {
    let class = world.create(build::node_class("default", &json!({}))).await;
    // Amounts stay as they were written, however oddly.
    let requests = json!({"cpu": "0.5", "memory": "536870912000m"});
    let claim = build::claim("c", &json!({"resources": {"requests": requests}}));
    let claim = world.create(claim).await;
    world.until("the claim is ready", condition(&claim, READY, "True")).await;
    let claim = world.get(&claim).await.unwrap_or_else(|| panic!("it is gone"));
    for done in [LAUNCHED, REGISTERED, INITIALIZED] {
        assert!(claim.is_true(done), "{done}: {:?}", claim.status);
    }
    assert_eq!(claim.finalizers(), [TERMINATION_FINALIZER]);
    assert_eq!(json!(claim.spec.resources.requests), requests);
    let status = claim.status.clone().unwrap_or_default();
    let node = world.only::<Node>().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(status.node_name, node.name_any());
    let reference = &claim.spec.node_class_ref;
    let label = labels::node_class(&reference.group, &reference.kind);
    assert_eq!(node.labels()[&label], class.name_any());
    let instance_type = claim.labels().get(labels::INSTANCE_TYPE);
    assert_eq!(instance_type, node.labels().get(labels::INSTANCE_TYPE));
    world.delete(&claim).await;
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn a_registered_node_makes_its_pool_healthy(world: World) {
    let pool = with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    world.until("it is healthy", condition(&pool, "NodeRegistrationHealthy", "True")).await;
}

pub async fn two_nodes_that_never_come_make_their_pool_unhealthy(world: World) {
    world.create(build::node_class("default", &json!({"nodeRegistrationDelay": "24h"}))).await;
    let pool: NodePool = ready_pool(&world, build::pool("default", &json!({}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let why =
        world.until("it is unhealthy", condition(&pool, "NodeRegistrationHealthy", "False")).await;
    assert_eq!(why, "RegistrationFailed: Failed to register node");
}

pub async fn a_claim_that_cannot_be_launched_is_given_up_after_five_minutes(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    let first = world
        .until("the claim says what fails", async |world: &World| {
            let claim = world.only::<NodeClaim>().await?;
            let launched = claim.condition(LAUNCHED).cloned().ok_or("no condition")?;
            let told = (launched.status.as_str(), launched.reason.as_str());
            if told == ("Unknown", "LaunchFailed") { Ok(claim) } else { Err(format!("{told:?}")) }
        })
        .await;
    world.pass(Duration::from_mins(4)).await;
    assert!(world.get(&first).await.is_some(), "given up too early");
    world.until("the claim is gone", gone(&first)).await;
    let counted = "karpenter_nodeclaims_disrupted_total{reason=\"launch_timeout\"";
    let metrics = world.metrics();
    assert!(metrics.lines().any(|line| line.starts_with(counted)), "{metrics}");
}

/// A claim whose instance is there and whose node is a day away.
async fn launched_without_node(world: &World) -> NodeClaim {
    world.create(build::node_class("default", &json!({"nodeRegistrationDelay": "24h"}))).await;
    let claim = world.create(build::claim("c", &json!({}))).await;
    world.until("the claim is launched", condition(&claim, LAUNCHED, "True")).await;
    world.get(&claim).await.unwrap_or_else(|| panic!("it is gone"))
}

/// A node that somebody registers for the claim's instance, without the taint that nodes are born with.
fn node_of_instance(name: &str, claim: &NodeClaim) -> Node {
    let status = claim.status.clone().unwrap_or_default();
    build::object(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": status.provider_id},
        "status": {"capacity": status.capacity, "allocatable": status.allocatable},
    }))
}

pub(super) fn gone<K>(object: &K) -> impl AsyncFnMut(&World) -> Result<(), String>
where
    K: crate::world::Kind,
{
    async move |world: &World| match world.get(object).await {
        None => Ok(()),
        Some(object) => {
            let meta: Value = json!({"deleted": object.meta().deletion_timestamp});
            Err(format!("{} is still there: {meta}", object.name_any()))
        }
    }
}
