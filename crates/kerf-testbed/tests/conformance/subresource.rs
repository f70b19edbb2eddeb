//! binding, eviction, scale, events.

use super::harness::{Cluster, Reply, cases, deployment, pod};
use serde_json::{Value, json};

cases![
    binds_a_pod,
    a_pod_is_bound_once,
    a_pod_that_is_deleted_is_not_bound,
    a_gated_pod_is_not_bound,
    evicts_without_a_budget,
    evicting_honours_the_grace_period,
    a_spent_budget_refuses,
    an_unobserved_budget_refuses,
    evicting_spends_the_budget,
    two_budgets_are_an_error,
    pending_pods_are_evicted_whatever_the_budget,
    unready_pods_may_go_when_the_budget_is_met,
    always_allow_lets_unready_pods_go,
    eviction_preconditions_must_hold,
    evicting_a_missing_pod,
    a_null_selector_covers_nothing_an_empty_one_all,
    reads_a_scale,
    scales,
    patches_a_scale,
    refuses_a_negative_scale,
    scales_a_custom_resource,
    events_are_served_under_two_groups,
];

fn binding(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    })
}

async fn binds_a_pod(c: Cluster) {
    c.make(&c.core("pods"), pod("a")).await;
    let reply = c.post(&c.core("pods/a/binding"), binding("a", "n1")).await.expect_code(201);
    assert_eq!((&reply["kind"], &reply["status"]), (&json!("Status"), &json!("Success")));
    let bound = c.get(&c.core("pods/a")).await.expect_code(200);
    assert_eq!(bound["spec"]["nodeName"], "n1");
    let scheduled = bound["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "PodScheduled")
        .unwrap();
    assert_eq!(scheduled["status"], "True");
}

async fn a_pod_is_bound_once(c: Cluster) {
    c.make(&c.core("pods"), pod("a")).await;
    c.post(&c.core("pods/a/binding"), binding("a", "n1")).await.expect_code(201);
    let reply = c.post(&c.core("pods/a/binding"), binding("a", "n2")).await;
    reply.refused(409, "Conflict", "pod a is already assigned to node \"n1\"");
}

async fn a_pod_that_is_deleted_is_not_bound(c: Cluster) {
    let mut body = pod("a");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    c.make(&c.core("pods"), body).await;
    c.delete(&c.core("pods/a")).await.expect_code(200);
    let reply = c.post(&c.core("pods/a/binding"), binding("a", "n1")).await;
    reply.refused(409, "Conflict", "pod a is being deleted, cannot be assigned to a host");
}

async fn a_gated_pod_is_not_bound(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
    c.make(&c.core("pods"), body).await;
    let reply = c.post(&c.core("pods/a/binding"), binding("a", "n1")).await;
    reply.refused(409, "Conflict", "pod a has non-empty .spec.schedulingGates");
}

async fn evict(c: &Cluster, name: &str, options: Value) -> Reply {
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name, "namespace": c.namespace },
        "deleteOptions": options,
    });
    c.post(&c.core(&format!("pods/{name}/eviction")), body).await
}

async fn budget(c: &Cluster, name: &str, spec: Value, status: Value) -> Value {
    let mut spec = spec;
    if spec["selector"].is_null() {
        spec["selector"] = json!({ "matchLabels": { "app": "web" } });
    }
    let body = json!({ "metadata": { "name": name }, "spec": spec });
    c.make(&c.group("policy", "poddisruptionbudgets"), body).await;
    let path = c.group("policy", &format!("poddisruptionbudgets/{name}/status"));
    c.merge(&path, json!({ "status": status })).await.expect_code(200)
}

fn counted(allowed: i64, healthy: i64, desired: i64) -> Value {
    json!({
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired,
        "expectedPods": healthy,
    })
}

async fn evicts_without_a_budget(c: Cluster) {
    c.make_running_pod("a", json!({ "app": "web" })).await;
    let reply = evict(&c, "a", json!({ "gracePeriodSeconds": 0 })).await.expect_code(201);
    assert_eq!((&reply["kind"], &reply["status"]), (&json!("Status"), &json!("Success")));
    c.get(&c.core("pods/a")).await.refused(404, "NotFound", "");
}

