use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use kerf_aws_client::Aws;
use kerf_aws_model::{
    catalogue::Catalogue,
    errors::{Lack, Meaning},
};
use kerf_aws_wire::{ec2, iam};
use kerf_runtime::Clock;

use crate::{
    Delays, Depth, FakeAws, Fault, Market, PlacementGroup, PoolSelector, Quotas, Reservation,
    Settings, Strategy,
};

static CATALOGUE: LazyLock<Arc<Catalogue>> =
    LazyLock::new(|| Arc::new(Catalogue::built_in().unwrap()));

fn fake(settings: Settings) -> FakeAws {
    let clock = Clock::starting_at("2026-11-16T20:00:00Z".parse::<Timestamp>().unwrap());
    FakeAws::new(settings, Arc::clone(&CATALOGUE), clock)
}

#[expect(clippy::unnecessary_wraps, reason = "all members of a request are optional")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

async fn image(aws: &FakeAws, architecture: &str) -> String {
    let name = format!(
        "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/{architecture}/standard/recommended/image_id"
    );
    let request =
        kerf_aws_wire::ssm::GetParameterRequest { name: Some(name), with_decryption: None };
    aws.get_parameter(&request).await.unwrap().parameter.unwrap().value.unwrap()
}

async fn make_template(aws: &FakeAws, data: ec2::RequestLaunchTemplateData) {
    let request = ec2::CreateLaunchTemplateRequest {
        launch_template_name: text("template"),
        launch_template_data: Some(data),
        ..Default::default()
    };
    aws.create_launch_template(&request).await.unwrap();
}

/// Overrides are `m5.large a`, with the letter of the zone.
async fn fleet(
    aws: &FakeAws,
    market: &str,
    count: i32,
    overrides: &[&str],
) -> ec2::CreateFleetRequest {
    let subnets = aws.describe_subnets(&ec2::DescribeSubnetsRequest::default()).await.unwrap();
    let subnets: BTreeMap<_, _> = subnets
        .subnets
        .into_iter()
        .map(|subnet| (subnet.availability_zone.unwrap(), subnet.subnet_id.unwrap()))
        .collect();
    let overrides = overrides.iter().map(|written| {
        let (name, letter) = written.split_once(' ').unwrap();
        let zone = format!("us-west-2{letter}");
        ec2::FleetLaunchTemplateOverridesRequest {
            instance_type: text(name),
            subnet_id: subnets.get(&zone).cloned(),
            availability_zone: Some(zone),
            ..Default::default()
        }
    });
    ec2::CreateFleetRequest {
        r#type: text("instant"),
        spot_options: Some(ec2::SpotOptionsRequest {
            allocation_strategy: text("price-capacity-optimized"),
        }),
        launch_template_configs: vec![ec2::FleetLaunchTemplateConfigRequest {
            launch_template_specification: Some(ec2::FleetLaunchTemplateSpecificationRequest {
                launch_template_name: text("template"),
                version: text("$Latest"),
                ..Default::default()
            }),
            overrides: overrides.collect(),
        }],
        target_capacity_specification: Some(ec2::TargetCapacitySpecificationRequest {
            default_target_capacity_type: text(market),
            total_target_capacity: Some(count),
        }),
        ..Default::default()
    }
}

/// What came, as `m5.large a 2`, and the codes of what did not.
fn outcome(response: &ec2::CreateFleetResponse) -> (Vec<String>, Vec<String>) {
    let letter = |zone: &str| zone.chars().last().unwrap();
    let instances = response.instances.iter().map(|one| {
        let (name, zone) =
            (one.instance_type.as_deref().unwrap(), one.availability_zone.as_deref());
        format!("{name} {} {}", letter(zone.unwrap()), one.instance_ids.len())
    });
    let errors = response.errors.iter().map(|error| {
        let overrides = error.launch_template_and_overrides.as_ref().unwrap().overrides.as_ref();
        let overrides = overrides.unwrap();
        let zone = letter(overrides.availability_zone.as_deref().unwrap());
        let name = overrides.instance_type.as_deref().unwrap();
        format!("{name} {zone} {}", error.error_code.as_deref().unwrap())
    });
    (instances.collect(), errors.collect())
}

