//! How many nodes a pool has.

use std::sync::Arc;

use kerf_api::{
    NodeClaim, NodePool, ObjectExt,
    conditions::{Conditioned, DISRUPTION_REASON, INSTANCE_TERMINATING},
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
        } else if claim.is_true(DISRUPTION_REASON) {
            ClaimStage::Replacing
        } else {
            ClaimStage::Active
        }
    }
}

/// Where in its life a claim is, as far as its pool's number of nodes goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStage {
    Active,
    Replacing,
    Leaving,
}
