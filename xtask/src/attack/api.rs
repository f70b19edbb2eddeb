//! The API server's objects as plain JSON: no type of ours stands between what is there and what is judged.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::Request;
use kube::Client;
use serde_json::Value;

pub(super) const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
pub(super) const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(super) const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/karpenter-leader-election";

#[derive(Clone)]
pub(super) struct Api {
    client: Client,
}

impl Api {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).body(Vec::new())?;
        self.client.request(request).await.with_context(|| format!("reading {path}"))
    }

    /// `None` if it is not there.
    pub(super) async fn find(&self, path: &str) -> Result<Option<Value>> {
        let request = Request::get(path).body(Vec::new())?;
        match self.client.request(request).await {
            Ok(found) => Ok(Some(found)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {path}")),
        }
    }

    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.get(path).await?;
        Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    }

    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(object)?)?;
        self.client.request(request).await.with_context(|| format!("creating in {path}"))
    }

    /// A merge patch.
    pub(super) async fn patch(&self, path: &str, changes: &Value) -> Result<Value> {
        let request = Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(changes)?)?;
        self.client.request(request).await.with_context(|| format!("patching {path}"))
    }

    /// Asks for the deletion of what may be gone already.
    pub(super) async fn delete(&self, path: &str) -> Result<()> {
        let request = Request::delete(path).body(Vec::new())?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("deleting {path}")),
        }
    }
}

/// Asks again for as long as this: an API server that has just started refuses some requests.
pub(super) async fn eventually<T>(
    patience: Duration,
    ask: impl AsyncFn() -> Result<T>,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        match ask().await {
            Err(_) if begin.elapsed() < patience => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            answer => return answer,
        }
    }
}

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// Whether the object has this condition with status `True`.
pub(super) fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| one["type"] == condition && one["status"] == "True")
}
