//! Budgets, nodes in trouble, and what goes with its owner.

use super::harness::{Cluster, cases, condition, is_running, name_of, names, text};
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};

cases! {
    budgets_count_what_may_be_missing,
    budgets_count_pods_of_nobody,
    a_cordon_is_a_taint,
    a_node_that_is_not_ready_is_tainted,
    a_node_under_pressure_is_tainted,
    impatient_pods_leave_a_node_that_is_not_ready,
    a_taint_that_expels_expels,
    pods_go_with_their_deployment,
    dependents_can_be_left_behind,
    foreground_deletion_waits_for_dependents,
    what_lost_its_owner_goes,
    a_namespace_takes_everything_along,
    a_claim_in_use_stays,
}

async fn budgets_count_what_may_be_missing(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    let budget = |name: &str, mut spec: Value| {
        spec["selector"] = json!({ "matchLabels": { "app": "web" } });
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    // Of seven replicas, five of which run because two find no room: desired, allowed.
    let rows = [
        ("min-number", json!({ "minAvailable": 4 }), 4, 1),
        ("min-share", json!({ "minAvailable": "50%" }), 4, 1),
        ("min-all", json!({ "minAvailable": "100%" }), 7, 0),
        ("max-number", json!({ "maxUnavailable": 3 }), 4, 1),
        ("max-share", json!({ "maxUnavailable": "50%" }), 3, 2),
        ("max-none", json!({ "maxUnavailable": 0 }), 7, 0),
        ("min-many", json!({ "minAvailable": 9 }), 9, 0),
    ];
    let template = json!({ "spec": { "containers": [{
        "name": "main", "image": "example.com/app:1", "resources": { "requests": { "cpu": "800m" } },
    }] } });
    let changes = json!({ "spec": { "replicas": 7, "template": template } });
    cluster.create("Deployment", cluster.workload("web", changes)).await;
    // First the pods: of several budgets for one pod, only one hears of each change of it.
    cluster.until_fields("Deployment", "web", json!({ "/status/readyReplicas": 5 })).await;
    for (name, spec, ..) in &rows {
        cluster.create("PodDisruptionBudget", budget(name, spec.clone())).await;
    }
    for (name, _, desired, allowed) in rows {
        let expected = json!({
            "/status/expectedPods": 7, "/status/currentHealthy": 5,
            "/status/desiredHealthy": desired, "/status/disruptionsAllowed": allowed,
        });
        let budget = cluster.until_fields("PodDisruptionBudget", name, expected).await;
        let said = condition(&budget, "DisruptionAllowed");
        let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
        assert_eq!(said["reason"], reason, "{name}");
    }
}

async fn budgets_count_pods_of_nobody(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "group": "x" } } });
    cluster
        .create("PodDisruptionBudget", json!({ "metadata": { "name": "x" }, "spec": spec }))
        .await;
    for name in ["one", "two"] {
        let mut pod = cluster.pod(name, json!({}));
        pod["metadata"]["labels"]["group"] = "x".into();
        cluster.create("Pod", pod).await;
    }
    let expected = json!({
        "/status/expectedPods": 2, "/status/currentHealthy": 2, "/status/desiredHealthy": 1,
        "/status/disruptionsAllowed": 1,
    });
    cluster.until_fields("PodDisruptionBudget", "x", expected).await;
}

/// The keys and effects of a node's taints, in order.
fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut taints: Vec<_> =
        taints.map(|taint| format!("{}:{}", text(taint, "/key"), text(taint, "/effect"))).collect();
    taints.sort();
    taints
}

async fn until_tainted(cluster: &Cluster, node: &str, expected: &[&str]) {
    cluster
        .until(&format!("{node} has the taints {expected:?}"), async || {
            let taints = taints(&cluster.get("Node", node).await);
            if taints == expected { Ok(()) } else { Err(format!("{taints:?}")) }
        })
        .await;
}

fn node_condition(kind: &str, status: &str) -> Value {
    let condition = json!({ "type": kind, "status": status, "reason": "Test", "message": "" });
    json!({ "status": { "conditions": [condition] } })
}

fn on_a() -> Value {
    json!({ "nodeSelector": { "kubernetes.io/hostname": "a" } })
}

