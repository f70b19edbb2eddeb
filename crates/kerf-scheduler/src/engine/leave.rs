//! Taking some nodes out of a run, and putting them back.

use std::sync::Arc;

use super::Engine;
use crate::class::ClassId;
use crate::is_better;
use crate::plan::Plan;
use crate::probe::{Leaving, Stop};
use crate::refusal::Refusal;

impl Engine<'_> {
    /// Everything that this changes is put back, except what is only remembered.
    pub(crate) fn run_without(&mut self, leaving: &[Leaving<'_>], stop: &Stop) -> Plan {
        self.run_without_and(leaving, stop, |_, plan| plan)
    }

    /// The same, and where it is cheaper with other machines for the pods that need new ones: those are looked for with so much
    /// work (`packing.rs`).
    pub(crate) fn run_without_packed(&mut self, leaving: &[Leaving<'_>], budget: u64) -> Plan {
        let whole = Stop::default();
        let (plan, guide) = self.run_without_and(leaving, &whole, |engine, plan| {
            let guide = if plan.claims.is_empty() { None } else { engine.guide(budget) };
            (plan, guide)
        });
        let Some(guide) = guide else { return plan };
        self.guide = Some(Arc::new(guide));
        let packed = self.run_without(leaving, &whole);
        self.guide = None;
        self.proposed_claims.clear();
        if is_better(&packed, &plan) { packed } else { plan }
    }

    /// `look` sees the engine as it is at the end of the run.
    fn run_without_and<R>(
        &mut self,
        leaving: &[Leaving<'_>],
        stop: &Stop,
        look: impl FnOnce(&mut Self, Plan) -> R,
    ) -> R {
        let snapshot = self.snapshot;
        // Classes come first: the groups that they make count all pods before a node is taken out.
        let mut classes: Vec<Result<ClassId, Refusal>> = Vec::new();
        for one in leaving {
            let node = &snapshot.nodes[one.node];
            for pod in one.pods.iter().map(|at| &node.pods[*at]) {
                classes.push(self.judge(pod));
                self.left_behind.push(pod);
            }
        }
        self.topology.keep_journal();
        let limits = self.limits.clone();
        let reservations = self.reservations.clone();
        self.stop = *stop;
        self.probing = true;
        for one in leaving {
            let index = self.existing.positions[one.node] as usize;
            self.existing.gone.insert(index);
            self.leaving.push(index);
            if let Some(reservation) = one.frees {
                self.reservations.credit(reservation);
            }
        }
        for at in 0..self.leaving.len() {
            self.leave(self.leaving[at]);
        }
        let plan = self.run(&classes);
        let seen = look(self, plan);
        self.topology.restore();
        self.existing.restore();
        self.limits = limits;
        self.reservations = reservations;
        self.claims = crate::claims::Claims::default();
        self.placed.clear();
        self.leaving.clear();
        self.left_behind.clear();
        self.run_number += 1;
        seen
    }

    fn leave(&mut self, index: usize) {
        let node = Arc::clone(self.existing.nodes[index].node);
        if let Some(template) = self.template_of(&node) {
            self.limits[template].give_back(&self.lanes.request(&node.capacity));
        }
        self.leave_topology(index);
    }
}
