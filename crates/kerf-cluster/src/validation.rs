//! Pods for which no node is launched: their spec is invalid, or they wait for a volume.

use std::fmt;

use crate::Key;
use k8s_openapi::api::core::v1 as core;
use kerf_api::{
    labels::LabelRules,
    validation::{InvalidRequirement, RequirementParts, validate_requirement},
};
use kerf_model::{
    Constraints, Operator, Pod, Requirements, Volumes,
    labels::NODE_POOL,
    pod::{PodError, heaviest},
    volume::VolumeError,
};

/// A pod that is no part of a plan, and everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPod {
    pub pod: Key,
    pub problems: Vec<PodProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodProblem {
    #[error(transparent)]
    Unreadable(#[from] PodError),
    /// It is meant for nodes that belong to no pool.
    #[error("it asks for nodes without the label {NODE_POOL}, and every node of a pool has it")]
    ForbidsPools,
    #[error("its node selector: {0}")]
    NodeSelector(InvalidRequirement),
    #[error("its node affinity: {0}")]
    NodeAffinity(InvalidRequirement),
    #[error(
        "its node affinity has matchFields, and the fields of a node are unknown before the node exists"
    )]
    MatchFields,
    #[error(transparent)]
    Volumes(#[from] VolumeError),
}

impl PodProblem {
    /// How it is called in output that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "Unreadable",
            Self::ForbidsPools => "ForbidsPools",
            Self::NodeSelector(_) => "NodeSelector",
            Self::NodeAffinity(_) => "NodeAffinity",
            Self::MatchFields => "MatchFields",
            Self::Volumes(_) => "Volumes",
        }
    }
}

impl InvalidPod {
    /// Whether the only reason is that the pod wants no node of a pool: that needs no event.
    pub fn wants_no_pool(&self) -> bool {
        self.problems == [PodProblem::ForbidsPools]
    }
}

impl fmt::Display for InvalidPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<_> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&problems.join("; "))
    }
}

/// Checks a pod without a node. `view` is the same pod as planning sees it.
pub(crate) fn validate_pod(
    pod: &crate::Pod,
    view: Result<&Pod, PodError>,
    volumes: &Volumes,
    rules: &LabelRules,
) -> Result<(), InvalidPod> {
    let mut problems = Vec::new();
    if view.as_ref().is_ok_and(|view| forbids_pools(&view.constraints)) {
        problems.push(PodProblem::ForbidsPools);
    }
    check_selector(pod.spec(), rules, &mut problems);
    check_affinity(pod.spec(), rules, &mut problems);
    match view {
        Ok(view) => problems.extend(volumes.problems(view).into_iter().map(PodProblem::from)),
        // What is wrong with an operator has been said.
        Err(PodError::NodeAffinity { .. }) if !problems.is_empty() => {}
        Err(error) => problems.push(error.into()),
    }
    if problems.is_empty() { Ok(()) } else { Err(InvalidPod { pod: pod.key(), problems }) }
}

/// A preference counts like a requirement here: who prefers other nodes is not given one of ours. Karpenter also takes
/// a preference that contradicts the selector for this, and the first of several alternatives for all of them.
fn forbids_pools(constraints: &Constraints) -> bool {
    let forbids = |term: &Requirements| {
        term.get(NODE_POOL).is_some_and(|pools| pools.operator() == Operator::DoesNotExist)
    };
    let (required, preferred) = (&constraints.required_terms, &constraints.preferred_terms);
    let preferred = heaviest(preferred).map(|at| &preferred[at].term);
    (!required.is_empty() && required.iter().all(forbids)) || preferred.is_some_and(forbids)
}

fn check_selector(spec: &core::PodSpec, rules: &LabelRules, problems: &mut Vec<PodProblem>) {
    for (key, value) in spec.node_selector.iter().flatten() {
        let values = std::slice::from_ref(value);
        let entry = RequirementParts { key, operator: "In", values, min_values: None };
        problems.extend(validate_requirement(entry, rules).err().map(PodProblem::NodeSelector));
    }
}

