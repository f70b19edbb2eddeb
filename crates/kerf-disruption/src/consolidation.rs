//! What multi-node and single-node consolidation have in common: which nodes are candidates, and whether a move is worth it.

use std::sync::{Arc, OnceLock};

use kerf_api::DisruptionReason;
use kerf_model::{Node, Pod, Price, Snapshot};
use kerf_scheduler::{Placement, PlannedClaim};

use crate::{
    balanced::NodePoolTotals,
    blocked::Blocked,
    candidates::{by_savings_ratio, check},
    command::{Candidate, Command, Method, Replacement},
    controls::{Bound, Stakes},
    pass::Look,
    replacement::{charge, purchase, purchase_several},
    setback,
    settings::Settings,
    simulation::{Outcome, Simulation},
    trials::Trials,
};

/// One snapshot, as consolidation looks at it.
#[derive(Debug)]
pub(crate) struct Consolidation<'e> {
    snapshot: &'e Snapshot,
    settings: &'e Settings,
    simulation: Simulation<'e>,
    /// As if no node were in its grace period, where one is; made when it is asked for.
    without_grace: OnceLock<Option<Simulation<'e>>>,
    totals: NodePoolTotals,
    /// The best bargain first.
    pub(crate) candidates: Vec<Candidate>,
    trials: Trials,
}

impl<'e> Consolidation<'e> {
    /// `graceful` are all nodes that could be taken away if they were quiet and underused, `candidates` those that are.
    pub(crate) fn new(
        snapshot: &'e Snapshot,
        settings: &'e Settings,
        graceful: &[Candidate],
        mut candidates: Vec<Candidate>,
    ) -> Self {
        by_savings_ratio(&mut candidates);
        Self {
            snapshot,
            settings,
            simulation: Simulation::of_consolidation(snapshot, settings),
            without_grace: OnceLock::new(),
            totals: NodePoolTotals::of(snapshot, graceful),
            trials: Trials::new(snapshot, &candidates),
            candidates,
        }
    }

