//! What users do, by the same API as everybody. A call that is refused is no error: users are refused things.

use http::Request;
use kerf_testbed::Testbed;
use kube::Client;
use serde_json::{Value, json};

use crate::plan::Crowd;

#[derive(Clone)]
pub(crate) struct Hands {
    client: Client,
}

const KINDS: [(&str, &str, bool, &str); 17] = [
    ("Node", "/api/v1", false, "nodes"),
    ("Pod", "/api/v1", true, "pods"),
    ("PodTemplate", "/api/v1", true, "podtemplates"),
    ("PersistentVolume", "/api/v1", false, "persistentvolumes"),
    ("PersistentVolumeClaim", "/api/v1", true, "persistentvolumeclaims"),
    ("Deployment", "/apis/apps/v1", true, "deployments"),
    ("StatefulSet", "/apis/apps/v1", true, "statefulsets"),
    ("DaemonSet", "/apis/apps/v1", true, "daemonsets"),
    ("Job", "/apis/batch/v1", true, "jobs"),
    ("PodDisruptionBudget", "/apis/policy/v1", true, "poddisruptionbudgets"),
    ("PriorityClass", "/apis/scheduling.k8s.io/v1", false, "priorityclasses"),
    ("StorageClass", "/apis/storage.k8s.io/v1", false, "storageclasses"),
    ("NodePool", "/apis/karpenter.sh/v1", false, "nodepools"),
    ("NodeClaim", "/apis/karpenter.sh/v1", false, "nodeclaims"),
    ("NodeOverlay", "/apis/karpenter.sh/v1alpha1", false, "nodeoverlays"),
    ("CapacityBuffer", "/apis/autoscaling.x-k8s.io/v1beta1", true, "capacitybuffers"),
    ("KWOKNodeClass", "/apis/karpenter.kwok.sh/v1alpha1", false, "kwoknodeclasses"),
];
const EC2: (&str, &str, bool, &str) =
    ("EC2NodeClass", "/apis/karpenter.k8s.aws/v1", false, "ec2nodeclasses");

/// Where objects of this kind are.
fn path(kind: &str) -> String {
    let known = KINDS.iter().chain([&EC2]).find(|(name, ..)| *name == kind);
    match known {
        Some((_, group, true, plural)) => format!("{group}/namespaces/default/{plural}"),
        Some((_, group, false, plural)) => format!("{group}/{plural}"),
        None => format!("/api/v1/{kind}"),
    }
}

pub(crate) fn kind_of(crowd: Crowd) -> &'static str {
    match crowd {
        Crowd::Nodes => "Node",
        Crowd::Claims => "NodeClaim",
        Crowd::Pods => "Pod",
        Crowd::Volumes => "PersistentVolume",
    }
}

impl Hands {
    pub(crate) fn new(testbed: &Testbed) -> Self {
        Self { client: testbed.client() }
    }

    pub(crate) async fn create(&self, object: &Value) -> Result<Value, String> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let created = self.call("POST", &path(kind), Some(object), "application/json").await?;
        // A status is written apart from the rest.
        if object.get("status").is_some_and(|status| !status.is_null()) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let status = json!({"status": object["status"]});
            return self.patch(kind, name, true, &status).await;
        }
        Ok(created)
    }

    pub(crate) async fn patch(
        &self,
        kind: &str,
        name: &str,
        status: bool,
        patch: &Value,
    ) -> Result<Value, String> {
        let status = if status { "/status" } else { "" };
        let target = format!("{}/{name}{status}", path(kind));
        self.call("PATCH", &target, Some(patch), "application/merge-patch+json").await
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<Value, String> {
        let background = json!({"propagationPolicy": "Background"});
        let path = format!("{}/{name}", path(kind));
        self.call("DELETE", &path, Some(&background), "application/json").await
    }

    pub(crate) async fn evict(&self, pod: &str) -> Result<Value, String> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "default"},
        });
        let path = format!("{}/{pod}/eviction", path("Pod"));
        self.call("POST", &path, Some(&eviction), "application/json").await
    }

    /// All objects of a kind, by name.
    pub(crate) async fn list(&self, kind: &str) -> Vec<Value> {
        let list = self.call("GET", &path(kind), None, "").await.unwrap_or_default();
        let mut items = match list {
            Value::Object(mut list) => match list.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        items.sort_by(|a, b| name(a).cmp(name(b)));
        items
    }

    /// The lease is given to this one, as if it had taken it.
    pub(crate) async fn give_lease(&self, holder: &str) -> Result<Value, String> {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/kerf";
        let patch = json!({"spec": {"holderIdentity": holder}});
        self.call("PATCH", lease, Some(&patch), "application/merge-patch+json").await
    }

    pub(crate) async fn holder(&self) -> String {
        let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/kerf";
        let lease = self.call("GET", path, None, "").await.unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        content: &str,
    ) -> Result<Value, String> {
        let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder().method(method).uri(path).header("Content-Type", content);
        let request = request.body(body).map_err(|error| error.to_string())?;
        self.client
            .request::<Value>(request)
            .await
            .map_err(|error| format!("{method} {path}: {error}"))
    }
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
