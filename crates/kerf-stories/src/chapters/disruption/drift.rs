//! Nodes that are no longer what their pool asks for.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Event};
use kerf_api::{
    NodeClaim, NodePool, annotations,
    conditions::{Conditioned, DRIFT_BLOCKED, DRIFTED},
    labels,
};
use kerf_testbed::CloudFault;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    app, consolidation::a_large_node_with_a_small_app, held_by_its_pod, nothing_is_marked,
    ready_claims, replaced, told,
};
use crate::{
    World, build,
    chapters::{all_run, condition, counted, is_counted, one_ready_node, ready_pool, with_pool},
};

pub async fn a_drifted_node_is_replaced_before_it_goes(world: World) {
    from_drifted_to_replaced(&world).await;
    let labels = ["reason=\"drifted\"", "consolidation_policy=\"\""];
    is_counted(&world, "karpenter_nodeclaims_disrupted_total", &labels).await;
    world
        .until("its pod was told why it goes", async |world: &World| {
            let events = world.list::<Event>().await;
            let told = events.into_iter().filter(|it| it.reason.as_deref() == Some("Evicted"));
            let told: Vec<_> = told.filter_map(|it| it.message).collect();
            let why = "Evicted pod: Drifted";
            if told.iter().any(|it| it == why) { Ok(()) } else { Err(format!("{told:?}")) }
        })
        .await;
    is_counted(&world, "karpenter_pods_drained_total", &["reason=\"Drifted\""]).await;
    let claim = world.only::<NodeClaim>().await.unwrap_or_else(|error| panic!("{error}"));
    let pool = format!("nodepool=\"{}\"", claim.labels()[labels::NODE_POOL]);
    let created = |labels: &[&str]| counted(&world, "karpenter_nodeclaims_created_total", labels);
    assert_eq!(created(&[&pool, "reason=\"drifted\""]), 1);
    assert_eq!(created(&[&pool]), 2, "the pod that moved got a node twice");
}

pub async fn a_protected_pod_holds_drift(world: World) {
    let (pool, old) = one_node_with(&world, &protected_app(), &json!({})).await;
    drift(&world, &pool).await;
    world.until("it has drifted", condition(&old, DRIFTED, "True")).await;
    held_by_its_pod(&world, &old).await;
    replaced(&world, &old).await;
}

/// Where a drain is bounded the pod goes when its time has come, and until then no node comes for it.
pub async fn a_protected_pod_does_not_hold_drift_where_drains_are_bounded(world: World) {
    let bounded = json!({"template": {"spec": {"terminationGracePeriod": "40s"}}});
    let (pool, old) = one_node_with(&world, &protected_app(), &bounded).await;
    drift(&world, &pool).await;
    world
        .until("the pod runs on a node of the new kind", async |world: &World| {
            let (claim, _) = one_ready_node(world).await?;
            all_run(world, 1).await?;
            if claim.uid() == old.uid() { Err("still the old one".into()) } else { Ok(()) }
        })
        .await;
}

fn protected_app() -> Deployment {
    let mut protected = serde_json::to_value(app("a", "1")).unwrap_or_default();
    let keep = json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: "true"}}});
    build::merge(&mut protected["spec"]["template"], &keep);
    build::object(protected)
}

/// The first replacement never registers, is given up after ten minutes, and the second takes its place.
pub async fn from_given_up_to_replaced(world: &World) {
    let (pool, old) = one_node_with_an_app(world).await;
    world.cloud().on_next(1, CloudFault::NeverRegisters);
    drift(world, &pool).await;
    replaced(world, &old).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("nothing is marked", nothing_is_marked).await;
}

/// A node with a pod drifts, and another takes its place.
pub async fn from_drifted_to_replaced(world: &World) {
    let (pool, old) = one_node_with_an_app(world).await;
    drift(world, &pool).await;
    let new = replaced(world, &old).await;
    assert_eq!(new.labels()["version"], "two");
    assert!(new.annotations().contains_key(annotations::REPLACES));
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.until("nothing is marked", nothing_is_marked).await;
}

pub async fn a_drifted_node_waits_for_its_budget(world: World) {
    let (pool, old) = one_node_with_an_app(&world).await;
    let budget = |nodes: &str| json!({"spec": {"disruption": {"budgets": [{"nodes": nodes, "reasons": ["Drifted"]}]}}});
    world.patch(&pool, budget("0")).await;
    drift(&world, &pool).await;
    world.until("it has drifted", condition(&old, DRIFTED, "True")).await;
    let words = "No allowed disruptions for disruption reason Drifted due to blocking budget";
    told(&world, &pool.name_any(), "DisruptionBlocked", words).await;
    world.pass_if_free(Duration::from_mins(30)).await;
    assert_eq!(nothing_is_marked(&world).await, Ok(()));
    world.patch(&pool, budget("1")).await;
    replaced(&world, &old).await;
}

/// A replacement comes before the old node goes, and the limit has no room for both.
pub async fn a_drifted_pool_at_its_limit_says_so(world: World) {
    let limit = |nodes: &str| json!({"limits": {"nodes": nodes}});
    let (pool, old) = one_node_with(&world, &app("a", "1"), &limit("1")).await;
    drift(&world, &pool).await;
    let why = world.until("the pool says so", condition(&pool, DRIFT_BLOCKED, "True")).await;
    let words = "NoHeadroom: 1 drifted nodes cannot be replaced: a replacement comes before the old node goes, and \
                 limits.nodes is 1 with 1 nodes; set limits.nodes to 2 or more";
    assert_eq!(why, words);
    told(&world, &pool.name_any(), "DriftBlocked", "1 drifted nodes cannot be replaced").await;
    world.pass_if_free(Duration::from_mins(10)).await;
    assert_eq!(nothing_is_marked(&world).await, Ok(()));
    world.patch(&pool, json!({"spec": limit("2")})).await;
    replaced(&world, &old).await;
    world
        .until("the pool says nothing any more", async |world: &World| {
            let pool = world.get(&pool).await.ok_or("the pool is gone")?;
            match pool.condition(DRIFT_BLOCKED) {
                None => Ok(()),
                Some(blocked) => Err(blocked.message.clone()),
            }
        })
        .await;
}

