//! Where the scheduler puts pods, and what it says when it cannot.

use crate::harness::{Cluster, name_of, node, node_of, pod, with, workload};
use kerf_testbed::actors::{Actors, NEVER_ENDS};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::time::Duration;

/// The message of a pod that cannot be placed.
async fn refusal(cluster: &Cluster, name: &str) -> String {
    let mut message = String::new();
    cluster
        .until(&format!("the scheduler speaks of {name}"), async || {
            let pod = cluster.get("Pod", name).await;
            let list = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let scheduled = list.iter().find(|c| c["type"] == "PodScheduled");
            let Some(scheduled) = scheduled.filter(|c| c["reason"] == "Unschedulable") else {
                return false;
            };
            assert_eq!(scheduled["status"], "False");
            scheduled["message"].as_str().unwrap().clone_into(&mut message);
            true
        })
        .await;
    message
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_says_why_and_is_bound_when_a_node_comes() {
    let cluster = Cluster::start();
    cluster.create("Pod", pod("early", "early", "3")).await;
    assert_eq!(refusal(&cluster, "early").await, "no nodes available to schedule pods");
    cluster.add_nodes(&["a", "b"]).await;
    cluster.until_running("early", 1).await;
    cluster.create("Pod", pod("big", "big", "5")).await;
    let message = refusal(&cluster, "big").await;
    assert_eq!(message, "0/2 nodes are available: 2 Insufficient cpu.");
    let events = cluster.list("Event").await;
    let event = events.iter().find(|event| event["involvedObject"]["name"] == "big").unwrap();
    assert_eq!(event["reason"], "FailedScheduling");
    assert_eq!(event["message"], message.as_str());
    let large = json!({ "cpu": "8", "memory": "32Gi", "pods": "20" });
    let large = json!({ "capacity": large, "allocatable": large });
    cluster.create("Node", with(node("large"), "status", large)).await;
    cluster.until_running("big", 1).await;
    assert_eq!(node_of(&cluster.get("Pod", "big").await), "large");
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_room_that_another_leaves() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Pod", pod("first", "first", "3")).await;
    cluster.until_running("first", 1).await;
    cluster.create("Pod", pod("second", "second", "2")).await;
    refusal(&cluster, "second").await;
    cluster.delete("Pod", "first", DeleteParams::default()).await;
    cluster.until_running("second", 1).await;
}

/// Node `a`, ready, with something about it changed; a pod with something about it changed; what comes of it.
async fn check(
    node_path: &str,
    node_value: Value,
    pod_path: &str,
    pod_value: Value,
    refused: &str,
) {
    let cluster = Cluster::start();
    cluster.create("Node", with(node("a"), node_path, node_value.clone())).await;
    cluster
        .until("the node is ready", async || {
            let node = cluster.get("Node", "a").await;
            let taints = node["spec"]["taints"].to_string();
            crate::harness::condition(&node, "Ready")["status"] == "True"
                && !taints.contains("not-ready")
        })
        .await;
    cluster.create("Pod", with(pod("p", "p", "1"), pod_path, pod_value.clone())).await;
    if refused.is_empty() {
        cluster
            .until(&format!("{pod_value} runs on {node_value}"), async || {
                cluster.running("p").await == 1
            })
            .await;
    } else {
        let message = refusal(&cluster, "p").await;
        assert_eq!(
            message,
            format!("0/1 nodes are available: 1 {refused}."),
            "{pod_value} on {node_value}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn taints_keep_pods_away_unless_tolerated() {
    const TAINTED: &str = "node(s) had untolerated taint(s)";
    let taint = |effect: &str| json!([{ "key": "team", "value": "x", "effect": effect }]);
    let tolerate = |value: Value| json!([value]);
    for (effect, toleration, refused) in [
        ("NoSchedule", json!([]), TAINTED),
        ("NoExecute", json!([]), TAINTED),
        ("PreferNoSchedule", json!([]), ""),
        ("NoSchedule", tolerate(json!({ "key": "team", "operator": "Exists" })), ""),
        ("NoSchedule", tolerate(json!({ "key": "team", "operator": "Equal", "value": "x" })), ""),
        (
            "NoSchedule",
            tolerate(json!({ "key": "team", "operator": "Equal", "value": "y" })),
            TAINTED,
        ),
        (
            "NoSchedule",
            tolerate(json!({ "key": "team", "operator": "Exists", "effect": "NoExecute" })),
            TAINTED,
        ),
        ("NoSchedule", tolerate(json!({ "operator": "Exists" })), ""),
    ] {
        check("spec.taints", taint(effect), "spec.tolerations", toleration, refused).await;
    }
}

#[tokio::test(start_paused = true)]
async fn cordoned_nodes_take_no_pods() {
    let cordoned = "node(s) were unschedulable";
    check("spec.unschedulable", json!(true), "spec.tolerations", json!([]), cordoned).await;
    let tolerant = json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists" }]);
    check("spec.unschedulable", json!(true), "spec.tolerations", tolerant, "").await;
}

#[tokio::test(start_paused = true)]
async fn node_affinity_decides_by_labels_and_names() {
    const OTHER: &str = "node(s) didn't match Pod's node affinity/selector";
    let labels = json!({ "zone": "z1", "cores": "16", "kubernetes.io/hostname": "a" });
    let requires = |terms: Value| json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
    let expression = |key: &str, operator: &str, values: Value| json!([{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }]);
    for (terms, refused) in [
        (expression("zone", "In", json!(["z1", "z2"])), ""),
        (expression("zone", "In", json!(["z2"])), OTHER),
        (expression("zone", "NotIn", json!(["z2"])), ""),
        (expression("absent", "NotIn", json!(["z2"])), ""),
        (expression("zone", "Exists", json!([])), ""),
        (expression("absent", "Exists", json!([])), OTHER),
        (expression("absent", "DoesNotExist", json!([])), ""),
        (expression("cores", "Gt", json!(["8"])), ""),
        (expression("cores", "Gt", json!(["16"])), OTHER),
        (expression("cores", "Lt", json!(["17"])), ""),
        (expression("absent", "Lt", json!(["17"])), OTHER),
        (
            json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] }]),
            "",
        ),
        (
            json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["b"] }] }]),
            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
        ),
        (
            json!([
                { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["z2"] }] },
                { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["z1"] }] },
            ]),
            "",
        ),
    ] {
        check("metadata.labels", labels.clone(), "spec.affinity", requires(terms), refused).await;
    }
    check("metadata.labels", labels.clone(), "spec.nodeSelector", json!({ "zone": "z1" }), "")
        .await;
    check("metadata.labels", labels, "spec.nodeSelector", json!({ "zone": "z2" }), OTHER).await;
}

