//! What a node that exists has left: room, host ports, volumes to attach; and whether it is still settling.

use super::{Engine, Rejected};
use crate::class::Spec;

impl Engine<'_> {
    pub(super) fn check_node_state(&self, spec: &Spec, node: usize) -> Result<(), Rejected> {
        if !self.existing.accepts(node, spec) {
            let changed = self.existing.is_changed(node);
            return Err(if changed { Rejected::ForThisRun } else { Rejected::Always });
        }
        let settling = self.options.honor_settling && self.existing.nodes[node].node.settling;
        if settling && !spec.base.key.unsettled { Err(Rejected::Always) } else { Ok(()) }
    }
}
