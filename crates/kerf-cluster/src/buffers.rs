//! Buffers: what they refer to, and the pods that stand for their room.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::PodTemplateSpec, apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use kerf_api::{CapacityBuffer, PodTemplateReference, ScalableReference};
use kerf_model::{
    KnownLabels, Resources,
    buffer::{self, Wish},
    pod::{PodError, PodReader},
    resources::ResourcesError,
};
use kube_core::ResourceExt;

use crate::{Change, Cluster, Key, Objects};

/// As many virtual pods as a plan has at most, of all buffers together: a number that was mistyped must not take all memory.
pub const MOST_VIRTUAL_PODS: usize = 50_000;

/// What a buffer stands for.
#[derive(Clone, Debug)]
pub struct Resolved<'a> {
    pub template: &'a PodTemplateSpec,
    /// Of the PodTemplate; none for a workload.
    pub generation: Option<i64>,
    /// How many pods there is to be room for.
    pub replicas: i32,
}

/// Why the pods of a buffer are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    #[error("Neither podTemplateRef nor scalableRef is set")]
    NoReference,
    #[error("unsupported scalableRef API group \"{0}\"")]
    Group(String),
    #[error("unsupported kind \"{0}\"")]
    Kind(String),
    #[error("podtemplates \"{0}\" not found")]
    NoPodTemplate(String),
    #[error("{resource} \"{name}\" not found")]
    NoWorkload { resource: &'static str, name: String },
    #[error("spec.limits cannot be read: {0}")]
    Limits(ResourcesError),
    #[error("the requests of its pods cannot be read: {0}")]
    Requests(ResourcesError),
    #[error("its pods cannot be read: {0}")]
    Pod(PodError),
}

impl Unresolved {
    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoPodTemplate(_) => "PodTemplateNotFound",
            Self::NoWorkload { .. } => "ScalableRefNotFound",
            Self::NoReference
            | Self::Group(_)
            | Self::Kind(_)
            | Self::Limits(_)
            | Self::Requests(_)
            | Self::Pod(_) => "ResolutionFailed",
        }
    }
}

/// What buffers can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    PodTemplate,
    Deployment,
    ReplicaSet,
    StatefulSet,
}

impl Cluster {
    /// From now on buffers count, and what they refer to, so that the index counts as listed only with them.
    pub fn keep_buffers(&mut self) {
        self.keeps_buffers = true;
    }

    pub fn keeps_buffers(&self) -> bool {
        self.keeps_buffers
    }

    pub fn buffers(&self) -> &Objects<CapacityBuffer> {
        &self.buffers
    }

    /// Whether room is kept for anything.
    pub fn has_buffers(&self) -> bool {
        self.keeps_buffers && self.buffers.values().next().is_some()
    }

