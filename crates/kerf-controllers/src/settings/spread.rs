//! The scheduler configuration: spread constraints for pods that have none.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::Deserialize;
use serde_json::Value;

/// Reads the document `podTopologySpread: {defaultConstraints: [...]}`, in YAML or JSON. Nothing means
/// no constraints.
pub fn parse_default_spread(text: &str) -> Result<Vec<TopologySpreadConstraint>, SpreadError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let document: Option<Document> =
        serde_saphyr::from_str(text).map_err(|error| SpreadError::Decode(first_line(&error)))?;
    let spread = document.unwrap_or_default().pod_topology_spread.unwrap_or_default();
    let mut seen = BTreeMap::new();
    let mut constraints = Vec::new();
    for (index, written) in spread.default_constraints.unwrap_or_default().into_iter().enumerate() {
        let invalid = |problem| SpreadError::Invalid { index, problem };
        let constraint = written.check().map_err(invalid)?;
        let key = (constraint.topology_key.clone(), constraint.when_unsatisfiable.clone());
        if let Some(first) = seen.insert(key, index) {
            let (key, when) = (constraint.topology_key, constraint.when_unsatisfiable);
            return Err(invalid(format!(" is a duplicate of [{first}], {{{key}, {when}}}")));
        }
        constraints.push(constraint);
    }
    Ok(constraints)
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpreadError {
    #[error("cannot read the document: {0}")]
    Decode(String),
    /// `problem` begins with the field, if it is about one.
    #[error("podTopologySpread.defaultConstraints[{index}]{problem}")]
    Invalid { index: usize, problem: String },
}

/// The parser's own messages go on with a picture of the place, which does not fit into a sentence.
fn first_line(error: &serde_saphyr::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    pod_topology_spread: Option<PodTopologySpread>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodTopologySpread {
    default_constraints: Option<Vec<Constraint>>,
}

/// As written. `TopologySpreadConstraint` itself would let unknown fields pass.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Constraint {
    #[serde(default)]
    max_skew: i32,
    #[serde(default)]
    topology_key: String,
    #[serde(default)]
    when_unsatisfiable: String,
    label_selector: Option<Value>,
    match_label_keys: Option<Vec<String>>,
    min_domains: Option<i32>,
    node_affinity_policy: Option<String>,
    node_taints_policy: Option<String>,
}

impl Constraint {
    fn check(self) -> Result<TopologySpreadConstraint, String> {
        if self.max_skew <= 0 {
            return Err(".maxSkew must be greater than 0".into());
        }
        if self.topology_key.is_empty() {
            return Err(".topologyKey must be set".into());
        }
        if let Err(problem) = check_label_name(&self.topology_key) {
            let key = &self.topology_key;
            return Err(format!(".topologyKey {key:?} is not a valid label name, {problem}"));
        }
        one_of("whenUnsatisfiable", &self.when_unsatisfiable, ["DoNotSchedule", "ScheduleAnyway"])?;
        if self.label_selector.is_some() {
            return Err(
                ".labelSelector must not be set, as selectors are deduced for each pod".into()
            );
        }
        if self.match_label_keys.is_some_and(|keys| !keys.is_empty()) {
            return Err(
                ".matchLabelKeys must not be set, as it has no effect on default constraints"
                    .into(),
            );
        }
        if self.min_domains.is_some_and(|domains| domains <= 0) {
            return Err(".minDomains must be greater than 0".into());
        }
        for (field, policy) in [
            ("nodeAffinityPolicy", &self.node_affinity_policy),
            ("nodeTaintsPolicy", &self.node_taints_policy),
        ] {
            if let Some(policy) = policy {
                one_of(field, policy, ["Honor", "Ignore"])?;
            }
        }
        Ok(TopologySpreadConstraint {
            max_skew: self.max_skew,
            topology_key: self.topology_key,
            when_unsatisfiable: self.when_unsatisfiable,
            min_domains: self.min_domains,
            node_affinity_policy: self.node_affinity_policy,
            node_taints_policy: self.node_taints_policy,
            ..TopologySpreadConstraint::default()
        })
    }
}

fn one_of(field: &str, value: &str, allowed: [&str; 2]) -> Result<(), String> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(format!(".{field} {value:?} must be one of {:?} or {:?}", allowed[0], allowed[1]))
}

