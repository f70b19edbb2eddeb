//! Simulating a disruption: where would the pods go?

use std::sync::Arc;

use kerf_model::{Pod, Price, ReservationId, Snapshot};
use kerf_scheduler::{
    Leaving, Options, Origin, Placement, Plan, PlannedClaim, PodFailure, Prober, Refusal,
    ReservedMode, Stop, Stopped,
};

use crate::{
    blocked::{Blocked, Homeless},
    command::Candidate,
    settings::Settings,
    terminate_first::NotNow,
};

/// Answers what would happen without some nodes, for one snapshot. Shared between threads.
#[derive(Debug)]
pub(crate) struct Simulation<'e> {
    prober: Prober<'e>,
    /// Whether room of buffers that would be lost speaks against a move.
    spares_buffers: bool,
    /// Whether room is needed for pods, too, that no amount of waiting makes evictable.
    moves_all: bool,
    /// Nodes that are there and take no pods.
    avoids: Vec<usize>,
}

/// A world in which every pod has a place.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) placements: Vec<Placement>,
    pub(crate) claims: Vec<PlannedClaim>,
}

impl<'e> Simulation<'e> {
    fn new(snapshot: &'e Snapshot, settings: &Settings, honor_settling: bool) -> Self {
        let options = Options { honor_settling, ..settings.scheduling.clone() };
        Self::with(snapshot, &options)
    }

    fn with(snapshot: &'e Snapshot, options: &Options) -> Self {
        let prober = Prober::new(snapshot, options);
        Self { prober, spares_buffers: false, moves_all: false, avoids: Vec::new() }
    }

    /// As consolidation sees it: nodes that are still settling take no pods that it would move.
    pub(crate) fn of_consolidation(snapshot: &'e Snapshot, settings: &Settings) -> Self {
        Self { spares_buffers: true, ..Self::new(snapshot, settings, true) }
    }

    /// The same, as if no node were settling.
    pub(crate) fn of_consolidation_at_rest(snapshot: &'e Snapshot, settings: &Settings) -> Self {
        Self { spares_buffers: true, ..Self::of_drift(snapshot, settings) }
    }

    /// What has drifted goes though a buffer finds no other room: it is no reason to keep an old node, and room comes as soon as
    /// there can be any.
    pub(crate) fn of_drift(snapshot: &'e Snapshot, settings: &Settings) -> Self {
        Self::new(snapshot, settings, false)
    }

    /// The same for a node that is broken: its drain ends, and what may not be evicted has to go as well. Pods do not go from one
    /// broken node to another.
    pub(crate) fn of_repair(snapshot: &'e Snapshot, settings: &Settings) -> Self {
        let nodes = snapshot.nodes.iter().enumerate();
        let broken = nodes.filter(|(_, node)| !node.disruption.repair.is_empty());
        let avoids = broken.map(|(index, _)| index).collect();
        Self { moves_all: true, avoids, ..Self::of_drift(snapshot, settings) }
    }

    /// The same where the broken node goes first.
    pub(crate) fn of_repair_that_terminates_first(
        snapshot: &'e Snapshot,
        settings: &Settings,
    ) -> Self {
        let Self { moves_all, avoids, .. } = Self::of_repair(snapshot, settings);
        Self { moves_all, avoids, ..Self::of_terminate_first(snapshot, settings) }
    }

    /// As the provisioner will see it when the node has gone: pods that do not fit into reservations with room wait for them, and
    /// are bought nothing else meanwhile.
    pub(crate) fn of_terminate_first(snapshot: &'e Snapshot, settings: &Settings) -> Self {
        let reserved = match settings.scheduling.reserved {
            ReservedMode::Off => ReservedMode::Off,
            ReservedMode::Fallback | ReservedMode::Strict => ReservedMode::Strict,
        };
        let options = Options { honor_settling: false, reserved, ..settings.scheduling.clone() };
        Self::with(snapshot, &options)
    }

    /// The world in which the node has given back its slot of the reservation.
    pub(crate) fn refilled(
        &self,
        candidate: &Candidate,
        reservation: &ReservationId,
    ) -> Result<Outcome, Blocked> {
        let leaving = self.leaving(&[candidate], Some(reservation));
        let plan = self.prober.probe(&leaving, &Stop::default());
        // A launch for them may have failed just now, and would again: a second node must not go for it.
        let own = |pod: &Pod| candidate.node.pods.iter().any(|own| own.uid == pod.uid);
        let new = plan.claims.iter().filter(|claim| claim.pool.name == candidate.pool);
        let bought_for_others = new.flat_map(|claim| &claim.pods).any(|pod| !own(pod));
        let waits = |failure: &PodFailure| failure.refusal == Refusal::WaitsForReservation;
        let mut pending = plan.failures.iter().filter(|one| one.origin == Origin::Pending);
        if bought_for_others || pending.any(waits) {
            return Err(Blocked::NotNow(NotNow::PodsWait));
        }
        self.outcome(plan)
    }