    /// The pods that the buffer stands for, and how many of them.
    pub fn resolve(&self, buffer: &CapacityBuffer) -> Result<Resolved<'_>, Unresolved> {
        let namespace = buffer.namespace().unwrap_or_default();
        let spec = &buffer.spec;
        let (template, generation, workload_replicas) =
            match (&spec.pod_template_ref, &spec.scalable_ref) {
                (Some(PodTemplateReference { name }), _) => {
                    let missing = || Unresolved::NoPodTemplate(name.clone());
                    let found = self.pod_templates.get(&Key::namespaced(namespace, name));
                    let found = found.ok_or_else(missing)?;
                    let template = found.template.as_ref().ok_or_else(missing)?;
                    (template, found.metadata.generation, None)
                }
                (None, Some(reference)) => {
                    let (template, replicas) = self.workload(&namespace, reference)?;
                    (template, None, Some(replicas))
                }
                (None, None) => return Err(Unresolved::NoReference),
            };
        let no_limits = BTreeMap::<String, ApiQuantity>::new();
        let limits = Resources::from_api(spec.limits.as_ref().unwrap_or(&no_limits))
            .map_err(Unresolved::Limits)?;
        let wish = Wish {
            replicas: spec.replicas,
            percentage: spec.percentage,
            limits: spec.limits.is_some().then_some(&limits),
            workload_replicas,
        };
        let requests = buffer::template_requests(template).map_err(Unresolved::Requests)?;
        let replicas = buffer::desired_replicas(&wish, &requests);
        Ok(Resolved { template, generation, replicas })
    }

    /// The template of a workload, and how many replicas it wants.
    fn workload(
        &self,
        namespace: &str,
        reference: &ScalableReference,
    ) -> Result<(&PodTemplateSpec, i32), Unresolved> {
        let name = &reference.name;
        let key = Key::namespaced(namespace, name);
        let (resource, found) = match Target::of(reference)? {
            Target::ReplicaSet => (
                "replicasets.apps",
                self.replica_sets.get(&key).and_then(|set| {
                    let spec = set.spec.as_ref()?;
                    Some((spec.template.as_ref()?, spec.replicas))
                }),
            ),
            Target::StatefulSet => (
                "statefulsets.apps",
                self.stateful_sets.get(&key).and_then(|set| {
                    let spec = set.spec.as_ref()?;
                    Some((&spec.template, spec.replicas))
                }),
            ),
            Target::Deployment | Target::PodTemplate => (
                "deployments.apps",
                self.deployments.get(&key).and_then(|deployment| {
                    let spec = deployment.spec.as_ref()?;
                    Some((&spec.template, spec.replicas))
                }),
            ),
        };
        let missing = || Unresolved::NoWorkload { resource, name: name.clone() };
        let (template, replicas) = found.ok_or_else(missing)?;
        Ok((template, replicas.unwrap_or(1)))
    }

    /// The pods that stand for the room of all buffers, without those that a claim on its way has room for.
    pub(crate) fn virtual_pods(
        &self,
        reader: &mut PodReader<'_>,
        promised: &BTreeSet<String>,
    ) -> Vec<Arc<kerf_model::Pod>> {
        let mut pods = Vec::new();
        if !self.keeps_buffers {
            return pods;
        }
        for buffer in self.buffers.values() {
            let Ok(resolved) = self.resolve(buffer) else { continue };
            let Ok(Some(first)) = first_of(buffer, &resolved, reader) else { continue };
            let all = buffer::like(first, buffer, resolved.replicas);
            let wanted = all.filter(|pod| !promised.contains(&pod.uid));
            pods.extend(wanted.take(MOST_VIRTUAL_PODS - pods.len()));
        }
        pods
    }

    /// The same, unless decisions could not read these pods.
    pub fn resolve_readable(
        &self,
        buffer: &CapacityBuffer,
        known: &KnownLabels,
    ) -> Result<Resolved<'_>, Unresolved> {
        let resolved = self.resolve(buffer)?;
        first_of(buffer, &resolved, &mut PodReader::new(known))?;
        Ok(resolved)
    }

    /// The buffers that a change of what they refer to concerns.
    pub fn buffers_that_refer_to(&self, change: &Change) -> Vec<Key> {
        let (target, key) = match change {
            Change::PodTemplate(delta) => (Target::PodTemplate, &delta.key),
            Change::Deployment(delta) => (Target::Deployment, &delta.key),
            Change::ReplicaSet(delta) => (Target::ReplicaSet, &delta.key),
            Change::StatefulSet(delta) => (Target::StatefulSet, &delta.key),
            _ => return Vec::new(),
        };
        let refers = |buffer: &CapacityBuffer| match (
            &buffer.spec.pod_template_ref,
            &buffer.spec.scalable_ref,
        ) {
            (Some(reference), _) => target == Target::PodTemplate && reference.name == key.name,
            (None, Some(reference)) => {
                Target::of(reference) == Ok(target) && reference.name == key.name
            }
            (None, None) => false,
        };
        let here = self.buffers.iter().filter(|(buffer, _)| buffer.namespace == key.namespace);
        here.filter(|(_, buffer)| refers(buffer)).map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn buffers_listed(&self) -> bool {
        !self.keeps_buffers
            || (self.buffers.listed()
                && self.pod_templates.listed()
                && self.deployments.listed()
                && self.replica_sets.listed()
                && self.stateful_sets.listed())
    }
}

impl Target {
    fn of(reference: &ScalableReference) -> Result<Self, Unresolved> {
        if !matches!(reference.api_group.as_str(), "" | "apps") {
            return Err(Unresolved::Group(reference.api_group.clone()));
        }
        match reference.kind.as_str() {
            "Deployment" => Ok(Self::Deployment),
            "ReplicaSet" => Ok(Self::ReplicaSet),
            "StatefulSet" => Ok(Self::StatefulSet),
            other => Err(Unresolved::Kind(other.to_owned())),
        }
    }
}

/// The first of its virtual pods as decisions see it. `None`: there is none.
fn first_of(
    buffer: &CapacityBuffer,
    resolved: &Resolved<'_>,
    reader: &mut PodReader<'_>,
) -> Result<Option<kerf_model::Pod>, Unresolved> {
    let replicas = resolved.replicas.min(1);
    let first = buffer::virtual_pods(buffer, resolved.template, replicas).next();
    first.map(|pod| reader.read(&pod)).transpose().map_err(Unresolved::Pod)
}

#[cfg(test)]
mod tests;
