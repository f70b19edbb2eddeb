//! Policies: ways to run the operator that are compared with each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    str::FromStr,
};

use kerf_api::GoDuration;
use kerf_controllers::{
    Settings,
    settings::{FeatureGates, PreferencePolicy},
};
use kerf_model::MinValuesPolicy;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::scenario::{self, ScenarioError};

/// A named set of operator settings and of disruption fields that every pool gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Settings by the names of the operator's flags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub operator: BTreeMap<String, Value>,
    /// Merged into `spec.disruption` of each pool; `null` removes a field, so that the operator's flag counts.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub disruption: Map<String, Value>,
}

/// The policy that evicts nothing to save money: what others save is measured against it.
pub const BASELINE: &str = "when-empty";
/// The policy of an operator to which nobody said anything.
pub const DEFAULTS: &str = "kerf-defaults";
/// The policy that leaves the pools as they are.
pub(crate) const AS_IS: &str = "as-is";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("there is no policy {name:?}; there are {known}")]
    Unknown { name: String, known: String },
    #[error("the operator has no setting {name:?} that a simulation can change; it has {}", FLAGS.join(", "))]
    UnknownFlag { name: String },
    #[error("invalid value {value} for the operator setting {name}: expected {expected}")]
    Invalid { name: String, value: String, expected: &'static str },
    #[error("spec.disruption of a NodePool has no field {name:?}; it has {}, budgets", FIELDS.join(", "))]
    UnknownField { name: String },
    #[error(
        "cannot sweep {text:?}: write a setting and its values, such as consolidationSavingsThreshold=0,0.01"
    )]
    Sweep { text: String },
    #[error(
        "cannot sweep {name:?}: it is neither a field of a NodePool's spec.disruption ({}) nor a flag of the operator ({})",
        FIELDS.join(", "), FLAGS.join(", ")
    )]
    SweepOfWhat { name: String },
}

const UTILIZATION: &str = "scaledown-utilization-threshold";
const PRICE_FACTOR: &str = "consolidation-price-improvement-factor";
const SAVINGS: &str = "consolidation-savings-threshold";
const GRACE: &str = "consolidation-grace-period";
const GATES: &str = "feature-gates";
const BATCH_IDLE: &str = "batch-idle-duration";
const BATCH_MAX: &str = "batch-max-duration";
const BY_OWNER: &str = "owner-aware-batching";
const PREFERENCES: &str = "preference-policy";
const MIN_VALUES: &str = "min-values-policy";
const PACKING: &str = "packing";
const MANY_TO_MANY: &str = "many-to-many-consolidation";

const FLAGS: [&str; 12] = [
    UTILIZATION,
    PRICE_FACTOR,
    SAVINGS,
    GRACE,
    GATES,
    BATCH_IDLE,
    BATCH_MAX,
    BY_OWNER,
    PREFERENCES,
    MIN_VALUES,
    PACKING,
    MANY_TO_MANY,
];
const POLICY_FIELD: &str = "consolidationPolicy";
/// The flag of each control, and the field by which a pool overrules it.
const CONTROLS: [(&str, &str); 4] = [
    (UTILIZATION, "consolidationUtilizationThreshold"),
    (PRICE_FACTOR, "consolidationPriceImprovementFactor"),
    (SAVINGS, "consolidationSavingsThreshold"),
    (GRACE, "consolidationGracePeriod"),
];
const FIELDS: [&str; 6] =
    [POLICY_FIELD, "consolidateAfter", CONTROLS[0].1, CONTROLS[1].1, CONTROLS[2].1, CONTROLS[3].1];

