//! What is counted about planning.

use std::time::Duration;

use kerf_runtime::Metrics;
use kerf_scheduler::Plan;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge, histogram::Histogram},
};

use super::disruption::DURATIONS;

#[derive(Clone, Debug)]
pub(crate) struct SchedulingMetrics {
    duration: Family<Controller, Histogram>,
    queue_depth: Family<Controller, Gauge>,
    unschedulable: Family<Controller, Gauge>,
    ignored: Gauge,
}

impl SchedulingMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            duration: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            queue_depth: Family::default(),
            unschedulable: Family::default(),
            ignored: Gauge::default(),
        };
        metrics.register(|registry| {
            let scheduler = registry.sub_registry_with_prefix("karpenter_scheduler");
            let help = "Time to plan for all pods that need a place";
            scheduler.register("scheduling_duration_seconds", help, new.duration.clone());
            scheduler.register("queue_depth", "Pods in the last plan", new.queue_depth.clone());
            scheduler.register(
                "unschedulable_pods_count",
                "Pods that found no place in the last plan",
                new.unschedulable.clone(),
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
        self.ignored.set(pods.try_into().unwrap_or(i64::MAX));
    }

    /// The provisioner has planned for so many pods, and it took so long.
    pub(crate) fn planned(&self, pods: usize, plan: &Plan, took: Duration) {
        let by = || Controller { controller: "provisioner".into() };
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.duration.get_or_create(&by()).observe(took.as_secs_f64());
        self.queue_depth.get_or_create(&by()).set(count(pods));
        self.unschedulable.get_or_create(&by()).set(count(plan.failures.len()));
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: String,
}
