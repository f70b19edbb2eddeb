//! The hash of an EC2NodeClass, by which NodeClaims find out that they are out of date.
//!
//! Clusters that come from Karpenter's AWS provider carry such hashes on every claim. They have to come out the same here, or
//! every node would be replaced on the day of the move. What can be compared with the instance itself is not part of it:
//! subnets, security groups, images, capacity reservations.

use kerf_api::{
    hash::HashAnnotations,
    hashstructure::{Struct, boolean, bytes, duration, int32, int64, list, map, map_of, text},
};

use crate::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, Ec2NodeClassSpec, HttpTokens,
    InstanceStorePolicy, KubeletConfiguration, MetadataOptions, NetworkInterface,
    PlacementGroupSelector, Switch, VolumeType, annotations,
};

/// The hash of an EC2NodeClass on itself and on its claims. Version 5 is that of Karpenter's release 1.14; the next one, 6,
/// hashes the kubelet's settings in another way.
pub const NODE_CLASS: HashAnnotations = HashAnnotations {
    hash: annotations::NODE_CLASS_HASH,
    version: annotations::NODE_CLASS_HASH_VERSION,
    current: "v5",
};

impl Ec2NodeClassSpec {
    /// The hash as it stands in [`annotations::NODE_CLASS_HASH`]. The cluster's CA is part of the user data of every node.
    pub fn hash(&self, ca_bundle: Option<&str>) -> String {
        // The family counts as it is used: with an alias it makes no difference whether the field is set.
        let family = bytes(self.ami_family().as_str().as_bytes());
        let ca_bundle = bytes(ca_bundle.unwrap_or_default().as_bytes());
        list([spec(self), family, ca_bundle].into_iter()).to_string()
    }
}

fn spec(spec: &Ec2NodeClassSpec) -> u64 {
    let devices = |devices: &Vec<_>| list(devices.iter().map(block_device_mapping));
    let interfaces = |interfaces: &Vec<_>| list(interfaces.iter().map(network_interface));
    Struct::named("EC2NodeClassSpec")
        .field(
            "PlacementGroupSelector",
            spec.placement_group_selector.as_ref().map(placement_group),
        )
        .field("AssociatePublicIPAddress", spec.associate_public_ip_address.map(boolean))
        .field("UserData", pointed(spec.user_data.as_deref()))
        .field("Role", spec.role.as_deref().and_then(text))
        .field("InstanceProfile", pointed(spec.instance_profile.as_deref()))
        .field("Tags", spec.tags.as_ref().map(map))
        .field("Kubelet", spec.kubelet.as_ref().map(kubelet))
        .field("BlockDeviceMappings", spec.block_device_mappings.as_ref().map(devices))
        .field(
            "InstanceStorePolicy",
            pointed(spec.instance_store_policy.map(InstanceStorePolicy::as_str)),
        )
        .field("NetworkInterfaces", spec.network_interfaces.as_ref().map(interfaces))
        .field("DetailedMonitoring", spec.detailed_monitoring.map(boolean))
        .field("MetadataOptions", spec.metadata_options.as_ref().map(metadata_options))
        .field("ConnectionTracking", spec.connection_tracking.as_ref().map(connection_tracking))
        .field("Context", pointed(spec.context.as_deref()))
        .field("CPUOptions", spec.cpu_options.as_ref().map(cpu_options))
        .hash()
}

fn placement_group(selector: &PlacementGroupSelector) -> u64 {
    Struct::named("PlacementGroupSelector")
        .field("Name", pointed(selector.name.as_deref()))
        .field("ID", pointed(selector.id.as_deref()))
        .hash()
}

