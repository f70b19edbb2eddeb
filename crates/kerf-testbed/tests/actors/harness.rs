//! A cluster to try things on, and the objects to try them with.

use kerf_testbed::Testbed;
use kerf_testbed::actors::{Actors, Running};
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Long enough for anything that happens at all.
const LIMIT: Duration = Duration::from_hours(1);

pub(crate) struct Cluster {
    pub(crate) testbed: Testbed,
    pub(crate) actors: Running,
    client: Client,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::with(Actors::default())
    }

    pub(crate) fn with(actors: Actors) -> Self {
        let testbed = Testbed::builder().seed(7).start().unwrap();
        let actors = testbed.start_actors(actors);
        let client = testbed.client();
        Self { testbed, actors, client }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, namespaced) = match kind {
            "Node" | "Namespace" | "PersistentVolume" => ("", false),
            "StorageClass" | "VolumeAttachment" => ("storage.k8s.io", false),
            "Pod" | "ConfigMap" | "Event" | "PersistentVolumeClaim" => ("", true),
            "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => ("apps", true),
            "Job" | "CronJob" => ("batch", true),
            "PodDisruptionBudget" => ("policy", true),
            _ => panic!("no tests with {kind} so far"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        if namespaced {
            Api::default_namespaced_with(self.client.clone(), &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    pub(crate) async fn create(&self, kind: &str, object: Value) -> Value {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let created = self.api(kind).create(&PostParams::default(), &object).await.unwrap();
        serde_json::to_value(created).unwrap()
    }

    pub(crate) async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.api(kind).get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
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
        self.api(kind).delete(name, &params).await.unwrap();
    }

    /// Whether the eviction was granted.
    pub(crate) async fn evict(&self, pod: &str) -> bool {
        use k8s_openapi::api::core::v1::Pod;
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        match pods.evict(pod, &EvictParams::default()).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 429 => false,
            Err(error) => panic!("evicting {pod}: {error}"),
        }
    }

    /// Lets the cluster live until `condition` holds.
    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFnMut() -> bool) {
        self.testbed.advance_until(what, LIMIT, condition).await.unwrap();
    }

    /// Lets it live for a while.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    pub(crate) async fn pods(&self, app: &str) -> Vec<Value> {
        let mut pods = self.list("Pod").await;
        pods.retain(|pod| pod["metadata"]["labels"]["app"] == app);
        pods
    }

    pub(crate) async fn running(&self, app: &str) -> usize {
        self.pods(app).await.iter().filter(|pod| is_running(pod)).count()
    }

    pub(crate) async fn until_running(&self, app: &str, count: usize) {
        let what = format!("{count} pods of {app} run and no others are there");
        self.until(&what, async || {
            let pods = self.pods(app).await;
            pods.len() == count && pods.iter().all(is_running)
        })
        .await;
    }

    pub(crate) async fn until_gone(&self, kind: &str, name: &str) {
        self.until(&format!("{kind} {name} is gone"), async || {
            self.get(kind, name).await.is_none()
        })
        .await;
    }

    /// How many pods of an app are on each node.
    pub(crate) async fn by_node(&self, app: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for pod in self.pods(app).await {
            *counts.entry(node_of(&pod).to_owned()).or_default() += 1;
        }
        counts
    }

    pub(crate) async fn add_nodes(&self, names: &[&str]) {
        for name in names {
            self.create("Node", node(name)).await;
        }
    }

    pub(crate) async fn until_ready(&self, node: &str) {
        self.until(&format!("node {node} is ready"), async || {
            let node = self.get("Node", node).await.unwrap();
            condition(&node, "Ready") == "True" && node["spec"]["taints"].is_null()
        })
        .await;
    }
}

pub(crate) fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(crate) fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(name_of).collect()
}

/// The status of a condition; empty where there is none.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let list = object["status"]["conditions"].as_array();
    let found = list.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

/// A fake node with 4 CPUs, 16 GiB and room for 20 pods.
pub(crate) fn node(name: &str) -> Value {
    let room = json!({ "cpu": "4", "memory": "16Gi", "pods": "20" });
    json!({
        "metadata": {
            "name": name, "annotations": { "kwok.x-k8s.io/node": "fake" },
            "labels": { "kubernetes.io/hostname": name },
        },
        "status": { "capacity": room, "allocatable": room },
    })
}

pub(crate) fn pod_spec(cpu: &str) -> Value {
    json!({ "containers": [{
        "name": "main", "image": "example.com/app:1", "resources": { "requests": { "cpu": cpu } },
    }]})
}

pub(crate) fn pod(name: &str, app: &str, cpu: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "app": app } }, "spec": pod_spec(cpu) })
}

/// A workload named after its app, with one container of 1 CPU.
pub(crate) fn workload(app: &str, replicas: Option<i64>) -> Value {
    let mut object = json!({
        "metadata": { "name": app },
        "spec": {
            "selector": { "matchLabels": { "app": app } },
            "template": { "metadata": { "labels": { "app": app } }, "spec": pod_spec("1") },
        },
    });
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = replicas.into();
    }
    object
}

pub(crate) fn storage_class(name: &str, mode: &str) -> Value {
    json!({
        "metadata": { "name": name }, "provisioner": "disks.example.com", "volumeBindingMode": mode,
    })
}

pub(crate) fn volume_claim(name: &str, class: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": { "requests": { "storage": "1Gi" } },
    }})
}

pub(crate) fn with(mut object: Value, path: &str, value: Value) -> Value {
    let mut at = &mut object;
    for key in path.split('.') {
        at = &mut at[key];
    }
    *at = value;
    object
}

pub(crate) fn background() -> DeleteParams {
    DeleteParams::background()
}
