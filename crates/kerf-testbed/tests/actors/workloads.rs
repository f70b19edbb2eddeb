//! Deployments, stateful sets, daemon sets, jobs and cron jobs.

use crate::harness::{
    Cluster, background, condition, is_running, name_of, names, node_of, pod_spec, storage_class,
    volume_claim, with, workload,
};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_on_the_nodes_there_are() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a", "b"]).await;
    cluster.create("Deployment", workload("web", Some(3))).await;
    cluster.until_running("web", 3).await;
    let counts = cluster.by_node("web").await;
    assert_eq!(counts.values().copied().collect::<BTreeSet<_>>(), [1, 2].into(), "{counts:?}");
    cluster
        .until("the deployment says so", async || {
            let deployment = cluster.get("Deployment", "web").await;
            let status = &deployment["status"];
            status["readyReplicas"] == 3
                && status["availableReplicas"] == 3
                && status["updatedReplicas"] == 3
                && status["observedGeneration"] == deployment["metadata"]["generation"]
                && condition(&deployment, "Available")["status"] == "True"
        })
        .await;
    let pod = cluster.pods("web").await.remove(0);
    assert!(pod["metadata"]["labels"]["pod-template-hash"].is_string());
    assert!(pod["status"]["podIP"].as_str().unwrap().starts_with("10."));
    assert_eq!(condition(&pod, "Ready")["status"], "True");
    assert!(pod["status"]["startTime"].is_string());
}

#[tokio::test(start_paused = true)]
async fn a_deployment_follows_its_scale() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a", "b"]).await;
    cluster.create("Deployment", workload("web", Some(3))).await;
    for replicas in [3, 6, 2, 0, 1] {
        cluster.patch("Deployment", "web", json!({ "spec": { "replicas": replicas } })).await;
        cluster.until_running("web", replicas).await;
    }
    assert_eq!(cluster.list("ReplicaSet").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_keeps_its_promises() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a", "b", "c"]).await;
    cluster.create("Deployment", workload("web", Some(4))).await;
    cluster.until_running("web", 4).await;
    let before: BTreeSet<_> =
        cluster.pods("web").await.iter().map(|pod| name_of(pod).to_owned()).collect();
    let template = json!({ "spec": { "containers": [{
        "name": "main", "image": "example.com/app:2", "resources": { "requests": { "cpu": "1" } },
    }]}});
    cluster.patch("Deployment", "web", json!({ "spec": { "template": template } })).await;
    cluster
        .until("all pods are new", async || {
            let pods = cluster.pods("web").await;
            let ready = pods.iter().filter(|pod| is_running(pod)).count();
            let staying =
                pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count();
            // 25% of 4: one more, and one fewer.
            assert!(ready >= 3, "only {ready} ready");
            assert!(staying <= 5, "{staying} pods at once");
            pods.len() == 4
                && pods.iter().all(|pod| {
                    is_running(pod)
                        && pod["spec"]["containers"][0]["image"] == "example.com/app:2"
                        && !before.contains(name_of(pod))
                })
        })
        .await;
    let sets = cluster.list("ReplicaSet").await;
    let sizes: BTreeSet<_> = sets.iter().map(|set| set["spec"]["replicas"].as_i64()).collect();
    assert_eq!(sizes, [Some(0), Some(4)].into());
}