/// Kubernetes' rule for label keys: `[prefix/]name`.
fn check_label_name(key: &str) -> Result<(), &'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() > 63
        || !edge(name.chars().next())
        || !edge(name.chars().last())
        || !name.chars().all(inner)
    {
        return Err(
            "the name has up to 63 letters, digits, '-', '_' or '.' and starts and ends with \
                    a letter or digit",
        );
    }
    let label = |part: &str| {
        let edge =
            |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(part.chars().next())
            && edge(part.chars().last())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if prefix.is_some_and(|prefix| prefix.len() > 253 || !prefix.split('.').all(label)) {
        return Err("the prefix is a lower-case DNS name of up to 253 characters");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str = "topology.kubernetes.io/zone";

    #[test]
    fn constraints_are_read_from_yaml_and_json() {
        let zone = TopologySpreadConstraint {
            max_skew: 1,
            topology_key: ZONE.into(),
            when_unsatisfiable: "ScheduleAnyway".into(),
            ..TopologySpreadConstraint::default()
        };
        let host = TopologySpreadConstraint {
            max_skew: 3,
            topology_key: "kubernetes.io/hostname".into(),
            when_unsatisfiable: "DoNotSchedule".into(),
            min_domains: Some(2),
            node_taints_policy: Some("Honor".into()),
            ..TopologySpreadConstraint::default()
        };
        let yaml = "
podTopologySpread:
  defaultConstraints:
  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
  - maxSkew: 3
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: DoNotSchedule
    minDomains: 2
    nodeTaintsPolicy: Honor
";
        let json = r#"{"podTopologySpread":{"defaultConstraints":[{"maxSkew":1,
            "topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway",
            "labelSelector":null,"matchLabelKeys":[]}]}}"#;
        for (text, expected) in [
            (yaml, vec![zone.clone(), host]),
            (json, vec![zone]),
            ("", vec![]),
            (" \n", vec![]),
            ("{}", vec![]),
            ("null", vec![]),
            ("podTopologySpread:", vec![]),
            ("podTopologySpread: {}", vec![]),
            ("podTopologySpread: {defaultConstraints: []}", vec![]),
        ] {
            assert_eq!(parse_default_spread(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_constraints_are_named() {
        let zone = format!("maxSkew: 1, topologyKey: {ZONE}, whenUnsatisfiable: DoNotSchedule");
        let cases = [
            (format!("topologyKey: {ZONE}"), "[0].maxSkew must be greater than 0"),
            ("maxSkew: -1".into(), "[0].maxSkew must be greater than 0"),
            ("maxSkew: 1".into(), "[0].topologyKey must be set"),
            (
                "maxSkew: 1, topologyKey: a/b/c".into(),
                "[0].topologyKey \"a/b/c\" is not a valid label name, the name has up to 63 letters, \
                 digits, '-', '_' or '.' and starts and ends with a letter or digit",
            ),
            (
                "maxSkew: 1, topologyKey: A_b/zone".into(),
                "[0].topologyKey \"A_b/zone\" is not a valid label name, the prefix is a lower-case \
                 DNS name of up to 253 characters",
            ),
            (
                "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Maybe".into(),
                "[0].whenUnsatisfiable \"Maybe\" must be one of \"DoNotSchedule\" or \"ScheduleAnyway\"",
            ),
            (
                format!("{zone}, labelSelector: {{}}"),
                "[0].labelSelector must not be set, as selectors are deduced for each pod",
            ),
            (
                format!("{zone}, matchLabelKeys: [app]"),
                "[0].matchLabelKeys must not be set, as it has no effect on default constraints",
            ),
            (format!("{zone}, minDomains: 0"), "[0].minDomains must be greater than 0"),
            (
                format!("{zone}, nodeAffinityPolicy: no"),
                "[0].nodeAffinityPolicy \"no\" must be one of \"Honor\" or \"Ignore\"",
            ),
            (
                format!("{zone}}}, {{{zone}"),
                "[1] is a duplicate of [0], {topology.kubernetes.io/zone, DoNotSchedule}",
            ),
        ];
        for (constraints, problem) in cases {
            let text = format!("podTopologySpread: {{defaultConstraints: [{{{constraints}}}]}}");
            let error = parse_default_spread(&text).unwrap_err().to_string();
            assert_eq!(error, format!("podTopologySpread.defaultConstraints{problem}"), "{text}");
        }
    }

    #[test]
    fn unknown_fields_and_broken_documents_are_refused() {
        for (text, part) in [
            ("podTopologySpred: {}", "podTopologySpred"),
            ("podTopologySpread: {constraints: []}", "constraints"),
            ("podTopologySpread: {defaultConstraints: [{maxSkw: 1}]}", "maxSkw"),
            ("podTopologySpread: [", ""),
            ("just text", ""),
        ] {
            let error = parse_default_spread(text).unwrap_err().to_string();
            assert!(error.starts_with("cannot read the document: "), "{error}");
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
