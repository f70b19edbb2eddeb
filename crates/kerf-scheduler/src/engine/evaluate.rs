//! Whether a claim, open or new, takes a pod.

use kerf_model::labels::{CAPACITY_TYPE, RESERVED, ZONE};
use kerf_model::{Operator, Requirement, Requirements};

use super::{Engine, Spot};
use crate::algebra::{Key, SetId};
use crate::attempt::{Attempt, HostRule, Pick};
use crate::bits::Bits;
use crate::claims::Claim;
use crate::class::ClassId;
use crate::lanes;
use crate::options::ReservedMode;
use crate::template::conflict;

/// What the claim becomes with the pod; the rows that are left are in the scratch buffer.
#[derive(Debug)]
pub(crate) struct Accepted {
    set: SetId,
    reservations: Vec<u32>,
    min_values_relaxed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rejected {
    /// It will never take a pod of this class in this run.
    pub(crate) is_final: bool,
    pub(crate) waits_for_reservation: bool,
}

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

const FOR_GOOD: Rejected = Rejected { is_final: true, waits_for_reservation: false };
const FOR_NOW: Rejected = Rejected { is_final: false, waits_for_reservation: false };

/// What is the same for all ways to narrow one candidate.
#[derive(Clone, Copy)]
struct Candidate {
    template: usize,
    /// The claim that it already is.
    claim: Option<usize>,
    may_relax_min_values: bool,
}

impl Engine<'_> {
    pub(crate) fn evaluate_claim(
        &mut self,
        attempt: &Attempt,
        index: usize,
    ) -> Result<Accepted, Rejected> {
        let host = self.host_of_claim(index);
        for check in &attempt.hosts {
            if !check.rule.accepts(self.topology.groups[check.group.index()].count(host)) {
                let counts_only_grow = matches!(check.rule, HostRule::AtMost(_));
                return Err(if counts_only_grow { FOR_GOOD } else { FOR_NOW });
            }
        }
        let claim = &self.claims.all[index];
        if conflict(&claim.ports, attempt.spec.ports()) {
            return Err(FOR_GOOD);
        }
        let set = claim.set;
        let mut total = claim.requests.clone();
        lanes::add(&mut total, &attempt.spec.base.key.requests);
        self.scratch.base.copy_from(&claim.rows);
        let candidate =
            Candidate { template: claim.template, claim: Some(index), may_relax_min_values: false };
        self.evaluate(attempt, candidate, set, &total)
    }

    pub(crate) fn evaluate_template(
        &mut self,
        attempt: &Attempt,
        template: usize,
    ) -> Result<Accepted, Rejected> {
        if !attempt.hosts.iter().all(|check| check.rule.accepts(0)) {
            return Err(FOR_NOW);
        }
        let allowed = self.limits[template].allowed(&self.templates[template]);
        self.scratch.base.copy_from(allowed);
        let candidate =
            Candidate { template, claim: None, may_relax_min_values: self.relaxes_min_values() };
        let set = self.templates[template].set;
        self.evaluate(attempt, candidate, set, &attempt.spec.base.key.requests)
    }

    /// Starts from the rows in the scratch buffer's base.
    fn evaluate(
        &mut self,
        attempt: &Attempt,
        candidate: Candidate,
        set: SetId,
        total: &[i64],
    ) -> Result<Accepted, Rejected> {
        let spec = &attempt.spec;
        if !spec.wish.allows_new_host() {
            return Err(FOR_GOOD);
        }
        let Some(wished) = self.algebra.merge(set, spec.wish.set) else { return Err(FOR_GOOD) };
        // Two sets that are known not to go together cost one lookup; room costs a pass over all rows.
        if !self.some_domain_is_open(attempt, wished) {
            return Err(Rejected { is_final: attempt.refusals_are_final, ..FOR_NOW });
        }
        let template = &mut self.templates[candidate.template];
        template.keep_fitting(&mut self.scratch.base, total);
        if !spec.ports().is_empty() {
            template.keep_free_ports(&mut self.scratch.base, spec.ports());
        }
        let serving = template.serving(wished, &mut self.algebra);
        self.scratch.base.intersect_with(serving);
        if self.scratch.base.is_empty() || !self.tolerates_template(attempt, candidate.template) {
            return Err(FOR_GOOD);
        }
        let mut rejected = Rejected { is_final: attempt.refusals_are_final, ..FOR_NOW };
        if spec.base.alternatives.is_empty() {
            return self.narrow(attempt, 0, candidate, wished, &mut rejected).ok_or(rejected);
        }
        for alternative in &spec.base.alternatives {
            if !alternative.allows_new_host() {
                continue;
            }
            if let Some(set) = self.algebra.merge(wished, alternative.set)
                && let Some(accepted) = self.narrow(attempt, 0, candidate, set, &mut rejected)
            {
                return Ok(accepted);
            }
        }
        Err(rejected)
    }