#[tokio::test(start_paused = true)]
async fn recreate_waits_for_the_old_pods_to_go() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    let deployment = with(workload("web", Some(2)), "spec.strategy", json!({ "type": "Recreate" }));
    cluster.create("Deployment", deployment).await;
    cluster.until_running("web", 2).await;
    let template = json!({ "metadata": { "annotations": { "version": "2" } } });
    cluster.patch("Deployment", "web", json!({ "spec": { "template": template } })).await;
    cluster
        .until("all pods are new", async || {
            let pods = cluster.pods("web").await;
            let is_new = |pod: &Value| pod["metadata"]["annotations"]["version"] == "2";
            let mixed = pods.iter().any(is_new) && !pods.iter().all(is_new);
            assert!(!mixed, "old and new at once: {:?}", names(&pods));
            pods.len() == 2 && pods.iter().all(|pod| is_new(pod) && is_running(pod))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn scaling_down_takes_pods_that_do_not_run_first() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    // Four fit; the fifth and sixth wait.
    cluster.create("Deployment", workload("web", Some(6))).await;
    cluster.until("four run", async || cluster.running("web").await == 4).await;
    let running: Vec<_> = cluster.pods("web").await.into_iter().filter(is_running).collect();
    cluster.patch("Deployment", "web", json!({ "spec": { "replicas": 4 } })).await;
    cluster.until_running("web", 4).await;
    assert_eq!(names(&cluster.pods("web").await), names(&running));
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_goes_up_and_down_in_order() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a", "b"]).await;
    let set = with(workload("db", Some(3)), "spec.serviceName", json!("db"));
    cluster.create("StorageClass", storage_class("disks", "Immediate")).await;
    let claims = json!([volume_claim("data", "disks")]);
    cluster.create("StatefulSet", with(set, "spec.volumeClaimTemplates", claims)).await;
    let order = async |count: usize| {
        cluster
            .until(&format!("{count} pods run"), async || {
                let pods = cluster.pods("db").await;
                let settled = pods.iter().filter(|pod| is_running(pod)).count();
                assert!(pods.len() <= settled + 1, "more than one on its way: {:?}", names(&pods));
                pods.len() == count && settled == count
            })
            .await;
    };
    order(3).await;
    assert_eq!(names(&cluster.pods("db").await), ["db-0", "db-1", "db-2"]);
    assert_eq!(cluster.list("PersistentVolumeClaim").await.len(), 3);
    cluster.patch("StatefulSet", "db", json!({ "spec": { "replicas": 1 } })).await;
    order(1).await;
    assert_eq!(names(&cluster.pods("db").await), ["db-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_pod_is_replaced_only_when_it_is_gone() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    let mut set = workload("db", Some(1));
    set["spec"]["template"]["metadata"]["annotations"] =
        json!({ "testbed.kerf.sh/never-terminates": "true" });
    cluster.create("StatefulSet", set).await;
    cluster.until_running("db", 1).await;
    let old = cluster.get("Pod", "db-0").await;
    cluster.delete("Pod", "db-0", DeleteParams::default()).await;
    cluster.pass(Duration::from_mins(10)).await;
    let waiting = cluster.get("Pod", "db-0").await;
    assert_eq!(waiting["metadata"]["uid"], old["metadata"]["uid"]);
    let now = DeleteParams::default().grace_period(0);
    cluster.delete("Pod", "db-0", now).await;
    cluster.until_running("db", 1).await;
    assert_ne!(cluster.get("Pod", "db-0").await["metadata"]["uid"], old["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_updates_from_the_end() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("StatefulSet", workload("db", Some(3))).await;
    cluster.until_running("db", 3).await;
    let template = json!({ "metadata": { "annotations": { "version": "2" } } });
    cluster.patch("StatefulSet", "db", json!({ "spec": { "template": template } })).await;
    cluster
        .until("all pods are new", async || {
            let pods = cluster.pods("db").await;
            let new: Vec<_> =
                pods.iter().map(|pod| pod["metadata"]["annotations"]["version"] == "2").collect();
            assert!(new.is_sorted(), "a lower ordinal went first: {new:?}");
            pods.len() == 3 && new.iter().all(|new| *new) && pods.iter().all(is_running)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_has_a_pod_on_each_node_that_suits_it() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    let mut set = workload("agent", None);
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({ "kubernetes.io/os": "linux" });
    cluster.create("DaemonSet", set).await;
    cluster.pass(Duration::from_mins(1)).await;
    assert_eq!(cluster.pods("agent").await.len(), 0);
    cluster
        .patch("Node", "a", json!({ "metadata": { "labels": { "kubernetes.io/os": "linux" } } }))
        .await;
    cluster.until_running("agent", 1).await;
    for name in ["b", "c"] {
        let node = with(
            crate::harness::node(name),
            "metadata.labels",
            json!({ "kubernetes.io/os": "linux" }),
        );
        cluster.create("Node", node).await;
    }
    cluster.until_running("agent", 3).await;
    let pods = cluster.pods("agent").await;
    let nodes: BTreeSet<_> = pods.iter().map(node_of).collect();
    assert_eq!(nodes, ["a", "b", "c"].into());
    cluster
        .until("the set counts them", async || {
            cluster.get("DaemonSet", "agent").await["status"]["numberReady"] == 3
        })
        .await;
    // A cordoned node keeps its daemon, and gets one.
    cluster.patch("Node", "a", json!({ "spec": { "unschedulable": true } })).await;
    let on_a = pods.iter().find(|pod| node_of(pod) == "a").unwrap();
    cluster.delete("Pod", name_of(on_a), background()).await;
    cluster.until_gone("Pod", name_of(on_a)).await;
    cluster.until_running("agent", 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_completes() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    let mut job = json!({ "metadata": { "name": "sum" }, "spec": {
        "completions": 5, "parallelism": 2,
        "template": { "metadata": { "labels": { "app": "sum" } }, "spec": pod_spec("1") },
    }});
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    cluster.create("Job", job).await;
    cluster
        .until("the job is complete", async || {
            let pods = cluster.pods("sum").await;
            let active = pods.iter().filter(|pod| {
                matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Running"))
            });
            assert!(active.count() <= 2);
            condition(&cluster.get("Job", "sum").await, "Complete")["status"] == "True"
        })
        .await;
    let job = cluster.get("Job", "sum").await;
    assert_eq!(job["status"]["succeeded"], 5);
    assert!(job["status"]["completionTime"].is_string());
    assert!(cluster.pods("sum").await.iter().all(|pod| pod["status"]["phase"] == "Succeeded"));
}

#[tokio::test(start_paused = true)]
async fn a_job_fails_when_its_pods_keep_failing() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    let mut template = json!({ "metadata": { "labels": { "app": "sum" } }, "spec": pod_spec("1") });
    template["metadata"]["annotations"] =
        json!({ "testbed.kerf.sh/exit-code": "3", "testbed.kerf.sh/runs-for": "5s" });
    template["spec"]["restartPolicy"] = "Never".into();
    let job = json!({ "metadata": { "name": "sum" }, "spec": { "backoffLimit": 2, "template": template } });
    cluster.create("Job", job).await;
    cluster
        .until("the job has failed", async || {
            condition(&cluster.get("Job", "sum").await, "Failed")["status"] == "True"
        })
        .await;
    assert_eq!(cluster.get("Job", "sum").await["status"]["failed"], 3);
    assert_eq!(cluster.pods("sum").await.len(), 3);
}

fn cron_job(schedule: &str, policy: &str, runs_for: &str) -> Value {
    let mut template =
        json!({ "metadata": { "labels": { "app": "tick" } }, "spec": pod_spec("1") });
    template["metadata"]["annotations"] = json!({ "testbed.kerf.sh/runs-for": runs_for });
    template["spec"]["restartPolicy"] = "Never".into();
    json!({ "metadata": { "name": "tick" }, "spec": {
        "schedule": schedule, "concurrencyPolicy": policy, "jobTemplate": { "spec": { "template": template } },
    }})
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_fires_each_hour_of_a_day() {
    let cluster = Cluster::start();
    cluster.add_nodes(&["a"]).await;
    cluster.create("CronJob", cron_job("0 * * * *", "Allow", "90")).await;
    cluster.pass(Duration::from_hours(24) + Duration::from_mins(10)).await;
    let created = cluster.testbed.event_log().to_string();
    let created = created.lines().filter(|line| line.contains("+ jobs.batch "));
    assert_eq!(created.count(), 24);
    // The last three are kept, with their pods.
    let jobs = cluster.list("Job").await;
    assert_eq!(jobs.len(), 3, "{:?}", names(&jobs));
    assert_eq!(cluster.pods("tick").await.len(), 3);
    let status = cluster.get("CronJob", "tick").await["status"].take();
    assert_eq!(status["lastScheduleTime"], "2026-01-02T00:00:00Z");
    assert!(status["lastSuccessfulTime"].as_str().unwrap() > "2026-01-02T00:01:00Z");
}

#[tokio::test(start_paused = true)]
async fn cron_jobs_heed_their_concurrency_policy() {
    for (policy, at_once) in [("Allow", 3), ("Forbid", 1), ("Replace", 1)] {
        let cluster = Cluster::start();
        cluster.add_nodes(&["a"]).await;
        cluster.create("CronJob", cron_job("* * * * *", policy, "150")).await;
        cluster.pass(Duration::from_mins(4) + Duration::from_secs(10)).await;
        assert_eq!(cluster.running("tick").await, at_once, "{policy}");
    }
}
