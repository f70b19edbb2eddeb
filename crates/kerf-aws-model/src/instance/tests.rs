use kerf_aws_api::Ec2NodeClassStatus;
use kerf_aws_wire::ec2::{
    CapacityReservationSpecificationResponse, GroupIdentifier, InstanceNetworkInterface,
    InstanceState, Tag,
};
use kerf_model::{Overhead, Requirement, Requirements};
use serde_json::json;

use super::*;

fn text(text: &str) -> Option<String> {
    text.to_owned().into()
}

fn described() -> ec2::Instance {
    let tag = |key: &str, value: &str| Tag { key: text(key), value: text(value) };
    ec2::Instance {
        instance_id: text("i-1"),
        instance_type: text("m5.large"),
        image_id: text("ami-1"),
        subnet_id: text("subnet-1"),
        launch_time: Some(now()),
        state: Some(InstanceState { name: text("running"), code: None }),
        security_groups: vec![GroupIdentifier { group_id: text("sg-1"), group_name: None }],
        placement: Some(ec2::Placement {
            availability_zone: text("us-west-2a"),
            availability_zone_id: text("usw2-az1"),
            ..Default::default()
        }),
        tags: vec![
            tag(tags::NODE_POOL, "default"),
            tag(tags::NODE_CLASS, "default"),
            tag(tags::EKS_CLUSTER_NAME, "demo"),
            tag(tags::NODE_CLAIM_UID, "uid-1"),
        ],
        ..Default::default()
    }
}

fn now() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

fn reserved(preference: &str, lifecycle: Option<&str>) -> ec2::Instance {
    ec2::Instance {
        capacity_reservation_id: text("cr-1"),
        capacity_reservation_specification: Some(CapacityReservationSpecificationResponse {
            capacity_reservation_preference: text(preference),
            ..Default::default()
        }),
        instance_lifecycle: lifecycle.map(str::to_owned),
        ..described()
    }
}

#[test]
fn the_capacity_type_is_what_the_instance_was_bought_by() {
    let only = "capacity-reservations-only";
    let spot = ec2::Instance { spot_instance_request_id: text("sir-1"), ..described() };
    let market = |market| Some(Reservation { id: "cr-1".to_owned(), market });
    for (instance, gate, capacity_type, reservation) in [
        (described(), true, "on-demand", None),
        (spot, true, "spot", None),
        (reserved("open", None), true, "on-demand", None),
        (reserved(only, None), false, "on-demand", None),
        (reserved(only, None), true, "reserved", market(ReservationMarket::Default)),
        (
            reserved(only, Some("capacity-block")),
            true,
            "reserved",
            market(ReservationMarket::CapacityBlock),
        ),
        (
            reserved(only, Some("interruptible-capacity-reservation")),
            true,
            "reserved",
            market(ReservationMarket::Interruptible),
        ),
    ] {
        let read = Instance::read(&instance, gate).unwrap();
        assert_eq!((read.capacity_type, read.reservation), (capacity_type, reservation));
    }
}

#[test]
fn instances_on_their_way_out_are_terminating() {
    for (state, terminating) in [
        ("pending", Some(false)),
        ("running", Some(false)),
        ("stopping", Some(false)),
        ("stopped", Some(false)),
        ("shutting-down", Some(true)),
        ("terminated", Some(true)),
        ("unheard-of", None),
    ] {
        let state_of = Some(InstanceState { name: text(state), code: None });
        let read = Instance::read(&ec2::Instance { state: state_of, ..described() }, true);
        assert_eq!(read.map(|instance| instance.is_terminating()), terminating, "{state}");
    }
    assert_eq!(Instance::read(&ec2::Instance::default(), true), None);
}

fn instance_type() -> InstanceType {
    let requirements = Requirements::new([
        Requirement::is_in(labels::INSTANCE_TYPE, ["m5.large"]),
        Requirement::is_in(labels::ZONE, ["us-west-2a", "us-west-2b"]),
        Requirement::is_in(aws_labels::INSTANCE_TENANCY, ["default", "dedicated"]),
        Requirement::is_in(aws_labels::CAPACITY_RESERVATION_ID, ["cr-9"]),
        Requirement::does_not_exist(aws_labels::INSTANCE_GPU_COUNT),
    ]);
    let amounts = |amounts: &[(&str, &str)]| {
        let all = amounts.iter().map(|(name, amount)| {
            ((*name).to_owned(), serde_json::from_value(json!(amount)).unwrap())
        });
        Resources::from_api(&all.collect()).unwrap()
    };
    let capacity = amounts(&[("cpu", "2"), (resources::EFA, "1"), (resources::POD_ENI, "0")]);
    let overhead = Overhead { kube_reserved: amounts(&[("cpu", "70m")]), ..Overhead::default() };
    InstanceType::new("m5.large", requirements, vec![], capacity, overhead)
}

fn class() -> Ec2NodeClass {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {},
        "status": {"subnets": [
            {"id": "subnet-2", "zone": "us-west-2b", "zoneID": "usw2-az2"},
            {"id": "subnet-1", "zone": "us-west-2a", "zoneID": "usw2-az1"},
        ]},
    }))
    .unwrap()
}

