//! The labels that Kerf owns, knows or refuses.

use std::collections::{BTreeMap, BTreeSet};

use crate::GROUP;

// Kubernetes' own.
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
/// Set to `karpenter` on a node that is being drained, so that load balancers leave it first.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str =
    "node.kubernetes.io/exclude-from-external-load-balancers";

// Karpenter's.
/// The pool that a NodeClaim and its Node belong to.
pub const NODE_POOL: &str = "karpenter.sh/nodepool";
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// `true` on a Node whose NodeClaim has taken charge of it.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// `true` on a Node that is ready for everything it was launched for.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// `true` on a Node: its taints are not taken from the NodeClaim when it registers.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";

// Values.
pub const CAPACITY_TYPE_SPOT: &str = "spot";
pub const CAPACITY_TYPE_ON_DEMAND: &str = "on-demand";
pub const CAPACITY_TYPE_RESERVED: &str = "reserved";
pub const ARCH_AMD64: &str = "amd64";
pub const ARCH_ARM64: &str = "arm64";

const WELL_KNOWN: [&str; 8] =
    [NODE_POOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD];

const WELL_KNOWN_RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// Names that older versions of Kubernetes gave to labels.
const ALIASES: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
];

/// How the volume drivers of the large clouds call the zone, in the node affinity of volumes and in the allowed topologies of
/// storage classes.
const ZONES_OF_VOLUME_DRIVERS: [&str; 6] = [
    "topology.ebs.csi.aws.com/zone",
    "topology.gke.io/zone",
    "topology.disk.csi.azure.com/zone",
    "topology.diskplugin.csi.alibabacloud.com/zone",
    "topology.cinder.csi.openstack.org/zone",
    "topology.com.tencent.cloud.csi.cbs/zone",
];

/// Which labels have a meaning of their own, which may not be used, and which names mean the same.
///
/// All of it grows with the provider, before anything else runs; afterwards it does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRules {
    well_known: BTreeSet<String>,
    well_known_resources: BTreeSet<String>,
    restricted_domains: BTreeSet<String>,
    aliases: BTreeMap<String, String>,
    value_aliases: BTreeMap<String, BTreeMap<String, String>>,
    reservation: Option<String>,
    values: BTreeMap<String, Vec<String>>,
}

/// A label is used that Kerf sets itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "using label {label} is not allowed as it might interfere with the internal provisioning logic; specify a well known label: [{well_known}], or a custom label that does not use a restricted domain: [{restricted_domains}]"
)]
pub struct RestrictedLabel {
    label: String,
    well_known: String,
    restricted_domains: String,
}

impl Default for LabelRules {
    /// The rules without a provider.
    fn default() -> Self {
        Self {
            well_known: WELL_KNOWN.map(str::to_owned).into(),
            well_known_resources: WELL_KNOWN_RESOURCES.map(str::to_owned).into(),
            restricted_domains: [GROUP.to_owned()].into(),
            aliases: BTreeMap::new(),
            value_aliases: BTreeMap::new(),
            reservation: None,
            values: BTreeMap::new(),
        }
        .valuing(
            CAPACITY_TYPE,
            [CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT],
        )
    }
}

impl LabelRules {
    /// Adds labels that the provider puts on its nodes.
    #[must_use]
    pub fn knowing(mut self, labels: impl IntoIterator<Item: Into<String>>) -> Self {
        self.well_known.extend(labels.into_iter().map(Into::into));
        self
    }

    /// Adds resources that the provider's instances have, such as its accelerators.
    #[must_use]
    pub fn knowing_resources(mut self, resources: impl IntoIterator<Item: Into<String>>) -> Self {
        self.well_known_resources.extend(resources.into_iter().map(Into::into));
        self
    }

    /// Adds the label by which an offering names its capacity reservation; it is well known. Without it the scheduler cannot
    /// tell reservations apart, and plans with none.
    #[must_use]
    pub fn reserving_by(mut self, label: &str) -> Self {
        self.reservation = Some(label.to_owned());
        self.knowing([label])
    }

    /// Adds a domain in which only well-known labels may be used.
    #[must_use]
    pub fn restricting(mut self, domain: &str) -> Self {
        self.restricted_domains.insert(domain.to_owned());
        self
    }

    /// Adds another name of a label, such as the one by which a volume driver of the provider calls the zone.
    #[must_use]
    pub fn calling(mut self, alias: &str, label: &str) -> Self {
        self.aliases.insert(alias.to_owned(), label.to_owned());
        self
    }

    /// Adds another name of a label's value, such as what a volume driver writes for machines without a zone.
    #[must_use]
    pub fn calling_value(mut self, label: &str, alias: &str, value: &str) -> Self {
        let values = self.value_aliases.entry(label.to_owned()).or_default();
        values.insert(alias.to_owned(), value.to_owned());
        self
    }

