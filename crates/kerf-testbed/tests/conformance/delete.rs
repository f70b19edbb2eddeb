//! delete: preconditions, grace, finalizers, propagation, collections.

use super::harness::{Cluster, cases, config_map, deployment, node, pod, version};
use serde_json::{Value, json};

cases![
    deletes_and_says_so,
    missing_objects_cannot_be_deleted,
    a_uid_precondition_must_hold,
    a_version_precondition_must_hold,
    finalizers_hold_an_object,
    deleting_twice_changes_nothing,
    the_last_finalizer_lets_go,
    no_finalizer_can_be_added_while_deleting,
    deletion_counts_as_a_generation,
    unscheduled_pods_go_at_once,
    scheduled_pods_get_their_grace_period,
    a_grace_period_can_be_given,
    a_second_delete_can_only_shorten,
    grace_zero_removes_a_pod_at_once,
    finished_pods_go_at_once,
    foreground_waits_for_dependents,
    orphaning_waits_for_the_collector,
    refuses_an_unknown_propagation,
    deletes_collections,
    deletes_selected_collections,
    a_deleted_name_can_be_used_again,
];

async fn deletes_and_says_so(c: Cluster) {
    let made = c.make_config_map("a").await;
    let reply = c.delete(&c.core("configmaps/a")).await.expect_code(200);
    assert_eq!((&reply["kind"], &reply["status"]), (&json!("Status"), &json!("Success")));
    let details = json!({ "name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"] });
    assert_eq!(reply["details"], details);
    c.get(&c.core("configmaps/a")).await.refused(404, "NotFound", "");
}

async fn missing_objects_cannot_be_deleted(c: Cluster) {
    c.delete(&c.core("configmaps/a")).await.refused(404, "NotFound", "configmaps \"a\" not found");
}

async fn a_uid_precondition_must_hold(c: Cluster) {
    let made = c.make_config_map("a").await;
    let other = json!({ "preconditions": { "uid": "other" } });
    let reply = c.delete_with(&c.core("configmaps/a"), other).await;
    reply.refused(
        409,
        "Conflict",
        "the UID in the precondition (other) does not match the UID in record (",
    );
    let own = json!({ "preconditions": { "uid": made["metadata"]["uid"] } });
    c.delete_with(&c.core("configmaps/a"), own).await.expect_code(200);
}

async fn a_version_precondition_must_hold(c: Cluster) {
    let made = c.make_config_map("a").await;
    c.merge(&c.core("configmaps/a"), json!({ "data": { "k": "v" } })).await.expect_code(200);
    let old = json!({ "preconditions": { "resourceVersion": version(&made) } });
    let reply = c.delete_with(&c.core("configmaps/a"), old).await;
    reply.refused(409, "Conflict", "The object might have been modified");
}

async fn make_held(c: &Cluster, name: &str) -> Value {
    let mut body = config_map(name);
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    c.make(&c.core("configmaps"), body).await
}

