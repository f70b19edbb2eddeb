//! Pods, reduced to what placing them depends on.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::disruption::PodDisruption;
use crate::labels::{KnownLabels, Labels};
use crate::requirement::{Requirement, UnknownOperator};
use crate::requirements::Requirements;
use crate::resources::{Resources, ResourcesError};
use crate::selector::{LabelTest, Selector};
use crate::taint::Toleration;

mod reader;
mod requests;
mod size;

pub use reader::PodReader;
pub use requests::{requests, with_limits_as_requests};
pub use size::{Counted, MOST_TERMS, MOST_VALUES, TooManyConstraints};

#[derive(Clone, Debug, Default)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub created: Option<Timestamp>,
    pub labels: Labels,
    /// With one of the resource `pods`.
    pub requests: Resources,
    /// Shared by pods that were read together and have the same.
    pub constraints: Arc<Constraints>,
    pub volumes: Vec<PodVolume>,
    pub owners: Vec<Owner>,
    pub node_name: Option<String>,
    pub phase: Phase,
    pub deleting: bool,
    /// Asks for devices through resource claims.
    pub claims_devices: bool,
    /// The buffer, of the pod's namespace, whose room it stands for. Such a pod does not exist. No object says this: an
    /// annotation could be on any pod.
    pub buffer: Option<Arc<str>>,
    pub disruption: PodDisruption,
}

/// Where a pod may run, apart from the room that it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Constraints {
    pub node_selector: Requirements,
    /// Any one of these must hold; none given means no constraint.
    pub required_terms: Vec<Requirements>,
    pub preferred_terms: Vec<Weighted<Requirements>>,
    pub tolerations: Vec<Toleration>,
    pub spread: Vec<SpreadConstraint>,
    pub affinity: PodTerms,
    pub anti_affinity: PodTerms,
    pub host_ports: Vec<HostPort>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Weighted<T> {
    pub weight: i32,
    pub term: T,
}

/// Terms about the pods that already run in a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodTerms {
    pub required: Vec<PodTerm>,
    pub preferred: Vec<Weighted<PodTerm>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodTerm {
    pub topology_key: String,
    pub selector: Selector,
    /// Neither names nor a selector means the pod's own namespace.
    pub namespaces: Vec<String>,
    pub namespace_selector: Option<Selector>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    pub topology_key: String,
    pub max_skew: u32,
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// With the pod's own values of `matchLabelKeys` already added.
    pub selector: Selector,
    pub min_domains: Option<u32>,
    pub node_affinity_policy: NodePolicy,
    pub node_taints_policy: NodePolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhenUnsatisfiable {
    DoNotSchedule,
    ScheduleAnyway,
}

/// Whether nodes that the pod cannot use take part in a spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodePolicy {
    Honor,
    Ignore,
}

/// A port of the node that the pod occupies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    pub ip: String,
    pub port: i32,
    pub protocol: String,
}

/// A volume that is backed by a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodVolume {
    pub name: String,
    /// In the pod's namespace.
    pub claim: String,
    /// Made for this pod, from a template in it.
    pub ephemeral: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// A pod that cannot be read.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PodError {
    #[error("reading pod {pod}: {source}")]
    Resources { pod: String, source: ResourcesError },
    #[error("reading the node affinity of pod {pod}: {source}")]
    NodeAffinity { pod: String, source: UnknownOperator },
}

/// What is read of a pod, wherever it is kept.
#[derive(Clone, Copy, Debug)]
pub struct PodParts<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// Without one, namespace and name stand for it.
    pub uid: Option<&'a str>,
    pub created: Option<Timestamp>,
    pub labels: &'a Labels,
    pub owners: &'a [OwnerReference],
    pub spec: &'a k8s::PodSpec,
    pub node_name: Option<&'a str>,
    pub phase: Phase,
    pub deleting: bool,
    /// What its containers were given and use.
    pub status: Option<&'a k8s::PodStatus>,
}

impl<'a> From<&'a k8s::Pod> for PodParts<'a> {
    fn from(pod: &'a k8s::Pod) -> Self {
        static NO_LABELS: Labels = Labels::new();
        static NO_SPEC: LazyLock<k8s::PodSpec> = LazyLock::new(k8s::PodSpec::default);
        let metadata = &pod.metadata;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let spec = pod.spec.as_ref().unwrap_or(&NO_SPEC);
        Self {
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
            uid: metadata.uid.as_deref(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            labels: metadata.labels.as_ref().unwrap_or(&NO_LABELS),
            owners: metadata.owner_references.as_deref().unwrap_or_default(),
            spec,
            node_name: spec.node_name.as_deref().filter(|node| !node.is_empty()),
            phase: phase.and_then(Phase::parse).unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            status: pod.status.as_ref(),
        }
    }
}