#[tokio::test(start_paused = true)]
async fn room_is_counted_for_each_resource() {
    let none = json!({});
    let containers = |requests: Value| json!([{ "name": "main", "image": "example.com/app:1", "resources": { "requests": requests } }]);
    for (requests, refused) in [
        (json!({ "cpu": "4" }), ""),
        (json!({ "cpu": "4001m" }), "Insufficient cpu"),
        (json!({ "memory": "17Gi" }), "Insufficient memory"),
        (json!({ "example.com/gpu": "1" }), "Insufficient example.com/gpu"),
        (json!({ "cpu": "5", "memory": "17Gi" }), "Insufficient cpu, 1 Insufficient memory"),
    ] {
        check("metadata.labels", none.clone(), "spec.containers", containers(requests), refused)
            .await;
    }
    let full = json!({ "capacity": { "cpu": "4", "pods": "0" }, "allocatable": { "cpu": "4", "pods": "0" } });
    check("status", full, "spec.tolerations", json!([]), "Too many pods").await;
    let init = json!([{ "name": "init", "image": "example.com/app:1", "resources": { "requests": { "cpu": "5" } } }]);
    check("metadata.labels", none.clone(), "spec.initContainers", init, "Insufficient cpu").await;
    check("metadata.labels", none, "spec.overhead", json!({ "cpu": "3500m" }), "Insufficient cpu")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_port_is_open_once_per_node() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a", "b"]).await;
    let ports = json!([{ "name": "main", "image": "example.com/app:1", "ports": [{ "containerPort": 80, "hostPort": 80 }] }]);
    for name in ["one", "two"] {
        cluster.create("Pod", with(pod(name, "web", "1"), "spec.containers", ports.clone())).await;
    }
    cluster.until_running("web", 2).await;
    assert_eq!(cluster.by_node("web").await.len(), 2);
    cluster.create("Pod", with(pod("three", "web", "1"), "spec.containers", ports)).await;
    assert_eq!(
        refusal(&cluster, "three").await,
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    );
}

