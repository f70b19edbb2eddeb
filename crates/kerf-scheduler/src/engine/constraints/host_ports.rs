//! Host ports that are taken: by pods of the node or the claim, and by the daemons of instance types.

use kerf_model::pod::HostPort;

use crate::bits::Bits;
use crate::class::Spec;
use crate::template::Template;

pub(super) fn are_free(taken: &[HostPort], spec: &Spec) -> bool {
    !conflict(taken, spec.ports())
}

/// Narrows `rows` to those whose daemons leave the ports free.
pub(super) fn keep_free(template: &Template, rows: &mut Bits, spec: &Spec) {
    if spec.ports().is_empty() {
        return;
    }
    for group in &template.daemon_groups {
        if conflict(&group.ports, spec.ports()) {
            rows.remove_all(&group.rows);
        }
    }
}

fn conflict(taken: &[HostPort], wanted: &[HostPort]) -> bool {
    wanted.iter().any(|port| taken.iter().any(|other| other.conflicts_with(port)))
}
