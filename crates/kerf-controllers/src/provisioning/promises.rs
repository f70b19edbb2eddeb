//! The pods that claims were created for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use kerf_cluster::Key;

use crate::context::Context;

/// While a claim has no instance there is nothing that its pods could be planned on, and they must not get a second one.
/// Known only to the operator that created the claim: its successor waits for such claims, see [`super::is_synced`].
#[derive(Debug, Default)]
pub(crate) struct Promises(Mutex<BTreeMap<String, Vec<Key>>>);

impl Promises {
    pub(super) fn make(&self, claim: String, pods: Vec<Key>) {
        self.promises().insert(claim, pods);
    }

    pub(super) fn knows(&self, claim: &str) -> bool {
        self.promises().contains_key(claim)
    }

    /// How many pods the claim was created for, if that is known.
    pub(crate) fn count(&self, claim: &str) -> Option<usize> {
        self.promises().get(claim).map(Vec::len)
    }

    /// The pods the claim was created for, as far as is known.
    pub(crate) fn of(&self, claim: &str) -> Vec<Key> {
        self.promises().get(claim).cloned().unwrap_or_default()
    }

    /// Forgets claims that are launched or gone; the pods of the others.
    pub(super) fn outstanding(&self, context: &Context) -> BTreeSet<Key> {
        let cluster = context.index.read();
        let mut promises = self.promises();
        promises.retain(|claim, _| {
            cluster.claims().named(claim).is_some_and(|claim| claim.is_unlaunched())
        });
        promises.values().flatten().cloned().collect()
    }

    fn promises(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Key>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
