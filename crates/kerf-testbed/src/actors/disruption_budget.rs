//! `PodDisruptionBudget`s: how many more pods may be evicted.

use super::deployment::share;
use super::desk::{BUDGETS, DEPLOYMENTS, Desk, Kind, PODS, REPLICA_SETS, Refusal, STATEFUL_SETS};
use super::queue::Queue;
use super::{Controller, pods};
use crate::api::selector::Labels;
use crate::api::{Object, Seen, meta};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An evicted pod that is still there after this time is not going.
const DISRUPTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

#[derive(Debug, Default)]
pub(super) struct DisruptionBudgets {
    /// By namespace.
    budgets: BTreeMap<String, BTreeSet<Arc<str>>>,
}

impl Controller for DisruptionBudgets {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("policy", "poddisruptionbudgets"),
            ("", "pods"),
            ("apps", "deployments"),
            ("apps", "statefulsets"),
        ]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        let namespace = meta::namespace(&seen.object.value);
        if seen.is("policy", "poddisruptionbudgets") {
            let budgets = self.budgets.entry(namespace.to_owned()).or_default();
            if seen.gone {
                budgets.remove(&seen.key);
            } else {
                budgets.insert(seen.key.clone());
            }
            queue.add(seen.key.clone());
            return;
        }
        // Which budgets cover a pod is cheaper to find out when a budget is looked at.
        let budgets = self.budgets.get(namespace).into_iter().flatten();
        budgets.for_each(|budget| queue.add(budget.clone()));
    }

    fn reconcile(&mut self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let Some(budget) = desk.get(BUDGETS, key) else { return Ok(()) };
        let selector = Labels::from_object(&budget.value["spec"]["selector"]);
        let mut pods = desk.list(PODS, meta::namespace(&budget.value));
        pods.retain(|pod| selector.matches(&pod.value) && !pods::is_finished(&pod.value));
        let disrupted = still_disrupted(&budget.value, &pods, key, queue, desk);
        let healthy = pods.iter().filter(|pod| {
            pods::is_ready(&pod.value)
                && !meta::is_deleting(&pod.value)
                && !disrupted.contains_key(meta::name(&pod.value))
        });
        let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
        let (expected, desired) = wanted(&budget.value["spec"], &pods, desk);
        let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
        let now = desk.timestamp();
        desk.change_status(BUDGETS, &budget, |status| {
            let map = meta::map_mut(status);
            map.insert("disruptionsAllowed".into(), allowed.into());
            map.insert("currentHealthy".into(), healthy.into());
            map.insert("desiredHealthy".into(), desired.into());
            map.insert("expectedPods".into(), expected.into());
            map.insert(
                "observedGeneration".into(),
                meta::field(&budget.value, "generation").clone(),
            );
            if disrupted.is_empty() {
                map.remove("disruptedPods");
            } else {
                map.insert("disruptedPods".into(), json!(disrupted));
            }
            let (text, reason) = if allowed > 0 {
                ("True", "SufficientPods")
            } else {
                ("False", "InsufficientPods")
            };
            let condition = json!({
                "type": "DisruptionAllowed", "status": text, "reason": reason, "message": "",
                "observedGeneration": meta::field(&budget.value, "generation"),
            });
            pods::set_condition(status, condition, &now);
        })
    }
}

/// Pods that were evicted and are not yet seen to go.
fn still_disrupted(
    budget: &Value,
    pods: &[Arc<Object>],
    key: &str,
    queue: &mut Queue,
    desk: &Desk,
) -> BTreeMap<String, Value> {
    let mut left = BTreeMap::new();
    for (name, time) in budget["status"]["disruptedPods"].as_object().into_iter().flatten() {
        let waiting =
            pods.iter().any(|pod| meta::name(&pod.value) == name && !meta::is_deleting(&pod.value));
        let ends = meta::parse_time(time).unwrap_or(desk.now()) + DISRUPTION_TIMEOUT;
        if waiting && ends > desk.now() {
            queue.add_at(ends, key);
            left.insert(name.clone(), time.clone());
        }
    }
    left
}

/// How many pods there should be, and how many of them must be healthy.
fn wanted(spec: &Value, pods: &[Arc<Object>], desk: &Desk) -> (i64, i64) {
    let there = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    if !spec["maxUnavailable"].is_null() {
        let expected = expected_scale(pods, desk);
        let missing = share(&spec["maxUnavailable"], expected, true);
        return (expected, (expected - missing).max(0));
    }
    match &spec["minAvailable"] {
        Value::Null => (there, 0),
        Value::String(percent) => {
            let expected = expected_scale(pods, desk);
            (expected, share(&Value::from(percent.as_str()), expected, true))
        }
        number => (there, number.as_i64().unwrap_or(0)),
    }
}

/// The replicas that the pods' workloads ask for. A pod that nothing controls counts for nothing.
fn expected_scale(pods: &[Arc<Object>], desk: &Desk) -> i64 {
    let mut scales: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let Some((kind, name, uid)) = pods::controller(&pod.value) else { continue };
        if scales.contains_key(uid) {
            continue;
        }
        let namespace = meta::namespace(&pod.value);
        let find = |kind: Kind, name: &str| desk.get(kind, &format!("{namespace}/{name}"));
        let owner = match kind {
            "ReplicaSet" => find(REPLICA_SETS, name),
            "StatefulSet" => find(STATEFUL_SETS, name),
            _ => None,
        };
        let Some(owner) = owner else { continue };
        let above = pods::controller(&owner.value).filter(|(kind, _, _)| *kind == "Deployment");
        let top = above.and_then(|(_, name, _)| find(DEPLOYMENTS, name)).unwrap_or(owner.clone());
        let replicas = top.value["spec"]["replicas"].as_i64().unwrap_or(1);
        // The sets of one deployment share its scale.
        scales.insert(uid.to_owned(), 0);
        scales.insert(meta::uid(&top.value).to_owned(), replicas);
    }
    scales.values().sum()
}