/// Preferences are left alone: they are wishes, and give way.
fn check_affinity(spec: &core::PodSpec, rules: &LabelRules, problems: &mut Vec<PodProblem>) {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity
        .and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    for term in required.into_iter().flat_map(|required| &required.node_selector_terms) {
        if term.match_fields.is_some() {
            problems.push(PodProblem::MatchFields);
        }
        for expression in term.match_expressions.iter().flatten() {
            let written = RequirementParts {
                key: &expression.key,
                operator: &expression.operator,
                values: expression.values.as_deref().unwrap_or_default(),
                min_values: None,
            };
            let checked = validate_requirement(written, rules);
            problems.extend(checked.err().map(PodProblem::NodeAffinity));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::KnownLabels;
    use serde_json::{Value, json};

    /// The names of what is wrong with a pod that has this `spec`.
    fn problems(spec: &Value) -> Vec<&'static str> {
        let mut written = json!({"containers": []});
        for (field, value) in spec.as_object().unwrap() {
            written[field] = value.clone();
        }
        let metadata = json!({"name": "p", "namespace": "ns"});
        let pod: core::Pod =
            serde_json::from_value(json!({"metadata": metadata, "spec": written})).unwrap();
        let rules = LabelRules::default().restricting("cloud.test");
        let view = Pod::from_api(&pod, &KnownLabels::default());
        let view = view.as_ref().map_err(Clone::clone);
        match validate_pod(&pod.clone().into(), view, &Volumes::default(), &rules) {
            Ok(()) => Vec::new(),
            Err(invalid) => {
                assert_eq!(invalid.pod, Key::namespaced("ns", "p"));
                invalid.problems.iter().map(PodProblem::name).collect()
            }
        }
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": operator, "values": values})
    }

    fn requires(terms: &[Value]) -> Value {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    }

    fn prefers(terms: &[(i32, Value)]) -> Value {
        let terms: Vec<_> = terms
            .iter()
            .map(|(weight, one)| json!({"weight": weight, "preference": {"matchExpressions": [one]}}))
            .collect();
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
    }

    #[test]
    fn node_selectors_name_labels_that_nodes_can_have() {
        for (key, value, expect) in [
            ("topology.kubernetes.io/zone", "zone-1", None),
            ("failure-domain.beta.kubernetes.io/zone", "zone-1", None),
            ("karpenter.sh/nodepool", "default", None),
            ("karpenter.sh/capacity-type", "spot", None),
            ("example.com/team", "a", None),
            ("kubernetes.io/anything", "a", None),
            ("plain", "", None),
            // The name of a node that does not exist yet cannot be chosen.
            ("kubernetes.io/hostname", "n", Some("NodeSelector")),
            ("karpenter.sh/anything", "a", Some("NodeSelector")),
            ("sub.karpenter.sh/anything", "a", Some("NodeSelector")),
            ("cloud.test/size", "a", Some("NodeSelector")),
            ("karpenter.sh/capacity-type", "cheap", Some("NodeSelector")),
            ("not a key", "a", Some("NodeSelector")),
            ("example.com/team", "not a value", Some("NodeSelector")),
        ] {
            let spec = json!({"nodeSelector": {key: value}});
            assert_eq!(problems(&spec), Vec::from_iter(expect), "{key}={value}");
        }
    }

    #[test]
    fn node_affinity_is_checked_term_by_term() {
        let wrong = Some("NodeAffinity");
        for (key, operator, values, expect) in [
            ("kubernetes.io/arch", "In", &["arm64"][..], None),
            ("kubernetes.io/arch", "NotIn", &["arm64"], None),
            ("example.com/team", "Exists", &[], None),
            ("example.com/team", "DoesNotExist", &[], None),
            ("example.com/size", "Gt", &["3"], None),
            ("example.com/size", "Lt", &["0"], None),
            ("example.com/size", "Gte", &["3"], None),
            ("example.com/size", "Lte", &["3"], None),
            ("karpenter.sh/capacity-type", "In", &["cheap", "spot"], None),
            ("karpenter.sh/capacity-type", "In", &["cheap"], wrong),
            ("karpenter.sh/capacity-type", "NotIn", &["cheap"], None),
            ("kubernetes.io/hostname", "Exists", &[], wrong),
            ("karpenter.sh/initialized", "In", &["true"], wrong),
            ("example.com/team", "In", &[], wrong),
            ("example.com/team", "Like", &["a"], wrong),
            ("example.com/size", "Gt", &["3", "4"], wrong),
            ("example.com/size", "Gt", &["-1"], wrong),
            ("example.com/size", "Lt", &["small"], wrong),
            ("example.com/size", "Gte", &[], wrong),
            ("a/b/c", "Exists", &[], wrong),
        ] {
            let case = expression(key, operator, values);
            let spec = requires(&[json!({"matchExpressions": [case]})]);
            assert_eq!(problems(&spec), Vec::from_iter(expect), "{case}");
            let good =
                json!({"matchExpressions": [expression("kubernetes.io/os", "In", &["linux"])]});
            let spec = requires(&[good, json!({"matchExpressions": [case]})]);
            assert_eq!(problems(&spec), Vec::from_iter(expect), "second term: {case}");
        }
    }

    #[test]
    fn preferences_are_not_checked() {
        let restricted = expression("kubernetes.io/hostname", "In", &["n"]);
        assert!(problems(&prefers(&[(1, restricted)])).is_empty());
    }

    #[test]
    fn fields_of_nodes_cannot_be_matched() {
        let fields = [expression("metadata.name", "In", &["n"])];
        assert_eq!(problems(&requires(&[json!({"matchFields": fields})])), ["MatchFields"]);
    }

    #[test]
    fn pods_for_other_nodes_are_left_alone() {
        let none = || expression("karpenter.sh/nodepool", "DoesNotExist", &[]);
        let a = || expression("karpenter.sh/nodepool", "In", &["a"]);
        let term = |expression: Value| json!({"matchExpressions": [expression]});
        for (spec, forbids) in [
            (requires(&[term(none())]), true),
            (requires(&[term(none()), term(none())]), true),
            (requires(&[term(none()), term(a())]), false),
            (prefers(&[(1, none())]), true),
            (prefers(&[(1, none()), (2, a())]), false),
            (prefers(&[(2, none()), (1, a())]), true),
            (json!({"nodeSelector": {"karpenter.sh/nodepool": "b"}}), false),
        ] {
            let expect: &[_] = if forbids { &["ForbidsPools"] } else { &[] };
            assert_eq!(problems(&spec), expect, "{spec}");
        }
        // A wish that cannot come true beside the selector is dropped like any other.
        let mut torn = prefers(&[(1, a())]);
        torn["nodeSelector"] = json!({"karpenter.sh/nodepool": "b"});
        assert!(problems(&torn).is_empty());
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let mut spec = requires(&[json!({
            "matchFields": [expression("metadata.name", "In", &["n"])],
            "matchExpressions": [expression("karpenter.sh/x", "Like", &[])],
        })]);
        spec["nodeSelector"] = json!({"kubernetes.io/hostname": "n", "karpenter.sh/y": "z"});
        spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        let selector = ["NodeSelector", "NodeSelector", "MatchFields", "NodeAffinity"];
        assert_eq!(problems(&spec), selector);
        spec["affinity"] = Value::Null;
        assert_eq!(problems(&spec), ["NodeSelector", "NodeSelector", "Volumes"]);
        let unreadable =
            json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]});
        assert_eq!(problems(&unreadable), ["Unreadable"]);
    }
}
