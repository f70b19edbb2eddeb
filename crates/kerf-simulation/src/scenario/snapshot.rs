//! A scenario from a snapshot of a real cluster: its pods become workloads.

use std::collections::BTreeMap;

use kerf_api::GoDuration;
use serde_json::{Map, Value, json};

use super::{PodTemplate, PoolEntry, Scenario, Timing, Workload, Wrong, new_year};
use crate::ledger::text;

/// What does not belong to a pod but to its life on one node, or would need objects that a snapshot does not hold.
const LEFT_OUT: [&str; 8] = [
    "nodeName",
    "volumes",
    "priority",
    "priorityClassName",
    "schedulerName",
    "serviceAccountName",
    "preemptionPolicy",
    "resourceClaims",
];
/// Labels that a controller gives to each generation of its pods.
const OF_CONTROLLERS: [&str; 3] =
    ["pod-template-hash", "controller-revision-hash", "statefulset.kubernetes.io/pod-name"];

/// The items of a list such as `kerf snapshot` writes; nothing for anything else.
pub(super) fn items(value: &mut Value) -> Option<Vec<Value>> {
    if value["kind"] != "List" {
        return None;
    }
    match value["items"].take() {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

pub(super) fn scenario(items: Vec<Value>) -> Result<Scenario, Wrong> {
    let (mut pools, mut pods, mut namespaces, mut objects) = (vec![], vec![], vec![], vec![]);
    for item in items {
        match text(&item, "/kind") {
            "NodePool" => pools.push(PoolEntry {
                name: text(&item, "/metadata/name").to_owned(),
                spec: item["spec"].as_object().cloned().unwrap_or_default(),
                changes: Vec::new(),
            }),
            "Pod" => pods.push(item),
            "Namespace" => namespaces.push(bare(&item)),
            "DaemonSet" | "PodDisruptionBudget" => objects.push(bare(&item)),
            _ => {}
        }
    }
    if pools.is_empty() {
        let problem = "there is no NodePool in the snapshot, so that no node can be launched";
        return Err(Wrong::new("items", problem));
    }
    let length: GoDuration = "24h".parse().map_err(|_| Wrong::new("length", "24h"))?;
    Ok(Scenario {
        name: String::new(),
        description: format!("The {} pods of a snapshot, under a constant load.", pods.len()),
        length,
        seed: 0,
        start: new_year(),
        timing: Timing::default(),
        operator: BTreeMap::new(),
        instance_types_file: None,
        instance_types: Vec::new(),
        prices: Vec::new(),
        pools,
        workloads: workloads(&pods),
        policies: Vec::new(),
        objects: namespaces.into_iter().chain(objects).collect(),
    })
}

/// Pods of the same owner are replicas of one workload. Those of daemons come with their DaemonSets, static pods with their
/// nodes, and those that have ended or are about to need no place.
fn workloads(pods: &[Value]) -> Vec<Workload> {
    let mut groups: BTreeMap<(String, String), (&Value, u32)> = BTreeMap::new();
    for pod in pods {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        let kind = owner.and_then(|owner| owner["kind"].as_str()).unwrap_or_default();
        let over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
            || !text(pod, "/metadata/deletionTimestamp").is_empty();
        if over || kind == "DaemonSet" || kind == "Node" {
            continue;
        }
        let owner = owner.and_then(|owner| owner["name"].as_str());
        let name = owner.unwrap_or_else(|| text(pod, "/metadata/name")).to_owned();
        let key = (text(pod, "/metadata/namespace").to_owned(), name);
        groups.entry(key).or_insert((pod, 0)).1 += 1;
    }
    let workload = |((namespace, name), (pod, replicas))| Workload {
        name,
        namespace,
        replicas: Some(replicas),
        steps: Vec::new(),
        daily: None,
        cron: None,
        daemon: false,
        pod: template(pod),
        budget: None,
    };
    groups.into_iter().map(workload).collect()
}

fn template(pod: &Value) -> PodTemplate {
    let texts = |path: &str| -> BTreeMap<String, String> {
        let all = pod.pointer(path).and_then(Value::as_object).into_iter().flatten();
        all.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    let mut labels = texts("/metadata/labels");
    labels.retain(|key, _| !OF_CONTROLLERS.contains(&key.as_str()));
    let mut spec = pod["spec"].as_object().cloned().unwrap_or_default();
    spec.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
    // A pod that ends by itself would be started again at once, which is no load that anybody had.
    spec.remove("restartPolicy");
    complete(&mut spec);
    PodTemplate {
        labels,
        annotations: texts("/metadata/annotations"),
        spec,
        ..PodTemplate::default()
    }
}

/// Without what the API server has added to it.
fn bare(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut kept = Map::new();
    for field in ["name", "namespace", "labels"] {
        if !metadata[field].is_null() {
            kept.insert(field.to_owned(), metadata[field].clone());
        }
    }
    let mut bare = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": kept,
    });
    if let Some(spec) = object["spec"].as_object() {
        let mut spec = spec.clone();
        if let Some(Value::Object(pod)) =
            spec.get_mut("template").map(|template| &mut template["spec"])
        {
            pod.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
            complete(pod);
        }
        bare["spec"] = spec.into();
    }
    bare
}

/// Snapshots keep no images, and mounts have lost their volumes.
fn complete(spec: &mut Map<String, Value>) {
    for field in ["containers", "initContainers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.insert("image".to_owned(), "example.com/app:1".into());
            container.remove("volumeMounts");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, owner: &str, phase: &str) -> Value {
        let (kind, owner) = owner.split_once('/').unwrap();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "shop", "labels": {"app": "x", "pod-template-hash": "1"},
                "ownerReferences": [{"kind": kind, "name": owner, "controller": true}],
            },
            "spec": {
                "nodeName": "n", "nodeSelector": {"disk": "ssd"},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": phase},
        })
    }

    #[test]
    fn pods_of_one_owner_become_one_workload() {
        let pods = [
            pod("a", "ReplicaSet/web-1", "Running"),
            pod("b", "ReplicaSet/web-1", "Pending"),
            pod("c", "ReplicaSet/web-1", "Failed"),
            pod("d", "StatefulSet/db", "Running"),
            pod("e", "DaemonSet/agent", "Running"),
        ];
        let found = workloads(&pods);
        let counts: Vec<_> = found.iter().map(|w| (w.name.as_str(), w.replicas.unwrap())).collect();
        assert_eq!(counts, [("db", 1), ("web-1", 2)]);
        assert_eq!(found[1].pod.labels, [("app".to_owned(), "x".to_owned())].into());
        assert_eq!(found[1].pod.spec["nodeSelector"]["disk"], "ssd");
        assert!(!found[1].pod.spec.contains_key("nodeName"));
    }

    #[test]
    fn a_snapshot_without_pools_is_refused() {
        let told = scenario(vec![pod("a", "ReplicaSet/web", "Running")]).unwrap_err();
        assert!(told.problem.contains("no NodePool"));
    }
}
