//! The metrics of reboots.

use std::time::Duration;

use kerf_disruption::reboot::RebootResult;
use kerf_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

#[derive(Clone, Debug)]
pub(crate) struct RebootMetrics {
    ended: Family<Ended, Counter>,
    duration: Family<Ended, Histogram>,
    recovery: Histogram,
}

impl RebootMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            ended: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            recovery: Histogram::new(BUCKETS),
        };
        metrics.register(|registry| {
            let mut nodes = registry.sub_registry_with_prefix("karpenter_nodes");
            nodes.register(
                "reboots",
                "Reboots that are over, by how they ended",
                new.ended.clone(),
            );
            nodes.register(
                "reboot_duration_seconds",
                "Time from the decision to reboot a node until that was over",
                new.duration.clone(),
            );
            nodes.register(
                "reboot_recovery_duration_seconds",
                "Time from when the cloud accepted a reboot until the node was back",
                new.recovery.clone(),
            );
        });
        new
    }

    pub(crate) fn ended(&self, result: RebootResult, after: Duration) {
        let labels = Ended { result: result.as_str().to_owned() };
        self.ended.get_or_create(&labels).inc();
        self.duration.get_or_create(&labels).observe(after.as_secs_f64());
    }

    pub(crate) fn recovered(&self, after: Duration) {
        self.recovery.observe(after.as_secs_f64());
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: String,
}

const BUCKETS: [f64; 8] = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reboots_are_counted_under_karpenters_names() {
        let metrics = Metrics::default();
        let counted = RebootMetrics::register(&metrics);
        let all = [
            RebootResult::Succeeded,
            RebootResult::InvalidRequest,
            RebootResult::DrainTimeout,
            RebootResult::ProviderError,
            RebootResult::RecoveryTimeout,
        ];
        for result in all {
            counted.ended(result, Duration::from_secs(50));
        }
        counted.recovered(Duration::from_secs(30));
        let text = metrics.text();
        for line in [
            "karpenter_nodes_reboots_total{result=\"succeeded\"} 1",
            "karpenter_nodes_reboots_total{result=\"invalid_request\"} 1",
            "karpenter_nodes_reboots_total{result=\"drain_timeout\"} 1",
            "karpenter_nodes_reboots_total{result=\"provider_error\"} 1",
            "karpenter_nodes_reboots_total{result=\"recovery_timeout\"} 1",
            "karpenter_nodes_reboot_duration_seconds_bucket{le=\"80.0\",result=\"succeeded\"} 1",
            "karpenter_nodes_reboot_recovery_duration_seconds_bucket{le=\"20.0\"} 0",
            "karpenter_nodes_reboot_recovery_duration_seconds_bucket{le=\"1280.0\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
