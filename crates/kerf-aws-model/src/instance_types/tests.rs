use std::collections::BTreeSet;

use kerf_aws_api::Ec2NodeClass;
use kerf_model::resources::{CPU, MEMORY, PODS};
use serde_json::{Value, json};

use super::*;
use crate::catalogue::shared;

pub(crate) const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

pub(crate) fn class(spec: &Value) -> Ec2NodeClass {
    let subnets: Vec<_> = ZONES
        .iter()
        .enumerate()
        .map(|(at, zone)| json!({"id": format!("subnet-{at}"), "zone": zone, "zoneID": format!("use1-az{at}")}))
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": spec, "status": {"subnets": subnets},
    }))
    .unwrap()
}

fn shape(spec: &Value) -> ClassShape {
    ClassShape::new(&class(spec), None).unwrap()
}

fn bare(name: &str, shape: &ClassShape, settings: &Settings) -> InstanceType {
    let catalogue = shared();
    let zones = ZONES.map(str::to_owned);
    let facts = catalogue.get(name).unwrap();
    let known = Known { facts, network: catalogue.network(name), zones: &zones };
    BareType::new(known, shape, settings, &DiscoveredMemory::default()).with_offerings(Vec::new())
}

/// What AWS publishes for AL2023 without block devices: allocatable amounts and labels, from the page "Instance Types" of
/// Karpenter's documentation at 1d927085. A line is a type, then its amounts, then its labels without their domain.
const PUBLISHED: &str = include_str!("published.txt");

#[test]
fn types_are_as_published() {
    let shape = shape(&json!({"amiFamily": "AL2023"}));
    let settings = Settings::default();
    let mut types = 0;
    for line in PUBLISHED.lines() {
        let (name, expected) = line.split_once(' ').unwrap();
        let found = described(&bare(name, &shape, &settings));
        let expected: BTreeSet<&str> = expected.split(' ').collect();
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, expected, "{name}");
        types += 1;
    }
    assert_eq!(types, 60);
}

/// Allocatable amounts and those labels that the page has.
fn described(instance_type: &InstanceType) -> Vec<String> {
    let mut all: Vec<_> = instance_type
        .allocatable()
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    let labels = instance_type.requirements().iter().filter_map(|requirement| {
        let key = requirement.key().strip_prefix("karpenter.k8s.aws/")?;
        (key != "instance-tenancy").then(|| Some(format!("{key}={}", requirement.only_value()?)))?
    });
    all.extend(labels);
    all
}

#[test]
fn pods_follow_from_addresses_and_settings() {
    let check = |name: &str, spec: Value, settings: &Settings, expected: i64| {
        let pods = bare(name, &shape(&spec), settings).capacity().amount(PODS).units();
        assert_eq!(pods, expected, "{name} {spec} {settings:?}");
    };
    let plain = Settings::default();
    let reserving = Settings { reserved_enis: 1, ..plain.clone() };
    let cni = |prefix_delegation, custom_networking| Settings {
        cni: CniSettings { prefix_delegation, custom_networking },
        ..plain.clone()
    };
    let family = |family: &str| json!({"amiFamily": family});
    for (name, expected) in
        [("m5.large", 29), ("m5.24xlarge", 737), ("t3.nano", 4), ("p5.48xlarge", 100)]
    {
        for family in ["AL2", "AL2023", "Bottlerocket", "Custom"] {
            check(name, json!({ "amiFamily": family }), &plain, expected);
        }
        check(name, family("Windows2022"), &plain, 110);
    }
    check("m5.large", family("AL2023"), &reserving, 20);
    check("t3.nano", family("AL2023"), &Settings { reserved_enis: 9, ..plain.clone() }, 0);
    check("m5.large", json!({"amiFamily": "AL2023", "kubelet": {"maxPods": 7}}), &reserving, 7);
    for (family, expected) in
        [("AL2", 6), ("AL2023", 6), ("Custom", 6), ("Windows2022", 6), ("Bottlerocket", 29)]
    {
        check(
            "m5.large",
            json!({"amiFamily": family, "kubelet": {"podsPerCore": 3}}),
            &plain,
            expected,
        );
    }
    check("m5.large", json!({"amiFamily": "AL2023", "kubelet": {"podsPerCore": 0}}), &plain, 29);
    check(
        "m5.large",
        json!({"amiFamily": "AL2023", "kubelet": {"podsPerCore": 30, "maxPods": 20}}),
        &plain,
        20,
    );
    let efa = json!({"amiFamily": "AL2023", "networkInterfaces": [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}]});
    check("p5.48xlarge", efa, &plain, 51);

    // What the plugin of AWS does with its own settings.
    check("m5.large", family("AL2023"), &cni(true, false), 110);
    check("m5.24xlarge", family("AL2023"), &cni(true, false), 250);
    check("t3.nano", family("AL2023"), &cni(true, false), 34);
    check("m4.large", family("AL2023"), &cni(true, false), 20);
    check("m5.metal", family("AL2023"), &cni(true, false), 250);
    check("m5.large", family("AL2023"), &cni(false, true), 20);
    check("t3.nano", family("AL2023"), &cni(true, true), 18);
    check("m5.large", family("AL2023"), &Settings { reserved_enis: 1, ..cni(false, true) }, 20);
}

