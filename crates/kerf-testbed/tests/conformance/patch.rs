//! patch: the four kinds.

use super::harness::{Cluster, cases, config_map, deployment, node, pod, version};
use serde_json::{Value, json};

cases![
    merge_patch_adds_and_removes,
    merge_patch_replaces_lists,
    a_patch_with_a_version_is_optimistic,
    json_patch_applies_operations,
    a_json_patch_test_that_fails_is_refused,
    strategic_patch_merges_by_key,
    strategic_patch_deletes_by_directive,
    strategic_patch_replaces_taints,
    strategic_patch_merges_conditions,
    strategic_patch_removes_a_finalizer,
    refuses_unknown_patch_kinds,
    missing_objects_cannot_be_patched,
    a_patch_cannot_rename,
    apply_creates,
    apply_needs_a_manager,
    apply_merges_with_what_others_set,
    apply_removes_what_it_no_longer_sets,
    apply_conflicts_name_the_field,
    apply_can_force,
    apply_again_changes_nothing,
    apply_keeps_what_two_set,
    apply_merges_keyed_lists,
    apply_to_status,
];

async fn merge_patch_adds_and_removes(c: Cluster) {
    let mut body = config_map("a");
    body["data"] = json!({ "keep": "1", "drop": "2" });
    c.make(&c.core("configmaps"), body).await;
    let new = c
        .merge(&c.core("configmaps/a"), json!({ "data": { "drop": null, "add": "3" } }))
        .await
        .expect_code(200);
    assert_eq!(new["data"], json!({ "keep": "1", "add": "3" }));
}

async fn merge_patch_replaces_lists(c: Cluster) {
    let name = c.own("a");
    c.make("/api/v1/nodes", node(&name)).await;
    let taints = json!([{ "key": "one", "effect": "NoSchedule" }]);
    let new = c
        .merge(&format!("/api/v1/nodes/{name}"), json!({ "spec": { "taints": taints } }))
        .await
        .expect_code(200);
    assert_eq!(new["spec"]["taints"], taints);
}

async fn a_patch_with_a_version_is_optimistic(c: Cluster) {
    let made = c.make_config_map("a").await;
    let patch = |value: &str| json!({ "metadata": { "resourceVersion": version(&made) }, "data": { "k": value } });
    c.merge(&c.core("configmaps/a"), patch("1")).await.expect_code(200);
    let reply = c.merge(&c.core("configmaps/a"), patch("2")).await;
    reply.refused(409, "Conflict", "the object has been modified");
}

async fn json_patch_applies_operations(c: Cluster) {
    let mut body = config_map("a");
    body["data"] = json!({ "k": "1", "gone": "x" });
    c.make(&c.core("configmaps"), body).await;
    let patch = json!([
        { "op": "test", "path": "/data/k", "value": "1" },
        { "op": "replace", "path": "/data/k", "value": "2" },
        { "op": "remove", "path": "/data/gone" },
        { "op": "add", "path": "/metadata/labels", "value": { "a~b": "c" } },
    ]);
    let reply = c.patch(&c.core("configmaps/a"), "json-patch+json", patch).await;
    reply.refused(422, "Invalid", "metadata.labels");
    let patch = json!([
        { "op": "replace", "path": "/data/k", "value": "2" },
        { "op": "remove", "path": "/data/gone" },
        { "op": "add", "path": "/metadata/labels", "value": {} },
        { "op": "add", "path": "/metadata/labels/example.com~1key", "value": "v" },
    ]);
    let new = c.patch(&c.core("configmaps/a"), "json-patch+json", patch).await.expect_code(200);
    assert_eq!(new["data"], json!({ "k": "2" }));
    assert_eq!(new["metadata"]["labels"], json!({ "example.com/key": "v" }));
}

