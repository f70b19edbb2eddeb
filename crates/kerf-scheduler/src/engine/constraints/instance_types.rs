//! Instance types that meet the requirements, have room for the pod beside their daemons, have its host ports free, and have
//! an offering.

use kerf_model::Requirements;
use kerf_model::resources::CPU;

use super::{Engine, Evaluation, Witness, host_ports, volumes};
use crate::algebra::{Algebra, Key, SetId};
use crate::bits::Bits;
use crate::class::Spec;
use crate::lanes::Lanes;
use crate::refusal::{FilterCause, FilterRefusal, Most, PoolRefusal, Reason, Shortage};
use crate::template::Template;

impl Engine<'_> {
    /// Narrows the rows in the scratch buffer's base to those with room for all of the claim.
    pub(super) fn keep_rows_with_room(&mut self, spec: &Spec, template: usize, total: &[i64]) {
        let rows = &mut self.scratch.base;
        self.templates[template].keep_fitting(rows, total);
        host_ports::keep_free(&self.templates[template], rows, spec);
    }

    pub(super) fn some_row_serves(&mut self, template: usize, set: SetId) -> bool {
        let serving = self.templates[template].serving(set, &mut self.algebra);
        self.scratch.base.intersect_with(serving);
        !self.scratch.base.is_empty()
    }

    /// Leaves the rows that pass in the scratch buffer.
    pub(super) fn check_instance_types<W: Witness>(
        &mut self,
        evaluation: &mut Evaluation<'_, W>,
        set: SetId,
    ) -> Option<()> {
        let template = evaluation.template;
        self.scratch.rows.copy_from(&self.scratch.base);
        let serving = self.templates[template].serving(set, &mut self.algebra);
        self.scratch.rows.intersect_with(serving);
        if !self.scratch.rows.is_empty() {
            return Some(());
        }
        let spec = &evaluation.attempt.spec;
        evaluation.witness.refused(|| {
            let cause = self.filter_cause(spec, template, set);
            self.filter_refusal(template, set, &spec.base.key.requests, cause)
        });
        None
    }

    /// Asks first whether any type is allowed: if so the pod is too large for them, and if not the requirements are the cause.
    fn filter_cause(&mut self, spec: &Spec, template: usize, set: SetId) -> FilterCause {
        let mut allowed = self.templates[template].usable.clone();
        allowed.intersect_with(self.templates[template].serving(set, &mut self.algebra));
        if allowed.is_empty() {
            return self.requirements_cause(template, set);
        }
        let (template, requests) = (&self.templates[template], &spec.base.key.requests);
        let shortages: Vec<_> = (0..requests.len())
            .filter_map(|lane| self.shortage(template, &allowed, lane, requests[lane]))
            .collect();
        if !shortages.is_empty() {
            let cpu = self.lanes.resources(requests).amount(CPU);
            let cpu_is_absurd = cpu >= FilterCause::ABSURD_CPU;
            return FilterCause::TooLarge { shortages, cpu_is_absurd };
        }
        template.keep_fitting(&mut allowed, requests);
        if allowed.is_empty() {
            return FilterCause::NotTogether;
        }
        volumes::too_many(template, &allowed, spec).unwrap_or(FilterCause::HostPorts)
    }

    fn shortage(
        &self,
        template: &Template,
        allowed: &Bits,
        lane: usize,
        requested: i64,
    ) -> Option<Shortage> {
        let (most, row) = template.roomiest(allowed, lane)?;
        if requested <= most {
            return None;
        }
        let (resource, requested) = self.lanes.named(lane, requested)?;
        let has_any = |rows: &Bits| rows.iter().any(|row| template.capacity_of(row, lane) > 0);
        let most = if has_any(allowed) {
            let amount = |amount| self.lanes.named(lane, amount).map(|(_, amount)| amount);
            Most::Type {
                name: template.type_of(row).name().to_owned(),
                capacity: amount(template.capacity_of(row, lane))?,
                for_pods: amount(most)?,
            }
        } else if has_any(&template.usable) {
            Most::NoAllowedType
        } else {
            Most::NoType
        };
        Some(Shortage { resource: resource.to_owned(), requested, most })
    }

    /// No type meets all requirements, has an offering that does, and has room for its daemons.
    fn requirements_cause(&mut self, template: usize, set: SetId) -> FilterCause {
        let (template, algebra) = (&mut self.templates[template], &mut self.algebra);
        if !template.serving(set, algebra).is_empty() {
            return FilterCause::Daemons;
        }
        let mut entries = algebra.entries(set).to_vec();
        entries.sort_by(|(a, _), (b, _)| algebra.key_name(*a).cmp(algebra.key_name(*b)));
        let mut unmet = |rows_with: fn(&Template, SetId, &mut Algebra) -> Bits| {
            let unmet = entries.iter().find(|(_, rule)| {
                let one = Requirements::new([algebra.requirement(*rule).clone()]);
                let one = algebra.set(&one);
                rows_with(template, one, algebra).is_empty()
            });
            unmet.map(|(_, rule)| algebra.requirement(*rule).clone())
        };
        let (no_type, no_offering) = (unmet(Template::meeting), unmet(Template::offered));
        let is_met = !template.meeting(set, algebra).is_empty();
        let is_offered = !template.offered(set, algebra).is_empty();
        match (is_met, is_offered) {
            (false, _) => FilterCause::NoRequirements(no_type),
            (true, false) => FilterCause::NoOffering(no_offering),
            (true, true) => FilterCause::NotAllAtOnce,
        }
    }

    pub(super) fn filter_refusal(
        &self,
        template: usize,
        set: SetId,
        requests: &Lanes,
        cause: FilterCause,
    ) -> Reason {
        let overheads =
            || self.templates[template].daemon_groups.iter().map(|group| &group.overhead);
        let extreme = |pick: fn(i64, i64) -> i64| {
            let combined = overheads().cloned().reduce(|mut a, b| {
                a.iter_mut().zip(&b).for_each(|(a, b)| *a = pick(*a, *b));
                a
            });
            self.lanes.resources(&combined.unwrap_or_default())
        };
        Reason::InstanceTypes(Box::new(FilterRefusal {
            requirements: self.algebra.requirements(set),
            requests: self.lanes.resources(requests),
            daemons: (extreme(i64::min), extreme(i64::max)),
            cause,
        }))
    }

    /// Why nothing of the pool could ever be launched, given the keys that it has too few values for.
    pub(in crate::engine) fn explain_unusable(
        &mut self,
        template: usize,
        short: &[(Key, u32)],
    ) -> PoolRefusal {
        let set = self.templates[template].set;
        let cause = if short.is_empty() {
            self.requirements_cause(template, set)
        } else {
            FilterCause::MinValues(self.too_few(short))
        };
        PoolRefusal {
            pool: self.templates[template].pool.name.clone(),
            reason: self.filter_refusal(template, set, &self.lanes.zero(), cause),
        }
    }
}
