//! Whether a place takes a pod: the constraints, and the order in which they are checked.
//!
//! A place is a node that exists ([`Engine::evaluate_node`]), a claim of this run ([`Engine::evaluate_claim`]) or a pool that a
//! new claim would be made from ([`Engine::evaluate_template`]). Each constraint is one file, with its check of each kind of
//! place. A check that refuses shows its reason to a [`Witness`]. Placing pods has a witness that does not look, so no
//! reason is ever made; `explain` runs the same checks with one that keeps the first.
//!
//! A new constraint is its file here, one line where it is to be checked, and its reason in `refusal.rs`. Daemons have no line
//! of their own: what they take is gone from nodes and instance types before any pod is placed.

mod host_ports;
mod instance_types;
mod limits;
pub(super) mod min_values;
mod requirements;
mod reservations;
mod taints;
mod topology;
mod volumes;

use super::Engine;
use crate::algebra::SetId;
use crate::attempt::Attempt;
use crate::class::Spec;
use crate::lanes;
use crate::refusal::Reason;

/// Sees why a place refuses a pod.
pub(crate) trait Witness {
    /// Whether it looks at reasons. Work is saved by refusing early only where it does not: the early refusals follow from
    /// later ones, and those have the numbers.
    const LOOKS: bool;

    /// The reason is only made for a witness that looks.
    fn refused(&mut self, reason: impl FnOnce() -> Reason);
}

/// Does not look, and costs nothing.
#[derive(Debug)]
pub(crate) struct Unseen;

impl Witness for Unseen {
    const LOOKS: bool = false;

    #[inline]
    fn refused(&mut self, _: impl FnOnce() -> Reason) {}
}

/// Keeps the first reason. Where checks choose (volumes, domains), that is the end of the way along their first choices.
#[derive(Debug, Default)]
pub(crate) struct FirstReason(pub(crate) Option<Reason>);

impl Witness for FirstReason {
    const LOOKS: bool = true;

    fn refused(&mut self, reason: impl FnOnce() -> Reason) {
        self.0.get_or_insert_with(reason);
    }
}

/// How long a refusal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    ForNow,
    /// Within a run nodes and claims only fill up and narrow, and counts only grow.
    ForThisRun,
    /// For what the place is, and for what it had before the run.
    Always,
    /// Reservations that the pod could use may become free in this run.
    WaitsForReservation,
}

/// What a claim becomes with the pod; the rows that are left are in the scratch buffer.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(super) set: SetId,
    pub(super) reservations: Vec<u32>,
    pub(super) min_values_relaxed: bool,
}

impl Accepted {
    pub(super) fn set(&self) -> SetId {
        self.set
    }
}

/// One pod and one claim, open or new.
struct Evaluation<'a, W> {
    attempt: &'a Attempt,
    template: usize,
    /// The claim that it already is.
    claim: Option<usize>,
    may_relax_min_values: bool,
    /// The reason when every choice was refused.
    rejected: Rejected,
    witness: &'a mut W,
}

