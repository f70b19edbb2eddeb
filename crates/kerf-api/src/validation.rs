//! The checks on a NodePool that its CRD does not make.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::api::core::v1::Taint;

use crate::{
    labels::{self, LabelRules, RestrictedLabel},
    names::{label_value_problems, qualified_name_problems},
    nodepool::{NodeClaimTemplate, NodePool},
    requirement::{NodeSelectorRequirement, Operator},
    taints,
};

/// Everything that is wrong with a NodePool.
///
/// It prints as the message of the `ValidationSucceeded` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNodePool(pub Vec<NodePoolProblem>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodePoolProblem {
    #[error("invalid key name {0:?} in labels, restricted")]
    PoolLabel(String),
    #[error("invalid key name {key:?} in labels, {problem:?}")]
    LabelKey { key: String, problem: String },
    #[error("invalid value: {value} for label[{key}], {problem}")]
    LabelValue { key: String, value: String, problem: String },
    #[error("invalid key name {key:?} in labels, {problem}")]
    LabelRestricted { key: String, problem: RestrictedLabel },
    #[error("invalid value: {problem} in {field}")]
    TaintName { field: &'static str, problem: String },
    #[error("invalid value: {effect:?} in {field}")]
    TaintEffect { field: &'static str, effect: String },
    #[error("duplicate taint Key/Effect pair {key}={effect}")]
    TaintTwice { key: String, effect: String },
    #[error("invalid value: {0} in requirements, restricted")]
    Requirement(InvalidRequirement),
    #[error("invalid key: {0:?} in requirements, restricted")]
    PoolRequirement(String),
}

/// Everything that is wrong with one requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRequirement(pub Vec<RequirementProblem>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementProblem {
    #[error(
        "key {key} has an unsupported operator {operator} not in [DoesNotExist Exists Gt Gte In Lt Lte NotIn]"
    )]
    Operator { key: String, operator: String },
    #[error(transparent)]
    Restricted(RestrictedLabel),
    #[error(
        "no valid values found in [{values}] for {key}, expected one of: [{known}], got: [{values}]"
    )]
    NoKnownValue { key: String, values: String, known: String },
    #[error(
        "not enough valid values found in [{values}] for {key}, expected at least {min_values} valid values from: [{known}], got: {valid}"
    )]
    FewKnownValues { key: String, values: String, known: String, min_values: u32, valid: usize },
    #[error("key {key} is not a qualified name, {problem}")]
    Key { key: String, problem: String },
    #[error("invalid value {value} for key {key}, {problem}")]
    Value { key: String, value: String, problem: String },
    #[error("key {0} with operator In must have a value defined")]
    NoValue(String),
    #[error(
        "key {0} with operator In must have at least minimum number of values defined in 'values' field"
    )]
    FewValues(String),
    #[error("key {key} with operator {operator} must have a single positive integer value")]
    Bound { key: String, operator: Operator },
}

/// Checks a NodePool and reports all that is wrong with it at once.
pub fn validate_node_pool(pool: &NodePool, rules: &LabelRules) -> Result<(), InvalidNodePool> {
    let template = &pool.spec.template;
    let mut problems = Vec::new();
    check_labels(template, rules, &mut problems);
    check_taints(template, &mut problems);
    for requirement in &template.spec.requirements {
        let checked = validate_requirement(requirement.into(), rules);
        problems.extend(checked.err().map(NodePoolProblem::Requirement));
    }
    for requirement in &template.spec.requirements {
        if requirement.key == labels::NODE_POOL {
            problems.push(NodePoolProblem::PoolRequirement(requirement.key.clone()));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(InvalidNodePool(problems)) }
}

fn check_labels(
    template: &NodeClaimTemplate,
    rules: &LabelRules,
    problems: &mut Vec<NodePoolProblem>,
) {
    for (key, value) in template.metadata.labels.iter().flatten() {
        if key == labels::NODE_POOL {
            problems.push(NodePoolProblem::PoolLabel(key.clone()));
        }
        for problem in qualified_name_problems(key) {
            problems.push(NodePoolProblem::LabelKey { key: key.clone(), problem });
        }
        for problem in label_value_problems(value) {
            let (key, value) = (key.clone(), value.clone());
            problems.push(NodePoolProblem::LabelValue { key, value, problem });
        }
        if let Err(problem) = rules.check(key) {
            problems.push(NodePoolProblem::LabelRestricted { key: key.clone(), problem });
        }
    }
}

fn check_taints(template: &NodeClaimTemplate, problems: &mut Vec<NodePoolProblem>) {
    let (lasting, startup) = (&template.spec.taints, &template.spec.startup_taints);
    let lasting = lasting.iter().flatten().map(|taint| ("taints", taint));
    let startup = startup.iter().flatten().map(|taint| ("startupTaints", taint));
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (field, Taint { key, value, effect, .. }) in lasting.chain(startup) {
        let value = value.as_deref().filter(|value| !value.is_empty());
        let names = [key.as_str()].into_iter().chain(value);
        for problem in names.flat_map(qualified_name_problems) {
            problems.push(NodePoolProblem::TaintName { field, problem });
        }
        let effects = [taints::NO_SCHEDULE, taints::PREFER_NO_SCHEDULE, taints::NO_EXECUTE, ""];
        if !effects.contains(&effect.as_str()) {
            problems.push(NodePoolProblem::TaintEffect { field, effect: effect.clone() });
        }
        if !seen.insert((key, effect)) {
            problems.push(NodePoolProblem::TaintTwice { key: key.clone(), effect: effect.clone() });
        }
    }
}

/// A requirement from anywhere: a NodePool, or the node selector or affinity of a pod.
#[derive(Clone, Copy, Debug)]
pub struct RequirementParts<'a> {
    pub key: &'a str,
    pub operator: &'a str,
    pub values: &'a [String],
    pub min_values: Option<u32>,
}

