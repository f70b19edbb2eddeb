//! The default scheduler: puts pods on nodes that exist, and says why where it cannot.
//!
//! It knows nothing of what Kerf has planned.

mod demand;
mod domains;
mod filter;
mod floor;
mod preemption;
mod score;
mod volumes;

use super::desk::{Desk, EVENTS, PODS, REPLICA_SETS, SERVICES, STATEFUL_SETS};
use super::{Actor, fitness, pods};
use crate::api::{Object, Seen, Wanted, meta};
use crate::log::digest;
use crate::random::Random;
use demand::{Demand, Lanes};
use filter::{NOT_NAMED, Outlook, Reason};
use floor::{Floor, Slot};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kerf_model::selector::LabelTest;
use kerf_model::{Labels, Selector};
use preemption::Nomination;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use volumes::Volumes;

const NAME: &str = "default-scheduler";
/// A pod that nothing could have helped is tried again anyway after this time, as in kube-scheduler.
const FLUSH: SignedDuration = SignedDuration::from_mins(5);
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// Pods per turn: others act in between.
const BATCH: usize = 1_000;
/// Below this many nodes, all of them are looked at.
const FEW_NODES: usize = 100;

#[derive(Debug)]
pub(super) struct Scheduler {
    floor: Floor,
    lanes: Lanes,
    random: Random,
    preempts: bool,
    /// Pods for which room is being made, and where.
    nominated: BTreeMap<Arc<str>, Nomination>,
    waiting: BTreeMap<Arc<str>, Waiting>,
    /// To be tried now, by priority and age.
    active: BTreeSet<(Reverse<i64>, u64, Arc<str>)>,
    /// To be tried at a time: backing off, or left over.
    later: BTreeSet<(Timestamp, Arc<str>)>,
    /// Something happened that may let pods in.
    stirred: bool,
    /// Pods came: of interest to those that mind their neighbours.
    moved: bool,
    next_number: u64,
    next_start: usize,
}

/// A pod without a node.
#[derive(Debug)]
struct Waiting {
    number: u64,
    priority: i64,
    attempts: u32,
    is_active: bool,
    may_try: Timestamp,
    minds_neighbours: bool,
}

impl Scheduler {
    pub(super) fn new(random: Random, preempts: bool) -> Self {
        Self {
            floor: Floor::default(),
            lanes: Lanes::default(),
            random,
            preempts,
            nominated: BTreeMap::new(),
            waiting: BTreeMap::new(),
            active: BTreeSet::new(),
            later: BTreeSet::new(),
            stirred: false,
            moved: false,
            next_number: 0,
            next_start: 0,
        }
    }

    fn see_pod(&mut self, seen: &Seen) {
        let pod = &seen.object.value;
        let node = pods::node_name(pod);
        if seen.gone || pods::is_finished(pod) {
            self.stop_waiting(&seen.key);
            self.stirred |= self.floor.remove_pod(&seen.key);
            return;
        }
        if node.is_empty() {
            self.see_waiting(seen);
            return;
        }
        self.stop_waiting(&seen.key);
        let (uid, is_leaving) = (meta::uid(pod), meta::is_deleting(pod));
        let labels_changed = seen.before.as_ref().is_some_and(|before| {
            meta::field(&before.value, "labels") != meta::field(pod, "labels")
        });
        let known = self.floor.pod(&seen.key).map(|(known, demand, leaving)| {
            (known == uid && leaving == is_leaving, demand.clone())
        });
        let demand = match known {
            Some((true, _)) if !labels_changed => return,
            Some((_, demand)) if !labels_changed => Some(demand),
            _ => Demand::of(pod, &mut self.lanes).map(Arc::new),
        };
        if let Some(demand) = demand {
            self.floor.put_pod(&seen.key, uid, node, &demand, is_leaving);
            self.moved = true;
        }
    }

    fn see_waiting(&mut self, seen: &Seen) {
        let spec = &seen.object.value["spec"];
        let ours = spec["schedulerName"] == NAME;
        let gated = spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
        if !ours || gated || meta::is_deleting(&seen.object.value) {
            self.stop_waiting(&seen.key);
            return;
        }
        if self.waiting.contains_key(&seen.key) {
            return;
        }
        self.next_number += 1;
        let waiting = Waiting {
            number: self.next_number,
            priority: spec["priority"].as_i64().unwrap_or(0),
            attempts: 0,
            is_active: true,
            may_try: Timestamp::MIN,
            minds_neighbours: false,
        };
        self.active.insert((Reverse(waiting.priority), waiting.number, seen.key.clone()));
        self.waiting.insert(seen.key.clone(), waiting);
    }

