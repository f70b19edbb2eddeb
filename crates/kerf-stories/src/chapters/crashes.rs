//! Lives of nodes for operators that die: each ends only when everything is as it should be, so a stuck finalizer, a
//! lost pod or a forgotten instance is a story without an end.

use kerf_api::NodeClaim;
use kube::ResourceExt;
use serde_json::json;

use super::{all_run, one_ready_node, with_pool};
use crate::{World, build};

/// Two pods under a budget lose their node one after the other, and both get another.
pub async fn from_one_node_to_another(world: &World) {
    with_pool(world, &json!({})).await;
    world.create(build::budget("a", &json!({"maxUnavailable": 1}))).await;
    world.create(build::deployment("a", 2, &json!({}))).await;
    world.until("both pods run", async |world: &World| all_run(world, 2).await).await;
    let (first, _) = world.until("the node is ready", one_ready_node).await;
    world.delete::<NodeClaim>(&first).await;
    world
        .until("both pods run on another node and the first is gone", async |world: &World| {
            all_run(world, 2).await?;
            let (second, _) = one_ready_node(world).await?;
            if second.uid() == first.uid() { Err("still the first".to_owned()) } else { Ok(()) }
        })
        .await;
}
