//! What the operator writes to its log.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kerf_api::NodeClaim;
use kerf_controllers::Settings;
use kerf_stories::{World, build, stories::settings};
use kerf_testbed::{Fault, Faults, Matching, Verb};
use serde_json::{Value, json};

/// Lines of JSON.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.bytes().clone()).expect("the log is text");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line of the log is JSON"))
            .collect()
    }

    /// The fields of the lines with this message.
    fn of(&self, message: &str) -> Vec<Value> {
        let fields = self.lines().into_iter().map(|line| line["fields"].clone());
        fields.filter(|it| it["message"] == message).collect()
    }

    /// What was said at a level above info.
    fn warnings(&self) -> Vec<String> {
        let loud = |line: &Value| line["level"] == "WARN" || line["level"] == "ERROR";
        let message =
            |line: Value| line["fields"]["message"].as_str().unwrap_or_default().to_owned();
        self.lines().into_iter().filter(loud).map(message).collect()
    }

    /// Hears what this thread says from now on. A runtime with a paused clock runs everything on one thread.
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber =
            tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_launch_is_logged_once_with_what_was_bought() {
    let log = Log::default();
    let _guard = log.listen();
    let world = World::on_testbed(7, Settings::default()).await;
    world.create(build::node_class("default", &json!({}))).await;
    world.create(build::pool("default", &json!({}))).await;
    for name in ["a", "b"] {
        world.create(build::pod(name, &json!({}))).await;
    }
    world
        .until("the pods run", async |world: &World| {
            let running = |pod: &Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                phase == Some("Running")
            };
            let pods = world.list::<Pod>().await;
            if pods.iter().all(running) { Ok(()) } else { Err(format!("{pods:?}")) }
        })
        .await;
    let claims = world.list::<NodeClaim>().await;
    let launched = log.of("launched nodeclaim");
    assert_eq!((claims.len(), launched.len()), (1, 1), "{launched:?}");
    let [line] = &launched[..] else { panic!("{launched:?}") };
    let label = |key: &str| json!(claims[0].metadata.labels.as_ref().unwrap()[key]);
    assert_eq!(line["claim"], json!(claims[0].metadata.name));
    assert_eq!(line["instance_type"], label("node.kubernetes.io/instance-type"));
    assert_eq!(line["zone"], label("topology.kubernetes.io/zone"));
    assert_eq!(line["capacity_type"], label("karpenter.sh/capacity-type"));
    assert_eq!(line["pods"], 2);
    let price = line["price"].as_str().unwrap_or_default();
    assert!(price.starts_with('$') && price.ends_with("/h"), "{line}");
}

/// Lists and watches are tried again every half a minute; what to do about them is said every five.
#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_with_its_remedy_and_only_again_after_minutes() {
    for (verb, plural, resource) in [
        (Verb::List, "nodepools", "nodepools.karpenter.sh"),
        (Verb::Watch, "nodepools", "nodepools.karpenter.sh"),
        (Verb::List, "pods", "pods"),
        (Verb::Watch, "pods", "pods"),
    ] {
        let mut world = World::on_testbed(7, Settings::default()).await;
        world.kill_operator();
        let log = Log::default();
        let _guard = log.listen();
        let faults = world.faults().clone();
        let matching = Matching::any().verb(verb).resource(plural);
        let tries = faults.times(matching.clone());
        faults.at_rate(1.0, matching, Fault::Forbidden);
        let case = format!("{} {plural}", verb.as_str());
        let line = format!(
            "not allowed to {} {resource}; grant get, list and watch on {resource} to the \
             operator's service account, in a ClusterRole",
            verb.as_str()
        );
        let granted = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            assert_eq!(log.warnings(), [line.as_str()], "{case}: in four minutes");
            assert!((8..20).contains(&tries.so_far().len()), "{case}: {:?}", tries.so_far());
            tokio::time::sleep(Duration::from_mins(8)).await;
            assert_eq!(log.warnings(), [line.as_str(); 3], "{case}: in twelve minutes");
            assert!(log.of("watching again").is_empty(), "{case}: it does not");
            faults.clear();
        };
        let ((), ()) = tokio::join!(granted, world.start_operator());
        world.pass(Duration::from_mins(6)).await;
        assert_eq!(log.of("watching again").len(), 1, "{case}: the right was granted");
        assert_eq!(log.warnings().len(), 3, "{case}");
    }
}