    pub(crate) fn simulation(&self) -> &Simulation<'e> {
        &self.simulation
    }

    /// The move that takes exactly these nodes away.
    pub(crate) fn consolidate(
        &self,
        candidates: &[&Candidate],
        method: Method,
    ) -> Result<Command, Blocked> {
        let outcome = self.simulation.consolidated(candidates)?;
        self.decide(candidates, &outcome, method)
    }

    /// The same with all its numbers: it does not end where it is clear that nothing comes of it.
    pub(crate) fn weigh(&self, candidate: &Candidate, method: Method) -> Result<Command, Blocked> {
        let weighed = || {
            let outcome = self.simulation.without(&[candidate])?;
            match outcome.claims.len() {
                0 | 1 => self.decide(&[candidate], &outcome, method),
                at_least => Err(Blocked::MultipleReplacements { at_least }),
            }
        };
        weighed().map_err(|why| self.held_by_grace(candidate, method).unwrap_or(why))
    }

    /// What a replacement of this node alone may cost.
    pub(crate) fn bound(&self, candidate: &Candidate) -> Bound {
        let stakes = Stakes::of([candidate], &self.snapshot.pools);
        let required =
            self.totals.weigh(&[candidate], stakes.price(), &self.snapshot.pools).required;
        let bound = stakes.bound();
        if required > Price::ZERO { bound.and_at_most(stakes.price() - required) } else { bound }
    }

    /// The move that takes this one away; equal nodes are tried out once for all.
    pub(crate) fn consolidate_one(&self, at: usize, method: Method) -> Result<Command, Blocked> {
        let candidate = &self.candidates[at];
        self.totals.may_pass(candidate, &self.snapshot.pools)?;
        let decided = self.trial(at).and_then(|it| self.decide(&[candidate], &it, method));
        let command = decided.map_err(|why| {
            let example = &self.candidates[self.trials.example(at)];
            let held = self.trials.held_by_grace(at, || self.held_by_grace(example, method));
            held.unwrap_or(why)
        })?;
        if self.trials.example(at) == at {
            return Ok(command);
        }
        self.consolidate(&[candidate], method)
    }

    /// What happens without this node, told by the first that is equal to it.
    pub(crate) fn trial(&self, at: usize) -> Result<Arc<Outcome>, Blocked> {
        let example = &self.candidates[self.trials.example(at)];
        let trial = || self.simulation.consolidated(&[example]);
        self.trials.of(at, trial).map_err(|why| self.trials.told_of(at, &self.candidates, why))
    }

    /// The grace period of the node that the pods would go to, if the move would be made without it.
    fn held_by_grace(&self, candidate: &Candidate, method: Method) -> Option<Blocked> {
        let snapshot = self.snapshot;
        let runs = || snapshot.nodes.iter().any(|node| snapshot.grace_until(node).is_some());
        let without_grace = self.without_grace.get_or_init(|| {
            runs().then(|| Simulation::of_consolidation_at_rest(snapshot, self.settings))
        });
        let outcome = without_grace.as_ref()?.consolidated(&[candidate]).ok()?;
        self.decide(&[candidate], &outcome, method).ok()?;
        let own: Vec<&str> =
            candidate.moving.iter().map(|at| &*candidate.node.pods[*at].uid).collect();
        let is_destination = |placement: &&Placement| {
            snapshot.is_settling(&placement.node)
                && placement.pods.iter().any(|pod| own.contains(&&*pod.uid))
        };
        let wait = |node: &Node| Some((snapshot.grace_until(node)?, node.name.clone()));
        let waits: Option<Vec<_>> = outcome
            .placements
            .iter()
            .filter(is_destination)
            .map(|placement| wait(&placement.node))
            .collect();
        let (until, node) = waits?.into_iter().max()?;
        Some(Blocked::DestinationGracePeriod { node, until })
    }

    fn decide(
        &self,
        candidates: &[&Candidate],
        outcome: &Outcome,
        method: Method,
    ) -> Result<Command, Blocked> {
        let stakes = Stakes::of(candidates.iter().copied(), &self.snapshot.pools);
        let weigh = |savings| self.totals.weigh(candidates, savings, &self.snapshot.pools);
        let mut bought = None;
        let verdict = match outcome.claims.last() {
            None => {
                stakes.allow_removal()?;
                weigh(stakes.price())
            }
            Some(claim) => {
                let labels = &self.snapshot.labels;
                let spot_to_spot = self.settings.spot_to_spot;
                let mut purchase = purchase(candidates, &stakes, claim, labels, spot_to_spot)?;
                let verdict = weigh(stakes.price() - purchase.claim.price);
                verdict.result()?;
                candidates.iter().try_for_each(|candidate| self.set_back(candidate))?;
                purchase.keep_to(stakes.price() - verdict.required, labels);
                let savings = stakes.price() - purchase.claim.price;
                bought = Some((purchase, savings));
                weigh(savings)
            }
        };
        verdict.result()?;
        let nodes = candidates.iter().map(|candidate| (*candidate).clone()).collect();
        let mut command = Command {
            placements: outcome.placements.clone(),
            scores: verdict.scores,
            ..Command::removal(method, nodes)
        };
        if let Some((purchase, savings)) = bought {
            command.savings = Some(savings);
            command.replacements = vec![Replacement::Planned(purchase.claim)];
            command.promise = Some(purchase.promise);
        }
        Ok(command)
    }

    /// The move that takes these nodes away, with as many new ones as are cheapest. `work` bounds the search for those.
    pub(crate) fn repack(
        &self,
        candidates: &[&Candidate],
        method: Method,
        work: u64,
    ) -> Result<Command, Blocked> {
        let outcome = self.simulation.repacked(candidates, work)?;
        match outcome.claims.len() {
            0 | 1 => self.decide(candidates, &outcome, method),
            _ => self.decide_several(candidates, &outcome, method),
        }
    }

    fn decide_several(
        &self,
        candidates: &[&Candidate],
        outcome: &Outcome,
        method: Method,
    ) -> Result<Command, Blocked> {
        // Machines for pods that wait are the provisioner's business.
        let moves =
            |pod: &Pod| candidates.iter().any(|one| pod.node_name.as_ref() == Some(&one.node.name));
        let for_others = |claim: &PlannedClaim| {
            !claim.pods.is_empty() && !claim.pods.iter().any(|pod| moves(pod))
        };
        if outcome.claims.iter().any(for_others) {
            return Err(Blocked::MultipleReplacements { at_least: outcome.claims.len() });
        }
        let pools = &self.snapshot.pools;
        let stakes = Stakes::of(candidates.iter().copied(), pools);
        let buy = |at_most| {
            let labels = &self.snapshot.labels;
            let spot_to_spot = self.settings.spot_to_spot;
            purchase_several(candidates, &stakes, &outcome.claims, at_most, labels, spot_to_spot)
        };
        // Judged as if the machines cost so much more.
        let charge = charge(candidates.len(), outcome.claims.len());
        let mut bought = buy(stakes.at_most() - charge)?;
        let savings = stakes.price() - bought.price() - charge;
        let verdict = self.totals.weigh(candidates, savings, pools);
        verdict.result()?;
        candidates.iter().try_for_each(|candidate| self.set_back(candidate))?;
        // As with one replacement: nothing else is asked for where that leaves enough to choose from.
        let sure = stakes.price() - verdict.required - charge;
        if sure < bought.promise.at_most {
            match buy(sure) {
                Ok(narrower) => bought = narrower,
                Err(_) => bought.promise.at_most = sure,
            }
        }
        let savings = stakes.price() - bought.price();
        let verdict = self.totals.weigh(candidates, savings - charge, pools);
        verdict.result()?;
        let nodes = candidates.iter().map(|candidate| (*candidate).clone()).collect();
        Ok(Command {
            placements: outcome.placements.clone(),
            scores: verdict.scores,
            savings: Some(savings),
            promise: Some(bought.promise),
            replacements: bought.claims.into_iter().map(Replacement::Planned).collect(),
            ..Command::removal(method, nodes)
        })
    }

    /// What of the command's savings is more than has to be saved for its evictions.
    pub(crate) fn gain(&self, command: &Command) -> Price {
        let pools = &self.snapshot.pools;
        let candidates: Vec<_> = command.candidates.iter().collect();
        let savings = command.savings.unwrap_or_default();
        let by_threshold = Stakes::of(candidates.iter().copied(), pools).required();
        let by_score = self.totals.weigh(&candidates, savings, pools).required;
        let charge = charge(candidates.len(), command.replacements.len());
        savings - by_threshold.max(by_score) - charge
    }

    /// Whether replacing the node has just failed.
    pub(crate) fn set_back(&self, candidate: &Candidate) -> Result<(), Blocked> {
        setback::check(&candidate.node, DisruptionReason::Underutilized, self.snapshot.now)
    }
}

/// The candidates that consolidation may look at; the others are refused.
pub(crate) fn eligible(look: &mut Look<'_>, graceful: &[Candidate]) -> Vec<Candidate> {
    let mut eligible = Vec::new();
    for candidate in graceful {
        match check(look.snapshot, candidate, Method::SingleNode) {
            Ok(()) => eligible.push(candidate.clone()),
            Err(Blocked::Empty | Blocked::StaticPool) => {}
            Err(why) => look.refuse(candidate, Method::SingleNode, why),
        }
    }
    eligible
}
