//! Applying watch events to the index.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::{
        self as core, Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate,
        ReplicationController, Service,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass, VolumeAttachment},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kerf_api::{
    CapacityBuffer, Decoded, NodeClaim, NodeClass, NodeClassReference, NodeExt, NodeOverlay,
    NodePool, Unreadable, annotations::DO_NOT_DISRUPT,
};
use kube_core::{Resource, ResourceExt};

use crate::{
    Cluster, Delta, Doubtful, Key, Objects, Ownership, Pod, amounts, node_class, owners, pods, slim,
};

/// A kind that the index holds.
pub trait Kind: Sized {
    /// What the index keeps of it.
    type Kept;

    fn key(&self) -> Key;
    fn version(&self) -> u64;
    fn objects(cluster: &mut Cluster) -> &mut Objects<Self::Kept>;
    fn change(delta: Delta<Self::Kept>) -> Change;
    /// The object without the fields that Kerf does not read.
    fn keep(self, cluster: &mut Cluster) -> Self::Kept;

    /// The NodeClass that makes it another operator's business, if any.
    fn foreign_class(&self, _: &Ownership) -> Option<&NodeClassReference> {
        None
    }

    /// Leaves out amounts that are no quantities, which the API server lets through; returns the first.
    fn leave_out_amounts(&mut self) -> Option<Unreadable> {
        None
    }

    /// What stands for an object that could be read in part only: the safest thing that it can be.
    fn stand_in(self) -> Self {
        self
    }

    /// Keeps the look-ups of this kind in step with a change.
    fn reindex(_cluster: &mut Cluster, _delta: &Delta<Self::Kept>) {}
}

/// What came of an object that the watch brought.
#[derive(Debug)]
pub struct Taken {
    /// `None` if what is here is newer.
    pub change: Option<Change>,
    /// It cannot be read as a whole, and that is new.
    pub unreadable: Option<Unreadable>,
    /// It can be read again.
    pub mended: bool,
    /// It is another operator's, and that is new.
    pub foreign: Option<Foreign>,
}

/// An object of another operator.
#[derive(Debug)]
pub struct Foreign {
    pub key: Key,
    /// It is of no kind that is ours.
    pub class: NodeClassReference,
}

impl Taken {
    const NOTHING: Self = Self { change: None, unreadable: None, mended: false, foreign: None };
}

impl Cluster {
    /// Takes in what could be read of an object that the watch brought.
    pub fn take_in<K: Kind>(&mut self, decoded: Decoded<K>) -> Taken {
        let (object, unreadable) = match decoded {
            Decoded::Whole(object) => (Some(object), None),
            Decoded::Partial(object, unreadable) => (Some(object), Some(unreadable)),
            Decoded::Nothing(unreadable) => (None, Some(unreadable)),
        };
        let Some(mut object) = object else {
            let named = |it: &Unreadable| Key::namespaced(&it.namespace, &it.name);
            let key = unreadable.as_ref().map_or_else(|| Key::cluster(""), named);
            let is_new = K::objects(self).mark(&key, unreadable.clone());
            let delta = K::objects(self).keep(&key).filter(|_| is_new);
            let change = delta.map(|delta| self.reindexed::<K>(delta));
            let unreadable = unreadable.filter(|_| is_new);
            return Taken { change, unreadable, ..Taken::NOTHING };
        };
        if let Some(class) = object.foreign_class(&self.ownership) {
            let (key, class) = (object.key(), class.clone());
            let is_new = K::objects(self).pass_over(key.clone(), object.version());
            let foreign = is_new.then_some(Foreign { key, class });
            return Taken { foreign, ..Taken::NOTHING };
        }
        let left_out = object.leave_out_amounts();
        let unreadable = unreadable.or(left_out);
        let object = if unreadable.is_some() { object.stand_in() } else { object };
        let (key, version, kept) = (object.key(), object.version(), object.keep(self));
        let Some(delta) = K::objects(self).apply(key, version, kept) else {
            return Taken::NOTHING;
        };
        let is_new = K::objects(self).mark(&delta.key, unreadable.clone());
        let (change, mended) = (Some(self.reindexed::<K>(delta)), is_new && unreadable.is_none());
        Taken { change, unreadable: unreadable.filter(|_| is_new), mended, ..Taken::NOTHING }
    }

