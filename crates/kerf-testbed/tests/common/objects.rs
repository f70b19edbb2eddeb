//! The objects of a cluster, whatever answers for it: how tests of the actors and cases of the suite read and write them.

use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) struct Objects {
    client: Client,
    pub(crate) namespace: String,
}

impl Objects {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, namespaced) = match kind {
            "Node" | "Namespace" | "PersistentVolume" => ("", false),
            "StorageClass" | "VolumeAttachment" => ("storage.k8s.io", false),
            "PriorityClass" => ("scheduling.k8s.io", false),
            "Pod" | "Event" | "ConfigMap" | "PersistentVolumeClaim" => ("", true),
            "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => ("apps", true),
            "Job" | "CronJob" => ("batch", true),
            "PodDisruptionBudget" => ("policy", true),
            _ => panic!("nothing with {kind} so far"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        if namespaced {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    pub(crate) async fn create(&self, kind: &str, object: Value) -> Value {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let created = self.api(kind).create(&PostParams::default(), &object).await.unwrap();
        serde_json::to_value(created).unwrap()
    }

    pub(crate) async fn find(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.api(kind).get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    pub(crate) async fn get(&self, kind: &str, name: &str) -> Value {
        self.find(kind, name).await.unwrap_or_else(|| panic!("{kind} {name} is gone"))
    }

    pub(crate) async fn list(&self, kind: &str) -> Vec<Value> {
        let list = self.api(kind).list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) {
        let params = PatchParams::default();
        self.api(kind).patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str, params: DeleteParams) {
        match self.api(kind).delete(name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            answer => drop(answer.unwrap()),
        }
    }

    pub(crate) async fn pods(&self, app: &str) -> Vec<Value> {
        let mut pods = self.list("Pod").await;
        pods.retain(|pod| pod["metadata"]["labels"]["app"] == app);
        pods
    }

    /// How many pods of an app are on each node.
    pub(crate) async fn by_node(&self, app: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for pod in self.pods(app).await {
            *counts.entry(text(&pod, "/spec/nodeName").to_owned()).or_default() += 1;
        }
        counts
    }
}

pub(crate) fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
        && condition(pod, "Ready")["status"] == "True"
        && pod["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(name_of).collect()
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A condition; null where there is none.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let list = object["status"]["conditions"].as_array();
    let found = list.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.unwrap_or(&Value::Null)
}
