//! Deployments, their replica sets, and jobs.

use super::harness::{Cluster, cases, condition, name_of, names, text};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::collections::BTreeSet;

cases! {
    a_deployment_grows_and_shrinks,
    a_deployment_rolls,
    a_deployment_is_recreated,
    a_deployment_that_is_paused_does_not_roll,
    a_deployment_forgets_old_replica_sets,
    a_deployment_goes_on_where_it_got_stuck,
    a_deployment_spreads_by_default,
    replica_sets_let_go_of_what_serves_least,
    replica_sets_let_go_of_what_is_cheap_to_delete,
    replica_sets_let_go_where_it_is_crowded,
    replica_sets_take_orphans_in,
    replica_sets_let_pods_of_other_labels_go,
    a_pod_that_is_deleted_is_replaced,
    a_job_completes,
    a_job_works_in_parallel,
    an_indexed_job_numbers_its_pods,
    a_suspended_job_waits,
    a_finished_job_goes_after_a_while,
    a_cron_job_starts_jobs,
}

async fn two_nodes(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({})), ("b", json!({}))]).await;
}

async fn until_rolled(cluster: &Cluster, name: &str, replicas: u64) -> Value {
    let expected = json!({
        "/status/replicas": replicas, "/status/updatedReplicas": replicas,
        "/status/readyReplicas": replicas, "/status/availableReplicas": replicas,
        "/status/unavailableReplicas": null,
    });
    cluster.until_fields("Deployment", name, expected).await
}

fn image(version: u32) -> Value {
    json!({ "spec": { "template": { "metadata": { "annotations": { "version": version.to_string() } } } } })
}

