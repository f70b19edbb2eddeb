//! Volumes: where their claims allow a pod to run, and how many a node can attach.

use kerf_api::ObjectExt;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::storage::v1 as storage;

use crate::labels::{HOSTNAME, KnownLabels};
use crate::pod::Pod;
use crate::requirement::{Operator, Requirement, UnknownOperator};
use crate::requirements::Requirements;

/// The binder's note on a claim that is done with.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// Everything about storage that placing pods depends on.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    /// By namespace and name.
    pub claims: BTreeMap<(String, String), VolumeClaim>,
    pub volumes: BTreeMap<String, Volume>,
    pub classes: BTreeMap<String, StorageClass>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeClaim {
    pub volume: Option<String>,
    pub class: Option<String>,
    /// Volume and claim know of each other. A claim can name a volume before that.
    pub bound: bool,
    /// The volume that it had is gone, and its data with it.
    pub lost: bool,
    pub deleting: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    pub driver: Option<String>,
    /// Any one of these must hold; none given means that it can be reached from everywhere.
    pub terms: Vec<Requirements>,
    pub deleting: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClass {
    pub provisioner: String,
    pub terms: Vec<Requirements>,
    /// Volumes are made when claims appear, not when a pod has a node.
    pub immediate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    #[error(
        "pod {pod} mounts claim {claim}, which does not exist: create it, or wait for its controller to do so"
    )]
    MissingClaim { pod: String, claim: String },
    #[error("claim {claim} is bound to volume {volume}, which does not exist")]
    MissingVolume { claim: String, volume: String },
    #[error("claim {claim} asks for storage class {class}, which does not exist")]
    MissingClass { claim: String, class: String },
    #[error("claim {claim} is being deleted")]
    ClaimDeleting { claim: String },
    #[error("claim {claim} has lost its volume, and the data with it: delete the claim")]
    ClaimLost { claim: String },
    #[error("claim {claim} names volume {volume} and is not bound to it yet")]
    NotBound { claim: String, volume: String },
    #[error("claim {claim} is bound to volume {volume}, which is being deleted")]
    VolumeDeleting { claim: String, volume: String },
    #[error("claim {claim} has neither a volume nor a storage class that would create one")]
    NoClass { claim: String },
    #[error(
        "claim {claim} is not bound yet: storage class {class} creates its volume before the pod is scheduled, so the pod waits for it"
    )]
    AwaitsVolume { claim: String, class: String },
}

impl Volumes {
    /// The node requirements that the pod's volumes bring, as alternatives: none means no constraint,
    /// and an empty set among them means that one alternative is free.
    pub fn alternatives(&self, pod: &Pod) -> Result<Vec<Requirements>, VolumeError> {
        let mut combined: Vec<Requirements> = Vec::new();
        for mounted in &pod.volumes {
            let terms = self.terms(pod, &mounted.claim)?;
            if terms.is_empty() {
                continue;
            }
            if combined.is_empty() {
                combined = terms.to_vec();
                continue;
            }
            let products =
                || combined.iter().flat_map(|left| terms.iter().map(move |right| (left, right)));
            let mut meeting: Vec<_> = products()
                .filter(|(left, right)| left.intersects(right).is_ok())
                .map(|(left, right)| left.merged(right))
                .collect();
            if meeting.is_empty() {
                // Volumes that contradict each other are kept, so that the refusal names the conflict.
                meeting = products().map(|(left, right)| left.merged(right)).collect();
            }
            combined = meeting;
        }
        Ok(combined)
    }

    /// Everything about the pod's volumes because of which no node is of use to it now. A pod that runs has been
    /// through this; one that has no node yet may have been written with mistakes, or too early.
    pub fn problems(&self, pod: &Pod) -> Vec<VolumeError> {
        pod.volumes.iter().filter_map(|volume| self.check(pod, &volume.claim).err()).collect()
    }

    fn check(&self, pod: &Pod, claim_name: &str) -> Result<(), VolumeError> {
        let (found, claim) = (self.claim(pod, claim_name)?, claim_name.to_owned());
        if found.deleting {
            return Err(VolumeError::ClaimDeleting { claim });
        }
        if found.lost {
            return Err(VolumeError::ClaimLost { claim });
        }
        // What a claim names has to be there.
        self.terms(pod, claim_name)?;
        if let Some(name) = &found.volume {
            let volume = name.clone();
            return match self.volumes.get(name) {
                Some(found) if found.deleting => Err(VolumeError::VolumeDeleting { claim, volume }),
                _ if !found.bound => Err(VolumeError::NotBound { claim, volume }),
                _ => Ok(()),
            };
        }
        let Some(class) = found.class.clone() else { return Err(VolumeError::NoClass { claim }) };
        if self.classes.get(&class).is_some_and(|class| class.immediate) {
            return Err(VolumeError::AwaitsVolume { claim, class });
        }
        Ok(())
    }

