//! Label keys with a meaning, and the rules that a cloud provider may extend.

use std::collections::{BTreeMap, BTreeSet};

use kerf_api::{NodeSelectorRequirement, labels::LabelRules};

use crate::requirement::{Operator, Requirement, UnknownOperator};
use crate::requirements::Requirements;

/// Labels of a Kubernetes object.
pub type Labels = BTreeMap<String, String>;

pub use kerf_api::labels::{
    ARCH, CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND as ON_DEMAND, CAPACITY_TYPE_RESERVED as RESERVED,
    CAPACITY_TYPE_SPOT as SPOT, HOSTNAME, INITIALIZED, INSTANCE_TYPE, NODE_POOL, OS, REGION,
    REGISTERED, WINDOWS_BUILD, ZONE,
};

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
        Self::from(&LabelRules::default())
    }
}

impl KnownLabels {
    pub fn is_well_known(&self, key: &str) -> bool {
        self.well_known.contains(key)
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

impl KnownLabels {
    /// What a NodePool or a NodeClaim asks for, in normal form.
    pub fn requirements(&self, list: &[NodeSelectorRequirement]) -> Requirements {
        let read = |one: &NodeSelectorRequirement| {
            self.requirement(&one.key, one.operator, &one.values).with_min_values(one.min_values)
        };
        Requirements::new(list.iter().map(read))
    }

    /// What a pod or a volume asks for, where the operator is still a text.
    pub fn read(
        &self,
        asked: &k8s_openapi::api::core::v1::NodeSelectorRequirement,
    ) -> Result<Requirement, UnknownOperator> {
        Ok(self.requirement(&asked.key, asked.operator.parse()?, asked.values.iter().flatten()))
    }
}

impl From<&LabelRules> for KnownLabels {
    fn from(rules: &LabelRules) -> Self {
        Self {
            well_known: rules.well_known().clone(),
            aliases: rules.aliases().clone(),
            value_aliases: rules.value_aliases().clone(),
            reservation_id: rules.reservation().map(str::to_owned),
        }
    }
}

/// Labels as tests write them: `a=1,b=2`.
#[cfg(test)]
pub(crate) fn labels_of(text: &str) -> Labels {
    text.split_terminator(',')
        .map(|entry| entry.split_once('=').unwrap())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn everything_that_a_provider_says_of_its_labels_is_known_to_planning() {
        const RESERVATION: &str = "cloud.example/reservation";
        let of = |rules: LabelRules| KnownLabels::from(&rules);
        let rules = LabelRules::default;
        assert!(of(rules().knowing(["cloud.example/cpu"])).is_well_known("cloud.example/cpu"));
        let reserving = of(rules().reserving_by(RESERVATION));
        assert_eq!(reserving.reservation_id.as_deref(), Some(RESERVATION));
        assert!(reserving.is_well_known(RESERVATION));
        let known = of(rules().calling("csi.example.com/zone", ZONE).calling_value(ZONE, "", "0"));
        let zone = known.requirement("csi.example.com/zone", Operator::In, ["", "a"]);
        assert_eq!(zone.to_string(), "topology.kubernetes.io/zone In [0 a]");
        assert_eq!(known.normalize_value(ARCH, ""), "", "values of other labels mean themselves");
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
