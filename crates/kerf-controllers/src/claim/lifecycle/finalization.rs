//! The finalizer of a claim: its Node is deleted first, then its instance, then the claim.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim, ObjectExt, TERMINATION_FINALIZER, annotations,
    conditions::{Conditioned, INSTANCE_TERMINATING, REGISTERED},
};
use kerf_runtime::{
    Lock, Outcome,
    events::{Notice, Severity},
};
use kube::ResourceExt;
use tracing::info;

use crate::{
    claim::instance::{self, Ending, Owner},
    context::Context,
    definitions::{LOOK_AGAIN, Step},
    error::Result,
};

/// How often a cloud is asked whether an instance is gone.
const ASK_AGAIN: Duration = Duration::from_secs(5);

pub(super) async fn finalize(context: &Context, claim: &NodeClaim) -> Result<Outcome> {
    if !claim.finalizers().iter().any(|finalizer| finalizer == TERMINATION_FINALIZER) {
        return Ok(Outcome::Done);
    }
    if !context.definitions.stay(Step::First).await? {
        return Ok(Outcome::After(LOOK_AGAIN));
    }
    let claim = &with_deadline(context, claim).await?;
    if claim.is_true(REGISTERED) && nodes_are_left(context, claim).await? {
        // The node's own end brings us back here.
        return Ok(Outcome::Done);
    }
    // Asked even if no instance was written down: the operator may have ended between the launch and the note of it.
    let claim = match instance::terminate(context, claim).await? {
        Ending::UnderWay => return Ok(Outcome::After(ASK_AGAIN)),
        Ending::Over(claim) => claim,
    };
    if let Some(asked) = claim.condition(INSTANCE_TERMINATING) {
        context.metrics.instance_gone(&claim, context.passed_since(asked.last_transition_time.0));
    }
    release(context, &claim).await
}

/// Deletes the nodes of a claim; whether there are any. Those of an instance that is another claim's are not its own.
async fn nodes_are_left(context: &Context, claim: &NodeClaim) -> Result<bool> {
    let provider_id = claim.provider_id();
    let left: Vec<Arc<Node>> = context.index.read().nodes_of(provider_id).cloned().collect();
    let staying = |node: &&Arc<Node>| !node.is_deleting();
    let to_delete: Vec<_> = left.iter().filter(staying).collect();
    if !to_delete.is_empty() && instance::owner(context, claim).await? != Owner::ThisClaim {
        return Ok(false);
    }
    for node in to_delete {
        context.delete(&**node).await?;
    }
    Ok(!left.is_empty())
}

/// Writes down when patience with the drain ends, once: later changes of the period do not move it.
async fn with_deadline(context: &Context, claim: &NodeClaim) -> Result<NodeClaim> {
    let Some(deadline) = deadline(claim) else { return Ok(claim.clone()) };
    let mut changed = claim.clone();
    changed.annotations_mut().insert(annotations::TERMINATION_TIMESTAMP.into(), deadline.clone());
    let what = || format!("writing the deadline of NodeClaim {}", claim.name_any());
    let written = context.write_claim(claim, changed, Lock::Optimistic, what).await?;
    let message = format!("All pods will be deleted by {deadline}");
    let reason = "TerminationGracePeriodExpiring";
    context.recorder.record(
        Notice::about(claim, Severity::Warning, reason, message).same_if(vec![claim.name_any()]),
    );
    Ok(written)
}

fn deadline(claim: &NodeClaim) -> Option<String> {
    if claim.annotations().contains_key(annotations::TERMINATION_TIMESTAMP) {
        return None;
    }
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    let period = claim.spec.termination_grace_period.as_ref()?.as_duration();
    let period = jiff::SignedDuration::try_from(period).unwrap_or(jiff::SignedDuration::MAX);
    let deadline = deleted.checked_add(period).unwrap_or(Timestamp::MAX);
    Some(deadline.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Lets the claim go: nothing of it is left in the cloud.
async fn release(context: &Context, claim: &NodeClaim) -> Result<Outcome> {
    let mut changed = claim.clone();
    changed.finalizers_mut().retain(|finalizer| finalizer != TERMINATION_FINALIZER);
    let what = || format!("removing the finalizer of NodeClaim {}", claim.name_any());
    context.write_claim(claim, changed, Lock::Optimistic, what).await?;
    let deleted = claim.metadata.deletion_timestamp.as_ref();
    let since = deleted.and_then(|deleted| context.passed_since(deleted.0));
    context.metrics.claim_terminated(claim, since);
    info!(claim = claim.name_any(), "deleted nodeclaim");
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_deadline_is_set_once_and_only_with_a_grace_period() {
        let claim = |period: Option<&str>, annotation: Option<&str>| -> NodeClaim {
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {
                    "deletionTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": annotation.map(|time| json!({annotations::TERMINATION_TIMESTAMP: time})),
                },
                "spec": {
                    "requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
                    "terminationGracePeriod": period,
                },
            }))
            .unwrap()
        };
        assert_eq!(deadline(&claim(None, None)), None);
        assert_eq!(deadline(&claim(Some("1h30m"), None)).as_deref(), Some("2026-01-01T01:30:00Z"));
        assert_eq!(deadline(&claim(Some("1h30m"), Some("2026-01-01T00:10:00Z"))), None);
    }
}