    fn claim(&self, pod: &Pod, claim_name: &str) -> Result<&VolumeClaim, VolumeError> {
        let key = (pod.namespace.clone(), claim_name.to_owned());
        self.claims.get(&key).ok_or_else(|| VolumeError::MissingClaim {
            pod: pod.key(),
            claim: claim_name.to_owned(),
        })
    }

    fn terms(&self, pod: &Pod, claim_name: &str) -> Result<&[Requirements], VolumeError> {
        let claim = self.claim(pod, claim_name)?;
        if let Some(name) = &claim.volume {
            return match self.volumes.get(name) {
                Some(volume) => Ok(&volume.terms),
                None => Err(VolumeError::MissingVolume {
                    claim: claim_name.to_owned(),
                    volume: name.clone(),
                }),
            };
        }
        match &claim.class {
            None => Ok(&[]),
            Some(name) => match self.classes.get(name) {
                Some(class) => Ok(&class.terms),
                None => Err(VolumeError::MissingClass {
                    claim: claim_name.to_owned(),
                    class: name.clone(),
                }),
            },
        }
    }

    /// The pod's attachable volumes: driver to claims. What has no known driver has no limit.
    pub fn attachments(&self, pod: &Pod) -> BTreeMap<&str, BTreeSet<String>> {
        let mut attached: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for mounted in &pod.volumes {
            let key = (pod.namespace.clone(), mounted.claim.clone());
            if let Some(driver) = self.claims.get(&key).and_then(|claim| self.driver(claim)) {
                attached.entry(driver).or_default().insert(format!("{}/{}", key.0, key.1));
            }
        }
        attached
    }

    fn driver(&self, claim: &VolumeClaim) -> Option<&str> {
        if let Some(volume) = &claim.volume {
            return self.volumes.get(volume)?.driver.as_deref();
        }
        let class = self.classes.get(claim.class.as_ref()?)?;
        Some(csi_driver(&class.provisioner))
    }
}

/// In-tree plugins have been replaced by drivers with other names.
fn csi_driver(provisioner: &str) -> &str {
    match provisioner {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        other => other,
    }
}

impl From<&k8s::PersistentVolumeClaim> for VolumeClaim {
    fn from(claim: &k8s::PersistentVolumeClaim) -> Self {
        let spec = claim.spec.as_ref();
        let given = |name: Option<&String>| name.filter(|name| !name.is_empty()).cloned();
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let annotations = claim.metadata.annotations.as_ref();
        let completed = annotations.is_some_and(|all| all.contains_key(BIND_COMPLETED));
        Self {
            volume: given(spec.and_then(|spec| spec.volume_name.as_ref())),
            class: given(spec.and_then(|spec| spec.storage_class_name.as_ref())),
            // The binder writes the annotation first and the phase last.
            bound: completed || phase == Some("Bound"),
            lost: phase == Some("Lost"),
            deleting: claim.is_deleting(),
        }
    }
}

impl Volume {
    pub fn from_api(
        volume: &k8s::PersistentVolume,
        labels: &KnownLabels,
    ) -> Result<Self, UnknownOperator> {
        let deleting = volume.is_deleting();
        let Some(spec) = &volume.spec else { return Ok(Self { deleting, ..Self::default() }) };
        let driver = match (&spec.csi, &spec.aws_elastic_block_store) {
            (Some(csi), _) => Some(csi.driver.clone()),
            (None, Some(_)) => Some("ebs.csi.aws.com".to_owned()),
            (None, None) => None,
        };
        // The data of a local volume is lost with its node, so a pod that moves may go anywhere.
        let local = spec.local.is_some() || spec.host_path.is_some();
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let mut terms = Vec::new();
        for term in required.iter().flat_map(|required| &required.node_selector_terms) {
            let expressions = term.match_expressions.as_deref().unwrap_or_default();
            if expressions.is_empty() {
                continue;
            }
            let mut requirements = Requirements::default();
            for expression in expressions {
                if local && expression.key == HOSTNAME {
                    continue;
                }
                requirements.add(labels.read(expression)?);
            }
            terms.push(requirements);
        }
        Ok(Self { driver, terms, deleting })
    }
}

impl StorageClass {
    pub fn from_api(class: &storage::StorageClass, labels: &KnownLabels) -> Self {
        let terms = class
            .allowed_topologies
            .iter()
            .flatten()
            .map(|term| {
                term.match_label_expressions
                    .iter()
                    .flatten()
                    .map(|expression| -> Requirement {
                        labels.requirement(&expression.key, Operator::In, &expression.values)
                    })
                    .collect()
            })
            .collect();
        // The API server writes the mode where it is left out; a file may not have been there.
        let mode = class.volume_binding_mode.as_deref();
        let immediate = mode != Some("WaitForFirstConsumer");
        Self { provisioner: class.provisioner.clone(), terms, immediate }
    }
}

#[cfg(test)]
mod tests;
