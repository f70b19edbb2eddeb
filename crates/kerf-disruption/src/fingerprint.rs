//! Whether an estate is still the one that was searched before.

use std::{
    fmt::Write,
    hash::{Hash, Hasher},
};

use kerf_model::{InstanceType, estate::Estate};
use rustc_hash::FxHasher;

use crate::{budgets::Allowance, setback};

/// Equal for estates in which a search finds the same. Time counts only by what it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(pub(crate) u64);

impl Fingerprint {
    pub(crate) fn of<'a>(
        estate: &Estate,
        allowances: impl Iterator<Item = (&'a String, &'a Allowance)>,
    ) -> Self {
        let mut hasher = FxHasher::default();
        for (node, standing) in estate.nodes() {
            node.name.hash(&mut hasher);
            node.labels.hash(&mut hasher);
            node.taints.hash(&mut hasher);
            let nominated = standing.nominated_until.is_some_and(|until| until > estate.now);
            [node.initialized, node.exists, node.deleting, node.settling].hash(&mut hasher);
            [standing.in_queue, nominated, standing.do_not_disrupt, standing.ready]
                .hash(&mut hasher);
            let unreadable = standing.unreadable.is_some();
            (standing.consolidatable, standing.drifted_since, unreadable).hash(&mut hasher);
            setback::in_force(standing, estate.now).map(|it| it.reason).hash(&mut hasher);
            for (pod, tenant) in node.pods.iter().zip(&standing.tenants) {
                (&pod.uid, pod.phase, pod.deleting).hash(&mut hasher);
                (tenant.obstacle.is_some(), tenant.blocked_for_good).hash(&mut hasher);
            }
        }
        for pod in estate.snapshot.pods.iter().chain(&estate.snapshot.daemons) {
            pod.uid.hash(&mut hasher);
        }
        for rules in estate.pools.values() {
            let pool = &rules.pool;
            let mut text = String::new();
            let of_pool = (&pool.name, pool.weight, &pool.labels, &pool.requirements);
            let of_rules = (rules.policy, &rules.consolidate_after, rules.controls, rules.replicas);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{of_pool:?}{:?}{:?}{of_rules:?}",
                pool.taints,
                (&pool.limits, &pool.launching)
            );
            text.hash(&mut hasher);
            pool.instance_types.iter().for_each(|one| hash_type(one, &mut hasher));
        }
        for pool in &estate.snapshot.pools {
            pool.name.hash(&mut hasher);
        }
        for (pool, allowance) in allowances {
            (pool, allowance.allowed, allowance.disrupting).hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

fn hash_type(instance_type: &InstanceType, hasher: &mut FxHasher) {
    instance_type.name().hash(hasher);
    for offering in instance_type.offerings() {
        (offering.price, offering.available, offering.reservation_capacity).hash(hasher);
    }
}
