//! How long pods take: to be decided upon, to be bound, to start.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use kerf_api::conditions::Status;
use kerf_cluster::{Change, Delta, Key, Pod, pods};
use kerf_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
};

use super::disruption::DURATIONS;

/// Cheap to clone, and every clone watches the same pods.
#[derive(Clone, Debug)]
pub(crate) struct PodTimes {
    seen: Arc<Mutex<BTreeMap<Key, Seen>>>,
    decision: Histogram,
    bound: Family<Binding, Histogram>,
    provisioning_bound: Family<Binding, Histogram>,
    startup: Histogram,
    provisioning_startup: Histogram,
}

/// Devices are allocated before a pod is bound, so pods that ask for some take longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Binding {
    dynamic_resources: String,
}

impl Binding {
    fn of(asks_for_devices: bool) -> Self {
        Self { dynamic_resources: asks_for_devices.to_string() }
    }
}

/// What is remembered of a pod until it has started.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// First seen to need a node.
    acknowledged: Timestamp,
    decided: bool,
    /// A place was found for it.
    schedulable: Option<Timestamp>,
    bound: bool,
    asks_for_devices: bool,
}

/// A pod that has not started.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) pod: Key,
    /// Since when it has been known and nothing was decided about it.
    pub(crate) undecided_since: Option<Timestamp>,
    /// When a place was found for it.
    pub(crate) placed_at: Option<Timestamp>,
    pub(crate) bound: bool,
    pub(crate) asks_for_devices: bool,
}