async fn a_deployment_grows_and_shrinks(cluster: &Cluster) {
    two_nodes(cluster).await;
    let replicas = |count: u32| json!({ "spec": { "replicas": count } });
    cluster.create("Deployment", cluster.workload("web", replicas(2))).await;
    let deployment = until_rolled(cluster, "web", 2).await;
    assert_eq!(text(condition(&deployment, "Available"), "/reason"), "MinimumReplicasAvailable");
    let sets = cluster.list("ReplicaSet").await;
    assert_eq!(sets.len(), 1);
    assert_eq!(sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let hash = &sets[0]["metadata"]["labels"]["pod-template-hash"];
    assert_eq!(name_of(&sets[0]), format!("web-{}", hash.as_str().unwrap()));
    cluster.patch("Deployment", "web", replicas(5)).await;
    until_rolled(cluster, "web", 5).await;
    cluster.until_running("web", 5).await;
    cluster.patch("Deployment", "web", replicas(1)).await;
    until_rolled(cluster, "web", 1).await;
    cluster.until_running("web", 1).await;
    assert_eq!(names(&cluster.list("ReplicaSet").await), [name_of(&sets[0])]);
}

async fn a_deployment_rolls(cluster: &Cluster) {
    two_nodes(cluster).await;
    cluster
        .create("Deployment", cluster.workload("web", json!({ "spec": { "replicas": 3 } })))
        .await;
    until_rolled(cluster, "web", 3).await;
    let before = cluster.until_running("web", 3).await;
    cluster.patch("Deployment", "web", image(2)).await;
    let deployment = until_rolled(cluster, "web", 3).await;
    let revision = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
    assert_eq!(revision, "2");
    cluster
        .until("the deployment says that it is done", async || {
            let deployment = cluster.get("Deployment", "web").await;
            let progressing = condition(&deployment, "Progressing");
            let done = progressing["reason"] == "NewReplicaSetAvailable";
            if done { Ok(()) } else { Err(progressing.to_string()) }
        })
        .await;
    let after = cluster.until_running("web", 3).await;
    let before: BTreeSet<_> = names(&before).into_iter().collect();
    assert!(names(&after).iter().all(|name| !before.contains(name)));
    let mut sizes: Vec<_> = cluster
        .list("ReplicaSet")
        .await
        .iter()
        .map(|set| set["spec"]["replicas"].clone())
        .collect();
    sizes.sort_by_key(Value::as_u64);
    assert_eq!(sizes, [0, 3]);
}

async fn a_deployment_is_recreated(cluster: &Cluster) {
    two_nodes(cluster).await;
    let changes = json!({ "spec": { "replicas": 2, "strategy": { "type": "Recreate" } } });
    cluster.create("Deployment", cluster.workload("web", changes)).await;
    until_rolled(cluster, "web", 2).await;
    cluster.patch("Deployment", "web", image(2)).await;
    until_rolled(cluster, "web", 2).await;
    cluster.until_running("web", 2).await;
    assert_eq!(cluster.list("ReplicaSet").await.len(), 2);
}

async fn a_deployment_that_is_paused_does_not_roll(cluster: &Cluster) {
    two_nodes(cluster).await;
    cluster
        .create("Deployment", cluster.workload("web", json!({ "spec": { "replicas": 2 } })))
        .await;
    until_rolled(cluster, "web", 2).await;
    let before = cluster.until_running("web", 2).await;
    cluster.patch("Deployment", "web", json!({ "spec": { "paused": true } })).await;
    cluster.patch("Deployment", "web", image(2)).await;
    // It is scaled nevertheless.
    cluster.patch("Deployment", "web", json!({ "spec": { "replicas": 3 } })).await;
    let after = cluster.until_running("web", 3).await;
    assert_eq!(cluster.list("ReplicaSet").await.len(), 1);
    assert!(names(&before).iter().all(|name| names(&after).contains(name)));
    cluster.patch("Deployment", "web", json!({ "spec": { "paused": false } })).await;
    until_rolled(cluster, "web", 3).await;
}

async fn a_deployment_forgets_old_replica_sets(cluster: &Cluster) {
    two_nodes(cluster).await;
    let changes = json!({ "spec": { "replicas": 1, "revisionHistoryLimit": 1 } });
    cluster.create("Deployment", cluster.workload("web", changes)).await;
    for version in 2..5 {
        until_rolled(cluster, "web", 1).await;
        cluster.patch("Deployment", "web", image(version)).await;
    }
    until_rolled(cluster, "web", 1).await;
    cluster
        .until("two replica sets are left", async || {
            let sets = cluster.list("ReplicaSet").await;
            if sets.len() == 2 { Ok(()) } else { Err(format!("{} sets", sets.len())) }
        })
        .await;
}

async fn a_deployment_goes_on_where_it_got_stuck(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster
        .create("Deployment", cluster.workload("web", json!({ "spec": { "replicas": 4 } })))
        .await;
    until_rolled(cluster, "web", 4).await;
    // A quarter may be missing, a quarter may be too many: one of each.
    let nowhere =
        json!({ "spec": { "template": { "spec": { "nodeSelector": { "case": "nowhere" } } } } });
    cluster.patch("Deployment", "web", nowhere).await;
    let stuck = json!({
        "/status/replicas": 5, "/status/updatedReplicas": 2, "/status/readyReplicas": 3,
        "/status/availableReplicas": 3, "/status/unavailableReplicas": 2,
    });
    cluster.until_fields("Deployment", "web", stuck).await;
    let here = json!({ "spec": { "template": { "spec": { "nodeSelector": { "case": cluster.namespace } } } } });
    cluster.patch("Deployment", "web", here).await;
    until_rolled(cluster, "web", 4).await;
}

/// The large node would have more room left, but pods of one replica set keep apart.
async fn a_deployment_spreads_by_default(cluster: &Cluster) {
    let large = json!({ "status": { "allocatable": { "cpu": "16", "memory": "64Gi" } } });
    cluster.add_nodes(&[("large", large), ("small", json!({}))]).await;
    cluster
        .create("Deployment", cluster.workload("web", json!({ "spec": { "replicas": 4 } })))
        .await;
    cluster.until_running("web", 4).await;
    let counts = cluster.by_node("web").await;
    assert_eq!((counts.get("large"), counts.get("small")), (Some(&2), Some(&2)), "{counts:?}");
}

async fn replica_set(cluster: &Cluster, replicas: u32) {
    let set = cluster.workload("web", json!({ "spec": { "replicas": replicas } }));
    cluster.create("ReplicaSet", set).await;
}

async fn scale(cluster: &Cluster, replicas: u32) {
    cluster.patch("ReplicaSet", "web", json!({ "spec": { "replicas": replicas } })).await;
}

async fn replica_sets_let_go_of_what_serves_least(cluster: &Cluster) {
    let small = json!({ "status": { "allocatable": { "pods": "2" } } });
    cluster.add_nodes(&[("a", small)]).await;
    replica_set(cluster, 4).await;
    let running = cluster
        .until("two of four pods run", async || {
            let pods = cluster.pods("web").await;
            let running: Vec<_> =
                pods.iter().filter(|pod| super::harness::is_running(pod)).cloned().collect();
            let waiting =
                pods.iter().filter(|pod| condition(pod, "PodScheduled")["status"] == "False");
            match (running.len(), waiting.count()) {
                (2, 2) => Ok(running),
                counts => Err(format!("{counts:?}")),
            }
        })
        .await;
    scale(cluster, 2).await;
    let left = cluster.until_running("web", 2).await;
    assert_eq!(names(&left), names(&running));
}

async fn replica_sets_let_go_of_what_is_cheap_to_delete(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    replica_set(cluster, 3).await;
    let pods = cluster.until_running("web", 3).await;
    let cost = |cost: &str| json!({ "metadata": { "annotations": { "controller.kubernetes.io/pod-deletion-cost": cost } } });
    cluster.patch("Pod", name_of(&pods[1]), cost("-5")).await;
    cluster.patch("Pod", name_of(&pods[2]), cost("7")).await;
    scale(cluster, 2).await;
    let left = cluster.until_running("web", 2).await;
    assert_eq!(names(&left), [name_of(&pods[0]), name_of(&pods[2])]);
    scale(cluster, 1).await;
    let left = cluster.until_running("web", 1).await;
    assert_eq!(names(&left), [name_of(&pods[2])]);
}

async fn replica_sets_let_go_where_it_is_crowded(cluster: &Cluster) {
    let small = json!({ "status": { "allocatable": { "pods": "1" } } });
    cluster.add_nodes(&[("a", small), ("b", json!({}))]).await;
    // A set of its own would not look at crowds.
    let replicas = |count: u32| json!({ "spec": { "replicas": count } });
    cluster.create("Deployment", cluster.workload("web", replicas(4))).await;
    cluster.until_running("web", 4).await;
    cluster.patch("Deployment", "web", replicas(2)).await;
    cluster.until_running("web", 2).await;
    let counts = cluster.by_node("web").await;
    assert_eq!((counts.get("a"), counts.get("b")), (Some(&1), Some(&1)), "{counts:?}");
}

async fn replica_sets_take_orphans_in(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    let orphan = cluster.create("Pod", cluster.pod("web", json!({}))).await;
    cluster.until_running("web", 1).await;
    replica_set(cluster, 2).await;
    let pods = cluster.until_running("web", 2).await;
    let orphan =
        pods.iter().find(|pod| name_of(pod) == name_of(&orphan)).expect("the orphan is kept");
    assert_eq!(text(orphan, "/metadata/ownerReferences/0/kind"), "ReplicaSet");
}

async fn replica_sets_let_pods_of_other_labels_go(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    replica_set(cluster, 2).await;
    let pods = cluster.until_running("web", 2).await;
    let other = json!({ "metadata": { "labels": { "app": "other" } } });
    cluster.patch("Pod", name_of(&pods[0]), other).await;
    cluster.until_running("web", 2).await;
    let freed = cluster
        .until("the pod belongs to nobody", async || {
            let pod = cluster.get("Pod", name_of(&pods[0])).await;
            if pod["metadata"]["ownerReferences"].is_null() { Ok(pod) } else { Err("owned".into()) }
        })
        .await;
    assert_eq!(freed["metadata"]["labels"]["app"], "other");
}

async fn a_pod_that_is_deleted_is_replaced(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    replica_set(cluster, 2).await;
    let pods = cluster.until_running("web", 2).await;
    cluster.delete("Pod", name_of(&pods[0]), DeleteParams::default()).await;
    cluster.until_gone("Pod", name_of(&pods[0])).await;
    let pods = cluster.until_running("web", 2).await;
    assert!(pods.iter().all(|pod| text(pod, "/metadata/ownerReferences/0/name") == "web"));
}

fn job(cluster: &Cluster, spec: Value) -> Value {
    let mut template_spec = cluster.pod_spec("250m");
    template_spec["restartPolicy"] = "Never".into();
    let mut job = json!({
        "metadata": { "name": "work" },
        "spec": { "template": { "metadata": { "labels": { "app": "work" } }, "spec": template_spec } },
    });
    super::harness::json_merge(&mut job["spec"], &spec);
    job
}

async fn until_complete(cluster: &Cluster, succeeded: u32) -> Value {
    let expected = json!({
        "/status/succeeded": succeeded, "/status/active": null, "/status/failed": null,
        "/status/terminating": 0, "/status/ready": 0,
    });
    let job = cluster.until_fields("Job", "work", expected).await;
    cluster
        .until("the job is complete", async || {
            let job = cluster.get("Job", "work").await;
            let complete = condition(&job, "Complete")["status"] == "True";
            if complete { Ok(()) } else { Err(job["status"].to_string()) }
        })
        .await;
    job
}

async fn a_job_completes(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.create("Job", job(cluster, json!({}))).await;
    until_complete(cluster, 1).await;
    let pods = cluster.pods("work").await;
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0]["status"]["phase"], "Succeeded");
    // What counts pods holds them until they are counted.
    assert!(pods[0]["metadata"]["finalizers"].is_null(), "{}", pods[0]["metadata"]);
}