async fn ready(settings: Settings) -> FakeAws {
    let aws = fake(settings);
    let image_id = Some(image(&aws, "x86_64").await);
    make_template(&aws, ec2::RequestLaunchTemplateData { image_id, ..Default::default() }).await;
    aws
}

async fn check(aws: &FakeAws, request: &ec2::CreateFleetRequest, came: &[&str], failed: &[&str]) {
    let response = aws.create_fleet(request).await.unwrap();
    let (instances, errors) = outcome(&response);
    assert_eq!(
        (instances, errors),
        (
            came.iter().map(|one| (*one).to_owned()).collect(),
            failed.iter().map(|one| (*one).to_owned()).collect(),
        )
    );
}

#[tokio::test(start_paused = true)]
async fn the_cheapest_pool_comes_first_and_dry_ones_are_errors() {
    let aws = ready(Settings::instant()).await;
    let overrides = ["m5.xlarge a", "m5.large a", "m5.large b", "c5.large a"];
    let request = fleet(&aws, "on-demand", 2, &overrides).await;
    check(&aws, &request, &["c5.large a 2"], &[]).await;

    aws.set_pools(PoolSelector::instance_type("c5.*"), Depth::DRY);
    let one = Depth::Limited { instances: 1, one_back_every: None };
    aws.set_pools(PoolSelector::instance_type("m5.large").on(Market::OnDemand), one);
    let dry = |name: &str| format!("{name} InsufficientInstanceCapacity");
    let dry = ["c5.large a", "m5.large a", "m5.large b"].map(dry);
    let dry: Vec<_> = dry.iter().map(String::as_str).collect();
    let request = fleet(&aws, "on-demand", 3, &overrides).await;
    check(&aws, &request, &["m5.large a 1", "m5.large b 1", "m5.xlarge a 1"], &dry).await;

    aws.set_pools(PoolSelector::zone("us-west-2a"), Depth::DRY);
    let request = fleet(&aws, "spot", 1, &["m5.large a", "m5.large b"]).await;
    check(&aws, &request, &["m5.large b 1"], &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_gives_the_same_fleet_once_more() {
    let aws = ready(Settings::instant()).await;
    let mut request = fleet(&aws, "on-demand", 1, &["m5.large a"]).await;
    request.client_token = text("claim-1");
    aws.fail_next("CreateFleet", 1, Fault::LostAnswer);
    let lost = aws.create_fleet(&request).await.unwrap_err();
    assert_eq!(lost.code(), None, "{lost}");
    assert_eq!(aws.alive().len(), 1, "it was done all the same");
    let first = aws.create_fleet(&request).await.unwrap();
    assert_eq!(aws.create_fleet(&request).await.unwrap(), first);
    assert_eq!(first.instances[0].instance_ids, aws.alive());
    request.context = text("other");
    let error = aws.create_fleet(&request).await.unwrap_err();
    assert_eq!(error.code(), Some("IdempotentParameterMismatch"));
    assert_eq!(aws.count("CreateFleet"), 4);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_an_override_is_its_error() {
    let aws = ready(Settings::instant()).await;
    for (overrides, market, code) in [
        ("m6g.large a", "on-demand", "InvalidParameterValue"),
        ("z9.large a", "on-demand", "InvalidParameterValue"),
        ("p3dn.24xlarge a", "on-demand", "Unsupported"),
        ("t2.nano a", "spot", "Unsupported"),
    ] {
        let request = fleet(&aws, market, 1, &[overrides]).await;
        check(&aws, &request, &[], &[&format!("{overrides} {code}")]).await;
    }
    let mut request = fleet(&aws, "on-demand", 1, &["m5.large a"]).await;
    let named = request.launch_template_configs[0].launch_template_specification.as_mut().unwrap();
    named.launch_template_name = text("gone");
    let error = aws.create_fleet(&request).await.unwrap_err();
    assert_eq!(error.code(), Some("InvalidLaunchTemplateName.NotFoundException"));
}

#[tokio::test(start_paused = true)]
async fn quotas_and_addresses_end() {
    let quotas = Quotas { on_demand_vcpus: 6, spot_vcpus: 2, ..Quotas::default() };
    let aws = ready(Settings { quotas, ..Settings::instant() }).await;
    let request = fleet(&aws, "on-demand", 2, &["m5.xlarge a", "m5.large a"]).await;
    check(&aws, &request, &["m5.large a 2"], &[]).await;
    check(
        &aws,
        &request,
        &["m5.large a 1"],
        &["m5.large a VcpuLimitExceeded", "m5.xlarge a VcpuLimitExceeded"],
    )
    .await;
    let request = fleet(&aws, "spot", 2, &["m5.large a"]).await;
    check(&aws, &request, &["m5.large a 1"], &["m5.large a MaxSpotInstanceCountExceeded"]).await;

    let aws = ready(Settings { subnet_addresses: 1, ..Settings::instant() }).await;
    let request = fleet(&aws, "on-demand", 2, &["m5.large a"]).await;
    check(&aws, &request, &["m5.large a 1"], &["m5.large a InsufficientFreeAddressesInSubnet"])
        .await;
    let id = aws.alive().remove(0);
    aws.terminate_instances(&ec2::TerminateInstancesRequest {
        instance_ids: vec![id],
        dry_run: None,
    })
    .await
    .unwrap();
    let request = fleet(&aws, "on-demand", 1, &["m5.large a"]).await;
    check(&aws, &request, &["m5.large a 1"], &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_profile_is_unknown_to_ec2_for_some_seconds() {
    let delays = Delays { profile_visible: Duration::from_secs(10), ..Delays::none() };
    let aws = fake(Settings { delays, ..Settings::instant() });
    let name = || text("profile");
    let request =
        iam::CreateInstanceProfileRequest { instance_profile_name: name(), ..Default::default() };
    aws.create_instance_profile(&request).await.unwrap();
    let add = |role: &str| iam::AddRoleToInstanceProfileRequest {
        instance_profile_name: name(),
        role_name: text(role),
    };
    let error = aws.add_role_to_instance_profile(&add("nobody")).await.unwrap_err();
    assert_eq!(error.code(), Some("NoSuchEntity"));
    aws.add_role_to_instance_profile(&add("KarpenterNodeRole-test")).await.unwrap();
    let data = ec2::RequestLaunchTemplateData {
        image_id: Some(image(&aws, "x86_64").await),
        iam_instance_profile: Some(ec2::LaunchTemplateIamInstanceProfileSpecificationRequest {
            arn: None,
            name: name(),
        }),
        ..Default::default()
    };
    make_template(&aws, data).await;
    let request = fleet(&aws, "on-demand", 1, &["m5.large a"]).await;
    check(&aws, &request, &[], &["m5.large a InvalidParameterValue"]).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    check(&aws, &request, &["m5.large a 1"], &[]).await;
    let arn = aws.instances().remove(0).iam_instance_profile.unwrap().arn;
    assert_eq!(arn.as_deref(), Some("arn:aws:iam::123456789012:instance-profile/profile"));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_used_up_and_given_back() {
    let aws = fake(Settings::instant());
    aws.add_reservation(Reservation::new("cr-0000000000000001", "m5.large", "us-west-2a", 1));
    let data = ec2::RequestLaunchTemplateData {
        image_id: Some(image(&aws, "x86_64").await),
        capacity_reservation_specification: Some(
            ec2::LaunchTemplateCapacityReservationSpecificationRequest {
                capacity_reservation_preference: text("capacity-reservations-only"),
                capacity_reservation_target: Some(ec2::CapacityReservationTarget {
                    capacity_reservation_id: text("cr-0000000000000001"),
                }),
            },
        ),
        ..Default::default()
    };
    make_template(&aws, data).await;
    aws.set_pools(PoolSelector::all(), Depth::DRY);
    let request = fleet(&aws, "on-demand", 2, &["m5.large a"]).await;
    check(&aws, &request, &["m5.large a 1"], &["m5.large a ReservationCapacityExceeded"]).await;
    let instance = aws.instances().remove(0);
    assert_eq!(instance.capacity_reservation_id.as_deref(), Some("cr-0000000000000001"));
    let left = async || {
        let request = ec2::DescribeCapacityReservationsRequest::default();
        let found = aws.describe_capacity_reservations(&request).await.unwrap();
        found.capacity_reservations[0].available_instance_count
    };
    assert_eq!(left().await, Some(0));
    aws.fail_instance(&instance.instance_id.unwrap());
    assert_eq!(left().await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_spread_group_takes_seven_in_a_zone() {
    let aws = fake(Settings::instant());
    aws.add_placement_group(PlacementGroup {
        id: "pg-1".to_owned(),
        name: "spread".to_owned(),
        strategy: Strategy::Spread,
        tags: BTreeMap::new(),
    });
    let data = ec2::RequestLaunchTemplateData {
        image_id: Some(image(&aws, "x86_64").await),
        placement: Some(ec2::LaunchTemplatePlacementRequest {
            group_id: text("pg-1"),
            ..Default::default()
        }),
        ..Default::default()
    };
    make_template(&aws, data).await;
    let request = fleet(&aws, "on-demand", 8, &["m5.large a", "m5.large b"]).await;
    let response = aws.create_fleet(&request).await.unwrap();
    assert_eq!(outcome(&response).0, ["m5.large a 7", "m5.large b 1"]);
    let error = &response.errors[0];
    let meaning =
        Meaning::of(error.error_code.as_deref().unwrap(), error.error_message.as_deref().unwrap());
    assert_eq!(meaning, Meaning::NoCapacity(Lack::SpreadGroup));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_looks_and_does_nothing() {
    let aws = ready(Settings::instant()).await;
    let mut request = fleet(&aws, "on-demand", 1, &["m5.large a"]).await;
    request.dry_run = Some(true);
    assert!(aws.create_fleet(&request).await.unwrap_err().is_dry_run_passed());
    let run = ec2::RunInstancesRequest {
        dry_run: Some(true),
        instance_type: text("m5.large"),
        subnet_id: request.launch_template_configs[0].overrides[0].subnet_id.clone(),
        launch_template: Some(ec2::LaunchTemplateSpecification {
            launch_template_name: text("template"),
            ..Default::default()
        }),
        ..Default::default()
    };
    assert!(aws.run_instances(&run).await.unwrap_err().is_dry_run_passed());
    let wrong = ec2::RunInstancesRequest { instance_type: text("m6g.large"), ..run.clone() };
    let error = aws.run_instances(&wrong).await.unwrap_err();
    assert_eq!(error.code(), Some("InvalidParameterValue"));
    aws.deny("ec2:RunInstances");
    let error = aws.run_instances(&run).await.unwrap_err();
    assert_eq!(error.code(), Some("UnauthorizedOperation"));
    assert!(aws.alive().is_empty());
}

#[tokio::test(start_paused = true)]
async fn user_data_has_a_limit() {
    let aws = fake(Settings::instant());
    for (bytes, code) in [(16_384, None), (16_385, Some("InvalidUserData.Malformed"))] {
        let request = ec2::CreateLaunchTemplateRequest {
            launch_template_name: Some(format!("size-{bytes}")),
            launch_template_data: Some(ec2::RequestLaunchTemplateData {
                user_data: Some(BASE64_STANDARD.encode("x".repeat(bytes))),
                ..Default::default()
            }),
            ..Default::default()
        };
        let result = aws.create_launch_template(&request).await;
        assert_eq!(result.err().as_ref().and_then(|error| error.code()), code, "{bytes}");
    }
}
