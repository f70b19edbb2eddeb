//! The labels of AWS.

use kerf_api::labels::{INSTANCE_TYPE, LabelRules, ZONE};

use crate::{GROUP, resources};

/// The id of a zone, which is the same in all accounts; its name is not.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// How the EBS volume driver calls the zone.
pub const ZONE_OF_EBS_DRIVER: &str = "topology.ebs.csi.aws.com/zone";

/// How Karpenter's proposal for static capacity calls the instance type. Karpenter itself does not know the label.
pub const INSTANCE_TYPE_OF_AWS: &str = "karpenter.k8s.aws/instance-type";

/// Carries the name of the EC2NodeClass on claims and nodes.
pub const NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";

pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str =
    "karpenter.k8s.aws/capacity-reservation-interruptible";
pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";

pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str =
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
pub const INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: &str =
    "karpenter.k8s.aws/instance-encryption-in-transit-supported";
pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str =
    "karpenter.k8s.aws/instance-accelerator-manufacturer";
pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";

// Values.
pub const TENANCY_DEFAULT: &str = "default";
pub const TENANCY_DEDICATED: &str = "dedicated";

/// Those of the domain that requirements of pools and claims and labels of templates may use.
pub const IN_REQUIREMENTS: [&str; 29] = [
    INSTANCE_TYPE_OF_AWS,
    INSTANCE_TENANCY,
    CAPACITY_RESERVATION_TYPE,
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    NODE_CLASS,
    INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
    INSTANCE_CATEGORY,
    INSTANCE_HYPERVISOR,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    INSTANCE_LOCAL_NVME,
    INSTANCE_SIZE,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
    INSTANCE_MEMORY,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_GPU_NAME,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MEMORY,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_COUNT,
    INSTANCE_CAPABILITY_FLEX,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
];

/// The rules for labels with those of AWS in them.
pub fn label_rules() -> LabelRules {
    // Karpenter does not count the label of the class among the well-known ones.
    let of_instances = IN_REQUIREMENTS.into_iter().filter(|label| *label != NODE_CLASS);
    LabelRules::default()
        .restricting(GROUP)
        .knowing(of_instances)
        .knowing([ZONE_ID])
        .reserving_by(CAPACITY_RESERVATION_ID)
        .calling(ZONE_OF_EBS_DRIVER, ZONE)
        .calling(INSTANCE_TYPE_OF_AWS, INSTANCE_TYPE)
        .valuing(INSTANCE_TENANCY, [TENANCY_DEDICATED, TENANCY_DEFAULT])
        .knowing_resources(resources::WELL_KNOWN)
}

#[cfg(test)]
mod tests {
    use kerf_api::labels::node_class;

    use super::*;
    use crate::KIND;

    #[test]
    fn only_the_labels_of_instances_are_allowed_in_the_domain() {
        let rules = label_rules();
        for (label, allowed) in [
            (INSTANCE_CATEGORY, true),
            (INSTANCE_TYPE_OF_AWS, true),
            (CAPACITY_RESERVATION_ID, true),
            (ZONE_ID, true),
            ("topology.k8s.aws/network-node-layer-1", true),
            (NODE_CLASS, false),
            ("karpenter.k8s.aws/instance-colour", false),
            ("sub.karpenter.k8s.aws/instance-cpu", false),
        ] {
            assert_eq!(rules.check(label).is_ok(), allowed, "{label}");
        }
        assert_eq!(rules.reservation(), Some(CAPACITY_RESERVATION_ID));
        assert_eq!(rules.aliases()[ZONE_OF_EBS_DRIVER], ZONE);
        assert_eq!(rules.aliases()[INSTANCE_TYPE_OF_AWS], INSTANCE_TYPE);
        assert!(rules.well_known_resources().contains(resources::NEURON_CORE));
    }

    #[test]
    fn the_label_of_the_class_is_the_one_that_the_core_writes() {
        assert_eq!(node_class(GROUP, KIND), NODE_CLASS);
    }
}
