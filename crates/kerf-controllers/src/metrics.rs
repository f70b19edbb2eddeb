//! The metrics of the controllers, under the names of Karpenter's dashboards and alerts.

use std::time::Duration;

use kerf_api::{ConsolidationPolicy, DisruptionReason, NodeClaim, labels};
use kerf_runtime::{Metrics, WorkMetrics};
use kube::ResourceExt;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

mod deletion_cost;
mod disruption;
#[cfg(test)]
mod names;
mod pods;
pub(crate) mod provider;
mod reboot;
mod scheduling;
pub(crate) mod state;

use crate::transitions;
use deletion_cost::DeletionCostMetrics;
pub(crate) use deletion_cost::Written;
use disruption::DisruptionMetrics;
use pods::PodTimes;
use reboot::RebootMetrics;
use scheduling::SchedulingMetrics;

/// Counters and histograms; cheap to clone, and every clone counts the same.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    /// Where they and others are registered.
    pub(crate) all: Metrics,
    created: Family<Created, Counter>,
    terminated: Family<Terminated, Counter>,
    disrupted: Family<Disrupted, Counter>,
    pods_disrupted: Family<Disrupted, Counter>,
    unhealthy: Family<Unhealthy, Counter>,
    nodes_created: Family<PoolAndZone, Counter>,
    nodes_terminated: Family<PoolAndZone, Counter>,
    nodes_drained: Family<Pool, Counter>,
    nodes_lifetime: Family<Pool, Histogram>,
    nodes_termination: Family<Pool, Histogram>,
    instance_termination: Family<Pool, Histogram>,
    claim_termination: Family<Pool, Histogram>,
    evictions: Family<Code, Counter>,
    pods_drained: Family<DrainReason, Counter>,
    cost_errors: Family<Pool, Counter>,
    pub(crate) work: WorkMetrics,
    pub(crate) deletion_costs: DeletionCostMetrics,
    pub(crate) disruption: DisruptionMetrics,
    pub(crate) pods: PodTimes,
    pub(crate) reboots: RebootMetrics,
    pub(crate) scheduling: SchedulingMetrics,
    static_wanted: Family<Pool, Gauge>,
    static_nodes: Family<Pool, Gauge>,
}

/// Why a claim was deleted by the operator itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Expired,
    Unhealthy,
    GarbageCollected,
    InsufficientCapacity,
    NodeClassNotReady,
    LaunchTimeout,
    RegistrationTimeout,
    /// By a command; the policy is the pool's, where the command follows from it.
    Disruption {
        reason: DisruptionReason,
        policy: Option<ConsolidationPolicy>,
    },
    /// A cause that the provider has a name for, such as an interruption.
    Provider(&'static str),
}

impl Cause {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Unhealthy | Self::Disruption { reason: DisruptionReason::Unhealthy, .. } => {
                "unhealthy"
            }
            Self::GarbageCollected => "garbage_collected",
            Self::InsufficientCapacity => "insufficient_capacity",
            Self::NodeClassNotReady => "nodeclass_not_ready",
            Self::LaunchTimeout => "launch_timeout",
            Self::RegistrationTimeout => "registration_timeout",
            Self::Disruption { reason: DisruptionReason::Underutilized, .. } => "underutilized",
            Self::Disruption { reason: DisruptionReason::Empty, .. } => "empty",
            Self::Disruption { reason: DisruptionReason::Drifted, .. } => "drifted",
            Self::Provider(cause) => cause,
        }
    }

    fn policy(self) -> String {
        match self {
            Self::Disruption { policy: Some(policy), .. } => snake_case(policy.as_str()),
            _ => String::new(),
        }
    }
}

/// Registers all metrics that an operator has, whatever its provider: to document them, with a registry that shows examples.
pub fn register_all(metrics: &Metrics) {
    ControllerMetrics::register(metrics);
    provider::CallMetrics::register(metrics);
    transitions::measured(metrics);
    metrics.register(|registry| registry.register_collector(|_| state::Examples));
}

