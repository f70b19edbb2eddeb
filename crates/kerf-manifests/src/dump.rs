//! What of a cluster is written into a file, so that decisions can be made from it later.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    core::v1::{
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate,
        ReplicationController, Service,
    },
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass},
};
use kerf_api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use kube_core::ApiResource;
use serde_json::{Value, json};

use crate::fields::{trim, trim_node_class};

/// Everything that decisions depend on, but for NodeClasses, which are the providers', and for what buffers refer to. Pods come last:
/// their nodes are then known already.
pub fn dumped_resources() -> [ApiResource; 17] {
    [
        ApiResource::erase::<NodePool>(&()),
        ApiResource::erase::<NodeClaim>(&()),
        ApiResource::erase::<NodeOverlay>(&()),
        ApiResource::erase::<CapacityBuffer>(&()),
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
pub fn dumped(item: Value, resource: &ApiResource) -> Value {
    let mut item = dumped_with_template(item, resource);
    if matches!(resource.kind.as_str(), "ReplicaSet" | "StatefulSet") {
        only_selector(&mut item);
    }
    item
}

/// The same, with the template of its pods and how many it wants, which count for buffers.
pub fn dumped_with_template(mut item: Value, resource: &ApiResource) -> Value {
    item["apiVersion"] = resource.api_version.clone().into();
    item["kind"] = resource.kind.clone().into();
    trim(&mut item);
    item
}

/// What says what the pods of a buffer look like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BufferTarget {
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl BufferTarget {
    /// `None`: buffers cannot refer to this kind.
    pub fn resource(&self) -> Option<ApiResource> {
        Some(match self.kind.as_str() {
            "PodTemplate" => ApiResource::erase::<PodTemplate>(&()),
            "Deployment" => ApiResource::erase::<Deployment>(&()),
            "ReplicaSet" => ApiResource::erase::<ReplicaSet>(&()),
            "StatefulSet" => ApiResource::erase::<StatefulSet>(&()),
            _ => return None,
        })
    }

    /// Whether this is it.
    pub fn is(&self, object: &Value) -> bool {
        let text = |place: &str| object.pointer(place).and_then(Value::as_str).unwrap_or_default();
        (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
            == (&self.kind, &self.namespace, &self.name)
    }
}

/// What the CapacityBuffers among these objects refer to.
pub fn targets_of_buffers(objects: &[Value]) -> BTreeSet<BufferTarget> {
    let target = |buffer: &Value| {
        let text = |place: &str| Some(buffer.pointer(place)?.as_str()?.to_owned());
        if text("/kind")? != "CapacityBuffer" {
            return None;
        }
        let (kind, name) = match text("/spec/podTemplateRef/name") {
            Some(name) => ("PodTemplate".to_owned(), name),
            None => (text("/spec/scalableRef/kind")?, text("/spec/scalableRef/name")?),
        };
        Some(BufferTarget { kind, namespace: text("/metadata/namespace")?, name })
    };
    objects.iter().filter_map(target).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_say_what_their_pods_look_like_by_reference() {
        let buffer = |name: &str, spec: Value| {
            json!({
                "kind": "CapacityBuffer", "metadata": {"name": name, "namespace": "shop"}, "spec": spec,
            })
        };
        let objects = [
            buffer("a", json!({"podTemplateRef": {"name": "shape"}})),
            buffer("b", json!({"scalableRef": {"kind": "Deployment", "name": "web"}})),
            buffer(
                "c",
                json!({"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}),
            ),
            buffer("d", json!({"scalableRef": {"kind": "Rollout", "name": "other"}})),
            buffer("e", json!({})),
            json!({"kind": "Deployment", "metadata": {"name": "unused", "namespace": "shop"}}),
        ];
        let found = targets_of_buffers(&objects);
        let named: Vec<_> = found.iter().map(|it| (it.kind.as_str(), it.name.as_str())).collect();
        assert_eq!(named, [("Deployment", "web"), ("PodTemplate", "shape"), ("Rollout", "other")]);
        let known = found.iter().filter(|target| target.resource().is_some()).count();
        assert_eq!(known, 2, "there are no buffers of Rollouts");
        let web = json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}});
        assert!(found.iter().any(|target| target.is(&web)));
        assert!(!found.iter().any(|target| target.is(&objects[5])));
    }
}
