//! Nodes that are taken away because they are empty, drifted, or too dear for what runs on them.

pub mod consolidation;
pub mod drift;
pub mod emptiness;
pub mod many_to_many;
pub mod savings;
pub mod setbacks;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Node, Pod},
};
use kerf_api::{
    NodeClaim, ObjectExt, annotations,
    conditions::{Conditioned, DISRUPTION_REASON, INITIALIZED, READY},
    taints,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::one_ready_node;
use crate::{World, build};

/// A pool whose nodes may be disrupted at any time, as many at once as may be.
fn disruptable() -> Value {
    json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}})
}

/// A single pod that comes back, of so much CPU.
fn app(name: &str, cpu: &str) -> Deployment {
    let requests = json!({"cpu": cpu, "memory": "64Mi"});
    build::deployment(
        name,
        1,
        &json!({"containers": [{"name": "main", "image": "main", "resources": {"requests": requests}}]}),
    )
}

/// So many claims, all ready, by name.
async fn ready_claims(world: &World, count: usize) -> Result<Vec<NodeClaim>, String> {
    let claims = world.list::<NodeClaim>().await;
    let ready = claims.iter().filter(|claim| claim.is_true(READY)).count();
    if claims.len() == count && ready == count {
        Ok(claims)
    } else {
        Err(format!("{ready} of {} claims are ready, {count} are wanted", claims.len()))
    }
}

/// Waits until another node has taken the place of this one, which may not go before the other is ready.
async fn replaced(world: &World, old: &NodeClaim) -> NodeClaim {
    world
        .until("only the new node is left", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            let (before, after): (Vec<_>, Vec<_>) =
                claims.into_iter().partition(|claim| claim.uid() == old.uid());
            let going = before.iter().any(ObjectExt::is_deleting);
            if going || before.is_empty() {
                let ready = after.iter().any(|claim| claim.is_true(INITIALIZED));
                assert!(ready, "the node goes before its replacement is ready");
            }
            let (claim, _) = one_ready_node(world).await?;
            if claim.uid() == old.uid() { Err("still the old one".into()) } else { Ok(claim) }
        })
        .await
}

/// The only pod there is asks for its node to be left alone, and so it is until the pod no longer asks.
async fn held_by_its_pod(world: &World, claim: &NodeClaim) {
    let words = "Pod has \"karpenter.sh/do-not-disrupt\" annotation";
    told(world, &claim.name_any(), "DisruptionBlocked", words).await;
    let pod =
        world.until("its pod is alone", async |world: &World| world.only::<Pod>().await).await;
    let now = world.get(claim).await.unwrap_or_else(|| panic!("the node went"));
    assert_eq!(now.metadata.deletion_timestamp, None, "the node goes");
    let release = json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: Value::Null}}});
    world.patch(&pod, release).await;
}

/// Nothing in the cluster says that a node is being disrupted.
pub(crate) async fn nothing_is_marked(world: &World) -> Result<(), String> {
    for node in world.list::<Node>().await {
        let on_node = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let marks = [taints::DISRUPTED, taints::REBOOTING];
        if on_node.iter().any(|taint| marks.contains(&taint.key.as_str())) {
            return Err(format!("{} is tainted", node.name_any()));
        }
    }
    for claim in world.list::<NodeClaim>().await {
        if let Some(reason) = claim.condition(DISRUPTION_REASON) {
            return Err(format!("{} is {}", claim.name_any(), reason.reason));
        }
    }
    Ok(())
}

/// Waits until something of this kind with these words in it was published about an object.
pub(crate) async fn told(world: &World, name: &str, reason: &str, words: &str) {
    let what = format!("{name} gets the event {reason}: {words}");
    world
        .until(&what, async |world: &World| {
            let events = world.list::<Event>().await;
            let about = events.into_iter().filter(|event| {
                event.reason.as_deref() == Some(reason)
                    && event.involved_object.name.as_deref() == Some(name)
            });
            let messages: Vec<String> = about.filter_map(|event| event.message).collect();
            let said = messages.iter().any(|message| message.contains(words));
            if said { Ok(()) } else { Err(format!("{messages:?}")) }
        })
        .await;
}