async fn a_cordon_is_a_taint(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.patch("Node", "a", json!({ "spec": { "unschedulable": true } })).await;
    until_tainted(cluster, "a", &["node.kubernetes.io/unschedulable:NoSchedule"]).await;
    cluster.patch("Node", "a", json!({ "spec": { "unschedulable": null } })).await;
    until_tainted(cluster, "a", &[]).await;
}

async fn a_node_that_is_not_ready_is_tainted(cluster: &Cluster) {
    // Where no node at all is ready, nothing is driven out: the fault may be elsewhere.
    cluster.add_nodes(&[("a", json!({})), ("b", json!({}))]).await;
    cluster.create("Pod", cluster.pod("web", on_a())).await;
    cluster.until_running("web", 1).await;
    cluster.patch_status("Node", "a", node_condition("Ready", "False")).await;
    let expected =
        ["node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/not-ready:NoSchedule"];
    until_tainted(cluster, "a", &expected).await;
    // Only a kubelet that has fallen silent does not speak for its pods any more.
    assert!(is_running(&cluster.get("Pod", "web").await));
    cluster.patch_status("Node", "a", node_condition("Ready", "True")).await;
    until_tainted(cluster, "a", &[]).await;
}

async fn a_node_under_pressure_is_tainted(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.patch_status("Node", "a", node_condition("DiskPressure", "True")).await;
    until_tainted(cluster, "a", &["node.kubernetes.io/disk-pressure:NoSchedule"]).await;
    cluster.patch_status("Node", "a", node_condition("DiskPressure", "False")).await;
    until_tainted(cluster, "a", &[]).await;
}

async fn impatient_pods_leave_a_node_that_is_not_ready(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({})), ("b", json!({}))]).await;
    let patience = |seconds: u32| {
        let mut spec = on_a();
        spec["tolerations"] = json!([{
            "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }]);
        spec
    };
    cluster.create("Pod", cluster.pod("impatient", patience(1))).await;
    cluster.create("Pod", cluster.pod("patient", patience(600))).await;
    cluster.until_running("impatient", 1).await;
    cluster.until_running("patient", 1).await;
    cluster.patch_status("Node", "a", node_condition("Ready", "False")).await;
    cluster.until_gone("Pod", "impatient").await;
    assert!(cluster.find("Pod", "patient").await.is_some());
}

async fn a_taint_that_expels_expels(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({})), ("b", json!({}))]).await;
    let tolerating = json!({ "tolerations": [{ "key": "team", "operator": "Exists" }] });
    let mut staying = cluster.pod("staying", tolerating);
    super::harness::json_merge(&mut staying["spec"], &on_a());
    cluster.create("Pod", staying).await;
    cluster
        .create("Deployment", cluster.workload("web", json!({ "spec": { "replicas": 4 } })))
        .await;
    cluster.until_running("web", 4).await;
    cluster.until_running("staying", 1).await;
    let taint = json!([{ "key": "team", "value": "blue", "effect": "NoExecute" }]);
    cluster.patch("Node", "a", json!({ "spec": { "taints": taint } })).await;
    cluster
        .until("all pods are on the other node", async || {
            let pods = cluster.pods("web").await;
            let moved = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == "b");
            match (moved.filter(|pod| is_running(pod)).count(), pods.len()) {
                (4, 4) => Ok(()),
                counts => Err(format!("{counts:?}")),
            }
        })
        .await;
    assert!(is_running(&cluster.get("Pod", "staying").await));
}

async fn deployed(cluster: &Cluster) -> String {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster
        .create("Deployment", cluster.workload("web", json!({ "spec": { "replicas": 2 } })))
        .await;
    cluster.until_running("web", 2).await;
    name_of(&cluster.list("ReplicaSet").await[0]).to_owned()
}

async fn until_none(cluster: &Cluster, kind: &str) {
    cluster
        .until(&format!("there is no {kind}"), async || {
            let left = cluster.list(kind).await;
            if left.is_empty() { Ok(()) } else { Err(format!("{:?}", names(&left))) }
        })
        .await;
}

