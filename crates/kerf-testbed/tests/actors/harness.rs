//! A cluster to try things on, and the objects to try them with.

use crate::objects::Objects;
pub(crate) use crate::objects::{condition, is_running, name_of, names, text};
use k8s_openapi::api::core::v1::Pod;
use kerf_testbed::Testbed;
use kerf_testbed::actors::{Actors, Running};
use kube::api::{Api, DeleteParams, EvictParams};
use serde_json::{Value, json};
use std::ops::Deref;
use std::time::Duration;

/// Long enough for anything that happens at all.
const LIMIT: Duration = Duration::from_hours(1);

pub(crate) struct Cluster {
    pub(crate) testbed: Testbed,
    pub(crate) actors: Running,
    objects: Objects,
}

impl Deref for Cluster {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::with(Actors::default())
    }

    pub(crate) fn with(actors: Actors) -> Self {
        let testbed = Testbed::builder().seed(7).start().unwrap();
        let actors = testbed.start_actors(actors);
        let objects = Objects::new(testbed.client(), "default");
        Self { testbed, actors, objects }
    }

    /// Whether the eviction was granted.
    pub(crate) async fn evict(&self, pod: &str) -> bool {
        let pods: Api<Pod> = Api::default_namespaced(self.testbed.client());
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
            self.find(kind, name).await.is_none()
        })
        .await;
    }

    pub(crate) async fn add_nodes(&self, names: &[&str]) {
        for name in names {
            self.create("Node", node(name)).await;
        }
    }

    pub(crate) async fn until_ready(&self, node: &str) {
        self.until(&format!("node {node} is ready"), async || {
            let node = self.get("Node", node).await;
            condition(&node, "Ready")["status"] == "True" && node["spec"]["taints"].is_null()
        })
        .await;
    }
}

pub(crate) fn node_of(pod: &Value) -> &str {
    text(pod, "/spec/nodeName")
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
