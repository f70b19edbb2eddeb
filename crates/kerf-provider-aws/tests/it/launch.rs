//! From claims to instances, without an operator.

use std::sync::Arc;
use std::time::Duration;

use kerf_api::{NodeClaim, NodeClass, NodePool};
use kerf_aws_api::Ec2NodeClass;
use kerf_aws_client::Aws as _;
use kerf_aws_wire::ec2;
use kerf_fake_aws::{Depth, FakeAws, Fault, PoolSelector};
use kerf_model::{
    KnownLabels, Labels, Requirement, Requirements,
    overlay::{Offered, Overlay, PriceChange, adjust},
};
use kerf_provider::{CloudProvider, ProviderError};
use kerf_provider_aws::{Connection, Options};
use kerf_runtime::Clock;
use serde_json::json;

use crate::account::{account, provider};

/// An account with a class that is ready.
struct Account {
    aws: FakeAws,
    class: NodeClass,
}

impl Account {
    fn open() -> Self {
        let clock = Clock::starting_at("2026-11-16T20:00:00Z".parse().unwrap());
        let aws = account(&clock);
        aws.add_instance_profile("profile", "KarpenterNodeRole-test");
        let mut class: Ec2NodeClass = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "default", "uid": "class", "generation": 1},
            "spec": {
                "instanceProfile": "profile", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "subnetSelectorTerms": [{"tags": {"a": "b"}}],
                "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
            },
        }))
        .unwrap();
        class.status = Some(aws.class_status("profile"));
        let ready = json!([{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-11-16T20:00:00Z",
        }]);
        class.status.as_mut().unwrap().conditions = serde_json::from_value(ready).unwrap();
        let class = NodeClass::of(&class).unwrap();
        Self { aws, class }
    }

    /// A process that has just started.
    fn provider(&self) -> Connection {
        provider(&self.aws, &Options::default())
    }

    /// Ids of the instances that were launched for the claim.
    fn instances_of(&self, uid: &str) -> Vec<String> {
        let is_of = |one: &ec2::Instance| {
            let names = |tag: &ec2::Tag| tag.key.as_deref() == Some("karpenter.sh/nodeclaim-uid");
            one.tags.iter().any(|tag| names(tag) && tag.value.as_deref() == Some(uid))
        };
        let all = self.aws.instances().into_iter().filter(is_of);
        all.filter_map(|one| one.instance_id).collect()
    }
}

/// By its own prices EC2 would take the smallest type.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_planned_by_overlaid_prices_is_bought_by_them() {
    let account = Account::open();
    let provider = account.provider();
    let pool = NodePool::default();
    let types = provider.instance_types(&pool, &account.class).await.unwrap();
    let overlay = Overlay {
        name: "dear".to_owned(),
        requirements: Requirements::new([Requirement::is_in(
            "node.kubernetes.io/instance-type",
            ["m5.large"],
        )]),
        price: Some(PriceChange::To("9".parse().unwrap())),
        ..Overlay::default()
    };
    let offered = Offered { pool: "general", labels: &Labels::new(), types: &types };
    let known = KnownLabels::from(&provider.facts().label_rules);
    let mut adjusted = adjust(&[overlay], &[offered], &known);
    let types = adjusted.types.remove("general").unwrap().into();
    let mut claim = claim("c1");
    let applied = "karpenter.sh/price-overlay-applied".to_owned();
    claim.metadata.annotations.get_or_insert_default().insert(applied, "true".to_owned());
    let launched = provider.create_overlaid(&claim, &account.class, types).await.unwrap();
    let of_type = launched.labels.get("node.kubernetes.io/instance-type").map(String::as_str);
    assert_eq!(of_type, Some("m5.xlarge"));
}

