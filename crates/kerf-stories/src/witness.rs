//! Whether `kerf plan` on a snapshot of a cluster decides as an operator on that cluster does.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::{
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate,
        ReplicationController, Service,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass},
};
use kerf_api::{
    CapacityBuffer, NodeClaim, NodeClass, NodeOverlay, NodePool, ObjectExt,
    conditions::{Conditioned, DISRUPTION_REASON},
    decode::decode,
};
use kerf_cluster::{Cluster, Kind, Ownership, snapshot::Inputs};
use kerf_controllers::{Settings, snapshot_inputs};
use kerf_disruption::{Memory, pass};
use kerf_manifests::{
    Loader, dumped, dumped_node_class, dumped_resources, dumped_with_template, targets_of_buffers,
};
use kerf_model::{InstanceType, Snapshot};
use kerf_provider::Provider;
use kerf_provider_kwok::{self as kwok, KwokNodeClass, KwokProvider};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
    core::ApiResource,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::World;

/// What it takes to look at a cluster after its story has ended.
#[expect(missing_debug_implementations, reason = "a client has none")]
pub struct Witness {
    client: Client,
    settings: Settings,
    catalogue: Vec<InstanceType>,
    clock: kerf_runtime::Clock,
}

impl World {
    pub fn witness(&self) -> Witness {
        Witness {
            client: self.client(),
            settings: self.settings().clone(),
            catalogue: self.catalogue().to_vec(),
            clock: self.clock(),
        }
    }
}

impl Witness {
    /// Makes both decisions both ways, and compares them.
    pub async fn plan_decides_as_the_operator(self) {
        let (objects, now) = (self.objects().await, self.clock.now());
        let (operator, offline) = (self.operator(&objects, now).await, self.offline(&objects, now));
        let (operator, offline) = (self.decisions(&operator), self.decisions(&offline));
        let lines = operator.lines().zip(offline.lines());
        let first = lines.enumerate().find(|(_, (operator, offline))| operator != offline);
        assert!(operator == offline, "operator and plan differ: {first:#?}\n{operator}\n{offline}");
    }

    async fn objects(&self) -> Vec<(ApiResource, Value)> {
        let mut objects = Vec::new();
        let classes = ApiResource::erase::<KwokNodeClass>(&());
        for resource in dumped_resources().into_iter().chain([classes]) {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let listed = api.list(&ListParams::default()).await;
            let listed = listed.unwrap_or_else(|error| panic!("{}: {error}", resource.plural));
            for object in listed.items {
                let object = serde_json::to_value(object).unwrap_or_else(|error| panic!("{error}"));
                if is_of_kwok(&resource.kind, &object) {
                    objects.push((resource.clone(), object));
                }
            }
        }
        self.add_targets_of_buffers(&mut objects).await;
        objects
    }

    /// An operator watches all of these kinds; a snapshot has those objects that buffers refer to.
    async fn add_targets_of_buffers(&self, objects: &mut Vec<(ApiResource, Value)>) {
        let listed: Vec<_> = objects.iter().map(|(_, object)| object.clone()).collect();
        for target in targets_of_buffers(&listed) {
            let Some(resource) = target.resource() else { continue };
            let namespace = &target.namespace;
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &resource);
            let found = api.get_opt(&target.name).await;
            let found = found.unwrap_or_else(|error| panic!("{target:?}: {error}"));
            let Some(Ok(object)) = found.map(serde_json::to_value) else { continue };
            objects.retain(|(_, object)| !target.is(object));
            objects.push((resource, object));
        }
    }

    /// As an operator sees it that has just been started.
    async fn operator(&self, objects: &[(ApiResource, Value)], now: Timestamp) -> Snapshot {
        let mut cluster = Cluster::default();
        cluster.keep_only(Ownership::of_kinds([(kwok::GROUP, kwok::KIND)]));
        self.settings.prepare(&mut cluster);
        for (resource, object) in objects {
            watch(&mut cluster, &resource.kind, object.clone());
        }
        let claims = cluster.claims().values();
        let going = claims.filter(|claim| claim.is_true(DISRUPTION_REASON) && !claim.is_deleting());
        let in_queue: BTreeSet<String> = going.map(|claim| claim.name_any()).collect();
        for claim in &in_queue {
            cluster.mark_for_deletion(claim);
        }
        let provider = KwokProvider::new(self.client.clone(), self.catalogue.clone());
        let class = |pool: &NodePool| cluster.node_class(&pool.spec.template.spec.node_class_ref);
        let pools = cluster.pools().values();
        let pools: Vec<_> = pools.map(|pool| (Arc::clone(pool), class(pool).cloned())).collect();
        let inputs = snapshot_inputs(&provider, &self.settings, &pools, now).await;
        let taken = cluster.snapshot(Inputs { in_queue, ..inputs });
        taken.unwrap_or_else(|error| panic!("{error}")).snapshot
    }

    /// As `kerf plan` sees it in the file that `kerf snapshot` writes.
    fn offline(&self, objects: &[(ApiResource, Value)], now: Timestamp) -> Snapshot {
        let mut reader = Loader::knowing([(kwok::GROUP.to_owned(), kwok::KIND.to_owned())]);
        let listed: Vec<_> = objects.iter().map(|(_, object)| object.clone()).collect();
        let targets = targets_of_buffers(&listed);
        for (resource, object) in objects {
            let written = if resource.kind == kwok::KIND {
                dumped_node_class(object.clone(), resource, kwok::Kwok.saved_fields())
            } else if targets.iter().any(|target| target.is(object)) {
                dumped_with_template(object.clone(), resource)
            } else {
                dumped(object.clone(), resource)
            };
            let added = reader.add(written);
            added.unwrap_or_else(|error| panic!("{error}"));
        }
        let label_rules = kwok::label_rules(&self.catalogue).calling_zones_as_clouds_do();
        let types: Vec<_> = self.catalogue.iter().cloned().map(Arc::new).collect();
        let mut loaded = reader.finish(&label_rules, now);
        self.settings.prepare(&mut loaded.cluster);
        let pools = loaded.cluster.pools().values();
        let instance_types = pools.map(|pool| (pool.name_any(), Ok(types.clone()))).collect();
        let churn = self.settings.churn;
        let inputs = Inputs { now, label_rules, instance_types, churn, ..Inputs::default() };
        let taken = loaded.seen_with(inputs).snapshot();
        taken.unwrap_or_else(|error| panic!("{error}")).snapshot
    }

    /// What is decided from it, line by line.
    fn decisions(&self, snapshot: &Snapshot) -> String {
        let mut lines = Vec::new();
        let mut say = |what: &str, about: &dyn Debug| lines.push(format!("{what} {about:?}"));
        for node in &snapshot.nodes {
            say("node", &(&node.name, &node.disruption, snapshot.is_settling(node)));
        }
        for (name, pool) in &snapshot.pools {
            say("pool", &(name, &pool.idle, &pool.launching, &pool.disruption, &pool.static_pool));
        }
        let plan = kerf_scheduler::schedule_cheaply(snapshot, &self.settings.scheduling());
        for claim in &plan.claims {
            let pods: Vec<_> = claim.pods.iter().map(|pod| pod.key()).collect();
            let types: Vec<_> = claim.instance_types.iter().map(|one| one.name()).collect();
            say("launches", &(&claim.pool.name, pods, types, claim.price));
        }
        for placement in &plan.placements {
            let pods: Vec<_> = placement.pods.iter().map(|pod| pod.key()).collect();
            say("places", &(&placement.node.name, pods));
        }
        for failure in &plan.failures {
            say("fails", &(failure.pod.key(), failure.refusal.to_string()));
        }
        let settings = self.settings.disruption();
        let found = pass(snapshot, &settings, &mut Memory::default());
        for command in &found.commands {
            let nodes: Vec<_> = command.candidates.iter().map(|one| &one.node.name).collect();
            say("disrupts", &(command.method, nodes, command.replacements.len(), command.savings));
        }
        for refused in &found.refused {
            say("leaves alone", &(&refused.node, refused.method, refused.why.to_string()));
        }
        say("allows", &found.allowances);
        lines.join("\n")
    }
}

