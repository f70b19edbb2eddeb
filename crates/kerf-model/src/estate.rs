//! What disruption decides from: the snapshot, and beside each node and pool what only disruption asks of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{Budget, ConsolidationPolicy, DurationOrNever, Setback};

use crate::{
    NodeCount,
    churn::{ChurnControls, GracePeriod},
    snapshot::{Node, Pool, Snapshot},
};

/// The cluster at one moment. What it says depends on nothing but its fields, the time included.
#[derive(Clone, Debug)]
pub struct Estate {
    pub snapshot: Snapshot,
    /// One for each of the snapshot's nodes, in their order.
    pub standings: Vec<Standing>,
    /// Every pool that is ours, static and unready ones included, by name.
    pub pools: BTreeMap<String, Rules>,
    /// Those of them that keep a fixed number of nodes.
    pub static_pools: BTreeMap<String, StaticPool>,
    pub now: Timestamp,
}

/// A pool with `replicas`: what it keeps, and what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaticPool {
    pub replicas: u64,
    /// `spec.limits.nodes`.
    pub limit: Option<u64>,
    pub count: NodeCount,
    /// Whether it can launch nodes: ready, and here to stay.
    pub launches: bool,
}

/// How a node stands towards being disrupted.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, none implies another")]
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// The instance behind it; what the disruption queue knows it by.
    pub provider_id: String,
    /// A command that was started before is not through with it.
    pub in_queue: bool,
    /// The instance is being terminated: it no longer counts as a node of its pool.
    pub instance_terminating: bool,
    /// Pods that were planned onto it are still on their way until then.
    pub nominated_until: Option<Timestamp>,
    /// The node itself asks to be left alone.
    pub do_not_disrupt: bool,
    /// The node's own Ready condition.
    pub ready: bool,
    /// Its node, its claim or a pod on it cannot be read: which, and why.
    pub unreadable: Option<String>,
    pub consolidatable: bool,
    /// Since when its claim is known to have drifted.
    pub drifted_since: Option<Timestamp>,
    pub created: Option<Timestamp>,
    pub expire_after: Option<Duration>,
    pub termination_grace_period: Option<Duration>,
    pub initialized_at: Option<Timestamp>,
    pub last_pod_event: Option<Timestamp>,
    /// Replacing it was begun and came to nothing.
    pub setback: Option<Setback>,
    /// One for each of the node's pods, in their order.
    pub tenants: Vec<Tenant>,
}

/// How a pod stands towards being moved.
#[derive(Clone, Debug, Default)]
pub struct Tenant {
    /// Somebody would bring it back elsewhere: neither a daemon nor a mirror of a file on the node, and not over.
    pub reschedulable: bool,
    /// Counts as a workload for Balanced's totals: neither a daemon nor over.
    pub counted: bool,
    pub eviction_cost: Cost,
    /// What stands against evicting it now.
    pub obstacle: Option<Obstacle>,
    /// When its own annotation no longer protects it, if that ends by itself.
    pub protected_until: Option<Timestamp>,
    /// No amount of waiting makes its eviction possible, so no room is planned for it.
    pub blocked_for_good: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The pod's own annotation.
    DoNotDisrupt,
    /// A budget that allows no eviction at the moment, as `namespace/name`.
    Budget(String),
    /// Kubernetes evicts no pod that several budgets select.
    SeveralBudgets(Vec<String>),
}

/// What it costs to move a pod, exact: 1 for an ordinary one, more or less by its priority and its deletion cost.
///
/// The unit is 2^-27, in which the annotation `pod-deletion-cost` counts; priorities count in 2^-25.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub i64);

impl Estate {
    /// Every node with how it stands, in the snapshot's order.
    pub fn nodes(&self) -> impl Iterator<Item = (&Arc<Node>, &Standing)> {
        self.snapshot.nodes.iter().zip(&self.standings)
    }
}

impl Standing {
    /// Since when no pod has come or gone. `None` while the node is not initialised.
    pub fn quiet_since(&self) -> Option<Timestamp> {
        self.initialized_at.map(|initialized| self.last_pod_event.unwrap_or(initialized))
    }
}

impl Rules {
    pub fn is_static(&self) -> bool {
        self.replicas.is_some()
    }

    /// Whether the node takes no pods that consolidation would move: it is within `consolidateAfter` or the grace period.
    pub fn is_settling(&self, standing: &Standing, now: Timestamp) -> bool {
        let busy_until =
            self.consolidate_after.as_duration().and_then(|it| self.rest(standing, it));
        busy_until.max(self.grace_until(standing)).is_some_and(|until| now < until)
    }

    /// Until when the node is left out of consolidation because a pod came or went.
    pub fn grace_until(&self, standing: &Standing) -> Option<Timestamp> {
        match self.controls.grace_period {
            GracePeriod::Off => None,
            GracePeriod::For(length) => self.rest(standing, length),
        }
    }

    /// When so much time has passed since a pod came or went. Static pools know no such rest, and no time at all has no
    /// end: a clock that runs behind must not make it one.
    fn rest(&self, standing: &Standing, length: Duration) -> Option<Timestamp> {
        if self.is_static() || length.is_zero() {
            return None;
        }
        let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
        Some(standing.quiet_since()?.checked_add(length).unwrap_or(Timestamp::MAX))
    }
}

impl Cost {
    pub const ONE: Self = Self(1 << 27);
    /// However important a pod is, it counts for at most ten; however unimportant, for no less than minus ten.
    pub const MOST: Self = Self(10 << 27);

    /// For metrics and display only.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }

    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Nothing pays for itself: what would be negative counts as nothing.
    pub fn at_least_zero(self) -> Self {
        self.max(Self(0))
    }
}

/// What a pool says about disrupting its nodes.
#[derive(Clone, Debug)]
pub struct Rules {
    /// `spec.replicas`: the pool is static.
    pub replicas: Option<i64>,
    /// `spec.limits.nodes`.
    pub node_limit: Option<u64>,
    /// As the scheduler sees it. Without instance types they are unknown, and its nodes are no candidates.
    pub pool: Arc<Pool>,
    pub policy: ConsolidationPolicy,
    pub consolidate_after: DurationOrNever,
    pub budgets: Vec<Budget>,
    /// The operator's defaults with the pool's own values over them.
    pub controls: ChurnControls,
}