/// A claim with this UID for an m5 on demand.
fn claim(uid: &str) -> NodeClaim {
    let only = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": uid, "uid": uid, "labels": {"karpenter.sh/nodepool": "general"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                only("karpenter.k8s.aws/instance-family", &["m5"]),
                only("karpenter.sh/capacity-type", &["on-demand"]),
                only("kubernetes.io/arch", &["amd64"]),
            ],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        },
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_an_instance_and_gives_it_back() {
    let account = Account::open();
    let provider = account.provider();
    let mut claim = claim("c1");
    let launched = provider.create(&claim, &account.class).await.unwrap();
    let label = |key: &str| launched.labels.get(key).map(String::as_str);
    assert_eq!(label("node.kubernetes.io/instance-type"), Some("m5.large"));
    assert_eq!(label("karpenter.sh/capacity-type"), Some("on-demand"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let listed = provider.list().await.unwrap();
    let listed = listed.iter().map(|one| (&*one.provider_id, one.claim_uid.as_deref()));
    assert_eq!(listed.collect::<Vec<_>>(), [(&*launched.provider_id, Some("c1"))]);

    claim.status.get_or_insert_default().provider_id = launched.provider_id.clone();
    provider.delete(&claim).await.unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(matches!(provider.delete(&claim).await, Err(ProviderError::NotFound(_))));
    assert_eq!(account.aws.alive(), [""; 0]);
}

/// The process ends at any moment of the launch, and the next one is asked again.
#[tokio::test(start_paused = true)]
async fn a_launch_that_is_cut_off_at_any_moment_leaves_one_instance() {
    let account = Account::open();
    for step in 0..64 {
        let uid = format!("cut-{step}");
        let claim = claim(&uid);
        let cut = Duration::from_millis(45 * step);
        let first = account.provider();
        let _ = tokio::time::timeout(cut, first.create(&claim, &account.class)).await;
        drop(first);
        let launched = account.provider().create(&claim, &account.class).await;
        let launched = launched.unwrap_or_else(|error| panic!("cut after {cut:?}: {error}"));
        let ids = account.instances_of(&uid);
        assert_eq!(ids.len(), 1, "cut after {cut:?}: {ids:?}");
        assert!(launched.provider_id.ends_with(&ids[0]), "{launched:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_launch_whose_answer_is_lost_is_found_again() {
    let account = Account::open();
    account.aws.fail_next("CreateFleet", 1, Fault::LostAnswer);
    let provider = account.provider();
    assert!(provider.create(&claim("lost"), &account.class).await.is_err());
    provider.create(&claim("lost"), &account.class).await.unwrap();
    assert_eq!(account.instances_of("lost").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_type_that_has_run_out_is_passed_over_within_the_launch() {
    let account = Account::open();
    account.aws.set_pools(PoolSelector::instance_type("m5.large"), Depth::DRY);
    let launched = account.provider().create(&claim("c"), &account.class).await.unwrap();
    assert_eq!(launched.labels["node.kubernetes.io/instance-type"], "m5.xlarge");
    assert_eq!(account.aws.alive().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_family_that_has_run_out_is_no_capacity_and_says_what_was_tried() {
    let account = Account::open();
    account.aws.set_pools(PoolSelector::instance_type("m5.*"), Depth::DRY);
    let error = account.provider().create(&claim("c"), &account.class).await.unwrap_err();
    let ProviderError::InsufficientCapacity { unavailable, .. } = error else {
        panic!("{error}");
    };
    assert!(unavailable.iter().any(|one| one.instance_type == "m5.large"), "{unavailable:?}");
    assert_eq!(account.aws.alive(), [""; 0]);
}

/// The answer to a launch was lost, and its instance is shut down before it is found again.
#[tokio::test(start_paused = true)]
async fn a_claim_does_not_get_an_instance_that_has_ended() {
    let account = Account::open();
    let claim = claim("c");
    let first = account.provider().create(&claim, &account.class).await.unwrap();
    let ended = account.instances_of("c");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let request = ec2::TerminateInstancesRequest { instance_ids: ended, dry_run: None };
    account.aws.terminate_instances(&request).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let second = account.provider().create(&claim, &account.class).await.unwrap();
    assert_ne!(first.provider_id, second.provider_id);
    assert_eq!(account.aws.alive().len(), 1);
}

/// Each launch looks for an instance of an earlier one first.
#[tokio::test(start_paused = true)]
async fn launches_of_one_moment_look_for_earlier_ones_together() {
    let account = Account::open();
    let provider = Arc::new(account.provider());
    let class = Arc::new(account.class.clone());
    let launches: Vec<_> = (0..40)
        .map(|number| {
            let (provider, class) = (Arc::clone(&provider), Arc::clone(&class));
            tokio::spawn(
                async move { provider.create(&claim(&format!("c{number}")), &class).await },
            )
        })
        .collect();
    for launch in launches {
        launch.await.unwrap().unwrap();
    }
    assert_eq!(account.aws.alive().len(), 40);
    assert_eq!(account.aws.count("DescribeInstances"), 1);
    let listed = provider.list().await.unwrap();
    let of_type = |one: &kerf_provider::Launched| {
        let label = one.labels.get("karpenter.k8s.aws/instance-family").map(String::as_str);
        label == Some("m5") && one.capacity["cpu"].0 == "2"
    };
    assert!(
        listed.len() == 40 && listed.iter().all(of_type),
        "what is listed has labels and capacity"
    );
}