async fn a_job_works_in_parallel(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.create("Job", job(cluster, json!({ "parallelism": 2, "completions": 5 }))).await;
    until_complete(cluster, 5).await;
    assert_eq!(cluster.pods("work").await.len(), 5);
}

async fn an_indexed_job_numbers_its_pods(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    let spec = json!({ "parallelism": 3, "completions": 3, "completionMode": "Indexed" });
    cluster.create("Job", job(cluster, spec)).await;
    until_complete(cluster, 3).await;
    cluster.until_fields("Job", "work", json!({ "/status/completedIndexes": "0-2" })).await;
    let pods = cluster.pods("work").await;
    let index = |pod: &Value| {
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone()
    };
    let mut indices: Vec<_> =
        pods.iter().map(|pod| index(pod).as_str().unwrap().to_owned()).collect();
    indices.sort();
    assert_eq!(indices, ["0", "1", "2"]);
}

async fn a_suspended_job_waits(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.create("Job", job(cluster, json!({ "suspend": true }))).await;
    cluster
        .until("the job says that it is suspended", async || {
            let job = cluster.get("Job", "work").await;
            let suspended = condition(&job, "Suspended")["status"] == "True";
            if suspended { Ok(()) } else { Err(job["status"].to_string()) }
        })
        .await;
    assert!(cluster.pods("work").await.is_empty());
    cluster.patch("Job", "work", json!({ "spec": { "suspend": false } })).await;
    until_complete(cluster, 1).await;
}

