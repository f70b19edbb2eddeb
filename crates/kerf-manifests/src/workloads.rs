//! The pods that workloads would make, for workloads that have none yet.

use kerf_api::ObjectExt;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec, StatefulSet},
        batch::v1::Job,
        core::v1::{
            PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource,
            Pod, PodTemplateSpec, Volume,
        },
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference},
};
use kube_core::{Resource, ResourceExt};

use kerf_cluster::{Cluster, Key, Kind};

use super::{LoadError, defaults};

/// Kubernetes puts it on the pods of a Deployment; spread constraints tell revisions apart by it.
const TEMPLATE_HASH: &str = "pod-template-hash";
const PLANNED: &str = "planned";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// The pods that are made for workloads which have none. More than Kubernetes is built for are never wanted, and a number that was
/// mistyped must not take all memory.
pub const MOST_PODS: usize = 150_000;

/// Something that makes pods from a template.
#[derive(Debug)]
pub(super) struct Workload {
    kind: &'static str,
    metadata: ObjectMeta,
    /// As the owner of its pods.
    reference: OwnerReference,
    /// How many pods it would make now, and the field that says so.
    pods: i32,
    pods_field: &'static str,
    first: i32,
    template: PodTemplateSpec,
    claims: Vec<PersistentVolumeClaim>,
    /// Of a Deployment: the set that would stand between it and its pods selects by this.
    selector: Option<LabelSelector>,
}

/// What a workload was turned into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expanded {
    pub kind: &'static str,
    pub workload: Key,
    /// How many it asks for.
    pub asked: usize,
    /// How many it got: fewer where all workloads together ask for more than [`MOST_PODS`].
    pub pods: usize,
}

/// By kind and key.
#[derive(Debug, Default)]
pub(super) struct Workloads(BTreeMap<(&'static str, Key), Workload>);

impl Workloads {
    pub(super) fn add(&mut self, workload: Workload) -> Result<(), LoadError> {
        if workload.pods < 0 {
            let (kind, name) = (workload.kind, workload.key());
            let (field, value) = (workload.pods_field, workload.pods);
            return Err(LoadError::Negative { kind, name, field, value });
        }
        self.0.insert((workload.kind, workload.key()), workload);
        Ok(())
    }

    /// Adds the pods of those workloads that nothing in the cluster belongs to.
    pub(super) fn expand(self, cluster: &mut Cluster) -> Vec<Expanded> {
        let owners = self.owners(cluster);
        let (mut expanded, mut left) = (Vec::new(), MOST_PODS);
        for ((kind, key), workload) in self.0 {
            if owners.contains(&(kind.to_owned(), key.clone())) {
                continue;
            }
            let asked = usize::try_from(workload.pods).unwrap_or(0);
            let pods = workload.make_pods(left);
            left -= pods.len();
            if asked > 0 {
                expanded.push(Expanded { kind, workload: key, asked, pods: pods.len() });
            }
            if let Some(set) = workload.replica_set() {
                apply_if_missing(cluster, set);
            }
            for claim in pods.iter().flat_map(|pod| workload.claims_of(pod)) {
                apply_if_missing(cluster, claim);
            }
            for mut pod in pods {
                defaults::pod(&mut pod);
                apply_if_missing(cluster, pod);
            }
        }
        expanded
    }

    /// Kind and key of everything that owns something.
    fn owners(&self, cluster: &Cluster) -> BTreeSet<(String, Key)> {
        let pods = cluster.pods().values();
        let pods = pods.map(|pod| (pod.namespace(), pod.labels().get(TEMPLATE_HASH), pod.owners()));
        let workloads = self.0.values().map(|workload| {
            let metadata = &workload.metadata;
            let hash = metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH));
            let owners = metadata.owner_references.as_deref().unwrap_or_default();
            (metadata.namespace.as_deref().unwrap_or_default(), hash, owners)
        });
        let mut owners = BTreeSet::new();
        for (namespace, hash, of_one) in pods.chain(workloads) {
            for owner in of_one {
                // A dump need not hold the ReplicaSet that stands between a Deployment and its pods.
                let deployment = hash.and_then(|hash| owner.name.strip_suffix(&format!("-{hash}")));
                if let Some(name) = deployment.filter(|_| owner.kind == "ReplicaSet") {
                    owners.insert(("Deployment".to_owned(), Key::namespaced(namespace, name)));
                }
                owners.insert((owner.kind.clone(), Key::namespaced(namespace, &owner.name)));
            }
        }
        owners
    }
}

/// The claims that pods bring along with them, as the controller for ephemeral volumes makes them.
pub(super) fn add_ephemeral_claims(cluster: &mut Cluster) {
    let pods: Vec<_> = cluster.pods().values().cloned().collect();
    for pod in pods {
        for volume in pod.spec().volumes.iter().flatten() {
            let Some(ephemeral) = &volume.ephemeral else { continue };
            let template = ephemeral.volume_claim_template.as_ref();
            let name = format!("{}-{}", pod.name(), volume.name);
            let namespace = Some(pod.namespace().to_owned());
            let spec = template.map(|template| template.spec.clone());
            apply_if_missing(cluster, claim(name, namespace, spec.unwrap_or_default()));
        }
    }
}