pub async fn a_replacement_that_cannot_be_launched_is_tried_again(world: World) {
    let (pool, old) = one_node_with_an_app(&world).await;
    world.cloud().on_next(1, CloudFault::InsufficientCapacity);
    drift(&world, &pool).await;
    replaced(&world, &old).await;
    let failed = "karpenter_voluntary_disruption_queue_failures_total";
    is_counted(&world, failed, &["decision=\"replace\"", "reason=\"drifted\""]).await;
}

pub async fn a_replacement_that_never_registers_is_given_up(world: World) {
    let (pool, old) = one_node_with_an_app(&world).await;
    world.cloud().on_next(1, CloudFault::NeverRegisters);
    drift(&world, &pool).await;
    world
        .until("the node is marked", async |world: &World| match nothing_is_marked(world).await {
            Ok(()) => Err("not yet".to_owned()),
            Err(_) => Ok(()),
        })
        .await;
    world.pass(Duration::from_mins(9)).await;
    assert!(nothing_is_marked(&world).await.is_err(), "given up too early");
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(nothing_is_marked(&world).await, Ok(()));
    let records = world.list::<NodeClaim>().await;
    let records =
        records.iter().filter(|claim| claim.annotations().contains_key(annotations::REPLACES));
    assert_eq!(records.count(), 0, "a command that is over stands on a claim");
    replaced(&world, &old).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
}

/// A pool with more than its limit allows launches nothing, and its drifted node keeps no other waiting.
pub async fn a_pool_over_its_limit_keeps_no_other_waiting(world: World) {
    let never =
        json!({"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}});
    let of_pool = |name: &str| json!({"spec": {"nodeSelector": {labels::NODE_POOL: name}}});
    let (pool, stuck) = a_large_node_with_a_small_app(&world, &never, &of_pool("default")).await;
    let other = ready_pool(&world, build::pool("other", &never)).await;
    let mut app = serde_json::to_value(app("b", "1")).unwrap_or_default();
    build::merge(&mut app["spec"]["template"], &of_pool("other"));
    world.create(build::object::<Deployment>(app)).await;
    world.until("the other node is ready", async |w: &World| ready_claims(w, 2).await).await;
    world.until("the pods run", async |world: &World| all_run(world, 2).await).await;

    // Without the node there would be room for a smaller one; but the smaller one comes first.
    world.patch(&pool, json!({"spec": {"limits": {"cpu": "3"}}})).await;
    drift(&world, &pool).await;
    let words = "has 4 of resource cpu and its limit is 3";
    told(&world, &stuck.name_any(), "DisruptionBlocked", words).await;
    drift(&world, &other).await;
    let pools = [&pool, &other];
    world
        .until("the other node is replaced", async |world: &World| {
            are_of_versions(world, pools, [None, Some("two")]).await
        })
        .await;
    world.pass(Duration::from_mins(30)).await;
    assert_eq!(nothing_is_marked(&world).await, Ok(()));
    let labels = ["nodepool=\"default\"", "reason=\"limit\""];
    assert_eq!(counted(&world, "karpenter_consolidation_blocked_total", &labels), 1);
    world.patch(&pool, json!({"spec": {"limits": {"cpu": "5"}}})).await;
    world
        .until("both are replaced", async |world: &World| {
            are_of_versions(world, pools, [Some("two"); 2]).await
        })
        .await;
}

/// Each of two pools has one node, which is ready and of this version.
async fn are_of_versions(
    world: &World,
    pools: [&NodePool; 2],
    wanted: [Option<&str>; 2],
) -> Result<(), String> {
    let claims = ready_claims(world, 2).await?;
    let version = |pool: &NodePool| {
        let of_pool = |claim: &&NodeClaim| claim.labels()[labels::NODE_POOL] == pool.name_any();
        claims.iter().find(of_pool).and_then(|claim| claim.labels().get("version").cloned())
    };
    let got = pools.map(version);
    if got.each_ref().map(Option::as_deref) == wanted { Ok(()) } else { Err(format!("{got:?}")) }
}

pub async fn an_operator_that_was_killed_goes_on_with_its_command(mut world: World) {
    let (pool, old) = one_node_with_an_app(&world).await;
    drift(&world, &pool).await;
    world
        .until("the replacement is on its way", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            let coming =
                claims.iter().any(|it| it.annotations().contains_key(annotations::REPLACES));
            if coming { Ok(()) } else { Err("no replacement".to_owned()) }
        })
        .await;
    world.kill_operator();
    world.start_operator().await;
    replaced(&world, &old).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
}

pub(super) async fn one_node_with_an_app(world: &World) -> (NodePool, NodeClaim) {
    one_node_with(world, &app("a", "1"), &json!({})).await
}

async fn one_node_with(world: &World, app: &Deployment, changes: &Value) -> (NodePool, NodeClaim) {
    let mut spec = json!({"disruption": {"budgets": [{"nodes": "100%"}]}});
    build::merge(&mut spec, changes);
    let pool = with_pool(world, &spec).await;
    world.create(app.clone()).await;
    let (old, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    (pool, old)
}

pub(super) async fn drift(world: &World, pool: &NodePool) {
    let template = json!({"spec": {"template": {"metadata": {"labels": {"version": "two"}}}}});
    world.patch(pool, template).await;
}