fn kubelet(kubelet: &KubeletConfiguration) -> u64 {
    let addresses =
        |addresses: &Vec<String>| list(addresses.iter().map(|address| bytes(address.as_bytes())));
    let grace = kubelet.eviction_soft_grace_period.as_ref();
    Struct::named("KubeletConfiguration")
        .field("ClusterDNS", kubelet.cluster_dns.as_ref().map(addresses))
        .field("MaxPods", kubelet.max_pods.map(int32))
        .field("PodsPerCore", kubelet.pods_per_core.map(int32))
        .field("SystemReserved", kubelet.system_reserved.as_ref().map(map))
        .field("KubeReserved", kubelet.kube_reserved.as_ref().map(map))
        .field("EvictionHard", kubelet.eviction_hard.as_ref().map(map))
        .field("EvictionSoft", kubelet.eviction_soft.as_ref().map(map))
        .field("EvictionSoftGracePeriod", grace.map(|grace| map_of(grace, duration)))
        .field("EvictionMaxPodGracePeriod", kubelet.eviction_max_pod_grace_period.map(int32))
        .field("ImageGCHighThresholdPercent", kubelet.image_gc_high_threshold_percent.map(int32))
        .field("ImageGCLowThresholdPercent", kubelet.image_gc_low_threshold_percent.map(int32))
        .field("CPUCFSQuota", kubelet.cpu_cfs_quota.map(boolean))
        .hash()
}

fn block_device_mapping(mapping: &BlockDeviceMapping) -> u64 {
    Struct::named("BlockDeviceMapping")
        .field("DeviceName", pointed(mapping.device_name.as_deref()))
        .field("EBS", mapping.ebs.as_ref().map(block_device))
        .field("RootVolume", mapping.root_volume.then(|| boolean(true)))
        .hash()
}

fn block_device(device: &BlockDevice) -> u64 {
    let size = device.volume_size.map(|size| bytes(size.canonical().to_string().as_bytes()));
    Struct::named("BlockDevice")
        .field("DeleteOnTermination", device.delete_on_termination.map(boolean))
        .field("Encrypted", device.encrypted.map(boolean))
        .field("IOPS", device.iops.map(int64))
        .field("KMSKeyID", pointed(device.kms_key_id.as_deref()))
        .field("SnapshotID", pointed(device.snapshot_id.as_deref()))
        .field("Throughput", device.throughput.map(int64))
        .field("VolumeInitializationRate", device.volume_initialization_rate.map(int32))
        .field("VolumeSize", size)
        .field("VolumeType", pointed(device.volume_type.map(VolumeType::as_str)))
        .hash()
}

fn network_interface(interface: &NetworkInterface) -> u64 {
    let index = |index: i32| (index != 0).then(|| int32(index));
    Struct::named("NetworkInterface")
        .field("NetworkCardIndex", index(interface.network_card_index))
        .field("DeviceIndex", index(interface.device_index))
        .field("InterfaceType", text(interface.interface_type.as_str()))
        .hash()
}

fn metadata_options(options: &MetadataOptions) -> u64 {
    let switch = |switch: Option<Switch>| pointed(switch.map(Switch::as_str));
    Struct::named("MetadataOptions")
        .field("HTTPEndpoint", switch(options.http_endpoint))
        .field("HTTPProtocolIPv6", switch(options.http_protocol_ipv6))
        .field("HTTPPutResponseHopLimit", options.http_put_response_hop_limit.map(int64))
        .field("HTTPTokens", pointed(options.http_tokens.map(HttpTokens::as_str)))
        .hash()
}

fn connection_tracking(tracking: &ConnectionTracking) -> u64 {
    Struct::named("ConnectionTracking")
        .field("TCPEstablishedTimeout", tracking.tcp_established_timeout.map(int32))
        .field("UDPStreamTimeout", tracking.udp_stream_timeout.map(int32))
        .field("UDPTimeout", tracking.udp_timeout.map(int32))
        .hash()
}

fn cpu_options(options: &CpuOptions) -> u64 {
    let nested = options.nested_virtualization.map(Switch::as_str);
    Struct::named("CPUOptions").field("NestedVirtualization", pointed(nested)).hash()
}

/// A text behind a pointer: an empty one counts.
fn pointed(text: Option<&str>) -> Option<u64> {
    text.map(|text| bytes(text.as_bytes()))
}
