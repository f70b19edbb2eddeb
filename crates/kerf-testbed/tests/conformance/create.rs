//! create: names, system fields, defaults, refusals.

use super::harness::{Cluster, cases, config_map, deployment, node, pod};
use serde_json::{Value, json};

cases![
    sets_system_fields,
    ignores_system_fields_of_the_client,
    refuses_a_name_that_exists,
    generates_names,
    needs_a_name,
    refuses_a_bad_name,
    refuses_a_missing_namespace,
    refuses_another_namespace_than_the_path,
    refuses_a_version,
    refuses_a_body_that_is_no_json,
    refuses_another_kind,
    accepts_a_body_without_kind,
    does_not_store_on_dry_run,
    refuses_bad_labels,
    unknown_resources_are_not_found,
    drops_status_of_deployments,
    keeps_status_of_nodes,
    taints_new_nodes,
    fills_in_pod_defaults,
    requests_follow_limits,
    pods_tolerate_failing_nodes_for_a_while,
    pods_start_pending,
    refuses_a_pod_without_containers,
    priority_comes_from_the_class,
    refuses_an_unknown_priority_class,
    fills_in_deployment_defaults,
    refuses_a_selector_that_misses_its_template,
    jobs_select_by_their_uid,
    namespaces_are_labelled_with_their_name,
    refuses_two_controllers,
    empty_lists_are_not_stored,
    built_in_kinds_drop_unknown_fields,
    built_in_kinds_refuse_wrong_types,
    quantities_have_one_form,
    refuses_requests_above_limits,
    refuses_bad_scheduling_constraints,
    volumes_are_protected,
    terminating_namespaces_take_nothing_new,
];

async fn sets_system_fields(c: Cluster) {
    let made = c.make_config_map("a").await;
    let metadata = &made["metadata"];
    assert_eq!(metadata["namespace"], c.namespace.as_str());
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(metadata["creationTimestamp"].as_str().unwrap().ends_with('Z'));
    assert!(metadata["resourceVersion"].as_str().unwrap().parse::<u64>().is_ok());
    assert_eq!(metadata["generation"], Value::Null, "config maps count no generations");
    let made = c.make(&c.group("apps", "deployments"), deployment("a")).await;
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!((&made["kind"], &made["apiVersion"]), (&json!("Deployment"), &json!("apps/v1")));
}