impl Pod {
    pub fn from_api(pod: &k8s::Pod, labels: &KnownLabels) -> Result<Self, PodError> {
        Self::from_parts(pod.into(), labels)
    }

    pub fn from_parts(parts: PodParts<'_>, labels: &KnownLabels) -> Result<Self, PodError> {
        let PodParts { namespace, name, spec, .. } = parts;
        let key = || format!("{namespace}/{name}");
        let requests = requests(spec, parts.status)
            .map_err(|source| PodError::Resources { pod: key(), source })?;
        let constraints = Constraints::from_api(spec, parts.labels, labels)
            .map_err(|source| PodError::NodeAffinity { pod: key(), source })?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: parts.uid.map_or_else(key, str::to_owned),
            created: parts.created,
            labels: parts.labels.clone(),
            requests,
            constraints: Arc::new(constraints),
            volumes: volumes(spec, name),
            owners: parts.owners.iter().map(Owner::from).collect(),
            node_name: parts.node_name.map(str::to_owned),
            phase: parts.phase,
            deleting: parts.deleting,
            claims_devices: claims_devices(spec),
            buffer: None,
            disruption: PodDisruption::default(),
        })
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub fn is_owned_by(&self, api_version: &str, kind: &str) -> bool {
        self.owners.iter().any(|owner| owner.is(api_version, kind))
    }

    /// Who makes a new pod when this one goes.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// The `ReplicaSet` that controls it.
    pub fn replica_set(&self) -> Option<&Owner> {
        self.controller().filter(|owner| owner.is("apps/v1", "ReplicaSet"))
    }

    /// Whether a Job controls it: it ends by itself.
    pub fn is_of_job(&self) -> bool {
        self.controller().is_some_and(|owner| owner.is("batch/v1", "Job"))
    }

    pub fn is_daemon(&self) -> bool {
        self.is_owned_by("apps/v1", "DaemonSet")
    }
}

impl Owner {
    pub fn is(&self, api_version: &str, kind: &str) -> bool {
        self.api_version == api_version && self.kind == kind
    }
}

/// The terms of an affinity or of an anti-affinity: the API has a type for each, with the same fields.
macro_rules! pod_terms {
    ($affinity:expr, $labels:expr) => {
        PodTerms::from_api(
            $affinity
                .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_deref()),
            $affinity
                .and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_deref()),
            $labels,
        )
    };
}

impl Constraints {
    /// `labels` are the pod's, for `matchLabelKeys`.
    pub fn from_api(
        spec: &k8s::PodSpec,
        pod_labels: &Labels,
        labels: &KnownLabels,
    ) -> Result<Self, UnknownOperator> {
        let affinity = spec.affinity.as_ref();
        let node = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            node.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred = node
            .and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_ref());
        let pods = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        Ok(Self {
            node_selector: spec
                .node_selector
                .iter()
                .flatten()
                .map(|(key, value)| {
                    labels.requirement(key, crate::Operator::In, std::iter::once(value))
                })
                .collect(),
            required_terms: required
                .iter()
                .flat_map(|required| &required.node_selector_terms)
                .map(|term| term_requirements(term, labels))
                .collect::<Result<_, _>>()?,
            preferred_terms: preferred
                .into_iter()
                .flatten()
                .map(|term| {
                    let requirements = term_requirements(&term.preference, labels)?;
                    Ok(Weighted { weight: term.weight, term: requirements })
                })
                .collect::<Result<_, _>>()?,
            tolerations: spec.tolerations.iter().flatten().map(Toleration::from).collect(),
            spread: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .map(|constraint| SpreadConstraint::from_api(constraint, pod_labels, labels))
                .collect(),
            affinity: pod_terms!(pods, labels),
            anti_affinity: pod_terms!(apart, labels),
            host_ports: host_ports(spec),
        })
    }

    /// What must hold of the node: the selector and the first required term.
    pub fn strict_requirements(&self) -> Requirements {
        match self.required_terms.first() {
            Some(term) => self.node_selector.merged(term),
            None => self.node_selector.clone(),
        }
    }
}

/// The position of the heaviest entry; the first among equals.
pub fn heaviest<T>(terms: &[Weighted<T>]) -> Option<usize> {
    (0..terms.len()).max_by_key(|at| (terms[*at].weight, std::cmp::Reverse(*at)))
}

