//! Each fault of the cloud does what it says, in virtual time.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodeClass, NodePool, labels};
use kerf_provider::{CloudProvider, Launched, ProviderError};
use kerf_provider_kwok::{KwokNodeClass, KwokProvider, generated};
use kerf_testbed::actors::{Actors, Running};
use kerf_testbed::{CloudFault, CloudFaults, FaultyCloud, Offered, Testbed};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);

struct Sky {
    testbed: Testbed,
    faults: CloudFaults,
    cloud: FaultyCloud,
    class: NodeClass,
    _actors: Running,
}

impl Sky {
    async fn new() -> Self {
        let testbed = Testbed::builder().seed(7).start().unwrap();
        let class: KwokNodeClass = object(
            json!({ "metadata": { "name": "default" }, "spec": { "nodeRegistrationDelay": "0s" } }),
        );
        let classes: Api<KwokNodeClass> = Api::all(testbed.client());
        classes.create(&PostParams::default(), &class).await.unwrap();
        let faults = CloudFaults::seeded(7);
        let actors = testbed.start_actors(Actors::default());
        let cloud = cloud(&testbed, &faults);
        let class = NodeClass::of(&class).unwrap();
        Self { testbed, faults, cloud, class, _actors: actors }
    }

    async fn claim(&self, name: &str) -> NodeClaim {
        let claims: Api<NodeClaim> = Api::all(self.testbed.client());
        let claim = object(json!({
            "metadata": { "name": name, "labels": { "karpenter.sh/nodepool": "default" } },
            "spec": {
                "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }],
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
            },
        }));
        claims.create(&PostParams::default(), &claim).await.unwrap()
    }

    async fn nodes(&self) -> Vec<Node> {
        let nodes: Api<Node> = Api::all(self.testbed.client());
        nodes.list(&ListParams::default()).await.unwrap().items
    }

    async fn instances(&self) -> Vec<String> {
        let all = self.cloud.list().await.unwrap();
        all.into_iter().map(|instance| instance.provider_id).collect()
    }
}

fn cloud(testbed: &Testbed, faults: &CloudFaults) -> FaultyCloud {
    let kwok = KwokProvider::new(testbed.client(), generated());
    FaultyCloud::new(Arc::new(kwok), faults.clone())
}

fn object<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

/// The claim as it is once its launch was written down.
fn launched(mut claim: NodeClaim, launched: &Launched) -> NodeClaim {
    claim.status.get_or_insert_default().provider_id.clone_from(&launched.provider_id);
    claim
}

fn bought(launched: &Launched) -> [&str; 3] {
    [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE]
        .map(|key| launched.labels[key].as_str())
}

