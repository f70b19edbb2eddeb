//! The KWOK provider against the testbed's API server, in virtual time.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim, NodeClass,
    conditions::{Conditioned, LAUNCHED},
};
use kerf_provider::{CloudProvider, Launched, ProviderError};
use kerf_provider_kwok::{KwokNodeClass, KwokProvider, generated};
use kerf_testbed::{Fault, Faults, Matching, Testbed, Verb};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

struct Cluster {
    testbed: Testbed,
    client: Client,
}

/// Runs a test in virtual time on a cluster with a KWOKNodeClass whose nodes take that long to
/// register.
fn with_delay(delay: &str, test: impl AsyncFnOnce(&Cluster)) {
    Testbed::in_virtual_time(async {
        let testbed = Testbed::builder().start().unwrap();
        let cluster = Cluster { client: testbed.client(), testbed };
        let class: KwokNodeClass = object(json!({
            "metadata": { "name": "default" },
            "spec": { "nodeRegistrationDelay": delay },
        }));
        cluster.classes().create(&PostParams::default(), &class).await.unwrap();
        test(&cluster).await;
    })
    .unwrap();
}

fn object<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

impl Cluster {
    fn provider(&self) -> KwokProvider {
        KwokProvider::new(self.client.clone(), generated())
    }

    fn classes(&self) -> Api<KwokNodeClass> {
        Api::all(self.client.clone())
    }

    /// As the operator has it from its watch.
    async fn class(&self) -> NodeClass {
        NodeClass::of(&self.classes().get("default").await.unwrap()).unwrap()
    }

