//! Settings of the kubelet that no node could run with.
//!
//! The CRD refuses most of them. It lets some pass, such as an empty threshold, and a cluster may have the CRD of another
//! release, which refuses none.

use std::collections::BTreeMap;

use crate::KubeletConfiguration;

/// Why the kubelet's settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKubelet {
    #[error("{field}: {value} is negative")]
    Negative { field: &'static str, value: i32 },
    #[error("{field}: {value} is not between 0 and 100")]
    NotPercent { field: &'static str, value: i32 },
    #[error(
        "imageGCHighThresholdPercent: {high} is not greater than imageGCLowThresholdPercent, which is {low}"
    )]
    ImageGcOrder { high: i32, low: i32 },
    #[error("{field}: {resource} cannot be reserved; use {}", RESERVABLE.join(", "))]
    NotReservable { field: &'static str, resource: String },
    #[error("{field}.{resource}: {value:?} is not a quantity that is zero or more")]
    ReservedAmount { field: &'static str, resource: String, value: String },
    #[error("{field}: {signal} is no signal; use {}", SIGNALS.join(", "))]
    UnknownSignal { field: &'static str, signal: String },
    #[error(
        "{field}.{signal}: {value:?} is neither a percentage from 0% to 100% nor a quantity that is zero or more"
    )]
    Threshold { field: &'static str, signal: String, value: String },
    #[error("{field}: {signal} is missing, which {other} has")]
    Unpaired { field: &'static str, other: &'static str, signal: String },
}

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

impl KubeletConfiguration {
    /// Whether a node can run with these settings; the first that is wrong is named. Nothing is said of
    /// `evictionMaxPodGracePeriod`: for the kubelet a negative one means the pods' own.
    pub fn validate(&self) -> Result<(), InvalidKubelet> {
        for (field, value) in [("maxPods", self.max_pods), ("podsPerCore", self.pods_per_core)] {
            if let Some(value) = value.filter(|value| *value < 0) {
                return Err(InvalidKubelet::Negative { field, value });
            }
        }
        reserved("systemReserved", self.system_reserved.as_ref())?;
        reserved("kubeReserved", self.kube_reserved.as_ref())?;
        thresholds("evictionHard", self.eviction_hard.as_ref())?;
        thresholds("evictionSoft", self.eviction_soft.as_ref())?;
        self.grace_periods()?;
        self.image_gc()
    }

    fn grace_periods(&self) -> Result<(), InvalidKubelet> {
        const SOFT: &str = "evictionSoft";
        const GRACE: &str = "evictionSoftGracePeriod";
        let soft = || self.eviction_soft.iter().flat_map(BTreeMap::keys);
        let grace = || self.eviction_soft_grace_period.iter().flat_map(BTreeMap::keys);
        for signal in grace() {
            known_signal(GRACE, signal)?;
        }
        let unpaired = |field, other, signal: &String| {
            Err(InvalidKubelet::Unpaired { field, other, signal: signal.clone() })
        };
        if let Some(alone) = soft().find(|one| !grace().any(|other| other == *one)) {
            return unpaired(GRACE, SOFT, alone);
        }
        if let Some(alone) = grace().find(|one| !soft().any(|other| other == *one)) {
            return unpaired(SOFT, GRACE, alone);
        }
        Ok(())
    }

    fn image_gc(&self) -> Result<(), InvalidKubelet> {
        let (high, low) =
            (self.image_gc_high_threshold_percent, self.image_gc_low_threshold_percent);
        for (field, value) in
            [("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)]
        {
            if let Some(value) = value.filter(|value| !(0..=100).contains(value)) {
                return Err(InvalidKubelet::NotPercent { field, value });
            }
        }
        match (high, low) {
            (Some(high), Some(low)) if high <= low => {
                Err(InvalidKubelet::ImageGcOrder { high, low })
            }
            _ => Ok(()),
        }
    }
}

fn reserved(
    field: &'static str,
    amounts: Option<&BTreeMap<String, String>>,
) -> Result<(), InvalidKubelet> {
    for (resource, value) in amounts.into_iter().flatten() {
        let (resource, value) = (resource.clone(), value.clone());
        if !RESERVABLE.contains(&resource.as_str()) {
            return Err(InvalidKubelet::NotReservable { field, resource });
        }
        if !is_amount(&value) {
            return Err(InvalidKubelet::ReservedAmount { field, resource, value });
        }
    }
    Ok(())
}

fn thresholds(
    field: &'static str,
    thresholds: Option<&BTreeMap<String, String>>,
) -> Result<(), InvalidKubelet> {
    for (signal, value) in thresholds.into_iter().flatten() {
        known_signal(field, signal)?;
        let is_valid = match value.strip_suffix('%') {
            Some(percent) => {
                percent.parse().is_ok_and(|percent: f64| (0.0..=100.0).contains(&percent))
            }
            None => is_amount(value),
        };
        if !is_valid {
            let (signal, value) = (signal.clone(), value.clone());
            return Err(InvalidKubelet::Threshold { field, signal, value });
        }
    }
    Ok(())
}

fn known_signal(field: &'static str, signal: &str) -> Result<(), InvalidKubelet> {
    if SIGNALS.contains(&signal) {
        return Ok(());
    }
    Err(InvalidKubelet::UnknownSignal { field, signal: signal.to_owned() })
}

/// A quantity as Kubernetes writes it, without a sign that makes it negative.
fn is_amount(text: &str) -> bool {
    const SUFFIXES: [&str; 16] =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let number = text.strip_prefix('+').unwrap_or(text);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (number, suffix) = number.split_at(end);
    let is_number =
        number.contains(|c: char| c.is_ascii_digit()) && number.matches('.').count() < 2;
    let is_exponent = |suffix: &str| {
        suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| exponent.parse::<i32>().is_ok())
    };
    is_number && (SUFFIXES.contains(&suffix) || is_exponent(suffix))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problem(kubelet: &Value) -> Option<String> {
        let kubelet: KubeletConfiguration = serde_json::from_value(kubelet.clone()).unwrap();
        kubelet.validate().err().map(|problem| problem.to_string())
    }

    #[test]
    fn settings_that_a_node_can_run_with_pass() {
        for kubelet in [
            json!({}),
            json!({"maxPods": 0, "podsPerCore": 0, "evictionMaxPodGracePeriod": -1}),
            json!({"systemReserved": {"cpu": "100m", "memory": "1.5Gi", "pid": "+100"}}),
            json!({"kubeReserved": {"ephemeral-storage": "1e9", "cpu": ".5"}}),
            json!({"evictionHard": {"memory.available": "0%", "nodefs.available": "100%"}}),
            json!({"evictionHard": {"imagefs.inodesFree": "99.99%", "pid.available": "1k"}}),
            json!({"evictionSoft": {"memory.available": "1Gi"},
                   "evictionSoftGracePeriod": {"memory.available": "1m"}}),
            json!({"evictionSoft": {}}),
            json!({"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 0}),
            json!({"imageGCLowThresholdPercent": 100}),
        ] {
            assert_eq!(problem(&kubelet), None, "{kubelet}");
        }
    }

    #[test]
    fn settings_that_no_node_can_run_with_are_named() {
        let check = |kubelet: Value, expected: &str| {
            assert_eq!(problem(&kubelet).as_deref(), Some(expected), "{kubelet}");
        };
        check(json!({"maxPods": -1}), "maxPods: -1 is negative");
        check(json!({"podsPerCore": -2}), "podsPerCore: -2 is negative");
        check(
            json!({"kubeReserved": {"pods": "1"}}),
            "kubeReserved: pods cannot be reserved; use cpu, memory, ephemeral-storage, pid",
        );
        for value in ["-1", "", "Gi", "1.2.3", "1 Gi", "1e", "vcpus * 10", "1%"] {
            check(
                json!({"systemReserved": {"cpu": value}}),
                &format!("systemReserved.cpu: {value:?} is not a quantity that is zero or more"),
            );
        }
        check(
            json!({"evictionHard": {"cpu.available": "1%"}}),
            "evictionHard: cpu.available is no signal; use memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available",
        );
        for value in ["", "%", "-1", "-1%", "101%", "x"] {
            check(
                json!({"evictionHard": {"memory.available": value}}),
                &format!(
                    "evictionHard.memory.available: {value:?} is neither a percentage from 0% to 100% nor a quantity that is zero or more"
                ),
            );
        }
        check(
            json!({"evictionSoft": {"memory.available": "1%"}}),
            "evictionSoftGracePeriod: memory.available is missing, which evictionSoft has",
        );
        check(
            json!({"evictionSoftGracePeriod": {"memory.available": "1m"}}),
            "evictionSoft: memory.available is missing, which evictionSoftGracePeriod has",
        );
        check(
            json!({"imageGCLowThresholdPercent": 101}),
            "imageGCLowThresholdPercent: 101 is not between 0 and 100",
        );
        check(
            json!({"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 50}),
            "imageGCHighThresholdPercent: 50 is not greater than imageGCLowThresholdPercent, which is 50",
        );
    }
}