async fn ignores_system_fields_of_the_client(c: Cluster) {
    let mut body = config_map("a");
    body["metadata"]["uid"] = "mine".into();
    body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    body["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    let made = c.make(&c.core("configmaps"), body).await;
    assert_ne!(made["metadata"]["uid"], "mine");
    assert_ne!(made["metadata"]["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!(made["metadata"]["deletionTimestamp"], Value::Null);
}

async fn refuses_a_name_that_exists(c: Cluster) {
    c.make_config_map("a").await;
    let reply = c.post(&c.core("configmaps"), config_map("a")).await;
    reply.refused(409, "AlreadyExists", "configmaps \"a\" already exists");
    assert_eq!(reply.body["details"], json!({ "name": "a", "kind": "configmaps" }));
}

async fn generates_names(c: Cluster) {
    let body = json!({ "metadata": { "generateName": "gen-" } });
    let made = c.make(&c.core("configmaps"), body).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    assert_eq!(made["metadata"]["generateName"], "gen-");
}

async fn needs_a_name(c: Cluster) {
    let reply = c.post(&c.core("configmaps"), json!({ "metadata": {} })).await;
    reply.refused(
        422,
        "Invalid",
        "metadata.name: Required value: name or generateName is required",
    );
}

async fn refuses_a_bad_name(c: Cluster) {
    for name in ["Upper", "under_score", "-dash", "dot."] {
        let reply = c.post(&c.core("configmaps"), config_map(name)).await;
        reply.refused(422, "Invalid", "a lowercase RFC 1123 subdomain");
        assert_eq!(reply.body["details"]["causes"][0]["reason"], "FieldValueInvalid");
    }
}

async fn refuses_a_missing_namespace(c: Cluster) {
    let reply = c.post("/api/v1/namespaces/nowhere/configmaps", config_map("a")).await;
    reply.refused(404, "NotFound", "namespaces \"nowhere\" not found");
}

async fn refuses_another_namespace_than_the_path(c: Cluster) {
    let mut body = config_map("a");
    body["metadata"]["namespace"] = "default".into();
    let reply = c.post(&c.core("configmaps"), body).await;
    reply.refused(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
}

async fn refuses_a_version(c: Cluster) {
    let mut body = config_map("a");
    body["metadata"]["resourceVersion"] = "1".into();
    let reply = c.post(&c.core("configmaps"), body).await;
    assert_eq!(reply.code, 500, "{reply:?}");
    assert!(
        reply.body["message"]
            .as_str()
            .unwrap()
            .contains("resourceVersion should not be set on objects to be created")
    );
}

async fn refuses_a_body_that_is_no_json(c: Cluster) {
    let reply =
        c.send(http::Method::POST, &c.core("configmaps"), "application/json", "{".into()).await;
    reply.refused(400, "BadRequest", "");
}

async fn refuses_another_kind(c: Cluster) {
    let reply = c.post(&c.core("configmaps"), node("a")).await;
    reply.refused(400, "BadRequest", "cannot be handled as a ConfigMap");
}

async fn accepts_a_body_without_kind(c: Cluster) {
    let made = c.make(&c.core("configmaps"), json!({ "metadata": { "name": "a" } })).await;
    assert_eq!(made["kind"], "ConfigMap");
}

async fn does_not_store_on_dry_run(c: Cluster) {
    let made = c.make(&c.core("configmaps?dryRun=All"), config_map("a")).await;
    assert_eq!(made["metadata"]["name"], "a");
    c.get(&c.core("configmaps/a")).await.refused(404, "NotFound", "");
}

async fn refuses_bad_labels(c: Cluster) {
    let mut body = config_map("a");
    body["metadata"]["labels"] = json!({ "key": "no spaces please" });
    let reply = c.post(&c.core("configmaps"), body.clone()).await;
    reply.refused(422, "Invalid", "metadata.labels: Invalid value: \"no spaces please\"");
    body["metadata"]["labels"] = json!({ "two/slashes/here": "a" });
    c.post(&c.core("configmaps"), body).await.refused(422, "Invalid", "metadata.labels");
}

async fn unknown_resources_are_not_found(c: Cluster) {
    for path in ["/apis/nobody.example/v1/gadgets", "/apis/karpenter.sh/v1/gadgets"] {
        let reply = c.get(path).await;
        assert_eq!(
            (reply.code, reply.body.as_str()),
            (404, Some("404 page not found\n")),
            "{path}"
        );
    }
    for path in [c.core("gadgets"), c.group("apps", "gadgets")] {
        c.get(&path).await.refused(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
    }
}

async fn drops_status_of_deployments(c: Cluster) {
    let mut body = deployment("a");
    body["status"] = json!({ "replicas": 7 });
    let made = c.make(&c.group("apps", "deployments"), body).await;
    assert_eq!(made["status"]["replicas"], Value::Null);
}

async fn keeps_status_of_nodes(c: Cluster) {
    let mut body = node(&c.own("a"));
    body["status"] = json!({ "capacity": { "cpu": "4" }, "allocatable": { "cpu": "3" } });
    let made = c.make("/api/v1/nodes", body).await;
    assert_eq!(made["status"]["allocatable"]["cpu"], "3");
    assert_eq!(made["metadata"]["generation"], Value::Null, "nodes count no generations");
}

async fn taints_new_nodes(c: Cluster) {
    let mut body = node(&c.own("a"));
    body["spec"] = json!({ "taints": [{ "key": "own", "effect": "NoExecute" }] });
    let made = c.make("/api/v1/nodes", body).await;
    let taints = made["spec"]["taints"].as_array().unwrap();
    assert_eq!(taints.len(), 2, "{taints:?}");
    assert!(
        taints.contains(&json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }))
    );
}

async fn fills_in_pod_defaults(c: Cluster) {
    let made = c.make(&c.core("pods"), pod("a")).await;
    let spec = &made["spec"];
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["schedulerName"], "default-scheduler");
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(spec["dnsPolicy"], "ClusterFirst");
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec["preemptionPolicy"], "PreemptLowerPriority");
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(made["metadata"]["generation"], 1);
}

async fn requests_follow_limits(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] =
        json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } });
    let made = c.make(&c.core("pods"), body).await;
    let requests = &made["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(requests, &json!({ "cpu": "500m", "memory": "1Gi" }));
    assert_eq!(made["status"]["qosClass"], "Burstable");
}