fn in_zone(name: &str, zone: &str) -> Value {
    with(node(name), "metadata.labels", json!({ "zone": zone, "kubernetes.io/hostname": name }))
}

/// Two nodes in one zone, one in another.
async fn two_zones(cluster: &Cluster) {
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        cluster.create("Node", in_zone(name, zone)).await;
    }
    cluster.until_ready("b1").await;
}

#[tokio::test(start_paused = true)]
async fn pods_spread_over_domains() {
    let cluster = Cluster::start();
    two_zones(&cluster).await;
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } },
    }]);
    let mut deployment = workload("web", Some(6));
    deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = spread;
    cluster.create("Deployment", deployment).await;
    cluster.until_running("web", 6).await;
    let counts = cluster.by_node("web").await;
    assert_eq!(counts["b1"], 3, "{counts:?}");
    // The zone with one node is full at four; five in the other would be one too many.
    cluster.patch("Deployment", "web", json!({ "spec": { "replicas": 10 } })).await;
    cluster.until("nine run", async || cluster.running("web").await == 9).await;
    let waiting =
        cluster.pods("web").await.into_iter().find(|pod| node_of(pod).is_empty()).unwrap();
    assert_eq!(
        refusal(&cluster, name_of(&waiting)).await,
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod topology spread constraints."
    );
    cluster.create("Node", in_zone("b2", "b")).await;
    cluster.until_running("web", 10).await;
}

#[tokio::test(start_paused = true)]
async fn anti_affinity_keeps_pods_apart_from_both_sides() {
    let cluster = Cluster::start();
    two_zones(&cluster).await;
    let apart = |app: &str, key: &str| {
        json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } },
        ]}})
    };
    let mut deployment = workload("web", Some(3));
    deployment["spec"]["template"]["spec"]["affinity"] = apart("web", "zone");
    cluster.create("Deployment", deployment).await;
    cluster.until("two run", async || cluster.running("web").await == 2).await;
    let waiting =
        cluster.pods("web").await.into_iter().find(|pod| node_of(pod).is_empty()).unwrap();
    assert_eq!(
        refusal(&cluster, name_of(&waiting)).await,
        "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules."
    );
    // One that repels a label keeps later pods of that label away, though they do not mind.
    cluster
        .create(
            "Pod",
            with(
                pod("hermit", "hermit", "1"),
                "spec.affinity",
                apart("crowd", "kubernetes.io/hostname"),
            ),
        )
        .await;
    cluster.until_running("hermit", 1).await;
    let home = node_of(&cluster.get("Pod", "hermit").await).to_owned();
    let there = json!({ "kubernetes.io/hostname": home });
    cluster.create("Pod", with(pod("crowd", "crowd", "1"), "spec.nodeSelector", there)).await;
    assert_eq!(
        refusal(&cluster, "crowd").await,
        "0/3 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, 2 node(s) didn't match \
         Pod's node affinity/selector."
    );
    cluster.delete("Pod", "hermit", DeleteParams::default()).await;
    cluster.until_running("crowd", 1).await;
}

#[tokio::test(start_paused = true)]
async fn affinity_brings_pods_together() {
    let cluster = Cluster::start();
    two_zones(&cluster).await;
    let with_app = |app: &str| {
        json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": app } } },
        ]}})
    };
    cluster
        .create("Pod", with(pod("follower", "follower", "1"), "spec.affinity", with_app("leader")))
        .await;
    assert_eq!(
        refusal(&cluster, "follower").await,
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."
    );
    let home = json!({ "kubernetes.io/hostname": "b1" });
    cluster.create("Pod", with(pod("leader", "leader", "1"), "spec.nodeSelector", home)).await;
    cluster.until_running("follower", 1).await;
    assert_eq!(node_of(&cluster.get("Pod", "follower").await), "b1");
    // The first of those that want to be together may go anywhere; the rest follow it.
    let mut flock = workload("flock", Some(3));
    flock["spec"]["template"]["spec"]["affinity"] = with_app("flock");
    cluster.create("Deployment", flock).await;
    cluster
        .until("all three run, or two where only two fit", async || {
            cluster.running("flock").await >= 2
        })
        .await;
    let pods = cluster.pods("flock").await;
    let zones: std::collections::BTreeSet<_> =
        pods.iter().map(node_of).filter(|n| !n.is_empty()).map(|n| &n[..1]).collect();
    assert_eq!(zones.len(), 1, "{zones:?}");
}

