//! The index of the cluster, shared by all controllers, and the watches that feed it.

use std::{
    fmt,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use kerf_api::NodePool;
use kerf_cluster::{Change, Cluster, Kind};
use kube::Api;
use kube_runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::settings::Settings;

/// Looks at a change and adds the keys it concerns to a controller's queue.
pub(crate) type Trigger = Box<dyn Fn(&Change, &Cluster) + Send + Sync>;

/// The cluster as last seen, and whom to tell of changes.
pub(crate) struct Index {
    cluster: RwLock<Cluster>,
    triggers: Vec<Trigger>,
    changes: watch::Sender<u64>,
}

impl Index {
    pub(crate) fn new(triggers: Vec<Trigger>, settings: &Settings) -> Self {
        let mut cluster = Cluster::default();
        cluster.spread_by_default(settings.default_spread.clone());
        Self { cluster: RwLock::new(cluster), triggers, changes: watch::Sender::new(0) }
    }

    /// Read quickly and never across an await: the watches write here.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes there have been: as long as it stays the same, so does the cluster.
    pub(crate) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Waits until there have been others than these.
    pub(crate) async fn changed_since(&self, known: u64) {
        // The sender is part of the index, so that it cannot be gone.
        let _ = self.changes.subscribe().wait_for(|changes| *changes != known).await;
    }

    /// Takes in the answer to a write, so that the next decision rests on it even if the watch is late.
    pub(crate) fn anticipate<K: Kind>(&self, object: K) {
        self.alter(|cluster| cluster.anticipate(object));
    }

    /// Changes something that no watch brings, and tells the controllers what it changed.
    pub(crate) fn alter(&self, change: impl FnOnce(&mut Cluster) -> Option<Change>) {
        let mut cluster = self.write();
        if let Some(change) = change(&mut cluster) {
            self.tell(&change, &cluster);
        }
    }

    /// Names for up to `want` new claims of the pool; see [`Cluster::reserve`].
    pub(crate) fn reserve(&self, pool: &NodePool, want: u64, now: Timestamp) -> Vec<String> {
        self.write().reserve(pool, want, now)
    }

    pub(crate) fn release(&self, claim: &str) {
        self.write().release(claim);
        // There is room under a limit again.
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Notes that pods are about to come to the machine of this claim.
    pub(crate) fn nominate(&self, claim: &str, until: Timestamp) {
        self.write().nominate(claim, until);
    }

    /// Follows the watch of one kind until `stop`. Broken watches are taken up again.
    pub(crate) async fn follow<W, K>(
        &self,
        api: Api<W>,
        convert: impl Fn(W) -> K + Send,
        stop: CancellationToken,
    ) where
        W: kube::Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
        K: Kind,
    {
        let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
        let mut retry = RETRY_FIRST;
        loop {
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                event = events.try_next() => event,
            };
            match event {
                Ok(Some(event)) => {
                    retry = RETRY_FIRST;
                    self.take_in(event, &convert);
                }
                Ok(None) => return,
                Err(error) => {
                    warn!(%error, retry_in = ?retry, "watch failed");
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(retry) => {}
                    }
                    retry = (retry * 2).min(RETRY_MOST);
                }
            }
        }
    }

    fn take_in<W, K: Kind>(&self, event: Event<W>, convert: &impl Fn(W) -> K) {
        let mut cluster = self.write();
        match event {
            Event::Init => cluster.begin_list::<K>(),
            Event::InitApply(object) | Event::Apply(object) => {
                let change = cluster.apply(convert(object));
                if let Some(change) = change.filter(|change| !change.is_sign_of_life()) {
                    self.tell(&change, &cluster);
                }
            }
            Event::Delete(object) => {
                if let Some(change) = cluster.delete(&convert(object)) {
                    self.tell(&change, &cluster);
                }
            }
            Event::InitDone => {
                for change in cluster.end_list::<K>() {
                    self.tell(&change, &cluster);
                }
            }
        }
    }

    fn tell(&self, change: &Change, cluster: &Cluster) {
        self.changes.send_modify(|changes| *changes += 1);
        for trigger in &self.triggers {
            trigger(change, cluster);
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Cluster> {
        self.cluster.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without jitter: a run in virtual time must be repeatable, and one operator is no herd.
const RETRY_FIRST: Duration = Duration::from_millis(800);
const RETRY_MOST: Duration = Duration::from_secs(30);

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("triggers", &self.triggers.len()).finish_non_exhaustive()
    }
}
