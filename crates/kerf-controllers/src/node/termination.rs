//! The termination of a Node: it is tainted and drained, its volumes detach, its instance and its finalizer go.

pub(crate) mod drain;
pub(crate) mod eviction;
mod volumes;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim, NodeExt, ObjectExt, TERMINATION_FINALIZER, annotations,
    conditions::{Conditioned, DRAINED},
    labels, taints,
};
use kerf_cluster::{Change, Cluster, Delta, Key};
use kerf_provider::ProviderError;
use kerf_runtime::{
    Lock, Outcome, Queue, Workers,
    events::{Notice, Severity},
};
use kube::ResourceExt;
use tracing::info;

use crate::{
    claim::instance::{self, Ending},
    context::Context,
    controller::Reconciler,
    definitions::{self, Step},
    error::{Error, Result},
};
use eviction::{Evictions, Limit};
use volumes::Wait;

const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often a cloud is asked whether an instance is gone.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// kube-scheduler may not have seen the taint yet and bind one more pod; a drain is over when none came for this long.
const QUIET_BEFORE_DRAINED: Duration = Duration::from_secs(5);

pub(crate) struct Termination {
    pub(crate) evictions: Evictions,
}

impl Reconciler for Termination {
    const WORKERS: Workers = Workers::new("node.termination", 100)
        .up_to(5000)
        .backoff(Duration::from_millis(100), Duration::from_secs(10))
        .bucket(10, 100);

    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        match change {
            Change::Node(delta) => {
                let leaving = |node: &Node| node.is_deleting();
                if delta.after.as_deref().is_some_and(leaving) {
                    queue.add(delta.key.name.clone());
                }
            }
            // A node is left alone for as long as its claim cannot be read.
            Change::NodeClaim(Delta { before, after: Some(claim), .. })
                if before.is_some() && claim.is_deleting() =>
            {
                let provider_id = claim.provider_id();
                cluster.nodes_of(provider_id).for_each(|node| queue.add(node.name_any()));
            }
            _ => {}
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some(node) = context.index.read().nodes().named(name).cloned() else {
            return Ok(Outcome::Done);
        };
        if !node.is_deleting()
            || !node.finalizers().iter().any(|finalizer| finalizer == TERMINATION_FINALIZER)
            || !is_managed(context, &node)
        {
            return Ok(Outcome::Done);
        }
        let provider_id = node.provider_id();
        if is_left_alone(context, &node) {
            return Ok(Outcome::Done);
        }
        let begun = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        let begun = begun.is_some_and(|all| all.iter().any(|one| one.key == taints::DISRUPTED));
        let step = if begun { Step::Next } else { Step::First };
        if !context.definitions.stay(step).await? {
            return Ok(Outcome::After(definitions::LOOK_AGAIN));
        }
        // Without a claim, or with two that claim the same instance, the node is drained and released; its instance stays.
        let claim = context.index.read().claim_of(provider_id).cloned().ok();
        if let Some(claim) = &claim
            && !claim.is_deleting()
        {
            context.delete_claim(claim).await?;
        }
        // The pods of a node whose instance is gone cannot be drained: no kubelet is there to end them.
        if !is_ready(&node) && instance_is_gone(context, provider_id).await? {
            return release(context, &node).await;
        }
        // Pods that are not heard of cannot be evicted: the drain would be over at once.
        if context.sight.is_lost() {
            return Ok(Outcome::After(definitions::LOOK_AGAIN));
        }
        let deadline = claim.as_deref().map(deadline).transpose()?.flatten();
        if let Some(deadline) = deadline {
            let message = format!("All pods will be deleted by {deadline}");
            let reason = "TerminationGracePeriodExpiring";
            let notice = Notice::about(&*node, Severity::Warning, reason, message);
            context.recorder.record(notice.same_if(vec![node.name_any()]));
        }
        let node = keep_from_pods(context, &node).await?;

        let waiting = drain::drain(context, &self.evictions, &node, Limit::End(deadline));
        let Some(claim) = claim else {
            let over = waiting == 0 && volumes::look(context, &node, deadline) != Wait::GoesOn;
            return if over {
                release(context, &node).await
            } else {
                Ok(Outcome::After(LOOK_AGAIN))
            };
        };
        let claim = record_drain(context, &claim, waiting == 0).await?;
        if waiting > 0 || !claim.is_true(DRAINED) {
            return Ok(Outcome::After(LOOK_AGAIN));
        }
        let wait = volumes::look(context, &node, deadline);
        let claim = volumes::record(context, &claim, wait).await?;
        if wait == Wait::GoesOn {
            return Ok(Outcome::After(LOOK_AGAIN));
        }
        match instance::terminate(context, &claim).await? {
            Ending::UnderWay => Ok(Outcome::After(ASK_AGAIN)),
            Ending::Over(_) => release(context, &node).await,
        }
    }
}

/// Whether the node or a claim of its instance cannot be read. When that changes, the node is looked at again.
fn is_left_alone(context: &Context, node: &Node) -> bool {
    let cluster = context.index.read();
    let mut claims = cluster.claims_of(node.provider_id());
    cluster.nodes().unreadable(&Key::cluster(node.name_any())).is_some()
        || claims.any(|claim| !cluster.is_readable(&claim.name_any()))
}