    /// Whether every domain check by itself leaves something.
    fn some_domain_is_open(&mut self, attempt: &Attempt, set: SetId) -> bool {
        attempt.domains.iter().all(|check| match &check.pick {
            Pick::Empty { listing, .. } => {
                listing.is_some_and(|listing| self.algebra.merge(set, listing).is_some())
            }
            Pick::Any { listing, .. } => self.algebra.merge(set, *listing).is_some(),
            Pick::First(domains) => {
                domains.iter().any(|(_, pin)| self.algebra.merge(set, *pin).is_some())
            }
        })
    }

    fn tolerates_template(&self, attempt: &Attempt, template: usize) -> bool {
        self.tolerates(attempt.class, &self.templates[template].pool.taints)
    }

    /// Applies the domain checks from `at` on, each choice in turn, until something is left to buy.
    fn narrow(
        &mut self,
        attempt: &Attempt,
        at: usize,
        candidate: Candidate,
        set: SetId,
        rejected: &mut Rejected,
    ) -> Option<Accepted> {
        let Some(check) = attempt.domains.get(at) else {
            return self.accept(candidate, set, rejected);
        };
        match &check.pick {
            Pick::Empty { listing, pins } if pins.is_empty() => {
                let set = self.algebra.merge(set, (*listing)?)?;
                self.narrow(attempt, at + 1, candidate, set, rejected)
            }
            Pick::Any { listing, .. } => {
                let set = self.algebra.merge(set, *listing)?;
                self.narrow(attempt, at + 1, candidate, set, rejected)
            }
            Pick::Empty { pins: domains, .. } | Pick::First(domains) => {
                domains.iter().find_map(|(_, pin)| {
                    let set = self.algebra.merge(set, *pin)?;
                    self.narrow(attempt, at + 1, candidate, set, rejected)
                })
            }
        }
    }

    fn accept(
        &mut self,
        candidate: Candidate,
        set: SetId,
        rejected: &mut Rejected,
    ) -> Option<Accepted> {
        self.scratch.rows.copy_from(&self.scratch.base);
        let serving = self.templates[candidate.template].serving(set, &mut self.algebra);
        self.scratch.rows.intersect_with(serving);
        if self.scratch.rows.is_empty() {
            return None;
        }
        let (set, reservations) = match self.holding(candidate, set) {
            Holding::These(reservations) => (set, reservations),
            Holding::Unreserved(set) => (set, Vec::new()),
            Holding::Waits => {
                *rejected = Rejected { is_final: false, waits_for_reservation: true };
                return None;
            }
            Holding::Nothing => {
                rejected.is_final = false;
                return None;
            }
        };
        let (set, min_values_relaxed) = self.with_enough_values(candidate, set)?;
        Some(Accepted { set, reservations, min_values_relaxed })
    }

    /// The set itself when `minValues` holds; with lowered ones when that is allowed.
    fn with_enough_values(&mut self, candidate: Candidate, set: SetId) -> Option<(SetId, bool)> {
        if !self.algebra.has_min_values(set) {
            return Some((set, false));
        }
        let rows = std::mem::take(&mut self.scratch.rows);
        let short = self.short_of_values(candidate.template, set, &rows);
        self.scratch.rows = rows;
        if short.is_empty() {
            return Some((set, false));
        }
        candidate.may_relax_min_values.then(|| {
            let lowered = short.into_iter().fold(set, |set, (key, left)| {
                let rule = self.algebra.get(set, key);
                let mut requirement = rule.map_or_else(
                    || Requirement::exists(self.algebra.key_name(key)),
                    |rule| self.algebra.requirement(rule).clone(),
                );
                requirement.set_min_values(Some(left));
                self.algebra.replaced(set, &requirement)
            });
            (lowered, true)
        })
    }

