//! The fields that decisions use, and nothing else.
//!
//! What is not listed here is neither read from a file nor written into a snapshot, so nobody has to trust a list of
//! things to leave out: commands, environments, images and whatever Kubernetes adds next are never there.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

/// Every kind that is read. The paths go through lists; the end of a path is kept whole.
const KINDS: &[(&str, &str, &[&[&str]])] = &[
    ("karpenter.sh/v1", "NodePool", &[&["spec", "status.conditions"]]),
    (
        "karpenter.sh/v1",
        "NodeClaim",
        &[&[
            "spec",
            "status.providerID",
            "status.nodeName",
            "status.imageID",
            "status.capacity",
            "status.allocatable",
            "status.conditions",
            "status.lastPodEventTime",
        ]],
    ),
    ("karpenter.sh/v1alpha1", "NodeOverlay", &[&["spec"]]),
    (
        "v1",
        "Node",
        &[&[
            "spec.providerID",
            "spec.taints",
            "spec.unschedulable",
            "status.capacity",
            "status.allocatable",
            "status.conditions.type",
            "status.conditions.status",
            "status.conditions.reason",
            "status.conditions.lastTransitionTime",
        ]],
    ),
    (
        "v1",
        "Pod",
        &[
            POD_SPEC,
            &[
                "status.phase",
                "status.startTime",
                "status.nominatedNodeName",
                "status.conditions.type",
                "status.conditions.status",
                "status.conditions.reason",
                "status.conditions.lastTransitionTime",
                "status.containerStatuses.name",
                "status.containerStatuses.resources",
                "status.containerStatuses.allocatedResources",
                "status.initContainerStatuses.name",
                "status.initContainerStatuses.resources",
                "status.initContainerStatuses.allocatedResources",
            ],
        ],
    ),
    ("apps/v1", "DaemonSet", &[TEMPLATE]),
    ("apps/v1", "Deployment", &[&["spec.replicas", "spec.selector"], TEMPLATE]),
    ("apps/v1", "ReplicaSet", &[&["spec.replicas", "spec.selector"], TEMPLATE]),
    (
        "apps/v1",
        "StatefulSet",
        &[
            &[
                "spec.replicas",
                "spec.selector",
                "spec.ordinals",
                "spec.volumeClaimTemplates.metadata.name",
                "spec.volumeClaimTemplates.spec.storageClassName",
            ],
            TEMPLATE,
        ],
    ),
    (
        "batch/v1",
        "Job",
        &[
            &[
                "spec.parallelism",
                "spec.completions",
                "spec.suspend",
                "status.succeeded",
                "status.conditions.type",
                "status.conditions.status",
            ],
            TEMPLATE,
        ],
    ),
    ("policy/v1", "PodDisruptionBudget", &[&["spec", "status.disruptionsAllowed"]]),
    ("v1", "PodTemplate", &[TEMPLATE_ALONE]),
    ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", &[&["spec"]]),
    ("v1", "Service", &[&["spec.selector"]]),
    ("v1", "ReplicationController", &[&["spec.selector"]]),
    ("v1", "Namespace", &[&[]]),
    (
        "v1",
        "PersistentVolume",
        &[&[
            "spec.nodeAffinity",
            "spec.storageClassName",
            "spec.csi.driver",
            // Whether these are there is all that counts.
            "spec.awsElasticBlockStore.",
            "spec.local.",
            "spec.hostPath.",
        ]],
    ),
    (
        "v1",
        "PersistentVolumeClaim",
        &[&["spec.storageClassName", "spec.volumeName", "status.phase"]],
    ),
    (
        "storage.k8s.io/v1",
        "StorageClass",
        &[&["provisioner", "volumeBindingMode", "allowedTopologies"]],
    ),
    ("storage.k8s.io/v1", "CSINode", &[&["spec.drivers.name", "spec.drivers.allocatable"]]),
];

/// Of a NodeClass, beside what its provider says. Its conditions are of a generation.
const NODE_CLASS: &[&str] = &["metadata.generation"];

const METADATA: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.ownerReferences",
];

