//! Several stories in one cluster, each with names of its own.
//!
//! A real cluster takes seconds to start and half a gigabyte, so stories that do not restart the operator share one. What
//! a story creates is renamed on the way in, and what it lists is only its own, so that it reads as if it were alone.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use kerf_control_plane::ControlPlane;
use kerf_controllers::{Settings, operator::Timing};
use kerf_provider_kwok as kwok;
use kerf_runtime::{Clock, Metrics};
use kerf_simulation::{Connect, OperatorHandle, Terms};
use kerf_testbed::CloudFaults;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use crate::{rights, world::start_control_plane};

/// The label that pods select on, and pools give to their claims and nodes.
const LABEL: &str = "story";

/// A real cluster with an operator in it, for all stories of a test program. It ends with the process.
#[derive(Debug)]
pub struct SharedCluster {
    pub(crate) cluster: ControlPlane,
    pub(crate) metrics: Metrics,
}

impl SharedCluster {
    /// What the API server wrote down of each request.
    pub fn audit_log(&self) -> Option<std::path::PathBuf> {
        self.cluster.audit_log()
    }

    pub(crate) fn get() -> &'static Self {
        static SHARED: OnceLock<SharedCluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let (started, starting) = mpsc::channel();
            // Each test has a runtime that ends with it; the operator has to outlive them all.
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
                runtime.block_on(async {
                    let cluster = start_control_plane().await;
                    let terms = Terms {
                        clock: Clock::system(),
                        settings: Settings::default(),
                        instance_types: kwok::generated(),
                        provider: Connect::default(),
                        cloud: CloudFaults::seeded(0),
                        timing: Timing::default(),
                        window: kerf_controllers::window::Window::default(),
                        seed: 7,
                    };
                    let operator = OperatorHandle::start(rights::client(&cluster), terms).await;
                    let metrics = operator.metrics.clone();
                    let _ = started.send(Self { cluster, metrics });
                    std::future::pending::<()>().await;
                });
            });
            starting.recv().unwrap_or_else(|_| panic!("the shared cluster did not start"))
        })
    }
}

/// What tells the objects of one story from those of the others.
#[derive(Clone, Debug)]
pub(crate) struct Scope(String);

impl Scope {
    pub(crate) fn next() -> Self {
        static STORIES: AtomicUsize = AtomicUsize::new(1);
        Self(format!("s{}", STORIES.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.0
    }

    /// Gives an object of the story, and what it refers to, the names it has in the shared cluster.
    pub(crate) fn rename(&self, object: &mut Value) {
        match object.pointer("/metadata/namespace") {
            Some(_) => object["metadata"]["namespace"] = json!(self.0),
            None => self.prefix(object, "/metadata/name"),
        }
        match object["kind"].as_str().unwrap_or_default() {
            "NodePool" => {
                self.prefix(object, "/spec/template/spec/nodeClassRef/name");
                object["spec"]["template"]["metadata"]["labels"][LABEL] = json!(self.0);
            }
            "NodeClaim" => {
                self.prefix(object, "/spec/nodeClassRef/name");
                object["metadata"]["labels"][LABEL] = json!(self.0);
            }
            "Node" => object["metadata"]["labels"][LABEL] = json!(self.0),
            "Pod" => object["spec"]["nodeSelector"][LABEL] = json!(self.0),
            "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => {
                object["spec"]["template"]["spec"]["nodeSelector"][LABEL] = json!(self.0);
            }
            "PersistentVolumeClaim" => {
                self.prefix(object, "/spec/volumeName");
                self.prefix(object, "/spec/storageClassName");
            }
            "PersistentVolume" => self.prefix(object, "/spec/storageClassName"),
            _ => {}
        }
    }

    /// Whether the object belongs to the story.
    pub(crate) fn holds(&self, object: &DynamicObject) -> bool {
        let own = |name: &str| {
            let name = name.strip_prefix("kwok-").unwrap_or(name);
            name.strip_prefix(&self.0).is_some_and(|rest| rest.starts_with('-'))
        };
        if object.namespace().is_some_and(|namespace| namespace == self.0) {
            return true;
        }
        match object.data.pointer("/involvedObject/name").and_then(Value::as_str) {
            // Events about objects without a namespace are in the namespace `default`.
            Some(name) => own(name),
            None => object.labels().get(LABEL).map_or_else(
                || object.namespace().is_none() && own(&object.name_any()),
                |story| *story == self.0,
            ),
        }
    }

    fn prefix(&self, object: &mut Value, pointer: &str) {
        if let Some(Value::String(name)) = object.pointer_mut(pointer)
            && !name.is_empty()
        {
            *name = format!("{}-{name}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> DynamicObject {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn a_story_sees_what_it_created_and_what_came_of_it() {
        let (scope, other) = (Scope("s1".into()), Scope("s12".into()));
        let mut pool = serde_json::to_value(crate::build::pool("p", &json!({}))).unwrap();
        let mut pod = serde_json::to_value(crate::build::pod("p", &json!({}))).unwrap();
        scope.rename(&mut pool);
        scope.rename(&mut pod);
        assert_eq!(pool["metadata"]["name"], "s1-p");
        assert_eq!(pool["spec"]["template"]["spec"]["nodeClassRef"]["name"], "s1-default");
        assert_eq!(pod["metadata"]["namespace"], "s1");
        assert_eq!(pod["spec"]["nodeSelector"], json!({"story": "s1"}));
        let claim = json!({"metadata": {"name": "s1-p-x", "labels": {"story": "s1"}}});
        let about = |name: &str| json!({"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"name": name}});
        for value in [pool, pod, claim, about("s1-p"), about("kwok-s1-p-x-0")] {
            assert!(scope.holds(&object(&value)), "{value}");
            assert!(!other.holds(&object(&value)), "{value}");
        }
    }
}