#[test]
fn the_plugin_says_how_it_hands_out_addresses() {
    let check = |variables: &[(&str, &str)], expected: (bool, bool)| {
        let settings = CniSettings::from_env(variables.iter().copied());
        assert_eq!((settings.prefix_delegation, settings.custom_networking), expected);
    };
    check(&[], (false, false));
    check(&[("ENABLE_PREFIX_DELEGATION", "true"), ("WARM_PREFIX_TARGET", "1")], (true, false));
    check(
        &[("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "true"), ("ENABLE_PREFIX_DELEGATION", "false")],
        (false, true),
    );
}

#[test]
fn reservations_and_evictions_are_subtracted() {
    let check = |spec: Value, expected: &str| {
        let instance_type = bare("m5.large", &shape(&spec), &Settings::default());
        assert_eq!(instance_type.allocatable().to_string(), expected, "{spec}");
    };
    check(
        json!({"amiFamily": "AL2023"}),
        "cpu 1930m, ephemeral-storage 17Gi, memory 6903Mi, pods 29, vpc.amazonaws.com/pod-eni 9",
    );
    // maxPods does not change what AL2023 keeps, but it does with Bottlerocket.
    check(
        json!({"amiFamily": "AL2023", "kubelet": {"maxPods": 110}}),
        "cpu 1930m, ephemeral-storage 17Gi, memory 6903Mi, pods 110, vpc.amazonaws.com/pod-eni 9",
    );
    check(
        json!({"amiFamily": "Bottlerocket", "kubelet": {"maxPods": 110}}),
        "cpu 1930m, ephemeral-storage 17Gi, memory 6012Mi, pods 110, vpc.amazonaws.com/pod-eni 9",
    );
    check(
        json!({"amiFamily": "AL2023", "kubelet": {
            "kubeReserved": {"cpu": "200m", "pid": "100"}, "systemReserved": {"memory": "1Gi", "cpu": "100m"},
            "evictionHard": {"memory.available": "10%", "nodefs.available": "1Gi"},
            "evictionSoft": {"memory.available": "50%"}}}),
        "cpu 1700m, ephemeral-storage 18Gi, memory 5474929868, pods 29, vpc.amazonaws.com/pod-eni 9",
    );
    check(
        json!({"amiFamily": "Windows2022"}),
        "cpu 1930m, ephemeral-storage 44Gi, memory 6012Mi, pods 110, vpc.amazonaws.com/PrivateIPv4Address 9, \
         vpc.amazonaws.com/pod-eni 9",
    );
}

#[test]
fn local_disks_and_devices_are_part_of_the_capacity() {
    let check = |name: &str, spec: Value, expected: &str| {
        let capacity = bare(name, &shape(&spec), &Settings::default());
        let mut capacity = capacity.capacity().clone();
        for name in [CPU, MEMORY, PODS] {
            capacity.remove(name);
        }
        assert_eq!(capacity.to_string(), expected, "{name}");
    };
    let raid = json!({"amiFamily": "AL2023", "instanceStorePolicy": "RAID0"});
    check("i3.large", raid.clone(), "ephemeral-storage 475G");
    check("m5.large", raid, "ephemeral-storage 20Gi, vpc.amazonaws.com/pod-eni 9");
    check("i3.large", json!({"amiFamily": "AL2023"}), "ephemeral-storage 20Gi");
    check(
        "inf2.24xlarge",
        json!({"amiFamily": "AL2023"}),
        "aws.amazon.com/neuron 6, aws.amazon.com/neuroncore 12, ephemeral-storage 20Gi, vpc.amazonaws.com/pod-eni 107",
    );
    check(
        "p5.48xlarge",
        json!({"amiFamily": "AL2023"}),
        "ephemeral-storage 20Gi, nvidia.com/gpu 8, vpc.amazonaws.com/efa 32, vpc.amazonaws.com/pod-eni 120",
    );
    let interfaces = json!({"amiFamily": "AL2023", "networkInterfaces": [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"}]});
    check(
        "p5.48xlarge",
        interfaces,
        "ephemeral-storage 20Gi, nvidia.com/gpu 8, vpc.amazonaws.com/efa 1, vpc.amazonaws.com/pod-eni 120",
    );
}

#[test]
fn labels_of_class_and_places_come_with_the_type() {
    let settings = Settings::default();
    let text = |name: &str, class: &Ec2NodeClass, group: Option<PlacementGroup>, keys: &[&str]| {
        let shape = ClassShape::new(class, group).unwrap();
        let instance_type = bare(name, &shape, &settings);
        let requirements = instance_type.requirements().iter();
        let shown: Vec<_> = requirements
            .filter(|requirement| keys.iter().any(|key| requirement.key().ends_with(key)))
            .map(|requirement| requirement.to_string().rsplit_once('/').unwrap().1.to_owned())
            .collect();
        shown.join(", ")
    };
    let plain = class(&json!({"amiFamily": "AL2023"}));
    let places = &["capacity-type", "/zone", "zone-id", "/region", "/os", "/arch", "windows-build"];
    assert_eq!(
        text("m6g.large", &plain, None, places),
        "capacity-type In [on-demand spot], arch In [arm64], os In [linux], windows-build DoesNotExist, \
         zone-id In [use1-az0 use1-az1 use1-az2], region In [us-east-1], zone In [us-east-1a us-east-1b us-east-1c]"
    );
    let windows = class(&json!({"amiFamily": "Windows2022"}));
    let system = &["/os", "windows-build"];
    assert_eq!(
        text("m5.large", &windows, None, system),
        "os In [windows], windows-build In [10.0.20348]"
    );
    assert_eq!(
        text("m6g.large", &windows, None, system),
        "os In [], windows-build In [10.0.20348]"
    );

    let mut reserving = plain.clone();
    reserving.status.as_mut().unwrap().capacity_reservations = serde_json::from_value(json!([
        {"id": "cr-2", "availabilityZone": "us-east-1a", "instanceMatchCriteria": "targeted", "instanceType": "m5.large",
         "ownerID": "012345678901", "reservationType": "capacity-block"},
        {"id": "cr-1", "availabilityZone": "us-east-1a", "instanceMatchCriteria": "open", "instanceType": "m5.large",
         "ownerID": "012345678901", "interruptible": true}]))
    .unwrap();
    let terms = &["capacity-type", "reservation-id", "reservation-type", "interruptible"];
    assert_eq!(
        text("m5.large", &reserving, None, terms),
        "capacity-reservation-id In [cr-1 cr-2], capacity-reservation-interruptible In [false true], \
         capacity-reservation-type In [capacity-block default], capacity-type In [on-demand reserved spot]"
    );
    assert_eq!(
        text("m5.xlarge", &reserving, None, terms),
        "capacity-reservation-id DoesNotExist, capacity-reservation-interruptible DoesNotExist, \
         capacity-reservation-type DoesNotExist, capacity-type In [on-demand spot]"
    );
    let group = PlacementGroup {
        id: "pg-1".to_owned(),
        strategy: PlacementStrategy::Partition { count: 3 },
    };
    assert_eq!(
        text("m5.large", &plain, Some(group), &["placement-group-id", "placement-group-partition"]),
        "placement-group-id In [pg-1], placement-group-partition In [1 2 3]"
    );
}

#[test]
fn a_type_is_only_where_it_is_offered_and_the_class_has_a_subnet() {
    let catalogue = shared();
    let offered = ["us-east-1c".to_owned(), "us-east-1f".to_owned()];
    let facts = catalogue.get("m5.large").unwrap();
    let known = Known { facts, network: Network::default(), zones: &offered };
    let shape = shape(&json!({"amiFamily": "AL2023"}));
    let bare = BareType::new(known, &shape, &Settings::default(), &DiscoveredMemory::default());
    let of = |key| bare.requirements.get(key).unwrap().listed().unwrap();
    assert_eq!(of(kerf_api::labels::ZONE), ["us-east-1c"]);
    assert_eq!(of(kerf_aws_api::labels::ZONE_ID), ["use1-az2"]);
}

#[test]
fn some_types_cannot_be_launched_for_a_class() {
    let catalogue = shared();
    let check = |name: &str,
                 spec: Value,
                 group: Option<PlacementStrategy>,
                 expected: Result<(), Unsuitable>| {
        let group = group.map(|strategy| PlacementGroup { id: "pg-1".to_owned(), strategy });
        let shape = ClassShape::new(&class(&spec), group).unwrap();
        assert_eq!(shape.suits(catalogue.get(name).unwrap()), expected, "{name} {spec}");
    };
    let of = |extra: Value| {
        let mut spec = json!({"amiFamily": "AL2023"});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        spec
    };
    let interface = |card: i32, device: i32, kind: &str| json!({"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind});
    let interfaces = |list: &[Value]| of(json!({ "networkInterfaces": list }));
    check("a1.large", of(json!({})), None, Err(Unsuitable::ImageDoesNotRun));
    check("a1.large", json!({"amiFamily": "AL2"}), None, Ok(()));
    check("m5.large", of(json!({})), None, Ok(()));
    check("m5.large", interfaces(&[interface(0, 2, "interface")]), None, Ok(()));
    check(
        "m5.large",
        interfaces(&[interface(0, 3, "interface")]),
        None,
        Err(Unsuitable::NoSuchInterface { card: 0, device: 3 }),
    );
    check(
        "m5.large",
        interfaces(&[interface(1, 0, "interface")]),
        None,
        Err(Unsuitable::NoSuchInterface { card: 1, device: 0 }),
    );
    check("m3.large", interfaces(&[interface(0, 0, "interface")]), None, Err(Unsuitable::NoEna));
    check("p5.48xlarge", interfaces(&[interface(31, 1, "efa-only")]), None, Ok(()));
    check(
        "m5.large",
        interfaces(&[interface(0, 1, "efa-only")]),
        None,
        Err(Unsuitable::TooFewEfaInterfaces { wanted: 1, has: 0 }),
    );
    let nested = of(json!({"cpuOptions": {"nestedVirtualization": "enabled"}}));
    check("m5.large", nested.clone(), None, Err(Unsuitable::NoNestedVirtualization));
    check("m8i.large", nested, None, Ok(()));
    check(
        "m5.large",
        of(json!({"cpuOptions": {"nestedVirtualization": "disabled"}})),
        None,
        Ok(()),
    );
    check(
        "t3.large",
        of(json!({})),
        Some(PlacementStrategy::Cluster),
        Err(Unsuitable::NotInPlacementGroup),
    );
    check("t3.large", of(json!({})), Some(PlacementStrategy::Spread), Ok(()));
    check("m5.large", of(json!({})), Some(PlacementStrategy::Partition { count: 2 }), Ok(()));
    let tracking = of(json!({"connectionTracking": {"udpTimeout": 60}}));
    check("m4.large", tracking.clone(), None, Err(Unsuitable::NoConnectionTracking));
    check("m5.metal", tracking.clone(), None, Err(Unsuitable::NoConnectionTracking));
    check("m5.large", tracking, None, Ok(()));
}