/// Under `spec` of a pod, and under `spec.template.spec` of what makes pods.
const POD_SPEC: &[&str] = &[
    "spec.nodeName",
    "spec.nodeSelector",
    "spec.affinity",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "spec.schedulingGates",
    "spec.priority",
    "spec.priorityClassName",
    "spec.terminationGracePeriodSeconds",
    "spec.overhead",
    "spec.resources",
    "spec.resourceClaims",
    "spec.containers.name",
    "spec.containers.resources",
    "spec.containers.ports",
    "spec.initContainers.name",
    "spec.initContainers.resources",
    "spec.initContainers.restartPolicy",
    "spec.volumes.name",
    "spec.volumes.persistentVolumeClaim.claimName",
    "spec.volumes.ephemeral.volumeClaimTemplate.spec.storageClassName",
];

const TEMPLATE: &[&str] = &["spec.template.metadata.labels", "spec.template.metadata.annotations"];

/// Of what is a template and makes no pods.
const TEMPLATE_ALONE: &[&str] = &["template.metadata.labels"];

/// Annotations that decisions read, beside Karpenter's own.
const ANNOTATIONS: [&str; 3] = [
    kerf_api::annotations::POD_DELETION_COST,
    super::defaults::IS_DEFAULT_CLASS,
    kerf_model::volume::BIND_COMPLETED,
];

/// The parts of an object to keep, by field; no fields means the whole of it.
#[derive(Debug, Default)]
struct Kept(BTreeMap<&'static str, Kept>);

static KEPT: LazyLock<BTreeMap<(&str, &str), Kept>> = LazyLock::new(|| {
    let kept = KINDS.iter().map(|(api_version, kind, groups)| {
        let mut kept = Kept::default();
        for path in METADATA.iter().chain(groups.iter().copied().flatten()) {
            kept.add(path.split('.'));
        }
        for (group, parents) in
            [(TEMPLATE, &["spec", "template"][..]), (TEMPLATE_ALONE, &["template"])]
        {
            for path in POD_SPEC.iter().filter(|_| groups.contains(&group)) {
                kept.add(parents.iter().copied().chain(path.split('.')));
            }
        }
        ((*api_version, *kind), kept)
    });
    kept.collect()
});

/// Whether objects of this kind are read at all.
pub(crate) fn is_read(api_version: &str, kind: &str) -> bool {
    KEPT.contains_key(&(api_version, kind))
}

/// The version in which a kind of this group is read.
pub(crate) fn version_read(api_version: &str, kind: &str) -> Option<&'static str> {
    let group = |api_version: &str| api_version.rsplit_once('/').map(|(group, _)| group.to_owned());
    let mut versions = KEPT.keys().filter(|(_, known)| *known == kind).map(|(version, _)| *version);
    versions.find(|version| group(version) == group(api_version))
}

/// Leaves of an object what decisions use.
pub fn trim(object: &mut Value) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
    match KEPT.get(&(&*api_version, &*kind)) {
        Some(kept) => kept.apply(object),
        None => *object = Value::Null,
    }
    // The hash of a NodePool is made of all that its template says, its annotations included.
    let template = if kind == "NodePool" { "" } else { "/spec/template/metadata" };
    // A provider may write on a Node for which claim it was launched, by its UID; elsewhere claims have other UIDs.
    let of_providers = kind != "Node";
    trim_annotations(object, &["/metadata", template], of_providers);
}

/// Leaves of a NodeClass what its provider says.
pub(crate) fn trim_node_class(object: &mut Value, fields: &[&'static str]) {
    let mut kept = Kept::default();
    for path in METADATA.iter().chain(NODE_CLASS).chain(fields) {
        kept.add(path.split('.'));
    }
    kept.apply(object);
    trim_annotations(object, &["/metadata"], true);
}

fn trim_annotations(object: &mut Value, of: &[&str], of_providers: bool) {
    for metadata in of {
        let annotations = object.pointer_mut(&format!("{metadata}/annotations"));
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.retain(|key, _| is_annotation_read(key, of_providers));
        }
    }
}

/// Providers have domains of their own, which begin as Karpenter's does.
fn is_annotation_read(key: &str, of_providers: bool) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let of_provider = of_providers && domain.starts_with("karpenter.");
    domain == kerf_api::GROUP || of_provider || ANNOTATIONS.contains(&key)
}

