//! `ReplicaSet`s: as many pods as asked for.

use super::Controller;
use super::desk::{Deletion, Desk, PODS, REPLICA_SETS, Refusal};
use super::fitness::labels;
use super::pods::{self, Children};
use super::queue::Queue;
use crate::api::{Object, Seen, meta};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kerf_model::Selector;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::repeat_n;
use std::sync::Arc;

/// Pods made or deleted in one go, as in kube-controller-manager.
const BURST: usize = 500;

#[derive(Debug, Default)]
pub(super) struct ReplicaSets {
    pods: Children,
    sets: BTreeMap<Arc<str>, Selector>,
    /// Pods that nobody controls.
    orphans: BTreeSet<Arc<str>>,
}

impl ReplicaSets {
    fn scale(
        &self,
        set: &Object,
        key: &str,
        pods: &[Arc<Object>],
        wanted: usize,
        desk: &Desk,
    ) -> Result<(), Refusal> {
        if pods.len() < wanted {
            let template = &set.value["spec"]["template"];
            let mut pod = pods::from_template(REPLICA_SETS, &set.value, template);
            meta::set(&mut pod, "generateName", pods::generate_name(&set.value));
            return desk.create_pods(key, repeat_n(pod, (wanted - pods.len()).min(BURST)));
        }
        if pods.len() == wanted {
            return Ok(());
        }
        let crowds = self.crowds(set, desk);
        let mut ranked = pods.to_vec();
        ranked.sort_by_cached_key(|pod| rank(&pod.value, &crowds));
        for pod in ranked.iter().take((pods.len() - wanted).min(BURST)) {
            desk.delete(PODS, &pod.value, Deletion::Background)?;
        }
        Ok(())
    }

    /// How many pods each node has of the sets that belong together. A set of its own knows of no crowds, as in
    /// kube-controller-manager, which looks for the sets of the same deployment.
    fn crowds(&self, set: &Object, desk: &Desk) -> BTreeMap<String, usize> {
        let mut crowds = BTreeMap::new();
        let Some((_, _, owner)) = pods::controller(&set.value) else { return crowds };
        for sibling in desk.list(REPLICA_SETS, meta::namespace(&set.value)) {
            if pods::controller(&sibling.value).is_none_or(|(_, _, uid)| uid != owner) {
                continue;
            }
            for pod in self.pods.of(&sibling.value) {
                if pods::is_active(&pod.value) {
                    *crowds.entry(pods::node_name(&pod.value).to_owned()).or_default() += 1;
                }
            }
        }
        crowds
    }

    /// Takes in orphans that the set selects, and lets its pods go that it does not select any more. Whether there were any.
    fn claim(&self, set: &Object, key: &str, desk: &Desk) -> Result<bool, Refusal> {
        let Some(selector) = self.sets.get(key) else { return Ok(false) };
        let mut changed = false;
        let selected = |pod: &Value| selector.selects(&labels(meta::field(pod, "labels")));
        let namespace = format!("{}/", meta::namespace(&set.value));
        let orphans = self.orphans.range(Arc::from(namespace.as_str())..);
        for orphan in orphans.take_while(|orphan| orphan.starts_with(&namespace)) {
            let Some(pod) = desk.get(PODS, orphan) else { continue };
            if pods::is_active(&pod.value) && selected(&pod.value) {
                let owner = pods::owner_reference(REPLICA_SETS, &set.value);
                changed |= set_owners(&pod, json!([owner]), desk)?;
            }
        }
        for pod in self.pods.of(&set.value) {
            if !meta::is_deleting(&pod.value) && !selected(&pod.value) {
                changed |= set_owners(&pod, Value::Null, desk)?;
            }
        }
        Ok(changed)
    }
}

/// Whether it was done: a pod that has moved on is heard of.
fn set_owners(pod: &Object, owners: Value, desk: &Desk) -> Result<bool, Refusal> {
    let mut changed = pod.value.clone();
    if owners.is_null() {
        meta::unset(&mut changed, "ownerReferences");
    } else {
        meta::set(&mut changed, "ownerReferences", owners);
    }
    match desk.update(PODS, &changed) {
        Err(refusal) if !refusal.is_overtaken() => Err(refusal),
        outcome => Ok(outcome.is_ok()),
    }
}