async fn pods_tolerate_failing_nodes_for_a_while(c: Cluster) {
    let made = c.make(&c.core("pods"), pod("a")).await;
    let mild = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 });
    let expected = [mild("node.kubernetes.io/not-ready"), mild("node.kubernetes.io/unreachable")];
    assert_eq!(made["spec"]["tolerations"], json!(expected));
    let mut body = pod("b");
    body["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    let made = c.make(&c.core("pods"), body).await;
    assert_eq!(made["spec"]["tolerations"].as_array().unwrap().len(), 1);
}

async fn pods_start_pending(c: Cluster) {
    let mut body = pod("a");
    body["status"] = json!({ "phase": "Running" });
    let made = c.make(&c.core("pods"), body).await;
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["status"]["qosClass"], "BestEffort");
}

async fn refuses_a_pod_without_containers(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["containers"] = json!([]);
    let reply = c.post(&c.core("pods"), body).await;
    reply.refused(422, "Invalid", "spec.containers: Required value");
    let mut body = pod("a");
    body["spec"]["containers"] = json!([{ "name": "x" }]);
    c.post(&c.core("pods"), body).await.refused(
        422,
        "Invalid",
        "spec.containers[0].image: Required value",
    );
}

async fn priority_comes_from_the_class(c: Cluster) {
    let class = c.own("high");
    let body = json!({ "metadata": { "name": class }, "value": 1000 });
    c.make("/apis/scheduling.k8s.io/v1/priorityclasses", body).await;
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = class.into();
    let made = c.make(&c.core("pods"), body).await;
    assert_eq!(made["spec"]["priority"], 1000);
}

async fn refuses_an_unknown_priority_class(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["priorityClassName"] = "no-such".into();
    let reply = c.post(&c.core("pods"), body).await;
    reply.refused(403, "Forbidden", "no PriorityClass with name no-such was found");
}

async fn fills_in_deployment_defaults(c: Cluster) {
    let mut body = deployment("a");
    body["spec"].as_object_mut().unwrap().remove("replicas");
    let made = c.make(&c.group("apps", "deployments"), body).await;
    assert_eq!(made["spec"]["replicas"], 1);
    assert_eq!(
        made["spec"]["strategy"]["rollingUpdate"],
        json!({ "maxSurge": "25%", "maxUnavailable": "25%" })
    );
    assert_eq!(made["spec"]["revisionHistoryLimit"], 10);
    assert_eq!(made["spec"]["template"]["spec"]["schedulerName"], "default-scheduler");
    assert_eq!(
        made["spec"]["template"]["spec"]["tolerations"],
        Value::Null,
        "admission is for pods"
    );
}

async fn refuses_a_selector_that_misses_its_template(c: Cluster) {
    let mut body = deployment("a");
    body["spec"]["selector"]["matchLabels"] = json!({ "app": "other" });
    let reply = c.post(&c.group("apps", "deployments"), body).await;
    reply.refused(422, "Invalid", "`selector` does not match template `labels`");
}

async fn jobs_select_by_their_uid(c: Cluster) {
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "x", "image": "y" }] } });
    let body = json!({ "metadata": { "name": "a" }, "spec": { "template": template } });
    let made = c.make(&c.group("batch", "jobs"), body).await;
    let uid = &made["metadata"]["uid"];
    assert_eq!(
        made["spec"]["selector"]["matchLabels"],
        json!({ "batch.kubernetes.io/controller-uid": uid })
    );
    let labels = &made["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["batch.kubernetes.io/job-name"], "a");
    assert_eq!(labels["controller-uid"], *uid);
    assert_eq!(
        (&made["spec"]["completions"], &made["spec"]["backoffLimit"]),
        (&json!(1), &json!(6))
    );
}

