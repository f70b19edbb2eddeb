//! From instance to Node: the Node gets the labels, taints and annotations of its claim.

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kerf_api::{
    NodeClaim, TERMINATION_FINALIZER, annotations,
    conditions::{Conditioned, REGISTERED},
    labels, taints,
};
use kerf_cluster::NoSingleMatch;
use kerf_provider::Registration;
use kerf_runtime::{
    Lock,
    events::{Notice, Severity},
};
use kube::{Resource, ResourceExt};
use tracing::info;

use super::{Step, is_settled};
use crate::{
    claim::instance::{self, Owner},
    context::Context,
    error::{Error, Result},
};

pub(super) async fn register(context: &Context, claim: &mut NodeClaim) -> Result<Step> {
    if is_settled(claim, REGISTERED, context.now()) {
        return Ok(Step::Next);
    }
    let found = context.index.read().node_of(claim.provider_id()).cloned();
    let node = match found {
        Ok(node) => node,
        Err(NoSingleMatch::NotFound) => {
            let mut conditions = claim.condition_set(context.now());
            let message = "Node not registered with cluster";
            conditions.set_unknown_because(REGISTERED, "NodeNotFound", message);
            return Ok(Step::Next);
        }
        Err(NoSingleMatch::Duplicate(_)) => {
            let mut conditions = claim.condition_set(context.now());
            let message = "Invariant violated, matched multiple nodes";
            conditions.set_false(REGISTERED, "MultipleNodesFound", message);
            return Ok(Step::Next);
        }
    };
    let in_doubt = instance::is_in_doubt(&context.index.read(), claim, &node);
    if in_doubt && let Owner::Another(launcher) = instance::owner(context, claim).await? {
        let mut conditions = claim.condition_set(context.now());
        let message = format!("its instance belongs to {launcher}");
        conditions.set_false(REGISTERED, "InstanceOfAnotherNodeClaim", &message);
        return Ok(Step::Next);
    }
    let asked = context.provider.registering(claim, &node).await;
    match asked.map_err(|source| Error::Provider {
        what: format!("asking whether Node {} may be registered", node.name_any()),
        source,
    })? {
        Registration::Go { labels } => claim.labels_mut().extend(labels),
        Registration::Wait { because, look_again } => {
            let mut conditions = claim.condition_set(context.now());
            conditions.set_unknown_because(REGISTERED, "AwaitingProvider", &because);
            return Ok(Step::Again(look_again));
        }
    }
    if !was_kept_from_pods(&node) {
        let message = "Missing karpenter.sh/unregistered taint which prevents registration related race conditions on Karpenter-managed nodes";
        let reason = "UnregisteredTaintMissing";
        context.recorder.record(Notice::about(claim, Severity::Warning, reason, message.into()));
    }
    let startup = StartupTaints::of(&node, context.provider.facts().nodes_register_with_taints);
    let changed = registered(&node, claim, startup);
    let what = || format!("registering Node {}", node.name_any());
    context.write(&*node, changed, Lock::Optimistic, what).await?;
    info!(claim = claim.name_any(), node = node.name_any(), "registered nodeclaim");
    context.metrics.node_registered(claim);
    claim.status.get_or_insert_default().node_name = node.name_any();
    claim.condition_set(context.now()).set_true(REGISTERED);
    Ok(Step::Next)
}

/// A node that could take pods before its taints and labels were in place may hold pods it should not.
fn was_kept_from_pods(node: &Node) -> bool {
    is_registered(node)
        || node_taints(node).iter().any(|taint| taints::same(taint, &taints::unregistered()))
}

/// Where the start-up taints of a node come from when it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartupTaints {
    /// The node never had them.
    Claim,
    /// It came with them. One that is missing was removed, and would not be removed a second time.
    Node,
}

impl StartupTaints {
    fn of(node: &Node, nodes_register_with_taints: bool) -> Self {
        // Registered before, by an operator that ended before it noted so on the claim.
        let again = is_registered(node);
        let unregistered = taints::unregistered();
        let at_birth = nodes_register_with_taints
            && node_taints(node).iter().any(|taint| taints::same(taint, &unregistered));
        if again || at_birth { Self::Node } else { Self::Claim }
    }
}

