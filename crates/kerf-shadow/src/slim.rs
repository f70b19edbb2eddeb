//! What is kept of an object: what decisions use, without names of pods and without what changes all the time.

use jiff::Timestamp;
use kerf_api::conditions;
use kube::api::ApiResource;
use serde_json::{Value, json};

use crate::entry::{Phase, text};

/// Labels and annotations by which a controller tells its pods from each other. Some hold a pod's name.
const OF_SINGLE_PODS: [&str; 3] = [
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
];

/// The conditions of a NodeClaim that accounts and replays read. Others come and go with each pod.
const CONDITIONS: [&str; 6] = [
    conditions::READY,
    conditions::LAUNCHED,
    conditions::REGISTERED,
    conditions::INITIALIZED,
    conditions::DRIFTED,
    conditions::DISRUPTION_REASON,
];

/// A pod as it was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenPod {
    pub(crate) id: String,
    pub(crate) owner: Owner,
    /// Labels, annotations and spec, without what belongs to this pod alone.
    pub(crate) pod: Value,
    pub(crate) node: String,
    pub(crate) phase: Phase,
    pub(crate) leaves: bool,
    pub(crate) evicted: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) namespace: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// Reads a pod of a list or a watch. `None`: it has no UID, and could not be told from others.
pub(crate) fn pod(item: Value, resource: &ApiResource) -> Option<SeenPod> {
    let item = kerf_manifests::dumped(item, resource);
    let id = pod_id(text(&item, "/metadata/uid"))?;
    let owners = item.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    let (kind, name) = match controller {
        Some(owner) => (text(owner, "/kind").to_owned(), text(owner, "/name").to_owned()),
        None => ("Pod".to_owned(), format!("pod-{id}")),
    };
    let namespace = text(&item, "/metadata/namespace").to_owned();
    let mut kept = json!({});
    for part in ["labels", "annotations"] {
        if let Some(all) = item["metadata"][part].as_object() {
            let mut all = all.clone();
            all.retain(|key, _| !OF_SINGLE_PODS.contains(&key.as_str()));
            if !all.is_empty() {
                kept["metadata"][part] = all.into();
            }
        }
    }
    if let Some(spec) = item["spec"].as_object() {
        let mut spec = spec.clone();
        // Claims of volumes are named after pods, and a replay has no volumes.
        spec.retain(|field, _| field != "nodeName" && field != "volumes");
        kept["spec"] = spec.into();
    }
    let target = condition(&item, "DisruptionTarget");
    Some(SeenPod {
        id,
        owner: Owner { namespace, kind, name },
        pod: kept,
        node: text(&item, "/spec/nodeName").to_owned(),
        phase: match text(&item, "/status/phase") {
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            _ => Phase::Pending,
        },
        leaves: !text(&item, "/metadata/deletionTimestamp").is_empty(),
        evicted: target.map(|target| {
            text(target, "/lastTransitionTime").parse().unwrap_or(Timestamp::UNIX_EPOCH)
        }),
    })
}

/// Half of a UID tells the pods of a cluster apart, and is half as long.
pub(crate) fn pod_id(uid: &str) -> Option<String> {
    let id: String = uid.chars().filter(|c| *c != '-').take(16).collect();
    (!id.is_empty()).then_some(id)
}