async fn a_finished_job_goes_after_a_while(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.create("Job", job(cluster, json!({ "ttlSecondsAfterFinished": 0 }))).await;
    cluster.until_gone("Job", "work").await;
    cluster
        .until("its pod is gone", async || {
            if cluster.pods("work").await.is_empty() { Ok(()) } else { Err("a pod".into()) }
        })
        .await;
}

async fn a_cron_job_starts_jobs(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    let template = json!({ "spec": job(cluster, json!({}))["spec"] });
    let spec = json!({ "schedule": "* * * * *", "jobTemplate": template });
    cluster.create("CronJob", json!({ "metadata": { "name": "often" }, "spec": spec })).await;
    let job = cluster
        .until("a job is started", async || {
            cluster.list("Job").await.into_iter().next().ok_or_else(|| "no job".to_owned())
        })
        .await;
    // The name ends with the minute it was due.
    let minute = name_of(&job).strip_prefix("often-").unwrap();
    assert!(minute.parse::<u64>().is_ok(), "{minute}");
    assert_eq!(text(&job, "/metadata/ownerReferences/0/kind"), "CronJob");
    cluster.until_fields("Job", name_of(&job), json!({ "/status/succeeded": 1 })).await;
    cluster
        .until("the cron job knows when", async || {
            let cron = cluster.get("CronJob", "often").await;
            let known = !cron["status"]["lastScheduleTime"].is_null();
            if known { Ok(()) } else { Err(cron["status"].to_string()) }
        })
        .await;
}
