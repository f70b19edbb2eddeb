//! From a class to its end.

use std::time::Duration;

use kerf_api::{NodeClaim, conditions::Conditioned};
use kerf_aws_api::{
    Ec2NodeClass, TERMINATION_FINALIZER, annotations,
    conditions::{
        AMIS_READY, CAPACITY_RESERVATIONS_READY, INSTANCE_PROFILE_READY, PLACEMENT_GROUP_READY,
        SECURITY_GROUPS_READY, SUBNETS_READY,
    },
};
use kerf_fake_aws::Reservation;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::stage::{CA_BUNDLE, Stage, sleep};

#[tokio::test(start_paused = true)]
async fn a_class_becomes_ready_and_is_written_only_when_something_changed() {
    let stage = Stage::with_operator();
    let mut reservation = Reservation::new("cr-1", "m5.large", "us-west-2a", 3);
    reservation.tags = [("team".to_owned(), "a".to_owned())].into();
    stage.aws.add_reservation(reservation);
    let spec = json!({ "capacityReservationSelectorTerms": [{"tags": {"team": "a"}}] });
    stage.create("default", &spec).await;
    let class = stage.until_ready("default").await;

    assert_eq!(class.finalizers(), [TERMINATION_FINALIZER]);
    let of = |key: &str| class.annotations().get(key).cloned();
    assert_eq!(of(annotations::NODE_CLASS_HASH), Some(class.spec.hash(Some(CA_BUNDLE))));
    assert_eq!(of(annotations::NODE_CLASS_HASH_VERSION).as_deref(), Some("v5"));
    for condition in [
        AMIS_READY,
        CAPACITY_RESERVATIONS_READY,
        INSTANCE_PROFILE_READY,
        PLACEMENT_GROUP_READY,
        SECURITY_GROUPS_READY,
        SUBNETS_READY,
        "ValidationSucceeded",
    ] {
        assert!(class.is_true(condition), "{condition}");
    }
    let status = class.status.clone().unwrap();
    assert_eq!(status.subnets.len(), 3);
    assert_eq!(status.security_groups.len(), 2);
    // Standard, NVIDIA and Neuron for x86, standard and NVIDIA for ARM.
    assert_eq!(status.amis.len(), 5);
    assert!(status.amis.iter().all(|ami| ami.name.as_ref().unwrap().ends_with("v20261101")));
    assert_eq!(status.capacity_reservations[0].id, "cr-1");
    assert!(status.instance_profile.unwrap().starts_with("test_"));
    assert_eq!((stage.aws.instance_profile_count(), stage.aws.launch_template_count()), (1, 1));

    stage.aws.forget_requests();
    sleep(Duration::from_mins(20)).await;
    let later = stage.get("default").await.unwrap();
    assert_eq!(later.resource_version(), class.resource_version());
    let calls = stage.aws.calls();
    let made = |name: &str| calls.get(name).map_or(0, |count| count.made);
    assert!((19..=21).contains(&made("DescribeSubnets")), "{calls:?}");
    let rare = ["GetParameter", "CreateFleet", "RunInstances", "CreateLaunchTemplate"];
    assert_eq!(rare.map(made), [0; 4], "{calls:?}");
    assert!(made("GetInstanceProfile") <= 2, "{calls:?}");
    assert!(stage.aws.alive().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_at_any_moment_leaves_nothing_behind() {
    let mut stage = Stage::new();
    for step in 0..16 {
        let name = format!("cut-{step}");
        let cut = Duration::from_millis(127 * step);
        stage.start();
        stage.create(&name, &json!({})).await;
        sleep(cut).await;
        stage.kill();
        stage.start();
        stage.until_ready(&name).await;
        let made = (stage.aws.instance_profile_count(), stage.aws.launch_template_count());
        assert_eq!(made, (1, 1), "killed {cut:?} after the class was made");

        stage.delete(&name).await;
        sleep(cut).await;
        stage.kill();
        stage.start();
        stage.until_gone(&name).await;
        let left = (stage.aws.instance_profile_count(), stage.aws.launch_template_count());
        assert_eq!(left, (0, 0), "killed {cut:?} after the class was deleted");
        stage.kill();
    }
}

fn claim(name: &str) -> NodeClaim {
    let only = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                only("node.kubernetes.io/instance-type", "m5.large"),
                only("karpenter.sh/capacity-type", "on-demand"),
            ],
            "resources": {"requests": {"cpu": "1"}},
        },
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_class_goes_after_its_last_claim_and_says_what_it_waits_for() {
    let stage = Stage::with_operator();
    stage.create("default", &json!({})).await;
    stage.until_ready("default").await;
    let claims: Api<NodeClaim> = Api::all(stage.testbed.client());
    claims.create(&PostParams::default(), &claim("last")).await.unwrap();
    let launched = async || {
        let claim = claims.get_opt("last").await.unwrap();
        claim.is_some_and(|claim| !claim.provider_id().is_empty())
    };
    stage.testbed.advance_until("launched", Duration::from_mins(5), launched).await.unwrap();
    stage.delete("default").await;
    let events = stage.events("default", "WaitingOnNodeClaimTermination").await;
    assert_eq!(events, ["Waiting on NodeClaim termination for last"]);
    assert!(stage.get("default").await.is_some());
    assert_eq!(stage.aws.instance_profile_count(), 1);

    claims.delete("last", &DeleteParams::default()).await.unwrap();
    stage.until_gone("default").await;
    let left = (stage.aws.instance_profile_count(), stage.aws.launch_template_count());
    assert_eq!((left, stage.aws.alive().len()), ((0, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_class_that_cannot_be_cleaned_up_says_why_and_goes_later() {
    let stage = Stage::with_operator();
    stage.create("default", &json!({})).await;
    stage.until_ready("default").await;
    stage.aws.deny("iam:DeleteInstanceProfile");
    stage.delete("default").await;
    sleep(Duration::from_secs(30)).await;
    let events = stage.events("default", "CleanUpFailed").await;
    assert!(events[0].contains("iam:DeleteInstanceProfile"), "{events:?}");
    stage.aws.allow("iam:DeleteInstanceProfile");
    stage.until_gone("default").await;
    let left = (stage.aws.instance_profile_count(), stage.aws.launch_template_count());
    assert_eq!(left, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn claims_of_another_hash_version_do_not_drift() {
    let mut stage = Stage::with_operator();
    stage.create("default", &json!({})).await;
    let class: Ec2NodeClass = stage.until_ready("default").await;
    let claims: Api<NodeClaim> = Api::all(stage.testbed.client());
    claims.create(&PostParams::default(), &claim("old")).await.unwrap();
    let launched = async || {
        let claim = claims.get_opt("old").await.unwrap();
        claim.is_some_and(|claim| claim.annotations().contains_key(annotations::NODE_CLASS_HASH))
    };
    stage.testbed.advance_until("launched", Duration::from_mins(5), launched).await.unwrap();
    stage.kill();
    // As another release would have left them.
    let of_another = json!({"metadata": {"annotations": {
        annotations::NODE_CLASS_HASH: "1", annotations::NODE_CLASS_HASH_VERSION: "v4",
    }}});
    stage.edit("default", &of_another).await;
    let patch = kube::api::Patch::Merge(&of_another);
    claims.patch("old", &kube::api::PatchParams::default(), &patch).await.unwrap();
    stage.start();
    stage
        .until("the class has its hash", "default", |now| {
            now.annotations().get(annotations::NODE_CLASS_HASH)
                == class.annotations().get(annotations::NODE_CLASS_HASH)
        })
        .await;
    let claim = claims.get("old").await.unwrap();
    for key in [annotations::NODE_CLASS_HASH, annotations::NODE_CLASS_HASH_VERSION] {
        assert_eq!(claim.annotations().get(key), class.annotations().get(key), "{key}");
    }
    assert!(claim.condition("Drifted").is_none());
}
