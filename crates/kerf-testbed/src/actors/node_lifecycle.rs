//! Node lifecycle: what a kubelet's silence means, and the taints that follow from a node's conditions.

use super::desk::{Desk, NODES, PODS, Refusal};
use super::fitness::UNSCHEDULABLE;
use super::queue::Queue;
use super::{Actor, pods};
use crate::api::{Object, Seen, Wanted, meta};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node whose kubelet has been silent for this long is unreachable: `--node-monitor-grace-period`.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// A new node may take this long until its kubelet first reports: `--node-startup-grace-period`.
const STARTUP_GRACE: SignedDuration = SignedDuration::from_mins(1);
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Condition, its bad status, the taint for it.
const PRESSURES: [(&str, &str, &str); 4] = [
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

#[derive(Debug, Default)]
pub(super) struct NodeLifecycle {
    queue: Queue,
    bound: BTreeMap<String, BTreeSet<Arc<str>>>,
    silent: BTreeMap<String, Timestamp>,
}

impl Actor for NodeLifecycle {
    fn watches(&self) -> Wanted {
        Wanted::These(&[("", "nodes"), ("", "pods")])
    }

    fn see(&mut self, seen: &Seen, _: &Desk) {
        if seen.is("", "nodes") {
            if !seen.gone {
                self.queue.add(seen.key.clone());
                if let Some(due) = due_to_report(&seen.object.value) {
                    self.queue.add_at(due, seen.key.clone());
                }
            }
            return;
        }
        let node = pods::node_name(&seen.object.value);
        if node.is_empty() {
            return;
        }
        let bound = self.bound.entry(node.to_owned()).or_default();
        if seen.gone {
            bound.remove(&seen.key);
            if bound.is_empty() {
                self.bound.remove(node);
            }
        } else {
            bound.insert(seen.key.clone());
        }
    }

    fn act(&mut self, desk: &Desk) -> Option<Timestamp> {
        let silent = desk.outages.all();
        for (name, since) in &silent {
            if self.silent.get(name) != Some(since) {
                self.queue.add_at(*since + GRACE, name.as_str());
            }
        }
        self.silent = silent;
        for key in self.queue.take(desk.now()) {
            match self.reconcile(&key, desk) {
                Ok(()) => self.queue.succeeded(&key),
                Err(_) => self.queue.retry(desk.now(), key),
            }
        }
        self.queue.next(desk.now())
    }
}

impl NodeLifecycle {
    fn reconcile(&self, name: &str, desk: &Desk) -> Result<(), Refusal> {
        let Some(node) = desk.get(NODES, name) else { return Ok(()) };
        if desk.outages.since(name).is_some_and(|since| since + GRACE <= desk.now()) {
            declare_unknown(
                &node,
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
                desk,
            )?;
        } else if due_to_report(&node.value).is_some_and(|due| due <= desk.now()) {
            let message = "Kubelet never posted node status.";
            declare_unknown(&node, "NodeStatusNeverUpdated", message, desk)?;
        }
        let Some(node) = desk.get(NODES, name) else { return Ok(()) };
        // Until its kubelet reports or is given up, a node keeps the taint it was admitted with.
        let Some(ready) = pods::condition(&node.value, "Ready") else { return Ok(()) };
        let status = ready["status"].as_str().unwrap_or_default();
        // A kubelet that says itself that its node is not ready still speaks for its pods.
        if status == "Unknown" {
            self.mark_pods_not_ready(name, desk)?;
        }
        set_taints(&node, status, desk)
    }

    /// Nobody knows how pods on a lost node are doing, so they are taken out of service.
    fn mark_pods_not_ready(&self, node: &str, desk: &Desk) -> Result<(), Refusal> {
        let now = desk.timestamp();
        for key in self.bound.get(node).into_iter().flatten() {
            let Some(pod) = desk.get(PODS, key).filter(|pod| pods::is_ready(&pod.value)) else {
                continue;
            };
            let condition = json!({ "type": "Ready", "status": "False", "reason": "NodeNotReady" });
            let marked = desk
                .change_status(PODS, &pod, |status| pods::set_condition(status, condition, &now));
            match marked {
                Err(refusal) if !refusal.is_overtaken() => return Err(refusal),
                _ => {}
            }
        }
        Ok(())
    }
}

/// When a node that nobody has reported on is given up.
fn due_to_report(node: &Value) -> Option<Timestamp> {
    if pods::condition(node, "Ready").is_some() {
        return None;
    }
    Some(meta::parse_time(meta::field(node, "creationTimestamp"))? + STARTUP_GRACE)
}

fn declare_unknown(node: &Object, reason: &str, message: &str, desk: &Desk) -> Result<(), Refusal> {
    let now = desk.timestamp();
    desk.change_status(NODES, node, |status| {
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            let condition = json!({
                "type": kind, "status": "Unknown", "reason": reason, "message": message,
            });
            pods::set_condition(status, condition, &now);
        }
    })
}

fn set_taints(node: &Object, ready: &str, desk: &Desk) -> Result<(), Refusal> {
    let trouble = match ready {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    };
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    wanted.extend(trouble.map(|key| (key, "NoSchedule")));
    for (kind, bad, key) in PRESSURES {
        if pods::condition(&node.value, kind).is_some_and(|c| c["status"] == bad) {
            wanted.push((key, "NoSchedule"));
        }
    }
    if node.value["spec"]["unschedulable"] == true {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    wanted.extend(trouble.map(|key| (key, "NoExecute")));
    let ours = |key: &str, effect: &str| match effect {
        "NoExecute" => key == NOT_READY || key == UNREACHABLE,
        "NoSchedule" => {
            [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&key)
                || PRESSURES.iter().any(|(_, _, taint)| *taint == key)
        }
        _ => false,
    };
    let mut value = node.value.clone();
    let taints = meta::object_mut(&mut value, "spec").entry("taints").or_insert_with(|| json!([]));
    let Some(taints) = taints.as_array_mut() else { return Ok(()) };
    let identity = |taint: &Value| {
        (meta::text(taint, &["key"]).to_owned(), meta::text(taint, &["effect"]).to_owned())
    };
    let before = taints.clone();
    taints.retain(|taint| {
        let (key, effect) = identity(taint);
        !ours(&key, &effect) || wanted.contains(&(key.as_str(), effect.as_str()))
    });
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| identity(taint) == (key.to_owned(), effect.to_owned())) {
            taints.push(json!({ "key": key, "effect": effect, "timeAdded": desk.timestamp() }));
        }
    }
    if *taints == before {
        return Ok(());
    }
    match desk.update(NODES, &value) {
        Err(refusal) if !refusal.is_overtaken() => Err(refusal),
        _ => Ok(()),
    }
}
