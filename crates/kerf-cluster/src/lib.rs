//! The live index: what the operator knows of the cluster from its watches.
//!
//! It takes watch events in and answers questions; it never writes to the API server and never waits. The caller that feeds it
//! gets a [`Change`] back for each event and shows it to the controllers.

mod amounts;
pub mod buffers;
mod changes;
mod disruption;
pub mod do_not_disrupt;
mod marks;
mod node_class;
pub mod node_counts;
mod objects;
pub mod overlays;
pub mod owners;
mod ownership;
pub mod pod;
pub mod pods;
pub mod reservations;
mod slim;
pub mod snapshot;
mod spread;
pub mod state_node;
mod storage;
mod totals;
mod unreadable;
pub mod validation;
pub mod view;
mod views;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate,
        ReplicationController, Service, TopologySpreadConstraint,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass, VolumeAttachment},
};
use kerf_api::{CapacityBuffer, NodeClaim, NodeClass, NodeOverlay, NodePool};

use jiff::Timestamp;
use kerf_model::repair::RepairRules;
use marks::Marks;
use owners::{Owner, PodsOf};
use pod::Sharing;
use reservations::Reservations;
use views::Views;

pub use changes::{Change, Foreign, Kind, Taken};
pub use objects::{Delta, Doubtful, Key, Objects};
pub use ownership::Ownership;
pub use pod::Pod;

/// Everything the operator watches, with the look-ups its controllers need.
#[derive(Debug, Default)]
pub struct Cluster {
    ownership: Ownership,
    pools: Objects<NodePool>,
    claims: Objects<NodeClaim>,
    nodes: Objects<Node>,
    pods: Objects<Pod>,
    daemon_sets: Objects<DaemonSet>,
    node_classes: Objects<NodeClass>,
    pdbs: Objects<PodDisruptionBudget>,
    namespaces: Objects<Namespace>,
    volumes: Objects<PersistentVolume>,
    volume_claims: Objects<PersistentVolumeClaim>,
    storage_classes: Objects<StorageClass>,
    csi_nodes: Objects<CSINode>,
    attachments: Objects<VolumeAttachment>,
    services: Objects<Service>,
    replication_controllers: Objects<ReplicationController>,
    replica_sets: Objects<ReplicaSet>,
    stateful_sets: Objects<StatefulSet>,
    overlays: Objects<NodeOverlay>,
    /// Whether overlays count.
    overlaying: bool,
    default_spread: Vec<TopologySpreadConstraint>,
    buffers: Objects<CapacityBuffer>,
    pod_templates: Objects<PodTemplate>,
    deployments: Objects<Deployment>,
    keeps_buffers: bool,
    replica_set_owners: Objects<Owner<ReplicaSet>>,
    stateful_set_owners: Objects<Owner<StatefulSet>>,
    job_owners: Objects<Owner<Job>>,
    keeps_owners: bool,
    /// Pods by the uid of the ReplicaSet, StatefulSet or Job that controls them.
    pods_by_owner: BTreeMap<Box<str>, PodsOf>,
    repair: Option<Arc<RepairRules>>,
    /// What pods share.
    sharing: Sharing,
    pods_by_node: BTreeMap<String, BTreeSet<Key>>,
    /// Live pods by the uid of their DaemonSet, the newest last.
    daemon_pods: BTreeMap<String, BTreeSet<(Option<Timestamp>, Key)>>,
    nodes_by_provider_id: BTreeMap<String, BTreeSet<Key>>,
    claims_by_provider_id: BTreeMap<String, BTreeSet<Key>>,
    /// By what stands behind the last slash of their provider id.
    claims_by_instance: BTreeMap<String, BTreeSet<Key>>,
    attachments_by_node: BTreeMap<String, BTreeSet<Key>>,
    marks: Marks,
    /// Those that kube-scheduler gave up on and a new node could help.
    waiting_pods: BTreeSet<Key>,
    views: Views,
    reservations: Reservations,
}

/// Nodes and NodeClaims find each other by provider id, and there must be no more than one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSingleMatch {
    #[error("nothing has this provider id")]
    NotFound,
    #[error("{0} objects have the same provider id")]
    Duplicate(usize),
}

impl Cluster {
    /// From now on NodePools and NodeClaims of other operators are not taken in.
    pub fn keep_only(&mut self, ownership: Ownership) {
        self.ownership = ownership;
    }

