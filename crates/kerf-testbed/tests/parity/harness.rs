//! A cluster of either kind, and what cases say about it.

use super::objects::Objects;
pub(crate) use super::objects::{condition, is_running, name_of, names, text};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than anything takes: a `CronJob` waits for the next minute.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) type Case = for<'a> fn(&'a Cluster) -> LocalBoxFuture<'a, ()>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn cases() -> Vec<(&'static str, crate::suite::harness::Case)> {
            vec![$((stringify!($name), |cluster| Box::pin($name(cluster)))),*]
        }
    };
}
pub(crate) use cases;

pub(crate) struct Cluster {
    /// Each case has a namespace of its own, and nodes that its pods select by the namespace's name.
    objects: Objects,
    played: usize,
    failed: Vec<String>,
}

impl Deref for Cluster {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl Cluster {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects::new(client, ""), played: 0, failed: Vec::new() }
    }

    /// Plays a case on an empty cluster.
    pub(crate) async fn play(&mut self, name: &str, case: Case) {
        self.begin(name).await;
        if !self.namespace.is_empty() {
            let outcome = AssertUnwindSafe(case(self)).catch_unwind().await;
            self.end(name, outcome.is_ok()).await;
        }
    }

    /// A namespace for the next case; none if it was not asked for.
    pub(crate) async fn begin(&mut self, name: &str) {
        self.objects.namespace.clear();
        if !name.contains(&std::env::var("CASE").unwrap_or_default()) {
            return;
        }
        println!("{name}");
        self.played += 1;
        self.objects.namespace = format!("case-{}", self.played);
        let namespace = self.namespace.clone();
        self.create("Namespace", json!({ "metadata": { "name": namespace } })).await;
        self.until("pods are admitted", async || {
            let pod = self.pod("probe", json!({ "schedulerName": "nobody" }));
            let pod: DynamicObject = serde_json::from_value(pod).unwrap();
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            self.api("Pod").create(&dry, &pod).await.map(|_| ()).map_err(|e| e.to_string())
        })
        .await;
    }

    /// Takes the case's nodes and namespace away.
    pub(crate) async fn end(&mut self, name: &str, ok: bool) {
        if !ok {
            self.failed.push(name.to_owned());
        }
        let namespace = self.namespace.clone();
        self.delete("Namespace", &namespace, DeleteParams::background()).await;
        // Pods that are still there would count as being on nodes of the same name in the next case.
        self.until("all pods are gone", async || {
            let pods = self.list("Pod").await;
            for pod in &pods {
                let now = DeleteParams::default().grace_period(0);
                self.delete("Pod", name_of(pod), now).await;
            }
            if pods.is_empty() { Ok(()) } else { Err(format!("{} pods", pods.len())) }
        })
        .await;
        for kind in ["Node", "PersistentVolume", "StorageClass"] {
            for object in self.list(kind).await {
                self.delete(kind, name_of(&object), DeleteParams::background()).await;
            }
        }
        self.until("all nodes are gone", async || {
            let nodes = self.list("Node").await;
            if nodes.is_empty() { Ok(()) } else { Err(format!("{} nodes", nodes.len())) }
        })
        .await;
    }

    pub(crate) fn conclude(&self) {
        let Self { played, failed, .. } = self;
        assert!(failed.is_empty(), "{} of {played} cases failed: {failed:#?}", failed.len());
        assert!(*played > 0, "no case was played");
    }

    pub(crate) async fn patch_status(&self, kind: &str, name: &str, patch: Value) {
        let params = PatchParams::default();
        self.api(kind).patch_status(name, &params, &Patch::Strategic(patch)).await.unwrap();
    }

    /// Asks until the answer is `Ok`; panics with the last `Err` when that takes too long.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut ask: impl AsyncFnMut() -> Result<T, String>,
    ) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(last) if Instant::now() > end => {
                    panic!("{}: waited in vain until {what}: {last}", self.namespace)
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Waits until these fields of an object have these values; `null` is for fields that are not there.
    pub(crate) async fn until_fields(&self, kind: &str, name: &str, expected: Value) -> Value {
        self.until(&format!("{kind} {name} has {expected}"), async || {
            let object = self.find(kind, name).await.ok_or("it is gone")?;
            let seen = &object["status"]["observedGeneration"];
            if !seen.is_null() && *seen != object["metadata"]["generation"] {
                return Err("its controller has not seen its last change".to_owned());
            }
            for (pointer, value) in expected.as_object().unwrap() {
                let actual = object.pointer(pointer).unwrap_or(&Value::Null);
                if actual != value {
                    return Err(format!("{pointer} is {actual}"));
                }
            }
            Ok(object)
        })
        .await
    }

    pub(crate) async fn until_gone(&self, kind: &str, name: &str) {
        self.until(&format!("{kind} {name} is gone"), async || {
            self.find(kind, name).await.map_or(Ok(()), |_| Err("it is there".to_owned()))
        })
        .await;
    }

    /// Waits until exactly this many pods of an app are there, all of them running.
    pub(crate) async fn until_running(&self, app: &str, count: usize) -> Vec<Value> {
        self.until(&format!("{count} pods of {app} run"), async || {
            let pods = self.pods(app).await;
            let running = pods.iter().filter(|pod| is_running(pod)).count();
            if (running, pods.len()) == (count, count) {
                return Ok(pods);
            }
            Err(format!("{running} of {} run", pods.len()))
        })
        .await
    }

    /// Creates nodes of four CPUs, with `changes` merged in, and waits until pods can go there.
    pub(crate) async fn add_nodes(&self, nodes: &[(&str, Value)]) {
        for (name, changes) in nodes {
            let room = json!({
                "cpu": "4", "memory": "16Gi", "pods": "20", "ephemeral-storage": "10Gi",
            });
            let mut node = json!({
                "metadata": {
                    "name": name, "annotations": { "kwok.x-k8s.io/node": "fake" },
                    "labels": { "case": self.namespace, "kubernetes.io/hostname": name },
                },
                "status": { "capacity": room, "allocatable": room },
            });
            json_merge(&mut node, changes);
            self.create("Node", node).await;
        }
        for (name, _) in nodes {
            self.until(&format!("node {name} is ready"), async || {
                let node = self.get("Node", name).await;
                let taints = node["spec"]["taints"].as_array().into_iter().flatten();
                let mut taints = taints.filter_map(|taint| taint["key"].as_str());
                if condition(&node, "Ready")["status"] != "True" {
                    return Err("not ready".to_owned());
                }
                let early = taints.find(|key| key.contains("not-ready"));
                early.map_or(Ok(()), |taint| Err(taint.to_owned()))
            })
            .await;
        }
    }

    /// A pod of this name and app, with `changes` merged into its spec.
    pub(crate) fn pod(&self, name: &str, changes: Value) -> Value {
        let mut spec = self.pod_spec("0");
        json_merge(&mut spec, &changes);
        json!({ "metadata": { "name": name, "labels": { "app": name } }, "spec": spec })
    }

    pub(crate) fn pod_spec(&self, cpu: &str) -> Value {
        json!({
            "nodeSelector": { "case": self.namespace }, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "example.com/app:1", "resources": { "requests": { "cpu": cpu } },
            }],
        })
    }

    /// A workload named after its app, of pods that ask for a quarter of a CPU, with `changes` merged in.
    pub(crate) fn workload(&self, app: &str, changes: Value) -> Value {
        let mut object = json!({
            "metadata": { "name": app },
            "spec": {
                "selector": { "matchLabels": { "app": app } },
                "template": { "metadata": { "labels": { "app": app } }, "spec": self.pod_spec("250m") },
            },
        });
        json_merge(&mut object, &changes);
        object
    }
}

/// Objects are merged, everything else is replaced.
pub(crate) fn json_merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (field, change) in changes {
                json_merge(into.entry(field).or_insert(Value::Null), change);
            }
        }
        (into, change) => *into = change.clone(),
    }
}
