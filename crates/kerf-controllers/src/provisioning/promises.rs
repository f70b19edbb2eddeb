//! The pods that claims were created for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kerf_cluster::Key;
use kerf_model::Pod;

use crate::context::Context;

/// While a claim has no instance there is nothing that its pods could be planned on, and they must not get a second one.
/// Known only to the operator that created the claim: its successor waits for such claims, see [`super::is_synced`].
#[derive(Debug, Default)]
pub(crate) struct Promises(Mutex<BTreeMap<String, Promised>>);

/// Who has a place on a claim that has no instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promised {
    pub(super) pods: Vec<Key>,
    /// Those of buffers.
    pub(crate) virtual_pods: Vec<Arc<Pod>>,
}

/// All who have a place on such claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outstanding {
    pub(super) pods: BTreeSet<Key>,
    pub(super) virtual_pods: Vec<Arc<Pod>>,
}

impl Promises {
    pub(super) fn make(&self, claim: String, promised: Promised) {
        self.promises().insert(claim, promised);
    }

    pub(super) fn knows(&self, claim: &str) -> bool {
        self.promises().contains_key(claim)
    }

    /// How many pods the claim was created for, if that is known.
    pub(crate) fn count(&self, claim: &str) -> Option<usize> {
        self.promises().get(claim).map(|promised| promised.pods.len())
    }

    /// The pods the claim was created for, as far as is known.
    pub(crate) fn of(&self, claim: &str) -> Vec<Key> {
        self.promises().get(claim).map(|promised| promised.pods.clone()).unwrap_or_default()
    }

    /// Forgets claims that are launched or gone; the pods of the others.
    pub(super) fn outstanding(&self, context: &Context) -> Outstanding {
        let cluster = context.index.read();
        let mut promises = self.promises();
        promises.retain(|claim, _| {
            cluster.claims().named(claim).is_some_and(|claim| claim.is_unlaunched())
        });
        Outstanding {
            pods: promises.values().flat_map(|promised| promised.pods.iter().cloned()).collect(),
            virtual_pods: promises
                .values()
                .flat_map(|promised| promised.virtual_pods.iter().cloned())
                .collect(),
        }
    }

    fn promises(&self) -> MutexGuard<'_, BTreeMap<String, Promised>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