impl Engine<'_> {
    /// A node that exists, or a claim in flight. What costs least comes first.
    pub(super) fn evaluate_node(&mut self, attempt: &Attempt, node: usize) -> Result<(), Rejected> {
        let spec = &attempt.spec;
        self.check_occupied(spec, node)?;
        self.check_settling(spec, node)?;
        taints::check(spec, &self.existing.nodes[node].node.taints, &mut Unseen)?;
        self.check_node_requirements(spec, node)?;
        self.check_node_volumes(spec, node)?;
        self.check_hosts(attempt, Some(node), &mut Unseen)?;
        self.check_node_domains(attempt, node)
    }

    /// Resources, host ports and volume limits of a node that exists.
    fn check_occupied(&self, spec: &Spec, node: usize) -> Result<(), Rejected> {
        let occupied = self.existing.occupied(node);
        let fits = occupied.room.is_none_or(|room| lanes::fits(&spec.base.key.requests, room))
            && host_ports::are_free(occupied.ports, spec)
            && occupied.can_attach(&spec.base.attachments);
        match (fits, occupied.room) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(Rejected::ForThisRun),
            (false, None) => Err(Rejected::Always),
        }
    }

    /// Pods that consolidation would move keep away from nodes that are still settling.
    fn check_settling(&self, spec: &Spec, node: usize) -> Result<(), Rejected> {
        let settling = self.existing.nodes[node].settling;
        if settling && !spec.base.key.unsettled { Err(Rejected::Always) } else { Ok(()) }
    }

    /// An open claim. The counts of its host and its ports cost least.
    pub(super) fn evaluate_claim(
        &mut self,
        attempt: &Attempt,
        index: usize,
    ) -> Result<Accepted, Rejected> {
        self.check_hosts(attempt, Some(self.host_of_claim(index)), &mut Unseen)?;
        let claim = &self.claims.all[index];
        if !host_ports::are_free(&claim.ports, &attempt.spec) {
            return Err(Rejected::ForThisRun);
        }
        let template = claim.template;
        let set = self.evaluate_manifests(attempt, template, claim.set, &mut Unseen)?;
        let claim = &self.claims.all[index];
        let mut total = claim.requests.clone();
        lanes::add(&mut total, &attempt.spec.base.key.requests);
        self.scratch.base.copy_from(&claim.rows);
        let mut unseen = Unseen;
        let mut evaluation = Evaluation::new(attempt, template, Some(index), false, &mut unseen);
        self.evaluate_rows(&mut evaluation, set, &total)
    }

    /// A new claim.
    pub(super) fn evaluate_template<W: Witness>(
        &mut self,
        attempt: &Attempt,
        template: usize,
        witness: &mut W,
    ) -> Result<Accepted, Rejected> {
        self.evaluate_new(attempt, template, self.templates[template].set, witness)
    }

    fn evaluate_new<W: Witness>(
        &mut self,
        attempt: &Attempt,
        template: usize,
        set: SetId,
        witness: &mut W,
    ) -> Result<Accepted, Rejected> {
        if !W::LOOKS {
            self.check_hosts(attempt, None, witness)?;
        }
        let set = self.evaluate_manifests(attempt, template, set, witness)?;
        self.start_within_limits::<W>(template)?;
        let relax = self.relaxes_min_values();
        let mut evaluation = Evaluation::new(attempt, template, None, relax, witness);
        self.evaluate_rows(&mut evaluation, set, &attempt.spec.base.key.requests)
    }

    /// A new claim that asks for more than its pool does.
    pub(super) fn evaluate_template_as(
        &mut self,
        attempt: &Attempt,
        template: usize,
        set: SetId,
    ) -> Result<Accepted, Rejected> {
        self.evaluate_new(attempt, template, set, &mut Unseen)
    }

    /// What users see in their manifests: the first check that refuses is the reason, and this is where they look first.
    fn evaluate_manifests<W: Witness>(
        &mut self,
        attempt: &Attempt,
        template: usize,
        set: SetId,
        witness: &mut W,
    ) -> Result<SetId, Rejected> {
        taints::check(&attempt.spec, &self.templates[template].pool.taints, witness)?;
        let set = self.check_requirements(&attempt.spec, set, witness)?;
        // Two sets that are known not to go together cost one lookup; room costs a pass over all rows.
        if !W::LOOKS && !self.some_domain_is_open(attempt, set) {
            return Err(attempt.rejected());
        }
        Ok(set)
    }

    /// What is left to buy. Starts from the rows in the scratch buffer's base.
    fn evaluate_rows<W: Witness>(
        &mut self,
        evaluation: &mut Evaluation<'_, W>,
        set: SetId,
        total: &[i64],
    ) -> Result<Accepted, Rejected> {
        let template = evaluation.template;
        self.keep_rows_with_room(&evaluation.attempt.spec, template, total);
        self.keep_attaching_rows(evaluation);
        if !W::LOOKS && !self.some_row_serves(template, set) {
            return Err(Rejected::ForThisRun);
        }
        self.through_volumes(evaluation, set).ok_or(evaluation.rejected)
    }

    /// The checks that are left when volumes and domains have been chosen.
    fn accept<W: Witness>(
        &mut self,
        evaluation: &mut Evaluation<'_, W>,
        set: SetId,
    ) -> Option<Accepted> {
        self.check_instance_types(evaluation, set)?;
        let (set, reservations) = self.check_reservations(evaluation, set)?;
        let (set, min_values_relaxed) = self.check_min_values(evaluation, set)?;
        Some(Accepted { set, reservations, min_values_relaxed })
    }
}

impl<'a, W: Witness> Evaluation<'a, W> {
    fn new(
        attempt: &'a Attempt,
        template: usize,
        claim: Option<usize>,
        may_relax_min_values: bool,
        witness: &'a mut W,
    ) -> Self {
        let rejected = attempt.rejected();
        Self { attempt, template, claim, may_relax_min_values, rejected, witness }
    }
}

impl Attempt {
    /// How long it holds that no domain will do.
    fn rejected(&self) -> Rejected {
        if self.refusals_are_final { Rejected::ForThisRun } else { Rejected::ForNow }
    }
}