fn term_requirements(
    term: &k8s::NodeSelectorTerm,
    labels: &KnownLabels,
) -> Result<Requirements, UnknownOperator> {
    term.match_expressions
        .iter()
        .flatten()
        .map(|expression| labels.read(expression))
        .collect::<Result<Vec<Requirement>, _>>()
        .map(Requirements::new)
}

impl SpreadConstraint {
    pub fn from_api(
        constraint: &k8s::TopologySpreadConstraint,
        pod_labels: &Labels,
        labels: &KnownLabels,
    ) -> Self {
        let policy = |given: &Option<String>, default| match given.as_deref() {
            Some("Honor") => NodePolicy::Honor,
            Some("Ignore") => NodePolicy::Ignore,
            _ => default,
        };
        let own_labels = constraint
            .match_label_keys
            .iter()
            .flatten()
            .filter_map(|key| Some(LabelTest::equals(key, pod_labels.get(key)?)));
        Self {
            topology_key: labels.normalize_key(&constraint.topology_key).to_owned(),
            max_skew: u32::try_from(constraint.max_skew).unwrap_or(0),
            when_unsatisfiable: match constraint.when_unsatisfiable.as_str() {
                "ScheduleAnyway" => WhenUnsatisfiable::ScheduleAnyway,
                _ => WhenUnsatisfiable::DoNotSchedule,
            },
            selector: Selector::from_api(constraint.label_selector.as_ref()).and(own_labels),
            min_domains: constraint.min_domains.and_then(|least| u32::try_from(least).ok()),
            node_affinity_policy: policy(&constraint.node_affinity_policy, NodePolicy::Honor),
            node_taints_policy: policy(&constraint.node_taints_policy, NodePolicy::Ignore),
        }
    }
}

impl PodTerms {
    fn from_api(
        required: Option<&[k8s::PodAffinityTerm]>,
        preferred: Option<&[k8s::WeightedPodAffinityTerm]>,
        labels: &KnownLabels,
    ) -> Self {
        Self {
            required: required
                .into_iter()
                .flatten()
                .map(|term| PodTerm::from_api(term, labels))
                .collect(),
            preferred: preferred
                .into_iter()
                .flatten()
                .map(|weighted| Weighted {
                    weight: weighted.weight,
                    term: PodTerm::from_api(&weighted.pod_affinity_term, labels),
                })
                .collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }
}

impl PodTerm {
    /// `matchLabelKeys` need no care here: the API server merges them into the selector at admission.
    fn from_api(term: &k8s::PodAffinityTerm, labels: &KnownLabels) -> Self {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        namespaces.sort();
        namespaces.dedup();
        Self {
            topology_key: labels.normalize_key(&term.topology_key).to_owned(),
            selector: Selector::from_api(term.label_selector.as_ref()),
            namespaces,
            namespace_selector: term
                .namespace_selector
                .as_ref()
                .map(|selector| Selector::from_api(Some(selector))),
        }
    }
}

impl HostPort {
    /// Whether both cannot be open on one node.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let unspecified = |ip: &str| matches!(ip, "" | "0.0.0.0" | "::");
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || unspecified(&self.ip) || unspecified(&other.ip))
    }
}

fn host_ports(spec: &k8s::PodSpec) -> Vec<HostPort> {
    let mut ports: Vec<_> = spec
        .containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(HostPort {
                ip: port.host_ip.clone().unwrap_or_else(|| "0.0.0.0".to_owned()),
                port: port.host_port.filter(|number| *number != 0)?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            })
        })
        .collect();
    ports.sort();
    ports.dedup();
    ports
}

fn volumes(spec: &k8s::PodSpec, pod_name: &str) -> Vec<PodVolume> {
    spec.volumes
        .iter()
        .flatten()
        .filter_map(|volume| {
            let (claim, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => (source.claim_name.clone(), false),
                (None, Some(_)) => (format!("{pod_name}-{}", volume.name), true),
                (None, None) => return None,
            };
            Some(PodVolume { name: volume.name.clone(), claim, ephemeral })
        })
        .collect()
}

fn claims_devices(spec: &k8s::PodSpec) -> bool {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
        || containers
            .filter_map(|container| container.resources.as_ref()?.claims.as_ref())
            .any(|claims| !claims.is_empty())
}

impl From<&OwnerReference> for Owner {
    fn from(owner: &OwnerReference) -> Self {
        Self {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            controller: owner.controller.unwrap_or(false),
        }
    }
}

impl Phase {
    /// `None`: Kubernetes has no phase of this name.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Unknown];
        all.into_iter().find(|phase| phase.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

#[cfg(test)]
mod tests;
