//! The index of the cluster, shared by all controllers, and the watches that feed it.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kerf_api::Decoded;
use kerf_cluster::{
    Change, Cluster, Doubtful, Foreign, Key, Kind, Ownership, Taken,
    reservations::{NotReserved, Wanted},
};

use kerf_model::repair::RepairRules;
use tracing::info;

use crate::settings::Settings;

pub(crate) mod follow;
pub(crate) mod sight;
pub(crate) mod watch;

use follow::Report;

/// Looks at a change and adds the keys it concerns to a controller's queue.
pub(crate) type Trigger = Box<dyn Fn(&Change, &Cluster) + Send + Sync>;

/// The cluster as last seen, and the subscribers of its changes.
pub(crate) struct Index {
    cluster: RwLock<Cluster>,
    triggers: Vec<Trigger>,
    leads: AtomicBool,
    changes: tokio::sync::watch::Sender<u64>,
    /// How often the API server was restored from a backup.
    restores: tokio::sync::watch::Sender<u64>,
    report: Report,
}

impl Index {
    pub(crate) fn new(
        triggers: Vec<Trigger>,
        settings: &Settings,
        repair: Option<Arc<RepairRules>>,
        ownership: Ownership,
        report: Report,
    ) -> Self {
        let mut cluster = Cluster::default();
        cluster.keep_only(ownership);
        settings.prepare(&mut cluster);
        if let Some(rules) = repair {
            cluster.repair_by(rules);
        }
        Self {
            cluster: RwLock::new(cluster),
            triggers,
            leads: AtomicBool::new(false),
            changes: tokio::sync::watch::Sender::new(0),
            restores: tokio::sync::watch::Sender::new(0),
            report,
        }
    }

    /// From now on the controllers get changes, beginning with all objects. Before, no worker would empty their queues,
    /// and those of a replica that stands by for weeks would hold every name there ever was.
    pub(crate) fn lead(&self) {
        let cluster = self.write();
        self.leads.store(true, Ordering::Relaxed);
        for change in cluster.everything() {
            self.tell(&change, &cluster);
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }

    /// Read quickly and never across an await: the watches write here.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes there have been: as long as it stays the same, so does the cluster.
    pub(crate) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// What decisions rest on changed, though nothing in the cluster did.
    pub(crate) fn look_again(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Waits until there have been others than these.
    pub(crate) async fn changed_since(&self, known: u64) {
        // The sender is part of the index, so that it cannot be gone.
        let _ = self.changes.subscribe().wait_for(|changes| *changes != known).await;
    }

    /// Waits until every kind has been listed: at the start, and after a restore. Before that nothing may be decided.
    pub(crate) async fn listed(&self) {
        while !self.read().listed() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// One kind was found to be of another history than before; all others are, too.
    fn begin_history(&self) {
        self.write().begin_history();
        self.restores.send_modify(|restores| *restores += 1);
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

    /// A name for a new claim; see [`Cluster::reserve`].
    pub(crate) fn reserve(
        &self,
        wanted: Wanted<'_>,
        now: Timestamp,
    ) -> Result<String, NotReserved> {
        self.write().reserve(wanted, now)
    }

    pub(crate) fn release(&self, claim: &str) {
        self.write().release(claim);
        // There is room under a limit again.
        self.look_again();
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

    /// A list of the kind comes, made at this revision.
    fn begin_list<K: Kind>(&self, revision: u64) {
        self.write().begin_list::<K>(revision);
    }

    /// The list is over; returns what is in doubt afterwards.
    fn end_list<K: Kind>(&self) -> Vec<Doubtful> {
        let mut cluster = self.write();
        let (gone, doubtful) = cluster.end_list::<K>();
        for change in gone {
            self.tell(&change, &cluster);
        }
        doubtful
    }

    /// Takes in what could be read of an object. Whether that was all of it may only show here.
    /// What belongs to another operator is said once.
    fn take_in<K: Kind>(&self, kind: &str, decoded: Decoded<K>, uid: Option<String>) {
        let mut cluster = self.write();
        let Taken { change, unreadable, mended, foreign } = cluster.take_in(decoded);
        if let Some(Foreign { key, class }) = foreign {
            let class = format!("{}.{}/{}", class.kind, class.group, class.name);
            let name = key.name;
            info!(
                kind,
                name,
                class,
                "ignoring an object whose NodeClass is of a kind that is not this operator's"
            );
        }
        if let Some(change) = change.filter(|change| mended || !change.is_sign_of_life()) {
            self.tell(&change, &cluster);
        }
        if let Some(unreadable) = unreadable {
            // A replica that stands by leaves the events to the one that leads.
            let leads = self.leads();
            let about = uid.filter(|_| leads).map(|uid| ObjectReference {
                kind: Some(unreadable.kind.clone()),
                name: Some(unreadable.name.clone()),
                namespace: Some(unreadable.namespace.clone()).filter(|it| !it.is_empty()),
                uid: Some(uid),
                ..ObjectReference::default()
            });
            (self.report)(&unreadable, about);
        }
    }

    fn take_out<K: Kind>(&self, decoded: Decoded<K>) {
        self.alter(|cluster| match decoded {
            Decoded::Whole(object) | Decoded::Partial(object, _) => cluster.delete(&object),
            Decoded::Nothing(unreadable) => cluster.delete_named::<K>(follow::key_of(&unreadable)),
        });
    }

    fn tell(&self, change: &Change, cluster: &Cluster) {
        self.changes.send_modify(|changes| *changes += 1);
        if self.leads() {
            self.triggers.iter().for_each(|trigger| trigger(change, cluster));
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Cluster> {
        self.cluster.write().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        let index = Index::new(
            vec![trigger],
            &Settings::default(),
            None,
            Ownership::default(),
            Box::new(|_, _| {}),
        );
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
