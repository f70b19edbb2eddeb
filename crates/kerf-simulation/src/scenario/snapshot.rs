//! A scenario from a snapshot of a real cluster: it begins with the nodes and pods that are there.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kerf_api::{GoDuration, TERMINATION_FINALIZER, conditions, labels, taints};
use serde_json::{Map, Value, json};

use super::{OverlayEntry, PoolEntry, Scenario, Timing, Wrong};
use crate::{
    cloud::Cloud,
    initial::{InitialCluster, InitialNode, Set},
    ledger::text,
    load::Load,
    objects::WORKLOAD,
};

mod buffers;

/// What does not belong to a pod but to its life on one node, or would need objects that a snapshot does not hold.
const LEFT_OUT: [&str; 4] = ["nodeName", "volumes", "priorityClassName", "resourceClaims"];
/// Labels by which a controller tells its pods from each other.
const OF_SINGLE_PODS: [&str; 2] =
    ["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"];

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

/// `start` is when these things were so.
pub(super) fn scenario(items: Vec<Value>, start: Timestamp) -> Result<Scenario, Wrong> {
    let scenario = cluster(items, &[], start)?;
    if scenario.pools.is_empty() {
        let problem = "there is no NodePool in the snapshot, so no node can be launched; \
                       take it from a cluster with NodePools";
        return Err(Wrong::new("items", problem));
    }
    Ok(scenario)
}

/// The same where pools may come later: `later` are those.
pub(super) fn cluster(
    mut items: Vec<Value>,
    later: &[Value],
    start: Timestamp,
) -> Result<Scenario, Wrong> {
    let node_classes = node_classes(&items, later);
    // Lists of kubectl say more than snapshots; some of it would tie objects to the cluster they come from.
    items.iter_mut().for_each(kerf_manifests::trim);
    let (mut pools, mut claims, mut nodes, mut pods) = (vec![], vec![], vec![], vec![]);
    let (mut namespaces, mut objects, mut overlays) = (vec![], vec![], vec![]);
    let (mut wanted, mut templates) = (vec![], vec![]);
    for item in items.into_iter().filter(|item| !leaves(item)) {
        match text(&item, "/kind") {
            "NodePool" => pools.push(PoolEntry::of(&item)),
            "NodeClaim" => claims.push(item),
            "NodeOverlay" => overlays.push(OverlayEntry::of(&item)),
            "Node" => nodes.push(item),
            "Pod" => pods.push(item),
            "Namespace" => namespaces.push(bare(&item)),
            "DaemonSet" | "PodDisruptionBudget" => objects.push(bare(&item)),
            "CapacityBuffer" => wanted.push(item),
            "PodTemplate" => templates.push(buffers::pod_template(&item)),
            _ => {}
        }
    }
    let machines = machines(nodes, &claims, start);
    let sets = sets(&pods, &machines);
    let buffers = wanted.iter().filter_map(|buffer| buffers::entry(buffer, &sets)).collect();
    let count = sets.iter().map(|set| set.pods.len()).sum::<usize>();
    Ok(Scenario {
        name: String::new(),
        description: format!("{} nodes and {count} pods of a snapshot of {start}.", machines.len()),
        length: day()?,
        seed: 0,
        start,
        timing: Timing::default(),
        operator: BTreeMap::new(),
        instance_types_file: None,
        instance_types: Vec::new(),
        prices: Vec::new(),
        pools,
        overlays,
        buffers,
        workloads: Vec::new(),
        policies: Vec::new(),
        cloud: Cloud::default(),
        load: Load::default(),
        initial: InitialCluster {
            node_classes,
            objects: namespaces.into_iter().chain(objects).chain(templates).collect(),
            machines,
            sets,
        },
        record: Vec::new(),
        pace: None,
    })
}

fn day() -> Result<GoDuration, Wrong> {
    "24h".parse().map_err(|_| Wrong::new("length", "24h"))
}

