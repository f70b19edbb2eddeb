//! The same seed gives the same run.

use crate::harness::{Cluster, workload};
use serde_json::{Value, json};
use std::time::Duration;

fn log_of_a_life() -> String {
    kerf_testbed::Testbed::in_virtual_time(async {
        let cluster = Cluster::start();
        cluster.add_nodes(&["a", "b", "c"]).await;
        cluster.create("Deployment", workload("web", Some(7))).await;
        cluster.create("DaemonSet", workload("agent", None)).await;
        cluster.create("StatefulSet", workload("db", Some(2))).await;
        let mut template = template();
        template["spec"]["restartPolicy"] = "Never".into();
        let jobs =
            json!({ "schedule": "* * * * *", "jobTemplate": { "spec": { "template": template } } });
        cluster.create("CronJob", json!({ "metadata": { "name": "tick" }, "spec": jobs })).await;
        cluster.pass(Duration::from_mins(2)).await;
        cluster.actors.kill_node("b");
        cluster.patch("Deployment", "web", json!({ "spec": { "replicas": 3 } })).await;
        // Back on the minute, when the cron job has everyone at work.
        cluster.pass(Duration::from_mins(8)).await;
        cluster.actors.revive_node("b");
        cluster.pass(Duration::from_mins(2)).await;
        cluster.testbed.event_log().to_string()
    })
    .unwrap()
}

fn template() -> Value {
    workload("tick", None)["spec"]["template"].take()
}

#[test]
fn the_same_seed_gives_the_same_log_to_the_last_byte() {
    let first = log_of_a_life();
    assert!(first.lines().count() > 100, "{first}");
    for _ in 0..5 {
        assert_eq!(first, log_of_a_life());
    }
}
