//! The facts that disruption needs beside those of scheduling. Nodes, pods and pools carry them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kerf_api::{
    Budget, ConsolidationPolicy, Disruption, DurationOrNever, GoDuration, NodeClaim, Setback,
    conditions::{CONSOLIDATABLE, Conditioned, DRIFTED, INITIALIZED, INSTANCE_TERMINATING},
};

use crate::{
    NodeCount,
    churn::{ChurnControls, GracePeriod},
    reboot::RebootHistory,
    repair::RepairMatch,
};

/// What a node and its claim say about disrupting the node.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, none implies another")]
#[derive(Clone, Debug, Default)]
pub struct NodeDisruption {
    /// The instance behind it.
    pub provider_id: String,
    /// The instance is being terminated: it no longer counts as a node of its pool.
    pub instance_terminating: bool,
    /// The node itself has the annotation.
    pub do_not_disrupt: bool,
    /// The node itself has the annotation that forbids repair.
    pub do_not_repair: bool,
    /// Its claim has taken charge of it.
    pub registered: bool,
    /// What the repair policies say of its conditions. Empty: it is healthy, or nothing is repaired here.
    pub repair: Vec<RepairMatch>,
    /// What its claim says of reboots.
    pub reboots: RebootHistory,
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
    /// Replacing it was begun and failed.
    pub setback: Option<Setback>,
}

/// What a pod says about moving it. None of it depends on the time.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, none implies another")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDisruption {
    /// It needs a place elsewhere when its node goes: neither a daemon nor a mirror of a file on the node, and not over.
    pub reschedulable: bool,
    /// It counts for Balanced's totals: neither a daemon nor over.
    pub counted: bool,
    pub eviction_cost: Cost,
    /// It has not ended and is not being deleted.
    pub active: bool,
    /// The eviction API may be called for it, as far as its annotation allows.
    pub evictable: bool,
    /// Its Ready condition is False.
    pub unready: bool,
    pub do_not_disrupt: DoNotDisrupt,
    pub deletion_cost: DeletionCost,
}

/// The annotation `controller.kubernetes.io/pod-deletion-cost` of a pod: of the pods of a `ReplicaSet` that shrinks, those with the
/// least go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionCost {
    #[default]
    None,
    /// Written by Kerf, and by nobody since.
    Managed(i32),
    /// A user's, or another program's.
    Foreign,
}

/// The annotation `karpenter.sh/do-not-disrupt` of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoNotDisrupt {
    #[default]
    No,
    Always,
    Until(Timestamp),
}

/// What stands against evicting a pod now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The pod's own annotation.
    DoNotDisrupt,
    /// A budget that allows no eviction at the moment, as `namespace/name`.
    Budget(String),
    /// Kubernetes evicts no pod that several budgets select.
    SeveralBudgets(Vec<String>),
}

/// What a pool says about disrupting its nodes.
#[derive(Clone, Debug)]
pub struct PoolDisruption {
    pub policy: ConsolidationPolicy,
    pub consolidate_after: DurationOrNever,
    pub budgets: Vec<Budget>,
    /// The operator's defaults with the pool's own values over them.
    pub controls: ChurnControls,
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

/// Whether a node has been quiet for as long as its pool's `consolidateAfter` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consolidatable {
    Now,
    In(Duration),
    /// Not by time alone: the pool says `Never`, or the node is not initialised.
    Never,
}

/// What it costs to move a pod, exact: 1 for an ordinary one, more or less by its priority and its deletion cost.
///
/// The unit is 2^-27, in which the annotations `disruption-cost` and `pod-deletion-cost` count; priorities count in 2^-25.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub i64);

impl NodeDisruption {
    /// Since when no pod has come or gone. `None` while the node is not initialised.
    pub fn quiet_since(&self) -> Option<Timestamp> {
        self.initialized_at.map(|initialized| self.last_pod_event.unwrap_or(initialized))
    }
}

impl From<&NodeClaim> for NodeDisruption {
    /// What the claim alone says.
    fn from(claim: &NodeClaim) -> Self {
        let since = |kind: &str| {
            let condition = claim.condition(kind).filter(|_| claim.is_true(kind));
            condition.map(|condition| condition.last_transition_time.0)
        };
        let grace = claim.spec.termination_grace_period.as_ref();
        Self {
            provider_id: claim.provider_id().to_owned(),
            instance_terminating: claim.is_true(INSTANCE_TERMINATING),
            consolidatable: claim.is_true(CONSOLIDATABLE),
            drifted_since: since(DRIFTED),
            created: claim.metadata.creation_timestamp.as_ref().map(|time| time.0),
            expire_after: claim.spec.expire_after.as_duration(),
            termination_grace_period: grace.map(GoDuration::as_duration),
            initialized_at: since(INITIALIZED),
            last_pod_event: claim.last_pod_event(),
            setback: Setback::read(claim),
            reboots: RebootHistory::from(claim),
            ..Self::default()
        }
    }
}