async fn namespaces_are_labelled_with_their_name(c: Cluster) {
    let found = c.get(&format!("/api/v1/namespaces/{}", c.namespace)).await.expect_code(200);
    assert_eq!(found["metadata"]["labels"]["kubernetes.io/metadata.name"], c.namespace.as_str());
    assert_eq!(found["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(found["status"]["phase"], "Active");
}

async fn refuses_two_controllers(c: Cluster) {
    let owner = |name: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": true });
    let mut body = config_map("a");
    body["metadata"]["ownerReferences"] = json!([owner("x"), owner("y")]);
    let reply = c.post(&c.core("configmaps"), body).await;
    reply.refused(422, "Invalid", "Only one reference can have Controller set to true");
}

async fn empty_lists_are_not_stored(c: Cluster) {
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({});
    body["metadata"]["finalizers"] = json!([]);
    body["spec"]["nodeSelector"] = json!({});
    body["spec"]["containers"][0]["env"] = json!([]);
    let made = c.make(&c.core("pods"), body).await;
    assert_eq!(made["metadata"]["labels"], Value::Null);
    assert_eq!(made["metadata"]["finalizers"], Value::Null);
    assert_eq!(made["spec"]["nodeSelector"], Value::Null);
    assert_eq!(made["spec"]["containers"][0]["env"], Value::Null);
}

async fn built_in_kinds_drop_unknown_fields(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["bogus"] = 1.into();
    body["metadata"]["bogus"] = 1.into();
    let made = c.make(&c.core("pods"), body).await;
    assert_eq!((&made["spec"]["bogus"], &made["metadata"]["bogus"]), (&Value::Null, &Value::Null));
}

async fn built_in_kinds_refuse_wrong_types(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["containers"] = "none".into();
    let reply = c.post(&c.core("pods"), body).await;
    reply.refused(400, "BadRequest", "Pod in version \"v1\" cannot be handled as a Pod");
    let mut body = pod("a");
    body["metadata"]["labels"] = json!({ "number": 1 });
    c.post(&c.core("pods"), body).await.refused(400, "BadRequest", "cannot be handled as a Pod");
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "much" } });
    c.post(&c.core("pods"), body).await.refused(
        400,
        "BadRequest",
        "quantities must match the regular expression",
    );
}

async fn quantities_have_one_form(c: Cluster) {
    let mut body = pod("a");
    let requests = json!({ "cpu": "1000m", "memory": "1024Mi", "ephemeral-storage": "0.5Gi", "example.com/gpu": 2 });
    body["spec"]["containers"][0]["resources"] =
        json!({ "requests": requests, "limits": { "example.com/gpu": 2 } });
    let made = c.make(&c.core("pods"), body).await;
    let expected = json!({ "cpu": "1", "memory": "1Gi", "ephemeral-storage": "512Mi", "example.com/gpu": "2" });
    assert_eq!(made["spec"]["containers"][0]["resources"]["requests"], expected);
}

async fn refuses_requests_above_limits(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } });
    let reply = c.post(&c.core("pods"), body).await;
    let message = "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1";
    reply.refused(422, "Invalid", message);
}

async fn refuses_bad_scheduling_constraints(c: Cluster) {
    let mut body = pod("a");
    body["spec"]["tolerations"] = json!([{ "key": "a", "operator": "Near" }]);
    let reply = c.post(&c.core("pods"), body).await;
    reply.refused(422, "Invalid", "spec.tolerations[0].operator: Unsupported value: \"Near\": supported values: \"Equal\", \"Exists\"");
    let mut body = pod("a");
    body["spec"]["topologySpreadConstraints"] =
        json!([{ "maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Maybe" }]);
    let reply = c.post(&c.core("pods"), body).await;
    reply.refused(
        422,
        "Invalid",
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
    );
    reply.refused(
        422,
        "Invalid",
        "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
    );
    let mut body = pod("a");
    let terms = json!([{ "matchExpressions": [{ "key": "a", "operator": "In" }] }]);
    body["spec"]["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } });
    let reply = c.post(&c.core("pods"), body).await;
    reply.refused(422, "Invalid", "matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'");
}

async fn volumes_are_protected(c: Cluster) {
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let body = json!({ "metadata": { "name": "a" }, "spec": spec });
    let made = c.make(&c.core("persistentvolumeclaims"), body).await;
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(made["status"]["phase"], "Pending");
}

async fn terminating_namespaces_take_nothing_new(c: Cluster) {
    c.make_running_pod("a", json!({})).await;
    let gone = c.delete(&format!("/api/v1/namespaces/{}", c.namespace)).await.expect_code(200);
    assert_eq!(gone["status"]["phase"], "Terminating");
    let reply = c.post(&c.core("configmaps"), config_map("a")).await;
    let message = format!(
        "unable to create new content in namespace {} because it is being terminated",
        c.namespace
    );
    reply.refused(403, "Forbidden", &message);
    assert_eq!(reply.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let eviction = json!({ "metadata": { "name": "a" } });
    c.post(&c.core("pods/a/eviction"), eviction).await.refused(403, "Forbidden", &message);
    c.merge(&c.core("pods/a"), json!({ "metadata": { "labels": { "still": "writable" } } }))
        .await
        .expect_code(200);
}
