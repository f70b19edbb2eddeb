//! A pod as the index keeps it. There are tens of thousands, and the pods of a workload differ in their names, nodes and times
//! alone: the rest is shared.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, ObjectReference, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kerf_api::conditions::Status;
use kerf_model::{
    Labels,
    pod::{Phase, PodParts},
};
use serde::Deserialize;

use crate::Key;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "core::Pod")]
pub struct Pod {
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    created: Option<Timestamp>,
    deletion: Option<Deletion>,
    node: Option<Box<str>>,
    /// Where it gets the place of pods that it preempts.
    nominated_node: Option<Box<str>>,
    /// `None`: its status does not say.
    phase: Option<Phase>,
    started: Option<Timestamp>,
    /// When its last container ended.
    ended: Option<Timestamp>,
    scheduled: Option<Condition>,
    ready: Option<Condition>,
    /// What its containers have, while that is not what they ask for.
    resize: Option<Box<PodStatus>>,
    metadata: Arc<Metadata>,
    /// Without the node.
    spec: Arc<PodSpec>,
}

/// What the pods of a workload have in common beside their specs.
#[derive(Debug, Default, PartialEq)]
struct Metadata {
    namespace: String,
    labels: Labels,
    annotations: BTreeMap<String, String>,
    owners: Vec<OwnerReference>,
}

/// Deletion was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// When the grace period ends.
    pub at: Timestamp,
    pub grace_seconds: i64,
}

/// A condition of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub status: Status,
    pub reason: Reason,
    pub since: Option<Timestamp>,
}

/// The reasons that decisions tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Unschedulable,
    SchedulingGated,
    Other,
}

impl Pod {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    pub fn key(&self) -> Key {
        Key::namespaced(self.namespace(), self.name())
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    pub fn created(&self) -> Option<Timestamp> {
        self.created
    }

    pub fn deletion(&self) -> Option<Deletion> {
        self.deletion
    }

    /// The node that it is bound to.
    pub fn node_name(&self) -> Option<&str> {
        self.node.as_deref()
    }

    pub fn nominated_node(&self) -> Option<&str> {
        self.nominated_node.as_deref()
    }

    pub fn phase(&self) -> Option<Phase> {
        self.phase
    }

    pub fn started(&self) -> Option<Timestamp> {
        self.started
    }

    pub(crate) fn ended(&self) -> Option<Timestamp> {
        self.ended
    }

    /// The condition `PodScheduled`.
    pub fn scheduled(&self) -> Option<Condition> {
        self.scheduled
    }

    /// The condition `Ready`.
    pub fn ready(&self) -> Option<Condition> {
        self.ready
    }

    pub fn labels(&self) -> &Labels {
        &self.metadata.labels
    }

    /// Those that decisions read.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.metadata.annotations
    }

    pub fn owners(&self) -> &[OwnerReference] {
        &self.metadata.owners
    }

    /// What decisions read of it. [`Pod::node_name`] has the node.
    pub fn spec(&self) -> &PodSpec {
        &self.spec
    }

    /// The requests that the Kubernetes scheduler reserves for it.
    pub fn requests(&self) -> Result<kerf_model::Resources, kerf_model::resources::ResourcesError> {
        kerf_model::pod::requests(&self.spec, self.resize.as_deref())
    }

    /// For events about it.
    pub fn object_ref(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(self.name().to_owned()),
            namespace: Some(self.namespace().to_owned()),
            resource_version: Some(self.resource_version().to_owned()),
            uid: Some(self.uid().to_owned()),
            field_path: None,
        }
    }

    pub(crate) fn parts(&self) -> PodParts<'_> {
        PodParts {
            namespace: self.namespace(),
            name: self.name(),
            uid: Some(self.uid()).filter(|uid| !uid.is_empty()),
            created: self.created,
            labels: self.labels(),
            owners: self.owners(),
            spec: &self.spec,
            node_name: self.node_name(),
            phase: self.phase.unwrap_or_default(),
            deleting: self.deletion.is_some(),
            status: self.resize.as_deref(),
        }
    }
}