async fn pods_go_with_their_deployment(cluster: &Cluster) {
    deployed(cluster).await;
    cluster.delete("Deployment", "web", DeleteParams::background()).await;
    until_none(cluster, "ReplicaSet").await;
    until_none(cluster, "Pod").await;
}

async fn dependents_can_be_left_behind(cluster: &Cluster) {
    let set = deployed(cluster).await;
    cluster.delete("Deployment", "web", DeleteParams::orphan()).await;
    cluster.until_gone("Deployment", "web").await;
    let left = cluster.get("ReplicaSet", &set).await;
    assert!(left["metadata"]["ownerReferences"].is_null());
    cluster.until_running("web", 2).await;
}

async fn foreground_deletion_waits_for_dependents(cluster: &Cluster) {
    deployed(cluster).await;
    // A finalizer keeps one pod, and with it everything above it.
    let pods = cluster.pods("web").await;
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    cluster.patch("Pod", name_of(&pods[0]), held).await;
    cluster.delete("Deployment", "web", DeleteParams::foreground()).await;
    cluster.until_gone("Pod", name_of(&pods[1])).await;
    let deployment = cluster.get("Deployment", "web").await;
    assert_eq!(deployment["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    cluster.patch("Pod", name_of(&pods[0]), json!({ "metadata": { "finalizers": null } })).await;
    cluster.until_gone("Deployment", "web").await;
    until_none(cluster, "Pod").await;
}

async fn what_lost_its_owner_goes(cluster: &Cluster) {
    let owner = cluster.create("ConfigMap", json!({ "metadata": { "name": "owner" } })).await;
    let reference = |uid: &Value| json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid }]);
    let having = |name: &str, uid: &Value| json!({ "metadata": { "name": name, "ownerReferences": reference(uid) } });
    cluster.create("ConfigMap", having("child", &owner["metadata"]["uid"])).await;
    // The uid of nobody.
    let nobody = json!("00000000-0000-4000-8000-000000000000");
    cluster.create("ConfigMap", having("stray", &nobody)).await;
    cluster.until_gone("ConfigMap", "stray").await;
    assert!(cluster.find("ConfigMap", "child").await.is_some());
    let this_one = Preconditions {
        uid: owner["metadata"]["uid"].as_str().map(str::to_owned),
        ..Preconditions::default()
    };
    let params = DeleteParams {
        preconditions: Some(this_one),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    cluster.delete("ConfigMap", "owner", params).await;
    cluster.until_gone("ConfigMap", "child").await;
}

async fn a_namespace_takes_everything_along(cluster: &Cluster) {
    deployed(cluster).await;
    cluster.delete("Namespace", &cluster.namespace, DeleteParams::background()).await;
    cluster.until_gone("Namespace", &cluster.namespace).await;
    assert!(cluster.list("Pod").await.is_empty());
    assert!(cluster.list("Deployment").await.is_empty());
}

async fn a_claim_in_use_stays(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    let spec = json!({
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
        "csi": { "driver": "disks.example.com", "volumeHandle": "a" },
    });
    let name = format!("{}-volume", cluster.namespace);
    cluster.create("PersistentVolume", json!({ "metadata": { "name": name }, "spec": spec })).await;
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
        "resources": { "requests": { "storage": "1Gi" } },
    });
    cluster
        .create("PersistentVolumeClaim", json!({ "metadata": { "name": "data" }, "spec": spec }))
        .await;
    let bound = json!({ "/status/phase": "Bound", "/spec/volumeName": name });
    cluster.until_fields("PersistentVolumeClaim", "data", bound).await;
    cluster.until_fields("PersistentVolume", &name, json!({ "/status/phase": "Bound" })).await;
    let mounting = json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] });
    cluster.create("Pod", cluster.pod("web", mounting)).await;
    cluster.until_running("web", 1).await;
    cluster.delete("PersistentVolumeClaim", "data", DeleteParams::background()).await;
    let claim = cluster.get("PersistentVolumeClaim", "data").await;
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    cluster.delete("Pod", "web", DeleteParams::default()).await;
    cluster.until_gone("PersistentVolumeClaim", "data").await;
    cluster.until_fields("PersistentVolume", &name, json!({ "/status/phase": "Released" })).await;
}