    fn stop_waiting(&mut self, key: &Arc<str>) {
        self.nominated.remove(key);
        if let Some(waiting) = self.waiting.remove(key) {
            self.active.remove(&(Reverse(waiting.priority), waiting.number, key.clone()));
        }
    }

    /// Gives another try to pods that what happened may help, once their backoff is over.
    fn wake(&mut self, now: Timestamp) {
        let (stirred, moved) = (std::mem::take(&mut self.stirred), std::mem::take(&mut self.moved));
        if stirred || moved {
            for (key, waiting) in &mut self.waiting {
                if waiting.is_active || !(stirred || waiting.minds_neighbours) {
                    continue;
                }
                if waiting.may_try <= now {
                    waiting.is_active = true;
                    self.active.insert((Reverse(waiting.priority), waiting.number, key.clone()));
                } else {
                    self.later.insert((waiting.may_try, key.clone()));
                }
            }
        }
        while let Some((time, _)) = self.later.first()
            && *time <= now
        {
            let Some((_, key)) = self.later.pop_first() else { break };
            if let Some(waiting) = self.waiting.get_mut(&key).filter(|waiting| !waiting.is_active) {
                waiting.is_active = true;
                self.active.insert((Reverse(waiting.priority), waiting.number, key));
            }
        }
    }

    fn try_pod(&mut self, key: &Arc<str>, desk: &Desk) {
        let Some(pod) = desk.get(PODS, key) else { return };
        let Some(mut demand) = Demand::of(&pod.value, &mut self.lanes) else { return };
        if let Some(selector) = peers(&pod.value, &demand.labels, desk) {
            demand.spread_by_default(&selector);
        }
        let volumes = Volumes::of(&pod.value, desk);
        let chosen = match &volumes {
            Ok(volumes) => self.choose_beside_promises(key, &pod.value, &demand, volumes),
            Err(why) => Err(format!("0/{} nodes are available: {why}.", self.floor.order().len())),
        };
        match chosen {
            Ok(slot) => {
                let Some(node) = &self.floor.place(slot).facts else { return };
                // A pod that is gone or bound by someone else is heard of through the feed.
                let settled = volumes.is_ok_and(|volumes| volumes.settle(node, desk).is_ok());
                let node = node.name.clone();
                if settled && desk.bind(&pod.value, &node).is_ok() {
                    let uid = meta::uid(&pod.value);
                    self.floor.put_pod(key, uid, &node, &Arc::new(demand), false);
                    self.waiting.remove(key);
                    self.nominated.remove(key);
                    self.moved = true;
                }
            }
            Err(message) => {
                refuse(key, &pod, &message, desk);
                if let (true, Ok(volumes)) = (self.preempts, &volumes) {
                    self.make_room(key, &demand, volumes, desk);
                }
                if let Some(waiting) = self.waiting.get_mut(key) {
                    let backoff = FIRST_BACKOFF * (1 << waiting.attempts.min(4));
                    waiting.attempts += 1;
                    waiting.is_active = false;
                    waiting.may_try = desk.now() + backoff.min(LONGEST_BACKOFF);
                    waiting.minds_neighbours = demand.minds_neighbours();
                    self.later.insert((desk.now() + FLUSH, key.clone()));
                }
            }
        }
    }

    /// The best node, or why there is none.
    fn choose(&mut self, demand: &Demand, volumes: &Volumes) -> Result<Slot, String> {
        filter::prepare(&mut self.floor, demand);
        let order = self.floor.order();
        if order.is_empty() {
            return Err("no nodes available to schedule pods".into());
        }
        let outlook = Outlook::new(&self.floor, demand, volumes, &order);
        let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
        let only = demand.nodes.named_nodes();
        let candidates: Arc<[Slot]> = match &only {
            Some(names) => names.iter().filter_map(|name| self.floor.slot_of(name)).collect(),
            None => order.clone(),
        };
        if candidates.len() < order.len() && only.is_some() {
            reasons.insert(NOT_NAMED.into(), order.len() - candidates.len());
        }
        let enough = enough_nodes(candidates.len());
        let start = self.next_start % candidates.len().max(1);
        let mut feasible = Vec::new();
        let mut looked_at = 0;
        for slot in candidates[start..].iter().chain(&candidates[..start]) {
            looked_at += 1;
            match outlook.judge(*slot, &self.lanes) {
                Ok(()) => feasible.push(*slot),
                Err(refusals) => {
                    for reason in refusals {
                        *reasons.entry(reason).or_default() += 1;
                    }
                }
            }
            if feasible.len() >= enough {
                break;
            }
        }
        if only.is_none() {
            self.next_start = (start + looked_at) % candidates.len().max(1);
        }
        if feasible.is_empty() {
            return Err(unavailable(order.len(), &reasons));
        }
        let scores = score::scores(&self.floor, demand, &feasible, &order);
        let best = scores.iter().max().copied().unwrap_or_default();
        let best: Vec<_> = feasible.iter().zip(&scores).filter(|(_, s)| **s == best).collect();
        let at = self.random.below(best.len() as u64);
        Ok(*best[usize::try_from(at).unwrap_or_default()].0)
    }
}

