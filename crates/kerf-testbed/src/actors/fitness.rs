//! Whether a pod may be on a node, as far as labels and taints say.

use crate::api::meta;
use k8s_openapi::api::core::v1 as core;
use kerf_model::{Effect, Labels, Taint, Toleration};
use serde::Deserialize;
use serde_json::Value;

pub(super) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// What placing depends on of a node, apart from its room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
}

impl NodeFacts {
    pub(super) fn of(node: &Value) -> Self {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        Self {
            name: meta::name(node).to_owned(),
            labels: labels(meta::field(node, "labels")),
            taints: taints
                .map(|taint| {
                    let effect = Effect::parse(meta::text(taint, &["effect"]));
                    Taint::new(meta::text(taint, &["key"]), meta::text(taint, &["value"]), effect)
                })
                .collect(),
            unschedulable: node["spec"]["unschedulable"] == true,
        }
    }
}

pub(super) fn labels(value: &Value) -> Labels {
    let map = value.as_object().into_iter().flatten();
    map.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// Which nodes a pod selects.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeRules {
    selector: Labels,
    /// Any one of these must hold. `None`: no constraint.
    required: Option<Vec<Term>>,
    preferred: Vec<(i64, Term)>,
}

#[derive(Clone, Debug)]
struct Term {
    tests: Vec<Test>,
    names: Vec<Test>,
}

#[derive(Clone, Debug)]
struct Test {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl NodeRules {
    pub(super) fn of(spec: &core::PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| {
            affinity.required_during_scheduling_ignored_during_execution.as_ref()
        });
        let preferred = affinity.and_then(|affinity| {
            affinity.preferred_during_scheduling_ignored_during_execution.as_ref()
        });
        Self {
            selector: spec.node_selector.clone().unwrap_or_default(),
            required: required
                .map(|required| required.node_selector_terms.iter().map(Term::of).collect()),
            preferred: preferred
                .into_iter()
                .flatten()
                .map(|weighted| (i64::from(weighted.weight), Term::of(&weighted.preference)))
                .collect(),
        }
    }

    pub(super) fn of_spec(spec: &Value) -> Self {
        core::PodSpec::deserialize(spec).map(|spec| Self::of(&spec)).unwrap_or_default()
    }

    /// The rules of a `NodeSelector`; none where there is no such thing.
    pub(super) fn of_selector(selector: &Value) -> Self {
        let selector = core::NodeSelector::deserialize(selector).ok();
        let required = selector.map(|one| one.node_selector_terms.iter().map(Term::of).collect());
        Self { required, ..Self::default() }
    }

    /// The places that a `StorageClass` makes volumes in.
    pub(super) fn of_topologies(class: &Value) -> Self {
        let Some(topologies) = class["allowedTopologies"].as_array() else {
            return Self::default();
        };
        let term = |topology: &Value| {
            let labels = topology["matchLabelExpressions"].as_array().into_iter().flatten();
            let tests = labels.map(|label| {
                let values = label["values"].as_array().into_iter().flatten();
                Test {
                    key: meta::text(label, &["key"]).to_owned(),
                    operator: Operator::In,
                    values: values.filter_map(|v| v.as_str().map(str::to_owned)).collect(),
                }
            });
            Term { tests: tests.collect(), names: Vec::new() }
        };
        Self { required: Some(topologies.iter().map(term).collect()), ..Self::default() }
    }

    pub(super) fn allow(&self, node: &NodeFacts) -> bool {
        self.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && self.required.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(node)))
    }

    /// The weights of the preferences that hold.
    pub(super) fn preference(&self, node: &NodeFacts) -> i64 {
        let holding = self.preferred.iter().filter(|(_, term)| term.holds(node));
        holding.map(|(weight, _)| *weight).sum()
    }

    pub(super) fn prefers(&self) -> bool {
        !self.preferred.is_empty()
    }

    /// The only nodes that can match, where every term names its nodes: the pods of daemon sets do.
    pub(super) fn named_nodes(&self) -> Option<Vec<&str>> {
        let terms = self.required.as_ref().filter(|terms| !terms.is_empty())?;
        let mut names = Vec::new();
        for term in terms {
            let by_name = term.names.iter().find(|test| matches!(test.operator, Operator::In))?;
            names.extend(by_name.values.iter().map(String::as_str));
        }
        Some(names)
    }
}

impl Term {
    fn of(term: &core::NodeSelectorTerm) -> Self {
        let tests = |list: &Option<Vec<core::NodeSelectorRequirement>>| {
            list.iter().flatten().map(Test::of).collect()
        };
        Self { tests: tests(&term.match_expressions), names: tests(&term.match_fields) }
    }

    fn holds(&self, node: &NodeFacts) -> bool {
        // A term that says nothing matches nothing.
        !(self.tests.is_empty() && self.names.is_empty())
            && self.tests.iter().all(|test| test.holds(node.labels.get(&test.key)))
            && self.names.iter().all(|test| test.holds(Some(&node.name)))
    }
}

impl Test {
    fn of(requirement: &core::NodeSelectorRequirement) -> Self {
        Self {
            key: requirement.key.clone(),
            operator: match requirement.operator.as_str() {
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                "Gt" => Operator::Gt,
                "Lt" => Operator::Lt,
                _ => Operator::In,
            },
            values: requirement.values.clone().unwrap_or_default(),
        }
    }

    fn holds(&self, label: Option<&String>) -> bool {
        let number = |text: &String| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(number);
        match (self.operator, label) {
            (Operator::In, Some(value)) => self.values.contains(value),
            (Operator::NotIn, Some(value)) => !self.values.contains(value),
            (Operator::Exists, label) => label.is_some(),
            (Operator::DoesNotExist, label) => label.is_none(),
            (Operator::Gt, Some(value)) => {
                number(value).zip(bound).is_some_and(|(value, bound)| value > bound)
            }
            (Operator::Lt, Some(value)) => {
                number(value).zip(bound).is_some_and(|(value, bound)| value < bound)
            }
            (Operator::NotIn, None) => true,
            (Operator::In | Operator::Gt | Operator::Lt, None) => false,
        }
    }
}

/// Tolerations of a pod or of a template.
pub(super) fn tolerations(spec: &Value) -> Vec<Toleration> {
    let list = spec["tolerations"].as_array().into_iter().flatten();
    list.filter_map(|toleration| core::Toleration::deserialize(toleration).ok())
        .map(|toleration| Toleration::from(&toleration))
        .collect()
}

/// A taint that keeps the pod away from the node.
pub(super) fn keeps_away<'a>(node: &'a NodeFacts, tolerations: &[Toleration]) -> Option<&'a Taint> {
    let hard = node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
    hard.into_iter().find(|taint| !tolerated(taint, tolerations))
}

pub(super) fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| toleration.tolerates(taint))
}
