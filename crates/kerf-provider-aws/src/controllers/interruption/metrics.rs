//! What is counted of interruptions, under Karpenter's names.

use jiff::SignedDuration;
use kerf_aws_model::health::Ailment;
use kerf_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
};

/// The message type of what cannot be read. Karpenter does not count it.
const MALFORMED: &str = "malformed";

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Received {
    message_type: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unhealthy {
    category: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct InterruptionMetrics {
    received: Family<Received, Counter>,
    deleted: Counter,
    lasted: Histogram,
    unhealthy: Family<Unhealthy, Counter>,
}

impl InterruptionMetrics {
    pub(super) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            received: Family::default(),
            deleted: Counter::default(),
            lasted: Histogram::new(exponential_buckets(0.25, 2.0, 12)),
            unhealthy: Family::default(),
        };
        metrics.register(|registry| {
            let mut interruption = registry.sub_registry_with_prefix("karpenter_interruption");
            let help = "Messages of the interruption queue that were received";
            interruption.register("received_messages", help, new.received.clone());
            let help = "Messages of the interruption queue that were deleted";
            interruption.register("deleted_messages", help, new.deleted.clone());
            let help = "Time from an event of AWS until its message was acted on";
            interruption.register("message_queue_duration_seconds", help, new.lasted.clone());
            let help = "Instances of the cluster with a failed status check or a scheduled event";
            interruption.register("instance_status_unhealthy", help, new.unhealthy.clone());
        });
        new
    }

    pub(super) fn received(&self, message_type: &'static str) {
        self.received.get_or_create(&Received { message_type }).inc();
    }

    pub(super) fn malformed(&self) {
        self.received(MALFORMED);
    }

    pub(super) fn deleted(&self) {
        self.deleted.inc();
    }

    pub(super) fn lasted(&self, time: SignedDuration) {
        self.lasted.observe(time.as_secs_f64().max(0.0));
    }

    pub(super) fn unhealthy(&self, ailment: Ailment) {
        self.unhealthy.get_or_create(&Unhealthy { category: ailment.category() }).inc();
    }
}