/// Those that pools and claims refer to. They are read before the items are trimmed to the kinds that decisions know.
fn node_classes(items: &[Value], later: &[Value]) -> Vec<Value> {
    let mut kinds = kerf_manifests::referenced_node_classes(items);
    kinds.extend(kerf_manifests::referenced_node_classes(later));
    let is_class = |item: &&Value| {
        let group = text(item, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        kinds.contains(&(group.to_owned(), text(item, "/kind").to_owned()))
    };
    items.iter().filter(is_class).cloned().collect()
}

/// What was about to go when the snapshot was taken has gone.
fn leaves(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// The nodes, the oldest first. One that is about to go is not among them, nor one whose claim is.
fn machines(nodes: Vec<Value>, claims: &[Value], start: Timestamp) -> Vec<InitialNode> {
    let mut machines = Vec::new();
    for node in nodes {
        let (name, id) = (text(&node, "/metadata/name"), text(&node, "/spec/providerID"));
        let claim = claims.iter().find(|claim| {
            text(claim, "/status/nodeName") == name
                || (!id.is_empty() && text(claim, "/status/providerID") == id)
        });
        let is_of_pool = node["metadata"]["labels"].get(labels::NODE_POOL).is_some();
        if claim.is_none() && is_of_pool {
            continue;
        }
        let created = text(&node, "/metadata/creationTimestamp").parse().unwrap_or(start);
        let claim = claim.map(|claim| initial_claim(claim, name));
        machines.push(InitialNode { created, node: initial_node(&node, claim.is_some()), claim });
    }
    machines.sort_by(|a, b| {
        let name = |machine: &InitialNode| text(&machine.node, "/metadata/name").to_owned();
        a.created.cmp(&b.created).then_with(|| name(a).cmp(&name(b)))
    });
    machines
}

/// As the simulated cloud would have made it.
fn initial_node(node: &Value, has_claim: bool) -> Value {
    let name = text(node, "/metadata/name");
    let mut metadata = kept_metadata(node);
    // By this the testbed knows the nodes whose kubelet it plays.
    metadata["annotations"]["kwok.x-k8s.io/node"] = "fake".into();
    if has_claim {
        metadata["finalizers"] = json!([TERMINATION_FINALIZER]);
    }
    let tainted = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    // Those that follow from a node's state are for whoever sees it.
    let lasting = tainted.filter(|taint| {
        let key = taint["key"].as_str().unwrap_or_default();
        !key.starts_with("node.kubernetes.io/") && key != taints::DISRUPTED
    });
    let mut spec = json!({
        "providerID": format!("kwok://{name}"), "taints": lasting.collect::<Vec<_>>(),
    });
    if node["spec"]["unschedulable"] == true {
        spec["unschedulable"] = true.into();
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec,
        "status": {
            "capacity": node["status"]["capacity"], "allocatable": node["status"]["allocatable"],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
        },
    })
}

fn initial_claim(claim: &Value, node: &str) -> Value {
    let mut metadata = kept_metadata(claim);
    metadata["finalizers"] = json!([TERMINATION_FINALIZER]);
    let mut status = claim["status"].clone();
    status["providerID"] = format!("kwok://{node}").into();
    status["nodeName"] = node.into();
    if let Some(all) = status["conditions"].as_array_mut() {
        all.retain(|one| one["type"] != conditions::DISRUPTION_REASON);
    }
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": metadata,
        "spec": claim["spec"], "status": status,
    })
}

/// Pods of the same owner belong to one set, whatever their owner was: when one goes, another comes. Those of daemons come
/// with their `DaemonSet`s, static pods with their nodes, and those that have ended need no place.
fn sets(pods: &[Value], machines: &[InitialNode]) -> Vec<Set> {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&Value>> = BTreeMap::new();
    for pod in pods {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        let owner_text = |field: &str| owner.and_then(|owner| owner[field].as_str());
        let kind = owner_text("kind").unwrap_or("Pod");
        let over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        if over || kind == "DaemonSet" || kind == "Node" {
            continue;
        }
        let name = owner_text("name").unwrap_or_else(|| text(pod, "/metadata/name"));
        let key = (text(pod, "/metadata/namespace"), name, kind);
        groups.entry(key).or_default().push(pod);
    }
    let mut sets: Vec<Set> = Vec::new();
    for (index, ((namespace, owner, kind), members)) in groups.into_iter().enumerate() {
        let mark = format!("set-{index}");
        let taken = sets.iter().any(|other| {
            (text(&other.object, "/metadata/namespace"), text(&other.object, "/metadata/name"))
                == (namespace, owner)
        });
        let name =
            if taken { format!("{owner}-{}", kind.to_ascii_lowercase()) } else { owner.to_owned() };
        let object = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": members.len(), "selector": {"matchLabels": {WORKLOAD: mark}},
                "template": template(members[0], &mark),
            },
        });
        let workload = format!("{namespace}/{}", workload_name(owner, members[0]));
        let scales = !matches!(kind, "Job" | "Pod");
        let pods = members.into_iter().map(|pod| initial_pod(pod, &mark, machines)).collect();
        sets.push(Set { object, pods, workload, scales });
    }
    sets
}