    fn claims(&self) -> Api<NodeClaim> {
        Api::all(self.client.clone())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn claim(&self, name: &str) -> NodeClaim {
        let claim: NodeClaim = object(json!({
            "metadata": { "name": name },
            "spec": {
                "requirements": [],
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
            },
        }));
        self.claims().create(&PostParams::default(), &claim).await.unwrap()
    }

    /// Writes down a launch as the lifecycle does.
    async fn record(&self, claim: &mut NodeClaim, launched: &Launched) {
        claim.status.get_or_insert_default().provider_id.clone_from(&launched.provider_id);
        claim.condition_set(self.testbed.clock().now()).set_true(LAUNCHED);
        let status = json!({ "status": claim.status });
        let written = self
            .claims()
            .patch_status(&claim.name_any(), &PatchParams::default(), &Patch::Merge(status))
            .await;
        *claim = written.unwrap();
    }

    async fn node_names(&self) -> Vec<String> {
        let nodes = self.nodes().list(&ListParams::default()).await.unwrap();
        nodes.items.iter().map(ResourceExt::name_any).collect()
    }
}

fn name(launched: &Launched) -> String {
    launched.node_name.clone().unwrap()
}

fn is_gone<T>(answer: &Result<T, ProviderError>) -> bool {
    matches!(answer, Err(ProviderError::NotFound(_)))
}

#[test]
fn without_delay_the_node_is_there_at_once() {
    with_delay("0s", async |cluster| {
        let provider = cluster.provider();
        let launched =
            provider.create(&cluster.claim("a").await, &cluster.class().await).await.unwrap();
        let node = cluster.nodes().get(&name(&launched)).await.unwrap();
        assert_eq!(node.spec.unwrap().provider_id, Some(launched.provider_id.clone()));
        assert_eq!(provider.get(&launched.provider_id).await, Ok(launched.clone()));
        assert_eq!(provider.list().await, Ok(vec![launched]));
    });
}

#[test]
fn with_delay_the_instance_is_there_at_once_and_the_node_later() {
    with_delay("30s", async |cluster| {
        let provider = cluster.provider();
        let launched =
            provider.create(&cluster.claim("a").await, &cluster.class().await).await.unwrap();
        sleep(29 * SECOND).await;
        assert!(cluster.node_names().await.is_empty());
        assert_eq!(provider.get(&launched.provider_id).await, Ok(launched.clone()));
        assert_eq!(provider.list().await, Ok(vec![launched.clone()]));
        sleep(2 * SECOND).await;
        assert_eq!(cluster.node_names().await, [name(&launched)]);
        assert_eq!(provider.list().await.unwrap().len(), 1);
    });
}

#[test]
fn a_launch_that_is_repeated_launches_nothing() {
    for delay in ["0s", "30s"] {
        with_delay(delay, async |cluster| {
            let claim = cluster.claim("a").await;
            let provider = cluster.provider();
            let first = provider.create(&claim, &cluster.class().await).await.unwrap();
            assert_eq!(provider.create(&claim, &cluster.class().await).await, Ok(first.clone()));
            sleep(60 * SECOND).await;
            // an operator that was started anew
            assert_eq!(
                cluster.provider().create(&claim, &cluster.class().await).await,
                Ok(first.clone())
            );
            sleep(60 * SECOND).await;
            assert_eq!(cluster.node_names().await, [name(&first)]);
        });
    }
}

#[test]
fn a_launch_whose_answer_was_lost_is_found_again() {
    with_delay("0s", async |cluster| {
        let faults = Faults::seeded(1);
        let unlucky = KwokProvider::new(cluster.testbed.client_with(&faults), generated());
        faults.on_next(
            1,
            Matching::any().verb(Verb::Create).resource("nodes"),
            Fault::TimeoutAfter(SECOND),
        );
        let claim = cluster.claim("a").await;
        unlucky.create(&claim, &cluster.class().await).await.unwrap_err();
        let launched = unlucky.create(&claim, &cluster.class().await).await.unwrap();
        assert_eq!(cluster.node_names().await, [name(&launched)]);
    });
}

#[test]
fn claims_of_the_same_name_have_instances_of_their_own() {
    with_delay("0s", async |cluster| {
        let provider = cluster.provider();
        let first =
            provider.create(&cluster.claim("a").await, &cluster.class().await).await.unwrap();
        cluster.claims().delete("a", &DeleteParams::default()).await.unwrap();
        let second =
            provider.create(&cluster.claim("a").await, &cluster.class().await).await.unwrap();
        assert_ne!(first.provider_id, second.provider_id);
    });
}

#[test]
fn terminating_deletes_the_node() {
    with_delay("0s", async |cluster| {
        let provider = cluster.provider();
        let mut claim = cluster.claim("a").await;
        let launched = provider.create(&claim, &cluster.class().await).await.unwrap();
        cluster.record(&mut claim, &launched).await;
        assert!(is_gone(&provider.delete(&claim).await));
        assert!(cluster.node_names().await.is_empty());
        assert!(is_gone(&provider.delete(&claim).await));
        assert!(is_gone(&provider.get(&launched.provider_id).await));
        assert_eq!(cluster.claims().get("a").await.unwrap().metadata.deletion_timestamp, None);
    });
}

#[test]
fn terminating_finds_instances_that_were_not_written_down() {
    with_delay("0s", async |cluster| {
        let provider = cluster.provider();
        let claim = cluster.claim("a").await;
        provider.create(&claim, &cluster.class().await).await.unwrap();
        assert!(is_gone(&provider.delete(&claim).await));
        assert!(cluster.node_names().await.is_empty());
    });
}

#[test]
fn a_node_that_is_held_back_is_an_instance_until_it_is_terminated() {
    with_delay("0s", async |cluster| {
        let provider = cluster.provider();
        let claim = cluster.claim("a").await;
        let launched = provider.create(&claim, &cluster.class().await).await.unwrap();
        let node = name(&launched);
        let held = json!({ "metadata": { "finalizers": ["karpenter.sh/termination"] } });
        cluster.nodes().patch(&node, &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
        cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
        assert!(provider.get(&launched.provider_id).await.unwrap().terminating);
        assert!(is_gone(&provider.delete(&claim).await));
    });
}

#[test]
fn a_launch_that_is_called_off_leaves_nothing() {
    with_delay("30s", async |cluster| {
        let provider = cluster.provider();
        let mut claim = cluster.claim("a").await;
        let launched = provider.create(&claim, &cluster.class().await).await.unwrap();
        cluster.record(&mut claim, &launched).await;
        assert!(is_gone(&provider.delete(&claim).await));
        assert_eq!(provider.list().await, Ok(vec![]));
        sleep(60 * SECOND).await;
        assert!(cluster.node_names().await.is_empty());
    });
}

#[test]
fn a_delayed_node_is_tried_until_it_can_be_created() {
    with_delay("30s", async |cluster| {
        let faults = Faults::seeded(1);
        let provider = KwokProvider::new(cluster.testbed.client_with(&faults), generated());
        faults.on_next(
            20,
            Matching::any().verb(Verb::Create).resource("nodes"),
            Fault::InternalError,
        );
        let start = Instant::now();
        provider.create(&cluster.claim("a").await, &cluster.class().await).await.unwrap();
        let there = async || !cluster.node_names().await.is_empty();
        cluster.testbed.advance_until("the node is there", 600 * SECOND, there).await.unwrap();
        assert!(start.elapsed() > 60 * SECOND);
    });
}

#[test]
fn launches_of_an_operator_that_ended_are_resumed() {
    with_delay("30s", async |cluster| {
        let provider = cluster.provider();
        let mut claim = cluster.claim("a").await;
        let launched = provider.create(&claim, &cluster.class().await).await.unwrap();
        cluster.record(&mut claim, &launched).await;
        drop(provider);
        sleep(60 * SECOND).await;
        assert!(cluster.node_names().await.is_empty());
        let next = cluster.provider();
        assert_eq!(next.resume(|_| None).await, Ok(0), "without its class no launch is known");
        let class = Arc::new(cluster.class().await);
        assert_eq!(next.resume(|_| Some(class.clone())).await, Ok(1));
        assert_eq!(
            next.get(&launched.provider_id).await.unwrap().provider_id,
            launched.provider_id
        );
        sleep(60 * SECOND).await;
        assert_eq!(cluster.node_names().await, [name(&launched)]);
        assert_eq!(next.resume(|_| Some(class.clone())).await, Ok(0));
    });
}
