//! What the pod asks of its node's labels: the node selector, one term of the required node affinity, and the heaviest
//! preference that has not been given up.

use kerf_model::labels::HOSTNAME;
use kerf_model::requirements::Conflict;
use kerf_model::{Incompatible, Requirement, Requirements, Undefined};

use super::{Engine, Rejected, Witness};
use crate::algebra::{PodRequirements, SetId};
use crate::class::Spec;
use crate::refusal::Reason;

impl Engine<'_> {
    pub(super) fn check_node_requirements(
        &mut self,
        spec: &Spec,
        node: usize,
    ) -> Result<(), Rejected> {
        if self.node_meets(node, &spec.requirements) { Ok(()) } else { Err(Rejected::Always) }
    }

    /// What the claim's requirements become with the pod's.
    pub(super) fn check_requirements<W: Witness>(
        &mut self,
        spec: &Spec,
        set: SetId,
        witness: &mut W,
    ) -> Result<SetId, Rejected> {
        let Some(merged) = self.algebra.merge_pod(set, &spec.requirements) else {
            witness.refused(|| Reason::Requirements(self.incompatible(set, &spec.requirements)));
            return Err(Rejected::ForThisRun);
        };
        Ok(merged)
    }

    /// Whether the node's labels meet everything that is asked; a label that it lacks has no value.
    pub(in crate::engine) fn node_meets(&mut self, node: usize, asked: &PodRequirements) -> bool {
        asked.allows_host(self.existing.nodes[node].node.hostname())
            && self.node_serves(node, asked.set)
    }

    fn node_serves(&mut self, node: usize, set: SetId) -> bool {
        (0..self.algebra.entries(set).len()).all(|at| {
            let (key, rule) = self.algebra.entries(set)[at];
            match self.existing.value(node, key, &mut self.algebra) {
                Some(value) => self.algebra.allows(rule, value),
                None => self.algebra.requirement(rule).allows_absence(),
            }
        })
    }

    /// Why these two do not merge.
    pub(super) fn incompatible(&self, set: SetId, asked: &PodRequirements) -> Incompatible {
        let known = Undefined::WellKnown(self.algebra.labels());
        let conflict = self.algebra.requirements(set).compatible(&self.with_hostname(asked), known);
        conflict.err().unwrap_or_else(|| {
            // Every node has a hostname, and a set of requirements never does.
            let existing = Requirement::exists(HOSTNAME);
            let incoming = asked.hostname.as_deref().unwrap_or(&existing).clone();
            Incompatible::Conflicts(vec![Conflict { incoming, existing }])
        })
    }

    pub(super) fn with_hostname(&self, asked: &PodRequirements) -> Requirements {
        let mut requirements = self.algebra.requirements(asked.set);
        requirements.extend(asked.hostname.as_deref().cloned());
        requirements
    }
}
