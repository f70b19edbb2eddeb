use std::sync::Arc;

use kerf_aws_wire::ec2::{
    CreateFleetError, CreateFleetInstance, CreateFleetResponse, FleetLaunchTemplateOverrides,
    LaunchTemplateAndOverridesResponse,
};
use kerf_model::InstanceType;
use serde_json::json;

use super::*;
use crate::{
    errors::LaunchReason,
    test_launch::{claim, class, cluster, instance_type, known_labels, launch},
};

fn types() -> Vec<Arc<InstanceType>> {
    let offerings = [
        "us-west-2a on-demand 0.1",
        "us-west-2b on-demand 0.1",
        "us-west-2c on-demand 0.1",
        "us-west-2a spot 0.03",
        "us-west-2b spot 0.04",
    ];
    vec![
        instance_type("m5.large", "amd64", json!({"pods": "29"}), &offerings),
        instance_type("m6g.large", "arm64", json!({"pods": "29"}), &offerings[..1]),
    ]
}

fn reserved(kind: &str) -> Vec<Arc<InstanceType>> {
    let offerings = [
        format!("us-west-2a reserved 0 cr-1 {kind}"),
        format!("us-west-2b reserved 0 cr-2 {kind}"),
        "us-west-2a on-demand 0.1".to_owned(),
    ];
    let offerings: Vec<_> = offerings.iter().map(String::as_str).collect();
    vec![instance_type("m5.large", "amd64", json!({"pods": "29"}), &offerings)]
}

/// The request of a claim with these types, and its templates.
fn fleet(
    types: &[Arc<InstanceType>],
    capacity_type: &str,
    zones: &[&str],
    prioritized: bool,
) -> (Result<CreateFleetRequest, NoOffering>, Vec<LaunchTemplate>) {
    let (class, claim, cluster) = (class(&json!({"context": "ctx"})), claim(&json!({})), cluster());
    let requirements = Requirements::default();
    let launch = launch(&class, &claim, &cluster, &requirements, capacity_type);
    let templates = launch.templates(types, &known_labels()).unwrap();
    let subnets = zones.iter().map(|zone| ((*zone).to_owned(), format!("subnet-{zone}"))).collect();
    let fleet = Fleet { launch, templates: &templates, subnets: &subnets, attempt: 2, prioritized };
    (fleet.request(&known_labels()), templates)
}

const ZONES: [&str; 2] = ["us-west-2a", "us-west-2b"];

fn overrides(request: &CreateFleetRequest) -> Vec<Vec<String>> {
    let row = |one: &FleetLaunchTemplateOverridesRequest| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!(
            "{} {} {} {} {}",
            text(&one.instance_type),
            text(&one.availability_zone),
            text(&one.subnet_id),
            text(&one.image_id),
            one.priority.unwrap()
        )
    };
    let configs = request.launch_template_configs.iter();
    configs.map(|config| config.overrides.iter().map(row).collect()).collect()
}

#[test]
fn every_offering_in_a_zone_with_a_subnet_is_an_override() {
    let request = fleet(&types(), "on-demand", &ZONES, false).0.unwrap();
    assert_eq!(
        overrides(&request),
        [
            vec!["m6g.large us-west-2a subnet-us-west-2a ami-arm 0.1"],
            vec![
                "m5.large us-west-2a subnet-us-west-2a ami-x86 0.1",
                "m5.large us-west-2b subnet-us-west-2b ami-x86 0.1",
            ],
        ]
    );
    let spot = fleet(&types(), "spot", &["us-west-2b"], false).0.unwrap();
    assert_eq!(overrides(&spot), [["m5.large us-west-2b subnet-us-west-2b ami-x86 0.04"]]);
    assert_eq!(fleet(&types(), "on-demand", &[], false).0, Err(NoOffering));
}

#[test]
fn a_reservation_is_asked_for_where_it_is() {
    let (request, templates) = fleet(&reserved("default false"), "reserved", &ZONES, false);
    let request = request.unwrap();
    assert_eq!(
        overrides(&request),
        [
            ["m5.large us-west-2a subnet-us-west-2a ami-x86 0"],
            ["m5.large us-west-2b subnet-us-west-2b ami-x86 0"],
        ]
    );
    let named = request.launch_template_configs[1].launch_template_specification.clone().unwrap();
    assert_eq!(named.launch_template_name.as_ref(), Some(&templates[1].name));
    assert_eq!(named.version.as_deref(), Some("$Latest"));
}