async fn a_json_patch_test_that_fails_is_refused(c: Cluster) {
    c.make_config_map("a").await;
    let patch = json!([{ "op": "test", "path": "/metadata/name", "value": "b" }]);
    let reply = c.patch(&c.core("configmaps/a"), "json-patch+json", patch).await;
    reply.refused(422, "Invalid", "the server rejected our request due to an error in our request");
    let patch = json!([{ "op": "remove", "path": "/data/none" }]);
    c.patch(&c.core("configmaps/a"), "json-patch+json", patch).await.refused(422, "Invalid", "");
}

const STRATEGIC: &str = "strategic-merge-patch+json";

async fn strategic_patch_merges_by_key(c: Cluster) {
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let containers = json!([{ "name": "side", "image": "registry/side:1" }]);
    let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
    let new = c.patch(&c.group("apps", "deployments/a"), STRATEGIC, patch).await.expect_code(200);
    let names: Vec<_> = new["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"main") && names.contains(&"side"), "{names:?}");
}

async fn strategic_patch_deletes_by_directive(c: Cluster) {
    let mut body = deployment("a");
    body["spec"]["template"]["spec"]["containers"] =
        json!([{ "name": "one", "image": "i:1" }, { "name": "two", "image": "i:1" }]);
    c.make(&c.group("apps", "deployments"), body).await;
    let patch = json!({ "spec": { "template": { "spec": { "containers": [{ "$patch": "delete", "name": "one" }] } } } });
    let new = c.patch(&c.group("apps", "deployments/a"), STRATEGIC, patch).await.expect_code(200);
    let containers = new["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0]["name"], "two");
}

async fn strategic_patch_replaces_taints(c: Cluster) {
    let name = c.own("a");
    c.make("/api/v1/nodes", node(&name)).await;
    let taints = json!([{ "key": "one", "effect": "NoSchedule" }]);
    let new = c
        .patch(&format!("/api/v1/nodes/{name}"), STRATEGIC, json!({ "spec": { "taints": taints } }))
        .await
        .expect_code(200);
    assert_eq!(new["spec"]["taints"], taints, "taints are not keyed");
}

async fn strategic_patch_merges_conditions(c: Cluster) {
    c.make_running_pod("a", json!({})).await;
    let patch =
        json!({ "status": { "conditions": [{ "type": "example.com/Warm", "status": "True" }] } });
    let new = c.patch(&c.core("pods/a/status"), STRATEGIC, patch).await.expect_code(200);
    let kinds: Vec<_> = new["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["type"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"Ready") && kinds.contains(&"example.com/Warm"), "{kinds:?}");
}

async fn strategic_patch_removes_a_finalizer(c: Cluster) {
    let mut body = config_map("a");
    body["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    c.make(&c.core("configmaps"), body).await;
    let patch =
        json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/one"] } });
    let new = c.patch(&c.core("configmaps/a"), STRATEGIC, patch).await.expect_code(200);
    assert_eq!(new["metadata"]["finalizers"], json!(["example.com/two"]));
}

async fn refuses_unknown_patch_kinds(c: Cluster) {
    c.make_config_map("a").await;
    let reply = c.patch(&c.core("configmaps/a"), "json", json!({})).await;
    reply.refused(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    super::custom::make_widget(&c, "a", json!({})).await;
    let reply = c.patch(&format!("{}/a", super::custom::widgets(&c)), STRATEGIC, json!({})).await;
    let message = "accepted media types include: application/json-patch+json";
    reply.refused(415, "UnsupportedMediaType", message);
}

async fn missing_objects_cannot_be_patched(c: Cluster) {
    c.merge(&c.core("configmaps/a"), json!({})).await.refused(
        404,
        "NotFound",
        "configmaps \"a\" not found",
    );
}

async fn a_patch_cannot_rename(c: Cluster) {
    c.make_config_map("a").await;
    let reply = c.merge(&c.core("configmaps/a"), json!({ "metadata": { "name": "b" } })).await;
    reply.refused(400, "BadRequest", "the name of the object");
}

const APPLY: &str = "apply-patch+yaml";

async fn apply(c: &Cluster, manager: &str, data: Value) -> super::harness::Reply {
    let mut body = config_map("a");
    body["data"] = data;
    c.patch(&c.core(&format!("configmaps/a?fieldManager={manager}")), APPLY, body).await
}

async fn apply_creates(c: Cluster) {
    let made = apply(&c, "one", json!({ "k": "v" })).await.expect_code(201);
    let managers = made["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1);
    assert_eq!(
        (&managers[0]["manager"], &managers[0]["operation"]),
        (&json!("one"), &json!("Apply"))
    );
    assert_eq!(managers[0]["fieldsV1"], json!({ "f:data": { "f:k": {} } }));
}

async fn apply_needs_a_manager(c: Cluster) {
    let reply = c.patch(&c.core("configmaps/a"), APPLY, config_map("a")).await;
    reply.refused(422, "Invalid", "fieldManager: Required value: is required for apply patch");
}

async fn apply_merges_with_what_others_set(c: Cluster) {
    apply(&c, "one", json!({ "x": "1" })).await.expect_code(201);
    let new = apply(&c, "two", json!({ "y": "2" })).await.expect_code(200);
    assert_eq!(new["data"], json!({ "x": "1", "y": "2" }));
}

async fn apply_removes_what_it_no_longer_sets(c: Cluster) {
    apply(&c, "one", json!({ "x": "1", "y": "2" })).await.expect_code(201);
    let new = apply(&c, "one", json!({ "y": "2" })).await.expect_code(200);
    assert_eq!(new["data"], json!({ "y": "2" }));
}

async fn apply_conflicts_name_the_field(c: Cluster) {
    apply(&c, "one", json!({ "x": "1" })).await.expect_code(201);
    let reply = apply(&c, "two", json!({ "x": "2" })).await;
    reply.refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    let cause = &reply.body["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["field"]),
        (&json!("FieldManagerConflict"), &json!(".data.x"))
    );
}

async fn apply_can_force(c: Cluster) {
    apply(&c, "one", json!({ "x": "1" })).await.expect_code(201);
    let new = apply(&c, "two&force=true", json!({ "x": "2" })).await.expect_code(200);
    assert_eq!(new["data"], json!({ "x": "2" }));
    apply(&c, "one", json!({ "x": "1" })).await.refused(409, "Conflict", "conflict with \"two\"");
}

async fn apply_again_changes_nothing(c: Cluster) {
    let first = apply(&c, "one", json!({ "x": "1" })).await.expect_code(201);
    let second = apply(&c, "one", json!({ "x": "1" })).await.expect_code(200);
    assert_eq!(version(&first), version(&second));
}

async fn apply_keeps_what_two_set(c: Cluster) {
    apply(&c, "one", json!({ "x": "1" })).await.expect_code(201);
    apply(&c, "two", json!({ "x": "1" })).await.expect_code(200);
    let new = apply(&c, "one", json!({})).await.expect_code(200);
    assert_eq!(new["data"], json!({ "x": "1" }), "the other manager still wants it");
}

async fn apply_merges_keyed_lists(c: Cluster) {
    let with = |containers: Value| {
        let mut body = pod("a");
        body["spec"]["containers"] = containers;
        body
    };
    let path = |manager: &str| c.core(&format!("pods/a?fieldManager={manager}"));
    c.patch(&path("one"), APPLY, with(json!([{ "name": "main", "image": "a:1" }])))
        .await
        .expect_code(201);
    let reply =
        c.patch(&path("two"), APPLY, with(json!([{ "name": "main", "image": "a:2" }]))).await;
    reply.refused(409, "Conflict", ".spec.containers[name=\"main\"].image");
}

async fn apply_to_status(c: Cluster) {
    let name = c.own("a");
    c.make("/api/v1/nodes", node(&name)).await;
    let mut body = node(&name);
    body["status"] = json!({ "capacity": { "cpu": "4" } });
    let path = format!("/api/v1/nodes/{name}/status?fieldManager=one");
    let new = c.patch(&path, APPLY, body).await.expect_code(200);
    assert_eq!(new["status"]["capacity"]["cpu"], "4");
}
