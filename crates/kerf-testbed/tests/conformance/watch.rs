//! watch: order, resumption, selection, bookmarks, expiry.

use super::harness::{Cluster, cases, config_map, version};
use serde_json::{Value, json};

cases![
    tells_of_what_is_there_and_what_changes,
    resumes_after_a_version,
    does_not_tell_of_what_changed_nothing,
    a_selected_watch_sees_objects_come_and_go,
    a_field_selected_watch_sees_one_object,
    deleted_objects_come_with_the_version_of_their_deletion,
    ends_after_its_timeout,
    streams_the_list_and_marks_its_end,
    watches_a_namespace_only,
    versions_grow,
];

async fn tells_of_what_is_there_and_what_changes(c: Cluster) {
    c.make_config_map("a").await;
    let mut watch = c.watch(&c.core("configmaps?watch=true")).await;
    assert_eq!(watch.next_change().await, "ADDED a");
    c.make_config_map("b").await;
    assert_eq!(watch.next_change().await, "ADDED b");
    c.merge(&c.core("configmaps/a"), json!({ "data": { "k": "v" } })).await.expect_code(200);
    assert_eq!(watch.next_change().await, "MODIFIED a");
    c.delete(&c.core("configmaps/a")).await.expect_code(200);
    assert_eq!(watch.next_change().await, "DELETED a");
}

async fn resumes_after_a_version(c: Cluster) {
    c.make_config_map("a").await;
    let list = c.get(&c.core("configmaps")).await.expect_code(200);
    c.make_config_map("b").await;
    let mut watch = c
        .watch(&c.core(&format!("configmaps?watch=true&resourceVersion={}", version(&list))))
        .await;
    assert_eq!(watch.next_change().await, "ADDED b");
    c.delete(&c.core("configmaps/b")).await.expect_code(200);
    assert_eq!(watch.next_change().await, "DELETED b");
}

async fn does_not_tell_of_what_changed_nothing(c: Cluster) {
    let made = c.make_config_map("a").await;
    let mut watch = c
        .watch(&c.core(&format!("configmaps?watch=true&resourceVersion={}", version(&made))))
        .await;
    let same = c.put(&c.core("configmaps/a"), made.clone()).await.expect_code(200);
    assert_eq!(version(&same), version(&made), "a write that changes nothing makes no version");
    let same = c
        .merge(&c.core("configmaps/a"), json!({ "metadata": { "labels": null } }))
        .await
        .expect_code(200);
    assert_eq!(version(&same), version(&made));
    c.make_config_map("b").await;
    assert_eq!(watch.next_change().await, "ADDED b");
}

async fn a_selected_watch_sees_objects_come_and_go(c: Cluster) {
    let mut watch = c.watch(&c.core("configmaps?watch=true&labelSelector=app=web")).await;
    c.make_config_map("a").await;
    let label = |value: Value| json!({ "metadata": { "labels": { "app": value } }, "data": { "v": value } });
    c.merge(&c.core("configmaps/a"), label("web".into())).await.expect_code(200);
    assert_eq!(watch.next_change().await, "ADDED a");
    c.merge(&c.core("configmaps/a"), json!({ "data": { "more": "data" } })).await.expect_code(200);
    assert_eq!(watch.next_change().await, "MODIFIED a");
    let left = c.merge(&c.core("configmaps/a"), label("db".into())).await.expect_code(200);
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["data"]["v"], "web", "the last state that was selected");
    assert_eq!(version(&event["object"]), version(&left));
}

async fn a_field_selected_watch_sees_one_object(c: Cluster) {
    let mut watch = c.watch(&c.core("configmaps?watch=true&fieldSelector=metadata.name=b")).await;
    c.make_config_map("a").await;
    c.make_config_map("b").await;
    assert_eq!(watch.next_change().await, "ADDED b");
}

async fn deleted_objects_come_with_the_version_of_their_deletion(c: Cluster) {
    let made = c.make_config_map("a").await;
    let mut watch = c
        .watch(&c.core(&format!("configmaps?watch=true&resourceVersion={}", version(&made))))
        .await;
    c.delete(&c.core("configmaps/a")).await.expect_code(200);
    let event = watch.next().await.unwrap();
    let number = |value: &Value| version(value).parse::<u64>().unwrap();
    assert!(number(&event["object"]) > number(&made));
    assert_eq!(event["object"]["metadata"]["uid"], made["metadata"]["uid"]);
    // Watching on from there must not bring the deletion again.
    let mut watch = c
        .watch(
            &c.core(&format!(
                "configmaps?watch=true&resourceVersion={}",
                version(&event["object"])
            )),
        )
        .await;
    c.make_config_map("b").await;
    assert_eq!(watch.next_change().await, "ADDED b");
}

async fn ends_after_its_timeout(c: Cluster) {
    let mut watch = c.watch(&c.core("configmaps?watch=true&timeoutSeconds=1")).await;
    c.make_config_map("a").await;
    assert_eq!(watch.next_change().await, "ADDED a");
    assert_eq!(watch.next().await, None);
}

async fn streams_the_list_and_marks_its_end(c: Cluster) {
    c.make_config_map("a").await;
    c.make_config_map("b").await;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = c.watch(&c.core(&format!("configmaps?{query}"))).await;
    assert_eq!(watch.next_change().await, "ADDED a");
    assert_eq!(watch.next_change().await, "ADDED b");
    let mark = watch.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["kind"], "ConfigMap");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let later = c.make_config_map("c").await;
    let number = |value: &Value| version(value).parse::<u64>().unwrap();
    assert!(number(&later) > number(&mark["object"]));
    assert_eq!(watch.next_change().await, "ADDED c");
}

async fn watches_a_namespace_only(c: Cluster) {
    let mut watch = c.watch(&c.core("configmaps?watch=true")).await;
    c.make("/api/v1/namespaces/default/configmaps", config_map(&c.own("elsewhere"))).await;
    c.make_config_map("here").await;
    assert_eq!(watch.next_change().await, "ADDED here");
}

async fn versions_grow(c: Cluster) {
    let mut last = 0;
    for name in ["a", "b", "c"] {
        let made = c.make_config_map(name).await;
        let number = version(&made).parse::<u64>().unwrap();
        assert!(number > last);
        last = number;
    }
}
