//! `NoExecute` taints: pods that do not tolerate them go, at once or when their patience is over.

use super::desk::{Deletion, Desk, PODS};
use super::{Actor, pods};
use crate::api::{Seen, Wanted, meta};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core;
use kerf_model::{Effect, Taint, Toleration};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct TaintEviction {
    /// By node, its `NoExecute` taints; nodes without any are not here.
    tainted: BTreeMap<Arc<str>, Vec<Taint>>,
    bound: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// By pod, when it goes.
    sentences: BTreeMap<Arc<str>, Timestamp>,
    due: BTreeSet<(Timestamp, Arc<str>)>,
}

impl TaintEviction {
    fn see_node(&mut self, seen: &Seen, desk: &Desk) {
        let taints = if seen.gone { Vec::new() } else { expelling(&seen.object.value) };
        let before = if taints.is_empty() {
            self.tainted.remove(&seen.key)
        } else {
            self.tainted.insert(seen.key.clone(), taints.clone())
        };
        if before.unwrap_or_default() == taints {
            return;
        }
        for key in self.bound.get(&seen.key).cloned().unwrap_or_default() {
            if let Some(pod) = desk.get(PODS, &key) {
                self.judge(&key, &pod.value, desk.now());
            }
        }
    }

    fn see_pod(&mut self, seen: &Seen, desk: &Desk) {
        let pod = &seen.object.value;
        let node = pods::node_name(pod);
        if node.is_empty() {
            return;
        }
        let node: Arc<str> = match self.bound.get_key_value(node) {
            Some((node, _)) => node.clone(),
            None => node.into(),
        };
        let bound = self.bound.entry(node.clone()).or_default();
        if seen.gone {
            bound.remove(&seen.key);
            if bound.is_empty() {
                self.bound.remove(&node);
            }
            self.pardon(&seen.key);
            return;
        }
        bound.insert(seen.key.clone());
        if self.tainted.contains_key(&node) {
            self.judge(&seen.key, pod, desk.now());
        }
    }

    fn judge(&mut self, key: &Arc<str>, pod: &Value, now: Timestamp) {
        let none = Vec::new();
        let taints = self.tainted.get(pods::node_name(pod)).unwrap_or(&none);
        let patience =
            if meta::is_deleting(pod) { Patience::Endless } else { patience(taints, pod) };
        let due = match patience {
            Patience::Endless => {
                self.pardon(key);
                return;
            }
            Patience::For(seconds) => now + SignedDuration::from_secs(seconds),
        };
        // The clock runs from the first taint; one that asks for less shortens it.
        if self.sentences.get(key).is_some_and(|known| *known <= due) {
            return;
        }
        self.pardon(key);
        self.sentences.insert(key.clone(), due);
        self.due.insert((due, key.clone()));
    }

    fn pardon(&mut self, key: &Arc<str>) {
        if let Some(due) = self.sentences.remove(key) {
            self.due.remove(&(due, key.clone()));
        }
    }
}

impl Actor for TaintEviction {
    fn watches(&self) -> Wanted {
        Wanted::These(&[("", "nodes"), ("", "pods")])
    }

    fn see(&mut self, seen: &Seen, desk: &Desk) {
        if seen.is("", "nodes") {
            self.see_node(seen, desk);
        } else {
            self.see_pod(seen, desk);
        }
    }

    fn act(&mut self, desk: &Desk) -> Option<Timestamp> {
        while let Some((time, _)) = self.due.first()
            && *time <= desk.now()
        {
            let Some((_, key)) = self.due.pop_first() else { break };
            self.sentences.remove(&key);
            evict(&key, desk);
        }
        self.due.first().map(|(time, _)| *time)
    }
}

/// A pod that is gone by now needs no eviction; any other refusal would be the API server's own trouble.
fn evict(key: &str, desk: &Desk) {
    let Some(pod) = desk.get(PODS, key) else { return };
    let now = desk.timestamp();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
    });
    let _ = desk.change_status(PODS, &pod, |status| pods::set_condition(status, condition, &now));
    let _ = desk.delete(PODS, &pod.value, Deletion::Background);
}

fn expelling(node: &Value) -> Vec<Taint> {
    let taints = super::fitness::NodeFacts::of(node).taints;
    taints.into_iter().filter(|taint| taint.effect == Effect::NoExecute).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Patience {
    Endless,
    For(i64),
}

/// How long a pod may stay: the least patient of the tolerations that it needs.
fn patience(taints: &[Taint], pod: &Value) -> Patience {
    let list = pod["spec"]["tolerations"].as_array().into_iter().flatten();
    let tolerations: Vec<_> =
        list.filter_map(|toleration| core::Toleration::deserialize(toleration).ok()).collect();
    let mut least = None;
    for taint in taints {
        let used = tolerations.iter().filter(|t| Toleration::from(*t).tolerates(taint));
        let mut used = used.peekable();
        if used.peek().is_none() {
            return Patience::For(0);
        }
        for seconds in used.filter_map(|toleration| toleration.toleration_seconds) {
            least = Some(least.map_or(seconds, |known: i64| known.min(seconds)));
        }
    }
    least.map_or(Patience::Endless, |seconds| Patience::For(seconds.max(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_that_of_the_least_patient_toleration() {
        let tolerate = |key: &str, seconds: Option<i64>| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
        let taints = |keys: &[&str]| -> Vec<Taint> {
            keys.iter().map(|key| Taint::new(key, "", Effect::NoExecute)).collect()
        };
        for (keys, tolerations, expected) in [
            (&["a"][..], vec![], Patience::For(0)),
            (&["a"], vec![tolerate("a", Some(300))], Patience::For(300)),
            (&["a"], vec![tolerate("a", None)], Patience::Endless),
            (&["a", "b"], vec![tolerate("a", Some(300))], Patience::For(0)),
            (
                &["a", "b"],
                vec![tolerate("a", Some(300)), tolerate("b", Some(10))],
                Patience::For(10),
            ),
            (&["a"], vec![tolerate("a", Some(-1))], Patience::For(0)),
            (&[], vec![], Patience::Endless),
        ] {
            let pod = json!({ "spec": { "tolerations": tolerations } });
            assert_eq!(patience(&taints(keys), &pod), expected, "{keys:?} {pod}");
        }
    }
}
