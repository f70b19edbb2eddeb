//! The metrics of planning.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kerf_model::{Pod, Requirements, labels, pod::Phase};
use kerf_runtime::Metrics;
use kerf_scheduler::{Plan, PoolRefusal, Reason, Refusal};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge, histogram::Histogram},
};

use super::disruption::DURATIONS;

/// Who plans for pods that need a place. Disruption plans as well, but for pods that have one.
const CONTROLLER: &str = "provisioner";

#[derive(Clone, Debug)]
pub(crate) struct SchedulingMetrics {
    duration: Family<Controller, Histogram>,
    queue_depth: Family<Planning, Gauge>,
    unschedulable: Family<Controller, Gauge>,
    by_zone: Family<InZone, Gauge>,
    ignored: Gauge,
    passes: Arc<Mutex<Passes>>,
}

#[derive(Debug, Default)]
struct Passes {
    count: u64,
    /// Since when one has been under way.
    under_way: Option<Timestamp>,
}

impl SchedulingMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            duration: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            queue_depth: Family::default(),
            unschedulable: Family::default(),
            by_zone: Family::default(),
            ignored: Gauge::default(),
            passes: Arc::default(),
        };
        metrics.register(|registry| {
            let mut scheduler = registry.sub_registry_with_prefix("karpenter_scheduler");
            let help = "Time to plan for all pods that need a place";
            scheduler.register("scheduling_duration_seconds", help, new.duration.clone());
            scheduler.register("queue_depth", "Pods in the last plan", new.queue_depth.clone());
            scheduler.register(
                "unschedulable_pods_count",
                "Pods that found no place in the last plan",
                new.unschedulable.clone(),
            );
            scheduler.register(
                "pending_pods_by_effective_zone_count",
                "Pending pods of the last plan by the zone that they can run in: one, several (flexible) or none",
                new.by_zone.clone(),
            );
            scheduler.register(
                "ignored_pods_count",
                "Pods that could not be part of the last plan",
                new.ignored.clone(),
            );
        });
        new
    }

    pub(crate) fn ignored(&self, pods: usize) {
        self.ignored.set(count(pods));
    }

    /// The provisioner begins to plan for so many pods.
    pub(crate) fn begins(&self, pods: usize, now: Timestamp) {
        let mut passes = self.passes();
        self.queue_depth.remove(&planning(passes.count));
        passes.count += 1;
        passes.under_way = Some(now);
        self.queue_depth.get_or_create(&planning(passes.count)).set(count(pods));
    }

    /// The plan is made, and it took so long.
    pub(crate) fn planned(&self, plan: &Plan, took: Duration) {
        self.passes().under_way = None;
        let by = Controller { controller: CONTROLLER };
        self.duration.get_or_create(&by).observe(took.as_secs_f64());
        let waits = plan.failures.iter().filter(|failure| !failure.refusal.is_deferral());
        self.unschedulable.get_or_create(&by).set(count(waits.count()));
        self.by_zone.clear();
        for (zone, pods) in by_zone(plan) {
            self.by_zone.get_or_create(&InZone { controller: CONTROLLER, zone }).set(count(pods));
        }
    }

    /// The labels of the pass that is under way, and since when.
    pub(crate) fn under_way(&self) -> Option<(Vec<(String, String)>, Timestamp)> {
        let passes = self.passes();
        let Planning { controller, scheduling_id } = planning(passes.count);
        let labels = [("controller", controller.to_owned()), ("scheduling_id", scheduling_id)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value)).to_vec();
        passes.under_way.map(|since| (labels, since))
    }

    fn passes(&self) -> std::sync::MutexGuard<'_, Passes> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many pending pods can run in which zone, by where the plan puts them, or by what they ask for if it does not.
fn by_zone(plan: &Plan) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut note = |pod: &Pod, zone: &str| {
        if pod.phase == Phase::Pending && pod.node_name.is_none() {
            *counts.entry(zone.to_owned()).or_default() += 1;
        }
    };
    for placement in &plan.placements {
        let zone = placement.node.labels.get(labels::ZONE).map_or(FLEXIBLE, String::as_str);
        placement.pods.iter().for_each(|pod| note(pod, zone));
    }
    for claim in &plan.claims {
        claim.pods.iter().for_each(|pod| note(pod, allowed(&claim.requirements)));
    }
    for failure in &plan.failures {
        let nowhere = match &failure.refusal {
            Refusal::Pools(pools) => is_without_zone(pools),
            _ => false,
        };
        let constraints = &failure.pod.constraints;
        let asked = match constraints.required_terms.as_slice() {
            [term] => constraints.node_selector.merged(term),
            _ => constraints.node_selector.clone(),
        };
        note(&failure.pod, if nowhere { NONE } else { allowed(&asked) });
    }
    counts
}

/// Whether the zones are what every pool has against a pod that would launch a node for any.
fn is_without_zone(pools: &[PoolRefusal]) -> bool {
    let mut launching = pools.iter().filter(|it| !matches!(it.reason, Reason::Idle(_))).peekable();
    launching.peek().is_some()
        && launching.all(
            |it| matches!(&it.reason, Reason::Topology(topology) if topology.key == labels::ZONE),
        )
}

const FLEXIBLE: &str = "flexible";
const NONE: &str = "none";

fn allowed(requirements: &Requirements) -> &str {
    match requirements.get(labels::ZONE).and_then(|zone| zone.listed()) {
        Some([]) => NONE,
        Some([zone]) => zone,
        Some(_) | None => FLEXIBLE,
    }
}

fn planning(pass: u64) -> Planning {
    Planning { controller: CONTROLLER, scheduling_id: pass.to_string() }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Planning {
    controller: &'static str,
    scheduling_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InZone {
    controller: &'static str,
    zone: String,
}