impl PodTimes {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let histogram = || Histogram::new(DURATIONS);
        let new = Self {
            seen: Arc::default(),
            decision: histogram(),
            bound: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            provisioning_bound: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            startup: histogram(),
            provisioning_startup: histogram(),
        };
        metrics.register(|registry| {
            let mut pods = registry.sub_registry_with_prefix("karpenter_pods");
            for (name, help, histogram) in [
                (
                    "scheduling_decision_duration_seconds",
                    "Time from the first look at a pending pod until the first decision",
                    &new.decision,
                ),
                (
                    "startup_duration_seconds",
                    "Time from the creation of a pod until it is ready",
                    &new.startup,
                ),
                (
                    "provisioning_startup_duration_seconds",
                    "Time from the decision where a pod can run until it is ready",
                    &new.provisioning_startup,
                ),
            ] {
                pods.register(name, help, histogram.clone());
            }
            for (name, help, family) in [
                (
                    "bound_duration_seconds",
                    "Time from the creation of a pod until it is bound",
                    &new.bound,
                ),
                (
                    "provisioning_bound_duration_seconds",
                    "Time from the decision where a pod can run until it is bound",
                    &new.provisioning_bound,
                ),
            ] {
                // Who looks for its name finds it, before the first pod is bound.
                drop(family.get_or_create(&Binding::of(false)));
                pods.register(name, help, family.clone());
            }
        });
        new
    }

    /// Follows the pods that were seen waiting for a node.
    pub(crate) fn notice(&self, change: &Change, now: Timestamp) {
        let Change::Pod(delta) = change else { return };
        let mut seen = self.lock();
        let Some(pod) = &delta.after else {
            seen.remove(&delta.key);
            return;
        };
        if pods::is_provisionable(pod) {
            let new = Seen {
                acknowledged: now,
                decided: false,
                schedulable: None,
                bound: false,
                asks_for_devices: asks_for_devices(pod),
            };
            seen.entry(delta.key.clone()).or_insert(new);
        }
        if pods::is_terminal(pod) {
            seen.remove(&delta.key);
        }
        let Some(known) = seen.get_mut(&delta.key) else { return };
        known.bound = pods::is_scheduled(pod);
        let known = *known;
        let created = pod.created();
        if became(delta, pods::is_scheduled) {
            let binding = Binding::of(known.asks_for_devices);
            observe(&self.bound.get_or_create(&binding), created, now);
            observe(&self.provisioning_bound.get_or_create(&binding), known.schedulable, now);
        }
        if became(delta, is_ready) {
            observe(&self.startup, created, now);
            observe(&self.provisioning_startup, known.schedulable, now);
            seen.remove(&delta.key);
        }
    }

    /// Notes a decision about a pod: whether a place was found.
    pub(crate) fn decided(&self, pod: &Key, placed: bool, now: Timestamp) {
        let mut seen = self.lock();
        let Some(known) = seen.get_mut(pod) else { return };
        if !known.decided {
            known.decided = true;
            observe(&self.decision, Some(known.acknowledged), now);
        }
        known.schedulable = placed.then(|| known.schedulable.unwrap_or(now));
    }

    /// The pods that were seen to need a node and have not started: as many as asked for, from the one after `last` on.
    pub(crate) fn waiting(&self, last: Option<&Key>, at_most: usize) -> Vec<Waiting> {
        let seen = self.lock();
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let waiting = seen.range::<Key, _>((from, Bound::Unbounded)).map(|(pod, seen)| Waiting {
            pod: pod.clone(),
            undecided_since: (!seen.decided && !seen.bound).then_some(seen.acknowledged),
            placed_at: seen.schedulable,
            bound: seen.bound,
            asks_for_devices: seen.asks_for_devices,
        });
        waiting.take(at_most).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By its own list of resource claims, which Karpenter's label is about.
pub(crate) fn asks_for_devices(pod: &Pod) -> bool {
    let claims = pod.spec().resource_claims.as_ref();
    claims.is_some_and(|claims| !claims.is_empty())
}

fn became(delta: &Delta<Pod>, is: fn(&Pod) -> bool) -> bool {
    delta.after.as_deref().is_some_and(is) && !delta.before.as_deref().is_some_and(is)
}

fn is_ready(pod: &Pod) -> bool {
    pod.ready().is_some_and(|ready| ready.status == Status::True)
}

fn observe(histogram: &Histogram, since: Option<Timestamp>, now: Timestamp) {
    if let Some(since) = since {
        histogram.observe(now.duration_since(since).as_secs_f64().max(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_wait_until_they_are_decided_upon_bound_started_or_gone() {
        let times = PodTimes::register(&Metrics::default());
        let at = |second| Timestamp::from_second(second).unwrap();
        let pod = |phase: &str, node: Option<&str>, ready: &str| -> Option<Arc<Pod>> {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "ns"},
                "spec": {"containers": [], "nodeName": node},
                "status": {"phase": phase, "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
                    {"type": "Ready", "status": ready},
                ]},
            }))
            .map(Arc::new)
            .ok()
        };
        let key = || Key::namespaced("ns", "p");
        let mut before = None;
        let mut becomes = |after: Option<Arc<Pod>>| {
            let delta = Delta { key: key(), before: before.take(), after: after.clone() };
            before = after;
            times.notice(&Change::Pod(delta), at(1));
        };
        let pending = || pod("Pending", None, "False");
        let waiting = |undecided: Option<i64>, placed: Option<i64>, bound: bool| {
            let all: Vec<_> = times.waiting(None, 2);
            let all = all.iter().map(|it| (it.undecided_since, it.placed_at, it.bound));
            assert_eq!(all.collect::<Vec<_>>(), [(undecided.map(at), placed.map(at), bound)]);
        };
        becomes(pending());
        waiting(Some(1), None, false);
        times.decided(&key(), false, at(2));
        waiting(None, None, false);
        times.decided(&key(), true, at(3));
        times.decided(&key(), true, at(4));
        waiting(None, Some(3), false);
        // The place is lost, and found again.
        times.decided(&key(), false, at(5));
        waiting(None, None, false);
        times.decided(&key(), true, at(6));
        becomes(pod("Pending", Some("n"), "False"));
        waiting(None, Some(6), true);
        becomes(pod("Running", Some("n"), "True"));
        assert!(times.waiting(None, 2).is_empty(), "it has started");
        for end in [None, pod("Failed", None, "False"), pod("Succeeded", Some("n"), "False")] {
            becomes(pending());
            waiting(Some(1), None, false);
            becomes(end.clone());
            assert!(times.waiting(None, 2).is_empty(), "{end:?}");
        }
        // Bound by kube-scheduler before anything was decided.
        becomes(pending());
        becomes(pod("Pending", Some("n"), "False"));
        waiting(None, None, true);
    }

    #[test]
    fn a_pod_is_followed_from_pending_to_ready() {
        let metrics = Metrics::default();
        let times = PodTimes::register(&metrics);
        let at = |second| Timestamp::from_second(second).unwrap();
        let pod = |node: Option<&str>, ready: &str| -> Arc<Pod> {
            Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"name": "p", "namespace": "ns", "creationTimestamp": at(0).to_string()},
                    "spec": {"containers": [], "nodeName": node},
                    "status": {"conditions": [
                        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
                        {"type": "Ready", "status": ready},
                    ]},
                }))
                .unwrap(),
            )
        };
        let steps = [pod(None, "False"), pod(Some("n"), "False"), pod(Some("n"), "True")];
        let change = |step: usize| {
            let before = step.checked_sub(1).map(|before| steps[before].clone());
            let key = Key::namespaced("ns", "p");
            Change::Pod(Delta { key, before, after: Some(steps[step].clone()) })
        };
        times.notice(&change(0), at(1));
        let decided = Key::namespaced("ns", "p");
        times.decided(&decided, true, at(3));
        times.decided(&decided, true, at(4));
        times.notice(&change(1), at(7));
        times.notice(&change(2), at(9));
        let text = metrics.text();
        for line in [
            "karpenter_pods_scheduling_decision_duration_seconds_sum 2.0",
            "karpenter_pods_scheduling_decision_duration_seconds_count 1",
            "karpenter_pods_bound_duration_seconds_sum{dynamic_resources=\"false\"} 7.0",
            "karpenter_pods_provisioning_bound_duration_seconds_sum{dynamic_resources=\"false\"} 4.0",
            "karpenter_pods_startup_duration_seconds_sum 9.0",
            "karpenter_pods_provisioning_startup_duration_seconds_sum 6.0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn pods_that_ask_for_devices_are_counted_apart() {
        let metrics = Metrics::default();
        let times = PodTimes::register(&metrics);
        let at = |second| Timestamp::from_second(second).unwrap();
        let gpu = || json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
        for (name, claims, label, bound_at) in
            [("a", gpu(), "true", 5), ("b", json!([]), "false", 3), ("c", json!(null), "false", 4)]
        {
            let pod = |node: Option<&str>| -> Option<Arc<Pod>> {
                serde_json::from_value(json!({
                    "metadata": {"name": name, "namespace": "ns", "creationTimestamp": at(0).to_string()},
                    "spec": {"containers": [], "nodeName": node, "resourceClaims": claims},
                    "status": {"conditions": [
                        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
                    ]},
                }))
                .map(Arc::new)
                .ok()
            };
            let key = Key::namespaced("ns", name);
            let change = |before, after| Change::Pod(Delta { key: key.clone(), before, after });
            times.notice(&change(None, pod(None)), at(1));
            let waiting = times.waiting(None, 9);
            let waiting = waiting.iter().find(|it| it.pod == key).unwrap();
            assert_eq!(waiting.asks_for_devices.to_string(), label, "{name}");
            times.notice(&change(pod(None), pod(Some("n"))), at(bound_at));
        }
        let text = metrics.text();
        for line in [
            "karpenter_pods_bound_duration_seconds_sum{dynamic_resources=\"true\"} 5.0",
            "karpenter_pods_bound_duration_seconds_sum{dynamic_resources=\"false\"} 7.0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
