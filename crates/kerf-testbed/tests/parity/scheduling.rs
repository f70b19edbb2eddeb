//! Which pods go where, which do not, and what is said about those.

mod company;
mod places;

use super::harness::{Cluster, condition, text};
use futures::FutureExt;
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

struct Row {
    name: &'static str,
    /// Name, and what is merged into a node of four CPUs.
    nodes: Vec<(&'static str, Value)>,
    /// Objects that are there before the pods.
    objects: Vec<(&'static str, Value)>,
    /// Name (and app), what is merged into the spec of a pod that asks for nothing, and what becomes of it. They come
    /// one after the other.
    pods: Vec<(&'static str, Value, Outcome)>,
}

enum Outcome {
    On(&'static str),
    /// The reason of the condition, and its message up to the first full stop.
    Waits(&'static str, &'static str),
    /// Nobody says anything about it.
    Ignored,
}
use Outcome::{Ignored, On, Waits};

pub(crate) async fn play(cluster: &mut Cluster) {
    for row in rows() {
        cluster.begin(row.name).await;
        if !cluster.namespace.is_empty() {
            let outcome = AssertUnwindSafe(check(cluster, &row)).catch_unwind().await;
            cluster.end(row.name, outcome.is_ok()).await;
        }
    }
}

async fn check(cluster: &Cluster, row: &Row) {
    cluster.add_nodes(&row.nodes).await;
    for (kind, object) in &row.objects {
        // Volumes outlive the case before by a moment, so each case has names of its own.
        let own = |name: &str| format!("\"{}-{name}\"", cluster.namespace);
        let object = object.to_string().replace("\"disks\"", &own("disks"));
        let object = object.replace("\"volume\"", &own("volume"));
        cluster.create(kind, serde_json::from_str(&object).unwrap()).await;
    }
    for (name, changes, outcome) in &row.pods {
        cluster.create("Pod", cluster.pod(name, changes.clone())).await;
        let what = format!("{}: pod {name} is where it should be", row.name);
        cluster
            .until(&what, async || {
                let pod = cluster.get("Pod", name).await;
                let scheduled = condition(&pod, "PodScheduled");
                let message = text(scheduled, "/message");
                let message = message.split(". ").next().unwrap_or_default().trim_end_matches('.');
                let is = match outcome {
                    On(node) => {
                        pod["spec"]["nodeName"] == *node && pod["status"]["phase"] == "Running"
                    }
                    Waits(reason, said) => scheduled["reason"] == *reason && message == *said,
                    Ignored => scheduled.is_null() && pod["spec"]["nodeName"].is_null(),
                };
                let now = || format!("on {} {scheduled}", text(&pod, "/spec/nodeName"));
                if is { Ok(()) } else { Err(now()) }
            })
            .await;
    }
}

fn row(
    name: &'static str,
    nodes: impl Into<Vec<(&'static str, Value)>>,
    pods: impl Into<Vec<(&'static str, Value, Outcome)>>,
) -> Row {
    Row { name, nodes: nodes.into(), objects: Vec::new(), pods: pods.into() }
}

fn plain() -> Value {
    json!({})
}

fn labelled(labels: Value) -> Value {
    json!({ "metadata": { "labels": labels } })
}

fn zone(name: &str) -> Value {
    labelled(json!({ ZONE: name }))
}

fn tainted(effect: &str) -> Value {
    json!({ "spec": { "taints": [{ "key": "team", "value": "blue", "effect": effect }] } })
}

fn requests(amounts: Value) -> Value {
    json!({ "containers": [container(amounts)] })
}

fn container(amounts: Value) -> Value {
    json!({ "name": "main", "image": "example.com/app:1", "resources": { "requests": amounts } })
}

fn selecting(labels: Value) -> Value {
    json!({ "nodeSelector": labels })
}

fn node_affinity(expression: Value) -> Value {
    let terms = json!([{ "matchExpressions": [expression] }]);
    let required = json!({ "nodeSelectorTerms": terms });
    json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
}

fn port(protocol: &str, number: u16) -> Value {
    let mut main = container(json!({}));
    main["ports"] = json!([{ "containerPort": number, "hostPort": number, "protocol": protocol }]);
    json!({ "containers": [main] })
}

fn with_pods(kind: &str, app: &str, key: &str) -> Value {
    let term = json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } });
    json!({ "affinity": { kind: { "requiredDuringSchedulingIgnoredDuringExecution": [term] } } })
}

/// Spread over a key with all pods that exist, since each has an app.
fn spread(key: &str, more: Value) -> Value {
    let mut constraint = json!({
        "topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchExpressions": [{ "key": "app", "operator": "Exists" }] },
    });
    super::harness::json_merge(&mut constraint, &more);
    json!({ "topologySpreadConstraints": [constraint] })
}

fn merged(mut one: Value, other: Value) -> Value {
    super::harness::json_merge(&mut one, &other);
    one
}

fn claim(name: &str, class: &str) -> (&'static str, Value) {
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": { "requests": { "storage": "1Gi" } },
    });
    ("PersistentVolumeClaim", json!({ "metadata": { "name": name }, "spec": spec }))
}

fn class(mode: &str) -> (&'static str, Value) {
    let provisioner = "kubernetes.io/no-provisioner";
    let class = json!({ "metadata": { "name": "disks" }, "provisioner": provisioner, "volumeBindingMode": mode });
    ("StorageClass", class)
}

fn volume(zone: &str) -> (&'static str, Value) {
    let here = json!({ "key": ZONE, "operator": "In", "values": [zone] });
    let spec = json!({
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
        "csi": { "driver": "disks.example.com", "volumeHandle": "a" },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [here] }] } },
    });
    ("PersistentVolume", json!({ "metadata": { "name": "volume" }, "spec": spec }))
}

