//! What the runs have reached of what there is, and what never.

use serde_json::{Value, json};

/// Events, reasons, conditions and ends that a run should reach. `metric` names end with the label and its value. What only
/// `kerf explain` says (that a node is not empty, that a pool is static) is not among them.
const KNOWN: &[(&str, &[&str])] = &[
    (
        "event",
        &[
            "AwaitingVolumeDetachment",
            "ConsolidationApproved",
            "ConsolidationCandidate",
            "ConsolidationRejected",
            "Disrupted",
            "DisruptionBlocked",
            "DisruptionLaunching",
            "DisruptionTerminating",
            "DisruptionWaitingReadiness",
            "DriftBlocked",
            "Evicted",
            "FailedDraining",
            "FailedScheduling",
            "Finalized",
            "InsufficientCapacityError",
            "NoCompatibleInstanceTypes",
            "Nominated",
            "TerminationGracePeriodExpiring",
            "Unconsolidatable",
            "Unreadable",
        ],
    ),
    (
        "refusal",
        &[
            "AbsurdRequest",
            "InstanceTypes",
            "Limits",
            "NodeLimit",
            "PodAffinity",
            "PodAntiAffinity",
            "Requirements",
            "Taint",
            "TooManyConstraints",
            "TopologySpread",
            "UnknownResource",
            "Volumes",
        ],
    ),
    (
        "blocked",
        &[
            "already_disrupted",
            "budget",
            "consolidation_disabled",
            "destination_grace_period",
            "do_not_disrupt",
            "grace_period",
            "limit",
            "min_values",
            "multiple_replacements",
            "no_feasible_schedule",
            "nominated",
            "not_consolidatable",
            "not_drifted",
            "not_ready",
            "pdb",
            "pool_not_found",
            "price_factor",
            "promised_savings_lost",
            "same_or_more_expensive_replacement",
            "savings_threshold",
            "score",
            "setback",
            "spot_flexibility",
            "static_node_limit",
            "unknown_instance_types",
            "unknown_price",
            "unreadable",
            "utilization",
            "validation_budget",
            "validation_churn",
        ],
    ),
    (
        "condition",
        &[
            "nodeclaims Consolidatable=True",
            "nodeclaims DisruptionReason=True",
            "nodeclaims Drained=Unknown",
            "nodeclaims Drained=True",
            "nodeclaims Drifted=True",
            "nodeclaims Initialized=True",
            "nodeclaims InstanceTerminating=True",
            "nodeclaims Launched=Unknown",
            "nodeclaims Registered=False",
            "nodeclaims VolumesDetached=False",
            "nodeclaims VolumesDetached=True",
            "nodepools DriftBlocked=True",
            "nodepools NodeClassReady=False",
            "nodepools NodeRegistrationHealthy=False",
            "nodepools ReplicasSatisfied=False",
            "nodepools ValidationSucceeded=False",
        ],
    ),
    ("end", &["Fenced", "Lost", "Lost::Taken"]),
];

/// What all of these have reached together.
pub(super) fn sum<'a>(all: impl Iterator<Item = &'a Value>) -> Value {
    let mut sum = json!({});
    for one in all {
        for (what, names) in one.as_object().into_iter().flatten() {
            for (name, count) in names.as_object().into_iter().flatten() {
                let so_far = sum[what][name].as_u64().unwrap_or_default();
                sum[what][name] = json!(so_far + count.as_u64().unwrap_or_default());
            }
        }
    }
    sum
}

fn is_reached(reached: &Value, what: &str, name: &str) -> bool {
    let mut names = reached[what].as_object().into_iter().flatten();
    names.any(|(reached, _)| {
        reached == name || reached.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '))
    })
}

/// What is known and was not reached.
pub(super) fn never(reached: &Value) -> Vec<String> {
    let all = KNOWN.iter().flat_map(|(what, names)| names.iter().map(move |name| (what, name)));
    let missed = all.filter(|(what, name)| !is_reached(reached, what, name));
    missed.map(|(what, name)| format!("{what} {name}")).collect()
}

pub(super) fn print(reached: &Value) {
    for (what, names) in reached.as_object().into_iter().flatten() {
        println!("\n{what}");
        for (name, count) in names.as_object().into_iter().flatten() {
            println!("  {count:>8} {name}");
        }
    }
    println!("\nnever");
    for missed in never(reached) {
        println!("           {missed}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_was_never_reached() {
        let one = json!({"end": {"Fenced": 1}, "condition": {"nodeclaims Drifted=True NodePoolDrifted": 2}});
        let both = sum([&one, &one].into_iter());
        assert_eq!(both["end"]["Fenced"], 2);
        let never = never(&both);
        assert!(never.contains(&"end Lost".to_owned()));
        assert!(!never.contains(&"end Fenced".to_owned()));
        assert!(!never.contains(&"condition nodeclaims Drifted=True".to_owned()));
    }
}
