//! Machines that have died.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Which nodes are dead, and since when. Cloning shares it.
///
/// Heartbeats of 50 nodes over 30 days would be 13 million writes that tell nothing, so kubelets send none. What they
/// would tell by falling silent, node lifecycle reads here.
#[derive(Clone, Debug, Default)]
pub(super) struct Outages {
    dead: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    /// Not a `watch` channel: that one wakes those who wait in an order of its own chance.
    changed: Arc<Notify>,
}

impl Outages {
    pub(super) fn begin(&self, node: &str, now: Timestamp) {
        self.dead().entry(node.to_owned()).or_insert(now);
        self.changed.notify_waiters();
    }

    pub(super) fn end(&self, node: &str) {
        if self.dead().remove(node).is_some() {
            self.changed.notify_waiters();
        }
    }

    pub(super) fn since(&self, node: &str) -> Option<Timestamp> {
        self.dead().get(node).copied()
    }

    pub(super) fn all(&self) -> BTreeMap<String, Timestamp> {
        self.dead().clone()
    }

    /// Tells of the first change after this call.
    pub(super) fn changed(&self) -> OwnedNotified {
        self.changed.clone().notified_owned()
    }

    fn dead(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
