//! The two things that show on a node that it is being disrupted: a taint, and the reason on its claim.

use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    DisruptionReason, NodeClaim, ObjectExt,
    conditions::{Conditioned, DISRUPTION_REASON},
    taints,
};
use kerf_runtime::Lock;
use kube::{Api, ResourceExt};

use crate::{
    context::Context,
    error::{Result, Tried, is_not_found},
    writer::Written,
};

/// How many nodes are written to at once.
pub(super) const AT_ONCE: usize = 20;

/// Waits between the attempts of one write, as client-go has them, without the jitter.
const RETRIES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// Taints the node and writes the reason onto its claim. What is gone needs neither.
pub(super) async fn mark(context: &Context, claim: &str, reason: DisruptionReason) -> Result<()> {
    change_node(context, claim, with_taint).await?;
    change_reason(context, claim, Some(reason)).await
}

/// Takes back what [`mark`] wrote. A node or claim that is being deleted keeps it.
pub(super) async fn unmark(context: &Context, claim: &str) -> Result<()> {
    change_node(context, claim, without_taint).await?;
    context.unbound_drain(claim).await?;
    change_reason(context, claim, None).await
}

/// [`unmark`] for each of them; all are tried, whatever becomes of the others.
pub(super) async fn unmark_all(context: &Context, claims: &[String]) -> Result<()> {
    let unmarked = stream::iter(claims.to_vec())
        .map(|claim| async move { unmark(context, &claim).await })
        .buffered(AT_ONCE);
    unmarked.collect::<Vec<_>>().await.into_iter().collect()
}

pub(super) fn is_tainted(node: &Node) -> bool {
    let on_node = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    on_node.iter().any(|taint| taints::same(taint, &taints::disrupted()))
}

async fn change_node(
    context: &Context,
    claim: &str,
    change: fn(&Node) -> Option<Node>,
) -> Result<()> {
    let known = {
        let cluster = context.index.read();
        let claim = cluster.claims().named(claim);
        claim.and_then(|claim| cluster.node_of(claim.provider_id()).ok()).cloned()
    };
    let Some(known) = known else { return Ok(()) };
    persist(context, &*known, change)
        .await
        .tried(|| format!("changing the taints of Node {}", known.name_any()))
}

async fn change_reason(
    context: &Context,
    claim: &str,
    reason: Option<DisruptionReason>,
) -> Result<()> {
    let _turn = context.turns.take(claim).await;
    let known = context.index.read().claims().named(claim).cloned();
    let Some(known) = known else { return Ok(()) };
    let now = context.now();
    persist(context, &*known, |claim| with_reason(claim, reason, now))
        .await
        .tried(|| format!("updating the status of NodeClaim {claim}"))
}

/// Tries a write a few times, on the newest version of the object from the second time on. What is gone is as good as
/// written.
async fn persist<K: Written>(
    context: &Context,
    known: &K,
    change: impl Fn(&K) -> Option<K>,
) -> kube::Result<()> {
    let api: Api<K> = Api::all(context.client.clone());
    let mut newest = known.clone();
    let mut retries = RETRIES.into_iter();
    loop {
        let Some(changed) = change(&newest) else { return Ok(()) };
        let failure = match context.send(&newest, &changed, Lock::Optimistic).await {
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(error) => error,
            Ok(_) => return Ok(()),
        };
        let Some(wait) = retries.next() else { return Err(failure) };
        tokio::time::sleep(wait).await;
        match api.get_opt(&known.name_any()).await {
            Ok(Some(found)) => newest = found,
            Ok(None) => return Ok(()),
            // The attempt that follows fails by itself if it matters.
            Err(_) => {}
        }
    }
}

/// `None`: it has it already.
fn with_taint(node: &Node) -> Option<Node> {
    if is_tainted(node) {
        return None;
    }
    let mut node = node.clone();
    let on_node = node.spec.get_or_insert_default().taints.get_or_insert_default();
    on_node.retain(|taint| taint.key != taints::DISRUPTED);
    on_node.push(taints::disrupted());
    Some(node)
}

/// `None`: it has none, or it is too late.
fn without_taint(node: &Node) -> Option<Node> {
    if !is_tainted(node) || node.is_deleting() {
        return None;
    }
    let mut node = node.clone();
    if let Some(on_node) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        on_node.retain(|taint| taint.key != taints::DISRUPTED);
    }
    Some(node)
}

/// `None`: it says so already, or it is too late to take the reason away.
fn with_reason(
    claim: &NodeClaim,
    reason: Option<DisruptionReason>,
    now: Timestamp,
) -> Option<NodeClaim> {
    let mut changed = claim.clone();
    let mut conditions = changed.condition_set(now);
    if let Some(reason) = reason {
        let reason = reason.as_str();
        conditions.set_true_because(DISRUPTION_REASON, reason, reason);
    } else {
        if claim.is_deleting() {
            return None;
        }
        claim.condition(DISRUPTION_REASON)?;
        let cleared = conditions.clear(DISRUPTION_REASON);
        debug_assert_eq!(cleared, Ok(()));
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    fn node(taints: &Value, deleted: bool) -> Node {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": {"name": "n", "deletionTimestamp": deleted}, "spec": {"taints": taints},
        }))
        .unwrap()
    }

    #[test]
    fn the_taint_comes_and_goes_and_leaves_others_alone() {
        let other = json!({"key": "other", "effect": "NoSchedule"});
        let ours = json!({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"});
        let stronger = json!({"key": "karpenter.sh/disrupted", "effect": "NoExecute"});
        let tainted = node(&json!([other, ours]), false);
        assert_eq!(with_taint(&node(&json!([other]), false)), Some(tainted.clone()));
        assert_eq!(with_taint(&node(&json!([other, stronger]), false)), Some(tainted.clone()));
        assert_eq!(with_taint(&tainted), None);
        assert_eq!(without_taint(&tainted), Some(node(&json!([other]), false)));
        assert_eq!(without_taint(&node(&json!([other]), false)), None);
        assert_eq!(without_taint(&node(&json!([ours]), true)), None, "it is being deleted");
    }

    #[test]
    fn the_reason_is_taken_away_only_while_the_claim_stays() {
        let now = Timestamp::UNIX_EPOCH;
        let claim = NodeClaim::default();
        assert_eq!(with_reason(&claim, None, now), None);
        let marked = with_reason(&claim, Some(DisruptionReason::Empty), now).unwrap();
        assert_eq!(marked.condition(DISRUPTION_REASON).unwrap().reason, "Empty");
        let freed = with_reason(&marked, None, now).unwrap();
        assert!(freed.condition(DISRUPTION_REASON).is_none());
        let mut deleted = marked;
        deleted.metadata.deletion_timestamp = Some(Time(now));
        assert_eq!(with_reason(&deleted, None, now), None);
    }
}
