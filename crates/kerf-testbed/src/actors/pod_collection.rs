//! Pods that nobody will bring to an end: those of nodes that are gone, and those that never got a node.

use super::desk::{Deletion, Desk, NODES, PODS};
use super::{Actor, pods};
use crate::api::{Seen, Wanted, meta};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often the real collector looks.
const PERIOD: i64 = 20;
/// How long a node must have been missing when it looks again.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

#[derive(Debug, Default)]
pub(super) struct PodCollection {
    nodes: BTreeSet<Arc<str>>,
    bound: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Nodes that pods name and that do not exist, and when their pods go.
    missing: BTreeMap<Arc<str>, Timestamp>,
    /// Pods that are deleted and have no node.
    unplaced: BTreeSet<Arc<str>>,
}

/// The collector looks at whole multiples of its period, so that a run does not depend on when it began.
fn next_look(time: Timestamp) -> Timestamp {
    let second = (time.as_second().div_euclid(PERIOD) + 1) * PERIOD;
    Timestamp::from_second(second).unwrap_or(time)
}

impl PodCollection {
    fn suspect(&mut self, node: &Arc<str>, now: Timestamp) {
        let has_pods = self.bound.contains_key(node);
        if has_pods && !self.nodes.contains(node) && !self.missing.contains_key(node) {
            let noticed = next_look(now);
            self.missing.insert(node.clone(), next_look(noticed + QUARANTINE));
        }
    }
}

impl Actor for PodCollection {
    fn watches(&self) -> Wanted {
        Wanted::These(&[("", "nodes"), ("", "pods")])
    }

    fn see(&mut self, seen: &Seen, desk: &Desk) {
        if seen.is("", "nodes") {
            if seen.gone {
                self.nodes.remove(&seen.key);
                self.suspect(&seen.key, desk.now());
            } else {
                self.nodes.insert(seen.key.clone());
                self.missing.remove(&seen.key);
            }
            return;
        }
        let pod = &seen.object.value;
        let node = pods::node_name(pod);
        if node.is_empty() {
            // Without a node such a pod goes at once, unless a finalizer held it when it was deleted.
            if !seen.gone && meta::is_deleting(pod) {
                self.unplaced.insert(seen.key.clone());
            }
            return;
        }
        let node: Arc<str> = match self.bound.get_key_value(node) {
            Some((node, _)) => node.clone(),
            None => node.into(),
        };
        if seen.gone {
            if let Some(bound) = self.bound.get_mut(&node) {
                bound.remove(&seen.key);
                if bound.is_empty() {
                    self.bound.remove(&node);
                    self.missing.remove(&node);
                }
            }
            return;
        }
        self.bound.entry(node.clone()).or_default().insert(seen.key.clone());
        self.suspect(&node, desk.now());
    }

    fn act(&mut self, desk: &Desk) -> Option<Timestamp> {
        let now = desk.now();
        let over: Vec<_> = self
            .missing
            .iter()
            .filter(|(node, due)| **due <= now && desk.get(NODES, node).is_none())
            .map(|(node, _)| node.clone())
            .collect();
        for node in over {
            self.missing.remove(&node);
            for key in self.bound.get(&node).into_iter().flatten() {
                collect(key, desk);
            }
        }
        for key in std::mem::take(&mut self.unplaced) {
            if let Some(pod) = desk.get(PODS, &key) {
                let _ = desk.delete(PODS, &pod.value, Deletion::Forced);
            }
        }
        self.missing.values().min().copied()
    }
}

/// A pod that is gone by now needs no collecting, and one that cannot be deleted is somebody's finalizer's business.
fn collect(key: &str, desk: &Desk) {
    let Some(pod) = desk.get(PODS, key) else { return };
    let now = desk.timestamp();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
    });
    if !pods::is_finished(&pod.value) {
        let _ = desk.change_status(PODS, &pod, |status| {
            status["phase"] = "Failed".into();
            pods::set_condition(status, condition, &now);
        });
    }
    let _ = desk.delete(PODS, &pod.value, Deletion::Forced);
}
