//! A cluster from files, as an operator would see it that has just started on it.

use std::collections::{BTreeMap, BTreeSet};

use kerf_api::{
    NodeClaim, ObjectExt,
    conditions::{Conditioned, DISRUPTION_REASON, DRIFTED, REBOOTING},
};
use kerf_cluster::{
    Cluster,
    overlays::Overlaid,
    snapshot::{Inputs, Taken},
    view::{self, Unreadable},
};
use kerf_disruption::pool_drift::{PoolDrift, PoolHash};
use kube_core::ResourceExt;

use crate::Loaded;

#[derive(Debug)]
pub struct Offline {
    pub loaded: Loaded,
    inputs: Inputs,
    /// Claims that have drifted from their pool as it is here, and that no operator has marked so yet.
    pub drift: BTreeMap<String, PoolDrift>,
}

impl Loaded {
    /// With what an operator does before it decides: it takes up commands that another has left, and looks for drift.
    pub fn seen_with(mut self, inputs: Inputs) -> Offline {
        let in_queue = take_up_commands(&mut self.cluster);
        let drift = find_drift(&mut self.cluster, &inputs);
        Offline { loaded: self, inputs: Inputs { in_queue, ..inputs }, drift }
    }
}

impl Offline {
    pub fn snapshot(&self) -> Result<Taken, Unreadable> {
        self.loaded.cluster.snapshot(self.inputs.clone())
    }

    /// What the overlays change.
    pub fn overlaid(&self) -> Overlaid {
        let Inputs { instance_types, label_rules, .. } = &self.inputs;
        self.loaded.cluster.overlaid(instance_types.clone(), label_rules)
    }
}

/// Commands that an operator has under way stand on the claims that they are about: these count as leaving, as they do for
/// that operator. What is being deleted already is seen to leave without it, and what is rebooted stays.
fn take_up_commands(cluster: &mut Cluster) -> BTreeSet<String> {
    let going = cluster.claims().values();
    let going = going.filter(|claim| claim.is_true(DISRUPTION_REASON) && !claim.is_deleting());
    let going = going.filter(|claim| !claim.is_true(REBOOTING));
    let going: BTreeSet<String> = going.map(|claim| claim.name_any()).collect();
    for claim in &going {
        cluster.mark_for_deletion(claim);
    }
    going
}

/// Pools in files may have been changed since their claims were launched. What the cloud itself said about drift stays.
fn find_drift(cluster: &mut Cluster, inputs: &Inputs) -> BTreeMap<String, PoolDrift> {
    let known = view::known_labels(&inputs.label_rules);
    let claims: Vec<_> = cluster.claims().values().cloned().collect();
    let mut found = BTreeMap::new();
    for claim in claims.iter().filter(|claim| !claim.is_deleting()) {
        let Some(pool) = claim.node_pool().and_then(|pool| cluster.pools().named(pool)) else {
            continue;
        };
        let hash = PoolHash::of(pool);
        let of_types = || match inputs.instance_types.get(&pool.name_any()) {
            Some(Ok(types)) if !types.is_empty() => {
                PoolDrift::of_types(claim, types, &known, inputs.now)
            }
            _ => None,
        };
        let drift = PoolDrift::of(claim, pool, Some(&hash), &known).or_else(of_types);
        let written = claim.condition(DRIFTED).filter(|_| claim.is_true(DRIFTED));
        // A change of the pool that was taken back.
        let is_over = |reason: &str| {
            let of_pool = [PoolDrift::NodePool, PoolDrift::Requirements];
            hash.is_of(claim) && of_pool.iter().any(|drift| drift.reason() == reason)
        };
        let mut changed = NodeClaim::clone(claim);
        let mut conditions = changed.condition_set(inputs.now);
        match (drift, written) {
            (Some(drift), None) => {
                conditions.set_true_because(DRIFTED, drift.reason(), drift.reason());
                found.insert(claim.name_any(), drift);
            }
            // Ready does not depend on it, so that it can be cleared.
            (None, Some(written)) if is_over(&written.reason) => {
                drop(conditions.clear(DRIFTED));
            }
            _ => continue,
        }
        cluster.apply(changed);
    }
    found
}