/// Fields that no decision reads are lost.
impl From<core::Pod> for Pod {
    fn from(pod: core::Pod) -> Self {
        let pod = crate::slim::pod(pod);
        let (metadata, status) = (pod.metadata, pod.status.unwrap_or_default());
        let mut spec = pod.spec.unwrap_or_default();
        let condition = |kind: &str| {
            let mut all = status.conditions.iter().flatten();
            all.find(|condition| condition.type_ == kind).map(Condition::from)
        };
        let boxed = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
        let named =
            |text: Option<String>| text.filter(|text| !text.is_empty()).map(String::into_boxed_str);
        Self {
            created: metadata.creation_timestamp.map(|time| time.0),
            deletion: metadata.deletion_timestamp.map(|time| Deletion {
                at: time.0,
                grace_seconds: metadata.deletion_grace_period_seconds.unwrap_or_default(),
            }),
            node: named(spec.node_name.take()),
            nominated_node: named(status.nominated_node_name.clone()),
            phase: status.phase.as_deref().and_then(Phase::parse),
            started: status.start_time.as_ref().map(|time| time.0),
            ended: ended(&status),
            scheduled: condition("PodScheduled"),
            ready: condition("Ready"),
            resize: resize(&status),
            name: boxed(metadata.name),
            uid: boxed(metadata.uid),
            resource_version: boxed(metadata.resource_version),
            metadata: Arc::new(Metadata {
                namespace: metadata.namespace.unwrap_or_default(),
                labels: metadata.labels.unwrap_or_default(),
                annotations: metadata.annotations.unwrap_or_default(),
                owners: metadata.owner_references.unwrap_or_default(),
            }),
            spec: Arc::new(spec),
        }
    }
}

impl From<&core::PodCondition> for Condition {
    fn from(condition: &core::PodCondition) -> Self {
        Self {
            status: match condition.status.as_str() {
                "True" => Status::True,
                "False" => Status::False,
                _ => Status::Unknown,
            },
            reason: match condition.reason.as_deref() {
                Some("Unschedulable") => Reason::Unschedulable,
                Some("SchedulingGated") => Reason::SchedulingGated,
                _ => Reason::Other,
            },
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        }
    }
}

fn ended(status: &PodStatus) -> Option<Timestamp> {
    let containers = status.container_statuses.iter().flatten();
    let times = containers.filter_map(|container| {
        container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()
    });
    times.map(|time| time.0).max()
}

/// Few pods are being resized.
fn resize(status: &PodStatus) -> Option<Box<PodStatus>> {
    let resized = [&status.container_statuses, &status.init_container_statuses];
    let is_resized = |one: &core::ContainerStatus| one.resources.is_some();
    resized.into_iter().flatten().flatten().any(is_resized).then(|| {
        let mut conditions = status.conditions.clone();
        if let Some(conditions) = &mut conditions {
            conditions.retain(|one| one.type_ == "PodResizePending");
        }
        Box::new(PodStatus {
            conditions,
            container_statuses: status.container_statuses.clone(),
            init_container_statuses: status.init_container_statuses.clone(),
            ..PodStatus::default()
        })
    })
}

/// As many variants are remembered of one workload: pods of a StatefulSet differ in their labels, all of them.
const VARIANTS: usize = 8;
/// Workloads without pods are forgotten when there are this many, and twice as many as after the last time.
const SWEEP_AT: usize = 1024;

/// What pods that are kept have in common, by the uid of their controller.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    workloads: BTreeMap<String, Variants>,
    after_last_sweep: usize,
}

#[derive(Debug, Default)]
struct Variants {
    metadata: Vec<Arc<Metadata>>,
    specs: Vec<Arc<PodSpec>>,
}