impl<'a> From<&'a NodeSelectorRequirement> for RequirementParts<'a> {
    fn from(requirement: &'a NodeSelectorRequirement) -> Self {
        Self {
            key: &requirement.key,
            operator: requirement.operator.as_str(),
            values: &requirement.values,
            min_values: requirement.min_values,
        }
    }
}

/// Checks one requirement and reports all that is wrong with it at once.
pub fn validate_requirement(
    requirement: RequirementParts<'_>,
    rules: &LabelRules,
) -> Result<(), InvalidRequirement> {
    let RequirementParts { operator: written, values, min_values, .. } = requirement;
    let key = labels::normalize(requirement.key);
    let operator = written.parse::<Operator>().ok();
    let fewer_than_min = |count: usize| min_values.is_some_and(|least| count < least as usize);
    let mut problems = Vec::new();
    if operator.is_none() {
        let (key, operator) = (key.to_owned(), written.to_owned());
        problems.push(RequirementProblem::Operator { key, operator });
    }
    problems.extend(rules.check(key).err().map(RequirementProblem::Restricted));
    if operator == Some(Operator::In)
        && let Some(known) = rules.known_values(key)
    {
        let valid = values.iter().filter(|value| known.contains(value)).count();
        let (key, values, known) = (key.to_owned(), values.join(" "), known.join(" "));
        if valid == 0 {
            problems.push(RequirementProblem::NoKnownValue { key, values, known });
        } else if let Some(min_values) = min_values.filter(|_| fewer_than_min(valid)) {
            let problem =
                RequirementProblem::FewKnownValues { key, values, known, min_values, valid };
            problems.push(problem);
        }
    }
    for problem in qualified_name_problems(key) {
        problems.push(RequirementProblem::Key { key: key.to_owned(), problem });
    }
    for value in values {
        for problem in label_value_problems(value) {
            let (key, value) = (key.to_owned(), value.clone());
            problems.push(RequirementProblem::Value { key, value, problem });
        }
    }
    match operator {
        Some(Operator::In) => {
            if values.is_empty() {
                problems.push(RequirementProblem::NoValue(key.to_owned()));
            }
            if fewer_than_min(values.len()) {
                problems.push(RequirementProblem::FewValues(key.to_owned()));
            }
        }
        Some(operator) if operator.is_bound() && !is_one_positive_integer(values) => {
            problems.push(RequirementProblem::Bound { key: key.to_owned(), operator });
        }
        _ => {}
    }
    if problems.is_empty() { Ok(()) } else { Err(InvalidRequirement(problems)) }
}

fn is_one_positive_integer(values: &[String]) -> bool {
    matches!(values, [value] if value.parse::<i64>().is_ok_and(|number| number >= 0))
}

impl fmt::Display for InvalidNodePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_joined(f, &self.0)
    }
}

impl fmt::Display for InvalidRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_joined(f, &self.0)
    }
}

fn write_joined(f: &mut fmt::Formatter<'_>, problems: &[impl fmt::Display]) -> fmt::Result {
    for (index, problem) in problems.iter().enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        write!(f, "{separator}{problem}")?;
    }
    Ok(())
}