#[tokio::test(start_paused = true)]
async fn preferences_decide_between_nodes_that_fit() {
    let cluster = Cluster::start();
    two_zones(&cluster).await;
    let prefer = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        { "weight": 100, "preference": { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["b"] }] } },
    ]}});
    for name in ["one", "two", "three"] {
        cluster.create("Pod", with(pod(name, "web", "1"), "spec.affinity", prefer.clone())).await;
    }
    cluster.until_running("web", 3).await;
    assert_eq!(cluster.by_node("web").await, [("b1".to_owned(), 3)].into());
    let taint = json!([{ "key": "avoid", "effect": "PreferNoSchedule" }]);
    cluster.patch("Node", "a1", json!({ "spec": { "taints": taint } })).await;
    cluster.create("Pod", pod("picky", "picky", "1")).await;
    cluster.until_running("picky", 1).await;
    assert_eq!(node_of(&cluster.get("Pod", "picky").await), "a2");
}

#[tokio::test(start_paused = true)]
async fn higher_priority_is_served_first() {
    let cluster = Cluster::start();
    for name in ["low", "lower"] {
        cluster.create("Pod", pod(name, name, "3")).await;
    }
    let urgent = with(
        pod("urgent", "urgent", "3"),
        "spec.priorityClassName",
        json!("system-cluster-critical"),
    );
    cluster.create("Pod", urgent).await;
    refusal(&cluster, "urgent").await;
    cluster.add_nodes(&["a"]).await;
    cluster.until_running("urgent", 1).await;
    assert_eq!(cluster.running("low").await + cluster.running("lower").await, 0);
}

#[tokio::test(start_paused = true)]
async fn pods_of_others_and_gated_pods_are_left_alone() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Pod", with(pod("other", "x", "1"), "spec.schedulerName", json!("other"))).await;
    let gates = json!([{ "name": "example.com/wait" }]);
    cluster.create("Pod", with(pod("gated", "gated", "1"), "spec.schedulingGates", gates)).await;
    cluster.pass(Duration::from_mins(10)).await;
    assert_eq!(node_of(&cluster.get("Pod", "other").await), "");
    assert_eq!(node_of(&cluster.get("Pod", "gated").await), "");
    cluster.patch("Pod", "gated", json!({ "spec": { "schedulingGates": null } })).await;
    cluster.until_running("gated", 1).await;
}

#[tokio::test(start_paused = true)]
async fn room_that_was_made_for_a_pod_is_not_given_to_another() {
    let cluster = Cluster::with(Actors { preemption: true, ..Actors::default() });
    cluster.add_nodes(&["a"]).await;
    let low = with(pod("low", "low", "3"), "metadata.annotations", json!({ NEVER_ENDS: "true" }));
    cluster.create("Pod", low).await;
    cluster.until_running("low", 1).await;
    let critical =
        with(pod("high", "high", "3"), "spec.priorityClassName", "system-node-critical".into());
    cluster.create("Pod", critical).await;
    cluster
        .until("room is promised", async || {
            cluster.get("Pod", "high").await["status"]["nominatedNodeName"] == "a"
        })
        .await;
    cluster.create("Pod", pod("quick", "quick", "2")).await;
    cluster.pass(Duration::from_mins(1)).await;
    cluster.delete("Pod", "low", DeleteParams::default().grace_period(0)).await;
    cluster.until_running("high", 1).await;
    assert_eq!(node_of(&cluster.get("Pod", "quick").await), "");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_ended_for_another_unless_that_is_asked_for() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Pod", pod("low", "low", "3")).await;
    cluster.until_running("low", 1).await;
    let high =
        with(pod("high", "high", "3"), "spec.priorityClassName", "system-node-critical".into());
    cluster.create("Pod", high).await;
    cluster.pass(Duration::from_hours(1)).await;
    assert_eq!((cluster.running("low").await, cluster.running("high").await), (1, 0));
}
