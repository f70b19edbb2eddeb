//! The metrics of disruption.

use std::time::Duration;

use kerf_api::DisruptionReason;
use kerf_disruption::{Blocked, Decision, Method, Unmerged, terminate_first::Because};
use kerf_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

#[derive(Clone, Debug)]
pub(crate) struct DisruptionMetrics {
    evaluations: Family<Evaluated, Histogram>,
    decisions: Family<Decided, Counter>,
    decisions_by_pool: Family<DecidedForPool, Counter>,
    eligible: Family<OfReason, Gauge>,
    /// Always zero: no search of Kerf's ends before it is over. Alerts on it want to see it.
    timeouts: Family<OfType, Counter>,
    failed_validations: Family<OfType, Counter>,
    queue_failures: Family<Decided, Counter>,
    terminate_first: Family<WentFirst, Counter>,
    drift_backoffs: Family<OfPool, Counter>,
    allowed: Family<OfPoolAndReason, Gauge>,
    consuming: Family<OfPoolAndReason, Gauge>,
    scores: Family<Move, Histogram>,
    moves: Family<Move, Counter>,
    blocked: Family<OfPoolAndReason, Counter>,
    threshold_blocked: Family<OfPool, Counter>,
}

impl DisruptionMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            evaluations: Family::new_with_constructor(|| Histogram::new(DURATIONS)),
            decisions: Family::default(),
            decisions_by_pool: Family::default(),
            eligible: Family::default(),
            timeouts: Family::default(),
            failed_validations: Family::default(),
            queue_failures: Family::default(),
            terminate_first: Family::default(),
            drift_backoffs: Family::default(),
            allowed: Family::default(),
            consuming: Family::default(),
            scores: Family::new_with_constructor(|| Histogram::new(SCORES)),
            moves: Family::default(),
            blocked: Family::default(),
            threshold_blocked: Family::default(),
        };
        for method in [Method::MultiNode, Method::SingleNode] {
            new.timeouts.get_or_create(&OfType::of(method)).inc_by(0);
        }
        metrics.register(|registry| {
            let mut voluntary = registry.sub_registry_with_prefix("karpenter_voluntary_disruption");
            voluntary.register(
                "decision_evaluation_duration_seconds",
                "Time that it took to decide",
                new.evaluations.clone(),
            );
            voluntary.register("decisions", "Commands started", new.decisions.clone());
            voluntary.register(
                "decisions_by_nodepool",
                "Commands started, once for each NodePool that they concern",
                new.decisions_by_pool.clone(),
            );
            voluntary.register(
                "eligible_nodes",
                "Nodes that could be disrupted for this reason",
                new.eligible.clone(),
            );
            voluntary.register(
                "consolidation_timeouts",
                "Searches for consolidations that were cut off; Kerf cuts none off",
                new.timeouts.clone(),
            );
            voluntary.register(
                "failed_validations",
                "Candidates that were dropped because the cluster changed before they were disrupted",
                new.failed_validations.clone(),
            );
            voluntary.register(
                "queue_failures",
                "Replacements that were not ready when their command was rolled back",
                new.queue_failures.clone(),
            );
            voluntary.register(
                "terminate_first_decisions",
                "Commands started whose node goes before its replacement comes",
                new.terminate_first.clone(),
            );
            voluntary.register(
                "drift_backoffs",
                "Times that drifted nodes of the NodePool were left alone for a while because replacing several of them failed",
                new.drift_backoffs.clone(),
            );
            let mut pools = registry.sub_registry_with_prefix("karpenter_nodepools");
            pools.register(
                "allowed_disruptions",
                "Nodes of the NodePool that its budgets allow to be disrupted at once",
                new.allowed.clone(),
            );
            pools.register(
                "nodes_consuming_budgets",
                "Nodes of the NodePool that count against its budgets",
                new.consuming.clone(),
            );
            let mut consolidation = registry.sub_registry_with_prefix("karpenter_consolidation");
            consolidation.register("score", "Scores under the policy Balanced", new.scores.clone());
            consolidation.register("moves", "Consolidations judged", new.moves.clone());
            consolidation.register(
                "blocked",
                "Nodes that were not consolidated, each time the reason changed",
                new.blocked.clone(),
            );
            consolidation.register(
                "threshold_blocked",
                "Nodes, and searches for several nodes at once, that were not consolidated because the savings were too small",
                new.threshold_blocked.clone(),
            );
        });
        new
    }

    pub(crate) fn evaluated(&self, method: Method, took: Duration) {
        let labels = Evaluated {
            reason: lower(method.reason()),
            consolidation_type: method.consolidation_type().into(),
        };
        self.evaluations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A command that concerns these pools, each named once, has been started.
    pub(crate) fn decided<'a>(
        &self,
        method: Method,
        decision: Decision,
        pools: impl IntoIterator<Item = &'a str>,
    ) {
        self.decisions.get_or_create(&Decided::of(method, decision)).inc();
        for pool in pools {
            let labels = DecidedForPool {
                nodepool: pool.into(),
                decision: decision.as_str().into(),
                reason: lower(method.reason()),
                consolidation_type: method.consolidation_type().into(),
            };
            self.decisions_by_pool.get_or_create(&labels).inc();
        }
    }

    /// A command has been started whose node goes first.
    pub(crate) fn went_first(&self, pool: &str, method: Method, because: Because) {
        let labels = WentFirst {
            nodepool: pool.into(),
            reason: lower(method.reason()),
            terminate_first_reason: because.as_str().into(),
        };
        self.terminate_first.get_or_create(&labels).inc();
    }

    /// The drifted nodes of a pool are left alone from now on, or for longer than before.
    pub(crate) fn drift_rests(&self, pool: &str) {
        self.drift_backoffs.get_or_create(&OfPool { nodepool: pool.into() }).inc();
    }

    pub(crate) fn eligible(&self, reason: DisruptionReason, nodes: usize) {
        self.eligible.get_or_create(&OfReason { reason: lower(reason) }).set(count(nodes));
    }

    pub(crate) fn failed_validation(&self, method: Method, candidates: usize) {
        self.failed_validations.get_or_create(&OfType::of(method)).inc_by(candidates as u64);
    }

    pub(crate) fn queue_failed(&self, method: Method, decision: Decision, replacements: usize) {
        let labels = Decided::of(method, decision);
        self.queue_failures.get_or_create(&labels).inc_by(replacements as u64);
    }

    /// How a pool's budgets stand for a reason.
    pub(crate) fn budget(
        &self,
        pool: &str,
        reason: DisruptionReason,
        allowed: u32,
        consuming: u32,
    ) {
        let labels = OfPoolAndReason { nodepool: pool.into(), reason: lower(reason) };
        self.allowed.get_or_create(&labels).set(allowed.into());
        self.consuming.get_or_create(&labels).set(consuming.into());
    }

    pub(crate) fn blocked(&self, pool: &str, why: &Blocked) {
        let labels = OfPoolAndReason { nodepool: pool.into(), reason: why.name().into() };
        self.blocked.get_or_create(&labels).inc();
        if matches!(why, Blocked::SavingsThreshold { .. }) {
            self.threshold_blocked.get_or_create(&OfPool { nodepool: pool.into() }).inc();
        }
    }

    /// A search for nodes to merge found nothing, and a rule of a pool about savings stood against it.
    /// Like a node, the nodes together count as blocked only when that is news.
    pub(crate) fn unmerged(&self, Unmerged { pool, why, .. }: &Unmerged, is_news: bool) {
        if is_news {
            let labels = OfPoolAndReason { nodepool: pool.into(), reason: why.name().into() };
            self.blocked.get_or_create(&labels).inc();
        }
        match why {
            Blocked::SavingsThreshold { .. } => {
                self.threshold_blocked.get_or_create(&OfPool { nodepool: pool.into() }).inc();
            }
            Blocked::Score { score, .. } => self.judged(pool, "Balanced", false, Some(*score)),
            _ => {}
        }
    }

    /// A consolidation was judged by a pool's policy.
    pub(crate) fn judged(&self, pool: &str, policy: &str, approved: bool, score: Option<f64>) {
        let decision = if approved { "approved" } else { "rejected" };
        let labels =
            Move { decision: decision.into(), nodepool: pool.into(), policy: policy.into() };
        self.moves.get_or_create(&labels).inc();
        if let Some(score) = score {
            self.scores.get_or_create(&labels).observe(score);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Evaluated {
    reason: String,
    consolidation_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    decision: String,
    reason: String,
    consolidation_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WentFirst {
    nodepool: String,
    reason: String,
    terminate_first_reason: String,
}

impl Decided {
    fn of(method: Method, decision: Decision) -> Self {
        Self {
            decision: decision.as_str().into(),
            reason: lower(method.reason()),
            consolidation_type: method.consolidation_type().into(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecidedForPool {
    nodepool: String,
    decision: String,
    reason: String,
    consolidation_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfType {
    consolidation_type: String,
}

impl OfType {
    fn of(method: Method) -> Self {
        Self { consolidation_type: method.consolidation_type().into() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPoolAndReason {
    nodepool: String,
    reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPool {
    nodepool: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Move {
    decision: String,
    nodepool: String,
    policy: String,
}

fn lower(reason: DisruptionReason) -> String {
    reason.as_str().to_lowercase()
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

const SCORES: [f64; 8] = [0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Karpenter's buckets for everything that takes from milliseconds to minutes.
pub(super) const DURATIONS: [f64; 45] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::{Price, churn::Fraction, disruption::Cost};

    #[test]
    fn metrics_have_karpenters_names() {
        let metrics = Metrics::default();
        let counted = DisruptionMetrics::register(&metrics);
        counted.decided(Method::SingleNode, Decision::Replace, ["p", "q"]);
        counted.queue_failed(Method::Drift, Decision::Replace, 2);
        counted.went_first("p", Method::StaticDrift, Because::StaticAtLimit);
        counted.drift_rests("p");
        counted.eligible(DisruptionReason::Empty, 3);
        counted.failed_validation(Method::Emptiness, 4);
        counted.budget("p", DisruptionReason::Drifted, 5, 1);
        counted.blocked("p", &Blocked::ValidationChurn);
        counted.judged("p", "Balanced", true, Some(0.5));
        let unmerged = |pool: &str, why: Blocked| {
            let unmerged = Unmerged { pool: pool.to_owned(), nodes: Vec::new(), why };
            counted.unmerged(&unmerged, true);
            counted.unmerged(&unmerged, false);
        };
        let (pool, savings, required) = ("p".to_owned(), Price::ZERO, Price::MAX);
        unmerged("p", Blocked::SavingsThreshold { pool, savings, required, cost: Cost::ONE });
        let (pool, price, cheapest) = ("p".to_owned(), Price::MAX, Price::MAX);
        unmerged("p", Blocked::PriceFactor { pool, price, factor: Fraction::ONE, cheapest });
        unmerged("q", Blocked::Score { pool: "q".to_owned(), score: 0.1, threshold: 0.5 });
        let text = metrics.text();
        for line in [
            "karpenter_voluntary_disruption_decisions_total{decision=\"replace\",reason=\"underutilized\",consolidation_type=\"single\"} 1",
            "karpenter_voluntary_disruption_decisions_by_nodepool_total{nodepool=\"q\",decision=\"replace\",reason=\"underutilized\",consolidation_type=\"single\"} 1",
            "karpenter_voluntary_disruption_queue_failures_total{decision=\"replace\",reason=\"drifted\",consolidation_type=\"\"} 2",
            "karpenter_voluntary_disruption_terminate_first_decisions_total{nodepool=\"p\",reason=\"drifted\",terminate_first_reason=\"static-at-limit\"} 1",
            "karpenter_voluntary_disruption_drift_backoffs_total{nodepool=\"p\"} 1",
            "karpenter_voluntary_disruption_eligible_nodes{reason=\"empty\"} 3",
            "karpenter_voluntary_disruption_failed_validations_total{consolidation_type=\"empty\"} 4",
            "karpenter_voluntary_disruption_consolidation_timeouts_total{consolidation_type=\"multi\"} 0",
            "karpenter_nodepools_allowed_disruptions{nodepool=\"p\",reason=\"drifted\"} 5",
            "karpenter_nodepools_nodes_consuming_budgets{nodepool=\"p\",reason=\"drifted\"} 1",
            "karpenter_consolidation_blocked_total{nodepool=\"p\",reason=\"validation_churn\"} 1",
            "karpenter_consolidation_moves_total{decision=\"approved\",nodepool=\"p\",policy=\"Balanced\"} 1",
            "karpenter_consolidation_moves_total{decision=\"rejected\",nodepool=\"q\",policy=\"Balanced\"} 2",
            "karpenter_consolidation_score_count{decision=\"rejected\",nodepool=\"q\",policy=\"Balanced\"} 2",
            "karpenter_consolidation_threshold_blocked_total{nodepool=\"p\"} 2",
            "karpenter_consolidation_blocked_total{nodepool=\"p\",reason=\"savings_threshold\"} 1",
            "karpenter_consolidation_blocked_total{nodepool=\"p\",reason=\"price_factor\"} 1",
            "karpenter_consolidation_blocked_total{nodepool=\"q\",reason=\"score\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
