//! What of a cluster is written into a file, so that decisions can be made from it later.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, ReplicaSet, StatefulSet},
    core::v1::{
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
        Service,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass},
};
use kerf_api::{NodeClaim, NodeOverlay, NodePool};
use kube_core::ApiResource;
use serde_json::{Value, json};

use crate::fields::{trim, trim_node_class};

/// Everything that decisions depend on, but for NodeClasses, which are the providers'. Pods come last: their nodes are then known already.
pub fn dumped_resources() -> [ApiResource; 16] {
    [
        ApiResource::erase::<NodePool>(&()),
        ApiResource::erase::<NodeClaim>(&()),
        ApiResource::erase::<NodeOverlay>(&()),
        ApiResource::erase::<Node>(&()),
        ApiResource::erase::<DaemonSet>(&()),
        ApiResource::erase::<PodDisruptionBudget>(&()),
        ApiResource::erase::<Namespace>(&()),
        ApiResource::erase::<StorageClass>(&()),
        ApiResource::erase::<CSINode>(&()),
        ApiResource::erase::<PersistentVolume>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<ReplicationController>(&()),
        ApiResource::erase::<ReplicaSet>(&()),
        ApiResource::erase::<StatefulSet>(&()),
        ApiResource::erase::<Pod>(&()),
    ]
}

/// An item of a list, which does not say what it is, trimmed to what decisions use.
pub fn dumped(mut item: Value, resource: &ApiResource) -> Value {
    item["apiVersion"] = resource.api_version.clone().into();
    item["kind"] = resource.kind.clone().into();
    trim(&mut item);
    if matches!(resource.kind.as_str(), "ReplicaSet" | "StatefulSet") {
        only_selector(&mut item);
    }
    item
}

/// A NodeClass as an item of a list, trimmed to these fields.
pub fn dumped_node_class(
    mut item: Value,
    resource: &ApiResource,
    fields: &[&'static str],
) -> Value {
    item["apiVersion"] = resource.api_version.clone().into();
    item["kind"] = resource.kind.clone().into();
    trim_node_class(&mut item, fields);
    item
}

/// Group and kind of the NodeClasses that NodePools and NodeClaims among these objects refer to.
pub fn referenced_node_classes(objects: &[Value]) -> BTreeSet<(String, String)> {
    let reference = |object: &Value| {
        let place = match object.get("kind")?.as_str()? {
            "NodePool" => "/spec/template/spec/nodeClassRef",
            "NodeClaim" => "/spec/nodeClassRef",
            _ => return None,
        };
        let reference = object.pointer(place)?;
        let text = |field: &str| reference.get(field)?.as_str().map(str::to_owned);
        Some((text("group")?, text("kind")?))
    };
    objects.iter().filter_map(reference).collect()
}

/// The pods of these exist; what they would make is not wanted, only which pods are theirs.
fn only_selector(set: &mut Value) {
    let selector = set.pointer("/spec/selector").cloned().unwrap_or_default();
    set["spec"] = json!({"replicas": 0, "selector": selector});
}