    /// Keys for which these rows have fewer values than `minValues` asks for, with what they have.
    pub(super) fn short_of_values(
        &self,
        template: usize,
        set: SetId,
        rows: &Bits,
    ) -> Vec<(Key, u32)> {
        let wanted =
            self.algebra.entries(set).iter().filter_map(|(key, rule)| {
                Some((*key, self.algebra.requirement(*rule).min_values()?))
            });
        wanted
            .filter_map(|(key, least)| {
                let left = self.templates[template].distinct_values(rows, key, &self.algebra);
                (left < least).then_some((key, left))
            })
            .collect()
    }

    /// What the claim would hold. Narrows the rows in the scratch buffer where it has to do without.
    fn holding(&mut self, candidate: Candidate, set: SetId) -> Holding {
        if self.options.reserved == ReservedMode::Off
            || self.templates[candidate.template].reserved.is_empty()
        {
            return Holding::These(Vec::new());
        }
        let held = candidate.claim.map_or(&[][..], |claim| &self.claims.all[claim].reservations);
        let (mut usable, mut had_room) = (false, false);
        let mut holdable = Vec::new();
        for offering in &self.templates[candidate.template].reserved {
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
        match self.without_reservations(candidate, set) {
            Some(unreserved) => Holding::Unreserved(unreserved),
            None if waits => Holding::Waits,
            None => Holding::Nothing,
        }
    }

    /// The set without reserved capacity, if anything else can be bought.
    fn without_reservations(&mut self, candidate: Candidate, set: SetId) -> Option<SetId> {
        let unreserved = Requirement::new(CAPACITY_TYPE, Operator::NotIn, [RESERVED]);
        let unreserved = self.algebra.set(&Requirements::new([unreserved]));
        let unreserved = self.algebra.merge(set, unreserved)?;
        let serving = self.templates[candidate.template].serving(unreserved, &mut self.algebra);
        self.scratch.rows.intersect_with(serving);
        (!self.scratch.rows.is_empty()).then_some(unreserved)
    }

    pub(super) fn commit_to_claim(
        &mut self,
        pod: u32,
        class: ClassId,
        index: usize,
        accepted: Accepted,
    ) {
        let spec = std::sync::Arc::clone(&self.classes[class.index()].spec);
        self.claims.add_pod(index, pod, &spec.base.key.requests);
        let claim = &mut self.claims.all[index];
        claim.set = accepted.set;
        claim.rows.copy_from(&self.scratch.rows);
        claim.ports.extend_from_slice(spec.ports());
        self.reservations.exchange(&claim.reservations, &accepted.reservations);
        claim.reservations = accepted.reservations;
        self.record(class, Spot::Claim(index));
    }

    pub(super) fn commit_to_new_claim(
        &mut self,
        pod: u32,
        class: ClassId,
        template: usize,
        accepted: Accepted,
    ) {
        let spec = std::sync::Arc::clone(&self.classes[class.index()].spec);
        self.reservations.exchange(&[], &accepted.reservations);
        let claim = Claim {
            template,
            set: accepted.set,
            rows: self.scratch.rows.clone(),
            requests: spec.base.key.requests.clone(),
            ports: spec.ports().to_vec(),
            reservations: accepted.reservations,
            min_values_relaxed: accepted.min_values_relaxed,
            pods: vec![pod],
        };
        self.limits[template].take_largest(&self.templates[template], &claim.rows);
        let index = self.claims.open(claim);
        self.record(class, Spot::Claim(index));
    }

    /// The claim's set, pinned to the reservations that it holds, and the rows that these are for.
    pub(super) fn final_choice(&mut self, claim: usize) -> (SetId, Bits) {
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
