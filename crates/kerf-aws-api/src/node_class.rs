//! `EC2NodeClass`: what instances on EC2 are made of.

pub(crate) mod ami_family;
pub(crate) mod block_devices;
pub(crate) mod kubelet;
pub(crate) mod networking;
pub(crate) mod options;
pub(crate) mod selectors;
pub(crate) mod status;

use std::collections::BTreeMap;

use kerf_api::{
    NodeClass,
    decode::{Decoded, Unreadable, decode},
};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Alias, AmiFamily, AmiSelectorTerm, BlockDeviceMapping, CapacityReservationSelectorTerm,
    ConnectionTracking, CpuOptions, Ec2NodeClassStatus, InstanceStorePolicy, KIND,
    KubeletConfiguration, MetadataOptions, NetworkInterface, PlacementGroupSelector,
    SecurityGroupSelectorTerm, SubnetSelectorTerm, conditions::NotReady, schema, tags,
};

/// What the instances of a class are launched with.
///
/// Where a list or map is an `Option`, none and an empty one are kept apart because the drift hash tells them apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "karpenter.k8s.aws",
    version = "v1",
    kind = "EC2NodeClass",
    root = "Ec2NodeClass",
    plural = "ec2nodeclasses",
    category = "karpenter",
    shortname = "ec2nc",
    shortname = "ec2ncs",
    doc = "EC2NodeClass holds what instances on EC2 are launched with.",
    status = "Ec2NodeClassStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role", priority = 1),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", default)]
pub struct Ec2NodeClassSpec {
    /// Subnets that instances may be in: those that one of the terms selects.
    #[schemars(length(max = 30), transform = schema::without_default)]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,

    /// Security groups of the instances: those that one of the terms selects.
    #[schemars(length(max = 30), transform = schema::without_default)]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,

    /// Capacity reservations that instances may be launched into: those that one of the terms selects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 30))]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,

    /// Placement group that instances are launched into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,

    /// Whether instances get a public address. If left out, the subnet's own setting holds.
    #[serde(rename = "associatePublicIPAddress", skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,

    /// Number of address prefixes that the primary network interface gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ip_prefix_count: Option<i32>,

    /// Images of the instances: those that one of the terms selects.
    #[schemars(length(min = 1, max = 30), transform = schema::without_default)]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,

    /// Which kind of image it is. It decides on the form of the user data and on the block devices if there are none in
    /// the class. Needed unless a term is an alias; with an alias it can only be the alias's family or Custom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,

    /// What instances run when they start, in the form that their image family wants. What nodes need to join the cluster is
    /// merged into it, except for the family Custom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,

    /// IAM role of the nodes; an instance profile is made for it. Either this or instanceProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,

    /// Instance profile of the nodes, which has to exist and to hold a role. Either this or role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,

    /// Tags of all that is launched or made for this class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,

    /// Settings of the kubelet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletConfiguration>,

    /// Block devices of the instances; those that suit the image family if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50))]
    pub block_device_mappings: Option<Vec<BlockDeviceMapping>>,

    /// What is done with the disks that an instance has of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,

    /// Network interfaces that instances are launched with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 150))]
    pub network_interfaces: Option<Vec<NetworkInterface>>,

    /// Whether instances are measured every minute instead of every five.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,

    /// Who can reach the instance metadata service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }))]
    pub metadata_options: Option<MetadataOptions>,

    /// After what time idle connections are forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,

    /// Context of the fleet requests, a value that EC2 reserves for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,

    /// Settings of the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
}

impl Ec2NodeClassSpec {
    /// The alias that selects the image, if it is selected by one.
    pub fn alias(&self) -> Option<&Alias> {
        self.ami_selector_terms.iter().find_map(|term| term.alias.as_ref())
    }

    /// The family of the image: the field, or that of the alias. The CRD lets no class have neither; such a class counts
    /// as Custom.
    pub fn ami_family(&self) -> AmiFamily {
        let of_alias = || self.alias().map(Alias::family);
        self.ami_family.or_else(of_alias).unwrap_or(AmiFamily::Custom)
    }

    /// What keeps every node from being launched and can be seen without asking AWS.
    pub fn validate(&self) -> Result<(), NotReady> {
        self.kubelet.as_ref().map_or(Ok(()), KubeletConfiguration::validate)?;
        let keys = self.tags.iter().flat_map(BTreeMap::keys);
        let tags: Vec<String> = keys.filter(|key| tags::is_restricted(key)).cloned().collect();
        if tags.is_empty() { Ok(()) } else { Err(NotReady::RestrictedTags { tags }) }
    }
}