async fn finalizers_hold_an_object(c: Cluster) {
    make_held(&c, "a").await;
    let reply = c.delete(&c.core("configmaps/a")).await.expect_code(200);
    assert_eq!(reply["kind"], "ConfigMap", "the object is returned, not a status");
    assert!(reply["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(reply["metadata"]["deletionGracePeriodSeconds"], 0);
    c.get(&c.core("configmaps/a")).await.expect_code(200);
}

async fn deleting_twice_changes_nothing(c: Cluster) {
    make_held(&c, "a").await;
    let first = c.delete(&c.core("configmaps/a")).await.expect_code(200);
    let second = c.delete(&c.core("configmaps/a")).await.expect_code(200);
    assert_eq!(version(&first), version(&second));
}

async fn the_last_finalizer_lets_go(c: Cluster) {
    let made = make_held(&c, "a").await;
    let mut watch = c
        .watch(&c.core(&format!("configmaps?watch=true&resourceVersion={}", version(&made))))
        .await;
    c.delete(&c.core("configmaps/a")).await.expect_code(200);
    assert_eq!(watch.next_change().await, "MODIFIED a");
    c.merge(&c.core("configmaps/a"), json!({ "metadata": { "finalizers": null } }))
        .await
        .expect_code(200);
    assert_eq!(watch.next_change().await, "DELETED a");
    c.get(&c.core("configmaps/a")).await.refused(404, "NotFound", "");
}

async fn no_finalizer_can_be_added_while_deleting(c: Cluster) {
    make_held(&c, "a").await;
    c.delete(&c.core("configmaps/a")).await.expect_code(200);
    let patch = json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/more"] } });
    let reply = c.merge(&c.core("configmaps/a"), patch).await;
    reply.refused(
        422,
        "Invalid",
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{\"example.com/more\"}",
    );
    let patch = json!({ "metadata": { "labels": { "still": "writable" } } });
    c.merge(&c.core("configmaps/a"), patch).await.expect_code(200);
}

async fn deletion_counts_as_a_generation(c: Cluster) {
    let mut body = deployment("a");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    c.make(&c.group("apps", "deployments"), body).await;
    let gone = c.delete(&c.group("apps", "deployments/a")).await.expect_code(200);
    assert_eq!(gone["metadata"]["generation"], 2);
}

async fn unscheduled_pods_go_at_once(c: Cluster) {
    c.make(&c.core("pods"), pod("a")).await;
    let gone = c.delete(&c.core("pods/a")).await.expect_code(200);
    assert_eq!(gone["kind"], "Pod");
    c.get(&c.core("pods/a")).await.refused(404, "NotFound", "");
}

async fn scheduled_pods_get_their_grace_period(c: Cluster) {
    c.make_running_pod("a", json!({})).await;
    let gone = c.delete(&c.core("pods/a")).await.expect_code(200);
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(gone["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(gone["metadata"]["generation"], 2);
    c.get(&c.core("pods/a")).await.expect_code(200);
}

async fn a_grace_period_can_be_given(c: Cluster) {
    c.make_running_pod("a", json!({})).await;
    let gone =
        c.delete_with(&c.core("pods/a"), json!({ "gracePeriodSeconds": 5 })).await.expect_code(200);
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 5);
    c.make_running_pod("b", json!({})).await;
    let gone = c.delete(&c.core("pods/b?gracePeriodSeconds=7")).await.expect_code(200);
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 7);
}

async fn a_second_delete_can_only_shorten(c: Cluster) {
    c.make_running_pod("a", json!({})).await;
    c.delete_with(&c.core("pods/a"), json!({ "gracePeriodSeconds": 20 })).await.expect_code(200);
    let same = c
        .delete_with(&c.core("pods/a"), json!({ "gracePeriodSeconds": 60 }))
        .await
        .expect_code(200);
    assert_eq!(same["metadata"]["deletionGracePeriodSeconds"], 20);
    let less =
        c.delete_with(&c.core("pods/a"), json!({ "gracePeriodSeconds": 3 })).await.expect_code(200);
    assert_eq!(less["metadata"]["deletionGracePeriodSeconds"], 3);
}

async fn grace_zero_removes_a_pod_at_once(c: Cluster) {
    let made = c.make_running_pod("a", json!({})).await;
    c.delete(&c.core("pods/a")).await.expect_code(200);
    let options =
        json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": made["metadata"]["uid"] } });
    c.delete_with(&c.core("pods/a"), options).await.expect_code(200);
    c.get(&c.core("pods/a")).await.refused(404, "NotFound", "");
}

async fn finished_pods_go_at_once(c: Cluster) {
    c.make_running_pod("a", json!({})).await;
    c.merge(&c.core("pods/a/status"), json!({ "status": { "phase": "Succeeded" } }))
        .await
        .expect_code(200);
    c.delete(&c.core("pods/a")).await.expect_code(200);
    c.get(&c.core("pods/a")).await.refused(404, "NotFound", "");
}

async fn foreground_waits_for_dependents(c: Cluster) {
    c.make_config_map("a").await;
    let gone = c
        .delete_with(&c.core("configmaps/a"), json!({ "propagationPolicy": "Foreground" }))
        .await
        .expect_code(200);
    assert_eq!(gone["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

async fn orphaning_waits_for_the_collector(c: Cluster) {
    c.make_config_map("a").await;
    let gone = c.delete(&c.core("configmaps/a?propagationPolicy=Orphan")).await.expect_code(200);
    assert_eq!(gone["metadata"]["finalizers"], json!(["orphan"]));
}

async fn refuses_an_unknown_propagation(c: Cluster) {
    c.make_config_map("a").await;
    let reply =
        c.delete_with(&c.core("configmaps/a"), json!({ "propagationPolicy": "Upward" })).await;
    reply.refused(422, "Invalid", "propagationPolicy: Unsupported value: \"Upward\"");
}

async fn deletes_collections(c: Cluster) {
    c.make_config_map("a").await;
    c.make_config_map("b").await;
    let reply = c.delete(&c.core("configmaps")).await.expect_code(200);
    assert_eq!(reply["kind"], "ConfigMapList");
    let left = c.get(&c.core("configmaps")).await.expect_code(200);
    assert_eq!(left["items"], json!([]));
}

async fn deletes_selected_collections(c: Cluster) {
    c.make_config_map("a").await;
    let body = json!({ "metadata": { "name": "b", "labels": { "app": "web" } } });
    c.make(&c.core("configmaps"), body).await;
    c.delete(&c.core("configmaps?labelSelector=app=web")).await.expect_code(200);
    c.get(&c.core("configmaps/a")).await.expect_code(200);
    c.get(&c.core("configmaps/b")).await.refused(404, "NotFound", "");
}

async fn a_deleted_name_can_be_used_again(c: Cluster) {
    let name = c.own("a");
    let first = c.make("/api/v1/nodes", node(&name)).await;
    c.delete(&format!("/api/v1/nodes/{name}")).await.expect_code(200);
    let second = c.make("/api/v1/nodes", node(&name)).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
}
