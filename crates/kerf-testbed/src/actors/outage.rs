//! Machines that have died.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Which nodes are dead, and since when. Cloning shares it.
///
/// Heartbeats of 50 nodes over 30 days would be 13 million writes that tell nothing, so kubelets send none. What they
/// would tell by falling silent, node lifecycle reads here.
#[derive(Clone, Debug)]
pub(super) struct Outages(Arc<watch::Sender<BTreeMap<String, Timestamp>>>);

impl Default for Outages {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }
}

impl Outages {
    pub(super) fn begin(&self, node: &str, now: Timestamp) {
        self.0.send_if_modified(|dead| {
            let known = dead.contains_key(node);
            dead.entry(node.to_owned()).or_insert(now);
            !known
        });
    }

    pub(super) fn end(&self, node: &str) {
        self.0.send_if_modified(|dead| dead.remove(node).is_some());
    }

    pub(super) fn since(&self, node: &str) -> Option<Timestamp> {
        self.0.borrow().get(node).copied()
    }

    pub(super) fn all(&self) -> BTreeMap<String, Timestamp> {
        self.0.borrow().clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<BTreeMap<String, Timestamp>> {
        self.0.subscribe()
    }
}
