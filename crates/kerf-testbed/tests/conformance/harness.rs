//! Running cases, and talking to an API server in plain HTTP.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// One rule of the API.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Cluster) -> BoxFuture<'static, ()>,
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn cases() -> Vec<crate::suite::harness::Case> {
            vec![$(crate::suite::harness::Case {
                name: stringify!($name),
                run: |cluster| Box::pin($name(cluster)),
            }),*]
        }
    };
}
pub(crate) use cases;

/// Runs every case in a namespace of its own and panics in the end if any failed.
pub(crate) async fn run(client: Client, cases: Vec<Case>) {
    let only = std::env::var("CASE").unwrap_or_default();
    install_definitions(&client).await;
    let mut failed = Vec::new();
    for (index, case) in cases.iter().enumerate().filter(|(_, case)| case.name.contains(&only)) {
        let cluster = Cluster { client: client.clone(), namespace: format!("case-{index}") };
        let body = json!({ "metadata": { "name": cluster.namespace } });
        cluster.post("/api/v1/namespaces", body).await.expect_code(201);
        if AssertUnwindSafe((case.run)(cluster)).catch_unwind().await.is_err() {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed: {failed:#?}", failed.len(), cases.len());
}

async fn install_definitions(client: &Client) {
    let cluster = Cluster { client: client.clone(), namespace: String::new() };
    let mut definitions: Vec<Value> =
        kerf_provider_kwok::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    definitions.push(super::custom::widget_definition());
    for definition in definitions {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let reply = cluster.post(path, definition.clone()).await;
        assert!(matches!(reply.code, 201 | 409), "{reply:?}");
        let spec = &definition["spec"];
        let served = format!(
            "/apis/{}/{}/{}",
            spec["group"].as_str().unwrap(),
            spec["versions"][0]["name"].as_str().unwrap(),
            spec["names"]["plural"].as_str().unwrap()
        );
        cluster.until(&served, 200).await;
    }
}

/// An API server and a namespace that is the case's own.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Cluster {
    /// Asks until the answer has this code: a real server starts and stops serving a resource a moment after its definition
    /// came or went.
    pub(crate) async fn until(&self, path: &str, code: u16) {
        for _ in 0..100 {
            if self.get(path).await.code == code {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{path} did not become {code}");
    }

    /// A path inside the case's namespace.
    pub(crate) fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub(crate) fn group(&self, group: &str, rest: &str) -> String {
        format!("/apis/{group}/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// A name for something that lives outside of namespaces.
    pub(crate) fn own(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request =
            request.header(header::ACCEPT, "application/json").body(Body::from(body)).unwrap();
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Reply { code, body }
    }

    async fn json(&self, method: Method, path: &str, body: Value) -> Reply {
        self.send(method, path, "application/json", body.to_string().into()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, "", Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.json(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        self.json(Method::PUT, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, "", Bytes::new()).await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: Value) -> Reply {
        self.json(Method::DELETE, path, options).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: Value) -> Reply {
        self.patch(path, "merge-patch+json", patch).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, patch: Value) -> Reply {
        let content_type = format!("application/{kind}");
        self.send(Method::PATCH, path, &content_type, patch.to_string().into()).await
    }

    /// Creates something that is expected to be accepted, and returns it.
    pub(crate) async fn make(&self, path: &str, body: Value) -> Value {
        self.post(path, body).await.expect_code(201)
    }

    pub(crate) async fn make_config_map(&self, name: &str) -> Value {
        self.make(&self.core("configmaps"), config_map(name)).await
    }

    /// A pod that runs on a node, as a kubelet would have reported it.
    pub(crate) async fn make_running_pod(&self, name: &str, labels: Value) -> Value {
        let mut body = pod(name);
        body["metadata"]["labels"] = labels;
        body["spec"]["nodeName"] = "somewhere".into();
        self.make(&self.core("pods"), body).await;
        let ready = json!({ "status": {
            "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
        } });
        self.merge(&self.core(&format!("pods/{name}/status")), ready).await.expect_code(200)
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = self.client.send(request).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let lines = response.into_body().into_data_stream();
        Watch { lines: lines.map(Result::unwrap).boxed(), buffer: Vec::new() }
    }
}

pub(crate) struct Watch {
    lines: futures::stream::BoxStream<'static, Bytes>,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event; `None` when the server ends the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(Duration::from_secs(20), self.lines.next()).await;
            self.buffer.extend(chunk.expect("a watch event within 20 seconds")?);
        }
    }

    /// The next event as `TYPE name`, bookmarks left out.
    pub(crate) async fn next_change(&mut self) -> String {
        loop {
            let event = self.next().await.expect("an event, not the end of the watch");
            if event["type"] != "BOOKMARK" {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
                return format!("{} {name}", event["type"].as_str().unwrap_or_default());
            }
        }
    }
}

impl Reply {
    #[track_caller]
    pub(crate) fn expect_code(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        self.body
    }

    /// The call was refused, with this code and reason and a message that says so.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16, reason: &str, message: &str) {
        assert_eq!(
            (self.code, self.body["reason"].as_str()),
            (code, Some(reason)),
            "{}",
            self.body
        );
        let text = self.body["message"].as_str().unwrap_or_default();
        assert!(text.contains(message), "{text:?} does not contain {message:?}");
    }
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "main", "image": "registry/app:1" }] },
    })
}

pub(crate) fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "registry/app:1" }] },
            },
        },
    })
}

pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}
