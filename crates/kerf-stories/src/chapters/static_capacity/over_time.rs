//! Static pools as time goes by: nodes that expire, and what else happens meanwhile.

use std::time::Duration;

use kerf_api::NodeClaim;
use serde_json::json;

use super::{drift, has_nodes, names, never_more_nodes_than, replaced, with_static_pool};
use crate::World;

pub async fn expired_nodes_are_replaced(world: World) {
    let changes = json!({"limits": {"nodes": "3"}, "template": {"spec": {"expireAfter": "1h"}}});
    let pool = with_static_pool(&world, 3, &changes).await;
    let old = names(&has_nodes(&world, &pool, 3).await);
    world.pass(Duration::from_mins(61)).await;
    let new = names(&has_nodes(&world, &pool, 3).await);
    assert!(old.iter().all(|name| !new.contains(name)), "{old:?} {new:?}");
    let metrics = world.metrics();
    let expired = "karpenter_nodeclaims_disrupted_total{reason=\"expired\",nodepool=\"static\"";
    assert!(metrics.lines().any(|line| line.starts_with(expired)), "{metrics}");
    never_more_nodes_than(&world, 3);
}

/// The pool is scaled and changed at about the time when its nodes expire.
pub async fn scaling_drift_and_expiry_at_once(world: World) {
    let changes = json!({
        "limits": {"nodes": "5"}, "disruption": {"budgets": [{"nodes": "100%"}]},
        "template": {"spec": {"expireAfter": "20s"}},
    });
    let pool = with_static_pool(&world, 3, &changes).await;
    // Not until they are ready: on a slow machine the first would expire before the last is.
    world
        .until("its nodes are on their way", async |world: &World| {
            let claims = world.list::<NodeClaim>().await.len();
            if claims >= 3 { Ok(()) } else { Err(format!("{claims} claims")) }
        })
        .await;
    let template = json!({
        "metadata": {"labels": {"version": "2"}}, "spec": {"expireAfter": "Never"},
    });
    world.patch(&pool, json!({"spec": {"replicas": 4, "template": template}})).await;
    replaced(&world, &pool, 4, 2).await;
    world.scale(&pool, 2).await;
    drift(&world, &pool, 3).await;
    replaced(&world, &pool, 2, 3).await;
    has_nodes(&world, &pool, 2).await;
    never_more_nodes_than(&world, 5);
}
