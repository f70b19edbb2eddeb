//! Nodes that are taken away because they are empty, drifted, or too dear for what runs on them.

use k8s_openapi::api::core::v1::Event;
use kerf_api::{
    annotations,
    conditions::{Conditioned, DISRUPTION_REASON},
};
use kube::ResourceExt;
use serde_json::json;

use super::{all_run, no_node, one_ready_node, with_pool};
use crate::{World, build};

pub async fn an_empty_node_is_removed(world: World) {
    with_pool(&world, &json!({"disruption": {"consolidateAfter": "0s"}})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&pod).await;
    world.until("everything is gone", no_node).await;
    assert_counted(
        &world,
        "karpenter_nodeclaims_disrupted_total",
        &["reason=\"empty\"", "consolidation_policy=\"when_empty_or_underutilized\""],
    );
    assert_counted(
        &world,
        "karpenter_voluntary_disruption_decisions_total",
        &["decision=\"delete\"", "reason=\"empty\"", "consolidation_type=\"empty\""],
    );
    let told = events_about(&world, &claim.name_any(), "DisruptionTerminating").await;
    assert_eq!(told, ["Disrupting NodeClaim: Empty"]);
}

pub async fn a_drifted_node_is_replaced_before_it_goes(world: World) {
    let pool = with_pool(&world, &json!({})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let (old, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world
        .patch(&pool, json!({"spec": {"template": {"metadata": {"labels": {"version": "two"}}}}}))
        .await;
    world
        .until("the old node waits for the new one", async |world: &World| {
            let claim = world.get(&old).await.ok_or("the old claim is gone")?;
            let reason = claim.condition(DISRUPTION_REASON).ok_or("no reason is given")?;
            assert_eq!((reason.status.as_str(), reason.reason.as_str()), ("True", "Drifted"));
            Ok(())
        })
        .await;
    let (new, _) = world
        .until("only the new node is left", async |world: &World| {
            let (claim, node) = one_ready_node(world).await?;
            if claim.uid() == old.uid() {
                Err("still the old one".into())
            } else {
                Ok((claim, node))
            }
        })
        .await;
    assert_eq!(new.labels()["version"], "two");
    assert!(new.annotations().contains_key(annotations::REPLACES));
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    assert_counted(
        &world,
        "karpenter_nodeclaims_disrupted_total",
        &["reason=\"drifted\"", "consolidation_policy=\"\""],
    );
    assert_counted(&world, "karpenter_nodeclaims_created_total", &["reason=\"drifted\""]);
}

/// The messages of a kind that were published about an object.
async fn events_about(world: &World, name: &str, reason: &str) -> Vec<String> {
    let events = world.list::<Event>().await;
    let about = events.into_iter().filter(|event| {
        event.reason.as_deref() == Some(reason)
            && event.involved_object.name.as_deref() == Some(name)
    });
    about.filter_map(|event| event.message).collect()
}

/// There is a line with this name and these labels that is not zero.
fn assert_counted(world: &World, name: &str, labels: &[&str]) {
    let metrics = world.metrics();
    let counted = metrics.lines().any(|line| {
        line.starts_with(name)
            && labels.iter().all(|one| line.contains(one))
            && !line.ends_with(" 0")
    });
    assert!(counted, "{name}{labels:?} is not in\n{metrics}");
}
