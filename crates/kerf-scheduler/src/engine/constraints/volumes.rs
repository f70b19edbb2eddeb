//! Where the pod's volumes can be reached, and how many of them instance types can attach. How many a node can is checked with
//! the node.

use super::{Accepted, Engine, Evaluation, Rejected, Witness};
use crate::algebra::SetId;
use crate::attached::Attached;
use crate::bits::Bits;
use crate::class::Spec;
use crate::refusal::{FilterCause, Reason};
use crate::template::Template;

impl Engine<'_> {
    /// Narrows the rows in the scratch buffer's base to those that can attach the volumes of the claim and of the pod.
    pub(super) fn keep_attaching_rows<W>(&mut self, evaluation: &Evaluation<'_, W>) {
        let template = &self.templates[evaluation.template];
        if !template.limits_volumes() || evaluation.attempt.spec.base.attachments.is_empty() {
            return;
        }
        let none = Attached::default();
        let attached = evaluation.claim.map_or(&none, |claim| &self.claims.all[claim].attached);
        keep_attaching(template, &mut self.scratch.base, attached, &evaluation.attempt.spec);
    }

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

fn keep_attaching(template: &Template, rows: &mut Bits, attached: &Attached, spec: &Spec) {
    for (driver, claims) in &spec.base.attachments {
        template.keep_attaching(rows, driver, attached.count_with(driver, claims));
    }
}

/// Whether the volumes of the pod are too many for each of these rows, and of which driver.
pub(super) fn too_many(template: &Template, rows: &Bits, spec: &Spec) -> Option<FilterCause> {
    let mut attaching = rows.clone();
    keep_attaching(template, &mut attaching, &Attached::default(), spec);
    if !attaching.is_empty() {
        return None;
    }
    let alone = spec.base.attachments.iter().find_map(|(driver, claims)| {
        let most = template.most_volumes(rows, driver)?;
        (claims.len() > most as usize).then(|| (driver.clone(), claims.len(), most))
    });
    Some(match alone {
        Some((driver, volumes, most)) => FilterCause::VolumeLimit { driver, volumes, most },
        None => FilterCause::VolumeLimits,
    })
}
