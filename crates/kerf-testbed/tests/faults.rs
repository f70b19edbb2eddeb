//! What can be made to go wrong, and that it goes wrong the same way each time.
#![allow(clippy::unwrap_used, reason = "tests")]

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kerf_testbed::{Fault, Faults, Matching, Testbed, Verb, WatchCut};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, Error};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

async fn create(client: &Client, name: &str) -> Result<ConfigMap, Error> {
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &config_map(name)).await
}

async fn names(client: &Client) -> Vec<String> {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = api.list(&ListParams::default()).await.unwrap();
    list.items.into_iter().filter_map(|item| item.metadata.name).collect()
}

fn code(result: &Result<ConfigMap, Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[tokio::test(start_paused = true)]
async fn the_nth_matching_call_fails() {
    let testbed = Testbed::builder().start().unwrap();
    let faults = Faults::seeded(1);
    let client = testbed.client_with(&faults);
    faults.on_call(2, Matching::any().verb(Verb::Create).resource("configmaps"), Fault::Conflict);
    let mut codes = Vec::new();
    for name in ["a", "b", "c"] {
        codes.push(code(&create(&client, name).await));
        names(&client).await;
    }
    assert_eq!(codes, [200, 409, 200]);
    assert_eq!(names(&client).await, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn refusals_have_the_code_they_say() {
    let testbed = Testbed::builder().start().unwrap();
    for (fault, expected) in [
        (Fault::Conflict, 409),
        (Fault::TooManyRequests(3), 429),
        (Fault::InternalError, 500),
        (Fault::TimeoutBefore(Duration::from_mins(1)), 0),
    ] {
        let faults = Faults::seeded(1);
        faults.on_next(1, Matching::writes(), fault.clone());
        let result = create(&testbed.client_with(&faults), "a").await;
        assert_eq!(code(&result), expected, "{fault:?}");
    }
    assert!(names(&testbed.client()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_the_write_behind() {
    let testbed = Testbed::builder().start().unwrap();
    let faults = Faults::seeded(1);
    let client = testbed.client_with(&faults);
    faults.on_next(1, Matching::writes(), Fault::TimeoutAfter(Duration::from_mins(1)));
    let start = Instant::now();
    assert!(create(&client, "a").await.is_err());
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!(names(&client).await, ["a"]);
    assert_eq!(code(&create(&client, "a").await), 409);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_client_gets_no_more_answers() {
    let testbed = Testbed::builder().start().unwrap();
    let faults = Faults::seeded(1);
    let client = testbed.client_with(&faults);
    faults.stop_after(2);
    let task = tokio::spawn(async move {
        for name in ["a", "b", "c", "d"] {
            create(&client, name).await.unwrap();
        }
    });
    faults.stopped().await;
    task.abort();
    assert_eq!(names(&testbed.client()).await, ["a", "b"]);
    assert_eq!(faults.calls(), 2);
}

async fn watch(
    client: &Client,
    version: &str,
) -> futures::stream::BoxStream<'static, Result<WatchEvent<ConfigMap>, Error>> {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    api.watch(&WatchParams::default(), version).await.unwrap().boxed()
}

#[tokio::test(start_paused = true)]
async fn watches_are_cut_expired_and_delayed() {
    let testbed = Testbed::builder().start().unwrap();
    let after = Duration::from_secs(5);
    let watching = Matching::any().verb(Verb::Watch);
    let with = |fault: Fault| {
        let faults = Faults::seeded(1);
        faults.on_next(1, watching.clone(), fault);
        testbed.client_with(&faults)
    };
    let start = Instant::now();
    let mut cut = watch(&with(Fault::Watch(WatchCut::After(after))), "0").await;
    assert!(cut.next().await.is_none());
    assert_eq!(start.elapsed(), after);

    let mut expired = watch(&with(Fault::Watch(WatchCut::Expired(after))), "0").await;
    let WatchEvent::Error(status) = expired.next().await.unwrap().unwrap() else {
        panic!("no error")
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));

    let mut late = watch(&with(Fault::WatchDelay(after)), "0").await;
    let start = Instant::now();
    create(&testbed.client(), "a").await.unwrap();
    assert!(matches!(late.next().await.unwrap().unwrap(), WatchEvent::Added(_)));
    assert_eq!(start.elapsed(), after);
}

#[tokio::test(start_paused = true)]
async fn history_before_a_compaction_is_gone() {
    let testbed = Testbed::builder().start().unwrap();
    let client = testbed.client();
    let old = create(&client, "a").await.unwrap().metadata.resource_version.unwrap();
    create(&client, "b").await.unwrap();
    testbed.api().compact();
    let event = watch(&client, &old).await.next().await.unwrap().unwrap();
    let WatchEvent::Error(status) = event else { panic!("{event:?}") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(status.message.starts_with(&format!("too old resource version: {old} (")));
}

/// A client that writes under faults by rate; returns what happened.
async fn busy_run(seed: u64) -> String {
    let testbed = Testbed::builder().seed(seed).start().unwrap();
    let faults = Faults::seeded(seed);
    faults.at_rate(0.2, Matching::writes(), Fault::Conflict);
    faults.at_rate(0.1, Matching::writes(), Fault::TimeoutAfter(Duration::from_secs(1)));
    let client = testbed.client_with(&faults);
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
                for index in 0..25 {
                    let name = format!("{task}-{index}");
                    let _ = create(&client, &name).await;
                    tokio::time::sleep(Duration::from_millis(10 * task)).await;
                    let patch = Patch::Merge(json!({ "data": { "k": "v" } }));
                    let _ = api.patch(&name, &PatchParams::default(), &patch).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    testbed.event_log().to_string()
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| Testbed::in_virtual_time(busy_run(seed)).unwrap();
    let first = run(7);
    assert!(first.lines().count() > 100, "{first}");
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_shows_the_cluster() {
    let testbed = Testbed::builder().start().unwrap();
    create(&testbed.client(), "lonely").await.unwrap();
    let limit = Duration::from_hours(1);
    let error = testbed.advance_until("pigs fly", limit, async || false).await.unwrap_err();
    assert_eq!(error.waited, limit);
    assert!(error.to_string().contains("pigs fly"), "{error}");
    assert!(error.to_string().contains("default/lonely"), "{error}");
}