#[test]
fn the_market_decides_on_the_strategy() {
    for (types, capacity_type, prioritized, expected) in [
        (types(), "on-demand", false, "on-demand: lowest-price / - / -"),
        (types(), "on-demand", true, "on-demand: prioritized / - / -"),
        (types(), "spot", false, "spot: - / price-capacity-optimized / -"),
        (types(), "spot", true, "spot: - / capacity-optimized-prioritized / -"),
        (reserved("default false"), "reserved", false, "on-demand: lowest-price / - / -"),
        (reserved("capacity-block false"), "reserved", false, "capacity-block: - / - / -"),
        (
            reserved("default true"),
            "reserved",
            false,
            "reserved-capacity: - / - / interruptible-capacity-reservation",
        ),
    ] {
        let request = fleet(&types, capacity_type, &ZONES, prioritized).0.unwrap();
        let target = request.target_capacity_specification.unwrap();
        assert_eq!(target.total_target_capacity, Some(1));
        let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let said = format!(
            "{}: {} / {} / {}",
            or(target.default_target_capacity_type),
            or(request.on_demand_options.and_then(|options| options.allocation_strategy)),
            or(request.spot_options.and_then(|options| options.allocation_strategy)),
            or(request
                .reserved_capacity_options
                .map(|options| options.reservation_types.join(" "))),
        );
        assert_eq!(said, expected);
    }
}

