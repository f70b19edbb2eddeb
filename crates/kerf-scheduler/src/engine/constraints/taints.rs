//! Taints that the pod does not tolerate.

use kerf_model::Taint;

use super::{Rejected, Witness};
use crate::class::Spec;
use crate::refusal::Reason;

pub(super) fn check<W: Witness>(
    spec: &Spec,
    taints: &[Taint],
    witness: &mut W,
) -> Result<(), Rejected> {
    if taints.is_empty() {
        return Ok(());
    }
    let Some(taint) = spec.first_untolerated(taints) else { return Ok(()) };
    witness.refused(|| Reason::Taint(taint.clone()));
    Err(Rejected::Always)
}
