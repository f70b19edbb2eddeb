//! A class, a claim and types, as the tests of launches need them.

use std::sync::Arc;

use kerf_api::{NodeClaim, labels};
use kerf_aws_api::{Ec2NodeClass, labels as aws_labels};
use kerf_model::{
    InstanceType, KnownLabels, Offering, Overhead, Price, Requirement, Requirements, Resources,
};
use serde_json::{Value, json};

use crate::{
    launch_template::{Cluster, Launch},
    unavailable::Placement,
    user_data::ClusterAccess,
};

pub(crate) fn known_labels() -> KnownLabels {
    KnownLabels::from(&aws_labels::label_rules())
}

/// The spec is laid over one of AL2023.
pub(crate) fn class(spec: &Value) -> Ec2NodeClass {
    let mut whole = json!({"amiFamily": "AL2023", "tags": {"team": "a"}});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let arch = |arch: &str| json!([{"key": labels::ARCH, "operator": "In", "values": [arch]}]);
    serde_json::from_value(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "class-uid"},
        "spec": whole,
        "status": {
            "amis": [
                {"id": "ami-arm", "requirements": arch("arm64")},
                {"id": "ami-x86", "requirements": arch("amd64")},
            ],
            "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
            "subnets": [
                {"id": "subnet-a", "zone": "us-west-2a", "zoneID": "usw2-az1"},
                {"id": "subnet-b", "zone": "us-west-2b", "zoneID": "usw2-az2"},
            ],
            "instanceProfile": "demo_1",
        },
    }))
    .unwrap()
}

pub(crate) fn claim(requests: &Value) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": "default-abc", "uid": "11111111-2222-3333-4444-555555555555",
            "labels": {"karpenter.sh/nodepool": "default"},
        },
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
            "resources": {"requests": requests},
        },
    }))
    .unwrap()
}

pub(crate) fn cluster() -> Cluster {
    Cluster {
        access: ClusterAccess {
            name: "demo".to_owned(),
            endpoint: "https://demo.example".to_owned(),
            ca_bundle: Some("Y2EtYnVuZGxl".to_owned()),
            service_cidr: Some("10.100.0.0/16".to_owned()),
        },
        region: "us-west-2".to_owned(),
        dns: Some("10.100.0.10".parse().unwrap()),
    }
}

pub(crate) fn launch<'a>(
    class: &'a Ec2NodeClass,
    claim: &'a NodeClaim,
    cluster: &'a Cluster,
    requirements: &'a Requirements,
    capacity_type: &'a str,
) -> Launch<'a> {
    Launch {
        class,
        claim,
        requirements,
        cluster,
        capacity_type,
        tenancy: "default",
        placement: Placement::Anywhere,
        reserved_capacity: true,
    }
}

/// An offering as `zone capacity-type price`, for reserved ones with `id kind interruptible` after it.
pub(crate) fn offering(text: &str) -> Offering {
    let words: Vec<_> = text.split(' ').collect();
    let mut requirements = Requirements::new([
        Requirement::is_in(labels::ZONE, [words[0]]),
        Requirement::is_in(labels::CAPACITY_TYPE, [words[1]]),
    ]);
    let of_reservation = [
        aws_labels::CAPACITY_RESERVATION_ID,
        aws_labels::CAPACITY_RESERVATION_TYPE,
        aws_labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ];
    for (index, key) in of_reservation.iter().enumerate() {
        requirements.add(match words.get(3 + index) {
            Some(value) => Requirement::is_in(key, [*value]),
            None => Requirement::does_not_exist(key),
        });
    }
    Offering {
        requirements,
        price: Price::from_f64(words[2].parse().unwrap()),
        available: true,
        reservation_capacity: 1,
        ..Offering::default()
    }
}

pub(crate) fn instance_type(
    name: &str,
    arch: &str,
    capacity: Value,
    offerings: &[&str],
) -> Arc<InstanceType> {
    let requirements = Requirements::new([
        Requirement::is_in(labels::INSTANCE_TYPE, [name]),
        Requirement::is_in(labels::ARCH, [arch]),
    ]);
    let capacity = Resources::from_api(&serde_json::from_value(capacity).unwrap()).unwrap();
    let offerings = offerings.iter().map(|text| offering(text)).collect();
    Arc::new(InstanceType::new(name, requirements, offerings, capacity, Overhead::default()))
}
