//! Objects for stories, with everything left out that a story does not talk about.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
    storage::v1::StorageClass,
};
use kerf_api::{NodeClaim, NodePool};
use kerf_provider_kwok::KwokNodeClass;
use serde_json::{Value, json};

/// A pool of on-demand Linux machines that are left alone once they run, with `changes` merged into its spec.
pub fn pool(name: &str, changes: &Value) -> NodePool {
    let mut spec = json!({
        "disruption": {"consolidateAfter": "Never"},
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            ],
        }},
    });
    merge(&mut spec, changes);
    object(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec,
    }))
}

pub fn node_class(name: &str, spec: &Value) -> KwokNodeClass {
    object(json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": name}, "spec": spec,
    }))
}

/// Pods of one CPU each, with `changes` merged into the spec of the pods.
pub fn deployment(name: &str, replicas: u32, changes: &Value) -> Deployment {
    object(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(changes)},
        },
    }))
}

/// A claim that no pool asked for, with `changes` merged into its spec.
pub fn claim(name: &str, changes: &Value) -> NodeClaim {
    let mut spec = json!({
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        ],
    });
    merge(&mut spec, changes);
    object(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name}, "spec": spec,
    }))
}

/// Pods of one CPU each, one on every node, with `changes` merged into the spec of the pods.
pub fn daemon_set(name: &str, changes: &Value) -> DaemonSet {
    object(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(changes)},
        },
    }))
}

/// A pod of one CPU, with `changes` merged into its spec.
pub fn pod(name: &str, changes: &Value) -> Pod {
    object(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": pod_spec(changes),
    }))
}

/// A budget for the pods with this `app` label.
pub fn budget(app: &str, spec: &Value) -> PodDisruptionBudget {
    let mut all = json!({"selector": {"matchLabels": {"app": app}}});
    merge(&mut all, spec);
    object(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"}, "spec": all,
    }))
}

/// Disks that are made where their first pod goes.
pub fn volume_class(name: &str) -> StorageClass {
    object(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "disks.kerf.sh", "volumeBindingMode": "WaitForFirstConsumer",
    }))
}

pub fn volume_claim(name: &str, class: &str) -> PersistentVolumeClaim {
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }))
}

fn pod_spec(changes: &Value) -> Value {
    let mut spec = json!({
        "containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1", "memory": "512Mi"}}}],
    });
    merge(&mut spec, changes);
    spec
}

/// Objects are merged, everything else is replaced.
pub(crate) fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (field, change) in changes {
                merge(into.entry(field).or_insert(Value::Null), change);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

pub(crate) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap_or_else(|error| panic!("a builder is wrong: {error}"))
}
