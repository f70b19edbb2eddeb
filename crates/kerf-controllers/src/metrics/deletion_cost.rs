//! The metrics of pod deletion costs.

use std::collections::BTreeMap;

use kerf_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use super::Pool;

#[derive(Clone, Debug)]
pub(crate) struct DeletionCostMetrics {
    waiting: Family<Pool, Gauge>,
    writes: Family<Ended, Counter>,
}

/// What became of a write of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Updated,
    /// The pod has its cost already.
    Unchanged,
    /// The pod is gone.
    NotFound,
    /// Somebody else wrote first.
    Conflict,
    Error,
}

impl DeletionCostMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self { waiting: Family::default(), writes: Family::default() };
        metrics.register(|registry| {
            let mut costs = registry.sub_registry_with_prefix("karpenter_pod_deletion_cost");
            costs.register(
                "nodes_with_pending_annotation_writes",
                "Nodes with pods that are to get another deletion cost, at the last look",
                new.waiting.clone(),
            );
            costs.register(
                "pod_annotation_writes",
                "Writes of deletion costs by what became of them",
                new.writes.clone(),
            );
        });
        new
    }

    /// How many nodes wait, by pool. Pools that are not named are gone.
    pub(crate) fn waiting(&self, nodes: BTreeMap<&str, usize>) {
        self.waiting.clear();
        for (pool, nodes) in nodes {
            let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
            self.waiting.get_or_create(&Pool { nodepool: pool.to_owned() }).set(nodes);
        }
    }

    pub(crate) fn written(&self, result: Written) {
        self.writes.get_or_create(&Ended { result: result.as_str().to_owned() }).inc();
    }
}

impl Written {
    fn as_str(self) -> &'static str {
        match self {
            Self::Updated => "updated",
            Self::Unchanged => "skipped_unchanged",
            Self::NotFound => "skipped_notfound",
            Self::Conflict => "skipped_conflict",
            Self::Error => "error",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_under_karpenters_names() {
        let metrics = Metrics::default();
        let counted = DeletionCostMetrics::register(&metrics);
        counted.waiting(BTreeMap::from([("gone", 1)]));
        counted.waiting(BTreeMap::from([("default", 2)]));
        for result in [
            Written::Updated,
            Written::Unchanged,
            Written::NotFound,
            Written::Conflict,
            Written::Error,
        ] {
            counted.written(result);
        }
        let text = metrics.text();
        assert!(!text.contains("gone"), "{text}");
        let name = "karpenter_pod_deletion_cost_pod_annotation_writes_total";
        for line in [
            "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes{nodepool=\"default\"} 2"
                .to_owned(),
            format!("{name}{{result=\"updated\"}} 1"),
            format!("{name}{{result=\"skipped_unchanged\"}} 1"),
            format!("{name}{{result=\"skipped_notfound\"}} 1"),
            format!("{name}{{result=\"skipped_conflict\"}} 1"),
            format!("{name}{{result=\"error\"}} 1"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
