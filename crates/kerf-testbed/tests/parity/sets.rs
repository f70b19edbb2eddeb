//! Stateful sets and daemon sets.

use super::harness::{Cluster, cases, is_running, name_of, names, text};
use serde_json::{Value, json};

cases! {
    a_stateful_set_goes_up_in_order_and_down_in_reverse,
    a_stateful_set_may_go_in_parallel,
    a_stateful_set_rolls_from_the_end,
    a_stateful_set_stops_at_its_partition,
    a_stateful_set_waits_behind_a_pod_that_is_stuck,
    a_daemon_set_is_on_every_node_that_lets_it,
    a_daemon_set_follows_nodes,
    a_daemon_set_goes_only_where_it_is_told,
    a_daemon_set_rolls,
}

fn stateful_set(cluster: &Cluster, spec: Value) -> Value {
    let changes = json!({ "spec": { "serviceName": "db" } });
    let mut set = cluster.workload("db", changes);
    super::harness::json_merge(&mut set["spec"], &spec);
    set
}

fn version(version: u32) -> Value {
    json!({ "spec": { "template": { "metadata": { "annotations": { "version": version.to_string() } } } } })
}

async fn a_stateful_set_goes_up_in_order_and_down_in_reverse(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.create("StatefulSet", stateful_set(cluster, json!({ "replicas": 3 }))).await;
    let in_order = async |wanted: usize| {
        cluster
            .until(&format!("{wanted} pods run"), async || {
                let pods = cluster.pods("db").await;
                let expected: Vec<_> = (0..pods.len()).map(|index| format!("db-{index}")).collect();
                assert_eq!(names(&pods), expected);
                let serving = pods.iter().filter(|pod| is_running(pod)).count();
                if (serving, pods.len()) == (wanted, wanted) {
                    Ok(pods)
                } else {
                    Err("on the way".into())
                }
            })
            .await
    };
    let pods = in_order(3).await;
    assert_eq!(text(&pods[2], "/metadata/labels/apps.kubernetes.io~1pod-index"), "2");
    assert_eq!(text(&pods[2], "/spec/hostname"), "db-2");
    cluster.patch("StatefulSet", "db", json!({ "spec": { "replicas": 1 } })).await;
    in_order(1).await;
    let expected = json!({
        "/status/replicas": 1, "/status/readyReplicas": 1, "/status/availableReplicas": 1,
        "/status/currentReplicas": 1, "/status/updatedReplicas": 1,
    });
    cluster.until_fields("StatefulSet", "db", expected).await;
}

async fn a_stateful_set_may_go_in_parallel(cluster: &Cluster) {
    let spec = json!({ "replicas": 3, "podManagementPolicy": "Parallel" });
    // There is no node: in order, the first would keep the others waiting.
    cluster.create("StatefulSet", stateful_set(cluster, spec)).await;
    cluster
        .until("three pods are there", async || match cluster.pods("db").await.len() {
            3 => Ok(()),
            count => Err(format!("{count} pods")),
        })
        .await;
}

async fn a_stateful_set_rolls_from_the_end(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.create("StatefulSet", stateful_set(cluster, json!({ "replicas": 3 }))).await;
    cluster.until_running("db", 3).await;
    let before =
        cluster.until_fields("StatefulSet", "db", json!({ "/status/currentReplicas": 3 })).await;
    cluster.patch("StatefulSet", "db", version(2)).await;
    cluster
        .until("all pods are of the new version, the last first", async || {
            let pods = cluster.pods("db").await;
            let new: Vec<_> =
                pods.iter().map(|pod| pod["metadata"]["annotations"]["version"] == "2").collect();
            // Never is an earlier one new while a later one is old.
            assert!(new.is_sorted(), "{new:?} of {:?}", names(&pods));
            let done = new == [true; 3] && pods.iter().all(is_running);
            if done { Ok(()) } else { Err(format!("{new:?}")) }
        })
        .await;
    let expected = json!({
        "/status/updatedReplicas": 3, "/status/currentReplicas": 3, "/status/readyReplicas": 3,
    });
    let after = cluster.until_fields("StatefulSet", "db", expected).await;
    assert_ne!(before["status"]["currentRevision"], after["status"]["currentRevision"]);
    assert_eq!(after["status"]["updateRevision"], after["status"]["currentRevision"]);
}

async fn a_stateful_set_stops_at_its_partition(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    let spec = json!({ "replicas": 3, "updateStrategy": { "rollingUpdate": { "partition": 2 } } });
    cluster.create("StatefulSet", stateful_set(cluster, spec)).await;
    cluster.until_running("db", 3).await;
    cluster.until_fields("StatefulSet", "db", json!({ "/status/currentReplicas": 3 })).await;
    cluster.patch("StatefulSet", "db", version(2)).await;
    let expected = json!({
        "/status/updatedReplicas": 1, "/status/currentReplicas": 2, "/status/readyReplicas": 3,
    });
    cluster.until_fields("StatefulSet", "db", expected).await;
    let pods = cluster.until_running("db", 3).await;
    let new: Vec<_> =
        pods.iter().map(|pod| pod["metadata"]["annotations"]["version"] == "2").collect();
    assert_eq!(new, [false, false, true]);
}

