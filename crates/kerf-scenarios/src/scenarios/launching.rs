//! From a claim to a node that is ready for its pods, and what happens when that fails.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim, NodePool,
    conditions::{Conditioned, INITIALIZED, LAUNCHED, READY, REGISTERED},
    labels,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{condition, one_ready_node, ready_pool, runs, told, with_pool};
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
    assert!(why.contains("no available instance type"), "{why}");
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn a_claim_whose_class_is_missing_is_given_up_with_a_reason(world: World) {
    let claim = world.create(build::claim("c", &json!({}))).await;
    let why = world
        .until("the claim says why", async |world: &World| {
            told(world, "InsufficientCapacityError", &claim).await
        })
        .await;
    let class = &claim.spec.node_class_ref.name;
    assert!(why.contains(&format!("KWOKNodeClass {class} does not exist")), "{why}");
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn a_claim_of_another_provider_is_left_alone(world: World) {
    let class = json!({"nodeClassRef": {"group": "example.com", "kind": "Other", "name": "o"}});
    let foreign = world.create(build::claim("foreign", &class)).await;
    world.create(build::node_class("default", &json!({}))).await;
    let ours = world.create(build::claim("ours", &json!({}))).await;
    world.until("ours is ready", condition(&ours, READY, "True")).await;
    let foreign = world.get(&foreign).await.unwrap_or_else(|| panic!("it is gone"));
    assert!(foreign.finalizers().is_empty(), "{foreign:?}");
    assert_eq!(foreign.status.map(|status| status.provider_id).unwrap_or_default(), "");
    world.delete(&ours).await;
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
    let claim = world.create(build::claim("c", &json!({}))).await;
    world.until("the claim is ready", condition(&claim, READY, "True")).await;
    let claim = world.get(&claim).await.unwrap_or_else(|| panic!("it is gone"));
    for done in [LAUNCHED, REGISTERED, INITIALIZED] {
        assert!(claim.is_true(done), "{done}: {:?}", claim.status);
    }
    let status = claim.status.clone().unwrap_or_default();
    let node = world.only::<Node>().await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(status.node_name, node.name_any());
    assert_eq!(node.labels()["karpenter.kwok.sh/kwoknodeclass"], class.name_any());
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