/// A snapshot holds the NodePools and NodeClaims of all operators. `kerf plan` shows them, each with unknown instance types;
/// an operator does not take in those of another.
fn is_of_kwok(kind: &str, object: &Value) -> bool {
    let class = match kind {
        "NodePool" => "/spec/template/spec/nodeClassRef",
        "NodeClaim" => "/spec/nodeClassRef",
        _ => return true,
    };
    object
        .pointer(class)
        .is_none_or(|class| class["group"] == kwok::GROUP && class["kind"] == kwok::KIND)
}

/// Takes in what a watch has brought.
fn watch(cluster: &mut Cluster, kind: &str, object: Value) {
    fn take_in<K: Kind + DeserializeOwned>(
        cluster: &mut Cluster,
        kind: &'static str,
        object: Value,
    ) {
        cluster.take_in::<K>(decode(kind, object));
    }
    match kind {
        "NodePool" => take_in::<NodePool>(cluster, "NodePool", object),
        "NodeClaim" => take_in::<NodeClaim>(cluster, "NodeClaim", object),
        "NodeOverlay" => take_in::<NodeOverlay>(cluster, "NodeOverlay", object),
        "CapacityBuffer" => take_in::<CapacityBuffer>(cluster, "CapacityBuffer", object),
        "PodTemplate" => take_in::<PodTemplate>(cluster, "PodTemplate", object),
        "Deployment" => take_in::<Deployment>(cluster, "Deployment", object),
        "Node" => take_in::<Node>(cluster, "Node", object),
        "DaemonSet" => take_in::<DaemonSet>(cluster, "DaemonSet", object),
        "PodDisruptionBudget" => {
            take_in::<PodDisruptionBudget>(cluster, "PodDisruptionBudget", object);
        }
        "Namespace" => take_in::<Namespace>(cluster, "Namespace", object),
        "StorageClass" => take_in::<StorageClass>(cluster, "StorageClass", object),
        "CSINode" => take_in::<CSINode>(cluster, "CSINode", object),
        "PersistentVolume" => take_in::<PersistentVolume>(cluster, "PersistentVolume", object),
        "PersistentVolumeClaim" => {
            take_in::<PersistentVolumeClaim>(cluster, "PersistentVolumeClaim", object);
        }
        "Service" => take_in::<Service>(cluster, "Service", object),
        "ReplicationController" => {
            take_in::<ReplicationController>(cluster, "ReplicationController", object);
        }
        "ReplicaSet" => take_in::<ReplicaSet>(cluster, "ReplicaSet", object),
        "StatefulSet" => take_in::<StatefulSet>(cluster, "StatefulSet", object),
        "Pod" => take_in::<Pod>(cluster, "Pod", object),
        kwok::KIND => {
            let class = serde_json::from_value(object).unwrap_or_else(|error| panic!("{error}"));
            cluster.apply(NodeClass::from_object(kwok::GROUP, kwok::KIND, class));
        }
        other => panic!("decisions do not depend on {other}"),
    }
}