fn rows(labels: BTreeMap<String, String>) -> Vec<String> {
    labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

#[test]
fn a_claim_gets_the_labels_that_its_instance_decides() {
    let instance = Instance::read(&described(), true).unwrap();
    assert_eq!(
        rows(instance.labels(Some(&instance_type()), Some(&class()), None, None)),
        [
            "karpenter.k8s.aws/instance-tenancy=default",
            "karpenter.sh/capacity-type=on-demand",
            "karpenter.sh/nodepool=default",
            "node.kubernetes.io/instance-type=m5.large",
            "topology.k8s.aws/zone-id=usw2-az1",
            "topology.kubernetes.io/zone=us-west-2a",
        ]
    );
    let block = reserved("capacity-reservations-only", Some("capacity-block"));
    let strategy = PlacementStrategy::Partition { count: 7 };
    let group = PlacementGroup { id: "pg-1".to_owned(), strategy };
    let of_block = Instance::read(&block, true).unwrap();
    assert_eq!(
        rows(of_block.labels(None, None, Some(&group), None))[..5],
        [
            "karpenter.k8s.aws/capacity-reservation-id=cr-1",
            "karpenter.k8s.aws/capacity-reservation-interruptible=false",
            "karpenter.k8s.aws/capacity-reservation-type=capacity-block",
            "karpenter.k8s.aws/instance-tenancy=default",
            "karpenter.k8s.aws/placement-group-id=pg-1",
        ]
    );
    let partition = |wanted, found| {
        let instance = Instance { partition: found, ..instance.clone() };
        instance.labels(None, None, Some(&group), wanted)[aws_labels::PLACEMENT_GROUP_PARTITION]
            .clone()
    };
    assert_eq!(partition(None, None), "");
    assert_eq!(partition(Some(2), None), "2");
    assert_eq!(partition(None, Some(3)), "3");
}

#[test]
fn efa_counts_where_the_instance_has_it() {
    let efa = InstanceNetworkInterface { interface_type: text("efa-only"), ..Default::default() };
    let with = ec2::Instance { network_interfaces: vec![efa], ..described() };
    let names = |instance: &ec2::Instance| {
        let (capacity, allocatable) =
            Instance::read(instance, true).unwrap().resources(&instance_type());
        assert_eq!(allocatable.amount("cpu").millis(), 1930);
        capacity.names().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&described()), ["cpu"]);
    assert_eq!(names(&with), ["cpu", "vpc.amazonaws.com/efa"]);
}

#[test]
fn instances_of_karpenter_lack_some_tags() {
    let instance = Instance::read(&described(), true).unwrap();
    let missing = instance.missing_tags("demo", "default-abc", "ip-10-0-0-1.ec2.internal");
    assert_eq!(
        rows(missing),
        ["Name=ip-10-0-0-1.ec2.internal", "karpenter.sh/nodeclaim=default-abc"]
    );
}

#[test]
fn a_reservation_can_end_under_an_instance() {
    let claim = |capacity_type: &str| -> BTreeMap<String, String> {
        [(labels::CAPACITY_TYPE, capacity_type), (aws_labels::CAPACITY_RESERVATION_ID, "cr-1")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    };
    let on_demand = Instance::read(&described(), true).unwrap();
    let still = Instance::read(&reserved("capacity-reservations-only", None), true).unwrap();
    assert!(has_lost_reservation(&claim("reserved"), &on_demand));
    assert!(!has_lost_reservation(&claim("reserved"), &still));
    assert!(!has_lost_reservation(&claim("on-demand"), &on_demand));
    let status = |kind: &str, state: &str| -> Ec2NodeClassStatus {
        serde_json::from_value(json!({"capacityReservations": [{
            "availabilityZone": "a", "id": "cr-1", "instanceMatchCriteria": "targeted",
            "instanceType": "m5.large", "ownerID": "1", "reservationType": kind, "state": state,
        }]}))
        .unwrap()
    };
    for (kind, state, expected) in [
        ("capacity-block", "expiring", true),
        ("capacity-block", "active", false),
        ("default", "expiring", false),
    ] {
        assert_eq!(is_in_expiring_block(&claim("reserved"), &status(kind, state)), expected);
    }
    assert!(!is_in_expiring_block(&BTreeMap::new(), &status("capacity-block", "expiring")));
}

#[test]
fn instances_are_asked_for_by_tags_and_states() {
    let filters = |request: DescribeInstancesRequest| -> Vec<String> {
        let filter =
            |filter: Filter| format!("{}={}", filter.name.unwrap(), filter.values.join("|"));
        request.filters.into_iter().map(filter).collect()
    };
    let states = "instance-state-name=pending|running|stopping|stopped|shutting-down";
    assert_eq!(
        filters(list_request("demo")),
        [
            "tag-key=karpenter.sh/nodepool",
            "tag-key=karpenter.k8s.aws/ec2nodeclass",
            "tag:eks:eks-cluster-name=demo",
            states,
        ]
    );
    assert_eq!(filters(get_request(vec!["i-1".to_owned()])), [states]);
    let uids = ["uid-1", "uid-2"].map(str::to_owned).to_vec();
    assert_eq!(filters(find_request(uids)), ["tag:karpenter.sh/nodeclaim-uid=uid-1|uid-2"]);
}