    /// The world without these nodes, however many new ones that takes.
    pub(crate) fn without(&self, candidates: &[&Candidate]) -> Result<Outcome, Blocked> {
        self.probe(candidates, &Stop::default())
    }

    /// The world in which others have taken the node's place. A machine for nothing but pods that waited before is not part of it:
    /// the provisioner buys it, and may be doing so now. It stays where the place of one of them may depend on that of another.
    pub(crate) fn replacing(&self, candidate: &Candidate) -> Result<Outcome, Blocked> {
        let mut outcome = self.without(&[candidate])?;
        let own = &candidate.node.pods;
        let asks = |pod: &Arc<Pod>| {
            !pod.constraints.affinity.is_empty() || !pod.constraints.spread.is_empty()
        };
        if own.iter().any(asks) {
            return Ok(outcome);
        }
        let is_own = |pod: &Arc<Pod>| own.iter().any(|own| own.uid == pod.uid);
        let stays = |pod: &Arc<Pod>| is_own(pod) || asks(pod);
        outcome.claims.retain(|claim| claim.pods.is_empty() || claim.pods.iter().any(stays));
        Ok(outcome)
    }

    /// The world without these nodes, with at most one new one that costs less than they do.
    pub(crate) fn consolidated(&self, candidates: &[&Candidate]) -> Result<Outcome, Blocked> {
        let price: Price = candidates.iter().map(|candidate| candidate.price).sum();
        self.probe(candidates, &Stop { max_new_claims: Some(1), price_below: Some(price) })
    }

    /// The world without these nodes, with machines that were looked for with so much work.
    pub(crate) fn repacked(
        &self,
        candidates: &[&Candidate],
        work: u64,
    ) -> Result<Outcome, Blocked> {
        self.outcome(self.prober.probe_packed(&self.leaving(candidates, None), work))
    }

    /// Everything about the world without these nodes, the pods without a place included.
    pub(crate) fn plan(&self, candidates: &[&Candidate], stop: &Stop) -> Plan {
        self.prober.probe(&self.leaving(candidates, None), stop)
    }

    /// The candidates, which give back a slot of the reservation, and what is avoided.
    fn leaving<'c>(
        &self,
        candidates: &[&'c Candidate],
        frees: Option<&'c ReservationId>,
    ) -> Vec<Leaving<'c>> {
        let is_candidate = |index: usize| candidates.iter().any(|one| one.index == index);
        let avoided = self.avoids.iter().filter(|index| !is_candidate(**index));
        let go = candidates.iter().map(|candidate| Leaving {
            node: candidate.index,
            pods: self.moving(candidate),
            frees,
        });
        go.chain(avoided.map(|index| Leaving { node: *index, pods: &[], frees: None })).collect()
    }

    /// Places in the candidate's pods of those that need room elsewhere.
    pub(crate) fn moving<'c>(&self, candidate: &'c Candidate) -> &'c [usize] {
        if self.moves_all { &candidate.pods } else { &candidate.moving }
    }

    fn probe(&self, candidates: &[&Candidate], stop: &Stop) -> Result<Outcome, Blocked> {
        let plan = self.plan(candidates, stop);
        match plan.stopped {
            Some(Stopped::NewClaims { most }) => {
                return Err(Blocked::MultipleReplacements { at_least: most + 1 });
            }
            Some(Stopped::Price { below, .. }) if below <= Price::ZERO => {
                return Err(Blocked::UnknownPrice);
            }
            // How much the rest of the pods would add is not known.
            Some(Stopped::Price { below, .. }) => {
                return Err(Blocked::NotCheaper { price: below, cheapest: None });
            }
            None => {}
        }
        self.outcome(plan)
    }

    fn outcome(&self, plan: Plan) -> Result<Outcome, Blocked> {
        let of_buffers = plan.buffers.failures.iter().filter(|_| self.spares_buffers);
        let homeless: Vec<_> = plan
            .losses()
            .chain(of_buffers)
            .map(|loss| Homeless { pod: loss.pod.key(), refusal: loss.refusal.clone() })
            .collect();
        if !homeless.is_empty() {
            return Err(Blocked::NoFeasibleSchedule { pods: homeless });
        }
        Ok(Outcome { placements: plan.placements, claims: plan.claims })
    }
}
