//! Capacity reservations: which of them a claim holds, and what it does when they are taken.

use kerf_model::labels::{CAPACITY_TYPE, RESERVED, ZONE};
use kerf_model::{Operator, Requirement, Requirements};

use super::{Engine, Evaluation, Rejected, Witness};
use crate::algebra::SetId;
use crate::bits::Bits;
use crate::claims::Claim;
use crate::options::ReservedMode;
use crate::refusal::Reason;

/// What becomes of the reservations that a claim could use.
enum Holding {
    /// It holds these, or there are none for it.
    These(Vec<u32>),
    /// They are full or taken by other claims: it does without, and must not be bought from them.
    Unreserved(SetId),
    /// The pod waits for the next run.
    Waits,
    /// They are full or taken, and nothing else can be bought.
    Nothing,
}

impl Engine<'_> {
    /// The reservations that the claim would hold, and its set.
    pub(super) fn check_reservations<W: Witness>(
        &mut self,
        evaluation: &mut Evaluation<'_, W>,
        set: SetId,
    ) -> Option<(SetId, Vec<u32>)> {
        match self.holding(evaluation.template, evaluation.claim, set) {
            Holding::These(reservations) => return Some((set, reservations)),
            Holding::Unreserved(set) => return Some((set, Vec::new())),
            Holding::Waits => evaluation.rejected = Rejected::WaitsForReservation,
            Holding::Nothing if evaluation.rejected == Rejected::WaitsForReservation => {}
            // Claims of this run may give theirs back.
            Holding::Nothing => evaluation.rejected = Rejected::ForNow,
        }
        evaluation.witness.refused(|| Reason::Reserved);
        None
    }

    /// What the claim would hold. Narrows the rows in the scratch buffer where it has to do without.
    fn holding(&mut self, template: usize, claim: Option<usize>, set: SetId) -> Holding {
        if self.options.reserved == ReservedMode::Off
            || self.templates[template].reserved.is_empty()
        {
            return Holding::These(Vec::new());
        }
        let held = claim.map_or(&[][..], |claim| &self.claims.all[claim].reservations);
        let (mut usable, mut had_room) = (false, false);
        let mut holdable = Vec::new();
        for offering in &self.templates[template].reserved {
            if !self.scratch.rows.contains(offering.row as usize)
                || self.algebra.merge(set, offering.set).is_none()
            {
                continue;
            }
            let Some(id) = self.reservations.id(&offering.id) else { continue };
            usable = true;
            had_room |= self.reservations.had_room(id);
            if self.reservations.can_hold(id, held) && !holdable.contains(&id) {
                holdable.push(id);
            }
        }
        if !holdable.is_empty() || (!usable && held.is_empty()) {
            return Holding::These(holdable);
        }
        let waits = self.options.reserved == ReservedMode::Strict;
        if waits && (had_room || !held.is_empty()) {
            return Holding::Waits;
        }
        match self.without_reservations(template, set) {
            Some(unreserved) => Holding::Unreserved(unreserved),
            None if waits => Holding::Waits,
            None => Holding::Nothing,
        }
    }

    /// The set without reserved capacity, if anything else can be bought.
    fn without_reservations(&mut self, template: usize, set: SetId) -> Option<SetId> {
        let unreserved = Requirement::new(CAPACITY_TYPE, Operator::NotIn, [RESERVED]);
        let unreserved = self.algebra.set(&Requirements::new([unreserved]));
        let unreserved = self.algebra.merge(set, unreserved)?;
        let serving = self.templates[template].serving(unreserved, &mut self.algebra);
        self.scratch.rows.intersect_with(serving);
        (!self.scratch.rows.is_empty()).then_some(unreserved)
    }

    /// The claim's set, pinned to the reservations that it holds, and the rows that these are for.
    pub(in crate::engine) fn final_choice(&mut self, claim: usize) -> (SetId, Bits) {
        let Claim { set, template, rows, reservations, .. } = &self.claims.all[claim];
        let (set, template) = (*set, *template);
        if reservations.is_empty() {
            return (set, rows.clone());
        }
        let (mut names, mut zones, mut reserved_rows) = (Vec::new(), Vec::new(), Bits::default());
        for offering in &self.templates[template].reserved {
            let Some(id) = self.reservations.id(&offering.id) else { continue };
            if !reservations.contains(&id)
                || !rows.contains(offering.row as usize)
                || self.algebra.merge(set, offering.set).is_none()
            {
                continue;
            }
            reserved_rows.insert(offering.row as usize);
            let label = self.reservations.name(id);
            names.extend(label.map(str::to_owned));
            if label.is_none() {
                let terms = self.algebra.requirements(offering.set);
                zones.extend(terms.get(ZONE).and_then(Requirement::only_value).map(str::to_owned));
            }
        }
        let reserved = Requirement::is_in(CAPACITY_TYPE, [RESERVED]);
        let mut set = self.algebra.replaced(set, &reserved);
        let id_label = self.algebra.labels().reservation_id.clone();
        if let Some(label) = id_label.filter(|_| !names.is_empty()) {
            set = self.algebra.replaced(set, &Requirement::is_in(&label, names));
        }
        if !zones.is_empty() {
            set = self.algebra.replaced(set, &Requirement::is_in(ZONE, zones));
        }
        (set, reserved_rows)
    }
}
