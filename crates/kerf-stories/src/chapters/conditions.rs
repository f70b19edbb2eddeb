//! What claims say about themselves while they live: drifted, consolidatable, expired, lost.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim, annotations,
    conditions::{CONSOLIDATABLE, Conditioned, DRIFTED},
    hash::HASH_VERSION,
    labels,
};
use kerf_testbed::{CloudFault, Fault, Matching, actors::RUNS_FOR};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{condition, is_counted, launching::gone, one_ready_node, runs, told, with_pool};
use crate::{World, build};

/// Nothing may be disrupted, whatever the conditions say.
fn untouched(changes: Value) -> Value {
    let mut changes = changes;
    changes["disruption"]["budgets"] = json!([{"nodes": "0"}]);
    changes
}

pub async fn a_changed_template_drifts_its_nodes_until_it_is_changed_back(world: World) {
    let pool = with_pool(&world, &untouched(json!({}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.patch(&pool, annotated(&json!({"example.com/note": "new"}))).await;
    let why = world.until("the claim has drifted", condition(&claim, DRIFTED, "True")).await;
    assert_eq!(why, "NodePoolDrifted: NodePoolDrifted");
    world.patch(&pool, annotated(&Value::Null)).await;
    world.until("it has not drifted any more", without(&claim, DRIFTED)).await;
}

pub async fn requirements_that_a_node_does_not_meet_drift_it(world: World) {
    let pool = with_pool(&world, &untouched(json!({}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    let zone = &node.labels()["topology.kubernetes.io/zone"];
    let narrowed = |operator: &str| {
        json!({"spec": {"template": {"spec": {"requirements": [
            {"key": "topology.kubernetes.io/zone", "operator": operator, "values": [zone]},
        ]}}}})
    };
    world.patch(&pool, narrowed("NotIn")).await;
    let why = world.until("the claim has drifted", condition(&claim, DRIFTED, "True")).await;
    assert_eq!(why, "RequirementsDrifted: RequirementsDrifted");
    world.patch(&pool, narrowed("In")).await;
    world.until("it has not drifted any more", without(&claim, DRIFTED)).await;
}

pub async fn a_quiet_node_becomes_consolidatable_unless_its_pool_says_never(world: World) {
    let after = json!({"disruption": {"consolidateAfter": "1s"}});
    let pool = with_pool(&world, &untouched(after)).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("it is consolidatable", condition(&claim, CONSOLIDATABLE, "True")).await;
    world.patch(&pool, annotated(&json!({"example.com/note": "new"}))).await;
    world
        .until("it has drifted as well", async |world: &World| {
            let claim = world.get(&claim).await.ok_or("the claim is gone")?;
            let both = claim.is_true(CONSOLIDATABLE) && claim.is_true(DRIFTED);
            if both { Ok(()) } else { Err(format!("{:?}", claim.status)) }
        })
        .await;
    let mut changes = annotated(&Value::Null);
    changes["spec"]["disruption"]["consolidateAfter"] = json!("Never");
    world.patch(&pool, changes).await;
    world.until("it is not any more", without(&claim, CONSOLIDATABLE)).await;
    world.until("nor has it drifted", without(&claim, DRIFTED)).await;
}

/// The first reason counts: the pool's before the cloud's.
pub async fn what_the_cloud_calls_drift_is_drift(world: World) {
    let pool = with_pool(&world, &untouched(json!({}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    let instance = claim.status.clone().unwrap_or_default().provider_id;
    let drifted = async |why: &str| {
        let condition = format!("{why}: {why}");
        world
            .until(why, async |world: &World| {
                let claim = world.get(&claim).await.ok_or("the claim is gone")?;
                let drifted = claim.condition(DRIFTED).ok_or("it has not drifted")?;
                let told = format!("{}: {}", drifted.reason, drifted.message);
                if told == condition { Ok(drifted.last_transition_time.0) } else { Err(told) }
            })
            .await
    };
    world.cloud().drift(&instance, Some("ImageDrifted"));
    let since = drifted("ImageDrifted").await;
    world.pass(Duration::from_mins(1)).await;
    let zone = &node.labels()["topology.kubernetes.io/zone"];
    let elsewhere =
        json!([{"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [zone]}]);
    world.patch(&pool, json!({"spec": {"template": {"spec": {"requirements": elsewhere}}}})).await;
    drifted("RequirementsDrifted").await;
    world.patch(&pool, annotated(&json!({"example.com/note": "new"}))).await;
    assert_eq!(drifted("NodePoolDrifted").await, since, "it has drifted all the time");
    let mut back = annotated(&Value::Null);
    back["spec"]["template"]["spec"]["requirements"] = json!([]);
    world.patch(&pool, back).await;
    drifted("ImageDrifted").await;
    world.cloud().drift(&instance, None);
    world.until("it has not drifted any more", without(&claim, DRIFTED)).await;
}

pub async fn a_type_that_is_no_longer_sold_is_drift_after_an_hour(world: World) {
    with_pool(&world, &untouched(json!({}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.withdraw(&node.labels()[labels::INSTANCE_TYPE]);
    world.pass(Duration::from_mins(58)).await;
    let drifted = world.get(&claim).await.and_then(|claim| claim.condition(DRIFTED).cloned());
    assert_eq!(drifted, None, "judged too early");
    let why = world.until("the claim has drifted", condition(&claim, DRIFTED, "True")).await;
    assert_eq!(why, "InstanceTypeNotFound: InstanceTypeNotFound");
}

pub async fn a_claim_does_not_drift_before_it_is_launched(world: World) {
    let pool = with_pool(&world, &untouched(json!({}))).await;
    world.cloud().at_rate(1.0, CloudFault::LaunchRefused);
    world.create(build::pod("a", &json!({}))).await;
    let claim = world.until("there is a claim", World::only::<NodeClaim>).await;
    world.patch(&pool, annotated(&json!({"example.com/note": "new"}))).await;
    world.pass(Duration::from_mins(2)).await;
    let drifted = world.get(&claim).await.and_then(|claim| claim.condition(DRIFTED).cloned());
    assert_eq!(drifted, None);
    world.cloud().clear();
    let why = world.until("it is launched and drifts", condition(&claim, DRIFTED, "True")).await;
    assert_eq!(why, "NodePoolDrifted: NodePoolDrifted");
}

/// Claims and pool carry a hash of a kind that this operator does not make.
pub async fn an_operator_that_hashes_otherwise_drifts_nothing(mut world: World) {
    let pool = with_pool(&world, &untouched(json!({}))).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.stop_operator().await;
    let (hash, version) = (annotations::NODE_POOL_HASH, annotations::NODE_POOL_HASH_VERSION);
    let old = json!({"metadata": {"annotations": {hash: "1234", version: "v0"}}});
    world.patch(&claim, old.clone()).await;
    world.patch(&pool, old).await;
    world.start_operator().await;
    let stamped = async |world: &World| {
        let (pool, claim) = (world.get(&pool).await, world.get(&claim).await);
        let (pool, claim) = pool.zip(claim).ok_or("one is gone")?;
        for annotations in [pool.annotations(), claim.annotations()] {
            let told = (annotations.get(hash), annotations.get(version).map(String::as_str));
            if told != (Some(&world.served(&pool).hash()), Some(HASH_VERSION)) {
                return Err(format!("{told:?}"));
            }
        }
        Ok(())
    };
    world.until("both carry the hash of this operator", stamped).await;
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(stamped(&world).await, Ok(()));
    let drifted = world.get(&claim).await.and_then(|claim| claim.condition(DRIFTED).cloned());
    assert_eq!(drifted, None);
    let told = told(&world, DRIFTED, &claim).await;
    assert!(told.is_err(), "it drifted for a while: {told:?}");
}

pub async fn pods_that_come_and_go_restart_the_wait(world: World) {
    let after = json!({"disruption": {"consolidateAfter": "10m"}});
    with_pool(&world, &untouched(after)).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.pass(Duration::from_mins(11)).await;
    world.until("it is consolidatable", condition(&claim, CONSOLIDATABLE, "True")).await;
    let pod = world.create(build::pod("b", &small())).await;
    world.until("it is not any more", without(&claim, CONSOLIDATABLE)).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world.pass(Duration::from_mins(11)).await;
    world.until("it is again", condition(&claim, CONSOLIDATABLE, "True")).await;
    world.delete(&pod).await;
    world.until("and a pod that goes counts too", without(&claim, CONSOLIDATABLE)).await;
}

pub async fn a_pod_that_ends_restarts_the_wait(world: World) {
    let after = json!({"disruption": {"consolidateAfter": "10m"}});
    with_pool(&world, &untouched(after)).await;
    let mut short = build::pod("a", &json!({"restartPolicy": "Never"}));
    short.annotations_mut().insert(RUNS_FOR.into(), "30m".into());
    let pod = world.create(short).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.pass(Duration::from_mins(11)).await;
    world.until("it is consolidatable", condition(&claim, CONSOLIDATABLE, "True")).await;
    world
        .until("the pod has ended", async |world: &World| {
            let pod = world.get(&pod).await.ok_or("it is gone")?;
            let phase = pod.status.and_then(|status| status.phase);
            if phase.as_deref() == Some("Succeeded") { Ok(()) } else { Err(format!("{phase:?}")) }
        })
        .await;
    world.until("it is not any more", without(&claim, CONSOLIDATABLE)).await;
    world.pass(Duration::from_mins(11)).await;
    world.until("it is again", condition(&claim, CONSOLIDATABLE, "True")).await;
}

pub async fn a_claim_expires_when_its_time_has_come(world: World) {
    with_pool(&world, &json!({"template": {"spec": {"expireAfter": "10s"}}})).await;
    world.create(build::pod("a", &json!({}))).await;
    let claim = world.until("there is a claim", World::only::<NodeClaim>).await;
    world.until("the claim is gone", gone(&claim)).await;
    is_counted(&world, "karpenter_nodeclaims_disrupted_total", &["reason=\"expired\""]).await;
}

pub async fn the_arrival_of_a_pod_is_noted_on_its_claim(world: World) {
    with_pool(&world, &json!({})).await;
    a_pod_comes_and_is_noted(&world).await;
}

/// The Node is registered first and takes the pod, which changes no more. Only then its claim says which Node it has.
pub async fn the_arrival_of_a_pod_is_noted_before_its_claim_names_the_node(world: World) {
    with_pool(&world, &json!({})).await;
    let status = Matching::writes().resource("nodeclaims").subresource("status");
    world.faults().at_rate(1.0, status, Fault::Delay(Duration::from_mins(1)));
    a_pod_comes_and_is_noted(&world).await;
}

async fn a_pod_comes_and_is_noted(world: &World) {
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world
        .until("its arrival is noted", async |world: &World| {
            let claim = world.only::<NodeClaim>().await?;
            let noted = claim.status.and_then(|status| status.last_pod_event_time);
            noted.ok_or_else(|| "it is not".to_owned())
        })
        .await;
}

pub async fn a_claim_whose_instance_vanished_is_collected(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.delete(&pod).await;
    // Of this provider the Node is the instance: one that loses its finalizer and goes was terminated behind our back.
    world.patch(&node, json!({"metadata": {"finalizers": null}})).await;
    world.delete(&node).await;
    assert!(world.get::<Node>(&node).await.is_none());
    world.until("the claim is gone", gone(&claim)).await;
    let counted = "karpenter_nodeclaims_disrupted_total{reason=\"garbage_collected\"";
    let metrics = world.metrics();
    assert!(metrics.lines().any(|line| line.starts_with(counted)), "{metrics}");
}

pub async fn a_node_that_is_smaller_than_promised_is_reported(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("it was consistent", condition(&claim, "ConsistentStateFound", "True")).await;
    world.patch_status(&node, json!({"status": {"capacity": {"cpu": "1"}}})).await;
    world.pass(Duration::from_mins(11)).await;
    let why =
        world.until("it is not any more", condition(&claim, "ConsistentStateFound", "False")).await;
    assert_eq!(why, "ConsistencyCheckFailed: Consistency Check Failed");
    let told = told(&world, "FailedConsistencyCheck", &claim).await;
    assert_eq!(told.as_deref(), Ok("expected 2 of resource cpu, but found 1 (50.0% of expected)"));
}

/// A change of what nodes are made of.
fn annotated(value: &Value) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": value}}}})
}

pub(super) fn small() -> Value {
    json!({"containers": [
        {"name": "main", "image": "main", "resources": {"requests": {"cpu": "100m"}}},
    ]})
}

fn without(claim: &NodeClaim, kind: &str) -> impl AsyncFnMut(&World) -> Result<(), String> {
    async move |world: &World| {
        let claim = world.get(claim).await.ok_or("the claim is gone")?;
        match claim.condition(kind) {
            None => Ok(()),
            Some(condition) => Err(format!("{condition:?}")),
        }
    }
}
