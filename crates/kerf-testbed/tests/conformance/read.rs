//! get and list: selectors, pages, versions.

use super::harness::{Cluster, cases, pod, version};
use serde_json::{Value, json};

cases![
    gets_what_was_created,
    missing_objects_are_not_found,
    lists_in_name_order,
    lists_across_namespaces,
    items_of_built_in_lists_carry_no_kind,
    label_selectors,
    refuses_a_malformed_label_selector,
    field_selectors,
    refuses_an_unknown_field_selector,
    pages_are_consistent,
    refuses_a_broken_continue_token,
    the_list_version_is_not_older_than_its_items,
    refuses_a_version_from_the_future,
    metadata_only,
    tables,
    discovers_resources,
    aggregated_discovery,
    reports_its_version,
];

async fn gets_what_was_created(c: Cluster) {
    let made = c.make_config_map("a").await;
    assert_eq!(c.get(&c.core("configmaps/a")).await.expect_code(200), made);
}

async fn missing_objects_are_not_found(c: Cluster) {
    let reply = c.get(&c.core("configmaps/nope")).await;
    reply.refused(404, "NotFound", "configmaps \"nope\" not found");
    assert_eq!(reply.body["status"], "Failure");
    assert_eq!(reply.body["details"], json!({ "name": "nope", "kind": "configmaps" }));
    let reply = c.get("/apis/karpenter.sh/v1/nodepools/nope").await;
    reply.refused(404, "NotFound", "nodepools.karpenter.sh \"nope\" not found");
    assert_eq!(
        reply.body["details"],
        json!({ "name": "nope", "kind": "nodepools", "group": "karpenter.sh" })
    );
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

async fn lists_in_name_order(c: Cluster) {
    for name in ["b", "c", "a"] {
        c.make_config_map(name).await;
    }
    let list = c.get(&c.core("configmaps")).await.expect_code(200);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(names(&list), ["a", "b", "c"]);
}

async fn lists_across_namespaces(c: Cluster) {
    c.make_config_map(&c.own("a")).await;
    let list = c.get("/api/v1/configmaps").await.expect_code(200);
    assert!(names(&list).contains(&c.own("a").as_str()));
    let empty = c.get("/api/v1/namespaces/nowhere/configmaps").await.expect_code(200);
    assert_eq!(empty["items"], json!([]), "a namespace that does not exist is empty");
}

async fn items_of_built_in_lists_carry_no_kind(c: Cluster) {
    c.make_config_map("a").await;
    let list = c.get(&c.core("configmaps")).await.expect_code(200);
    assert_eq!(list["items"][0]["kind"], Value::Null);
    super::custom::make_widget(&c, "a", json!({})).await;
    let list = c.get(&super::custom::widgets(&c)).await.expect_code(200);
    assert_eq!(list["items"][0]["kind"], "Widget");
}

async fn label_selectors(c: Cluster) {
    for (name, labels) in [
        ("a", json!({ "app": "web", "tier": "1" })),
        ("b", json!({ "app": "db" })),
        ("c", json!({})),
    ] {
        let body = json!({ "metadata": { "name": name, "labels": labels } });
        c.make(&c.core("configmaps"), body).await;
    }
    for (selector, expected) in [
        ("app=web", vec!["a"]),
        ("app!=web", vec!["b", "c"]),
        ("app", vec!["a", "b"]),
        ("!app", vec!["c"]),
        ("app%20in%20(web,db)", vec!["a", "b"]),
        ("app%20notin%20(web)", vec!["b", "c"]),
        ("app=web,tier=1", vec!["a"]),
        ("app=web,tier=2", vec![]),
    ] {
        let list =
            c.get(&c.core(&format!("configmaps?labelSelector={selector}"))).await.expect_code(200);
        assert_eq!(names(&list), expected, "{selector}");
    }
}

async fn refuses_a_malformed_label_selector(c: Cluster) {
    let reply = c.get(&c.core("configmaps?labelSelector=a%20b")).await;
    reply.refused(400, "BadRequest", "unable to parse requirement");
}

async fn field_selectors(c: Cluster) {
    let mut placed = pod("placed");
    placed["spec"]["nodeName"] = "n1".into();
    c.make(&c.core("pods"), placed).await;
    c.make(&c.core("pods"), pod("waiting")).await;
    for (selector, expected) in [
        ("spec.nodeName=n1", vec!["placed"]),
        ("spec.nodeName=", vec!["waiting"]),
        ("spec.nodeName!=n1", vec!["waiting"]),
        ("metadata.name=placed", vec!["placed"]),
        ("status.phase=Pending", vec!["placed", "waiting"]),
        ("status.phase=Pending,metadata.name!=placed", vec!["waiting"]),
    ] {
        let list = c.get(&c.core(&format!("pods?fieldSelector={selector}"))).await.expect_code(200);
        assert_eq!(names(&list), expected, "{selector}");
    }
}

async fn refuses_an_unknown_field_selector(c: Cluster) {
    let reply = c.get(&c.core("pods?fieldSelector=spec.dnsPolicy=Default")).await;
    reply.refused(400, "BadRequest", "field label not supported: spec.dnsPolicy");
}

async fn pages_are_consistent(c: Cluster) {
    for name in ["a", "b", "c", "d", "e"] {
        c.make_config_map(name).await;
    }
    let first = c.get(&c.core("configmaps?limit=2")).await.expect_code(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    // What changes between two pages is not seen by the second.
    c.delete(&c.core("configmaps/c")).await.expect_code(200);
    c.make_config_map("cc").await;
    let second =
        c.get(&c.core(&format!("configmaps?limit=2&continue={token}"))).await.expect_code(200);
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(version(&second), version(&first));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third =
        c.get(&c.core(&format!("configmaps?limit=2&continue={token}"))).await.expect_code(200);
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third["metadata"]["continue"], Value::Null);
}

async fn refuses_a_broken_continue_token(c: Cluster) {
    let reply = c.get(&c.core("configmaps?limit=2&continue=nonsense")).await;
    reply.refused(400, "BadRequest", "continue key is not valid");
}

async fn the_list_version_is_not_older_than_its_items(c: Cluster) {
    let made = c.make_config_map("a").await;
    let list = c.get(&c.core("configmaps")).await.expect_code(200);
    let number = |value: &Value| version(value).parse::<u64>().unwrap();
    assert!(number(&list) >= number(&made));
}

async fn refuses_a_version_from_the_future(c: Cluster) {
    let reply = c
        .get(&c.core("configmaps?resourceVersion=99999999999&resourceVersionMatch=NotOlderThan"))
        .await;
    reply.refused(504, "Timeout", "Too large resource version");
    assert_eq!(reply.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

async fn with_accept(c: &Cluster, path: &str, accept: &str) -> Value {
    use http_body_util::BodyExt;
    let request = http::Request::builder().uri(path).header("accept", accept);
    let response = c.client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

async fn metadata_only(c: Cluster) {
    let body =
        json!({ "metadata": { "name": "a", "labels": { "x": "y" } }, "data": { "big": "data" } });
    c.make(&c.core("configmaps"), body).await;
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let found = with_accept(&c, &c.core("configmaps/a"), accept).await;
    assert_eq!(found["kind"], "PartialObjectMetadata");
    assert_eq!(found["metadata"]["labels"], json!({ "x": "y" }));
    assert_eq!(found["data"], Value::Null);
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = with_accept(&c, &c.core("configmaps"), accept).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(names(&list), ["a"]);
}

async fn tables(c: Cluster) {
    c.make(&c.core("pods"), pod("a")).await;
    let table =
        with_accept(&c, &c.core("pods"), "application/json;as=Table;g=meta.k8s.io;v=v1").await;
    assert_eq!(table["kind"], "Table");
    let columns: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], ["a", "0/1", "Pending"].map(Value::from));
    let age = cells[4].as_str().unwrap();
    assert!(age.ends_with('s'), "{age} is not an age in words");
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "a");
}

async fn discovers_resources(c: Cluster) {
    let core = c.get("/api/v1").await.expect_code(200);
    let find = |list: &Value, name: &str| {
        let found =
            list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned();
        found.unwrap_or_else(|| panic!("{name} is not served"))
    };
    assert_eq!(find(&core, "pods")["kind"], "Pod");
    assert_eq!(find(&core, "nodes")["namespaced"], false);
    assert_eq!(find(&core, "pods/eviction")["group"], "policy");
    let ours = c.get("/apis/karpenter.sh/v1").await.expect_code(200);
    assert_eq!(find(&ours, "nodepools/scale")["kind"], "Scale");
    find(&ours, "nodeclaims/status");
    let groups = c.get("/apis").await.expect_code(200);
    let groups: Vec<_> =
        groups["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    for group in ["apps", "batch", "policy", "karpenter.sh", "coordination.k8s.io"] {
        assert!(groups.contains(&group), "{group}");
    }
}

async fn aggregated_discovery(c: Cluster) {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let found = with_accept(&c, "/apis", accept).await;
    assert_eq!(found["kind"], "APIGroupDiscoveryList");
    let group = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|g| g["metadata"]["name"] == "karpenter.sh")
        .unwrap();
    let resources = group["versions"][0]["resources"].as_array().unwrap();
    let pools = resources.iter().find(|r| r["resource"] == "nodepools").unwrap();
    assert_eq!(
        (&pools["scope"], &pools["singularResource"]),
        (&json!("Cluster"), &json!("nodepool"))
    );
}

async fn reports_its_version(c: Cluster) {
    let found = c.get("/version").await.expect_code(200);
    assert_eq!((&found["major"], &found["minor"]), (&json!("1"), &json!("36")));
}
