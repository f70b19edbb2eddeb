//! Replacements that fail again and again.

use std::time::Duration;

use kerf_api::{NodeClaim, Setback, annotations};
use kerf_testbed::CloudFault;
use kube::ResourceExt;
use serde_json::json;

use super::{
    consolidation::a_large_node_with_a_small_app,
    drift::{drift, one_node_with_an_app},
    nothing_is_marked, replaced, told,
};
use crate::{
    World, build,
    chapters::{all_run, counted, one_ready_node, with_pool},
};

const FAILED: &str = "karpenter_voluntary_disruption_queue_failures_total";

pub async fn a_replacement_that_cannot_be_launched_is_tried_less_and_less_often(world: World) {
    let (pool, old) = one_node_with_an_app(&world).await;
    world.cloud().at_rate(1.0, CloudFault::InsufficientCapacity);
    drift(&world, &pool).await;
    let words = ", and is not tried again before ";
    told(&world, &old.name_any(), "DisruptionBlocked", words).await;
    world.pass(Duration::from_hours(2)).await;
    // After 1, 2, 4, 8, 16, 32 and 60 minutes of rest.
    let failures = counted(&world, FAILED, &["decision=\"replace\"", "reason=\"drifted\""]);
    assert!((6..=8).contains(&failures), "{failures} in two hours");
    let setback = setback_of(&world, &old).await;
    assert_eq!(u64::from(setback.failures), failures);
    assert_eq!(nothing_is_marked(&world).await, Ok(()));
    world.cloud().clear();
    replaced(&world, &old).await;
}

/// Twenty nodes of which none can be replaced. Each by itself would be tried six to eight times in two hours.
pub async fn a_pool_whose_nodes_cannot_be_replaced_rests(world: World) {
    let pool = with_pool(&world, &json!({"disruption": {"budgets": [{"nodes": "100%"}]}})).await;
    let port = json!({"containers": [{
        "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
    }]});
    world.create(build::deployment("a", 20, &port)).await;
    world.until("the pods run", async |world: &World| all_run(world, 20).await).await;
    world.cloud().at_rate(1.0, CloudFault::InsufficientCapacity);
    drift(&world, &pool).await;
    let words = "nodes of its NodePool failed, the last time because";
    told(&world, &pool.name_any(), "DisruptionBackoff", words).await;
    world.pass(Duration::from_hours(2)).await;
    let failures = counted(&world, FAILED, &["decision=\"replace\"", "reason=\"drifted\""]);
    println!("20 nodes, {failures} replacements in vain in two hours");
    assert!((20..=60).contains(&failures), "{failures} in two hours");
    let rests = counted(&world, "karpenter_voluntary_disruption_drift_backoffs_total", &[]);
    assert!(rests > 3, "{rests}");
    world.cloud().clear();
    world
        .until("all are replaced", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            let new = claims.iter().filter(|it| it.labels().get("version").is_some());
            match (new.count(), claims.len()) {
                (20, 20) => Ok(()),
                counts => Err(format!("{counts:?}")),
            }
        })
        .await;
}

pub async fn a_cloud_that_sells_dear_is_not_asked_again_and_again(world: World) {
    let balanced = json!({"disruption": {
        "consolidateAfter": "0s", "consolidationPolicy": "Balanced", "budgets": [{"nodes": "100%"}],
    }});
    let (_, old) = a_large_node_with_a_small_app(&world, &balanced, &json!({})).await;
    world.cloud().at_rate(1.0, CloudFault::LaunchDear);
    told(&world, &old.name_any(), "Unconsolidatable", "The replacement costs $").await;
    world.pass(Duration::from_hours(2)).await;
    let labels = ["decision=\"replace\"", "reason=\"underutilized\""];
    let failures = counted(&world, FAILED, &labels);
    assert!((6..=8).contains(&failures), "{failures} launches in vain in two hours");
    let setback = setback_of(&world, &old).await;
    assert_eq!(u64::from(setback.failures), failures);
    assert!(setback.message.contains(" and may cost at most $"), "{setback:?}");
    let (left, _) = world.until("only the old node is left", one_ready_node).await;
    assert_eq!(left.uid(), old.uid());
    world.cloud().clear();
    replaced(&world, &old).await;
}

async fn setback_of(world: &World, claim: &NodeClaim) -> Setback {
    let claim = world.get(claim).await.unwrap_or_else(|| panic!("the node went"));
    let written = claim.annotations().get(annotations::SETBACK);
    Setback::read(&claim).unwrap_or_else(|| panic!("{written:?}"))
}
