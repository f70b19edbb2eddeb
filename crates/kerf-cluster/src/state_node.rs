//! A machine: a Node, the NodeClaim it was launched for, or both.
//!
//! While a machine starts, its claim knows more than its Node: what was promised holds until the Node has caught up.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::api::resource::Quantity,
};
use kerf_api::{
    NodeClaim, NodeExt, ObjectExt,
    conditions::{Conditioned, INITIALIZED, INSTANCE_TERMINATING, REBOOTING},
    labels, taints,
};
use kerf_model::{Resources, reboot::RebootHistory, resources::ResourcesError};
use kube_core::ResourceExt;

use crate::Cluster;

/// At least one of the two is there.
#[derive(Clone, Copy, Debug)]
pub struct StateNode<'a> {
    pub node: Option<&'a Arc<Node>>,
    /// A machine without a claim is not ours; one of another operator has none here.
    pub claim: Option<&'a Arc<NodeClaim>>,
    /// Another operator launched it.
    pub of_another: bool,
    /// The operator has decided that it goes, and may not have written it yet.
    pub marked: bool,
    /// Pods are about to come here.
    pub nominated_until: Option<Timestamp>,
}

/// An amount that is not a quantity. From an API server none comes this far.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reading the resources of {machine}: {source}")]
pub struct UnreadableStateNode {
    machine: String,
    source: ResourcesError,
}

impl Cluster {
    /// Every node, and every launched claim whose node has yet to appear.
    pub fn state_nodes(&self) -> impl Iterator<Item = StateNode<'_>> {
        let nodes = self.nodes.values().map(|node| self.state_node_of(node));
        nodes.chain(self.claims.values().filter_map(|claim| self.in_flight(claim)))
    }

    /// The machine of a launched claim whose node has yet to appear.
    pub(crate) fn in_flight<'a>(&'a self, claim: &'a Arc<NodeClaim>) -> Option<StateNode<'a>> {
        let provider_id = claim.provider_id();
        let launched = !provider_id.is_empty() && self.nodes_of(provider_id).next().is_none();
        launched.then(|| self.state_node(None, Some(claim)))
    }

    pub fn state_node_of<'a>(&'a self, node: &'a Arc<Node>) -> StateNode<'a> {
        self.state_node(Some(node), self.claim_of(node.provider_id()).ok())
    }

    fn state_node<'a>(
        &'a self,
        node: Option<&'a Arc<Node>>,
        claim: Option<&'a Arc<NodeClaim>>,
    ) -> StateNode<'a> {
        let name = claim.and_then(|claim| claim.metadata.name.as_deref());
        StateNode {
            node,
            claim,
            of_another: claim.is_none()
                && node.is_some_and(|node| self.ownership.is_of_another(node)),
            marked: name.is_some_and(|name| self.is_marked_for_deletion(name)),
            nominated_until: name.and_then(|name| self.nominated_until(name)),
        }
    }
}