impl PodDisruption {
    /// What is ordinary for a pod that may move.
    pub fn movable() -> Self {
        Self {
            reschedulable: true,
            counted: true,
            active: true,
            evictable: true,
            eviction_cost: Cost::ONE,
            ..Self::default()
        }
    }

    /// Whether the pod's own annotation keeps it where it is.
    pub fn is_protected(&self, now: Timestamp) -> bool {
        self.active && self.do_not_disrupt.holds(now)
    }
}

impl DoNotDisrupt {
    pub fn holds(self, now: Timestamp) -> bool {
        match self {
            Self::No => false,
            Self::Always => true,
            Self::Until(end) => now < end,
        }
    }

    /// When it ends by itself.
    pub fn end(self) -> Option<Timestamp> {
        match self {
            Self::Until(end) => Some(end),
            Self::No | Self::Always => None,
        }
    }
}

impl PoolDisruption {
    /// What the pool says, over the operator's `defaults`.
    pub fn new(pool: &Disruption, defaults: ChurnControls) -> Self {
        Self {
            policy: pool.consolidation_policy,
            consolidate_after: pool.consolidate_after.clone(),
            budgets: pool.budgets.clone(),
            controls: defaults.resolve(pool),
        }
    }

    /// Whether the node has been quiet for long enough to be consolidated.
    pub fn consolidatable(&self, node: &NodeDisruption, now: Timestamp) -> Consolidatable {
        let (Some(length), Some(_)) = (self.consolidate_after.as_duration(), node.quiet_since())
        else {
            return Consolidatable::Never;
        };
        match rest(node, length).filter(|until| now < *until) {
            Some(until) => {
                Consolidatable::In(until.duration_since(now).try_into().unwrap_or_default())
            }
            None => Consolidatable::Now,
        }
    }

    /// Until when the node takes no pods that consolidation would move: for `consolidateAfter` or for the grace period.
    pub(crate) fn settles_at(&self, node: &NodeDisruption) -> Option<Timestamp> {
        let busy_until = self.consolidate_after.as_duration().and_then(|it| rest(node, it));
        busy_until.max(self.grace_until(node))
    }

    pub(crate) fn grace_until(&self, node: &NodeDisruption) -> Option<Timestamp> {
        match self.controls.grace_period {
            GracePeriod::Off => None,
            GracePeriod::For(length) => rest(node, length),
        }
    }
}

impl Default for PoolDisruption {
    fn default() -> Self {
        Self::new(&Disruption::default(), ChurnControls::default())
    }
}

/// When so much time has passed since a pod came or went. No time at all has no end: a clock that runs behind must not make it
/// one.
fn rest(node: &NodeDisruption, length: Duration) -> Option<Timestamp> {
    if length.is_zero() {
        return None;
    }
    let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    Some(node.quiet_since()?.checked_add(length).unwrap_or(Timestamp::MAX))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_be_consolidated_when_it_was_quiet_for_long_enough() {
        let at = |time: &str| -> Timestamp { format!("2026-01-01T{time}Z").parse().unwrap() };
        let minutes = |n| Consolidatable::In(Duration::from_mins(n));
        let cases = [
            ("0s", true, None, Consolidatable::Now),
            ("30m", true, None, Consolidatable::Now),
            ("61m", true, None, minutes(1)),
            ("60m", true, None, Consolidatable::Now),
            ("30m", true, Some("00:50:00"), minutes(20)),
            ("10m", true, Some("00:50:00"), Consolidatable::Now),
            ("0s", true, Some("01:00:01"), Consolidatable::Now),
            ("Never", true, None, Consolidatable::Never),
            ("0s", false, None, Consolidatable::Never),
        ];
        for (after, initialized, last_event, expected) in cases {
            let pool =
                PoolDisruption { consolidate_after: after.parse().unwrap(), ..Default::default() };
            let node = NodeDisruption {
                initialized_at: initialized.then(|| at("00:00:00")),
                last_pod_event: last_event.map(at),
                ..NodeDisruption::default()
            };
            let got = pool.consolidatable(&node, at("01:00:00"));
            assert_eq!(got, expected, "{after} {initialized} {last_event:?}");
        }
    }
}
