//! The settings of an operator: plain values, validated where they were read.

use std::{net::IpAddr, num::NonZero, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use kerf_cluster::Cluster;
use kerf_model::{
    MinValuesPolicy,
    repair::{BadPolicies, RepairPolicy, RepairRules},
};
use kerf_runtime::{Bucket, Workers, logging::Logging};
pub use kerf_scheduler::PreferencePolicy;

mod gates;
mod spread;

pub use gates::{FeatureGates, GATES, Gate, GateError, Stage, UnknownGate, parse_bool};
pub use kerf_model::churn::{ChurnControls, Fraction, GracePeriod, OutOfRange, SavingsThreshold};
pub use spread::{SpreadError, parse_default_spread};

/// The settings of one operator. [`Settings::default`] is what it runs with without flags.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, with a name")]
pub struct Settings {
    pub metrics_port: u16,
    /// Where `/metrics` is served; `None` is on all addresses.
    pub metrics_address: Option<IpAddr>,
    pub health_probe_port: u16,
    /// Where the probes are served; `None` is on all addresses.
    pub health_address: Option<IpAddr>,
    /// Where the page of the operator is served; `None` is nowhere.
    pub dashboard: Option<DashboardEndpoint>,
    /// How fast the controllers may send requests; `None` is as fast as they can.
    pub client_limit: Option<Bucket>,
    pub logging: Logging,
    /// `None`: there is no second operator, this one leads.
    pub leader_election: Option<LeaderElection>,
    /// The CPU that the operator was given; the more, the more it does at once.
    pub cpu: Millicores,
    /// Whether to run the controllers that do nothing but observe the cluster for metrics.
    pub observability: bool,
    /// Whether there are gauges of each single pod among the metrics.
    pub pod_metrics: bool,
    pub batching: Batching,
    pub preference_policy: PreferencePolicy,
    pub min_values_policy: MinValuesPolicy,
    /// Whether to look for cheaper machines than the first plan has.
    pub packing: bool,
    /// Whether consolidation may replace nodes by several others.
    pub many_to_many: bool,
    pub gates: FeatureGates,
    /// Put on pods that declare no spread constraints of their own. They carry no selector: it is
    /// deduced for each pod.
    pub default_spread: Vec<TopologySpreadConstraint>,
    pub churn: ChurnControls,
    pub repair: RepairSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            metrics_port: 8080,
            metrics_address: None,
            health_probe_port: 8081,
            health_address: None,
            dashboard: None,
            client_limit: Some(Bucket { per_second: 200, burst: 300 }),
            logging: Logging::default(),
            leader_election: Some(LeaderElection::default()),
            cpu: Millicores::default(),
            observability: true,
            pod_metrics: true,
            batching: Batching::default(),
            preference_policy: PreferencePolicy::Respect,
            min_values_policy: MinValuesPolicy::Strict,
            packing: false,
            many_to_many: false,
            gates: FeatureGates::default(),
            default_spread: Vec::new(),
            churn: ChurnControls::default(),
            repair: RepairSettings::default(),
        }
    }
}

/// How unhealthy nodes are repaired, where the gate `NodeRepair` is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairSettings {
    /// By the controller that Karpenter had before 1.15.
    pub legacy: bool,
    /// The part of a NodePool's nodes that may be unhealthy.
    pub most_unhealthy_percent: u8,
}

impl Default for RepairSettings {
    fn default() -> Self {
        Self { legacy: false, most_unhealthy_percent: 20 }
    }
}

impl Settings {
    /// Tells an index what it has to know before it is filled, be it fed by watches or from files.
    pub fn prepare(&self, cluster: &mut Cluster) {
        cluster.spread_by_default(self.default_spread.clone());
        if self.gates.node_overlay {
            cluster.apply_overlays();
        }
        if self.gates.capacity_buffer {
            cluster.keep_buffers();
        }
        if self.batching.by_owner {
            cluster.keep_owners();
        }
        if self.gates.pod_deletion_cost_management {
            cluster.manage_deletion_costs();
        }
    }