#[tokio::test(start_paused = true)]
async fn launches_are_refused_by_script() {
    let sky = Sky::new().await;
    sky.faults.on_call(1, CloudFault::InsufficientCapacity);
    sky.faults.on_call(2, CloudFault::LaunchRefused);
    let claim = sky.claim("a").await;
    let refused = sky.cloud.create(&claim, &sky.class).await.unwrap_err();
    assert!(matches!(refused, ProviderError::InsufficientCapacity { .. }), "{refused}");
    let refused = sky.cloud.create(&claim, &sky.class).await.unwrap_err();
    assert!(matches!(&refused, ProviderError::Create { reason, .. } if reason == "LaunchRefused"));
    assert!(sky.nodes().await.is_empty());
    sky.cloud.create(&claim, &sky.class).await.unwrap();
    assert_eq!(sky.nodes().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn launches_are_refused_at_a_rate_that_the_seed_fixes() {
    let pattern = async || {
        let sky = Sky::new().await;
        sky.faults.at_rate(0.5, CloudFault::LaunchRefused);
        let claim = sky.claim("a").await;
        let mut answers = Vec::new();
        for _ in 0..40 {
            answers.push(sky.cloud.create(&claim, &sky.class).await.is_ok());
        }
        answers
    };
    let first = pattern().await;
    let refused = first.iter().filter(|ok| !**ok).count();
    assert!((10..30).contains(&refused), "{refused} of 40 at rate 0.5");
    assert_eq!(first, pattern().await);
}

#[tokio::test(start_paused = true)]
async fn what_is_exhausted_is_found_out_by_launching() {
    let sky = Sky::new().await;
    let pool: NodePool = object(json!({
        "metadata": { "name": "default" },
        "spec": { "template": { "spec": {
            "requirements": [],
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
        } } },
    }));
    let first = sky.cloud.create(&sky.claim("first").await, &sky.class).await.unwrap();
    let [cheapest, zone, capacity_type] = bought(&first);
    let offered = Offered::any().instance_type(cheapest).zone(zone).capacity_type(capacity_type);
    sky.faults.exhaust(offered);
    let available = async || {
        let types = sky.cloud.instance_types(&pool, &sky.class).await.unwrap();
        let found = types.iter().find(|one| one.name() == cheapest).unwrap();
        let mut offerings = found.offerings().iter();
        let wanted = offerings
            .find(|one| one.zone() == Some(zone) && one.capacity_type() == Some(capacity_type));
        wanted.unwrap().available
    };
    assert!(available().await, "nobody has tried yet");
    let second = sky.cloud.create(&sky.claim("second").await, &sky.class).await.unwrap();
    assert_ne!(bought(&second), bought(&first));
    assert!(!available().await);
    let one = sky.cloud.instance_types(&pool, &sky.class).await.unwrap();
    let other = sky.cloud.instance_types(&pool, &sky.class).await.unwrap();
    assert!(Arc::ptr_eq(&one, &other), "an offer that has not changed is the same offer");

    sky.faults.exhaust(Offered::any());
    let refused = sky.cloud.create(&sky.claim("third").await, &sky.class).await.unwrap_err();
    assert!(matches!(refused, ProviderError::InsufficientCapacity { .. }), "{refused}");
    sky.faults.restock();
    assert!(available().await);
    let third = sky.cloud.create(&sky.claim("fourth").await, &sky.class).await.unwrap();
    assert_eq!(bought(&third), bought(&first));
}

#[tokio::test(start_paused = true)]
async fn a_launch_whose_answer_is_lost_has_happened() {
    let sky = Sky::new().await;
    sky.faults.on_next(1, CloudFault::LaunchAnswerLost);
    let claim = sky.claim("a").await;
    sky.cloud.create(&claim, &sky.class).await.unwrap_err();
    assert_eq!(sky.nodes().await.len(), 1);
    let again = sky.cloud.create(&claim, &sky.class).await.unwrap();
    assert_eq!(sky.instances().await, [again.provider_id]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_launch_takes_its_time() {
    let sky = Sky::new().await;
    sky.faults.on_next(1, CloudFault::LaunchSlow(MINUTE));
    let start = Instant::now();
    sky.cloud.create(&sky.claim("a").await, &sky.class).await.unwrap();
    assert_eq!(start.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_never_registers_is_paid_for_until_it_is_terminated() {
    let sky = Sky::new().await;
    sky.faults.on_next(1, CloudFault::NeverRegisters);
    let claim = sky.claim("a").await;
    let instance = sky.cloud.create(&claim, &sky.class).await.unwrap();
    assert!(instance.capacity.contains_key("cpu"));
    assert!(instance.labels.contains_key(labels::INSTANCE_TYPE));
    // The cloud outlives the operator that launched it.
    let successor = cloud(&sky.testbed, &sky.faults);
    assert_eq!(successor.create(&claim, &sky.class).await.unwrap(), instance);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(sky.nodes().await.is_empty());
    assert_eq!(sky.instances().await, std::slice::from_ref(&instance.provider_id));
    assert_eq!(sky.cloud.get(&instance.provider_id).await.unwrap(), instance);
    let gone = successor.delete(&launched(claim, &instance)).await.unwrap_err();
    assert!(matches!(gone, ProviderError::NotFound(_)), "{gone}");
    assert!(sky.instances().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_becomes_ready_stays_unready() {
    let sky = Sky::new().await;
    sky.faults.on_next(1, CloudFault::NeverReady);
    sky.cloud.create(&sky.claim("a").await, &sky.class).await.unwrap();
    sky.cloud.create(&sky.claim("b").await, &sky.class).await.unwrap();
    tokio::time::sleep(Duration::from_hours(1)).await;
    let ready = |node: &Node| {
        let conditions = node.status.as_ref().unwrap().conditions.iter().flatten();
        conditions.filter(|one| one.type_ == "Ready" && one.status == "True").count()
    };
    let nodes = sky.nodes().await;
    assert_eq!(nodes.iter().map(ready).collect::<Vec<_>>(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn terminations_are_refused_or_slow() {
    let sky = Sky::new().await;
    let claim = sky.claim("a").await;
    let instance = sky.cloud.create(&claim, &sky.class).await.unwrap();
    let claim = launched(claim, &instance);
    sky.faults.on_next(1, CloudFault::TerminationRefused);
    let refused = sky.cloud.delete(&claim).await.unwrap_err();
    assert!(matches!(refused, ProviderError::Other(_)), "{refused}");
    assert_eq!(sky.nodes().await.len(), 1);

    sky.faults.on_next(1, CloudFault::TerminationSlow(MINUTE));
    sky.cloud.delete(&claim).await.unwrap();
    assert!(sky.cloud.get(&instance.provider_id).await.unwrap().terminating);
    tokio::time::sleep(MINUTE / 2).await;
    sky.cloud.delete(&claim).await.unwrap();
    assert_eq!(sky.nodes().await.len(), 1);
    tokio::time::sleep(MINUTE / 2).await;
    let gone = sky.cloud.delete(&claim).await.unwrap_err();
    assert!(matches!(gone, ProviderError::NotFound(_)), "{gone}");
    assert!(sky.nodes().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_vanished_is_nowhere_but_its_node_stays() {
    let sky = Sky::new().await;
    let claim = sky.claim("a").await;
    let instance = sky.cloud.create(&claim, &sky.class).await.unwrap();
    sky.faults.vanish(&instance.provider_id);
    let gone = sky.cloud.get(&instance.provider_id).await.unwrap_err();
    assert!(matches!(gone, ProviderError::NotFound(_)), "{gone}");
    assert!(sky.instances().await.is_empty());
    assert_eq!(sky.nodes().await.len(), 1);
    let gone = sky.cloud.delete(&launched(claim, &instance)).await.unwrap_err();
    assert!(matches!(gone, ProviderError::NotFound(_)), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_cannot_be_read_says_so() {
    let sky = Sky::new().await;
    sky.faults.on_next(2, CloudFault::ReadRefused);
    assert!(matches!(sky.cloud.list().await, Err(ProviderError::Other(_))));
    assert!(matches!(sky.cloud.get("kwok://a").await, Err(ProviderError::Other(_))));
    assert!(sky.instances().await.is_empty());
    sky.faults.at_rate(1.0, CloudFault::ReadRefused);
    assert!(sky.cloud.list().await.is_err());
    sky.faults.clear();
    assert!(sky.cloud.list().await.is_ok());
}