impl Policy {
    /// The policies that are always there. Each control stands alone on top of upstream's behaviour, so that what it does
    /// can be told from what the others do. But for `as-is` they remove the controls that pools bring: a pool overrules the
    /// operator, and every policy would come to the same.
    pub fn built_in() -> Vec<Self> {
        let of_pools = |policy: &str| -> Map<String, Value> {
            let controls = CONTROLS.iter().map(|(_, field)| ((*field).to_owned(), Value::Null));
            controls.chain([(POLICY_FIELD.to_owned(), policy.into())]).collect()
        };
        let parity = [(UTILIZATION, json!(1.0)), (SAVINGS, json!(0))];
        let with = |name: &str, description: &str, flags: &[(&str, Value)], policy: &str| Self {
            name: name.to_owned(),
            description: description.to_owned(),
            operator: parity
                .iter()
                .chain(flags)
                .map(|(k, v)| ((*k).to_owned(), v.clone()))
                .collect(),
            disruption: of_pools(policy),
        };
        let plain = "WhenEmptyOrUnderutilized";
        vec![
            with(BASELINE, "only empty nodes are removed", &[], "WhenEmpty"),
            with("parity", "WhenEmptyOrUnderutilized as Karpenter has it", &[], plain),
            with("balanced", "Karpenter's Balanced policy", &[], "Balanced"),
            with(
                "utilization-threshold",
                "parity, but nodes with a utilization above 75% stay",
                &[(UTILIZATION, json!(0.75))],
                plain,
            ),
            with(
                "price-improvement-factor",
                "parity, but a replacement has to cost less than 80%",
                &[(PRICE_FACTOR, json!(0.8))],
                plain,
            ),
            with(
                "savings-threshold",
                "parity, but a consolidation has to save 0.01 per hour and pod",
                &[(SAVINGS, json!(0.01))],
                plain,
            ),
            with(
                "grace-period",
                "parity, but nodes are left alone for 30m after a pod came or went",
                &[(GRACE, json!("30m"))],
                plain,
            ),
            Self {
                name: DEFAULTS.to_owned(),
                description: "utilization threshold 0.75 and savings threshold 0.01".to_owned(),
                operator: BTreeMap::new(),
                disruption: of_pools(plain),
            },
            with(
                "all-controls",
                "all four controls at the values above",
                &[
                    (UTILIZATION, json!(0.75)),
                    (PRICE_FACTOR, json!(0.8)),
                    (SAVINGS, json!(0.01)),
                    (GRACE, json!("30m")),
                ],
                plain,
            ),
            Self {
                name: AS_IS.to_owned(),
                description: "the settings of the pools, unchanged".to_owned(),
                ..Self::default()
            },
        ]
    }

    /// Whether `as-is` would differ from the defaults for a pool with this spec.
    pub(crate) fn is_said_by(pool: &Map<String, Value>) -> bool {
        let disruption = pool.get("disruption").and_then(Value::as_object);
        let says = |field: &str| disruption.is_some_and(|all| all.contains_key(field));
        says(POLICY_FIELD) || CONTROLS.iter().any(|(_, field)| says(field))
    }

    /// Policies that a file lists under `policies`.
    pub fn from_file(path: &Path) -> Result<Vec<Self>, ScenarioError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Listed {
            policies: Vec<Policy>,
        }
        let shown = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: shown.clone(), source })?;
        let Listed { policies } = scenario::read_yaml(&text, &shown)?;
        Ok(policies)
    }

    /// The policies of these names, from the given ones or else the built-in ones. `all` are all of them, but `as-is` only
    /// where it is among the given ones.
    pub fn named(names: &[String], own: &[Self]) -> Result<Vec<Self>, PolicyError> {
        let built_in = Self::built_in();
        let mut found: Vec<Self> = Vec::new();
        for name in names {
            if name == "all" {
                let built_in = built_in.iter().filter(|policy| policy.name != AS_IS);
                found.extend(own.iter().chain(built_in).cloned());
                continue;
            }
            let policy = own.iter().chain(&built_in).find(|policy| policy.name == *name);
            let policy = policy.ok_or_else(|| {
                let mut known: Vec<_> =
                    own.iter().chain(&built_in).map(|policy| policy.name.as_str()).collect();
                let mut seen = BTreeSet::new();
                known.retain(|name| seen.insert(*name));
                PolicyError::Unknown { name: name.clone(), known: known.join(", ") }
            })?;
            found.push(policy.clone());
        }
        let mut seen = BTreeSet::new();
        found.retain(|policy| seen.insert(policy.name.clone()));
        Ok(found)
    }

    /// This policy with one setting at each of several values: `consolidationSavingsThreshold=0,0.01`, or the name of a
    /// flag.
    pub fn sweep(&self, text: &str) -> Result<Vec<Self>, PolicyError> {
        let unreadable = || PolicyError::Sweep { text: text.to_owned() };
        let (name, values) = text.split_once('=').ok_or_else(unreadable)?;
        let (name, values) = (name.trim(), values.split(',').map(str::trim));
        let is_flag = FLAGS.contains(&name);
        if !is_flag && !FIELDS.contains(&name) {
            return Err(PolicyError::SweepOfWhat { name: name.to_owned() });
        }
        let mut policies = Vec::new();
        for text in values {
            if text.is_empty() {
                return Err(unreadable());
            }
            let value = serde_json::from_str(text).ok().filter(Value::is_number);
            let value = value.unwrap_or_else(|| text.into());
            let mut policy = self.clone();
            policy.name = format!("{name}={text}");
            policy.description = format!("{}, with {name} {text}", self.name);
            if is_flag {
                policy.operator.insert(name.to_owned(), value);
                // What the pools say about it would hide what is swept.
                let control = CONTROLS.iter().find(|(flag, _)| *flag == name);
                let field = control.map(|(_, field)| ((*field).to_owned(), Value::Null));
                policy.disruption.extend(field);
            } else {
                policy.disruption.insert(name.to_owned(), value);
            }
            policies.push(policy);
        }
        Ok(policies)
    }

    /// The settings of an operator that runs in a scenario under this policy.
    pub fn settings(&self, scenario: &BTreeMap<String, Value>) -> Result<Settings, PolicyError> {
        // There is one operator, and nothing scrapes it.
        let mut settings = Settings { leader_election: None, ..Settings::default() };
        let known = |field: &&String| FIELDS.contains(&field.as_str()) || *field == "budgets";
        if let Some(name) = self.disruption.keys().find(|field| !known(field)) {
            return Err(PolicyError::UnknownField { name: name.clone() });
        }
        for (flag, value) in scenario.iter().chain(&self.operator) {
            set(&mut settings, flag, value)?;
        }
        Ok(settings)
    }
}