    /// Takes in an object that the watch brought; `None` if what is here is newer, or the object is another operator's.
    pub fn apply<K: Kind>(&mut self, object: K) -> Option<Change> {
        if object.foreign_class(&self.ownership).is_some() {
            K::objects(self).pass_over(object.key(), object.version());
            return None;
        }
        let (key, version, kept) = (object.key(), object.version(), object.keep(self));
        let delta = K::objects(self).apply(key, version, kept)?;
        Some(self.reindexed::<K>(delta))
    }

    /// Takes in the answer to a write of ours before the watch brings it; `None` if the watch was faster.
    pub fn anticipate<K: Kind>(&mut self, mut object: K) -> Option<Change> {
        // What cannot be read is reported when the watch brings it.
        object.leave_out_amounts();
        let (key, version, kept) = (object.key(), object.version(), object.keep(self));
        let delta = K::objects(self).anticipate(key, version, kept)?;
        Some(self.reindexed::<K>(delta))
    }

    pub fn delete<K: Kind>(&mut self, object: &K) -> Option<Change> {
        let delta = K::objects(self).delete(object.key(), object.version())?;
        Some(self.reindexed::<K>(delta))
    }

    /// Takes out an object of which nothing but its key could be read.
    pub fn delete_named<K: Kind>(&mut self, key: Key) -> Option<Change> {
        let delta = K::objects(self).delete(key, 0)?;
        Some(self.reindexed::<K>(delta))
    }

    /// Begins a list that was made at this revision.
    pub fn begin_list<K: Kind>(&mut self, revision: u64) {
        K::objects(self).begin_list(revision);
    }

    /// Ends a list; what was not in it is gone, and of what is in doubt the server has to be asked.
    pub fn end_list<K: Kind>(&mut self) -> (Vec<Change>, Vec<Doubtful>) {
        let (gone, doubtful) = K::objects(self).end_list();
        (gone.into_iter().map(|delta| self.reindexed::<K>(delta)).collect(), doubtful)
    }

    /// Takes in what the server answered for an object that was in doubt.
    pub fn confirm<K: Kind>(&mut self, doubtful: Doubtful, mut object: K) -> Option<Change> {
        object.leave_out_amounts();
        let (version, kept) = (object.version(), object.keep(self));
        let delta = K::objects(self).confirm(doubtful, version, kept)?;
        Some(self.reindexed::<K>(delta))
    }

    /// Takes out an object that was in doubt and does not exist.
    pub fn refute<K: Kind>(&mut self, doubtful: Doubtful) -> Option<Change> {
        let delta = K::objects(self).refute(doubtful)?;
        Some(self.reindexed::<K>(delta))
    }

    fn reindexed<K: Kind>(&mut self, delta: Delta<K::Kept>) -> Change {
        K::reindex(self, &delta);
        K::change(delta)
    }
}

