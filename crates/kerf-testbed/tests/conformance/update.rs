//! replace: conflicts, what may change where, generations.

use super::harness::{Cluster, cases, config_map, deployment, node, pod, version};
use serde_json::{Value, json};

cases![
    replaces,
    a_stale_version_conflicts,
    without_a_version_built_in_kinds_are_overwritten,
    another_uid_conflicts,
    refuses_another_name_than_the_path,
    missing_objects_cannot_be_replaced,
    leases_are_created_by_update,
    generation_counts_changes_of_the_spec,
    status_is_written_through_its_own_path,
    a_status_write_changes_nothing_else,
    node_status_may_bring_labels,
    kinds_without_status_have_no_such_path,
    pods_are_immutable_but_for_a_little,
    scheduling_gates_can_only_be_removed,
    selectors_are_immutable,
    a_provider_id_is_set_once,
    system_fields_stay,
    dry_run_changes_nothing,
    clearing_a_list_removes_it,
    each_kind_has_its_own_ways,
];

async fn replaces(c: Cluster) {
    let mut made = c.make_config_map("a").await;
    made["data"] = json!({ "k": "v" });
    let new = c.put(&c.core("configmaps/a"), made.clone()).await.expect_code(200);
    assert_eq!(new["data"], json!({ "k": "v" }));
    assert_ne!(version(&new), version(&made));
}

async fn a_stale_version_conflicts(c: Cluster) {
    let mut made = c.make_config_map("a").await;
    c.merge(&c.core("configmaps/a"), json!({ "data": { "k": "1" } })).await.expect_code(200);
    made["data"] = json!({ "k": "2" });
    let reply = c.put(&c.core("configmaps/a"), made).await;
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                   changes to the latest version and try again";
    reply.refused(409, "Conflict", message);
    assert_eq!(reply.body["details"], json!({ "name": "a", "kind": "configmaps" }));
}

async fn without_a_version_built_in_kinds_are_overwritten(c: Cluster) {
    c.make_config_map("a").await;
    let mut body = config_map("a");
    body["data"] = json!({ "k": "v" });
    let new = c.put(&c.core("configmaps/a"), body).await.expect_code(200);
    assert_eq!(new["data"], json!({ "k": "v" }));
}

async fn another_uid_conflicts(c: Cluster) {
    let made = c.make_config_map("a").await;
    let mut body = config_map("a");
    body["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    let reply = c.put(&c.core("configmaps/a"), body).await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    let message = format!(
        "Precondition failed: UID in precondition: 11111111-2222-3333-4444-555555555555, UID in object meta: {uid}"
    );
    reply.refused(409, "Conflict", &message);
}

async fn refuses_another_name_than_the_path(c: Cluster) {
    c.make_config_map("a").await;
    let reply = c.put(&c.core("configmaps/a"), config_map("b")).await;
    reply.refused(
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    );
}

async fn missing_objects_cannot_be_replaced(c: Cluster) {
    c.put(&c.core("configmaps/a"), config_map("a")).await.refused(
        404,
        "NotFound",
        "configmaps \"a\" not found",
    );
}

async fn leases_are_created_by_update(c: Cluster) {
    let body = json!({ "metadata": { "name": "a" }, "spec": { "holderIdentity": "me", "leaseDurationSeconds": 15 } });
    let path = c.group("coordination.k8s.io", "leases/a");
    let mut made = c.put(&path, body.clone()).await.expect_code(201);
    let message = "leases.coordination.k8s.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    c.put(&path, body).await.refused(422, "Invalid", message);
    made["spec"]["leaseDurationSeconds"] = 0.into();
    c.put(&path, made).await.refused(
        422,
        "Invalid",
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
    );
}

async fn generation_counts_changes_of_the_spec(c: Cluster) {
    let path = c.group("apps", "deployments/a");
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let new =
        c.merge(&path, json!({ "metadata": { "labels": { "x": "y" } } })).await.expect_code(200);
    assert_eq!(new["metadata"]["generation"], 1);
    let new = c.merge(&path, json!({ "spec": { "replicas": 5 } })).await.expect_code(200);
    assert_eq!(new["metadata"]["generation"], 2);
    let new = c.merge(&path, json!({ "spec": { "replicas": 5 } })).await.expect_code(200);
    assert_eq!(new["metadata"]["generation"], 2);
    let status = json!({ "status": { "replicas": 5 } });
    let new = c.merge(&format!("{path}/status"), status).await.expect_code(200);
    assert_eq!(new["metadata"]["generation"], 2);
}

