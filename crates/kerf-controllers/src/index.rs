//! The index of the cluster, shared by all controllers, and the watches that feed it.

use std::{
    fmt,
    sync::{
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use kerf_api::NodePool;
use kerf_cluster::{Change, Cluster, Doubtful, Key, Kind, Ownership};
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
    leads: AtomicBool,
    changes: watch::Sender<u64>,
}

impl Index {
    pub(crate) fn new(triggers: Vec<Trigger>, settings: &Settings, ownership: Ownership) -> Self {
        let mut cluster = Cluster::default();
        cluster.keep_only(ownership);
        cluster.spread_by_default(settings.default_spread.clone());
        Self {
            cluster: RwLock::new(cluster),
            triggers,
            leads: AtomicBool::new(false),
            changes: watch::Sender::new(0),
        }
    }

    /// From now on the controllers are told of changes, beginning with all there is. Before, nobody would empty their queues,
    /// and those of a replica that stands by for weeks would hold every name there ever was.
    pub(crate) fn lead(&self) {
        let cluster = self.write();
        self.leads.store(true, Ordering::Relaxed);
        for change in cluster.everything() {
            self.tell(&change, &cluster);
        }
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
    pub(crate) fn nominate(
        &self,
        claim: &str,
        pods: impl IntoIterator<Item = Key>,
        until: Timestamp,
    ) {
        self.write().nominate(claim, pods, until);
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
        let mut events = watcher::watcher(api.clone(), watcher::Config::default()).boxed();
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
                    for doubtful in self.take_in(event, &convert) {
                        self.settle(&api, &convert, doubtful).await;
                    }
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

    /// Asks for an object that a new list did not have and that we have written since. Only what has no namespace is written
    /// here.
    async fn settle<W, K: Kind>(
        &self,
        api: &Api<W>,
        convert: &(impl Fn(W) -> K + Send),
        doubtful: Doubtful,
    ) where
        W: Clone + DeserializeOwned + fmt::Debug,
    {
        match api.get_opt(&doubtful.key.name).await {
            Ok(Some(object)) => self.anticipate(convert(object)),
            Ok(None) => self.alter(|cluster| cluster.refute::<K>(doubtful)),
            // A reconcile of it will find out.
            Err(error) => warn!(%error, name = %doubtful.key, "cannot tell whether it exists"),
        }
    }

    /// Returns what is in doubt afterwards.
    fn take_in<W, K: Kind>(&self, event: Event<W>, convert: &impl Fn(W) -> K) -> Vec<Doubtful> {
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
                let (gone, doubtful) = cluster.end_list::<K>();
                for change in gone {
                    self.tell(&change, &cluster);
                }
                return doubtful;
            }
        }
        Vec::new()
    }

    fn tell(&self, change: &Change, cluster: &Cluster) {
        self.changes.send_modify(|changes| *changes += 1);
        if self.leads.load(Ordering::Relaxed) {
            self.triggers.iter().for_each(|trigger| trigger(change, cluster));
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;
    use std::sync::{Arc, Mutex};

    #[test]
    fn controllers_are_told_from_the_election_on_beginning_with_all_there_is() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let trigger: Trigger = Box::new({
            let told = Arc::clone(&told);
            move |change, _| {
                if let Change::Node(delta) = change {
                    told.lock().unwrap().push(delta.key.name.clone());
                }
            }
        });
        let index = Index::new(vec![trigger], &Settings::default(), Ownership::default());
        let node = |name: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": name, "resourceVersion": "1"}}))
                .unwrap()
        };
        for name in ["b", "gone", "a"] {
            index.alter(|cluster| cluster.apply(node(name)));
        }
        index.alter(|cluster| cluster.delete(&node("gone")));
        let take = || std::mem::take(&mut *told.lock().unwrap());
        assert!(take().is_empty(), "nobody listens yet");
        index.lead();
        assert_eq!(take(), ["a", "b"]);
        index.alter(|cluster| cluster.apply(node("c")));
        assert_eq!(take(), ["c"]);
    }
}