/// Plans are made again every ten seconds while pods wait; the log tells of them once.
#[tokio::test(start_paused = true)]
async fn pods_and_pools_are_told_of_once_in_karpenters_words() {
    let log = Log::default();
    let _guard = log.listen();
    let world = World::on_testbed(7, Settings::default()).await;
    world.create(build::pool("default", &json!({}))).await;
    world.pass(Duration::from_mins(1)).await;
    let [line] = &log.of("ignoring nodepool, not ready")[..] else { panic!("{:?}", log.lines()) };
    assert_eq!(line["NodePool.name"], "default");
    assert!(line["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{line}");
    world.create(build::node_class("default", &json!({}))).await;
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(log.of("nodepool is ready").len(), 1);

    let huge = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9000"}}}]});
    for name in ["huge-a", "huge-b"] {
        world.create(build::pod(name, &huge)).await;
    }
    world.create(build::pod("small", &json!({}))).await;
    world.pass(Duration::from_mins(2)).await;
    let found = log.of("found provisionable pod(s)");
    let pods: Vec<_> = found.iter().filter_map(|line| line["Pods"].as_str()).collect();
    assert_eq!(pods, ["default/huge-a, default/huge-b, default/small"]);
    assert!(found[0]["duration"].as_str().is_some_and(|took| took.ends_with('s')), "{found:?}");
    let [computed] = &log.of("computed new nodeclaim(s) to fit pod(s)")[..] else {
        panic!("{:?}", log.lines())
    };
    assert_eq!((&computed["nodeclaims"], &computed["pods"]), (&json!(1), &json!(1)));
    let [refused] = &log.of("could not schedule pod(s)")[..] else { panic!("{:?}", log.lines()) };
    assert_eq!(refused["Pods"], "default/huge-a, default/huge-b");
    let error = refused["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("pool default: it asks for 9k CPU, and the largest"), "{error}");
    assert_eq!(log.of("ignoring nodepool, not ready").len(), 1);
}

/// How a Deployment of five pods is planned by an operator that looks at owners: the warnings, and why its batch was closed.
async fn collected(faults: impl FnOnce(&Faults)) -> (Vec<String>, Vec<Value>) {
    let mut world = World::on_testbed(7, settings::batching_by_owner()).await;
    world.kill_operator();
    let log = Log::default();
    let _guard = log.listen();
    faults(world.faults());
    world.start_operator().await;
    world.create(build::node_class("default", &json!({}))).await;
    world.create(build::pool("default", &json!({}))).await;
    world.pass(Duration::from_mins(1)).await;
    world.create(build::deployment("web", 5, &json!({}))).await;
    // Longer than after which what is wrong is said again.
    world.pass(Duration::from_mins(12)).await;
    let running = |pod: &Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    let pods = world.list::<Pod>().await;
    assert!(pods.len() == 5 && pods.iter().all(running), "{pods:?}");
    (log.warnings(), log.of("found provisionable pod(s)"))
}

#[tokio::test(start_paused = true)]
async fn a_batch_says_once_why_it_was_closed() {
    let (warnings, collected) = collected(|_| {}).await;
    assert!(warnings.is_empty(), "{warnings:?}");
    let [line] = &collected[..] else { panic!("{collected:?}") };
    assert_eq!(line["because"], "all pods of 1 workload(s) are there");
    assert_eq!(line["waited"], "100ms");
}

#[tokio::test(start_paused = true)]
async fn where_owners_may_not_be_read_that_is_said_once_and_quiet_ends_a_batch() {
    let kinds = ["replicasets", "statefulsets", "jobs"];
    let (mut warnings, collected) = collected(|faults| {
        for plural in kinds {
            faults.at_rate(
                1.0,
                Matching::any().verb(Verb::List).resource(plural),
                Fault::Forbidden,
            );
        }
    })
    .await;
    let [line] = &collected[..] else { panic!("{collected:?}") };
    assert_eq!(line["because"], "nothing new came for 1s");
    warnings.sort();
    let resources = ["jobs.batch", "replicasets.apps", "statefulsets.apps"];
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    for (line, resource) in warnings.iter().zip(resources) {
        let begin = format!("not allowed to list {resource}: pods that it owns are collected for ");
        assert!(line.starts_with(&begin), "{line}");
        assert!(line.contains(&format!("grant list and watch on {resource}")), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_flag_owners_are_not_read() {
    let mut world = World::on_testbed(7, Settings::default()).await;
    world.kill_operator();
    let log = Log::default();
    let _guard = log.listen();
    let calls = ["replicasets", "statefulsets", "jobs"]
        .map(|plural| world.faults().times(Matching::any().resource(plural)));
    world.start_operator().await;
    world.create(build::deployment("web", 1, &json!({}))).await;
    world.pass(Duration::from_mins(1)).await;
    // The story's own call creates no pod and reads no set.
    assert!(calls.iter().all(|calls| calls.so_far().is_empty()), "{calls:?}");
    let found = log.of("found provisionable pod(s)");
    assert!(found.iter().all(|line| line["because"].is_null()), "{found:?}");
}
