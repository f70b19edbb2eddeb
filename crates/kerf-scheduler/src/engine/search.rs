//! The first place that takes a pod: a node that exists, an open claim, a new claim. Places that have refused a class for
//! good are not asked again.

use super::constraints::{Accepted, Rejected, Unseen};
use super::{Engine, NOWHERE, Stuck};
use crate::attempt::Attempt;
use crate::class::ClassId;
use crate::plan::Stopped;

impl Engine<'_> {
    pub(super) fn first_accepting_node(
        &mut self,
        class: ClassId,
        attempt: &Attempt,
    ) -> Option<usize> {
        let mut dead = std::mem::take(&mut self.classes[class.index()].run.dead_nodes);
        let mut found = None;
        let mut next = dead.next_absent(0, self.existing.targets);
        while let Some(node) = next {
            match self.evaluate_node(attempt, node) {
                Ok(()) => {
                    found = Some(node);
                    break;
                }
                Err(Rejected::ForNow | Rejected::WaitsForReservation) => {}
                Err(Rejected::ForThisRun) => dead.insert(node),
                Err(Rejected::Always) => {
                    dead.insert(node);
                    self.classes[class.index()].barred_nodes.get_or_insert_default().insert(node);
                }
            }
            next = dead.next_absent(node + 1, self.existing.targets);
        }
        self.classes[class.index()].run.dead_nodes = dead;
        found
    }

    pub(super) fn first_accepting_claim(
        &mut self,
        class: ClassId,
        attempt: &Attempt,
    ) -> Option<(usize, Accepted)> {
        let mut dead = std::mem::take(&mut self.classes[class.index()].run.dead_claims);
        let mut found = None;
        for position in 0..self.claims.len() {
            let claim = self.claims.at(position);
            if dead.contains(claim) {
                continue;
            }
            match self.evaluate_claim(attempt, claim) {
                Ok(accepted) if self.is_within_ceiling(claim, accepted.set()) => {
                    found = Some((claim, accepted));
                    break;
                }
                Ok(_) | Err(Rejected::ForNow | Rejected::WaitsForReservation) => {}
                Err(Rejected::ForThisRun | Rejected::Always) => dead.insert(claim),
            }
        }
        self.classes[class.index()].run.dead_claims = dead;
        found
    }

    pub(super) fn open_claim(
        &mut self,
        pod: u32,
        class: ClassId,
        attempt: &Attempt,
    ) -> Result<(), Stuck> {
        for template in 0..self.templates.len() {
            if self.classes[class.index()].run.dead_templates.contains(template) {
                continue;
            }
            match self.evaluate_template(attempt, template, &mut Unseen) {
                Ok(accepted) => {
                    if let Some(most) =
                        self.stop.max_new_claims.filter(|most| self.claims.len() >= *most)
                    {
                        return Err(Stuck::Stopped(Stopped::NewClaims { most }));
                    }
                    self.commit_to_new_claim(pod, class, template, accepted);
                    return self.stop_when_too_dear();
                }
                Err(Rejected::ForNow) => {}
                Err(Rejected::ForThisRun | Rejected::Always) => {
                    self.classes[class.index()].run.dead_templates.insert(template);
                }
                Err(Rejected::WaitsForReservation) => return Err(Stuck::WaitsForReservation),
            }
        }
        Err(NOWHERE)
    }
}