impl Ec2NodeClass {
    /// The class as AWS knows it. An error names the field that cannot be read: the CRD admits some values that mean nothing,
    /// such as a volume of size `Ti`.
    pub fn read(class: &NodeClass) -> Result<Self, Unreadable> {
        let object = class.object();
        // The CRD lets the spec be left out, the types do not.
        let spec = object.data.get("spec").cloned().unwrap_or_else(|| json!({}));
        let status = object.data.get("status").cloned().unwrap_or_else(|| json!({}));
        let value = json!({ "metadata": object.metadata, "spec": spec, "status": status });
        match decode(KIND, value) {
            Decoded::Whole(class) => Ok(class),
            Decoded::Partial(_, unreadable) | Decoded::Nothing(unreadable) => Err(unreadable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn read(object: &Value) -> Result<Ec2NodeClass, Unreadable> {
        let object = serde_json::from_value(object.clone()).unwrap();
        Ec2NodeClass::read(&NodeClass::from_object(crate::GROUP, KIND, object))
    }

    #[test]
    fn the_family_is_the_field_or_that_of_the_alias() {
        let check = |field: Option<&str>, alias: Option<&str>, expected: AmiFamily| {
            let term = alias.map_or(json!({"id": "ami-1"}), |alias| json!({ "alias": alias }));
            let mut spec = json!({ "amiSelectorTerms": [term] });
            if let Some(field) = field {
                spec["amiFamily"] = json!(field);
            }
            let class = read(&json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
            assert_eq!(class.spec.ami_family(), expected, "{field:?} {alias:?}");
        };
        check(Some("AL2023"), None, AmiFamily::Al2023);
        check(None, Some("bottlerocket@latest"), AmiFamily::Bottlerocket);
        check(Some("Custom"), Some("al2023@v20240625"), AmiFamily::Custom);
        check(None, None, AmiFamily::Custom);
    }

    #[test]
    fn the_first_thing_that_is_wrong_is_named() {
        let check = |spec: Value, expected: Option<&str>| {
            let class = read(&json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
            let found = class.spec.validate().err().map(|refusal| refusal.to_string());
            assert_eq!(found.as_deref(), expected);
        };
        let tags =
            json!({"a": "b", "eks:eks-cluster-name": "c", "kubernetes.io/cluster/c": "owned"});
        check(json!({"tags": {"a": "b"}, "kubelet": {"maxPods": 1}}), None);
        check(
            json!({"tags": tags}),
            Some(
                "spec.tags has tags that Kerf writes: eks:eks-cluster-name, kubernetes.io/cluster/c",
            ),
        );
        check(
            json!({"tags": tags, "kubelet": {"maxPods": -1}}),
            Some("spec.kubelet.maxPods: -1 is negative"),
        );
    }

    #[test]
    fn a_class_needs_neither_spec_nor_status_to_be_read() {
        let class = read(&json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!(class.spec, Ec2NodeClassSpec::default());
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let check = |spec: Value, field: &str| {
            let unreadable = read(&json!({"metadata": {"name": "a"}, "spec": spec})).unwrap_err();
            assert_eq!((&*unreadable.kind, &*unreadable.name), (KIND, "a"));
            assert_eq!(unreadable.field, field);
        };
        check(
            json!({"blockDeviceMappings": [{}, {"ebs": {"volumeSize": "Ti"}}]}),
            "spec.blockDeviceMappings[1].ebs.volumeSize",
        );
        check(
            json!({"amiSelectorTerms": [{"alias": "al2@a@b"}]}),
            "spec.amiSelectorTerms[0].alias",
        );
        check(
            json!({"kubelet": {"evictionSoftGracePeriod": {"memory.available": "soon"}}}),
            "spec.kubelet.evictionSoftGracePeriod.memory.available",
        );
    }

    #[test]
    fn is_written_as_it_was_read() {
        let spec = json!({
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "*"}}, {"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"name": "nodes"}],
            "capacityReservationSelectorTerms": [
                {"ownerID": "123456789012", "instanceMatchCriteria": "open", "tags": {"a": "b"}},
            ],
            "placementGroupSelector": {"name": "near"},
            "associatePublicIPAddress": false,
            "ipPrefixCount": 2,
            "amiSelectorTerms": [{"alias": "al2023@v20240625"}],
            "amiFamily": "AL2023",
            "userData": "#!/bin/sh",
            "role": "nodes",
            "tags": {},
            "kubelet": {
                "clusterDNS": ["10.0.0.10"], "maxPods": 20, "podsPerCore": 2,
                "systemReserved": {"cpu": "1"}, "kubeReserved": {"memory": "1Gi"},
                "evictionHard": {"memory.available": "5%"}, "evictionSoft": {"memory.available": "10%"},
                "evictionSoftGracePeriod": {"memory.available": "1m30s"},
                "evictionMaxPodGracePeriod": 60, "imageGCHighThresholdPercent": 80,
                "imageGCLowThresholdPercent": 70, "cpuCFSQuota": true,
            },
            "blockDeviceMappings": [{
                "deviceName": "/dev/xvda", "rootVolume": true,
                "ebs": {
                    "deleteOnTermination": true, "encrypted": true, "iops": 3000, "kmsKeyID": "key",
                    "snapshotID": "snap-1", "throughput": 125, "volumeInitializationRate": 100,
                    "volumeSize": "1024Gi", "volumeType": "gp3",
                },
            }],
            "instanceStorePolicy": "RAID0",
            "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "efa-only"},
            ],
            "detailedMonitoring": true,
            "metadataOptions": {
                "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
                "httpPutResponseHopLimit": 1, "httpTokens": "required",
            },
            "connectionTracking": {"tcpEstablishedTimeout": 60, "udpStreamTimeout": 60, "udpTimeout": 30},
            "context": "",
            "cpuOptions": {"nestedVirtualization": "enabled"},
        });
        let status = json!({
            "subnets": [{"id": "subnet-1", "zone": "us-east-1a", "zoneID": "use1-az1"}],
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "capacityReservations": [{
                "availabilityZone": "us-east-1a", "endTime": "2026-01-01T00:00:00Z", "id": "cr-1",
                "instanceMatchCriteria": "targeted", "instanceType": "m5.large",
                "ownerID": "123456789012", "reservationType": "capacity-block",
                "interruptible": false, "state": "expiring",
            }],
            "amis": [{
                "id": "ami-1", "name": "image", "deprecated": true,
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            }],
            "instanceProfile": "profile",
        });
        let class = json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
        let written = serde_json::to_value(read(&class).unwrap()).unwrap();
        assert_eq!(written["spec"], spec);
        assert_eq!(written["status"], status);
    }
}
