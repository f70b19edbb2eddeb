//! How many pods a node takes.

use kerf_aws_api::AmiFamily;

use super::Settings;
use super::shape::ClassShape;
use crate::catalogue::TypeFacts;

/// Pods of a family that does not count addresses.
const DEFAULT_PODS: u32 = 110;
/// Addresses in a prefix.
const PREFIX: u32 = 16;

/// How the network plugin of AWS hands out addresses, as the environment of its DaemonSet `aws-node` says. Karpenter does not
/// look at it and counts single addresses on all interfaces, which is the default here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CniSettings {
    /// An interface gets blocks of 16 addresses where it would get single ones.
    pub prefix_delegation: bool,
    /// Pods are in other subnets than nodes, so that the primary interface has no addresses for them.
    pub custom_networking: bool,
}

impl CniSettings {
    pub fn from_env<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut settings = Self::default();
        for (name, value) in variables {
            let setting = match name {
                "ENABLE_PREFIX_DELEGATION" => &mut settings.prefix_delegation,
                "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG" => &mut settings.custom_networking,
                _ => continue,
            };
            *setting = value == "true";
        }
        settings
    }
}

pub(super) fn pods(facts: &TypeFacts, shape: &ClassShape, settings: &Settings) -> u32 {
    let pods = match shape.max_pods {
        Some(pods) => pods,
        None if shape.family.is_windows() => DEFAULT_PODS,
        None => addressable(facts, shape, settings),
    };
    let per_core = shape.pods_per_core.saturating_mul(facts.vcpus);
    // Bottlerocket has no such setting.
    if per_core > 0 && shape.family != AmiFamily::Bottlerocket { pods.min(per_core) } else { pods }
}

fn addressable(facts: &TypeFacts, shape: &ClassShape, settings: &Settings) -> u32 {
    // Operators that cannot read the plugin's settings say the same by one reserved interface.
    let reserved = settings.reserved_enis.max(u32::from(settings.cni.custom_networking));
    // Only Nitro machines take prefixes; bare metal ones are Nitro without a hypervisor.
    if settings.cni.prefix_delegation && facts.hypervisor != "xen" {
        // What AWS recommends: 110 pods for small machines and 250 for large ones.
        let ceiling = if facts.vcpus > 30 { 250 } else { 110 };
        return eni_limited(facts, shape, reserved, PREFIX).min(ceiling);
    }
    eni_limited(facts, shape, reserved, 1)
}

/// Pods as AWS's images count them: one for each address of an interface but its first, and two on the host's network.
pub(super) fn eni_limited(facts: &TypeFacts, shape: &ClassShape, reserved: u32, each: u32) -> u32 {
    let taken = reserved.saturating_add(shape.efa_only(Some(0)));
    match facts.default_interfaces().saturating_sub(taken) {
        0 => 0,
        interfaces => interfaces * facts.addresses_per_interface.saturating_sub(1) * each + 2,
    }
}
