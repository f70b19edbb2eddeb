//! Who has to go when a pod of higher priority finds no room.

use super::harness::{Cluster, cases, condition, is_running, json_merge};
use serde_json::{Value, json};

cases! {
    a_pod_of_higher_priority_takes_the_place_of_another,
    the_least_important_pod_goes,
    a_pod_that_a_budget_protects_is_spared,
    a_pod_of_the_same_priority_waits,
    a_pod_that_never_preempts_waits,
}

const HIGH: &str = "system-cluster-critical";
const HIGHEST: &str = "system-node-critical";

async fn a_pod_of_higher_priority_takes_the_place_of_another(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    runs(cluster, "low", &asking("3", "")).await;
    runs(cluster, "high", &asking("3", HIGH)).await;
    cluster.until_gone("Pod", "low").await;
}

async fn the_least_important_pod_goes(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    runs(cluster, "high", &asking("2", HIGH)).await;
    runs(cluster, "low", &asking("2", "")).await;
    runs(cluster, "highest", &asking("2", HIGHEST)).await;
    cluster.until_gone("Pod", "low").await;
    assert!(is_running(&cluster.get("Pod", "high").await));
}

async fn a_pod_that_a_budget_protects_is_spared(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({})), ("b", json!({}))]).await;
    let budget = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "spared" } } });
    cluster
        .create("PodDisruptionBudget", json!({ "metadata": { "name": "spared" }, "spec": budget }))
        .await;
    // Both have a node to themselves. The one with the budget is the younger, which would otherwise speak against it.
    runs(cluster, "victim", &asking("3", "")).await;
    runs(cluster, "spared", &asking("3", "")).await;
    runs(cluster, "high", &asking("3", HIGH)).await;
    cluster.until_gone("Pod", "victim").await;
    assert!(is_running(&cluster.get("Pod", "spared").await));
}

async fn a_pod_of_the_same_priority_waits(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    runs(cluster, "first", &asking("3", HIGH)).await;
    waits(cluster, "second", &asking("3", HIGH)).await;
    assert!(is_running(&cluster.get("Pod", "first").await));
}

async fn a_pod_that_never_preempts_waits(cluster: &Cluster) {
    let class = format!("{}-polite", cluster.namespace);
    let polite = json!({
        "metadata": { "name": class }, "value": 1000, "preemptionPolicy": "Never",
    });
    cluster.create("PriorityClass", polite).await;
    cluster.add_nodes(&[("a", json!({}))]).await;
    runs(cluster, "low", &asking("3", "")).await;
    waits(cluster, "polite", &asking("3", &class)).await;
    assert!(is_running(&cluster.get("Pod", "low").await));
}

fn asking(cpu: &str, class: &str) -> Value {
    let mut spec = json!({ "containers": [{
        "name": "main", "image": "example.com/app:1", "resources": { "requests": { "cpu": cpu } },
    }]});
    if !class.is_empty() {
        json_merge(&mut spec, &json!({ "priorityClassName": class }));
    }
    spec
}

async fn runs(cluster: &Cluster, name: &str, changes: &Value) {
    cluster.create("Pod", cluster.pod(name, changes.clone())).await;
    cluster.until_running(name, 1).await;
}

async fn waits(cluster: &Cluster, name: &str, changes: &Value) {
    cluster.create("Pod", cluster.pod(name, changes.clone())).await;
    cluster
        .until(&format!("{name} waits"), async || {
            let pod = cluster.get("Pod", name).await;
            let scheduled = condition(&pod, "PodScheduled");
            if scheduled["reason"] == "Unschedulable" { Ok(()) } else { Err(scheduled.to_string()) }
        })
        .await;
}
