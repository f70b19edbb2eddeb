//! What changes in the account while a class stays as it is.

use std::time::Duration;

use jiff::SignedDuration;
use kerf_aws_api::{Ec2NodeClass, annotations, conditions::SUBNETS_READY};
use kerf_aws_client::Aws;
use kerf_aws_wire::ec2;
use kerf_fake_aws::{Release, Reservation};
use kube::ResourceExt;
use serde_json::json;

use super::stage::{Stage, said, sleep};

fn names(class: &Ec2NodeClass) -> Vec<String> {
    let amis = class.status.iter().flat_map(|status| &status.amis);
    amis.filter_map(|ami| ami.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_release_reaches_the_class_within_a_day_with_its_date_if_it_is_to_soak() {
    let stage = Stage::with_operator();
    stage.create_annotated("soaks", &json!({}), &json!({annotations::AMI_SOAK: "72h"})).await;
    stage.create("plain", &json!({})).await;
    let soaks = stage.until_ready("soaks").await;
    let plain = stage.until_ready("plain").await;
    let seen = |class: &Ec2NodeClass| class.annotations().get(annotations::AMI_FIRST_SEEN).cloned();
    assert_eq!(seen(&plain), None);
    let first = seen(&soaks).unwrap();
    assert!(first.contains(&soaks.status.as_ref().unwrap().amis[0].id), "{first}");

    stage.aws.publish(Release::Al2023("v20261120"));
    sleep(Duration::from_hours(1)).await;
    assert_eq!(names(&stage.get("plain").await.unwrap()), names(&plain), "asked for once a day");
    sleep(Duration::from_hours(23)).await;
    let class = stage
        .until("the new images are there", "soaks", |class| {
            names(class).iter().all(|name| name.ends_with("v20261120"))
        })
        .await;
    assert_ne!(seen(&class).unwrap(), first);
    let events = stage.events("soaks", "AMIsChanged").await;
    assert!(events[0].starts_with("amiSelectorTerms select other AMIs. New: ami-"), "{events:?}");
    stage.edit("soaks", &json!({"metadata": {"annotations": {annotations::AMI_SOAK: null}}})).await;
    stage.until("nothing soaks", "soaks", |class| seen(class).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn subnets_that_come_are_taken_in() {
    let stage = Stage::with_operator();
    let tags = json!([{"tags": {"later": "yes"}}]);
    stage.create("default", &json!({ "subnetSelectorTerms": tags })).await;
    let is_false = |class: &Ec2NodeClass| said(class, SUBNETS_READY).0 == "SubnetsNotFound";
    stage.until("there is none", "default", is_false).await;
    let tags = [("later".to_owned(), "yes".to_owned())].into();
    let id = stage.aws.add_subnet("us-west-2b", "later", 100, tags);
    let class = stage.until_ready("default").await;
    assert_eq!(class.status.unwrap().subnets[0].id, id);
}

/// The answer of EC2 that the class was made of is not a minute old then.
#[tokio::test(start_paused = true)]
async fn a_reservation_leaves_the_class_at_the_instant_of_its_end() {
    let stage = Stage::with_operator();
    let mut reservation = Reservation::new("cr-1", "m5.large", "us-west-2a", 3);
    reservation.tags = [("team".to_owned(), "a".to_owned())].into();
    let end = stage.aws.clock().now() + SignedDuration::from_secs(90);
    reservation.end = Some(end);
    stage.aws.add_reservation(reservation);
    let spec = json!({ "capacityReservationSelectorTerms": [{"tags": {"team": "a"}}] });
    stage.create("default", &spec).await;
    let held = |class: &Ec2NodeClass| class.status.as_ref().unwrap().capacity_reservations.len();
    assert_eq!(held(&stage.until_ready("default").await), 1);
    let left = Duration::try_from(end.duration_since(stage.aws.clock().now())).unwrap();
    sleep(left.saturating_sub(Duration::from_millis(1))).await;
    assert_eq!(held(&stage.get("default").await.unwrap()), 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(held(&stage.get("default").await.unwrap()), 0);
}

#[tokio::test(start_paused = true)]
async fn the_profile_of_another_role_goes_after_an_hour() {
    let stage = Stage::with_operator();
    stage.aws.add_role("Other");
    stage.create("default", &json!({})).await;
    let before = stage.until_ready("default").await.status.unwrap().instance_profile;
    stage.edit("default", &json!({"spec": {"role": "Other"}})).await;
    let after = stage.until_ready("default").await.status.unwrap().instance_profile;
    assert_ne!(before, after);
    sleep(Duration::from_mins(50)).await;
    assert_eq!(stage.aws.instance_profile_count(), 2);
    sleep(Duration::from_mins(100)).await;
    assert_eq!(stage.aws.instance_profile_count(), 1);
    stage.until_ready("default").await;
}

#[tokio::test(start_paused = true)]
async fn unused_templates_go_when_there_are_many_and_those_of_others_stay() {
    let stage = Stage::with_operator();
    let make = async |number: u32, cluster: &str| {
        let tag = |key: &str, value: &str| ec2::Tag {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        let tags = vec![
            tag("eks:eks-cluster-name", cluster),
            tag("karpenter.k8s.aws/ec2nodeclass", "gone"),
        ];
        let resource_type = Some("launch-template".to_owned());
        let request = ec2::CreateLaunchTemplateRequest {
            launch_template_name: Some(format!("{cluster}/{number}")),
            launch_template_data: Some(ec2::RequestLaunchTemplateData::default()),
            tag_specifications: vec![ec2::TagSpecification { resource_type, tags }],
            ..Default::default()
        };
        stage.aws.create_launch_template(&request).await.unwrap();
        // As fast as EC2 takes them.
        sleep(Duration::from_secs(1)).await;
    };
    make(0, "other").await;
    for number in 0..501 {
        make(number, "test").await;
    }
    sleep(Duration::from_mins(100)).await;
    // Until they are no longer many; and the one of another cluster.
    assert_eq!(stage.aws.launch_template_count(), 500 + 1);
    let request = ec2::DescribeLaunchTemplatesRequest {
        launch_template_names: vec!["other/0".to_owned()],
        ..Default::default()
    };
    assert_eq!(
        stage.aws.describe_launch_templates(&request).await.unwrap().launch_templates.len(),
        1
    );
}
