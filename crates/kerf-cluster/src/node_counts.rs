//! How many nodes a pool has.

use std::sync::Arc;

use kerf_api::{
    NodeClaim, NodePool, ObjectExt,
    conditions::{Conditioned, DISRUPTION_REASON, INSTANCE_TERMINATING, REBOOTING},
};
use kerf_model::{NodeCount, Quantity};

use crate::Cluster;

/// `limits.nodes`; `None` is no limit. What is not a quantity allows nothing: the API server lets none through.
pub fn node_limit(pool: &NodePool) -> Option<u64> {
    let limit = pool.spec.limits.get("nodes")?;
    let nodes = limit.0.parse::<Quantity>().map_or(0, Quantity::whole_units);
    Some(u64::try_from(nodes).unwrap_or(0))
}

impl Cluster {
    pub fn node_count(&self, pool: &str) -> NodeCount {
        let mut count = NodeCount::default();
        for claim in self.claims_in(pool) {
            match self.stage_of(claim) {
                ClaimStage::Active => count.active += 1,
                ClaimStage::Replacing => count.replacing += 1,
                ClaimStage::Leaving => count.leaving += 1,
            }
        }
        count.reserved = self.reserved_names(pool).count() as u64;
        count
    }

    pub fn claims_in(&self, pool: &str) -> impl Iterator<Item = &Arc<NodeClaim>> {
        let in_pool = move |claim: &&Arc<NodeClaim>| claim.node_pool() == Some(pool);
        self.claims.values().filter(in_pool)
    }

    pub fn stage_of(&self, claim: &NodeClaim) -> ClaimStage {
        let marked = claim.metadata.name.as_deref().is_some_and(|n| self.is_marked_for_deletion(n));
        let deleted = claim.is_deleting();
        if marked || deleted || claim.is_true(INSTANCE_TERMINATING) {
            ClaimStage::Leaving
        } else if claim.is_true(DISRUPTION_REASON) && !claim.is_true(REBOOTING) {
            ClaimStage::Replacing
        } else {
            ClaimStage::Active
        }
    }
}

/// Where in its life a claim is, as far as its pool's number of nodes goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStage {
    /// A node that is rebooted is one that stays.
    Active,
    Replacing,
    Leaving,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A static pool launches nothing in its place.
    #[test]
    fn a_node_that_is_rebooted_counts_as_one_that_stays() {
        for (rebooting, expected) in [("False", [0, 1]), ("True", [1, 0])] {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": "Because", "message": "",
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let conditions =
                [condition(DISRUPTION_REASON, "True"), condition(REBOOTING, rebooting)];
            let claim: NodeClaim = serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "p"}},
                "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"conditions": conditions},
            }))
            .unwrap();
            let mut cluster = Cluster::default();
            cluster.apply(claim);
            let count = cluster.node_count("p");
            assert_eq!([count.active, count.replacing], expected, "{rebooting}");
        }
    }
}