impl Sharing {
    /// Lets the pod share what another pod of its controller has.
    pub(crate) fn share(&mut self, pod: &mut Pod) {
        let controller = pod.owners().iter().find(|owner| owner.controller == Some(true));
        let Some(uid) = controller.map(|owner| owner.uid.clone()) else { return };
        if !self.workloads.contains_key(&uid) {
            self.sweep();
        }
        let variants = self.workloads.entry(uid).or_default();
        shared(&mut variants.metadata, &mut pod.metadata);
        shared(&mut variants.specs, &mut pod.spec);
    }

    fn sweep(&mut self) {
        if self.workloads.len() < SWEEP_AT.max(2 * self.after_last_sweep) {
            return;
        }
        self.workloads.retain(|_, variants| {
            variants.specs.retain(is_used);
            variants.metadata.retain(is_used);
            !variants.specs.is_empty() || !variants.metadata.is_empty()
        });
        self.after_last_sweep = self.workloads.len();
    }
}

fn shared<T: PartialEq>(known: &mut Vec<Arc<T>>, new: &mut Arc<T>) {
    if let Some(same) = known.iter().find(|it| **it == *new) {
        *new = Arc::clone(same);
        return;
    }
    known.retain(is_used);
    if known.len() == VARIANTS {
        known.remove(0);
    }
    known.push(Arc::clone(new));
}

/// Whether a pod has it.
fn is_used<T>(it: &Arc<T>) -> bool {
    Arc::strong_count(it) > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(owner: &str, name: &str, cpu: &str) -> Pod {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true,
        });
        let api: core::Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "labels": {"app": "web"}, "ownerReferences": [owner]},
            "spec": {"nodeName": name, "containers": [
                {"name": "c", "resources": {"requests": {"cpu": cpu}}},
            ]},
        }))
        .unwrap();
        api.into()
    }

    #[test]
    fn pods_of_a_controller_share_what_is_equal() {
        let mut sharing = Sharing::default();
        let mut of = |owner: &str, name: &str, cpu: &str| {
            let mut one = pod(owner, name, cpu);
            sharing.share(&mut one);
            one
        };
        let first = of("web", "a", "1");
        for (other, metadata, spec) in [
            (of("web", "b", "1"), true, true),
            // A rollout of another size, or an in-place resize.
            (of("web", "c", "2"), true, false),
            (of("api", "d", "1"), false, false),
        ] {
            assert_eq!(Arc::ptr_eq(&first.metadata, &other.metadata), metadata, "{other:?}");
            assert_eq!(Arc::ptr_eq(&first.spec, &other.spec), spec, "{other:?}");
            assert_eq!(other.node_name(), Some(other.name()), "each has its own node");
        }
    }

    #[test]
    fn workloads_without_pods_are_forgotten() {
        let mut sharing = Sharing::default();
        let mut stays = pod("stays", "a", "1");
        sharing.share(&mut stays);
        for number in 0..3 * SWEEP_AT {
            sharing.share(&mut pod(&format!("job-{number}"), "b", "1"));
        }
        assert!(sharing.workloads.len() <= SWEEP_AT, "{}", sharing.workloads.len());
        let mut again = pod("stays", "c", "1");
        sharing.share(&mut again);
        assert!(Arc::ptr_eq(&stays.spec, &again.spec));
    }

    #[test]
    fn few_variants_are_remembered_of_a_workload() {
        let mut sharing = Sharing::default();
        let pods: Vec<Pod> = (0..100)
            .map(|number| {
                let mut one = pod("set", "a", &number.to_string());
                sharing.share(&mut one);
                one
            })
            .collect();
        assert_eq!(sharing.workloads["set"].specs.len(), VARIANTS);
        let mut last = pod("set", "b", "99");
        sharing.share(&mut last);
        assert!(Arc::ptr_eq(&pods[99].spec, &last.spec));
    }
}