/// Reads a NodeClass of a list or a watch: of its spec and status, these fields.
pub(crate) fn node_class(item: Value, resource: &ApiResource, fields: &[&'static str]) -> Value {
    without_ties(kerf_manifests::dumped_node_class(item, resource, fields))
}

/// What ties an object to its cluster is left out.
fn without_ties(mut item: Value) -> Value {
    if let Some(metadata) = item["metadata"].as_object_mut() {
        metadata.retain(|field, _| field != "uid" && field != "ownerReferences");
        for part in ["labels", "annotations"] {
            if metadata
                .get(part)
                .is_some_and(|all| all.as_object().is_some_and(serde_json::Map::is_empty))
            {
                metadata.remove(part);
            }
        }
    }
    item
}

/// Reads any other object of a list or a watch.
pub(crate) fn object(item: Value, resource: &ApiResource) -> Value {
    let mut item = without_ties(kerf_manifests::dumped(item, resource));
    match resource.kind.as_str() {
        "NodeClaim" => {
            if let Some(all) = item.pointer_mut("/status/conditions").and_then(Value::as_array_mut)
            {
                all.retain(|one| CONDITIONS.contains(&text(one, "/type")));
                for one in all {
                    if let Some(fields) = one.as_object_mut() {
                        fields
                            .retain(|field, _| field != "message" && field != "observedGeneration");
                    }
                }
            }
        }
        "Node" => {
            if let Some(status) = item["status"].as_object_mut() {
                status.retain(|field, _| field != "conditions");
            }
        }
        _ => {
            if let Some(fields) = item.as_object_mut() {
                fields.remove("status");
            }
        }
    }
    item
}

/// Whether two looks at an object differ in anything that counts. When a pod last came to or left a node changes with each pod.
pub(crate) fn differ(before: &Value, now: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("lastPodEventTime");
        }
        object
    };
    before != now && without(before) != without(now)
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|one| one["type"] == kind && one["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::GroupVersionKind;

    fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    #[test]
    fn of_a_pod_its_workload_is_kept_and_nothing_that_is_its_own() {
        let item = json!({
            "metadata": {
                "name": "web-0", "namespace": "shop", "uid": "0123-4567-89ab-cdef-0000",
                "labels": {"app": "web", "statefulset.kubernetes.io/pod-name": "web-0"},
                "annotations": {"karpenter.sh/do-not-disrupt": "true", "example.com/token": "hunter2"},
                "ownerReferences": [{"kind": "StatefulSet", "name": "web", "controller": true}],
            },
            "spec": {
                "nodeName": "n", "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d-web-0"}}],
                "containers": [{"name": "c", "image": "i", "env": [{"name": "PASSWORD", "value": "hunter2"}],
                    "resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
                {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        let seen = pod(item, &resource("", "v1", "Pod")).unwrap();
        assert_eq!((seen.id.as_str(), seen.node.as_str()), ("0123456789abcdef", "n"));
        assert_eq!(seen.owner.kind, "StatefulSet");
        assert!(seen.evicted.is_some() && !seen.leaves);
        assert_eq!(
            seen.pod,
            json!({
                "metadata": {"labels": {"app": "web"}, "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            })
        );
    }

    #[test]
    fn a_pod_without_an_owner_is_known_by_its_uid() {
        let item = json!({"metadata": {"name": "secret-name", "namespace": "d", "uid": "ab-cd"}, "spec": {}});
        let seen = pod(item, &resource("", "v1", "Pod")).unwrap();
        assert_eq!((seen.owner.kind.as_str(), seen.owner.name.as_str()), ("Pod", "pod-abcd"));
        assert!(!serde_json::to_string(&seen.pod).unwrap().contains("secret-name"));
        assert_eq!(pod(json!({"metadata": {"name": "x"}}), &resource("", "v1", "Pod")), None);
    }

    #[test]
    fn of_a_claim_what_changes_with_each_pod_does_not_count() {
        let claim = |reason: &str, last: &str| {
            let item = json!({
                "metadata": {"name": "c", "uid": "u", "ownerReferences": []},
                "status": {"nodeName": "n", "lastPodEventTime": last, "conditions": [
                    {"type": "Initialized", "status": "True", "reason": reason, "message": "m"},
                    {"type": "Consolidatable", "status": "True", "reason": last}]},
            });
            object(item, &resource("karpenter.sh", "v1", "NodeClaim"))
        };
        let first = claim("Initialized", "2026-01-01T00:00:00Z");
        assert_eq!(first["status"]["conditions"].as_array().unwrap().len(), 1);
        assert!(!differ(&first, &claim("Initialized", "2026-01-01T00:00:05Z")));
        assert!(differ(&first, &claim("Other", "2026-01-01T00:00:00Z")));
    }
}