/// The name of a Deployment, where the owner of the pod is one of its `ReplicaSet`s; else that of the owner.
fn workload_name<'a>(owner: &'a str, pod: &Value) -> &'a str {
    let hash = pod["metadata"]["labels"]["pod-template-hash"].as_str().unwrap_or_default();
    let of_deployment = owner.strip_suffix(hash).and_then(|rest| rest.strip_suffix('-'));
    of_deployment.filter(|_| !hash.is_empty()).unwrap_or(owner)
}

pub(super) fn template(pod: &Value, mark: &str) -> Value {
    let mut metadata = kept_metadata(pod);
    for field in ["name", "namespace"] {
        metadata.as_object_mut().map(|all| all.remove(field));
    }
    if let Some(labels) = metadata["labels"].as_object_mut() {
        labels.retain(|key, _| !OF_SINGLE_PODS.contains(&key.as_str()));
    }
    metadata["labels"][WORKLOAD] = mark.into();
    json!({"metadata": metadata, "spec": pod_spec(&pod["spec"])})
}

/// On its node, if that is there; else it waits for one.
fn initial_pod(pod: &Value, mark: &str, machines: &[InitialNode]) -> Value {
    let mut metadata = kept_metadata(pod);
    metadata["labels"][WORKLOAD] = mark.into();
    let mut spec = pod_spec(&pod["spec"]);
    let node = text(pod, "/spec/nodeName");
    let mut initial =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": null});
    if machines.iter().any(|machine| text(&machine.node, "/metadata/name") == node) {
        spec.insert("nodeName".to_owned(), node.into());
        let mut status = Map::new();
        for field in ["phase", "startTime", "conditions"] {
            let value = &pod["status"][field];
            if !value.is_null() {
                status.insert(field.to_owned(), value.clone());
            }
        }
        initial["status"] = status.into();
    }
    initial["spec"] = spec.into();
    initial
}

pub(super) fn pod_spec(spec: &Value) -> Map<String, Value> {
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    spec.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
    complete(&mut spec);
    spec
}