async fn status_is_written_through_its_own_path(c: Cluster) {
    let path = c.group("apps", "deployments/a");
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let new = c.merge(&path, json!({ "status": { "replicas": 7 } })).await.expect_code(200);
    assert_eq!(new["status"]["replicas"], Value::Null);
    let new = c
        .merge(&format!("{path}/status"), json!({ "status": { "replicas": 7 } }))
        .await
        .expect_code(200);
    assert_eq!(new["status"]["replicas"], 7);
    let found = c.get(&format!("{path}/status")).await.expect_code(200);
    assert_eq!(found["status"]["replicas"], 7);
}

async fn a_status_write_changes_nothing_else(c: Cluster) {
    let path = c.group("apps", "deployments/a");
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let patch = json!({
        "metadata": { "labels": { "x": "y" } }, "spec": { "replicas": 9 }, "status": { "replicas": 1 },
    });
    let new = c.merge(&format!("{path}/status"), patch).await.expect_code(200);
    assert_eq!(new["spec"]["replicas"], 2);
    assert_eq!(new["metadata"]["labels"], Value::Null);
    assert_eq!(new["status"]["replicas"], 1);
}

async fn node_status_may_bring_labels(c: Cluster) {
    let name = c.own("a");
    c.make("/api/v1/nodes", node(&name)).await;
    let patch = json!({
        "metadata": { "labels": { "x": "y" } }, "spec": { "unschedulable": true },
        "status": { "capacity": { "cpu": "4" } },
    });
    let new = c.merge(&format!("/api/v1/nodes/{name}/status"), patch).await.expect_code(200);
    assert_eq!(new["metadata"]["labels"]["x"], "y");
    assert_eq!(new["spec"]["unschedulable"], Value::Null);
    assert_eq!(new["status"]["capacity"]["cpu"], "4");
}

async fn kinds_without_status_have_no_such_path(c: Cluster) {
    c.make_config_map("a").await;
    assert_eq!(c.merge(&c.core("configmaps/a/status"), json!({})).await.code, 404);
}

async fn pods_are_immutable_but_for_a_little(c: Cluster) {
    c.make(&c.core("pods"), pod("a")).await;
    let reply = c.merge(&c.core("pods/a"), json!({ "spec": { "nodeName": "n1" } })).await;
    reply.refused(422, "Invalid", "spec: Forbidden: pod updates may not change fields other than");
    let patch =
        json!({ "spec": { "containers": [{ "name": "main", "image": "registry/app:2" }] } });
    let new =
        c.patch(&c.core("pods/a"), "strategic-merge-patch+json", patch).await.expect_code(200);
    assert_eq!(new["spec"]["containers"][0]["image"], "registry/app:2");
    assert_eq!(new["metadata"]["generation"], 2);
    let new = c
        .merge(&c.core("pods/a"), json!({ "metadata": { "annotations": { "x": "y" } } }))
        .await
        .expect_code(200);
    assert_eq!(new["metadata"]["annotations"], json!({ "x": "y" }));
}

async fn scheduling_gates_can_only_be_removed(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
    c.make(&c.core("pods"), body).await;
    let more = json!({ "spec": { "schedulingGates": [{ "name": "example.com/wait" }, { "name": "example.com/more" }] } });
    c.merge(&c.core("pods/a"), more).await.refused(
        422,
        "Invalid",
        "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/more'",
    );
    let new = c
        .merge(&c.core("pods/a"), json!({ "spec": { "schedulingGates": null } }))
        .await
        .expect_code(200);
    assert_eq!(new["spec"]["schedulingGates"], Value::Null);
}

async fn selectors_are_immutable(c: Cluster) {
    c.make(&c.group("apps", "deployments"), deployment("a")).await;
    let labels = json!({ "app": "b" });
    let patch = json!({ "spec": {
        "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels } },
    } });
    let reply = c.merge(&c.group("apps", "deployments/a"), patch).await;
    reply.refused(422, "Invalid", "field is immutable");
}

async fn a_provider_id_is_set_once(c: Cluster) {
    let name = c.own("a");
    c.make("/api/v1/nodes", node(&name)).await;
    let path = format!("/api/v1/nodes/{name}");
    c.merge(&path, json!({ "spec": { "providerID": "kwok://a" } })).await.expect_code(200);
    let reply = c.merge(&path, json!({ "spec": { "providerID": "kwok://b" } })).await;
    reply.refused(422, "Invalid", "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid");
}

