//! What the operator intends for a node and has not written to the API server: pods that are nominated to it, and its deletion.
//!
//! Marks live beside the watched objects, under the name of the claim, and go with the claim. They do not outlive the
//! process: nominations are over in seconds, and a mark for deletion is only ever a step ahead of the deletion itself.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kerf_api::conditions::{Conditioned, INITIALIZED};

use crate::{Change, Cluster, Delta, Key, pods};

/// kube-scheduler binds a pod within seconds of a machine being ready for it. A pod that was sent there this many times, ten
/// seconds apart, has a scheduler that does not bind it, and keeps the machine no longer.
const MOST_NOMINATIONS: u32 = 5;

/// Keyed by the name of the claim.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    nominated_until: BTreeMap<String, Timestamp>,
    /// How many times in a row a pod was sent to a machine that could have taken it.
    nominations: BTreeMap<String, BTreeMap<Key, u32>>,
    leaving: BTreeSet<String>,
}

impl Marks {
    pub(crate) fn forget(&mut self, claim: &str) {
        self.nominated_until.remove(claim);
        self.nominations.remove(claim);
        self.leaving.remove(claim);
    }
}

impl Cluster {
    /// Notes that these pods are about to come to the machine of this claim. A later time wins; a claim that is gone gets
    /// none, and so does one whose pods were said to come too many times already.
    pub fn nominate(&mut self, claim: &str, pods: impl IntoIterator<Item = Key>, until: Timestamp) {
        let Some(object) = self.claims.named(claim) else { return };
        // A machine that is not ready yet keeps pods waiting through no fault of theirs.
        if object.is_true(INITIALIZED) {
            let before = self.marks.nominations.remove(claim).unwrap_or_default();
            let times = |pod: Key| {
                let times = before.get(&pod).filter(|_| !self.is_held(&pod));
                let times = times.map_or(1, |times| times.saturating_add(1));
                (pod, times)
            };
            let now: BTreeMap<Key, u32> = pods.into_iter().map(times).collect();
            let expected = now.values().any(|times| *times <= MOST_NOMINATIONS);
            self.marks.nominations.insert(claim.to_owned(), now);
            if !expected {
                return;
            }
        }
        let stored = self.marks.nominated_until.entry(claim.to_owned()).or_insert(until);
        *stored = until.max(*stored);
    }

    /// Whether the pod still runs on a machine that goes. Its eviction waits for a budget or for another pod, and no scheduler is at
    /// fault: without the place that is kept for it, the next plan would launch a machine for it again.
    fn is_held(&self, pod: &Key) -> bool {
        self.pods.get(pod).is_some_and(|pod| pods::node_name(pod).is_some())
    }

    pub fn nominated_until(&self, claim: &str) -> Option<Timestamp> {
        self.marks.nominated_until.get(claim).copied()
    }

    /// Claims that pods are about to come to, and until when.
    pub(crate) fn nominations(&self, now: Timestamp) -> BTreeMap<String, Timestamp> {
        let nominated = self.marks.nominated_until.iter().filter(|(_, until)| **until > now);
        nominated.map(|(claim, until)| (claim.clone(), *until)).collect()
    }

    /// From here on the machine of this claim counts as leaving: it takes no pods, its own need a place elsewhere, and its
    /// pool does without it. `None` if that changes nothing.
    pub fn mark_for_deletion(&mut self, claim: &str) -> Option<Change> {
        let change = self.claim_as_it_is(claim)?;
        let is_new = self.marks.leaving.insert(claim.to_owned());
        self.mark_changed(claim);
        is_new.then_some(change)
    }

    /// Takes a mark back. A deletion that has begun is not undone by it.
    pub fn unmark_for_deletion(&mut self, claim: &str) -> Option<Change> {
        let change = self.claim_as_it_is(claim)?;
        let was_marked = self.marks.leaving.remove(claim);
        self.mark_changed(claim);
        was_marked.then_some(change)
    }

    /// Whether it was marked here; [`StateNode::is_leaving`](crate::state_node::StateNode::is_leaving) says whether it goes at all.
    pub fn is_marked_for_deletion(&self, claim: &str) -> bool {
        self.marks.leaving.contains(claim)
    }

    fn mark_changed(&mut self, claim: &str) {
        let status = self.claims.named(claim).and_then(|claim| claim.status.as_ref());
        let provider_id = status.map(|status| status.provider_id.clone());
        self.claim_changed(claim, [provider_id.as_deref(), None]);
    }

