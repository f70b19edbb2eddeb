//! Taking watch events in.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, ReplicaSet, StatefulSet},
    core::v1::{
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
        Service,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass, VolumeAttachment},
};
use kerf_api::{NodeClaim, NodePool};
use kube_core::{Resource, ResourceExt};

use crate::{Cluster, Delta, Key, NodeClass, Objects, pods};

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

/// One object that came, changed or went.
macro_rules! kinds {
    ($($kind:ident in $field:ident $(by $reindex:ident)?),+ $(,)?) => {
        #[derive(Debug)]
        pub enum Change {
            NodeClass(Delta<NodeClass>),
            $($kind(Delta<$kind>)),+
        }

        $(impl Kind for $kind {
            fn key(&self) -> Key {
                Key::namespaced(self.namespace().unwrap_or_default(), self.name_any())
            }

            fn version(&self) -> u64 {
                version_of(self)
            }

            fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
                &mut cluster.$field
            }

            fn change(delta: Delta<Self>) -> Change {
                Change::$kind(delta)
            }

            $(fn reindex(cluster: &mut Cluster, delta: &Delta<Self>) {
                $reindex(cluster, delta);
            })?
        })+
    };
}

kinds! {
    NodePool in pools,
    NodeClaim in claims by reindex_claim,
    Node in nodes by reindex_node,
    Pod in pods by reindex_pod,
    DaemonSet in daemon_sets,
    PodDisruptionBudget in budgets,
    Namespace in namespaces by reindex_namespace,
    PersistentVolume in volumes by reindex_storage,
    PersistentVolumeClaim in volume_claims by reindex_storage,
    StorageClass in storage_classes by reindex_storage,
    CSINode in csi_nodes by reindex_csi_node,
    VolumeAttachment in attachments by reindex_attachment,
    Service in services by reindex_workload,
    ReplicationController in replication_controllers by reindex_workload,
    ReplicaSet in replica_sets by reindex_workload,
    StatefulSet in stateful_sets by reindex_workload,
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

fn reindex_claim(cluster: &mut Cluster, delta: &Delta<NodeClaim>) {
    move_entry(&mut cluster.claims_by_provider_id, delta, |claim| {
        Some(claim.status.as_ref()?.provider_id.as_str())
    });
    cluster.release(&delta.key.name);
    if delta.after.is_none() {
        cluster.marks.forget(&delta.key.name);
    }
    let ids = delta.both().map(|claim| Some(claim?.status.as_ref()?.provider_id.as_str()));
    cluster.claim_changed(&delta.key.name, ids);
}

fn reindex_node(cluster: &mut Cluster, delta: &Delta<Node>) {
    move_entry(&mut cluster.nodes_by_provider_id, delta, |node| {
        node.spec.as_ref()?.provider_id.as_deref()
    });
    let ids = delta.both().map(|node| node?.spec.as_ref()?.provider_id.as_deref());
    cluster.node_changed(&delta.key.name, ids);
}

fn reindex_pod(cluster: &mut Cluster, delta: &Delta<Pod>) {
    move_entry(&mut cluster.pods_by_node, delta, |pod| pod.spec.as_ref()?.node_name.as_deref());
    if delta.after.as_deref().is_some_and(pods::is_provisionable) {
        cluster.waiting_pods.insert(delta.key.clone());
    } else {
        cluster.waiting_pods.remove(&delta.key);
    }
    let nodes = delta.both().map(|pod| pod?.spec.as_ref()?.node_name.as_deref());
    cluster.pod_changed(&delta.key, nodes);
}

fn reindex_csi_node(cluster: &mut Cluster, delta: &Delta<CSINode>) {
    cluster.volume_limits_changed(&delta.key.name);
}

fn reindex_storage<K>(cluster: &mut Cluster, _: &Delta<K>) {
    cluster.volumes_changed();
}

fn reindex_workload<K>(cluster: &mut Cluster, _: &Delta<K>) {
    cluster.workloads_changed();
}

fn reindex_namespace(cluster: &mut Cluster, _: &Delta<Namespace>) {
    cluster.namespaces_changed();
}

fn reindex_attachment(cluster: &mut Cluster, delta: &Delta<VolumeAttachment>) {
    move_entry(&mut cluster.attachments_by_node, delta, |attachment| {
        Some(attachment.spec.node_name.as_str())
    });
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