fn apply_if_missing<K: Kind>(cluster: &mut Cluster, object: K) {
    if K::objects(cluster).get(&object.key()).is_none() {
        cluster.apply(object);
    }
}
fn claim(
    name: String,
    namespace: Option<String>,
    spec: PersistentVolumeClaimSpec,
) -> PersistentVolumeClaim {
    let metadata = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
    PersistentVolumeClaim { metadata, spec: Some(spec), status: None }
}

impl Workload {
    fn new<K: Resource<DynamicType = ()>>(
        kind: &'static str,
        object: &K,
        pods: Option<i32>,
        template: PodTemplateSpec,
    ) -> Self {
        Self {
            kind,
            metadata: object.meta().clone(),
            reference: OwnerReference {
                api_version: K::api_version(&()).into_owned(),
                kind: kind.to_owned(),
                name: object.name_any(),
                uid: object.uid().unwrap_or_else(|| object.name_any()),
                controller: Some(true),
                ..OwnerReference::default()
            },
            pods: if object.is_deleting() { 0 } else { pods.unwrap_or(1) },
            pods_field: "spec.replicas",
            first: 0,
            template,
            claims: Vec::new(),
            selector: None,
        }
    }

    fn replica_set(&self) -> Option<ReplicaSet> {
        let mut selector = self.selector.clone()?;
        let labels = selector.match_labels.get_or_insert_default();
        labels.insert(TEMPLATE_HASH.to_owned(), PLANNED.to_owned());
        Some(ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{}-{PLANNED}", self.reference.name)),
                namespace: self.metadata.namespace.clone(),
                uid: Some(self.reference.uid.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec { selector, ..ReplicaSetSpec::default() }),
            status: None,
        })
    }

    fn key(&self) -> Key {
        let name = self.metadata.name.clone().unwrap_or_default();
        Key::namespaced(self.metadata.namespace.clone().unwrap_or_default(), name)
    }

    fn make_pods(&self, most: usize) -> Vec<Pod> {
        let indices = self.first..self.first.saturating_add(self.pods);
        indices.take(most).map(|index| self.pod(index)).collect()
    }

    fn pod(&self, index: i32) -> Pod {
        let name = format!("{}-{index}", self.reference.name);
        let mut metadata = self.template.metadata.clone().unwrap_or_default();
        metadata.namespace.clone_from(&self.metadata.namespace);
        metadata.owner_references = Some(vec![self.reference.clone()]);
        let labels = metadata.labels.get_or_insert_default();
        match self.kind {
            "Deployment" => {
                labels.insert(TEMPLATE_HASH.to_owned(), PLANNED.to_owned());
            }
            "StatefulSet" => {
                labels.insert(POD_NAME.to_owned(), name.clone());
                labels.insert(POD_INDEX.to_owned(), index.to_string());
            }
            _ => {}
        }
        let mut spec = self.template.spec.clone().unwrap_or_default();
        for template in &self.claims {
            let volumes = spec.volumes.get_or_insert_default();
            let volume = template.name_any();
            let claim_name = format!("{volume}-{name}");
            volumes.retain(|own| own.name != volume);
            volumes.push(Volume {
                name: volume,
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name,
                    ..PersistentVolumeClaimVolumeSource::default()
                }),
                ..Volume::default()
            });
        }
        metadata.name = Some(name);
        Pod { metadata, spec: Some(spec), status: None }
    }

    fn claims_of(&self, pod: &Pod) -> impl Iterator<Item = PersistentVolumeClaim> {
        let (pod_name, namespace) = (pod.name_any(), pod.namespace());
        self.claims.iter().map(move |template| {
            let name = format!("{}-{pod_name}", template.name_any());
            claim(name, namespace.clone(), template.spec.clone().unwrap_or_default())
        })
    }
}

impl From<Deployment> for Workload {
    fn from(deployment: Deployment) -> Self {
        let spec = deployment.spec.clone().unwrap_or_default();
        Self {
            selector: Some(spec.selector),
            ..Self::new("Deployment", &deployment, spec.replicas, spec.template)
        }
    }
}

impl From<ReplicaSet> for Workload {
    fn from(set: ReplicaSet) -> Self {
        let spec = set.spec.clone().unwrap_or_default();
        Self::new("ReplicaSet", &set, spec.replicas, spec.template.unwrap_or_default())
    }
}

impl From<StatefulSet> for Workload {
    fn from(set: StatefulSet) -> Self {
        let spec = set.spec.clone().unwrap_or_default();
        Self {
            first: spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0),
            claims: spec.volume_claim_templates.unwrap_or_default(),
            ..Self::new("StatefulSet", &set, spec.replicas, spec.template)
        }
    }
}

impl From<Job> for Workload {
    /// What it would run at once: its parallelism, but no more than is left to do.
    fn from(job: Job) -> Self {
        let spec = job.spec.clone().unwrap_or_default();
        let status = job.status.clone().unwrap_or_default();
        let ended = status.conditions.iter().flatten().any(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        });
        let done = status.succeeded.unwrap_or(0);
        let left = spec.completions.map_or(i32::MAX, |all| all.saturating_sub(done).max(0));
        let at_once = spec.parallelism.unwrap_or(1).min(left);
        let pods = if ended || spec.suspend == Some(true) { 0 } else { at_once };
        Self { pods_field: "spec.parallelism", ..Self::new("Job", &job, Some(pods), spec.template) }
    }
}