    /// The object is the same before and after, but what it means has changed, and controllers want to know.
    fn claim_as_it_is(&self, name: &str) -> Option<Change> {
        let claim = self.claims.named(name)?;
        let (before, after) = (Some(claim.clone()), Some(claim.clone()));
        Some(Change::NodeClaim(Delta { key: Key::cluster(name), before, after }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::NodeClaim;
    use kerf_model::Quantity;
    use serde_json::json;

    fn claim(name: &str) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": name, "capacity": {"cpu": "4"}},
        }))
        .unwrap()
    }

    fn seconds(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_nomination_lasts_until_its_time_and_is_only_ever_extended() {
        let mut cluster = Cluster::default();
        cluster.apply(claim("c"));
        let nominated = |cluster: &Cluster, now| {
            cluster.state_nodes().any(|machine| machine.is_nominated(seconds(now)))
        };
        assert!(!nominated(&cluster, 0));
        cluster.nominate("c", [pod("a")], seconds(20));
        assert!(nominated(&cluster, 19));
        assert!(!nominated(&cluster, 20));
        cluster.nominate("c", [pod("a")], seconds(30));
        cluster.nominate("c", [pod("a")], seconds(10));
        assert!(nominated(&cluster, 29));
    }

    fn pod(name: &str) -> Key {
        Key::namespaced("d", name)
    }

    #[test]
    fn a_pod_that_never_comes_is_expected_a_few_times() {
        let ready = |name: &str| {
            let mut claim = claim(name);
            claim.condition_set(seconds(0)).set_true(INITIALIZED);
            claim
        };
        let last = |claim: NodeClaim, pods: &[&[&str]]| {
            let mut cluster = Cluster::default();
            cluster.apply(claim);
            for (time, pods) in (1..).zip(pods) {
                cluster.nominate("c", pods.iter().map(|name| pod(name)), seconds(time));
            }
            cluster.nominated_until("c").map(Timestamp::as_second)
        };
        assert_eq!(last(ready("c"), &[&["a"][..]; 5]), Some(5));
        assert_eq!(last(ready("c"), &[&["a"][..]; 9]), Some(5));
        assert_eq!(last(claim("c"), &[&["a"][..]; 9]), Some(9), "its machine is not ready");
        let another = [&["a"][..], &["a"], &["a"], &["a"], &["a"], &["a"], &["a", "b"]];
        assert_eq!(last(ready("c"), &another), Some(7), "another pod has yet to come");
        let came = [&["a"][..], &["a"], &["a"], &["a"], &["a"], &["b"], &["a"]];
        assert_eq!(last(ready("c"), &came), Some(7), "it was not waiting for a while");
    }

    #[test]
    fn a_pod_whose_eviction_hangs_is_expected_until_it_is_gone() {
        let mut cluster = Cluster::default();
        let mut claim = claim("c");
        claim.condition_set(seconds(0)).set_true(INITIALIZED);
        cluster.apply(claim);
        let held: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "d"}, "spec": {"containers": [], "nodeName": "n"},
        }))
        .unwrap();
        cluster.apply(held.clone());
        let until = |cluster: &Cluster| cluster.nominated_until("c").map(Timestamp::as_second);
        for time in 1..20 {
            cluster.nominate("c", [pod("a")], seconds(time));
        }
        assert_eq!(until(&cluster), Some(19));
        cluster.delete(&held);
        for time in 20..40 {
            cluster.nominate("c", [pod("a")], seconds(time));
        }
        assert_eq!(until(&cluster), Some(23), "another one has its name, and waits as any other");
    }

    #[test]
    fn a_marked_machine_is_leaving_and_its_pool_does_without_it() {
        let mut cluster = Cluster::default();
        cluster.apply(claim("c"));
        let stays = |cluster: &Cluster| {
            let nodes = cluster.pool_resources("p").unwrap().amount("nodes");
            let leaving = cluster.state_nodes().any(|machine| machine.is_leaving());
            (nodes == Quantity::from_units(1), leaving)
        };
        assert_eq!(stays(&cluster), (true, false));
        assert!(cluster.mark_for_deletion("c").is_some());
        assert!(cluster.mark_for_deletion("c").is_none(), "nothing new");
        assert_eq!(stays(&cluster), (false, true));
        assert!(cluster.unmark_for_deletion("c").is_some());
        assert!(cluster.unmark_for_deletion("c").is_none(), "nothing new");
        assert_eq!(stays(&cluster), (true, false));
    }

    #[test]
    fn marks_go_with_their_claim() {
        let mut cluster = Cluster::default();
        cluster.apply(claim("c"));
        cluster.nominate("c", [pod("a")], seconds(20));
        cluster.mark_for_deletion("c");
        cluster.delete(&claim("c"));
        cluster.nominate("c", [pod("a")], seconds(20));
        cluster.apply(claim("c"));
        assert_eq!(cluster.nominated_until("c"), None);
        assert!(!cluster.is_marked_for_deletion("c"));
    }
}