async fn system_fields_stay(c: Cluster) {
    let made = c.make_config_map("a").await;
    let patch = json!({ "metadata": { "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7 }, "data": { "a": "b" } });
    let new = c.merge(&c.core("configmaps/a"), patch).await.expect_code(200);
    assert_eq!(new["metadata"]["creationTimestamp"], made["metadata"]["creationTimestamp"]);
    assert_eq!(new["metadata"]["generation"], Value::Null);
}

async fn dry_run_changes_nothing(c: Cluster) {
    let made = c.make_config_map("a").await;
    let new = c
        .merge(&c.core("configmaps/a?dryRun=All"), json!({ "data": { "a": "b" } }))
        .await
        .expect_code(200);
    assert_eq!(new["data"], json!({ "a": "b" }));
    assert_eq!(c.get(&c.core("configmaps/a")).await.expect_code(200), made);
    c.delete(&c.core("configmaps/a?dryRun=All")).await.expect_code(200);
    c.get(&c.core("configmaps/a")).await.expect_code(200);
}

async fn clearing_a_list_removes_it(c: Cluster) {
    let name = c.own("a");
    c.make("/api/v1/nodes", node(&name)).await;
    let new = c
        .merge(&format!("/api/v1/nodes/{name}"), json!({ "spec": { "taints": [] } }))
        .await
        .expect_code(200);
    assert_eq!(new["spec"]["taints"], Value::Null);
}

/// Which kinds count generations, may be overwritten without a version, are returned when deleted, and are
/// created by an update.
async fn each_kind_has_its_own_ways(c: Cluster) {
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "m", "image": "i:1" }] } });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let mut job = template.clone();
    job["spec"]["restartPolicy"] = "Never".into();
    let workload =
        json!({ "spec": { "selector": selector, "template": template, "serviceName": "x" } });
    let ns = c.namespace.as_str();
    // Path, body; generation, code of an update without version, kind a delete returns, code of an update of nothing.
    for (path, body, generation, put, deleted, put_missing) in [
        (
            format!("/api/v1/namespaces/{ns}/pods"),
            json!({ "spec": template["spec"] }),
            true,
            200,
            "Pod",
            404,
        ),
        ("/api/v1/nodes".into(), json!({}), false, 200, "Status", 404),
        (format!("/api/v1/namespaces/{ns}/configmaps"), json!({}), false, 200, "Status", 404),
        (
            format!("/api/v1/namespaces/{ns}/serviceaccounts"),
            json!({}),
            false,
            200,
            "ServiceAccount",
            404,
        ),
        (
            format!("/apis/apps/v1/namespaces/{ns}/deployments"),
            workload.clone(),
            true,
            200,
            "Status",
            404,
        ),
        (
            format!("/apis/apps/v1/namespaces/{ns}/replicasets"),
            workload.clone(),
            true,
            200,
            "Status",
            404,
        ),
        (
            format!("/apis/apps/v1/namespaces/{ns}/statefulsets"),
            workload.clone(),
            true,
            200,
            "Status",
            404,
        ),
        (
            format!("/apis/apps/v1/namespaces/{ns}/daemonsets"),
            workload.clone(),
            true,
            200,
            "Status",
            404,
        ),
        (
            format!("/apis/batch/v1/namespaces/{ns}/cronjobs"),
            json!({ "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": job } } } }),
            true,
            200,
            "Status",
            404,
        ),
        (
            format!("/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"),
            json!({ "spec": { "minAvailable": 1, "selector": selector } }),
            true,
            422,
            "Status",
            404,
        ),
        (
            format!("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"),
            json!({ "spec": {} }),
            false,
            422,
            "Status",
            201,
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses".into(),
            json!({ "value": 5 }),
            true,
            200,
            "Status",
            404,
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses".into(),
            json!({ "provisioner": "p" }),
            false,
            200,
            "StorageClass",
            404,
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments".into(),
            json!({ "spec": { "attacher": "a", "nodeName": "n", "source": { "persistentVolumeName": "pv" } } }),
            false,
            422,
            "VolumeAttachment",
            404,
        ),
    ] {
        let name = c.own("x");
        let mut body = body;
        body["metadata"] = json!({ "name": name });
        let made = c.make(&path, body.clone()).await;
        assert_eq!(made["metadata"]["generation"].is_number(), generation, "{path}");
        let mut full = made.clone();
        full["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        full["metadata"]["labels"] = json!({ "z": "z" });
        let one = format!("{path}/{name}");
        assert_eq!(c.put(&one, full).await.code, put, "{path}");
        assert_eq!(c.delete(&one).await.body["kind"], deleted, "{path}");
        assert_eq!(c.put(&one, body).await.code, put_missing, "{path}");
    }
}
