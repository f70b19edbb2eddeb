//! How an actor reads the cluster and changes it: reads come straight from the store, changes go through the API
//! server as requests, so that admission, validation, conflicts and the event log treat them like anyone's.

use super::client::LimitedClient;
use super::outage::Outages;
use crate::api::{Api, Incoming, Object, Resource, meta};
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kerf_runtime::Clock;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use thiserror::Error;

#[derive(Clone, Debug)]
pub(super) struct Desk {
    pub(super) api: Api,
    pub(super) clock: Clock,
    pub(super) outages: Outages,
    /// What is sent here takes its time, as far as that matters.
    pub(super) client: Option<Arc<Mutex<LimitedClient>>>,
}

/// A resource that actors deal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    /// As in `kind:`.
    pub(super) name: &'static str,
}

const fn kind(group: &'static str, plural: &'static str, name: &'static str) -> Kind {
    Kind { group, plural, name }
}

pub(super) const PODS: Kind = kind("", "pods", "Pod");
pub(super) const NODES: Kind = kind("", "nodes", "Node");
pub(super) const EVENTS: Kind = kind("", "events", "Event");
pub(super) const NAMESPACES: Kind = kind("", "namespaces", "Namespace");
pub(super) const CLAIMS: Kind = kind("", "persistentvolumeclaims", "PersistentVolumeClaim");
pub(super) const SERVICES: Kind = kind("", "services", "Service");
pub(super) const VOLUMES: Kind = kind("", "persistentvolumes", "PersistentVolume");
pub(super) const STORAGE_CLASSES: Kind = kind("storage.k8s.io", "storageclasses", "StorageClass");
pub(super) const ATTACHMENTS: Kind =
    kind("storage.k8s.io", "volumeattachments", "VolumeAttachment");
pub(super) const REPLICA_SETS: Kind = kind("apps", "replicasets", "ReplicaSet");
pub(super) const DEPLOYMENTS: Kind = kind("apps", "deployments", "Deployment");
pub(super) const STATEFUL_SETS: Kind = kind("apps", "statefulsets", "StatefulSet");
pub(super) const DAEMON_SETS: Kind = kind("apps", "daemonsets", "DaemonSet");
pub(super) const JOBS: Kind = kind("batch", "jobs", "Job");
pub(super) const CRON_JOBS: Kind = kind("batch", "cronjobs", "CronJob");
pub(super) const BUDGETS: Kind = kind("policy", "poddisruptionbudgets", "PodDisruptionBudget");

impl Kind {
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".into() } else { format!("{}/v1", self.group) }
    }

    fn path(&self, namespace: &str, name: &str, subresource: &str) -> String {
        path(self.group, "v1", self.plural, namespace, name, subresource)
    }
}

fn path(
    group: &str,
    version: &str,
    plural: &str,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> String {
    let mut path = String::with_capacity(128);
    if group.is_empty() {
        path.push_str("/api/");
    } else {
        path.push_str("/apis/");
        path.push_str(group);
        path.push('/');
    }
    path.push_str(version);
    if !namespace.is_empty() {
        path.push_str("/namespaces/");
        path.push_str(namespace);
    }
    for part in [plural, name, subresource].into_iter().filter(|part| !part.is_empty()) {
        path.push('/');
        path.push_str(part);
    }
    path
}

/// The API server said no.
#[derive(Debug, Error)]
#[error("{method} {path}: {code}: {message}")]
pub(super) struct Refusal {
    method: Method,
    path: String,
    pub(super) code: u16,
    pub(super) message: String,
}

impl Refusal {
    /// The object is gone or has moved on: whoever watches it will hear of that.
    pub(super) fn is_overtaken(&self) -> bool {
        matches!(self.code, 404 | 409)
    }
}

/// How an object is to be deleted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deletion {
    /// As a user would, with dependents following in the background.
    Background,
    Foreground,
    /// At once: nobody will confirm that it has ended.
    Forced,
}

impl Desk {
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Now, as the API writes it.
    pub(super) fn timestamp(&self) -> String {
        meta::seconds(self.now())
    }

    pub(super) fn get(&self, kind: Kind, key: &str) -> Option<Arc<Object>> {
        self.api.read(kind.group, kind.plural, key)
    }