/// The node as it is once the claim has taken charge of it.
fn registered(node: &Node, claim: &NodeClaim, startup: StartupTaints) -> Node {
    let mut node = node.clone();
    if !node.finalizers().iter().any(|finalizer| finalizer == TERMINATION_FINALIZER) {
        node.finalizers_mut().push(TERMINATION_FINALIZER.into());
    }
    own(&mut node, claim);
    node.labels_mut().extend(claim.labels().clone());
    let wanted = claim.annotations().clone().into_iter();
    // What a claim was launched for is over long before the node is.
    let wanted = wanted.filter(|(key, _)| key != annotations::REPLACES);
    node.annotations_mut().extend(wanted);
    let sync_taints = node.labels().get(labels::DO_NOT_SYNC_TAINTS).is_none_or(|v| v != "true");
    let mut node_taints = node_taints(&node).to_vec();
    if sync_taints {
        let startup = match startup {
            StartupTaints::Claim => claim.spec.startup_taints.as_deref().unwrap_or_default(),
            StartupTaints::Node => &[],
        };
        for taint in claim.spec.taints.iter().flatten().chain(startup) {
            if !node_taints.iter().any(|present| taints::same(present, taint)) {
                node_taints.push(taint.clone());
            }
        }
    }
    node_taints.retain(|taint| !taints::same(taint, &taints::unregistered()));
    node.spec.get_or_insert_default().taints = Some(node_taints);
    node.labels_mut().insert(labels::REGISTERED.into(), "true".into());
    node
}

fn is_registered(node: &Node) -> bool {
    node.labels().get(labels::REGISTERED).is_some_and(|value| value == "true")
}

fn own(node: &mut Node, claim: &NodeClaim) {
    let Some(owner) = claim.controller_owner_ref(&()) else { return };
    let owner = OwnerReference { controller: None, block_owner_deletion: Some(true), ..owner };
    let owners = node.owner_references_mut();
    let is_ours = |present: &OwnerReference| {
        (&present.api_version, &present.kind, &present.uid)
            == (&owner.api_version, &owner.kind, &owner.uid)
    };
    if !owners.iter().any(is_ours) {
        owners.push(owner);
    }
}

fn node_taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim() -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "uid": "u", "labels": {"zone": "a"}, "annotations": {"x": "claim"}},
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "cloud.example", "kind": "ExampleNodeClass", "name": "default"},
                "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
            },
        }))
        .unwrap()
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    fn taint_keys(node: &Node) -> Vec<&str> {
        node_taints(node).iter().map(|taint| taint.key.as_str()).collect()
    }

    #[test]
    fn the_node_takes_over_what_the_claim_asks_for() {
        let node = node(json!({
            "metadata": {"name": "n", "labels": {"zone": "b", "os": "linux"}, "annotations": {"x": "node"}},
            "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        }));
        assert!(was_kept_from_pods(&node));
        let node = registered(&node, &claim(), StartupTaints::Claim);
        assert_eq!(taint_keys(&node), ["dedicated", "cni"]);
        assert_eq!(node.labels()["zone"], "a");
        assert_eq!(node.labels()["os"], "linux");
        assert_eq!(node.labels()[labels::REGISTERED], "true");
        assert_eq!(node.annotations()["x"], "claim");
        assert_eq!(node.finalizers(), [TERMINATION_FINALIZER]);
        let owner = &node.owner_references()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("NodeClaim", "u"));
        assert_eq!(owner.block_owner_deletion, Some(true));
        let again = registered(&node, &claim(), StartupTaints::of(&node, false));
        assert_eq!(again, node, "once more changes nothing");
    }

    #[test]
    fn taints_are_left_to_whoever_asked_for_it() {
        let synced: &[&str] = &["dedicated", "cni"];
        for (asked, taints) in [("true", &[][..]), ("false", synced), ("", synced)] {
            let node = node(json!({
                "metadata": {"name": "n", "labels": {"karpenter.sh/do-not-sync-taints": asked}},
                "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
            }));
            let node = registered(&node, &claim(), StartupTaints::Claim);
            assert_eq!(taint_keys(&node), taints, "{asked:?}");
        }
    }

    #[test]
    fn a_taint_that_is_there_with_another_value_is_not_added_again() {
        let node = node(json!({
            "spec": {"taints": [{"key": "dedicated", "value": "cpu", "effect": "NoSchedule"}]},
        }));
        assert!(!was_kept_from_pods(&node));
        let node = registered(&node, &claim(), StartupTaints::of(&node, true));
        assert_eq!(taint_keys(&node), ["dedicated", "cni"]);
    }

    #[test]
    fn start_up_taints_that_were_removed_are_not_put_back() {
        let born = json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]);
        let registered_before = json!({"karpenter.sh/registered": "true"});
        for (labels, taints, with_taints, expected) in [
            // Came with all its taints, and has lost one.
            (json!({}), born.clone(), true, &["dedicated"][..]),
            // Comes without taints of its own.
            (json!({}), born, false, &["dedicated", "cni"]),
            // Did not come as its provider would have it.
            (json!({}), json!([]), true, &["dedicated", "cni"]),
            // Was registered before.
            (registered_before, json!([]), false, &["dedicated"]),
        ] {
            let node = node(json!({
                "metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints},
            }));
            let startup = StartupTaints::of(&node, with_taints);
            let registered = registered(&node, &claim(), startup);
            assert_eq!(taint_keys(&registered), expected, "{node:?}");
        }
    }
}