    /// From now on nodes are compared with these policies.
    pub fn repair_by(&mut self, rules: Arc<RepairRules>) {
        self.repair = Some(rules);
    }

    /// Whether a repair policy is about the node.
    pub fn is_unhealthy(&self, node: &Node) -> bool {
        self.repair.as_ref().is_some_and(|rules| !rules.matches(node).is_empty())
    }

    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    pub fn pools(&self) -> &Objects<NodePool> {
        &self.pools
    }

    pub fn claims(&self) -> &Objects<NodeClaim> {
        &self.claims
    }

    pub fn nodes(&self) -> &Objects<Node> {
        &self.nodes
    }

    pub fn pods(&self) -> &Objects<Pod> {
        &self.pods
    }

    pub fn daemon_sets(&self) -> &Objects<DaemonSet> {
        &self.daemon_sets
    }

    pub fn node_classes(&self) -> &Objects<NodeClass> {
        &self.node_classes
    }

    pub fn namespaces(&self) -> &Objects<Namespace> {
        &self.namespaces
    }

    pub fn volumes(&self) -> &Objects<PersistentVolume> {
        &self.volumes
    }

    pub fn overlays(&self) -> &Objects<NodeOverlay> {
        &self.overlays
    }

    pub fn volume_claims(&self) -> &Objects<PersistentVolumeClaim> {
        &self.volume_claims
    }

    pub fn storage_classes(&self) -> &Objects<StorageClass> {
        &self.storage_classes
    }

    /// Whether every kind has been listed once: before that, what is missing here may only be late.
    pub fn listed(&self) -> bool {
        self.pools.listed()
            && self.claims.listed()
            && self.nodes.listed()
            && self.pods.listed()
            && self.daemon_sets.listed()
            && self.node_classes.listed()
            && self.pdbs.listed()
            && self.namespaces.listed()
            && self.volumes.listed()
            && self.volume_claims.listed()
            && self.storage_classes.listed()
            && self.csi_nodes.listed()
            && self.attachments.listed()
            && self.workloads_listed()
            && self.overlays_listed()
            && self.buffers_listed()
    }

    /// etcd was restored from a backup. Each kind is to be listed again, and until the last one is, what is here is a mixture
    /// of two histories: a pool may ask for three nodes again while the claims are still those of a time when it asked for six.
    pub fn begin_history(&mut self) {
        self.pools.distrust();
        self.claims.distrust();
        self.nodes.distrust();
        self.pods.distrust();
        self.daemon_sets.distrust();
        self.node_classes.distrust();
        self.pdbs.distrust();
        self.namespaces.distrust();
        self.volumes.distrust();
        self.volume_claims.distrust();
        self.storage_classes.distrust();
        self.csi_nodes.distrust();
        self.attachments.distrust();
        self.services.distrust();
        self.replication_controllers.distrust();
        self.replica_sets.distrust();
        self.stateful_sets.distrust();
        self.overlays.distrust();
        self.buffers.distrust();
        self.pod_templates.distrust();
        self.deployments.distrust();
        self.replica_set_owners.distrust();
        self.stateful_set_owners.distrust();
        self.job_owners.distrust();
    }

    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.pods_by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
    }

    fn newest_pod_of(&self, daemon_set: &DaemonSet) -> Option<&Arc<Pod>> {
        let (_, key) = self.daemon_pods.get(daemon_set.metadata.uid.as_ref()?)?.last()?;
        self.pods.get(key)
    }

    pub fn node_of(&self, provider_id: &str) -> Result<&Arc<Node>, NoSingleMatch> {
        single(&self.nodes, &self.nodes_by_provider_id, provider_id)
    }

    pub fn claim_of(&self, provider_id: &str) -> Result<&Arc<NodeClaim>, NoSingleMatch> {
        single(&self.claims, &self.claims_by_provider_id, provider_id)
    }

    /// All claims of that provider id; there should be one.
    pub fn claims_of(&self, provider_id: &str) -> impl Iterator<Item = &Arc<NodeClaim>> {
        let keys = self.claims_by_provider_id.get(provider_id).into_iter().flatten();
        keys.filter_map(|key| self.claims.get(key))
    }

    /// The claims whose provider id ends with this id of an instance. What a cloud says in messages names the instance, and not
    /// the place that the rest of a provider id tells of.
    pub fn claims_of_instance(&self, instance: &str) -> impl Iterator<Item = &Arc<NodeClaim>> {
        let keys = self.claims_by_instance.get(instance).into_iter().flatten();
        keys.filter_map(|key| self.claims.get(key))
    }

    /// All nodes with this provider id: the rule is one, but clean-up must find every one.
    pub fn nodes_of(&self, provider_id: &str) -> impl Iterator<Item = &Arc<Node>> {
        let keys = self.nodes_by_provider_id.get(provider_id).into_iter().flatten();
        keys.filter_map(|key| self.nodes.get(key))
    }
}