async fn evicting_honours_the_grace_period(c: Cluster) {
    c.make_running_pod("a", json!({ "app": "web" })).await;
    evict(&c, "a", Value::Null).await.expect_code(201);
    let found = c.get(&c.core("pods/a")).await.expect_code(200);
    assert_eq!(found["metadata"]["deletionGracePeriodSeconds"], 30);
    let target = found["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "DisruptionTarget")
        .unwrap();
    assert_eq!(target["reason"], "EvictionByEvictionAPI");
}

async fn a_spent_budget_refuses(c: Cluster) {
    c.make_running_pod("a", json!({ "app": "web" })).await;
    budget(&c, "b", json!({ "minAvailable": 1 }), counted(0, 1, 1)).await;
    let reply = evict(&c, "a", Value::Null).await;
    reply.refused(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    let cause = &reply.body["details"]["causes"][0];
    assert_eq!(cause["reason"], "DisruptionBudget");
    assert_eq!(
        cause["message"],
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    );
    let found = c.get(&c.core("pods/a")).await.expect_code(200);
    assert_eq!(found["metadata"]["deletionTimestamp"], Value::Null);
}

async fn an_unobserved_budget_refuses(c: Cluster) {
    c.make_running_pod("a", json!({ "app": "web" })).await;
    let mut status = counted(1, 2, 1);
    status["observedGeneration"] = json!(0);
    budget(&c, "b", json!({ "minAvailable": 1 }), status).await;
    let reply = evict(&c, "a", Value::Null).await;
    reply.refused(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    assert_eq!(reply.body["details"]["retryAfterSeconds"], 10);
    let message = &reply.body["details"]["causes"][0]["message"];
    assert_eq!(message, "The disruption budget b is still being processed by the server.");
}

async fn evicting_spends_the_budget(c: Cluster) {
    c.make_running_pod("a", json!({ "app": "web" })).await;
    c.make_running_pod("b", json!({ "app": "web" })).await;
    budget(&c, "b", json!({ "minAvailable": 1 }), counted(1, 2, 1)).await;
    evict(&c, "a", Value::Null).await.expect_code(201);
    let after = c.get(&c.group("policy", "poddisruptionbudgets/b")).await.expect_code(200);
    assert_eq!(after["status"]["disruptionsAllowed"], 0);
    assert!(after["status"]["disruptedPods"]["a"].is_string());
    evict(&c, "b", Value::Null).await.refused(429, "TooManyRequests", "");
}

async fn two_budgets_are_an_error(c: Cluster) {
    c.make_running_pod("a", json!({ "app": "web" })).await;
    budget(&c, "b", json!({ "minAvailable": 0 }), counted(1, 1, 0)).await;
    budget(&c, "c", json!({ "minAvailable": 0 }), counted(1, 1, 0)).await;
    let reply = evict(&c, "a", Value::Null).await;
    assert_eq!(reply.code, 500, "{reply:?}");
    let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert!(reply.body["message"].as_str().unwrap().contains(message), "{reply:?}");
}

async fn pending_pods_are_evicted_whatever_the_budget(c: Cluster) {
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({ "app": "web" });
    c.make(&c.core("pods"), body).await;
    budget(&c, "b", json!({ "minAvailable": 1 }), counted(0, 0, 1)).await;
    evict(&c, "a", Value::Null).await.expect_code(201);
    c.get(&c.core("pods/a")).await.refused(404, "NotFound", "");
}

async fn make_unready(c: &Cluster, name: &str) {
    c.make_running_pod(name, json!({ "app": "web" })).await;
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    c.merge(&c.core(&format!("pods/{name}/status")), status).await.expect_code(200);
}

async fn unready_pods_may_go_when_the_budget_is_met(c: Cluster) {
    make_unready(&c, "a").await;
    budget(&c, "b", json!({ "minAvailable": 1 }), counted(0, 1, 1)).await;
    evict(&c, "a", Value::Null).await.expect_code(201);
    make_unready(&c, "d").await;
    let path = c.group("policy", "poddisruptionbudgets/b/status");
    c.merge(&path, json!({ "status": { "currentHealthy": 0 } })).await.expect_code(200);
    evict(&c, "d", Value::Null).await.refused(429, "TooManyRequests", "");
}

async fn always_allow_lets_unready_pods_go(c: Cluster) {
    make_unready(&c, "a").await;
    let spec = json!({ "minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow" });
    budget(&c, "b", spec, counted(0, 0, 1)).await;
    evict(&c, "a", Value::Null).await.expect_code(201);
}

async fn eviction_preconditions_must_hold(c: Cluster) {
    let made = c.make_running_pod("a", json!({ "app": "web" })).await;
    let other = json!({ "preconditions": { "uid": "other" } });
    evict(&c, "a", other).await.refused(
        409,
        "Conflict",
        "the UID in the precondition (other) does not match the UID in record (",
    );
    let own = json!({ "preconditions": { "uid": made["metadata"]["uid"] } });
    evict(&c, "a", own).await.expect_code(201);
}

async fn evicting_a_missing_pod(c: Cluster) {
    evict(&c, "a", Value::Null).await.refused(404, "NotFound", "pods \"a\" not found");
}

async fn a_null_selector_covers_nothing_an_empty_one_all(c: Cluster) {
    c.make_running_pod("a", json!({ "app": "web" })).await;
    let body = json!({ "metadata": { "name": "none" }, "spec": { "minAvailable": 1 } });
    c.make(&c.group("policy", "poddisruptionbudgets"), body).await;
    evict(&c, "a", Value::Null).await.expect_code(201);
    c.make_running_pod("b", json!({ "app": "web" })).await;
    budget(&c, "all", json!({ "minAvailable": 1, "selector": {} }), counted(0, 1, 1)).await;
    evict(&c, "b", Value::Null).await.refused(429, "TooManyRequests", "");
}

async fn reads_a_scale(c: Cluster) {
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let scale = c.get(&c.group("apps", "deployments/a/scale")).await.expect_code(200);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["spec"]["replicas"], 2);
    assert_eq!(scale["status"], json!({ "replicas": 0, "selector": "app=a" }));
}

async fn scales(c: Cluster) {
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let path = c.group("apps", "deployments/a/scale");
    let mut scale = c.get(&path).await.expect_code(200);
    scale["spec"]["replicas"] = 5.into();
    let new = c.put(&path, scale.clone()).await.expect_code(200);
    assert_eq!(new["spec"]["replicas"], 5);
    let found = c.get(&c.group("apps", "deployments/a")).await.expect_code(200);
    assert_eq!(
        (&found["spec"]["replicas"], &found["metadata"]["generation"]),
        (&json!(5), &json!(2))
    );
    scale["spec"]["replicas"] = 6.into();
    c.put(&path, scale).await.refused(409, "Conflict", "the object has been modified");
}

async fn patches_a_scale(c: Cluster) {
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let new = c
        .merge(&c.group("apps", "deployments/a/scale"), json!({ "spec": { "replicas": 0 } }))
        .await
        .expect_code(200);
    assert_eq!(new["kind"], "Scale");
    let found = c.get(&c.group("apps", "deployments/a")).await.expect_code(200);
    assert_eq!(found["spec"]["replicas"], 0);
}

async fn refuses_a_negative_scale(c: Cluster) {
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let reply = c
        .merge(&c.group("apps", "deployments/a/scale"), json!({ "spec": { "replicas": -1 } }))
        .await;
    reply.refused(
        422,
        "Invalid",
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    );
}

async fn scales_a_custom_resource(c: Cluster) {
    let name = c.own("a");
    let mut pool = super::custom::node_pool(&name);
    pool["spec"]["replicas"] = 1.into();
    c.make("/apis/karpenter.sh/v1/nodepools", pool).await;
    let path = format!("/apis/karpenter.sh/v1/nodepools/{name}");
    let scale = c.get(&format!("{path}/scale")).await.expect_code(200);
    assert_eq!(scale["spec"]["replicas"], 1);
    c.merge(&format!("{path}/scale"), json!({ "spec": { "replicas": 4 } })).await.expect_code(200);
    let found = c.get(&path).await.expect_code(200);
    assert_eq!(
        (&found["spec"]["replicas"], &found["metadata"]["generation"]),
        (&json!(4), &json!(2))
    );
}

async fn events_are_served_under_two_groups(c: Cluster) {
    let body = json!({
        "metadata": { "name": "e" }, "regarding": { "kind": "Pod", "name": "a", "namespace": c.namespace },
        "note": "hello", "reason": "Testing", "type": "Normal", "action": "Test", "reportingController": "example.com/x",
        "reportingInstance": "x-1", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    c.make(&c.group("events.k8s.io", "events"), body).await;
    let core = c.get(&c.core("events/e")).await.expect_code(200);
    assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("hello"), &json!("a")));
    assert_eq!(core["reportingComponent"], "example.com/x");
    let group = c.get(&c.group("events.k8s.io", "events/e")).await.expect_code(200);
    assert_eq!(group["note"], "hello");
    let path = c.core("events?fieldSelector=involvedObject.name=a,reason=Testing");
    assert_eq!(c.get(&path).await.expect_code(200)["items"].as_array().unwrap().len(), 1);
}