/// Without what the API server has added to it.
pub(super) fn bare(object: &Value) -> Value {
    let mut bare = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": kept_metadata(object),
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

pub(super) fn kept_metadata(object: &Value) -> Value {
    let mut kept = Map::new();
    for field in ["name", "namespace", "labels", "annotations"] {
        let value = &object["metadata"][field];
        if !value.is_null() {
            kept.insert(field.to_owned(), value.clone());
        }
    }
    kept.into()
}

/// Snapshots keep no images.
fn complete(spec: &mut Map<String, Value>) {
    for field in ["containers", "initContainers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.insert("image".to_owned(), "example.com/app:1".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::new_year, *};

    fn pod(name: &str, owner: &str, phase: &str) -> Value {
        let (kind, owner) = owner.split_once('/').unwrap();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "shop", "labels": {"app": "x", "apps.kubernetes.io/pod-index": "1"},
                "ownerReferences": [{"kind": kind, "name": owner, "controller": true}],
            },
            "spec": {
                "nodeName": "n", "nodeSelector": {"disk": "ssd"}, "priority": 7,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": phase},
        })
    }

    fn node(name: &str, created: &str, labels: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "creationTimestamp": created, "labels": labels},
            "spec": {"providerID": format!("aws:///{name}"), "taints": [
                {"key": "team", "effect": "NoSchedule"},
                {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            ]},
            "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3900m"}},
        })
    }

    fn pool() -> Value {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {}})
    }

    fn claim(name: &str, node: &str) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
            "spec": {"nodeClassRef": {"group": "g", "kind": "EC2NodeClass", "name": "x"}},
            "status": {"nodeName": node, "providerID": format!("aws:///{node}"), "conditions": [
                {"type": "Initialized", "status": "True"}, {"type": "DisruptionReason", "status": "True"},
            ]},
        })
    }

    #[test]
    fn pods_of_one_owner_become_one_set_on_the_nodes_they_have() {
        let machine =
            InitialNode { created: new_year(), node: node("n", "", &json!({})), claim: None };
        let mut elsewhere = pod("d", "ReplicaSet/web-1", "Running");
        elsewhere["spec"]["nodeName"] = "gone".into();
        let pods = [
            pod("a", "ReplicaSet/web-1", "Running"),
            pod("b", "ReplicaSet/web-1", "Failed"),
            pod("c", "StatefulSet/web-1", "Running"),
            elsewhere,
            pod("e", "DaemonSet/agent", "Running"),
            pod("f", "Node/n", "Running"),
        ];
        let found = sets(&pods, &[machine]);
        let counts: Vec<_> = found
            .iter()
            .map(|one| {
                (text(&one.object, "/metadata/name"), one.object["spec"]["replicas"].as_u64())
            })
            .collect();
        assert_eq!(counts, [("web-1", Some(2)), ("web-1-statefulset", Some(1))]);
        let Set { object, pods, workload, scales } = &found[0];
        assert_eq!((workload.as_str(), *scales), ("shop/web-1", true));
        let template = &object["spec"]["template"];
        assert_eq!(template["metadata"]["labels"], json!({"app": "x", WORKLOAD: "set-0"}));
        assert_eq!(template["spec"]["nodeSelector"]["disk"], "ssd");
        assert_eq!(template["spec"]["priority"], 7);
        assert_eq!(template["spec"].get("nodeName"), None);
        let places: Vec<_> = pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
        assert_eq!(places, ["n", ""], "a pod whose node is not there waits");
        assert_eq!(pods[0]["status"]["phase"], "Running");
        assert_eq!(pods[1].get("status"), None);
    }

    #[test]
    fn nodes_become_machines_of_the_simulated_cloud() {
        let of_pool = json!({"karpenter.sh/nodepool": "p"});
        let mut going = claim("c3", "n3");
        going["metadata"]["deletionTimestamp"] = "2026-02-01T00:00:00Z".into();
        let items = vec![
            pool(),
            node("n2", "2026-01-02T00:00:00Z", &of_pool),
            node("n1", "2026-01-01T00:00:00Z", &json!({})),
            node("n3", "2026-01-03T00:00:00Z", &of_pool),
            claim("c2", "n2"),
            going,
        ];
        let read = scenario(items, new_year()).unwrap();
        let machines = &read.initial.machines;
        let names: Vec<_> = machines.iter().map(|one| text(&one.node, "/metadata/name")).collect();
        assert_eq!(names, ["n1", "n2"], "the oldest first, and none that is about to go");
        assert!(machines[0].claim.is_none(), "a node that no pool made");
        let (node, claim) = (&machines[1].node, machines[1].claim.as_ref().unwrap());
        assert_eq!(node["spec"]["taints"], json!([{"key": "team", "effect": "NoSchedule"}]));
        assert_eq!(node["spec"]["providerID"], "kwok://n2");
        assert_eq!(claim["status"]["providerID"], "kwok://n2");
        assert_eq!(claim["spec"]["nodeClassRef"]["kind"], "EC2NodeClass");
        assert_eq!(claim["status"]["conditions"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_snapshot_begins_at_the_last_time_that_it_knows_of() {
        let items = [pool(), node("n", "2026-01-03T00:00:00Z", &json!({}))];
        for (list, expected) in [
            (json!({"kind": "List", "items": items}), "2026-01-03T00:00:00Z"),
            (
                json!({"kind": "List", "takenAt": "2026-01-03T12:00:00Z", "items": items}),
                "2026-01-03T12:00:00Z",
            ),
        ] {
            let read = Scenario::from_yaml(&list.to_string(), "x.json").unwrap();
            assert_eq!(read.start.to_string(), expected);
        }
    }

    #[test]
    fn a_snapshot_without_pools_is_refused() {
        let told = scenario(vec![pod("a", "ReplicaSet/web", "Running")], new_year()).unwrap_err();
        assert!(told.problem.contains("no NodePool"));
    }
}
