//! Why no pool takes a pod. Runs once per class without a place, at the end, when nothing changes any more, so it may take
//! its time.

use kerf_model::labels::HOSTNAME;
use kerf_model::snapshot::Idle;

use super::Engine;
use super::constraints::FirstReason;
use crate::attempt::{Attempt, Pick};
use crate::class::ClassId;
use crate::refusal::{PoolRefusal, Reason, Refusal};
use crate::topology::{GroupId, TopologyKey};

impl Engine<'_> {
    pub(super) fn explain(&mut self, class: ClassId) -> Refusal {
        let mut attempt = self.attempt(class);
        self.sort_for_reading(&mut attempt);
        let mut refusals: Vec<_> = (0..self.templates.len())
            .filter_map(|template| self.explain_template(&attempt, template))
            .collect();
        refusals.extend_from_slice(&self.unusable);
        let pools = self.snapshot.pools.values();
        let idle = pools.filter_map(|pool| Some((pool.name.clone(), pool.idle.as_ref()?)));
        // Static pools are none of the pod's business, unless there are no others.
        let (fixed, idle): (Vec<_>, Vec<_>) = idle.partition(|(_, idle)| **idle == Idle::Static);
        let refused =
            |(pool, idle): (_, &Idle)| PoolRefusal { pool, reason: Reason::Idle(idle.clone()) };
        refusals.extend(idle.into_iter().map(refused));
        match (refusals.is_empty(), fixed.is_empty()) {
            (false, _) => Refusal::Pools(refusals),
            (true, true) => Refusal::NoPools,
            (true, false) => Refusal::OnlyStaticPools {
                pools: fixed.into_iter().map(|(pool, _)| pool).collect(),
            },
        }
    }

    /// Groups that keep a pod away come in the order in which they were made, which is that of the input; what is
    /// said about them must not depend on it. Nor must it depend on where the other pods of the run want to be.
    fn sort_for_reading(&self, attempt: &mut Attempt) {
        for check in &mut attempt.domains {
            if let Pick::Empty { pins, .. } = &mut check.pick {
                pins.clear();
            }
        }
        let rank = |group: GroupId| {
            let identity = &self.topology.groups[group.index()].identity;
            let key = match identity.topology_key {
                TopologyKey::Hostname => HOSTNAME,
                TopologyKey::Label(key) => self.algebra.key_name(key),
            };
            (key.to_owned(), identity.kind, identity.selector.clone(), identity.namespaces.clone())
        };
        attempt.hosts.sort_by_cached_key(|check| rank(check.group));
        attempt.domains.sort_by_cached_key(|check| (check.pick.chooses(), rank(check.group)));
    }

    /// The same checks that placed pods, with a witness.
    fn explain_template(&mut self, attempt: &Attempt, template: usize) -> Option<PoolRefusal> {
        let mut witness = FirstReason::default();
        let reason = match self.evaluate_template(attempt, template, &mut witness) {
            Ok(_) => Some(self.limit_reached(template)),
            Err(_) => witness.0,
        };
        debug_assert!(reason.is_some(), "a check that refuses has a reason");
        let pool = self.templates[template].pool.name.clone();
        reason.map(|reason| PoolRefusal { pool, reason })
    }
}