impl Controller for ReplicaSets {
    fn watches(&self) -> &'static [(&'static str, &'static str)] {
        &[("apps", "replicasets"), ("", "pods")]
    }

    fn see(&mut self, seen: &Seen, queue: &mut Queue) {
        let value = &seen.object.value;
        if seen.is("apps", "replicasets") {
            if seen.gone {
                self.sets.remove(&seen.key);
            } else {
                let selector = LabelSelector::deserialize(&value["spec"]["selector"]).ok();
                self.sets.insert(seen.key.clone(), Selector::from_api(selector.as_ref()));
            }
            queue.add(seen.key.clone());
            return;
        }
        if seen.gone || pods::controller(value).is_some() {
            self.orphans.remove(&seen.key);
        } else if self.orphans.insert(seen.key.clone()) || seen.before.is_some() {
            let namespace = format!("{}/", meta::namespace(value));
            let labels = labels(meta::field(value, "labels"));
            let sets = self.sets.range(Arc::from(namespace.as_str())..);
            let sets = sets.take_while(|(key, _)| key.starts_with(&namespace));
            let sets = sets.filter(|(_, selector)| selector.selects(&labels));
            sets.for_each(|(key, _)| queue.add(key.clone()));
        }
        let owners = self.pods.see(seen).into_iter();
        owners.filter(|(kind, _)| kind == REPLICA_SETS.name).for_each(|(_, key)| queue.add(key));
    }

    fn reconcile(&mut self, key: &str, queue: &mut Queue, desk: &Desk) -> Result<(), Refusal> {
        let Some(set) = desk.get(REPLICA_SETS, key) else { return Ok(()) };
        if !meta::is_deleting(&set.value) && self.claim(&set, key, desk)? {
            // Counted when they are seen with their new owner, or without one.
            return Ok(());
        }
        let mut pods = self.pods.of(&set.value);
        pods.retain(|pod| pods::is_active(&pod.value));
        let spec = &set.value["spec"];
        let wanted = usize::try_from(spec["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
        let mut failure = None;
        if !meta::is_deleting(&set.value) {
            failure = self.scale(&set, key, &pods, wanted, desk).err();
        }
        if pods.len().abs_diff(wanted) > BURST {
            queue.add(key);
        }
        let least = spec["minReadySeconds"].as_i64().unwrap_or(0);
        let counts = Counts::of(&pods, &spec["template"], least, key, queue, desk);
        desk.change_status(REPLICA_SETS, &set, |status| {
            // What was just made or deleted is counted when it is seen.
            *status = counts.status(&set.value);
        })?;
        failure.map_or(Ok(()), Err)
    }
}

/// Pods that serve least go first: not placed, not running, not ready, cheap to delete, crowded, young.
type Rank = (bool, u8, bool, i32, Reverse<usize>, Reverse<String>, Reverse<String>, String);

fn rank(pod: &Value, crowds: &BTreeMap<String, usize>) -> Rank {
    let node = pods::node_name(pod);
    let phase = match pods::phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let since = pods::condition(pod, "Ready")
        .map_or("", |ready| ready["lastTransitionTime"].as_str().unwrap_or_default());
    (
        !node.is_empty(),
        phase,
        pods::is_ready(pod),
        deletion_cost(pod),
        Reverse(crowds.get(node).copied().unwrap_or(0)),
        Reverse(since.to_owned()),
        Reverse(meta::text(pod, &["metadata", "creationTimestamp"]).to_owned()),
        meta::name(pod).to_owned(),
    )
}

/// What cannot be read counts as nothing. kube-controller-manager reads neither a plus nor a zero in front.
fn deletion_cost(pod: &Value) -> i32 {
    let cost =
        meta::text(pod, &["metadata", "annotations", "controller.kubernetes.io/pod-deletion-cost"]);
    let well_begun = cost == "0" || cost.starts_with(|first| matches!(first, '-' | '1'..='9'));
    cost.parse().ok().filter(|_| well_begun).unwrap_or(0)
}

/// How the pods of a workload are doing.
#[derive(Debug, Default)]
struct Counts {
    replicas: usize,
    labelled: usize,
    ready: usize,
    available: usize,
}

impl Counts {
    fn of(
        pods: &[Arc<Object>],
        template: &Value,
        least: i64,
        key: &str,
        queue: &mut Queue,
        desk: &Desk,
    ) -> Self {
        let mut counts = Self { replicas: pods.len(), ..Self::default() };
        let wanted = template["metadata"]["labels"].as_object();
        for pod in pods {
            let labels = meta::field(&pod.value, "labels");
            counts.labelled +=
                usize::from(wanted.into_iter().flatten().all(|(key, value)| &labels[key] == value));
            let Some(from) = pods::available_from(&pod.value, least) else { continue };
            counts.ready += 1;
            if from <= desk.now() {
                counts.available += 1;
            } else {
                queue.add_at(from, key);
            }
        }
        counts
    }

    fn status(&self, set: &Value) -> Value {
        let mut status = json!({ "replicas": self.replicas, "observedGeneration": meta::field(set, "generation") });
        // Go leaves zeroes out.
        for (name, count) in [
            ("fullyLabeledReplicas", self.labelled),
            ("readyReplicas", self.ready),
            ("availableReplicas", self.available),
        ] {
            if count > 0 {
                status[name] = count.into();
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

    fn pod(name: &str, node: &str, phase: &str, ready: Option<&str>) -> Value {
        let since = ready.map(|minute| format!("2026-01-01T00:{minute}:00Z"));
        let status = if since.is_some() { "True" } else { "False" };
        json!({
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": node},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": since},
            ]},
        })
    }

    fn costing(mut pod: Value, cost: &str) -> Value {
        pod["metadata"]["annotations"] = json!({COST: cost});
        pod
    }

    /// The order of kube-controller-manager: each row goes before the next, and every criterion outweighs all that come after it.
    #[test]
    fn pods_go_in_the_order_of_kube_controller_manager() {
        let crowds = BTreeMap::from([("crowded".to_owned(), 3), ("quiet".to_owned(), 1)]);
        let runs = |name: &str, node: &str, minute: &str| pod(name, node, "Running", Some(minute));
        let old = |mut pod: Value| {
            pod["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z".into();
            pod
        };
        let order = [
            ("without a node", costing(pod("a", "", "Pending", None), "9")),
            ("pending", costing(pod("b", "quiet", "Pending", None), "8")),
            ("unknown", costing(pod("c", "quiet", "Unknown", None), "7")),
            ("not ready", costing(pod("d", "quiet", "Running", None), "6")),
            ("of the least cost", costing(runs("e", "quiet", "01"), "-2147483648")),
            ("of a low cost", costing(runs("f", "quiet", "01"), "-5")),
            ("among many", runs("g", "crowded", "01")),
            ("young", runs("h", "quiet", "09")),
            ("ready for longer", runs("i", "quiet", "01")),
            ("created earlier", old(runs("j", "quiet", "01"))),
            ("of a high cost", costing(runs("k", "crowded", "09"), "5")),
        ];
        for pair in order.windows(2) {
            let [(first, one), (second, other)] = pair else { continue };
            assert!(rank(one, &crowds) < rank(other, &crowds), "{first} before {second}");
        }
    }

    #[test]
    fn a_cost_that_cannot_be_read_is_none() {
        for (text, cost) in [
            ("5", 5),
            ("-5", -5),
            ("0", 0),
            ("-2147483648", i32::MIN),
            ("2147483647", i32::MAX),
            ("2147483648", 0),
            ("+5", 0),
            ("05", 0),
            ("5.0", 0),
            ("", 0),
            ("much", 0),
        ] {
            let pod = costing(pod("a", "n", "Running", None), text);
            assert_eq!(deletion_cost(&pod), cost, "{text:?}");
        }
    }
}
