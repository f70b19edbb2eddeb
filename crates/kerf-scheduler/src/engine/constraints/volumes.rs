//! Where the pod's volumes can be reached. How many a node can attach is checked with the node: a new one has no limit yet.

use super::{Accepted, Engine, Evaluation, Rejected, Witness};
use crate::algebra::SetId;
use crate::class::Spec;
use crate::refusal::Reason;

impl Engine<'_> {
    pub(super) fn check_node_volumes(&mut self, spec: &Spec, node: usize) -> Result<(), Rejected> {
        let alternatives = &spec.base.volume_requirements;
        let reached = alternatives.is_empty()
            || alternatives.iter().any(|alternative| self.node_meets(node, alternative));
        if reached { Ok(()) } else { Err(Rejected::Always) }
    }

    /// Each alternative in turn, until one leaves something to buy.
    pub(super) fn through_volumes<W: Witness>(
        &mut self,
        evaluation: &mut Evaluation<'_, W>,
        set: SetId,
    ) -> Option<Accepted> {
        let alternatives = &evaluation.attempt.spec.base.volume_requirements;
        let Some(last) = alternatives.last() else {
            return self.through_topology(evaluation, set);
        };
        let mut reached = false;
        for alternative in alternatives {
            let Some(merged) = self.algebra.merge_pod(set, alternative) else { continue };
            reached = true;
            if let Some(accepted) = self.through_topology(evaluation, merged) {
                return Some(accepted);
            }
        }
        if !reached {
            evaluation.witness.refused(|| Reason::Volumes(self.incompatible(set, last)));
        }
        None
    }
}
