//! The limits of a pool, which hold for new claims. Open ones are charged already.

use super::{Engine, Rejected, Witness};
use crate::refusal::Reason;

impl Engine<'_> {
    /// Puts the rows that the pool may still launch into the scratch buffer's base.
    ///
    /// A witness that looks gets all rows: limits are the reason where nothing else is, because raising one must help. What
    /// is accepted then is refused by [`Self::limit_reached`].
    pub(super) fn start_within_limits<W: Witness>(
        &mut self,
        template: usize,
    ) -> Result<(), Rejected> {
        if W::LOOKS {
            self.scratch.base.copy_from(&self.templates[template].usable);
            return Ok(());
        }
        if self.limits[template].node_limit_reached() {
            return Err(Rejected::ForNow);
        }
        let allowed = self.limits[template].allowed(&self.templates[template]);
        self.scratch.base.copy_from(allowed);
        Ok(())
    }

    /// Why a pod goes nowhere that all else would accept. Looks at the rows that it was accepted with, in the scratch buffer.
    pub(in crate::engine) fn limit_reached(&self, template: usize) -> Reason {
        let (limits, template) = (&self.limits[template], &self.templates[template]);
        match limits.nodes_reached() {
            Some(usage) => Reason::NodeLimit(usage),
            None => Reason::Limits(limits.reached(template, &self.scratch.rows, &self.lanes)),
        }
    }
}