impl Kept {
    fn add(&mut self, path: impl Iterator<Item = &'static str>) {
        let mut at = self;
        for field in path {
            at = at.0.entry(field).or_default();
        }
    }

    fn apply(&self, value: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        match value {
            Value::Object(fields) => {
                fields.retain(|field, value| match self.0.get(field.as_str()) {
                    Some(kept) => {
                        kept.apply(value);
                        true
                    }
                    None => false,
                });
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(mut object: Value, expected: &Value) {
        trim(&mut object);
        assert_eq!(&object, expected);
    }

    #[test]
    fn of_a_pod_nothing_is_kept_that_could_be_a_secret() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "ns", "labels": {"app": "a"}, "managedFields": [{"f": 1}],
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{\"password\": 1}",
                    "karpenter.sh/do-not-disrupt": "true",
                    "controller.kubernetes.io/pod-deletion-cost": "7",
                },
            },
            "spec": {
                "serviceAccountName": "s", "imagePullSecrets": [{"name": "x"}],
                "containers": [{
                    "name": "c", "image": "i", "command": ["sh"], "args": ["--token=t"],
                    "env": [{"name": "PASSWORD", "value": "hunter2"}], "envFrom": [{"secretRef": {"name": "s"}}],
                    "resources": {"requests": {"cpu": 1}}, "ports": [{"containerPort": 80, "hostPort": 80}],
                }],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "s"}},
                    {"name": "b", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}},
                ],
            },
            "status": {"phase": "Pending", "podIP": "10.0.0.1", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
            ]},
        });
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "ns", "labels": {"app": "a"},
                "annotations": {
                    "karpenter.sh/do-not-disrupt": "true", "controller.kubernetes.io/pod-deletion-cost": "7",
                },
            },
            "spec": {
                "containers": [{
                    "name": "c", "resources": {"requests": {"cpu": 1}},
                    "ports": [{"containerPort": 80, "hostPort": 80}],
                }],
                "volumes": [{"name": "a"}, {"name": "b", "persistentVolumeClaim": {"claimName": "c"}}],
            },
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
            ]},
        });
        check(pod, &expected);
    }

    #[test]
    fn templates_are_trimmed_like_pods() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": 2, "strategy": {}, "template": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"checksum/config": "x"}},
                "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}]},
            }},
        });
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": 2, "template": {
                "metadata": {"labels": {"a": "b"}, "annotations": {}},
                "spec": {"containers": [{"name": "c"}]},
            }},
        });
        check(deployment, &expected);
    }

    #[test]
    fn of_a_node_class_only_what_its_provider_names_is_kept() {
        let mut class = json!({
            "apiVersion": "cloud.example/v1", "kind": "ExampleNodeClass",
            "metadata": {
                "name": "a", "generation": 2, "resourceVersion": "7",
                "annotations": {"karpenter.cloud.example/hash": "1", "example.com/password": "hunter2"},
            },
            "spec": {"zones": ["a"], "userData": "PASSWORD=hunter2"},
            "status": {"images": [{"id": "i", "owner": "o"}]},
        });
        trim_node_class(&mut class, &["spec.zones", "status.images.id"]);
        let expected = json!({
            "apiVersion": "cloud.example/v1", "kind": "ExampleNodeClass",
            "metadata": {
                "name": "a", "generation": 2, "annotations": {"karpenter.cloud.example/hash": "1"},
            },
            "spec": {"zones": ["a"]}, "status": {"images": [{"id": "i"}]},
        });
        assert_eq!(class, expected);
    }

    #[test]
    fn of_a_volume_source_its_presence_is_kept() {
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {"hostPath": {"path": "/x"}, "csi": {"driver": "d", "volumeHandle": "h"}}});
        let expected = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
            "spec": {"hostPath": {}, "csi": {"driver": "d"}}});
        check(volume, &expected);
    }

    #[test]
    fn what_is_not_read_is_gone() {
        check(json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "b"}}), &Value::Null);
        check(json!(["no object"]), &Value::Null);
    }
}
