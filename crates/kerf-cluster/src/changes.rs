//! Taking watch events in.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
};
use kerf_api::{NodeClaim, NodePool};
use kube_core::{Resource, ResourceExt};

use crate::{Cluster, Delta, Key, NodeClass, Objects};

/// One object that came, changed or went.
#[derive(Debug)]
pub enum Change {
    NodePool(Delta<NodePool>),
    NodeClaim(Delta<NodeClaim>),
    Node(Delta<Node>),
    Pod(Delta<Pod>),
    DaemonSet(Delta<DaemonSet>),
    NodeClass(Delta<NodeClass>),
}

/// A kind that the index holds.
pub trait Kind: Sized {
    fn key(&self) -> Key;
    fn version(&self) -> u64;
    fn objects(cluster: &mut Cluster) -> &mut Objects<Self>;
    fn change(delta: Delta<Self>) -> Change;
    /// Keeps the look-ups of this kind in step with a change.
    fn reindex(_cluster: &mut Cluster, _delta: &Delta<Self>) {}
}

impl Cluster {
    /// Takes in an object that the watch brought; `None` if what is here is newer.
    pub fn apply<K: Kind>(&mut self, object: K) -> Option<Change> {
        let delta = K::objects(self).apply(object.key(), object.version(), object)?;
        Some(self.reindexed(delta))
    }

    /// Takes in the answer to a write of ours before the watch brings it; `None` if the watch was faster.
    pub fn anticipate<K: Kind>(&mut self, object: K) -> Option<Change> {
        let delta = K::objects(self).anticipate(object.key(), object.version(), object)?;
        Some(self.reindexed(delta))
    }

    pub fn delete<K: Kind>(&mut self, object: &K) -> Option<Change> {
        let delta = K::objects(self).delete(object.key(), object.version())?;
        Some(self.reindexed(delta))
    }

    pub fn begin_list<K: Kind>(&mut self) {
        K::objects(self).begin_list();
    }

    /// Ends a list; what was not in it is gone.
    pub fn end_list<K: Kind>(&mut self) -> Vec<Change> {
        let gone = K::objects(self).end_list();
        gone.into_iter().map(|delta| self.reindexed(delta)).collect()
    }

    fn reindexed<K: Kind>(&mut self, delta: Delta<K>) -> Change {
        K::reindex(self, &delta);
        K::change(delta)
    }
}

impl Kind for NodePool {
    fn key(&self) -> Key {
        key_of(self)
    }

    fn version(&self) -> u64 {
        version_of(self)
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
        &mut cluster.pools
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::NodePool(delta)
    }
}

impl Kind for NodeClaim {
    fn key(&self) -> Key {
        key_of(self)
    }

    fn version(&self) -> u64 {
        version_of(self)
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
        &mut cluster.claims
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::NodeClaim(delta)
    }

    fn reindex(cluster: &mut Cluster, delta: &Delta<Self>) {
        fn provider_id(claim: &NodeClaim) -> Option<&str> {
            claim.status.as_ref().map(|status| status.provider_id.as_str())
        }
        move_entry(&mut cluster.claims_by_provider_id, delta, provider_id);
    }
}

impl Kind for Node {
    fn key(&self) -> Key {
        key_of(self)
    }

    fn version(&self) -> u64 {
        version_of(self)
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
        &mut cluster.nodes
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Node(delta)
    }

    fn reindex(cluster: &mut Cluster, delta: &Delta<Self>) {
        fn provider_id(node: &Node) -> Option<&str> {
            node.spec.as_ref()?.provider_id.as_deref()
        }
        move_entry(&mut cluster.nodes_by_provider_id, delta, provider_id);
    }
}

impl Kind for Pod {
    fn key(&self) -> Key {
        key_of(self)
    }

    fn version(&self) -> u64 {
        version_of(self)
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
        &mut cluster.pods
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Pod(delta)
    }

    fn reindex(cluster: &mut Cluster, delta: &Delta<Self>) {
        fn node_name(pod: &Pod) -> Option<&str> {
            pod.spec.as_ref()?.node_name.as_deref()
        }
        move_entry(&mut cluster.pods_by_node, delta, node_name);
    }
}

impl Kind for DaemonSet {
    fn key(&self) -> Key {
        key_of(self)
    }

    fn version(&self) -> u64 {
        version_of(self)
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
        &mut cluster.daemon_sets
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::DaemonSet(delta)
    }
}

impl Kind for NodeClass {
    fn key(&self) -> Key {
        Self::key_for(&self.reference)
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
        &mut cluster.node_classes
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::NodeClass(delta)
    }
}

fn key_of<K: Resource>(object: &K) -> Key {
    Key::namespaced(object.namespace().unwrap_or_default(), object.name_any())
}

pub(crate) fn version_of<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Moves a key from the entry that its object had to the one it has now. Nothing is filed under the empty string.
fn move_entry<K>(
    entries: &mut BTreeMap<String, BTreeSet<Key>>,
    delta: &Delta<K>,
    entry: fn(&K) -> Option<&str>,
) {
    let entry =
        |object: &Option<Arc<K>>| -> Option<String> { entry(object.as_ref()?).map(str::to_owned) };
    let (before, after) = (entry(&delta.before), entry(&delta.after));
    if before == after {
        return;
    }
    if let Some(before) = before
        && let Some(keys) = entries.get_mut(&before)
    {
        keys.remove(&delta.key);
        if keys.is_empty() {
            entries.remove(&before);
        }
    }
    if let Some(after) = after.filter(|after| !after.is_empty()) {
        entries.entry(after).or_default().insert(delta.key.clone());
    }
}