impl Actor for Scheduler {
    fn watches(&self) -> Wanted {
        Wanted::These(&[
            ("", "nodes"),
            ("", "pods"),
            ("", "namespaces"),
            ("", "persistentvolumeclaims"),
            ("", "persistentvolumes"),
            ("storage.k8s.io", "storageclasses"),
        ])
    }

    fn see(&mut self, seen: &Seen, _: &Desk) {
        let value = &seen.object.value;
        if seen.is("", "pods") {
            self.see_pod(seen);
        } else if seen.is("", "namespaces") {
            self.floor.put_namespace(value);
        } else if !seen.is("", "nodes") {
            self.stirred = true;
        } else if seen.gone {
            self.floor.remove_node(&seen.key);
        } else {
            self.stirred |= self.floor.put_node(&seen.key, value, &mut self.lanes);
        }
    }

    fn act(&mut self, desk: &Desk) -> Option<Timestamp> {
        self.wake(desk.now());
        for _ in 0..BATCH {
            let Some((_, _, key)) = self.active.pop_first() else { break };
            self.try_pod(&key, desk);
        }
        if !self.active.is_empty() || self.moved {
            return Some(desk.now());
        }
        self.later.first().map(|(time, _)| *time)
    }
}

/// The pods that one is spread with when it says nothing about that: those of its services and of its set.
fn peers(pod: &Value, labels: &Labels, desk: &Desk) -> Option<Selector> {
    let namespace = meta::namespace(pod);
    let set = pods::controller(pod).and_then(|(kind, name, _)| {
        let kind = [REPLICA_SETS, STATEFUL_SETS].into_iter().find(|known| known.name == kind)?;
        let set = desk.get(kind, &format!("{namespace}/{name}"))?;
        LabelSelector::deserialize(&set.value["spec"]["selector"]).ok()
    });
    let mut tests = Vec::new();
    for service in desk.list(SERVICES, namespace) {
        let selector = fitness::labels(&service.value["spec"]["selector"]);
        if !selector.is_empty()
            && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        {
            tests.extend(selector.iter().map(|(key, value)| LabelTest::equals(key, value)));
        }
    }
    if set.is_none() && tests.is_empty() {
        return None;
    }
    Some(Selector::from_api(Some(&set.unwrap_or_default())).and(tests))
}

/// How many nodes that fit are enough to choose from: kube-scheduler's adaptive share.
fn enough_nodes(all: usize) -> usize {
    if all < FEW_NODES {
        return all;
    }
    let percent = 50usize.saturating_sub(all / 125).max(5);
    (all * percent / 100).max(FEW_NODES)
}

fn unavailable(nodes: usize, reasons: &BTreeMap<Reason, usize>) -> String {
    let mut parts: Vec<_> =
        reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

/// Says on the pod and in an event why it has no node, unless the last word was the same.
fn refuse(key: &str, pod: &Object, message: &str, desk: &Desk) {
    let known = pods::condition(&pod.value, "PodScheduled");
    if known.is_some_and(|known| known["message"] == message) {
        return;
    }
    let now = desk.timestamp();
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
    });
    // Of a pod that is gone by now nothing needs to be said.
    let _ = desk.change_status(PODS, pod, |status| pods::set_condition(status, condition, &now));
    let (namespace, name) = (meta::namespace(&pod.value), meta::name(&pod.value));
    let number = digest(format!("{key} {} {message}", meta::uid(&pod.value)).as_bytes());
    let event = json!({
        "metadata": { "name": format!("{name}.{number:016x}"), "namespace": namespace },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": meta::uid(&pod.value),
            "resourceVersion": pod.revision.to_string(),
        },
        "type": "Warning", "reason": "FailedScheduling", "message": message, "action": "Scheduling",
        "reportingComponent": NAME, "reportingInstance": NAME, "source": { "component": NAME },
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    let _ = desk.create(EVENTS, namespace, &event);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_nodes_a_share_is_enough() {
        for (all, enough) in
            [(0, 0), (99, 99), (100, 100), (200, 100), (1_000, 420), (5_000, 500), (10_000, 500)]
        {
            assert_eq!(enough_nodes(all), enough, "of {all}");
        }
    }
}