impl StateNode<'_> {
    pub fn name(&self) -> String {
        let name = self.node.map(|node| node.name_any());
        name.or(self.claim.map(|claim| claim.name_any())).unwrap_or_default()
    }

    /// The NodePool that it counts for.
    pub fn pool(&self) -> Option<&str> {
        if self.of_another {
            return None;
        }
        self.labels()?.get(labels::NODE_POOL).map(String::as_str)
    }

    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        match (self.claim, self.node) {
            (Some(claim), _) if !self.is_registered() => claim.metadata.labels.as_ref(),
            (_, Some(node)) => node.metadata.labels.as_ref(),
            (_, None) => None,
        }
    }

    /// Empty when neither the node nor the claim has one.
    pub fn provider_id(&self) -> &str {
        let of_node = self.node.and_then(|node| node.spec.as_ref()?.provider_id.as_deref());
        let of_claim = self.claim.and_then(|claim| claim.status.as_ref());
        of_node.or(of_claim.map(|status| status.provider_id.as_str())).unwrap_or_default()
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = match (self.claim, self.node) {
            (Some(claim), _) if !self.is_registered() => claim.annotations(),
            (_, Some(node)) => node.annotations(),
            (_, None) => return None,
        };
        annotations.get(key).map(String::as_str)
    }

    /// The node's own Ready condition.
    pub fn is_ready(&self) -> bool {
        let conditions = self.node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
    }

    pub fn is_registered(&self) -> bool {
        self.claim.is_none() || self.is_labelled(labels::REGISTERED)
    }

    /// Its claim remembers it where somebody has taken the label from the node: budgets go on counting the node, and it stays a
    /// candidate. Upstream it is neither from then on. A node that is about to be rebooted is none that pods can go to now.
    pub fn is_initialized(&self) -> bool {
        if self.is_rebooting() {
            return false;
        }
        let was = |claim: &Arc<NodeClaim>| self.is_registered() && claim.is_true(INITIALIZED);
        self.is_labelled(labels::INITIALIZED) || self.claim.is_none_or(was)
    }

    /// Its machine is restarted in place, or is about to be.
    pub fn is_rebooting(&self) -> bool {
        self.claim.is_some_and(|claim| claim.is_true(REBOOTING))
    }

    /// On its way out. A node whose claim stays is drained by the one that deleted it, and comes back.
    pub fn is_leaving(&self) -> bool {
        match (self.claim, self.node) {
            (Some(claim), _) => {
                self.marked || claim.is_deleting() || claim.is_true(INSTANCE_TERMINATING)
            }
            (None, Some(node)) => node.is_deleting(),
            (None, None) => false,
        }
    }

    pub fn is_nominated(&self, now: Timestamp) -> bool {
        self.nominated_until.is_some_and(|until| until > now)
    }

    pub fn capacity(&self) -> Result<Resources, UnreadableStateNode> {
        let node = self.node.and_then(|node| node.status.as_ref()?.capacity.as_ref());
        self.amounts(node, self.claim.and_then(|claim| claim.status.as_ref()).map(|s| &s.capacity))
    }

    pub fn allocatable(&self) -> Result<Resources, UnreadableStateNode> {
        let node = self.node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
        self.amounts(
            node,
            self.claim.and_then(|claim| claim.status.as_ref()).map(|s| &s.allocatable),
        )
    }

    /// The taints that pods have to tolerate: those that go away while a node starts do not count. A node that did not come back from
    /// its reboot is none that starts.
    pub fn taints(&self) -> Vec<&Taint> {
        let of_node = self.node.and_then(|node| node.spec.as_ref()?.taints.as_deref());
        let of_claim = self.claim.and_then(|claim| claim.spec.taints.as_deref());
        let all = if self.is_registered() { of_node } else { of_claim }.unwrap_or_default();
        let startup = self.claim.and_then(|claim| claim.spec.startup_taints.as_deref());
        let goes_away = |taint: &Taint| {
            let startup = startup.unwrap_or_default();
            taints::is_ephemeral(taint)
                || startup.iter().any(|one| taints::same(one, taint))
                || taints::same(taint, &taints::rebooting())
        };
        let failed = self.claim.is_some_and(|claim| RebootHistory::from(&**claim).has_failed());
        let starts = !self.is_initialized() && !failed;
        all.iter().filter(|taint| !starts || !goes_away(taint)).collect()
    }

    fn amounts(
        &self,
        of_node: Option<&BTreeMap<String, Quantity>>,
        of_claim: Option<&BTreeMap<String, Quantity>>,
    ) -> Result<Resources, UnreadableStateNode> {
        let read = |map: Option<&BTreeMap<String, Quantity>>| match map {
            None => Ok(Resources::new()),
            Some(map) => Resources::from_api(map)
                .map_err(|source| UnreadableStateNode { machine: self.name(), source }),
        };
        let reported = read(of_node)?;
        if self.is_initialized() {
            return Ok(reported);
        }
        // A kubelet reports devices as zero until their driver runs.
        let reported = reported.iter().filter(|(_, amount)| !amount.is_zero()).collect();
        Ok(read(of_claim)?.overridden_by(&reported))
    }

    fn is_labelled(&self, label: &str) -> bool {
        self.node.is_some_and(|node| node.labels().get(label).is_some_and(|value| value == "true"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_node_stays_initialized_when_somebody_takes_its_label() {
        let check = |was: bool, labels: &Value, expected: bool| {
            let mut claim: NodeClaim = serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
                "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"providerID": "cloud://1"},
            }))
            .unwrap();
            if was {
                claim.condition_set(Timestamp::UNIX_EPOCH).set_true(INITIALIZED);
            }
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": "n", "labels": labels}, "spec": {"providerID": "cloud://1"},
            }))
            .unwrap();
            let mut cluster = Cluster::default();
            cluster.apply(claim);
            cluster.apply(node);
            let machines: Vec<_> = cluster.state_nodes().collect();
            assert_eq!(machines.len(), 1);
            assert_eq!(machines[0].is_initialized(), expected, "{was} {labels}");
        };
        let (registered, initialized) = ("karpenter.sh/registered", "karpenter.sh/initialized");
        check(false, &json!({registered: "true"}), false);
        check(true, &json!({registered: "true"}), true);
        // The label comes first, the claim's condition after it.
        check(false, &json!({registered: "true", initialized: "true"}), true);
        // Its Node was deleted and came again: to be registered, it has to be looked at as any other.
        check(true, &json!({}), false);
    }

    /// Whose machine is restarted: pods wait for it, and nothing is planned onto it that has another place.
    #[test]
    fn a_node_that_is_rebooted_is_one_that_starts() {
        let taints = json!([
            {"key": "karpenter.sh/rebooting", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
            {"key": "dedicated", "effect": "NoSchedule"},
        ]);
        let check = |status: &str, reason: &str, label: bool, initialized: bool, left: &[&str]| {
            let condition = |kind: &str, status: &str, reason: &str| {
                json!({"type": kind, "status": status, "reason": reason, "message": "",
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let claim: NodeClaim = serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
                "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"providerID": "cloud://1", "conditions": [condition("Rebooting", status, reason)]},
            }))
            .unwrap();
            let mut labels = json!({"karpenter.sh/registered": "true"});
            if label {
                labels["karpenter.sh/initialized"] = json!("true");
            }
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": "n", "labels": labels},
                "spec": {"providerID": "cloud://1", "taints": taints},
            }))
            .unwrap();
            let mut cluster = Cluster::default();
            cluster.apply(claim);
            cluster.apply(node);
            let machine = cluster.state_nodes().next().unwrap();
            assert_eq!(machine.is_initialized(), initialized, "{status} {reason}");
            let found: Vec<_> = machine.taints().into_iter().map(|taint| &*taint.key).collect();
            assert_eq!(found, left, "{status} {reason}");
        };
        check("True", "RebootRequested", true, false, &["dedicated"]);
        check("True", "RebootIssued", false, false, &["dedicated"]);
        check("False", "RebootSucceeded", false, false, &["dedicated"]);
        // Pods do not wait for a node that did not come back.
        let all = ["karpenter.sh/rebooting", "node.kubernetes.io/unreachable", "dedicated"];
        check("False", "RebootFailed", false, false, &all);
        check("False", "RebootSucceeded", true, true, &all);
    }
}