/// Notes on the claim how the drain stands. It counts as done only after a quiet time.
async fn record_drain(context: &Context, claim: &NodeClaim, empty: bool) -> Result<NodeClaim> {
    let now = context.now();
    let mut changed = claim.clone();
    let since = changed.condition(DRAINED).map(|condition| condition.last_transition_time.0);
    let quiet = since.is_some_and(|since| {
        Duration::try_from(now.duration_since(since)).unwrap_or_default() >= QUIET_BEFORE_DRAINED
    });
    let mut conditions = changed.condition_set(now);
    if empty && quiet {
        conditions.set_true(DRAINED);
    } else {
        conditions.set_unknown_because(DRAINED, "Draining", "Draining");
    }
    let written = context.write_status(claim, changed).await?;
    if written.is_true(DRAINED) && !claim.is_true(DRAINED) {
        context.metrics.node_drained(claim);
    }
    Ok(written)
}

async fn instance_is_gone(context: &Context, provider_id: &str) -> Result<bool> {
    match context.provider.get(provider_id).await {
        Ok(_) => Ok(false),
        Err(ProviderError::NotFound(_)) => Ok(true),
        Err(source) => {
            let what = format!("looking for the instance {provider_id}");
            Err(Error::Provider { what, source })
        }
    }
}

async fn keep_from_pods(context: &Context, node: &Node) -> Result<Node> {
    let changed = kept_from_pods(node);
    let what = || format!("tainting Node {}", node.name_any());
    context.write(node, changed, Lock::Optimistic, what).await
}

/// The node with the taint that keeps pods away and the label that makes load balancers leave it.
fn kept_from_pods(node: &Node) -> Node {
    let mut node = node.clone();
    let spec = node.spec.get_or_insert_default();
    let on_node = spec.taints.get_or_insert_default();
    if !on_node.iter().any(|taint| taints::same(taint, &taints::disrupted())) {
        on_node.retain(|taint| taint.key != taints::DISRUPTED);
        on_node.push(taints::disrupted());
    }
    node.labels_mut().insert(labels::EXCLUDE_FROM_LOAD_BALANCERS.into(), "karpenter".into());
    node
}

/// Lets the node go: nothing runs on it any more.
async fn release(context: &Context, node: &Node) -> Result<Outcome> {
    let mut changed = node.clone();
    changed.finalizers_mut().retain(|finalizer| finalizer != TERMINATION_FINALIZER);
    let what = || format!("removing the finalizer of Node {}", node.name_any());
    context.write(node, changed, Lock::Optimistic, what).await?;
    let created = node.metadata.creation_timestamp.as_ref();
    let age = created.and_then(|created| context.passed_since(created.0));
    let deleted = node.metadata.deletion_timestamp.as_ref();
    let since_deletion = deleted.and_then(|deleted| context.passed_since(deleted.0));
    context.metrics.node_terminated(node, age, since_deletion);
    info!(node = node.name_any(), "deleted node");
    Ok(Outcome::Done)
}

/// When patience with the drain ends.
fn deadline(claim: &NodeClaim) -> Result<Option<Timestamp>> {
    let Some(value) = claim.annotations().get(annotations::TERMINATION_TIMESTAMP) else {
        return Ok(None);
    };
    value.parse().map(Some).map_err(|_| Error::MalformedTime {
        annotation: annotations::TERMINATION_TIMESTAMP,
        object: format!("NodeClaim {}", claim.name_any()),
        value: value.clone(),
    })
}

fn is_managed(context: &Context, node: &Node) -> bool {
    let classes = &context.provider.facts().node_classes;
    classes.iter().any(|class| node.labels().contains_key(&class.label()))
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_taint_replaces_one_of_the_same_key_and_is_added_once() {
        let node: Node = serde_json::from_value(json!({"spec": {"taints": [
            {"key": "karpenter.sh/disrupted", "effect": "NoExecute"}, {"key": "other", "effect": "NoSchedule"}
        ]}}))
        .unwrap();
        let kept = kept_from_pods(&node);
        let taints = kept.spec.as_ref().unwrap().taints.as_ref().unwrap();
        let names: Vec<_> = taints.iter().map(kerf_api::taints::display).collect();
        assert_eq!(names, ["other:NoSchedule", "karpenter.sh/disrupted:NoSchedule"]);
        assert_eq!(kept.labels()[labels::EXCLUDE_FROM_LOAD_BALANCERS], "karpenter");
        assert_eq!(kept_from_pods(&kept), kept);
    }

    #[test]
    fn a_deadline_that_is_no_time_is_an_error_that_says_so() {
        let mut claim = NodeClaim::default();
        claim.metadata.name = Some("c".into());
        assert_eq!(deadline(&claim).unwrap(), None);
        claim.annotations_mut().insert(annotations::TERMINATION_TIMESTAMP.into(), "soon".into());
        assert_eq!(
            deadline(&claim).unwrap_err().to_string(),
            "annotation karpenter.sh/nodeclaim-termination-timestamp of NodeClaim c is not an RFC 3339 time: \"soon\""
        );
    }
}