impl std::error::Error for InvalidNodePool {}

impl std::error::Error for InvalidRequirement {}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(labels: &Value, spec: &Value) -> NodePool {
        let mut template = json!({
            "metadata": { "labels": labels },
            "spec": {
                "requirements": [],
                "nodeClassRef": { "kind": "ExampleNodeClass", "name": "default", "group": "cloud.example" },
            },
        });
        for (field, value) in spec.as_object().unwrap() {
            template["spec"][field] = value.clone();
        }
        let mut pool = NodePool::default();
        pool.spec.template = serde_json::from_value(template).unwrap();
        pool
    }

    /// `...` in what is expected stands for a sentence of Kubernetes or a list of labels, tested
    /// elsewhere.
    fn check(labels: &Value, spec: &Value, expected: &[&str]) {
        let rules = LabelRules::default();
        let problems = match validate_node_pool(&pool(labels, spec), &rules) {
            Ok(()) => vec![],
            Err(InvalidNodePool(problems)) => problems.iter().map(ToString::to_string).collect(),
        };
        let matches = |problem: &String, expected: &&str| match expected.split_once("...") {
            None => problem == expected,
            Some((start, end)) => problem.starts_with(start) && problem.ends_with(end),
        };
        assert!(
            problems.len() == expected.len()
                && problems
                    .iter()
                    .zip(expected)
                    .all(|(problem, expected)| matches(problem, expected)),
            "{problems:#?}\nis not\n{expected:#?}"
        );
    }

    fn check_requirement(requirement: &Value, expected: &[&str]) {
        let wrapped: Vec<String> = match expected {
            [] => vec![],
            problems => {
                vec![format!("invalid value: {} in requirements, restricted", problems.join("; "))]
            }
        };
        let wrapped: Vec<&str> = wrapped.iter().map(String::as_str).collect();
        check(&json!({}), &json!({ "requirements": [requirement] }), &wrapped);
    }

    #[test]
    fn accepts_a_plain_pool() {
        check(
            &json!({ "team": "a", "example.com/x": "", "karpenter.sh/capacity-type": "spot" }),
            &json!({
                "taints": [{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoExecute" }],
                "startupTaints": [{ "key": "b", "value": "c", "effect": "PreferNoSchedule" }],
                "requirements": [{ "key": "team", "operator": "In", "values": ["a"], "minValues": 1 }],
            }),
            &[],
        );
    }

    #[test]
    fn checks_labels() {
        check(
            &json!({ "karpenter.sh/nodepool": "x" }),
            &json!({}),
            &["invalid key name \"karpenter.sh/nodepool\" in labels, restricted"],
        );
        check(
            &json!({ "a b": "x" }),
            &json!({}),
            &["invalid key name \"a b\" in labels, \"name part must consist...\""],
        );
        check(
            &json!({ "a": "-" }),
            &json!({}),
            &["invalid value: - for label[a], a valid label must be an empty string...)?')"],
        );
        check(
            &json!({ "karpenter.sh/x": "y", "kubernetes.io/hostname": "z" }),
            &json!({}),
            &[
                "invalid key name \"karpenter.sh/x\" in labels, using label karpenter.sh/x is not allowed...[karpenter.sh]",
                "invalid key name \"kubernetes.io/hostname\" in labels, using label kubernetes.io/hostname...[karpenter.sh]",
            ],
        );
    }

    #[test]
    fn checks_taints() {
        check(
            &json!({}),
            &json!({ "taints": [{ "key": "", "effect": "NoSchedule" }] }),
            &[
                "invalid value: name part must be non-empty in taints",
                "invalid value: name part must consist... in taints",
            ],
        );
        check(
            &json!({}),
            &json!({ "startupTaints": [{ "key": "a", "value": "-", "effect": "Never" }] }),
            &[
                "invalid value: name part must consist... in startupTaints",
                "invalid value: \"Never\" in startupTaints",
            ],
        );
        let taint = json!({ "key": "a", "effect": "NoSchedule" });
        let valued = json!({ "key": "a", "value": "b", "effect": "NoSchedule" });
        check(
            &json!({}),
            &json!({ "taints": [taint, valued], "startupTaints": [taint] }),
            &[
                "duplicate taint Key/Effect pair a=NoSchedule",
                "duplicate taint Key/Effect pair a=NoSchedule",
            ],
        );
    }

    #[test]
    fn checks_requirements() {
        check_requirement(&json!({ "key": "a", "operator": "Exists" }), &[]);
        check_requirement(
            &json!({ "key": "karpenter.sh/x", "operator": "Exists" }),
            &["using label karpenter.sh/x is not allowed...[karpenter.sh]"],
        );
        check_requirement(
            &json!({ "key": "a b", "operator": "Exists" }),
            &["key a b is not a qualified name, name part..."],
        );
        check_requirement(
            &json!({ "key": "a", "operator": "NotIn", "values": ["-"] }),
            &["invalid value - for key a, a valid label..."],
        );
        check_requirement(
            &json!({ "key": "a", "operator": "In" }),
            &["key a with operator In must have a value defined"],
        );
        check_requirement(
            &json!({ "key": "a", "operator": "In", "values": ["x"], "minValues": 2 }),
            &[
                "key a with operator In must have at least minimum number of values defined in 'values' field",
            ],
        );
        check_requirement(&json!({ "key": "a", "operator": "Exists", "minValues": 2 }), &[]);
    }

    #[test]
    fn checks_bounds() {
        for operator in ["Gt", "Lt", "Gte", "Lte"] {
            let message =
                format!("key a with operator {operator} must have a single positive integer value");
            let check = |values: Value, expected: &[&str]| {
                check_requirement(
                    &json!({ "key": "a", "operator": operator, "values": values }),
                    expected,
                );
            };
            check(json!(["0"]), &[]);
            check(json!(["9223372036854775807"]), &[]);
            check(json!(["9223372036854775808"]), &[&message]);
            check(json!([]), &[&message]);
            check(json!(["1", "2"]), &[&message]);
            check(json!(["x"]), &[&message]);
            check(json!(["1.5"]), &[&message]);
        }
        check_requirement(
            &json!({ "key": "a", "operator": "Gt", "values": ["-1"] }),
            &[
                "invalid value -1 for key a...; key a with operator Gt must have a single positive integer value",
            ],
        );
    }

    #[test]
    fn checks_known_values() {
        let check = |values: Value, min_values: Option<u32>, expected: &[&str]| {
            check_requirement(
                &json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": values, "minValues": min_values }),
                expected,
            );
        };
        check(json!(["spot"]), None, &[]);
        check(json!(["spot", "sport"]), None, &[]);
        check(
            json!(["sport", "x"]),
            None,
            &[
                "no valid values found in [sport x] for karpenter.sh/capacity-type, expected one of: [on-demand reserved spot], got: [sport x]",
            ],
        );
        check(json!(["spot", "on-demand"]), Some(2), &[]);
        check(
            json!(["spot", "sport"]),
            Some(2),
            &[
                "not enough valid values found in [spot sport] for karpenter.sh/capacity-type, expected at least 2 valid values from: [on-demand reserved spot], got: 1",
            ],
        );
    }

    #[test]
    fn looks_at_present_names_of_labels() {
        let rules = LabelRules::default();
        let parts = RequirementParts {
            key: "beta.kubernetes.io/arch",
            operator: "In",
            values: &[],
            min_values: None,
        };
        let problem = validate_requirement(parts, &rules).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "key kubernetes.io/arch with operator In must have a value defined"
        );
    }

    #[test]
    fn refuses_operators_of_pods_that_it_does_not_know() {
        let parts = RequirementParts { key: "a", operator: "Near", values: &[], min_values: None };
        assert_eq!(
            validate_requirement(parts, &LabelRules::default()).unwrap_err().to_string(),
            "key a has an unsupported operator Near not in [DoesNotExist Exists Gt Gte In Lt Lte NotIn]"
        );
    }

    #[test]
    fn refuses_requirements_on_the_pool() {
        check(
            &json!({}),
            &json!({ "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "Exists" }] }),
            &["invalid key: \"karpenter.sh/nodepool\" in requirements, restricted"],
        );
    }

    #[test]
    fn joins_all_problems_in_one_message() {
        let problems = validate_node_pool(
            &pool(
                &json!({ "karpenter.sh/nodepool": "x" }),
                &json!({ "requirements": [{ "key": "a", "operator": "In" }] }),
            ),
            &LabelRules::default(),
        );
        assert_eq!(
            problems.unwrap_err().to_string(),
            "invalid key name \"karpenter.sh/nodepool\" in labels, restricted; \
             invalid value: key a with operator In must have a value defined in requirements, restricted"
        );
    }
}
