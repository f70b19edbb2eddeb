//! What a class cannot be used for is said by its conditions, and mended when its cause is.

use kerf_api::conditions::{Conditioned, READY, VALIDATION_SUCCEEDED};
use kerf_aws_api::conditions::{
    AMIS_READY, CAPACITY_RESERVATIONS_READY, INSTANCE_PROFILE_READY, PLACEMENT_GROUP_READY,
    SECURITY_GROUPS_READY, SUBNETS_READY,
};
use kerf_fake_aws::{Fault, PlacementGroup, Refused, Strategy};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

use super::stage::{Stage, said, sleep};

/// A class with something that is wrong, and what is right instead.
struct Wrong {
    spec: Value,
    mended: Value,
    condition: &'static str,
    reason: &'static str,
    message: &'static str,
}

fn wrong(
    spec: Value,
    mended: Value,
    condition: &'static str,
    reason: &'static str,
    message: &'static str,
) -> Wrong {
    Wrong { spec, mended, condition, reason, message }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_class_is_a_condition_until_it_is_edited() {
    let nothing = json!([{"tags": {"there": "is-none"}}]);
    let discovery = json!([{"tags": {"karpenter.sh/discovery": "test"}}]);
    let alias = |alias: &str| json!({ "amiSelectorTerms": [{ "alias": alias }] });
    let rows = [
        wrong(
            json!({ "subnetSelectorTerms": nothing }),
            json!({ "subnetSelectorTerms": discovery }),
            SUBNETS_READY,
            "SubnetsNotFound",
            "subnetSelectorTerms select no subnet",
        ),
        wrong(
            json!({ "securityGroupSelectorTerms": nothing }),
            json!({ "securityGroupSelectorTerms": discovery }),
            SECURITY_GROUPS_READY,
            "SecurityGroupsNotFound",
            "securityGroupSelectorTerms select no security group",
        ),
        wrong(
            json!({ "amiSelectorTerms": [{"id": "ami-0"}], "amiFamily": "AL2023" }),
            json!({ "amiSelectorTerms": [{"alias": "al2023@v20261001"}], "amiFamily": null }),
            AMIS_READY,
            "AMINotFound",
            "amiSelectorTerms select no AMI",
        ),
        wrong(
            alias("al2@latest"),
            alias("bottlerocket@latest"),
            AMIS_READY,
            "UnsupportedAlias",
            "AWS publishes no AMI for the alias al2@latest and Kubernetes 1.36",
        ),
        wrong(
            json!({ "role": "Nobody" }),
            json!({ "role": "KarpenterNodeRole-test" }),
            INSTANCE_PROFILE_READY,
            "RoleNotFound",
            "there is no IAM role \"Nobody\"",
        ),
        wrong(
            json!({ "placementGroupSelector": {"name": "far"} }),
            json!({ "placementGroupSelector": {"name": "near"} }),
            PLACEMENT_GROUP_READY,
            "PlacementGroupNotFound",
            "placement group \"far\" does not exist, or is not available",
        ),
        wrong(
            json!({ "role": null, "instanceProfile": "unknown" }),
            json!({ "instanceProfile": null, "role": "KarpenterNodeRole-test" }),
            VALIDATION_SUCCEEDED,
            "InstanceProfileNotFound",
            "instance profile \"unknown\" does not exist",
        ),
        wrong(
            json!({ "userData": "x".repeat(20_000), "amiFamily": "Custom" }),
            json!({ "userData": "x" }),
            VALIDATION_SUCCEEDED,
            "UserDataSizeLimitExceeded",
            "EC2 takes no user data of this size",
        ),
    ];
    let stage = Stage::with_operator();
    stage.aws.add_placement_group(PlacementGroup {
        id: "pg-1".to_owned(),
        name: "near".to_owned(),
        strategy: Strategy::Cluster,
        tags: BTreeMap::default(),
    });
    for (number, row) in rows.into_iter().enumerate() {
        let name = format!("class-{number}");
        stage.create(&name, &row.spec).await;
        let what = format!("{} is false", row.condition);
        let class =
            stage.until(&what, &name, |class| said(class, row.condition).0 == row.reason).await;
        let (_, message) = said(&class, row.condition);
        assert!(message.starts_with(row.message), "{message}");
        assert_eq!(said(&class, READY).0, "UnhealthyDependents", "{}", row.reason);
        let events = stage.events(&name, row.reason).await;
        assert_eq!(events, [message], "{}", row.reason);
        stage.edit(&name, &json!({ "spec": row.mended })).await;
        let class = stage.until_ready(&name).await;
        assert!(class.is_true(row.condition), "{}", row.reason);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_allowed_is_named_by_the_condition() {
    let stage = Stage::with_operator();
    let reservations = json!({ "capacityReservationSelectorTerms": [{"tags": {"a": "b"}}] });
    let group = json!({ "placementGroupSelector": {"name": "near"} });
    stage.aws.add_placement_group(PlacementGroup {
        id: "pg-1".to_owned(),
        name: "near".to_owned(),
        strategy: Strategy::Cluster,
        tags: BTreeMap::default(),
    });
    let dry_run = VALIDATION_SUCCEEDED;
    for (action, spec, condition, reason) in [
        ("ec2:DescribeSubnets", json!({}), SUBNETS_READY, "Unauthorized"),
        ("ec2:DescribeSecurityGroups", json!({}), SECURITY_GROUPS_READY, "Unauthorized"),
        ("ec2:DescribeImages", json!({}), AMIS_READY, "Unauthorized"),
        // Another alias than that of the other classes: what SSM has said is remembered.
        (
            "ssm:GetParameter",
            json!({ "amiSelectorTerms": [{"alias": "bottlerocket@v1.45.0"}] }),
            AMIS_READY,
            "Unauthorized",
        ),
        ("iam:GetInstanceProfile", json!({}), INSTANCE_PROFILE_READY, "Unauthorized"),
        ("iam:CreateInstanceProfile", json!({}), INSTANCE_PROFILE_READY, "Unauthorized"),
        ("iam:AddRoleToInstanceProfile", json!({}), INSTANCE_PROFILE_READY, "Unauthorized"),
        (
            "ec2:DescribeCapacityReservations",
            reservations,
            CAPACITY_RESERVATIONS_READY,
            "Unauthorized",
        ),
        ("ec2:DescribePlacementGroups", group, PLACEMENT_GROUP_READY, "Unauthorized"),
        ("ec2:DescribeLaunchTemplates", json!({}), dry_run, "Unauthorized"),
        ("ec2:CreateLaunchTemplate", json!({}), dry_run, "CreateLaunchTemplateAuthCheckFailed"),
        ("ec2:CreateFleet", json!({}), dry_run, "CreateFleetAuthCheckFailed"),
        ("ec2:RunInstances", json!({}), dry_run, "RunInstancesAuthCheckFailed"),
    ] {
        let name = action.replace(':', "-").to_lowercase();
        stage.aws.deny(action);
        stage.create(&name, &spec).await;
        let class = stage.until(action, &name, |class| said(class, condition).0 == reason).await;
        let (_, message) = said(&class, condition);
        assert!(message.starts_with(&format!("not allowed to call {action}: ")), "{message}");
        stage.aws.allow(action);
        stage.until_ready(&name).await;
        stage.delete(&name).await;
        stage.until_gone(&name).await;
    }
    assert_eq!((stage.aws.instance_profile_count(), stage.aws.launch_template_count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_for_a_while_change_nothing_that_is_known() {
    let stage = Stage::with_operator();
    let throttled =
        || Fault::Refuse(Refused::new("RequestLimitExceeded", "Request limit exceeded."));
    // Nothing is known yet: the condition says what it waits for.
    stage.aws.fail_next("DescribeSubnets", 3, throttled());
    stage.aws.fail_next("GetInstanceProfile", 1, Fault::internal());
    stage.create("default", &json!({})).await;
    let class = stage
        .until("subnets are not known", "default", |class| {
            class.condition(SUBNETS_READY).is_some_and(|one| one.reason == "CallFailed")
        })
        .await;
    let one = class.condition(SUBNETS_READY).unwrap();
    let expected = "ec2:DescribeSubnets failed: RequestLimitExceeded: Request limit exceeded.";
    assert_eq!((&*one.status, &*one.message), ("Unknown", expected));
    assert_eq!(said(&class, READY).0, "Unknown");
    let class = stage.until_ready("default").await;

    for call in ["DescribeSubnets", "DescribeSecurityGroups", "DescribeImages", "CreateFleet"] {
        stage.aws.fail_next(call, 2, throttled());
    }
    sleep(Duration::from_mins(5)).await;
    assert_eq!(stage.get("default").await.unwrap().status, class.status);
}