fn set(settings: &mut Settings, flag: &str, value: &Value) -> Result<(), PolicyError> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let invalid =
        |expected| PolicyError::Invalid { name: flag.to_owned(), value: text.clone(), expected };
    let churn = &mut settings.churn;
    match flag {
        UTILIZATION => {
            churn.utilization_threshold = read(&text).ok_or_else(|| invalid(FRACTION))?;
        }
        PRICE_FACTOR => {
            churn.price_improvement_factor = read(&text).ok_or_else(|| invalid(FRACTION))?;
        }
        SAVINGS => {
            let expected = "a price per hour, such as 0.01";
            churn.savings_threshold = read(&text).ok_or_else(|| invalid(expected))?;
        }
        GRACE => {
            let expected = "a duration such as 30m, or Never";
            churn.grace_period = read(&text).ok_or_else(|| invalid(expected))?;
        }
        GATES => {
            let expected = "gates such as SpotToSpotConsolidation=true";
            settings.gates = FeatureGates::parse(&text).map_err(|_| invalid(expected))?.0;
        }
        BATCH_IDLE => settings.batching.idle = duration(&text).ok_or_else(|| invalid(DURATION))?,
        BATCH_MAX => settings.batching.max = duration(&text).ok_or_else(|| invalid(DURATION))?,
        BY_OWNER => {
            settings.batching.by_owner = read(&text).ok_or_else(|| invalid("true or false"))?;
        }
        PREFERENCES => {
            settings.preference_policy = match text.as_str() {
                "Respect" => PreferencePolicy::Respect,
                "Ignore" => PreferencePolicy::Ignore,
                _ => return Err(invalid("Respect or Ignore")),
            };
        }
        MIN_VALUES => {
            settings.min_values_policy = match text.as_str() {
                "Strict" => MinValuesPolicy::Strict,
                "BestEffort" => MinValuesPolicy::BestEffort,
                _ => return Err(invalid("Strict or BestEffort")),
            };
        }
        MANY_TO_MANY => {
            settings.many_to_many = read(&text).ok_or_else(|| invalid("true or false"))?;
        }
        PACKING => settings.packing = read(&text).ok_or_else(|| invalid("true or false"))?,
        _ => return Err(PolicyError::UnknownFlag { name: flag.to_owned() }),
    }
    Ok(())
}

const FRACTION: &str = "a number from 0 to 1";
const DURATION: &str = "a duration such as 10s";