impl ControllerMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            all: metrics.clone(),
            created: Family::default(),
            terminated: Family::default(),
            disrupted: Family::default(),
            pods_disrupted: Family::default(),
            unhealthy: Family::default(),
            nodes_created: Family::default(),
            nodes_terminated: Family::default(),
            nodes_drained: Family::default(),
            nodes_lifetime: Family::new_with_constructor(|| Histogram::new(lifetime_buckets())),
            nodes_termination: Family::new_with_constructor(|| Histogram::new(doubling(12))),
            instance_termination: Family::new_with_constructor(|| Histogram::new(doubling(11))),
            claim_termination: Family::new_with_constructor(|| Histogram::new(doubling(12))),
            evictions: Family::default(),
            pods_drained: Family::default(),
            cost_errors: Family::default(),
            work: WorkMetrics::register(metrics),
            deletion_costs: DeletionCostMetrics::register(metrics),
            disruption: DisruptionMetrics::register(metrics),
            pods: PodTimes::register(metrics),
            reboots: RebootMetrics::register(metrics),
            scheduling: SchedulingMetrics::register(metrics),
            static_wanted: Family::default(),
            static_nodes: Family::default(),
        };
        metrics.register(|registry| {
            let mut claims = registry.sub_registry_with_prefix("karpenter_nodeclaims");
            claims.register("created", "NodeClaims created", new.created.clone());
            claims.register("terminated", "NodeClaims terminated", new.terminated.clone());
            claims.register(
                "disrupted",
                "NodeClaims whose deletion the operator initiated",
                new.disrupted.clone(),
            );
            claims.register(
                "unhealthy_disrupted",
                "NodeClaims deleted because their node was unhealthy",
                new.unhealthy.clone(),
            );
            claims.register(
                "instance_termination_duration_seconds",
                "Time from the call to terminate an instance until it was gone",
                new.instance_termination.clone(),
            );
            claims.register(
                "termination_duration_seconds",
                "Time from the deletion of a NodeClaim until its finalizer was removed",
                new.claim_termination.clone(),
            );
            let mut nodes = registry.sub_registry_with_prefix("karpenter_nodes");
            nodes.register("created", "Nodes registered", new.nodes_created.clone());
            nodes.register("terminated", "Nodes terminated", new.nodes_terminated.clone());
            nodes.register("drained", "Nodes drained", new.nodes_drained.clone());
            nodes.register(
                "lifetime_duration_seconds",
                "Age of nodes when they were terminated",
                new.nodes_lifetime.clone(),
            );
            nodes.register(
                "termination_duration_seconds",
                "Time from the deletion of a Node until its finalizer was removed",
                new.nodes_termination.clone(),
            );
            let mut pools = registry.sub_registry_with_prefix("karpenter_nodepools");
            pools.register(
                "replicas",
                "Nodes that a static NodePool keeps (spec.replicas)",
                new.static_wanted.clone(),
            );
            pools.register(
                "replicas_actual",
                "Nodes of a static NodePool that are not being deleted (status.nodes)",
                new.static_nodes.clone(),
            );
            pools.register(
                "cost_tracker_errors",
                "Launched NodeClaims whose price is not known",
                new.cost_errors.clone(),
            );
            let mut pods = registry.sub_registry_with_prefix("karpenter_pods");
            pods.register(
                "disruption_initiated",
                "Pods on nodes whose deletion the operator initiated",
                new.pods_disrupted.clone(),
            );
            pods.register(
                "eviction_requests",
                "Calls of the eviction API by the answer",
                new.evictions.clone(),
            );
            pods.register(
                "drained",
                "Pods evicted or deleted in a drain",
                new.pods_drained.clone(),
            );
        });
        new
    }

    pub(crate) fn claim_created(&self, reason: &str, pool: &str, min_values_relaxed: bool) {
        let labels = Created {
            reason: reason.into(),
            nodepool: pool.into(),
            min_values_relaxed: min_values_relaxed.to_string(),
        };
        self.created.get_or_create(&labels).inc();
    }

    /// A claim is deleted, and with it the places of these pods.
    pub(crate) fn claim_disrupted(&self, cause: Cause, claim: &NodeClaim, pods: usize) {
        let labels = Disrupted {
            reason: cause.as_str().into(),
            nodepool: label(claim, labels::NODE_POOL),
            capacity_type: label(claim, labels::CAPACITY_TYPE),
            consolidation_policy: cause.policy(),
            termination_mode: termination_mode(claim).into(),
        };
        self.disrupted.get_or_create(&labels).inc();
        self.pods_disrupted.get_or_create(&labels).inc_by(pods as u64);
    }

    /// `drain`: how long it may take, where a policy says so.
    pub(crate) fn unhealthy_disrupted(
        &self,
        condition: &str,
        claim: &NodeClaim,
        drain: Option<Duration>,
    ) {
        let image = claim.status.as_ref().map(|status| status.image_id.clone());
        let labels = Unhealthy {
            condition: snake_case(condition),
            nodepool: label(claim, labels::NODE_POOL),
            capacity_type: label(claim, labels::CAPACITY_TYPE),
            image_id: image.unwrap_or_default(),
            termination_mode: drain.map_or_else(|| termination_mode(claim), mode_of).into(),
        };
        self.unhealthy.get_or_create(&labels).inc();
    }

    pub(crate) fn claim_terminated(&self, claim: &NodeClaim, since_deletion: Option<Duration>) {
        let labels = Terminated {
            nodepool: label(claim, labels::NODE_POOL),
            capacity_type: label(claim, labels::CAPACITY_TYPE),
            zone: label(claim, labels::ZONE),
        };
        self.terminated.get_or_create(&labels).inc();
        observe(&self.claim_termination, claim, since_deletion);
    }

    pub(crate) fn instance_gone(&self, claim: &NodeClaim, since_asked: Option<Duration>) {
        observe(&self.instance_termination, claim, since_asked);
    }

    /// An instance was launched at an unknown price.
    pub(crate) fn price_unknown(&self, claim: &NodeClaim) {
        let nodepool = label(claim, labels::NODE_POOL);
        self.cost_errors.get_or_create(&Pool { nodepool }).inc();
    }

    pub(crate) fn node_registered(&self, claim: &NodeClaim) {
        self.nodes_created.get_or_create(&pool_and_zone(claim)).inc();
    }

    pub(crate) fn node_drained(&self, claim: &NodeClaim) {
        let nodepool = label(claim, labels::NODE_POOL);
        self.nodes_drained.get_or_create(&Pool { nodepool }).inc();
    }

    pub(crate) fn node_terminated<K: ResourceExt>(
        &self,
        node: &K,
        age: Option<Duration>,
        since_deletion: Option<Duration>,
    ) {
        self.nodes_terminated.get_or_create(&pool_and_zone(node)).inc();
        observe(&self.nodes_lifetime, node, age);
        observe(&self.nodes_termination, node, since_deletion);
    }

    pub(crate) fn eviction_answered(&self, code: u16) {
        self.evictions.get_or_create(&Code { code: code.to_string() }).inc();
    }

    pub(crate) fn static_pool(&self, pool: &str, wanted: u64, nodes: i64) {
        let labels = Pool { nodepool: pool.into() };
        self.static_wanted.get_or_create(&labels).set(i64::try_from(wanted).unwrap_or(i64::MAX));
        self.static_nodes.get_or_create(&labels).set(nodes);
    }

    pub(crate) fn forget_static_pool(&self, pool: &str) {
        let labels = Pool { nodepool: pool.into() };
        self.static_wanted.remove(&labels);
        self.static_nodes.remove(&labels);
    }

    pub(crate) fn pod_drained(&self, reason: &str) {
        self.pods_drained.get_or_create(&DrainReason { reason: reason.into() }).inc();
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Created {
    reason: String,
    nodepool: String,
    min_values_relaxed: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Terminated {
    nodepool: String,
    capacity_type: String,
    zone: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Disrupted {
    reason: String,
    nodepool: String,
    capacity_type: String,
    consolidation_policy: String,
    termination_mode: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unhealthy {
    condition: String,
    nodepool: String,
    capacity_type: String,
    image_id: String,
    termination_mode: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolAndZone {
    nodepool: String,
    zone: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pool {
    nodepool: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Code {
    code: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DrainReason {
    reason: String,
}

fn pool_and_zone<K: ResourceExt>(object: &K) -> PoolAndZone {
    PoolAndZone { nodepool: label(object, labels::NODE_POOL), zone: label(object, labels::ZONE) }
}

fn observe<K: ResourceExt>(
    histograms: &Family<Pool, Histogram>,
    object: &K,
    duration: Option<Duration>,
) {
    if let Some(duration) = duration {
        let nodepool = label(object, labels::NODE_POOL);
        histograms.get_or_create(&Pool { nodepool }).observe(duration.as_secs_f64());
    }
}

fn label<K: ResourceExt>(object: &K, key: &str) -> String {
    object.labels().get(key).cloned().unwrap_or_default()
}

/// How patient the end of the claim is with its pods.
fn termination_mode(claim: &NodeClaim) -> &'static str {
    claim.spec.termination_grace_period.as_ref().map_or("graceful", |it| mode_of(it.as_duration()))
}

/// Of a drain that takes so long at most.
fn mode_of(drain: Duration) -> &'static str {
    if drain.is_zero() { "forceful" } else { "eventual" }
}

/// `MemoryPressure` as `memory_pressure`; capitals in a row are one word.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut characters = name.chars().peekable();
    let mut before = None;
    while let Some(character) = characters.next() {
        let begins_word = character.is_ascii_uppercase()
            && before.is_some_and(|before: char| {
                !before.is_ascii_uppercase()
                    || characters.peek().is_some_and(char::is_ascii_lowercase)
            });
        if begins_word {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
        before = Some(character);
    }
    snake
}

/// 1, 2, 4 … seconds.
fn doubling(count: u32) -> impl Iterator<Item = f64> {
    (0..count).map(|power| f64::from(1u32 << power))
}

/// Dense in the first hours, where churn shows, then days.
fn lifetime_buckets() -> impl Iterator<Item = f64> {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    let minutes = [15.0, 30.0, 45.0].map(|minutes| minutes * MINUTE);
    let hours = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0].map(|hours| hours * HOUR);
    let days = [1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0].map(|days| days * DAY);
    minutes.into_iter().chain(hours).chain(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_claim_is_counted_under_karpenters_names() {
        let metrics = Metrics::default();
        let counted = ControllerMetrics::register(&metrics);
        let mut claim = NodeClaim::default();
        claim.labels_mut().insert(labels::NODE_POOL.into(), "p".into());
        claim.labels_mut().insert(labels::CAPACITY_TYPE.into(), "spot".into());
        counted.claim_disrupted(Cause::Expired, &claim, 3);
        claim.spec.termination_grace_period = Some("0s".parse().unwrap());
        counted.claim_disrupted(Cause::Unhealthy, &claim, 0);
        let text = metrics.text();
        let labels = |reason: &str, mode: &str| {
            format!(
                "{{reason=\"{reason}\",nodepool=\"p\",capacity_type=\"spot\",consolidation_policy=\"\",termination_mode=\"{mode}\"}}"
            )
        };
        for line in [
            format!("karpenter_nodeclaims_disrupted_total{} 1", labels("expired", "graceful")),
            format!("karpenter_nodeclaims_disrupted_total{} 1", labels("unhealthy", "forceful")),
            format!("karpenter_pods_disruption_initiated_total{} 3", labels("expired", "graceful")),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn condition_names_are_written_as_metrics_write_them() {
        for (name, expected) in [
            ("Ready", "ready"),
            ("MemoryPressure", "memory_pressure"),
            ("DCGMUnhealthy", "dcgm_unhealthy"),
            ("PIDPressure", "pid_pressure"),
            ("NodeIsOOM", "node_is_oom"),
            ("", ""),
        ] {
            assert_eq!(snake_case(name), expected);
        }
    }

    #[test]
    fn buckets_are_karpenters() {
        assert_eq!(doubling(11).last(), Some(1024.0));
        let lifetimes: Vec<_> = lifetime_buckets().collect();
        assert_eq!((lifetimes.len(), lifetimes[0], lifetimes[20]), (21, 900.0, 2_592_000.0));
    }
}