fn single<'a, K>(
    objects: &'a Objects<K>,
    by_provider_id: &BTreeMap<String, BTreeSet<Key>>,
    provider_id: &str,
) -> Result<&'a Arc<K>, NoSingleMatch> {
    let keys = by_provider_id.get(provider_id).ok_or(NoSingleMatch::NotFound)?;
    match keys.len() {
        1 => keys.first().and_then(|key| objects.get(key)).ok_or(NoSingleMatch::NotFound),
        several => Err(NoSingleMatch::Duplicate(several)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{self as core, NodeSpec};
    use kube_core::ObjectMeta;

    fn node(name: &str, provider_id: &str) -> Node {
        Node {
            metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
            spec: Some(NodeSpec { provider_id: Some(provider_id.into()), ..NodeSpec::default() }),
            ..Node::default()
        }
    }

    #[test]
    fn nodes_are_found_by_provider_id_while_there_is_exactly_one() {
        let mut cluster = Cluster::default();
        assert_eq!(cluster.node_of("p").unwrap_err(), NoSingleMatch::NotFound);
        cluster.apply(node("a", "p"));
        assert_eq!(cluster.node_of("p").unwrap().metadata.name.as_deref(), Some("a"));
        cluster.apply(node("b", "p"));
        assert_eq!(cluster.node_of("p").unwrap_err(), NoSingleMatch::Duplicate(2));
        cluster.apply(node("b", "q"));
        assert_eq!(cluster.node_of("p").unwrap().metadata.name.as_deref(), Some("a"));
        cluster.delete(&node("a", "p"));
        assert_eq!(cluster.node_of("p").unwrap_err(), NoSingleMatch::NotFound);
    }

    #[test]
    fn an_empty_provider_id_matches_nothing() {
        let mut cluster = Cluster::default();
        cluster.apply(node("a", ""));
        assert_eq!(cluster.node_of("").unwrap_err(), NoSingleMatch::NotFound);
    }

    #[test]
    fn claims_are_found_by_the_instance_that_their_provider_id_ends_with() {
        let claim = |name: &str, provider_id: &str| {
            let mut claim = NodeClaim::default();
            claim.metadata.name = Some(name.into());
            claim.status.get_or_insert_default().provider_id = provider_id.into();
            claim
        };
        let names = |cluster: &Cluster, instance: &str| {
            let claims = cluster.claims_of_instance(instance);
            claims.filter_map(|claim| claim.metadata.name.clone()).collect::<Vec<_>>()
        };
        let mut cluster = Cluster::default();
        cluster.apply(claim("a", "aws:///us-west-2a/i-1"));
        cluster.apply(claim("b", "cloud://i-2"));
        cluster.apply(claim("c", ""));
        for (instance, expected) in
            [("i-1", &["a"][..]), ("i-2", &["b"]), ("", &[]), ("us-west-2a/i-1", &[])]
        {
            assert_eq!(names(&cluster, instance), expected, "{instance}");
        }
        cluster.apply(claim("a", "aws:///us-west-2a/i-3"));
        cluster.delete(&claim("b", "cloud://i-2"));
        assert_eq!(names(&cluster, "i-1"), [""; 0]);
        assert_eq!(names(&cluster, "i-2"), [""; 0]);
        assert_eq!(names(&cluster, "i-3"), ["a"]);
    }

    #[test]
    fn pods_move_between_nodes_and_leave() {
        let pod = |node: Option<&str>| -> core::Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": node, "containers": []}
            }))
            .unwrap()
        };
        let count = |cluster: &Cluster, node| cluster.pods_on(node).count();
        let mut cluster = Cluster::default();
        cluster.apply(pod(None));
        assert_eq!(count(&cluster, ""), 0);
        cluster.apply(pod(Some("a")));
        assert_eq!(count(&cluster, "a"), 1);
        cluster.apply(pod(Some("b")));
        assert_eq!((count(&cluster, "a"), count(&cluster, "b")), (0, 1));
        cluster.delete(&pod(Some("b")));
        assert_eq!(count(&cluster, "b"), 0);
    }
}
