//! Label keys with a meaning, and the rules that a cloud provider may extend.

use std::collections::{BTreeMap, BTreeSet};

use kerf_api::labels::LabelRules;

use crate::requirement::{Operator, Requirement};

/// Labels of a Kubernetes object.
pub type Labels = BTreeMap<String, String>;

pub const NODE_POOL: &str = "karpenter.sh/nodepool";
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
pub const REGISTERED: &str = "karpenter.sh/registered";
pub const INITIALIZED: &str = "karpenter.sh/initialized";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION: &str = "topology.kubernetes.io/region";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";

pub const SPOT: &str = "spot";
pub const ON_DEMAND: &str = "on-demand";
pub const RESERVED: &str = "reserved";

/// Which labels every node of a provider may be assumed to carry, and which names mean the same.
///
/// A value that is handed around, never a global: two providers in one process, or two tests side by
/// side, do not see each other's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownLabels {
    /// Keys that a node gets without its pool naming them.
    pub well_known: BTreeSet<String>,
    /// Other names for a key, beyond the ones that Kubernetes itself renamed.
    pub aliases: BTreeMap<String, String>,
    /// Per key, values that mean another value (a volume driver's empty zone, for instance).
    pub value_aliases: BTreeMap<String, BTreeMap<String, String>>,
    /// The label that names a capacity reservation, for providers that have them.
    pub reservation_id: Option<String>,
}

impl Default for KnownLabels {
    /// What holds for every provider.
    fn default() -> Self {
        let well_known =
            [NODE_POOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD];
        Self {
            well_known: well_known.into_iter().map(str::to_owned).collect(),
            aliases: BTreeMap::new(),
            value_aliases: BTreeMap::new(),
            reservation_id: None,
        }
    }
}

impl KnownLabels {
    pub fn is_well_known(&self, key: &str) -> bool {
        self.well_known.contains(key)
    }

    /// Restricted keys may not be asked for by users: the `karpenter.sh` domain, and the hostname,
    /// which nothing can know before the node exists.
    pub fn is_restricted(&self, key: &str) -> bool {
        if self.is_well_known(key) {
            return false;
        }
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        domain == "karpenter.sh" || domain.ends_with(".karpenter.sh") || key == HOSTNAME
    }

    /// The key's present-day name.
    pub fn normalize_key<'a>(&'a self, key: &'a str) -> &'a str {
        let renamed = kerf_api::labels::normalize(key);
        self.aliases.get(renamed).map_or(renamed, String::as_str)
    }

    pub fn normalize_value<'a>(&'a self, normalized_key: &str, value: &'a str) -> &'a str {
        self.value_aliases
            .get(normalized_key)
            .and_then(|aliases| aliases.get(value))
            .map_or(value, String::as_str)
    }

    /// A requirement in normal form: key and values by their present-day names.
    pub fn requirement<V: AsRef<str>>(
        &self,
        key: &str,
        operator: Operator,
        values: impl IntoIterator<Item = V>,
    ) -> Requirement {
        let key = self.normalize_key(key);
        let values = values.into_iter();
        Requirement::new(
            key,
            operator,
            values.map(|value| self.normalize_value(key, value.as_ref()).to_owned()),
        )
    }
}

impl From<&LabelRules> for KnownLabels {
    fn from(rules: &LabelRules) -> Self {
        let (well_known, aliases) = (rules.well_known().clone(), rules.aliases().clone());
        Self { well_known, aliases, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restricts_the_own_domain_and_the_hostname_only() {
        let labels = KnownLabels::default();
        for (key, restricted) in [
            (NODE_POOL, false),
            (CAPACITY_TYPE, false),
            ("karpenter.sh/anything", true),
            ("sub.karpenter.sh/anything", true),
            ("notkarpenter.sh/anything", false),
            (HOSTNAME, true),
            (ZONE, false),
            ("kubernetes.io/anything", false),
            ("plain", false),
        ] {
            assert_eq!(labels.is_restricted(key), restricted, "{key}");
        }
    }

    #[test]
    fn normalizes_old_names_and_provider_aliases() {
        let labels = KnownLabels {
            aliases: [("csi.example.com/zone".to_owned(), ZONE.to_owned())].into(),
            value_aliases: [(ZONE.to_owned(), [(String::new(), "0".to_owned())].into())].into(),
            ..KnownLabels::default()
        };
        assert_eq!(labels.normalize_key("failure-domain.beta.kubernetes.io/zone"), ZONE);
        assert_eq!(labels.normalize_key("beta.kubernetes.io/instance-type"), INSTANCE_TYPE);
        let zone = labels.requirement("csi.example.com/zone", Operator::In, ["", "a"]);
        assert_eq!(zone.to_string(), "topology.kubernetes.io/zone In [0 a]");
    }

    #[test]
    fn the_rules_of_a_provider_say_which_names_mean_the_same() {
        let own = LabelRules::default().calling("csi.example.com/zone", ZONE);
        for (rules, key, expected) in [
            (own.clone(), "csi.example.com/zone", ZONE),
            (own.clone(), "failure-domain.beta.kubernetes.io/zone", ZONE),
            (own, "topology.gke.io/zone", "topology.gke.io/zone"),
            (LabelRules::default().calling_zones_as_clouds_do(), "topology.gke.io/zone", ZONE),
        ] {
            assert_eq!(KnownLabels::from(&rules).normalize_key(key), expected, "{key}");
        }
    }
}