/// One object that came, changed or went.
macro_rules! kinds {
    ($(
        $kind:ident in $field:ident $(by $reindex:ident)? $(slim $slim:ident)? $(owned $owned:ident)?
        $(else $stand_in:ident)? $(amounts $amounts:ident)?
    ),+ $(,)?) => {
        #[derive(Debug)]
        pub enum Change {
            NodeClass(Delta<NodeClass>),
            Pod(Delta<Pod>),
            /// Of how many pods an owner is to have. Who wants to know asks.
            Owner,
            $($kind(Delta<$kind>)),+
        }

        impl Cluster {
            /// Every object there is, as if it had just come.
            pub fn everything(&self) -> Vec<Change> {
                let mut all: Vec<_> = self.node_classes.arrivals().map(Change::NodeClass).collect();
                all.extend(self.pods.arrivals().map(Change::Pod));
                $(all.extend(self.$field.arrivals().map(Change::$kind));)+
                all
            }

            /// How many objects of each kind cannot be read as a whole.
            pub fn unreadable(&self) -> Vec<(&'static str, usize)> {
                let mut all = vec![
                    ("NodeClass", self.node_classes.all_unreadable().len()),
                    ("Pod", self.pods.all_unreadable().len()),
                ];
                $(all.push((stringify!($kind), self.$field.all_unreadable().len()));)+
                all
            }
        }

        $(impl Kind for $kind {
            type Kept = Self;

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

            fn keep(mut self, _: &mut Cluster) -> Self {
                self.metadata.managed_fields = None;
                $(slim::$slim(&mut self);)?
                self
            }

            $(fn foreign_class(&self, ownership: &Ownership) -> Option<&NodeClassReference> {
                ownership.$owned(self)
            })?

            $(fn leave_out_amounts(&mut self) -> Option<Unreadable> {
                amounts::$amounts(self)
            })?

            $(fn stand_in(mut self) -> Self {
                $stand_in(&mut self);
                self
            })?

            $(fn reindex(cluster: &mut Cluster, delta: &Delta<Self>) {
                $reindex(cluster, delta);
            })?
        })+
    };
}

kinds! {
    NodePool in pools owned of_pool amounts pool,
    NodeClaim in claims by reindex_claim owned of_claim amounts claim,
    Node in nodes by reindex_node slim node,
    DaemonSet in daemon_sets slim daemon_set,
    PodDisruptionBudget in pdbs by reindex_pdb else exhausted,
    Namespace in namespaces by reindex_namespace,
    PersistentVolume in volumes by reindex_storage,
    PersistentVolumeClaim in volume_claims by reindex_storage,
    StorageClass in storage_classes by reindex_storage,
    CSINode in csi_nodes by reindex_csi_node,
    VolumeAttachment in attachments by reindex_attachment,
    Service in services by reindex_workload,
    ReplicationController in replication_controllers by reindex_workload slim replication_controller,
    ReplicaSet in replica_sets by reindex_workload slim replica_set,
    StatefulSet in stateful_sets by reindex_workload slim stateful_set,
    NodeOverlay in overlays,
    CapacityBuffer in buffers,
    PodTemplate in pod_templates slim pod_template,
    Deployment in deployments slim deployment,
}

impl Kind for core::Pod {
    type Kept = Pod;

    fn key(&self) -> Key {
        Key::namespaced(self.namespace().unwrap_or_default(), self.name_any())
    }

    fn version(&self) -> u64 {
        version_of(self)
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Pod> {
        &mut cluster.pods
    }

    fn change(delta: Delta<Pod>) -> Change {
        Change::Pod(delta)
    }

    fn keep(self, cluster: &mut Cluster) -> Pod {
        let mut pod = Pod::from(self);
        cluster.sharing.share(&mut pod);
        pod
    }

    /// A pod that cannot be read stays where it is, as if it asked for that.
    fn stand_in(mut self) -> Self {
        self.annotations_mut().insert(DO_NOT_DISRUPT.to_owned(), "true".to_owned());
        self
    }

    fn reindex(cluster: &mut Cluster, delta: &Delta<Pod>) {
        reindex_pod(cluster, delta);
    }
}

impl Kind for NodeClass {
    type Kept = Self;

    fn key(&self) -> Key {
        node_class::key(&self.reference)
    }

    fn version(&self) -> u64 {
        version_of(self.object())
    }

    fn objects(cluster: &mut Cluster) -> &mut Objects<Self> {
        &mut cluster.node_classes
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::NodeClass(delta)
    }

