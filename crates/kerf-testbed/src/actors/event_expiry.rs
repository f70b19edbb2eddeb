//! Events do not stay: the API server forgets each an hour after it was last written.

use super::Controller;
use super::desk::{Deletion, Desk, EVENTS, Refusal};
use super::queue::Queue;
use crate::api::Seen;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

const TIME_TO_LIVE: SignedDuration = SignedDuration::from_hours(1);

/// By key, the revision last seen and when it is forgotten.
#[derive(Debug, Default)]
pub(super) struct EventExpiry {
    ends: BTreeMap<Arc<str>, (u64, Timestamp)>,
}

impl Controller for EventExpiry {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[("", "events")]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        if seen.gone {
            self.ends.remove(&seen.key);
        } else {
            queue.add(seen.key.clone());
        }
    }

    fn reconcile(&mut self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let Some(event) = desk.get(EVENTS, key) else { return Ok(()) };
        let ends = match self.ends.get(key) {
            Some((revision, ends)) if *revision == event.revision => *ends,
            _ => desk.now() + TIME_TO_LIVE,
        };
        if ends <= desk.now() {
            return desk.delete(EVENTS, &event.value, Deletion::Background);
        }
        self.ends.insert(key.into(), (event.revision, ends));
        queue.add_at(ends, key);
        Ok(())
    }
}