fn mounting(claim: &str) -> Value {
    json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] })
}

fn rows() -> Vec<Row> {
    let mut rows = room();
    rows.extend(places::rows());
    rows.extend(company::rows());
    rows.extend(volumes());
    rows
}

/// Resources.
fn room() -> Vec<Row> {
    let sidecar = json!({
        "initContainers": [merged(
            json!({ "name": "side", "restartPolicy": "Always" }),
            merged(container(json!({ "cpu": "2" })), json!({ "name": "side" })),
        )],
        "containers": [container(json!({ "cpu": "3" }))],
    });
    let initial = json!({
        "initContainers": [merged(container(json!({ "cpu": "5" })), json!({ "name": "first" }))],
    });
    vec![
        row("room_for_one", [("a", plain())], [("web", requests(json!({ "cpu": "4" })), On("a"))]),
        row(
            "too_little_cpu",
            [("a", plain())],
            [(
                "web",
                requests(json!({ "cpu": "5" })),
                Waits("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu"),
            )],
        ),
        row(
            "too_little_of_two_things",
            [("a", plain()), ("b", plain())],
            [(
                "web",
                requests(json!({ "cpu": "5", "memory": "17Gi" })),
                Waits(
                    "Unschedulable",
                    "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory",
                ),
            )],
        ),
        row(
            "nothing_left",
            [("a", plain())],
            [
                ("one", requests(json!({ "cpu": "3" })), On("a")),
                (
                    "two",
                    requests(json!({ "cpu": "2" })),
                    Waits("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu"),
                ),
                ("three", requests(json!({ "cpu": "1" })), On("a")),
            ],
        ),
        row(
            "too_many_pods",
            [("a", json!({ "status": { "allocatable": { "pods": "1" } } }))],
            [
                ("one", plain(), On("a")),
                (
                    "two",
                    plain(),
                    Waits("Unschedulable", "0/1 nodes are available: 1 Too many pods"),
                ),
            ],
        ),
        row(
            "a_resource_that_no_node_has",
            [("a", plain())],
            [(
                "web",
                json!({ "containers": [merged(container(json!({ "example.com/gpu": "1" })), json!({
                    "resources": { "limits": { "example.com/gpu": "1" } },
                }))] }),
                Waits("Unschedulable", "0/1 nodes are available: 1 Insufficient example.com/gpu"),
            )],
        ),
        row(
            "a_resource_that_one_node_has",
            [
                ("a", plain()),
                (
                    "b",
                    json!({ "status": {
                    "capacity": { "example.com/gpu": "1" }, "allocatable": { "example.com/gpu": "1" },
                } }),
                ),
            ],
            [(
                "web",
                json!({ "containers": [merged(container(json!({ "example.com/gpu": "1" })), json!({
                    "resources": { "limits": { "example.com/gpu": "1" } },
                }))] }),
                On("b"),
            )],
        ),
        row(
            "too_little_scratch_space",
            [("a", plain())],
            [(
                "web",
                requests(json!({ "ephemeral-storage": "11Gi" })),
                Waits("Unschedulable", "0/1 nodes are available: 1 Insufficient ephemeral-storage"),
            )],
        ),
        row(
            "an_init_container_that_needs_most",
            [("a", plain())],
            [(
                "web",
                initial,
                Waits("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu"),
            )],
        ),
        row(
            "a_sidecar_counts_besides_the_others",
            [("a", plain())],
            [(
                "web",
                sidecar,
                Waits("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu"),
            )],
        ),
        row(
            "the_emptier_node_is_taken",
            [("a", plain()), ("b", plain())],
            [
                (
                    "one",
                    merged(requests(json!({ "cpu": "2" })), selecting(json!({ HOSTNAME: "a" }))),
                    On("a"),
                ),
                ("two", requests(json!({ "cpu": "1" })), On("b")),
            ],
        ),
        row(
            "no_nodes_at_all",
            [],
            [("web", plain(), Waits("Unschedulable", "no nodes available to schedule pods"))],
        ),
    ]
}

fn volumes() -> Vec<Row> {
    let row = |name, nodes: &[(&'static str, Value)], objects, pods| {
        let nodes = nodes.to_vec();
        Row { name, nodes, objects, pods }
    };
    let node = [("a", zone("x"))];
    vec![
        row(
            "a_claim_that_is_missing",
            &node,
            vec![],
            vec![(
                "web",
                mounting("data"),
                Waits(
                    "Unschedulable",
                    "0/1 nodes are available: persistentvolumeclaim \"data\" not found",
                ),
            )],
        ),
        row(
            "a_claim_that_has_no_volume_yet",
            &node,
            vec![class("Immediate"), claim("data", "disks")],
            vec![(
                "web",
                mounting("data"),
                Waits(
                    "Unschedulable",
                    "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims",
                ),
            )],
        ),
        row(
            "a_claim_that_finds_no_volume",
            &node,
            vec![class("WaitForFirstConsumer"), claim("data", "disks")],
            vec![(
                "web",
                mounting("data"),
                Waits(
                    "Unschedulable",
                    "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind",
                ),
            )],
        ),
        row(
            "a_pod_goes_where_its_volume_can_be",
            &[("a", zone("x")), ("b", zone("y"))],
            vec![class("WaitForFirstConsumer"), claim("data", "disks"), volume("y")],
            vec![("web", mounting("data"), On("b")), ("next", mounting("data"), On("b"))],
        ),
        row(
            "a_volume_that_is_elsewhere",
            &node,
            vec![class("Immediate"), volume("y"), claim("data", "disks")],
            vec![(
                "web",
                mounting("data"),
                Waits(
                    "Unschedulable",
                    "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity",
                ),
            )],
        ),
    ]
}
