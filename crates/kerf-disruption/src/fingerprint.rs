//! Whether a cluster is still the one that was searched before.

use std::{
    fmt::Write,
    hash::{Hash, Hasher},
};

use kerf_api::DisruptionReason;
use kerf_model::{InstanceType, Snapshot};
use rustc_hash::FxHasher;

use crate::{budgets::Allowance, setback};

/// Equal for clusters in which a search finds the same. Time counts only by what it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(pub(crate) u64);

impl Fingerprint {
    pub(crate) fn of<'a>(
        snapshot: &Snapshot,
        allowances: impl Iterator<Item = (&'a String, &'a Allowance)>,
    ) -> Self {
        let mut hasher = FxHasher::default();
        for node in &snapshot.nodes {
            let facts = &node.disruption;
            node.name.hash(&mut hasher);
            node.labels.hash(&mut hasher);
            node.taints.hash(&mut hasher);
            let (nominated, settling) =
                (snapshot.nominated_until(node).is_some(), snapshot.is_settling(node));
            [node.initialized, node.exists, node.deleting, settling].hash(&mut hasher);
            [snapshot.is_in_queue(node), nominated, facts.do_not_disrupt, facts.ready]
                .hash(&mut hasher);
            let unreadable = facts.unreadable.is_some();
            (snapshot.is_quiet(node), facts.drifted_since, unreadable).hash(&mut hasher);
            let matches = facts.repair.iter().map(|one| (&one.condition, &one.reason, one.since));
            (facts.registered, facts.do_not_repair, &facts.reboots).hash(&mut hasher);
            matches.for_each(|one| one.hash(&mut hasher));
            setback::in_force(node, snapshot.now).map(|it| it.reason).hash(&mut hasher);
            for pod in &node.pods {
                (&pod.uid, pod.phase, pod.deleting).hash(&mut hasher);
                (snapshot.obstacle(pod).is_some(), snapshot.is_blocked_for_good(pod))
                    .hash(&mut hasher);
            }
        }
        for pod in snapshot.pods.iter().chain(&snapshot.daemons) {
            pod.uid.hash(&mut hasher);
        }
        for pod in &snapshot.virtual_pods {
            // Their names stay when what they stand for changes.
            (&pod.uid, &pod.requests, &pod.constraints).hash(&mut hasher);
        }
        snapshot.seats.hash(&mut hasher);
        for pool in snapshot.pools.values() {
            let rules = &pool.disruption;
            let mut text = String::new();
            let of_pool = (&pool.name, pool.weight, &pool.labels, &pool.requirements);
            let replicas = pool.static_pool.map(|it| it.replicas);
            let of_rules = (rules.policy, &rules.consolidate_after, rules.controls, replicas);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{of_pool:?}{:?}{:?}{of_rules:?}",
                pool.taints,
                (&pool.limits, &pool.launching, pool.idle.is_some(), pool.termination_grace_period)
            );
            text.hash(&mut hasher);
            pool.instance_types.iter().for_each(|one| hash_type(one, &mut hasher));
        }
        for pool in setback::rests(snapshot, DisruptionReason::Drifted).into_keys() {
            pool.hash(&mut hasher);
        }
        for (pool, allowance) in allowances {
            (pool, allowance.allowed, allowance.disrupting).hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

fn hash_type(instance_type: &InstanceType, hasher: &mut FxHasher) {
    instance_type.name().hash(hasher);
    // An overlay may change it.
    instance_type.capacity().hash(hasher);
    for offering in instance_type.offerings() {
        (offering.price, offering.available, offering.reservation_capacity).hash(hasher);
    }
}
