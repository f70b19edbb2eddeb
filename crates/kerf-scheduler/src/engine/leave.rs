//! Taking some nodes out of a run, and putting them back.

use std::sync::Arc;

use super::Engine;
use crate::class::ClassId;
use crate::plan::Plan;
use crate::probe::{Leaving, Stop};
use crate::refusal::Refusal;

impl Engine<'_> {
    /// Everything that this changes is put back, except what is only remembered.
    pub(crate) fn run_without(&mut self, leaving: &[Leaving<'_>], stop: &Stop) -> Plan {
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
        self.topology.restore();
        self.existing.restore();
        self.limits = limits;
        self.reservations = reservations;
        self.claims = crate::claims::Claims::default();
        self.placed.clear();
        self.leaving.clear();
        self.left_behind.clear();
        self.run_number += 1;
        plan
    }

    fn leave(&mut self, index: usize) {
        let node = Arc::clone(self.existing.nodes[index].node);
        if let Some(template) = self.template_of(&node) {
            self.limits[template].give_back(&self.lanes.request(&node.capacity));
        }
        self.leave_topology(index);
    }
}
