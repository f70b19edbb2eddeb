//! Instance types that meet the requirements, have room for the pod beside their daemons, have its host ports free, and have
//! an offering.

use kerf_model::resources::CPU;

use super::{Engine, Evaluation, Witness, host_ports};
use crate::algebra::{Key, SetId};
use crate::class::Spec;
use crate::lanes::Lanes;
use crate::refusal::{FilterCause, FilterRefusal, PoolRefusal, Reason};

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

    /// Holds every type against each of the three checks by itself.
    fn filter_cause(&mut self, spec: &Spec, template: usize, set: SetId) -> FilterCause {
        let requests = &spec.base.key.requests;
        let template = &self.templates[template];
        let mut with_room = template.usable.clone();
        template.keep_fitting(&mut with_room, requests);
        host_ports::keep_free(template, &mut with_room, spec);
        let with_room = template.types_of(&with_room);
        let compatible = template.types_of(&template.meeting(set, &mut self.algebra));
        let offered = template.types_of(&template.offered(set, &mut self.algebra));
        let (mut any, mut pairs) = ([false; 3], [false; 3]);
        for at in template.types_of(&template.usable).iter() {
            let compatible = compatible.contains(at);
            let fits = with_room.contains(at);
            let offered = offered.contains(at);
            any = [any[0] || compatible, any[1] || fits, any[2] || offered];
            pairs = [
                pairs[0] || (compatible && fits && !offered),
                pairs[1] || (fits && offered && !compatible),
                pairs[2] || (compatible && offered && !fits),
            ];
        }
        let cpu = self.lanes.resources(requests).amount(CPU);
        match any {
            [false, false, false] => FilterCause::Nothing,
            [false, false, true] => FilterCause::NoRequirementsNorRoom,
            [false, true, false] => FilterCause::NoRequirementsNorOffering,
            [true, false, false] => FilterCause::NoRoomNorOffering,
            [false, true, true] => FilterCause::NoRequirements,
            [true, false, true] => {
                FilterCause::NoRoom { cpu_is_absurd: cpu >= FilterCause::ABSURD_CPU }
            }
            [true, true, false] => FilterCause::NoOffering,
            [true, true, true] => match pairs {
                [true, _, _] => FilterCause::RequirementsAndRoomButNoOffering,
                [_, true, _] => FilterCause::RoomAndOfferingButNoRequirements,
                [_, _, true] => FilterCause::RequirementsAndOfferingButNoRoom,
                _ => FilterCause::NotAllAtOnce,
            },
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
        let requirements = self.algebra.requirements(set);
        let mut types = self.templates[template].pool.instance_types.iter();
        let cause = if !short.is_empty() {
            FilterCause::MinValues(self.too_few(short))
        } else if types.any(|it| it.requirements().intersects(&requirements).is_ok()) {
            FilterCause::NoOffering
        } else {
            FilterCause::NoRequirements
        };
        PoolRefusal {
            pool: self.templates[template].pool.name.clone(),
            reason: self.filter_refusal(template, set, &self.lanes.zero(), cause),
        }
    }
}
