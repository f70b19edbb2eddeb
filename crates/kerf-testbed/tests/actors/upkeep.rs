//! Budgets, evictions, nodes that die, and what is left behind.

use crate::harness::{
    Cluster, background, condition, name_of, names, node_of, pod, with, workload,
};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::time::Duration;

fn budget(mut spec: Value) -> Value {
    spec["selector"] = json!({ "matchLabels": { "app": "web" } });
    json!({ "metadata": { "name": "web" }, "spec": spec })
}

#[tokio::test(start_paused = true)]
async fn budgets_count_what_may_be_disrupted() {
    // Of four replicas, all of which run: desired, allowed.
    for (spec, desired, allowed) in [
        (json!({ "minAvailable": 3 }), 3, 1),
        (json!({ "minAvailable": "50%" }), 2, 2),
        (json!({ "minAvailable": "51%" }), 3, 1),
        (json!({ "maxUnavailable": 1 }), 3, 1),
        (json!({ "maxUnavailable": "30%" }), 2, 2),
        (json!({ "maxUnavailable": 0 }), 4, 0),
        (json!({ "minAvailable": 9 }), 9, 0),
    ] {
        let cluster = Cluster::start();
        cluster.add_nodes(&["a"]).await;
        cluster.create("PodDisruptionBudget", budget(spec.clone())).await;
        cluster.create("Deployment", workload("web", Some(4))).await;
        cluster.until_running("web", 4).await;
        cluster
            .until(&format!("{spec} allows {allowed} of 4"), async || {
                let budget = cluster.get("PodDisruptionBudget", "web").await;
                let status = &budget["status"];
                status["currentHealthy"] == 4
                    && status["expectedPods"] == 4
                    && status["desiredHealthy"] == desired
                    && status["disruptionsAllowed"] == allowed
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_follows_its_pods() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("PodDisruptionBudget", budget(json!({ "minAvailable": 2 }))).await;
    cluster.create("Deployment", workload("web", Some(3))).await;
    let allowed = async |count: i64| {
        cluster
            .until(&format!("{count} disruptions are allowed"), async || {
                let budget = cluster.get("PodDisruptionBudget", "web").await;
                budget["status"]["disruptionsAllowed"] == count
            })
            .await;
    };
    allowed(1).await;
    cluster.patch("Deployment", "web", json!({ "spec": { "replicas": 4 } })).await;
    allowed(2).await;
    cluster.actors.kill_node("a");
    allowed(0).await;
    cluster.actors.revive_node("a");
    allowed(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_budget() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a", "b"]).await;
    cluster.create("PodDisruptionBudget", budget(json!({ "maxUnavailable": 1 }))).await;
    cluster.create("Deployment", workload("web", Some(4))).await;
    cluster.until_running("web", 4).await;
    cluster.until_ready("a").await;
    cluster.patch("Node", "a", json!({ "spec": { "unschedulable": true } })).await;
    let mut refused = 0;
    loop {
        let pods = cluster.pods("web").await;
        let left: Vec<_> = pods.iter().filter(|pod| node_of(pod) == "a").collect();
        if left.is_empty() {
            break;
        }
        for pod in left.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
            refused += usize::from(!cluster.evict(name_of(pod)).await);
        }
        assert!(cluster.running("web").await >= 3, "more than one missing");
        cluster.pass(Duration::from_millis(500)).await;
    }
    assert!(refused > 0, "the budget never said no");
    cluster.until_running("web", 4).await;
    assert_eq!(cluster.by_node("web").await, [("b".to_owned(), 4)].into());
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_dead_node_are_evicted_and_replaced() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Deployment", workload("web", Some(2))).await;
    cluster.until_running("web", 2).await;
    cluster.add_nodes(&["b"]).await;
    cluster.until_ready("b").await;
    let died = tokio::time::Instant::now();
    cluster.actors.kill_node("a");
    cluster
        .until("the node is unreachable", async || {
            let node = cluster.get("Node", "a").await;
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let effects: Vec<_> = taints
                .iter()
                .filter(|taint| taint["key"] == "node.kubernetes.io/unreachable")
                .filter_map(|taint| taint["effect"].as_str())
                .collect();
            condition(&node, "Ready")["status"] == "Unknown"
                && effects == ["NoSchedule", "NoExecute"]
        })
        .await;
    assert_eq!(died.elapsed().as_secs(), 50);
    let pods = cluster.pods("web").await;
    assert!(pods.iter().all(|pod| condition(pod, "Ready")["status"] == "False"));
    cluster
        .until("two run on b", async || {
            let pods = cluster.pods("web").await;
            pods.iter()
                .filter(|pod| node_of(pod) == "b" && condition(pod, "Ready")["status"] == "True")
                .count()
                == 2
        })
        .await;
    // The grace period of the node, then the five minutes that pods tolerate.
    assert_eq!(died.elapsed().as_secs(), 50 + 300 + 1);
    // Nobody confirms that the old ones have ended until the node is gone.
    assert_eq!(cluster.pods("web").await.len(), 4);
    cluster.delete("Node", "a", DeleteParams::default()).await;
    cluster.until_running("web", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_keeps_its_pods() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Deployment", workload("web", Some(2))).await;
    cluster.until_running("web", 2).await;
    let before = cluster.pods("web").await;
    cluster.actors.kill_node("a");
    cluster.pass(Duration::from_mins(3)).await;
    assert_eq!(condition(&cluster.get("Node", "a").await, "Ready")["status"], "Unknown");
    cluster.actors.revive_node("a");
    cluster.until_ready("a").await;
    cluster.pass(Duration::from_mins(10)).await;
    let after = cluster.pods("web").await;
    assert_eq!(names(&after), names(&before));
    assert!(after.iter().all(|pod| condition(pod, "Ready")["status"] == "True"));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_are_collected() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Pod", pod("lone", "lone", "1")).await;
    cluster.until_running("lone", 1).await;
    cluster.delete("Node", "a", DeleteParams::default()).await;
    let gone = tokio::time::Instant::now();
    cluster.until_gone("Pod", "lone").await;
    assert!((40..=80).contains(&gone.elapsed().as_secs()), "after {:?}", gone.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_will_not_end_stays_until_it_is_forced() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    let stuck = with(
        pod("stuck", "stuck", "1"),
        "metadata.annotations",
        json!({ "testbed.kerf.sh/never-terminates": "true" }),
    );
    cluster.create("Pod", stuck).await;
    cluster.until_running("stuck", 1).await;
    cluster.delete("Pod", "stuck", DeleteParams::default()).await;
    cluster.pass(Duration::from_hours(1)).await;
    assert!(cluster.find("Pod", "stuck").await.is_some());
    cluster.delete("Pod", "stuck", DeleteParams::default().grace_period(0)).await;
    assert!(cluster.find("Pod", "stuck").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_is_owned_goes_with_its_owner() {
    for params in [background(), DeleteParams::foreground()] {
        let cluster = Cluster::start();
        cluster.add_nodes(&["a"]).await;
        cluster.create("Deployment", workload("web", Some(3))).await;
        cluster.until_running("web", 3).await;
        cluster.delete("Deployment", "web", params.clone()).await;
        cluster
            .until("everything is gone", async || {
                let pods = cluster.pods("web").await;
                let sets = cluster.list("ReplicaSet").await;
                let deployment = cluster.find("Deployment", "web").await;
                let foreground =
                    params.propagation_policy == DeleteParams::foreground().propagation_policy;
                if foreground && !pods.is_empty() {
                    assert!(
                        !sets.is_empty() && deployment.is_some(),
                        "an owner went before what it owns"
                    );
                }
                pods.is_empty() && sets.is_empty() && deployment.is_none()
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_stay() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Deployment", workload("web", Some(3))).await;
    cluster.until_running("web", 3).await;
    cluster.delete("Deployment", "web", DeleteParams::orphan()).await;
    cluster.until_gone("Deployment", "web").await;
    cluster.pass(Duration::from_mins(10)).await;
    assert_eq!(cluster.running("web").await, 3);
    let set = cluster.list("ReplicaSet").await.remove(0);
    assert!(set["metadata"]["ownerReferences"].is_null());
}

#[tokio::test(start_paused = true)]
async fn an_object_with_an_owner_that_never_was_is_collected() {
    let cluster = Cluster::start();
    let owner =
        json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "no-such-uid" }]);
    let object = json!({ "metadata": { "name": "lost", "ownerReferences": owner } });
    cluster.create("ConfigMap", object).await;
    cluster.until_gone("ConfigMap", "lost").await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_takes_its_content_with_it() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Deployment", workload("web", Some(3))).await;
    cluster.until_running("web", 3).await;
    cluster.delete("Namespace", "default", DeleteParams::default()).await;
    cluster.until_gone("Namespace", "default").await;
    assert_eq!(cluster.list("Pod").await.len(), 0);
    assert_eq!(cluster.list("Deployment").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn events_are_forgotten_after_an_hour() {
    let cluster = Cluster::start();
    cluster.create("Pod", pod("early", "early", "1")).await;
    cluster.until("an event tells of it", async || cluster.list("Event").await.len() == 1).await;
    cluster.pass(Duration::from_mins(59)).await;
    assert_eq!(cluster.list("Event").await.len(), 1);
    cluster.pass(Duration::from_mins(2)).await;
    assert_eq!(cluster.list("Event").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_tainted_until_it_is_ready() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("Pod", pod("early", "early", "1")).await;
    let node = cluster.get("Node", "a").await;
    assert_eq!(node["spec"]["taints"][0]["key"], "node.kubernetes.io/not-ready");
    cluster.pass(Duration::from_millis(900)).await;
    assert_eq!(node_of(&cluster.get("Pod", "early").await), "");
    cluster.until_ready("a").await;
    cluster.until_running("early", 1).await;
}
