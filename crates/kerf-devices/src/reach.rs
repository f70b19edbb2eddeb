//! From which nodes a device can be used.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

/// From which nodes a device, or all devices of a slice, can be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    Node(Arc<str>),
    Nodes(NodeSelector),
    AllNodes,
}

impl Reach {
    /// Whether a node with this name and these labels is in reach.
    pub fn includes(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Node(node) => **node == *name,
            Self::Nodes(selector) => selector.matches(name, labels),
            Self::AllNodes => true,
        }
    }
}

/// Alternatives; a node needs to match one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSelector {
    pub terms: Vec<Term>,
}

/// All of it has to match. A term that asks for nothing matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term {
    pub labels: Vec<Requirement>,
    /// Fields of the node. Kubernetes knows one, `metadata.name`.
    pub fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    pub key: Arc<str>,
    pub condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    In(Vec<Arc<str>>),
    NotIn(Vec<Arc<str>>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

/// Why a node selector cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedSelector {
    #[error("its operator {operator} for {key} is not known")]
    UnknownOperator { key: String, operator: String },
    #[error("{key} is compared with {values:?}, which is not one number")]
    NotANumber { key: String, values: Vec<String> },
}

/// The field that nodes are selected by.
pub const NAME_FIELD: &str = "metadata.name";

impl NodeSelector {
    /// The selector of one node, as kube-scheduler writes it into allocations.
    pub fn node(name: &Arc<str>) -> Self {
        let requirement =
            Requirement { key: NAME_FIELD.into(), condition: Condition::In(vec![name.clone()]) };
        Self { terms: vec![Term { labels: Vec::new(), fields: vec![requirement] }] }
    }

    pub fn matches(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.terms.iter().any(|term| {
            let asks = !term.labels.is_empty() || !term.fields.is_empty();
            let field = |key: &str| (key == NAME_FIELD).then_some(name);
            let label = |key: &str| labels.get(key).map(String::as_str);
            asks && term.fields.iter().all(|one| one.condition.holds(field(&one.key)))
                && term.labels.iter().all(|one| one.condition.holds(label(&one.key)))
        })
    }
}

impl Condition {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| **one == *value)),
            Self::NotIn(values) => {
                value.is_none_or(|value| values.iter().all(|one| **one != *value))
            }
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::GreaterThan(bound) => number().is_some_and(|value| value > *bound),
            Self::LessThan(bound) => number().is_some_and(|value| value < *bound),
        }
    }
}

impl TryFrom<&core::NodeSelector> for NodeSelector {
    type Error = MalformedSelector;

    fn try_from(api: &core::NodeSelector) -> Result<Self, MalformedSelector> {
        let read = |requirements: &Option<Vec<core::NodeSelectorRequirement>>| {
            let requirements = requirements.iter().flatten().map(Requirement::try_from);
            requirements.collect::<Result<Vec<_>, _>>()
        };
        let terms = api.node_selector_terms.iter().map(|term| {
            Ok(Term { labels: read(&term.match_expressions)?, fields: read(&term.match_fields)? })
        });
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }
}

impl TryFrom<&core::NodeSelectorRequirement> for Requirement {
    type Error = MalformedSelector;

    fn try_from(api: &core::NodeSelectorRequirement) -> Result<Self, MalformedSelector> {
        let values =
            || api.values.iter().flatten().map(|value| Arc::from(value.as_str())).collect();
        let number = || match api.values.as_deref() {
            Some([one]) => one.parse().ok(),
            _ => None,
        };
        let not_a_number = || MalformedSelector::NotANumber {
            key: api.key.clone(),
            values: api.values.clone().unwrap_or_default(),
        };
        let condition = match api.operator.as_str() {
            "In" => Condition::In(values()),
            "NotIn" => Condition::NotIn(values()),
            "Exists" => Condition::Exists,
            "DoesNotExist" => Condition::DoesNotExist,
            "Gt" => Condition::GreaterThan(number().ok_or_else(not_a_number)?),
            "Lt" => Condition::LessThan(number().ok_or_else(not_a_number)?),
            operator => {
                return Err(MalformedSelector::UnknownOperator {
                    key: api.key.clone(),
                    operator: operator.to_owned(),
                });
            }
        };
        Ok(Self { key: api.key.as_str().into(), condition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> core::NodeSelectorRequirement {
        core::NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: Some(values.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn selects_nodes_as_kubernetes_does() {
        let labels = BTreeMap::from([
            ("zone".to_owned(), "a".to_owned()),
            ("gpus".to_owned(), "4".to_owned()),
        ]);
        let cases = [
            (requirement("zone", "In", &["a", "b"]), true),
            (requirement("zone", "In", &["b"]), false),
            (requirement("rack", "In", &["a"]), false),
            (requirement("zone", "NotIn", &["a"]), false),
            (requirement("rack", "NotIn", &["a"]), true),
            (requirement("zone", "Exists", &[]), true),
            (requirement("rack", "Exists", &[]), false),
            (requirement("rack", "DoesNotExist", &[]), true),
            (requirement("zone", "DoesNotExist", &[]), false),
            (requirement("gpus", "Gt", &["3"]), true),
            (requirement("gpus", "Gt", &["4"]), false),
            (requirement("gpus", "Lt", &["5"]), true),
            (requirement("zone", "Lt", &["5"]), false),
        ];
        for (one, expect) in cases {
            let term = core::NodeSelectorTerm {
                match_expressions: Some(vec![one.clone()]),
                match_fields: None,
            };
            let api = core::NodeSelector { node_selector_terms: vec![term] };
            let selector = NodeSelector::try_from(&api).unwrap();
            assert_eq!(selector.matches("node", &labels), expect, "{one:?}");
        }
    }

    #[test]
    fn alternatives_need_one_match_and_an_empty_term_has_none() {
        let named = NodeSelector::node(&"node".into());
        assert!(named.matches("node", &BTreeMap::new()));
        assert!(!named.matches("other", &BTreeMap::new()));
        let mut either = NodeSelector { terms: vec![Term::default()] };
        assert!(!either.matches("node", &BTreeMap::new()));
        either.terms.extend(named.terms);
        assert!(either.matches("node", &BTreeMap::new()));
        assert!(!NodeSelector::default().matches("node", &BTreeMap::new()));
    }

    #[test]
    fn names_what_it_cannot_read() {
        let unknown = Requirement::try_from(&requirement("zone", "Near", &["a"]));
        assert!(matches!(unknown, Err(MalformedSelector::UnknownOperator { .. })));
        let words = Requirement::try_from(&requirement("zone", "Gt", &["a"]));
        assert!(matches!(words, Err(MalformedSelector::NotANumber { .. })));
    }
}