fn read<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn duration(text: &str) -> Option<std::time::Duration> {
    read(text).map(|duration: GoDuration| duration.as_duration())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_controllers::settings::ChurnControls;

    #[test]
    fn every_built_in_policy_is_one_the_operator_starts_with() {
        for policy in Policy::built_in() {
            policy.settings(&BTreeMap::new()).unwrap_or_else(|e| panic!("{}: {e}", policy.name));
        }
    }

    #[test]
    fn the_defaults_are_the_operators() {
        let found = Policy::named(&[DEFAULTS.to_owned()], &[]).unwrap();
        let settings = found[0].settings(&BTreeMap::new()).unwrap();
        assert_eq!(settings.churn, ChurnControls::default());
    }

    #[test]
    fn a_sweep_makes_one_policy_of_each_value() {
        let base = Policy { name: "parity".into(), ..Policy::default() };
        let swept = base.sweep("consolidationSavingsThreshold=0,0.02").unwrap();
        let names: Vec<_> = swept.iter().map(|policy| policy.name.as_str()).collect();
        assert_eq!(
            names,
            ["consolidationSavingsThreshold=0", "consolidationSavingsThreshold=0.02"]
        );
        assert_eq!(swept[1].disruption["consolidationSavingsThreshold"], json!(0.02));
        let swept = base.sweep("consolidation-grace-period=10m,Never").unwrap();
        assert_eq!(swept[0].operator["consolidation-grace-period"], json!("10m"));
        assert_eq!(swept[0].disruption["consolidationGracePeriod"], Value::Null);
    }

    #[test]
    fn all_has_as_is_where_the_pools_say_something() {
        let names = |disruption: &str| -> Vec<String> {
            let yaml = format!(
                "length: 1h\nworkloads: []\npolicies: [{{name: own}}]\n\
                 pools: [{{name: a}}, {{name: b, spec: {{disruption: {disruption}}}}}]\n"
            );
            let scenario = crate::Scenario::from_yaml(&yaml, "x.yaml").unwrap();
            let all = Policy::named(&["all".to_owned()], &scenario.own_policies()).unwrap();
            all.into_iter().map(|policy| policy.name).take(3).collect()
        };
        assert_eq!(names("{consolidateAfter: 1m}"), ["own", BASELINE, "parity"]);
        for said in ["consolidationPolicy: WhenEmpty", "consolidationSavingsThreshold: 0.02"] {
            assert_eq!(names(&format!("{{{said}}}")), ["own", AS_IS, BASELINE], "{said}");
        }
        // By its name it is always there.
        assert_eq!(Policy::named(&[AS_IS.to_owned()], &[]).unwrap()[0].disruption, Map::new());
        let own = [Policy { name: AS_IS.to_owned(), ..Policy::default() }];
        let told = Policy::named(&["calm".to_owned()], &own).unwrap_err().to_string();
        assert_eq!(told.matches(AS_IS).count(), 1, "{told}");
    }

    #[test]
    fn what_cannot_be_set_is_refused_by_name() {
        let base = Policy::default();
        for (text, expected) in [
            ("savings", "cannot sweep \"savings\": write a setting and its values"),
            ("savings=1", "cannot sweep \"savings\": it is neither a field"),
            ("consolidateAfter=", "cannot sweep"),
        ] {
            let told = base.sweep(text).unwrap_err().to_string();
            assert!(told.contains(expected), "{told}");
        }
        let told = Policy::named(&["calm".into()], &[]).unwrap_err().to_string();
        assert!(
            told.contains("there is no policy \"calm\"; there are when-empty, parity"),
            "{told}"
        );
        let flag = |name: &str, value: Value| {
            let policy =
                Policy { operator: [(name.to_owned(), value)].into(), ..Policy::default() };
            policy.settings(&BTreeMap::new()).unwrap_err().to_string()
        };
        let field = [("consolidationSavings".to_owned(), json!(1))].into_iter().collect();
        let policy = Policy { disruption: field, ..Policy::default() };
        let told = policy.settings(&BTreeMap::new()).unwrap_err().to_string();
        assert!(told.contains("has no field \"consolidationSavings\"; it has"), "{told}");
        assert!(flag("log-level", json!("debug")).contains("no setting \"log-level\""));
        assert!(flag(UTILIZATION, json!(75)).contains("expected a number from 0 to 1"));
    }
}