    /// The policies by which disruption repairs nodes. `None`: it does not.
    pub fn repair_rules(
        &self,
        policies: &[RepairPolicy],
    ) -> Result<Option<Arc<RepairRules>>, BadPolicies> {
        if !self.gates.node_repair || self.repair.legacy {
            return Ok(None);
        }
        let rules = RepairRules::new(policies, self.repair.most_unhealthy_percent)?;
        Ok(Some(Arc::new(rules)))
    }
}

/// Where the page is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DashboardEndpoint {
    pub port: NonZero<u16>,
    pub address: IpAddr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    pub lease: String,
    /// `None`: the namespace that the operator runs in.
    pub namespace: Option<String>,
}

impl Default for LeaderElection {
    /// Karpenter's lease, so that the two never act on a cluster at the same time.
    fn default() -> Self {
        Self { lease: "karpenter-leader-election".into(), namespace: None }
    }
}

/// How long pending pods are collected before they are scheduled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// The quiet time that closes a batch.
    pub idle: Duration,
    /// The longest that a batch stays open.
    pub max: Duration,
    /// Whether what ReplicaSets, StatefulSets and Jobs have still to create says when it is closed.
    pub by_owner: bool,
}

impl Default for Batching {
    fn default() -> Self {
        Self { idle: Duration::from_secs(1), max: Duration::from_secs(10), by_owner: false }
    }
}

impl Batching {
    /// For how long a node is kept for the pods that were promised to it: kube-scheduler has to have
    /// bound them before the batch after the next is decided.
    pub fn nomination_window(&self) -> Duration {
        (self.max * 2).max(Duration::from_secs(10))
    }
}

/// Thousandths of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millicores(NonZero<u32>);

impl Default for Millicores {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Millicores {
    const ONE_CORE: NonZero<u32> = NonZero::new(1000).expect("1000 is not 0");

    /// Nothing, or less than nothing, is taken for one core.
    pub fn new(millicores: i64) -> Self {
        let positive = u32::try_from(millicores.max(0)).unwrap_or(u32::MAX);
        Self(NonZero::new(positive).unwrap_or(Self::ONE_CORE))
    }

    /// As many workers as suit this much CPU.
    pub(crate) fn scaled(self, workers: Workers) -> Workers {
        Workers { concurrency: self.workers(workers.concurrency, workers.most), ..workers }
    }

    /// How many reconciles to run at once: `min` on one core, `max` on sixty, in proportion between.
    pub fn workers(self, min: usize, max: usize) -> usize {
        let cores = self.0.get().div_ceil(1000) as usize;
        (min + max.saturating_sub(min) * (cores - 1) / 59).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::conditions::Status;

    #[test]
    fn concurrency_grows_with_the_cpu() {
        for (millicores, min, max, workers) in [
            (0, 10, 1000, 10),
            (-5, 10, 1000, 10),
            (1, 10, 1000, 10),
            (1000, 10, 1000, 10),
            (1001, 10, 1000, 26),
            (2000, 10, 1000, 26),
            (4000, 1000, 5000, 1203),
            (60_000, 10, 1000, 1000),
            (1_000_000, 10, 1000, 1000),
            (i64::MAX, 100, 5000, 5000),
        ] {
            assert_eq!(Millicores::new(millicores).workers(min, max), workers, "{millicores}");
        }
    }

    #[test]
    fn disruption_repairs_with_the_gate_and_without_the_legacy_flag() {
        let policies = [RepairPolicy::new("Ready", Status::False, Duration::from_mins(1))];
        for (node_repair, legacy, repairs) in
            [(false, false, false), (true, false, true), (true, true, false), (false, true, false)]
        {
            let gates = FeatureGates { node_repair, ..FeatureGates::default() };
            let repair = RepairSettings { legacy, ..RepairSettings::default() };
            let settings = Settings { gates, repair, ..Settings::default() };
            assert_eq!(settings.repair_rules(&policies).unwrap().is_some(), repairs);
            // Without the method it does not matter what the provider has.
            assert_eq!(settings.repair_rules(&[]).is_err(), repairs);
        }
    }

    #[test]
    fn nominations_outlast_two_batches() {
        let window = |seconds| {
            let max = Duration::from_secs(seconds);
            Batching { max, ..Batching::default() }.nomination_window().as_secs()
        };
        assert_eq!(
            [window(0), window(3), window(5), window(10), window(60)],
            [10, 10, 10, 20, 120]
        );
    }
}