async fn a_stateful_set_waits_behind_a_pod_that_is_stuck(cluster: &Cluster) {
    let small = json!({ "status": { "allocatable": { "pods": "1" } } });
    cluster.add_nodes(&[("a", small)]).await;
    cluster.create("StatefulSet", stateful_set(cluster, json!({ "replicas": 3 }))).await;
    cluster
        .until("the second pod waits", async || {
            let pods = cluster.pods("db").await;
            let second = pods.get(1).ok_or("no second pod")?;
            let refused = super::harness::condition(second, "PodScheduled")["status"] == "False";
            if refused { Ok(()) } else { Err("not refused".to_owned()) }
        })
        .await;
    assert_eq!(names(&cluster.pods("db").await), ["db-0", "db-1"]);
}

async fn until_on(cluster: &Cluster, nodes: &[&str]) {
    cluster
        .until(&format!("daemons run on {nodes:?}"), async || {
            let pods = cluster.pods("agent").await;
            let mut on: Vec<_> = pods.iter().map(|pod| text(pod, "/spec/nodeName")).collect();
            on.sort_unstable();
            let done = on == nodes && pods.iter().all(is_running);
            if done { Ok(()) } else { Err(format!("{on:?}")) }
        })
        .await;
}

fn daemons(cluster: &Cluster, spec: Value) -> Value {
    let mut set = cluster.workload("agent", json!({}));
    super::harness::json_merge(&mut set["spec"], &spec);
    set
}

async fn a_daemon_set_is_on_every_node_that_lets_it(cluster: &Cluster) {
    let taint = json!({ "key": "team", "value": "blue", "effect": "NoSchedule" });
    let full = json!({ "status": { "allocatable": { "cpu": "100m" } } });
    cluster
        .add_nodes(&[
            ("cordoned", json!({ "spec": { "unschedulable": true } })),
            ("full", full),
            ("plain", json!({})),
            ("tainted", json!({ "spec": { "taints": [taint] } })),
        ])
        .await;
    cluster.create("DaemonSet", daemons(cluster, json!({}))).await;
    let expected = json!({
        "/status/desiredNumberScheduled": 3, "/status/currentNumberScheduled": 3,
        "/status/numberReady": 2, "/status/numberAvailable": 2, "/status/numberUnavailable": 1,
        "/status/numberMisscheduled": 0, "/status/updatedNumberScheduled": 3,
    });
    cluster.until_fields("DaemonSet", "agent", expected).await;
    let waiting = cluster
        .until("the third is refused", async || {
            let pods = cluster.pods("agent").await;
            let waiting = pods.into_iter().find(|pod| pod["spec"]["nodeName"].is_null());
            let waiting = waiting.ok_or("none waits")?;
            let condition = super::harness::condition(&waiting, "PodScheduled").clone();
            if condition["status"] == "False" { Ok(condition) } else { Err("not yet".to_owned()) }
        })
        .await;
    let message = text(&waiting, "/message").split(". ").next().unwrap_or_default().to_owned();
    assert_eq!(
        message.trim_end_matches('.'),
        "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't satisfy plugin(s) [NodeAffinity]"
    );
}

async fn a_daemon_set_follows_nodes(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({}))]).await;
    cluster.create("DaemonSet", daemons(cluster, json!({}))).await;
    until_on(cluster, &["a"]).await;
    cluster.add_nodes(&[("b", json!({}))]).await;
    until_on(cluster, &["a", "b"]).await;
    let taint = json!([{ "key": "team", "value": "blue", "effect": "NoExecute" }]);
    cluster.patch("Node", "a", json!({ "spec": { "taints": taint } })).await;
    until_on(cluster, &["b"]).await;
    cluster
        .until_fields("DaemonSet", "agent", json!({ "/status/desiredNumberScheduled": 1 }))
        .await;
}

async fn a_daemon_set_goes_only_where_it_is_told(cluster: &Cluster) {
    cluster
        .add_nodes(&[
            ("a", json!({})),
            ("b", json!({ "metadata": { "labels": { "disk": "fast" } } })),
        ])
        .await;
    let chosen = json!({ "template": { "spec": { "nodeSelector": { "disk": "fast" } } } });
    cluster.create("DaemonSet", daemons(cluster, chosen)).await;
    until_on(cluster, &["b"]).await;
    cluster.patch("Node", "a", json!({ "metadata": { "labels": { "disk": "fast" } } })).await;
    until_on(cluster, &["a", "b"]).await;
    cluster.patch("Node", "b", json!({ "metadata": { "labels": { "disk": null } } })).await;
    until_on(cluster, &["a"]).await;
}

async fn a_daemon_set_rolls(cluster: &Cluster) {
    cluster.add_nodes(&[("a", json!({})), ("b", json!({}))]).await;
    cluster.create("DaemonSet", daemons(cluster, json!({}))).await;
    until_on(cluster, &["a", "b"]).await;
    let before = cluster.pods("agent").await;
    cluster.patch("DaemonSet", "agent", version(2)).await;
    cluster
        .until_fields("DaemonSet", "agent", json!({
            "/status/updatedNumberScheduled": 2, "/status/numberReady": 2, "/status/numberAvailable": 2,
        }))
        .await;
    until_on(cluster, &["a", "b"]).await;
    let after = cluster.pods("agent").await;
    assert!(before.iter().all(|pod| !names(&after).contains(&name_of(pod))));
}
