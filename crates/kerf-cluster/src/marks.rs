//! What the operator intends with a machine and has written nowhere: pods that are about to come, and that it will go.
//!
//! Marks live beside the watched objects, under the name of the claim, and go with the claim. They do not outlive the
//! process: nominations are over in seconds, and a mark for deletion is only ever a step ahead of the deletion itself.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{Change, Cluster, Delta, Key};

/// Keyed by the name of the claim.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    nominated_until: BTreeMap<String, Timestamp>,
    leaving: BTreeSet<String>,
}

impl Marks {
    pub(crate) fn forget(&mut self, claim: &str) {
        self.nominated_until.remove(claim);
        self.leaving.remove(claim);
    }
}

impl Cluster {
    /// Notes that pods are about to come to the machine of this claim. A later time wins; a claim that is gone gets none.
    pub fn nominate(&mut self, claim: &str, until: Timestamp) {
        if self.claims.named(claim).is_some() {
            let stored = self.marks.nominated_until.entry(claim.to_owned()).or_insert(until);
            *stored = until.max(*stored);
        }
    }

    pub fn nominated_until(&self, claim: &str) -> Option<Timestamp> {
        self.marks.nominated_until.get(claim).copied()
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

    /// Whether it was marked here; [`Machine::is_leaving`](crate::machine::Machine::is_leaving) says whether it goes at all.
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
            cluster.machines().any(|machine| machine.is_nominated(seconds(now)))
        };
        assert!(!nominated(&cluster, 0));
        cluster.nominate("c", seconds(20));
        assert!(nominated(&cluster, 19));
        assert!(!nominated(&cluster, 20));
        cluster.nominate("c", seconds(30));
        cluster.nominate("c", seconds(10));
        assert!(nominated(&cluster, 29));
    }

    #[test]
    fn a_marked_machine_is_leaving_and_its_pool_does_without_it() {
        let mut cluster = Cluster::default();
        cluster.apply(claim("c"));
        let stays = |cluster: &Cluster| {
            let nodes = cluster.pool_resources("p").unwrap().amount("nodes");
            let leaving = cluster.machines().any(|machine| machine.is_leaving());
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
        cluster.nominate("c", seconds(20));
        cluster.mark_for_deletion("c");
        cluster.delete(&claim("c"));
        cluster.nominate("c", seconds(20));
        cluster.apply(claim("c"));
        assert_eq!(cluster.nominated_until("c"), None);
        assert!(!cluster.is_marked_for_deletion("c"));
    }
}
