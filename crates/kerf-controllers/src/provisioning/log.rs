//! What the log says about pods: each once, in Karpenter's words and with its keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kerf_cluster::Key;
use kerf_scheduler::Plan;
use tracing::info;

use super::batcher::Batch;

/// Pods that the log has told of. A pod that is no longer waiting is forgotten, so that it is told of again when it comes back.
#[derive(Debug, Default)]
pub(super) struct Told {
    found: BTreeSet<Key>,
    /// With the reason.
    refused: BTreeMap<Key, String>,
}

impl Told {
    /// `pods` are all that a plan was made for. With `batch`, why they were collected for as long as they were.
    pub(super) fn found(&mut self, pods: BTreeSet<Key>, took: Duration, batch: Option<Batch>) {
        let new: Vec<_> = pods.difference(&self.found).collect();
        if !new.is_empty() {
            let (pods, duration) = (listed(&new), format!("{took:?}"));
            info!(
                controller = "provisioner",
                Pods = pods,
                duration,
                waited = batch.map(|batch| format!("{:?}", batch.lasted)),
                because = batch.map(|batch| batch.closed.to_string()),
                "found provisionable pod(s)"
            );
        }
        self.found = pods;
    }

    /// `refused` are all that have no place now. Pods that share a reason, as those of a workload do, share a line.
    pub(super) fn refused(&mut self, refused: BTreeMap<Key, String>) {
        let mut new: BTreeMap<&str, Vec<&Key>> = BTreeMap::new();
        for (pod, reason) in &refused {
            if self.refused.get(pod) != Some(reason) {
                new.entry(reason).or_default().push(pod);
            }
        }
        for (error, pods) in new {
            info!(
                controller = "provisioner",
                Pods = listed(&pods),
                error,
                "could not schedule pod(s)"
            );
        }
        self.refused = refused;
    }
}

/// What is launched. A plan is made for pods that have none yet, so that each launch is told of once.
pub(super) fn planned(plan: &Plan) {
    let pods: usize = plan.claims.iter().map(|claim| claim.pods.len()).sum();
    let virtual_pods: usize = plan.claims.iter().map(|claim| claim.virtual_pods.len()).sum();
    if !plan.claims.is_empty() {
        let nodeclaims = plan.claims.len();
        info!(
            controller = "provisioner",
            nodeclaims,
            pods,
            // Only where there are any: most clusters have no buffers.
            virtual_pods = (virtual_pods > 0).then_some(virtual_pods),
            "computed new nodeclaim(s) to fit pod(s)"
        );
    }
}

/// The first five, and how many more there are.
fn listed(pods: &[&Key]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<_> = pods.iter().take(SHOWN).map(ToString::to_string).collect();
    match pods.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} other(s)", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pods_are_listed_in_short() {
        let keys: Vec<_> = (0..7).map(|at| Key::namespaced("a", at.to_string())).collect();
        let keys: Vec<_> = keys.iter().collect();
        assert_eq!(listed(&keys[..2]), "a/0, a/1");
        assert_eq!(listed(&keys[..5]), "a/0, a/1, a/2, a/3, a/4");
        assert_eq!(listed(&keys), "a/0, a/1, a/2, a/3, a/4 and 2 other(s)");
    }
}