    fn keep(self, _: &mut Cluster) -> Self {
        self
    }
}

impl Change {
    /// Whether nothing is to be decided anew: a node only said that it is alive, as each does every few minutes, or it is of what
    /// only the batches of pods look at.
    pub fn is_sign_of_life(&self) -> bool {
        if matches!(self, Self::Owner) {
            return true;
        }
        let Self::Node(Delta { before: Some(before), after: Some(after), .. }) = self else {
            return false;
        };
        let metadata = || ObjectMeta {
            resource_version: before.metadata.resource_version.clone(),
            ..after.metadata.clone()
        };
        before.status == after.status && before.spec == after.spec && before.metadata == metadata()
    }
}

/// A budget that cannot be read allows nothing.
fn exhausted(budget: &mut PodDisruptionBudget) {
    budget.status.get_or_insert_default().disruptions_allowed = Some(0);
}

fn reindex_claim(cluster: &mut Cluster, delta: &Delta<NodeClaim>) {
    move_entry(&mut cluster.claims_by_provider_id, delta, |claim| Some(claim.provider_id()));
    move_entry(&mut cluster.claims_by_instance, delta, |claim| {
        claim.provider_id().rsplit('/').next()
    });
    cluster.settle(delta);
    if delta.after.is_none() {
        cluster.marks.forget(&delta.key.name);
    }
    let ids = delta.both().map(|claim| Some(claim?.provider_id()));
    cluster.claim_changed(&delta.key.name, ids);
}

fn reindex_node(cluster: &mut Cluster, delta: &Delta<Node>) {
    move_entry(&mut cluster.nodes_by_provider_id, delta, |node| Some(node.provider_id()));
    let ids = delta.both().map(|node| Some(node?.provider_id()));
    cluster.node_changed(&delta.key.name, ids);
}

fn reindex_pod(cluster: &mut Cluster, delta: &Delta<Pod>) {
    move_entry(&mut cluster.pods_by_node, delta, Pod::node_name);
    if delta.after.as_deref().is_some_and(pods::is_provisionable) {
        cluster.waiting_pods.insert(delta.key.clone());
    } else {
        cluster.waiting_pods.remove(&delta.key);
    }
    reindex_daemon_pod(cluster, delta);
    owners::recount(cluster, delta);
    let nodes = delta.both().map(|pod| pod?.node_name());
    cluster.pod_changed(&delta.key, nodes);
}

/// What a DaemonSet's pod asks for is often not what the template says: admission fills in and changes.
fn reindex_daemon_pod(cluster: &mut Cluster, delta: &Delta<Pod>) {
    let [before, after] = delta.both().map(|pod| {
        let pod = pod.filter(|pod| pods::is_active(pod))?;
        Some((pods::daemon_set_of(pod)?, pod.created()))
    });
    if before == after {
        return;
    }
    if let Some((set, created)) = before
        && let Some(pods) = cluster.daemon_pods.get_mut(set)
    {
        pods.remove(&(created, delta.key.clone()));
        if pods.is_empty() {
            cluster.daemon_pods.remove(set);
        }
    }
    if let Some((set, created)) = after {
        let pods = cluster.daemon_pods.entry(set.to_owned()).or_default();
        pods.insert((created, delta.key.clone()));
    }
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

fn reindex_pdb(cluster: &mut Cluster, _: &Delta<PodDisruptionBudget>) {
    cluster.pdbs_changed();
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_sign_of_life_is_told_from_a_change() {
        let node = |version: u32, heard_of: &str, ready: &str, labels: Value| {
            let condition =
                json!({"type": "Ready", "status": ready, "lastHeartbeatTime": heard_of});
            let node = json!({
                "metadata": {
                    "name": "n", "resourceVersion": version.to_string(), "labels": labels,
                    "managedFields": [{"manager": "kubelet", "time": heard_of}],
                },
                "status": {"conditions": [condition], "images": [{"names": [heard_of]}]},
            });
            serde_json::from_value::<Node>(node).unwrap()
        };
        let (then, now) = ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z");
        for (after, expected) in [
            (node(2, now, "True", json!({})), true),
            (node(2, now, "False", json!({})), false),
            (node(2, now, "True", json!({"a": "b"})), false),
        ] {
            let mut cluster = Cluster::default();
            let first = cluster.apply(node(1, then, "True", json!({}))).unwrap();
            assert!(!first.is_sign_of_life(), "it is new");
            let change = cluster.apply(after).unwrap();
            assert_eq!(change.is_sign_of_life(), expected, "{change:?}");
            let stored = cluster.nodes().named("n").unwrap();
            assert_eq!(stored.resource_version().as_deref(), Some("2"), "writes go by it");
        }
    }
}