    pub(super) fn list(&self, kind: Kind, namespace: &str) -> Vec<Arc<Object>> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        self.api.read_all(kind.group, kind.plural, &prefix)
    }

    pub(super) fn create(
        &self,
        kind: Kind,
        namespace: &str,
        value: &Value,
    ) -> Result<Value, Refusal> {
        self.send(Method::POST, kind.path(namespace, "", ""), value)
    }

    pub(super) fn update(&self, kind: Kind, value: &Value) -> Result<Value, Refusal> {
        self.send(Method::PUT, kind.path(meta::namespace(value), meta::name(value), ""), value)
    }

    /// Changes an object's status and writes it when that made a difference.
    pub(super) fn change_status(
        &self,
        kind: Kind,
        object: &Object,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), Refusal> {
        let mut value = object.value.clone();
        let status = meta::map_mut(&mut value).entry("status").or_insert_with(|| json!({}));
        change(status);
        if value == object.value {
            return Ok(());
        }
        let path = kind.path(meta::namespace(&value), meta::name(&value), "status");
        self.send(Method::PUT, path, &value).map(|_| ())
    }

    pub(super) fn bind(&self, pod: &Value, node: &str) -> Result<(), Refusal> {
        let metadata = json!({ "name": meta::name(pod), "namespace": meta::namespace(pod), "uid": meta::uid(pod) });
        let target = json!({ "kind": "Node", "name": node });
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target });
        let path = PODS.path(meta::namespace(pod), meta::name(pod), "binding");
        self.send(Method::POST, path, &binding).map(|_| ())
    }

    pub(super) fn delete(&self, kind: Kind, value: &Value, how: Deletion) -> Result<(), Refusal> {
        self.delete_at(kind.path(meta::namespace(value), meta::name(value), ""), value, how)
    }

    /// Deletes what it knows only the resource of.
    pub(super) fn delete_any(
        &self,
        resource: &Resource,
        value: &Value,
        how: Deletion,
    ) -> Result<(), Refusal> {
        self.delete_at(resource_path(resource, value, ""), value, how)
    }

    pub(super) fn update_any(&self, resource: &Resource, value: &Value) -> Result<(), Refusal> {
        self.send(Method::PUT, resource_path(resource, value, ""), &typed(resource, value))
            .map(|_| ())
    }

    /// The last step of a namespace's deletion.
    pub(super) fn finalize(&self, namespace: &Value) -> Result<(), Refusal> {
        let path = NAMESPACES.path("", meta::name(namespace), "finalize");
        self.send(Method::PUT, path, namespace).map(|_| ())
    }

    fn delete_at(&self, path: String, value: &Value, how: Deletion) -> Result<(), Refusal> {
        let mut options = json!({ "preconditions": { "uid": meta::uid(value) } });
        match how {
            Deletion::Background => options["propagationPolicy"] = "Background".into(),
            Deletion::Foreground => options["propagationPolicy"] = "Foreground".into(),
            Deletion::Forced => options["gracePeriodSeconds"] = 0.into(),
        }
        self.send(Method::DELETE, path, &options).map(|_| ())
    }

    fn send(&self, method: Method, path: String, body: &Value) -> Result<Value, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Bytes::from(serde_json::to_vec(body).unwrap_or_default());
        self.spend();
        let incoming = Incoming { method, path, query: String::new(), headers, body };
        let response = self.api.handle(&incoming);
        let code = response.status().as_u16();
        // Answers to writes are whole when they come; there is nothing to wait for.
        let body = response.into_body().collect().now_or_never().and_then(Result::ok);
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if code < 300 {
            return Ok(value);
        }
        let Incoming { method, path, .. } = incoming;
        let message = meta::text(&value, &["message"]).to_owned();
        Err(Refusal { method, path, code, message })
    }
}

fn resource_path(resource: &Resource, value: &Value, subresource: &str) -> String {
    let (namespace, name) = (meta::namespace(value), meta::name(value));
    path(&resource.group, &resource.version, &resource.plural, namespace, name, subresource)
}

/// Custom resources are refused without their kind.
fn typed(resource: &Resource, value: &Value) -> Value {
    let mut value = value.clone();
    let map = meta::map_mut(&mut value);
    map.insert("kind".into(), resource.kind.clone().into());
    map.insert("apiVersion".into(), resource.api_version().into());
    value
}
