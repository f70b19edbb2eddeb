//! What a run has reached: events, conditions, reasons and errors.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How often each thing was reached, by what it is and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<(String, String), u64>);

/// What the message of a pod that has no place says, and how the reason is called.
const REFUSALS: [(&str, &str); 14] = [
    ("no node can have more than", "AbsurdRequest"),
    ("no instance type and no node has", "UnknownResource"),
    ("there is no NodePool to launch", "NoPools"),
    ("too few instance types left", "TooFewInstanceTypes"),
    ("affinity terms", "TooManyConstraints"),
    ("its limit of nodes is reached", "NodeLimit"),
    ("exceeds its limits", "Limits"),
    ("did not tolerate taint", "Taint"),
    ("incompatible requirements", "Requirements"),
    ("volume", "Volumes"),
    ("topology spread", "TopologySpread"),
    ("pod anti-affinity", "PodAntiAffinity"),
    ("pod affinity over", "PodAffinity"),
    ("instance type", "InstanceTypes"),
];

/// Labels of metrics that say why something was refused or failed.
const TELLING: [&str; 6] = ["reason", "error", "result", "decision", "condition_status", "code"];

impl Coverage {
    pub(crate) fn reach(&mut self, what: &str, name: &str) {
        *self.0.entry((what.to_owned(), name.trim().to_owned())).or_default() += 1;
    }

    /// Events of the operator and conditions of its kinds.
    pub(crate) fn see(&mut self, resource: &str, object: &Value) {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        match resource {
            "events" if object["source"]["component"] == "karpenter" => {
                self.reach("event", &text(object, "reason"));
                let message = text(object, "message");
                if object["reason"] == "FailedScheduling" {
                    for (phrase, name) in REFUSALS {
                        if message.contains(phrase) {
                            self.reach("refusal", name);
                        }
                    }
                }
            }
            "nodeclaims" | "nodepools" => {
                let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
                for it in conditions {
                    let name = format!(
                        "{resource} {}={} {}",
                        text(it, "type"),
                        text(it, "status"),
                        text(it, "reason")
                    );
                    self.reach("condition", &name);
                }
            }
            _ => {}
        }
    }

    /// The series of an operator's metrics that count something.
    pub(crate) fn read_metrics(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            if !name.ends_with("_total") || value == "0" {
                continue;
            }
            let labels = labels.trim_end_matches('}').split("\",");
            for (key, value) in labels.filter_map(|label| label.split_once("=\"")) {
                if TELLING.contains(&key) {
                    let value = value.trim_end_matches('"');
                    if name == "karpenter_consolidation_blocked_total" && key == "reason" {
                        self.reach("blocked", value);
                        continue;
                    }
                    self.reach("metric", &format!("{name} {key}={value}"));
                }
            }
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (key, count) in &other.0 {
            *self.0.entry(key.clone()).or_default() += count;
        }
    }

    pub fn has(&self, what: &str, name: &str) -> bool {
        self.0.contains_key(&(what.to_owned(), name.to_owned()))
    }

    pub fn to_json(&self) -> Value {
        let mut all = json!({});
        for ((what, name), count) in &self.0 {
            all[what][name] = json!(count);
        }
        all
    }

    pub fn from_json(written: &Value) -> Self {
        let kinds = written.as_object().into_iter().flatten();
        let all = kinds.flat_map(|(what, names)| {
            names.as_object().into_iter().flatten().map(move |(name, count)| {
                ((what.clone(), name.clone()), count.as_u64().unwrap_or_default())
            })
        });
        Self(all.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_series_that_say_why() {
        let mut coverage = Coverage::default();
        coverage.read_metrics(
            "# HELP a_total b\na_total{reason=\"Full\",pool=\"p\"} 3\nb_total{reason=\"None\"} 0\nc{reason=\"x\"} 1\n",
        );
        assert!(coverage.has("metric", "a_total reason=Full"));
        assert_eq!(coverage.0.len(), 1);
        assert_eq!(Coverage::from_json(&coverage.to_json()), coverage);
    }
}
