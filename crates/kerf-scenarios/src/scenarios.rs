//! The stories, by chapter.

pub mod churn_controls;
pub mod disruption;
pub mod faults;
pub mod life_of_a_node;
pub mod static_capacity;

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, READY},
};
use kerf_cluster::pods;
use serde_json::json;

use crate::{World, build};

/// A pool that is ready for pods.
pub(crate) async fn with_pool(world: &World, changes: &serde_json::Value) -> kerf_api::NodePool {
    world.create(build::node_class("default", &json!({}))).await;
    let pool = world.create(build::pool("default", changes)).await;
    world
        .until("the pool is ready", async |world: &World| {
            let pool = world.get(&pool).await.ok_or("the pool is gone")?;
            if pool.is_true(READY) { Ok(pool) } else { Err(format!("{:?}", pool.status)) }
        })
        .await
}

/// All pods run; how many there are.
pub(crate) async fn all_run(world: &World, count: usize) -> Result<Vec<Pod>, String> {
    let all = world.list::<Pod>().await;
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    let running = all.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count();
    if running == count && all.len() == count {
        Ok(all)
    } else {
        Err(format!("{running} of {} pods run, {count} are wanted", all.len()))
    }
}

/// The one claim there is, ready, with its node.
pub(crate) async fn one_ready_node(world: &World) -> Result<(NodeClaim, Node), String> {
    let claim = world.only::<NodeClaim>().await?;
    let node = world.only::<Node>().await?;
    if claim.is_true(READY) { Ok((claim, node)) } else { Err(format!("{:?}", claim.status)) }
}

/// Nothing is left of any node.
pub(crate) async fn no_node(world: &World) -> Result<(), String> {
    let (claims, nodes) = (world.list::<NodeClaim>().await, world.list::<Node>().await);
    let bound = world.list::<Pod>().await.iter().filter(|pod| pods::is_scheduled(pod)).count();
    if claims.is_empty() && nodes.is_empty() {
        Ok(())
    } else {
        Err(format!("{} claims, {} nodes, {bound} bound pods", claims.len(), nodes.len()))
    }
}