#[test]
fn an_instance_knows_its_claim_from_the_start() {
    let request = fleet(&types(), "spot", &ZONES, false).0.unwrap();
    assert_eq!(request.r#type.as_deref(), Some("instant"));
    assert_eq!(request.context.as_deref(), Some("ctx"));
    let token = request.client_token.unwrap();
    assert_eq!(token, "11111111-2222-3333-4444-555555555555-2");
    assert!(token.len() <= 64);
    let kinds: Vec<_> =
        request.tag_specifications.iter().map(|one| one.resource_type.clone().unwrap()).collect();
    assert_eq!(kinds, ["instance", "volume", "fleet"]);
    let tags: Vec<_> = request.tag_specifications[0]
        .tags
        .iter()
        .map(|tag| format!("{}={}", tag.key.clone().unwrap(), tag.value.clone().unwrap()))
        .collect();
    assert_eq!(
        tags,
        [
            "Name=default-abc",
            "eks:eks-cluster-name=demo",
            "karpenter.k8s.aws/ec2nodeclass=default",
            "karpenter.sh/nodeclaim=default-abc",
            "karpenter.sh/nodeclaim-uid=11111111-2222-3333-4444-555555555555",
            "karpenter.sh/nodepool=default",
            "kubernetes.io/cluster/demo=owned",
            "team=a",
        ]
    );
}

#[test]
fn the_context_is_not_passed_on_when_min_values_were_relaxed() {
    let (class, cluster, requirements) =
        (class(&json!({"context": "ctx"})), cluster(), Requirements::default());
    let mut relaxed = claim(&json!({}));
    relaxed.metadata.annotations =
        Some([(annotations::MIN_VALUES_RELAXED.to_owned(), "true".to_owned())].into());
    let launch = launch(&class, &relaxed, &cluster, &requirements, "spot");
    let subnets = BTreeMap::new();
    let fleet = Fleet { launch, templates: &[], subnets: &subnets, attempt: 0, prioritized: false };
    assert_eq!(fleet.context(), None);
}

fn template(instance_type: &str, zone: &str) -> Option<LaunchTemplateAndOverridesResponse> {
    let text = |text: &str| Some(text.to_owned());
    let template = LaunchTemplateAndOverridesResponse {
        overrides: Some(FleetLaunchTemplateOverrides {
            instance_type: text(instance_type),
            availability_zone: text(zone),
            subnet_id: text("subnet-1"),
            image_id: text("ami-1"),
            ..Default::default()
        }),
        ..Default::default()
    };
    template.into()
}

fn answer(instances: &[&str], errors: &[(&str, &str, &str)]) -> FleetAnswer {
    let error = |(code, message, zone): &(&str, &str, &str)| CreateFleetError {
        error_code: Some((*code).to_owned()),
        error_message: Some((*message).to_owned()),
        launch_template_and_overrides: template("m5.large", zone),
        ..Default::default()
    };
    let instance = CreateFleetInstance {
        instance_ids: instances.iter().map(|id| (*id).to_owned()).collect(),
        instance_type: Some("m5.large".to_owned()),
        launch_template_and_overrides: template("m5.large", "us-west-2a"),
        ..Default::default()
    };
    FleetAnswer::read(CreateFleetResponse {
        fleet_id: Some("fleet-1".to_owned()),
        instances: vec![instance],
        errors: errors.iter().map(error).collect(),
    })
}

#[test]
fn an_instance_is_a_success_whatever_else_failed() {
    let answer = answer(&["i-1"], &[("InsufficientInstanceCapacity", "", "us-west-2b")]);
    let instance = answer.outcome().unwrap();
    assert_eq!((instance.id.as_str(), instance.zone.as_str()), ("i-1", "us-west-2a"));
    assert_eq!((instance.image.as_str(), instance.subnet.as_deref()), ("ami-1", Some("subnet-1")));
    assert_eq!(answer.shortfalls.len(), 1);
}

#[test]
fn it_is_a_shortage_if_nothing_else_is_wrong() {
    let ice = ("InsufficientInstanceCapacity", "none", "us-west-2a");
    let role = ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", "us-west-2a");
    let denied = ("UnauthorizedOperation", "no", "us-west-2a");
    let quota = ("VcpuLimitExceeded", "", "us-west-2a");
    let failed =
        |reason, message: &str| FleetFailure::Failed { reason, message: message.to_owned() };
    for (errors, expected) in [
        (&[][..], FleetFailure::NoCapacity),
        (&[ice], FleetFailure::NoCapacity),
        (&[ice, role, quota], FleetFailure::NoCapacity),
        (&[ice, denied], failed(LaunchReason::Unauthorized, "UnauthorizedOperation: no")),
        (
            &[denied, ("InvalidAMIID.NotFound", "", "a"), denied],
            failed(LaunchReason::Unauthorized, "UnauthorizedOperation: no"),
        ),
        (&[("New", "", "a")], failed(LaunchReason::LaunchFailed, "New")),
    ] {
        assert_eq!(answer(&[], errors).outcome(), Err(expected), "{errors:?}");
    }
}

#[test]
fn shortfalls_say_what_is_not_to_be_tried_again() {
    let offering =
        |zone: &str| Mark::Offering { instance_type: "m5.large".to_owned(), zone: zone.to_owned() };
    let (_, reserved) = fleet(&reserved("default false"), "reserved", &ZONES, false);
    let ice = "InsufficientInstanceCapacity";
    let spread = "You've reached the limit of instances in this spread placement group";
    for (errors, capacity_type, expected) in [
        (
            vec![(ice, "", "us-west-2a"), (ice, "", "us-west-2a")],
            "spot",
            vec![offering("us-west-2a")],
        ),
        (vec![("New", "", "us-west-2a")], "spot", vec![]),
        (
            vec![("InsufficientFreeAddressesInSubnet", "", "us-west-2a")],
            "spot",
            vec![offering("us-west-2a"), Mark::Subnet { id: "subnet-1".to_owned() }],
        ),
        (
            vec![("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", "us-west-2a")],
            "spot",
            vec![Mark::Spot],
        ),
        (
            vec![(ice, spread, "us-west-2a")],
            "on-demand",
            vec![Mark::ZoneOfGroup { zone: "us-west-2a".to_owned() }],
        ),
        (
            vec![("ReservationCapacityExceeded", "", "us-west-2b")],
            "reserved",
            vec![Mark::Reservation { id: "cr-2".to_owned() }],
        ),
        (vec![(ice, spread, "us-west-2a")], "reserved", vec![]),
    ] {
        let marks = answer(&[], &errors).marks(capacity_type, &reserved, &known_labels());
        assert_eq!(marks, expected, "{errors:?}");
    }
}