    /// Adds a label of which all values are known.
    #[must_use]
    pub fn valuing(mut self, label: &str, values: impl IntoIterator<Item: Into<String>>) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        self.values.insert(label.to_owned(), values);
        self
    }

    /// Adds the names that the volume drivers of the large clouds have for the zone, for callers that do not know which cloud
    /// the objects come from.
    #[must_use]
    pub fn calling_zones_as_clouds_do(self) -> Self {
        ZONES_OF_VOLUME_DRIVERS.iter().fold(self, |rules, alias| rules.calling(alias, ZONE))
    }

    /// Other names of labels, beside those that Kubernetes itself has given up, see [`normalize`].
    pub fn aliases(&self) -> &BTreeMap<String, String> {
        &self.aliases
    }

    /// Other names of values, by label.
    pub fn value_aliases(&self) -> &BTreeMap<String, BTreeMap<String, String>> {
        &self.value_aliases
    }

    /// The label that names a capacity reservation, for providers that have them.
    pub fn reservation(&self) -> Option<&str> {
        self.reservation.as_deref()
    }

    /// All values that a label can have, for the labels where they are known.
    pub fn known_values(&self, label: &str) -> Option<&[String]> {
        self.values.get(label).map(Vec::as_slice)
    }

    pub fn well_known_resources(&self) -> &BTreeSet<String> {
        &self.well_known_resources
    }

    pub fn well_known(&self) -> &BTreeSet<String> {
        &self.well_known
    }

    pub fn is_well_known(&self, label: &str) -> bool {
        self.well_known.contains(label)
    }

    /// Refuses a label that is in a restricted domain, or a subdomain of one, and not well known.
    /// The CRD's own rule is cruder: it refuses every domain whose text ends with `karpenter.sh`.
    pub fn check(&self, label: &str) -> Result<(), RestrictedLabel> {
        if self.is_well_known(label) {
            return Ok(());
        }
        let domain = domain(label);
        let within = |restricted: &String| {
            domain
                .strip_suffix(restricted.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if label != HOSTNAME && !self.restricted_domains.iter().any(within) {
            return Ok(());
        }
        let list =
            |set: &BTreeSet<String>| set.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        Err(RestrictedLabel {
            label: label.to_owned(),
            well_known: list(&self.well_known),
            restricted_domains: list(&self.restricted_domains),
        })
    }
}

/// The part of a label before its slash; nothing if it has none.
pub fn domain(label: &str) -> &str {
    label.split_once('/').map_or("", |(domain, _)| domain)
}

/// The present name of a label that may be written under an old one.
pub fn normalize(label: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == label).map_or(label, |(_, name)| name)
}

/// The label under which NodeClaims and Nodes carry the name of their NodeClass.
pub fn node_class(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_a_cloud() -> LabelRules {
        LabelRules::default().restricting("cloud.example").knowing(["cloud.example/cpu"])
    }

    #[test]
    fn restricts_the_domains_of_karpenter_and_of_the_provider() {
        let check = |label: &str, allowed: bool| {
            assert_eq!(of_a_cloud().check(label).is_ok(), allowed, "{label}");
        };
        for label in WELL_KNOWN {
            check(label, true);
        }
        check("cloud.example/cpu", true);
        check("cloud.example/size", false);
        check("sub.cloud.example/cpu", false);
        check("karpenter.sh/custom", false);
        check("sub.karpenter.sh/custom", false);
        check("notkarpenter.sh/custom", true);
        check(HOSTNAME, false);
        check("kubernetes.io/custom", true);
        check("node.kubernetes.io/custom", true);
        check("team", true);
        check("karpenter.sh", true);
        check("example.com/karpenter.sh", true);
    }

    #[test]
    fn names_the_labels_to_use_instead() {
        assert_eq!(
            LabelRules::default().check(HOSTNAME).unwrap_err().to_string(),
            "using label kubernetes.io/hostname is not allowed as it might interfere with the internal provisioning logic; \
             specify a well known label: [karpenter.sh/capacity-type karpenter.sh/nodepool kubernetes.io/arch \
             kubernetes.io/os node.kubernetes.io/instance-type node.kubernetes.io/windows-build \
             topology.kubernetes.io/region topology.kubernetes.io/zone], or a custom label that does not use a restricted \
             domain: [karpenter.sh]"
        );
    }

    #[test]
    fn replaces_old_names_by_present_ones() {
        for (alias, name) in ALIASES {
            assert_eq!(normalize(alias), name);
            assert_eq!(normalize(name), name);
        }
        assert_eq!(normalize("team"), "team");
    }

    #[test]
    fn derives_the_node_class_label_from_group_and_kind() {
        assert_eq!(node_class("cloud.example", "CLOUDNodeClass"), "cloud.example/cloudnodeclass");
    }
}
