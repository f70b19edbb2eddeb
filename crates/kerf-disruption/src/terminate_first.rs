//! Terminate-first: a node goes before anything comes in its place.
//!
//! It is for nodes beside which nothing can be launched: the node holds the slot of a reservation that is full, or the place under
//! the limit of its static pool. What it gives back is what its successor is launched from. It is never chosen where a
//! replacement can come first, and only one node of a pool goes at a time: the next one when the pool is whole again. So
//! a slot that another consumer took, or a launch that fails, costs a pool one node and not all of them.

use std::{fmt, time::Duration};

use kerf_model::{ReservationId, Snapshot, resources::NODES};

use crate::{blocked::Blocked, command::Candidate};

/// How a node goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoesFirst {
    pub because: Because,
    pub drain: Drain,
}

/// Why nothing can come before the node has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    NoReservedCapacity,
    StaticAtLimit,
}

/// How long its pods may hold up a node that goes first. Until the last has gone there is no room for them elsewhere, so that a
/// PodDisruptionBudget that waits for pods which wait for room would wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// No pod has to move.
    Nothing,
    /// By the policy that repairs it.
    ByPolicy(Duration),
    /// By the `terminationGracePeriod` of its NodeClaim.
    Bounded(Duration),
    /// By that of its NodePool: its NodeClaim was made without.
    Supplied(Duration),
}

/// Why a node that would have to go first stays for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    #[error(
        "nothing can be launched beside it, and its NodePool is not whole ({coming} nodes are missing or coming, {going} are going): \
         it goes first when the others are there"
    )]
    NotWhole { coming: u64, going: u64 },
    #[error(
        "nothing can be launched beside it, and another node of its NodePool goes first: the next one goes when that has been \
         replaced"
    )]
    OneAtATime,
    #[error(
        "it would go before its replacement comes, and nothing bounds its drain: set spec.template.spec.terminationGracePeriod of its \
         NodePool"
    )]
    Unbounded,
    #[error(
        "nothing can be launched beside it, and other pods still wait for a node of its NodePool: it goes first when they have one"
    )]
    PodsWait,
}

impl Because {
    /// The label `terminate_first_reason` of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoReservedCapacity => "no-reserved-capacity",
            Self::StaticAtLimit => "static-at-limit",
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoReservedCapacity => "the reservation that it holds a slot of is full",
            Self::StaticAtLimit => "its static NodePool is at limits.nodes",
        })
    }
}

impl Drain {
    /// How long the drain of the candidate may take, or that nothing bounds it. `policy`: what the policy says that repairs it.
    pub fn of(
        snapshot: &Snapshot,
        candidate: &Candidate,
        policy: Option<Duration>,
    ) -> Result<Self, NotNow> {
        if candidate.pods.is_empty() {
            return Ok(Self::Nothing);
        }
        if let Some(bound) = policy {
            return Ok(Self::ByPolicy(bound));
        }
        if let Some(own) = candidate.node.disruption.termination_grace_period {
            return Ok(Self::Bounded(own));
        }
        let pool = snapshot.pools.get(&candidate.pool);
        let of_pool = pool.and_then(|pool| pool.termination_grace_period);
        of_pool.map(Self::Supplied).ok_or(NotNow::Unbounded)
    }

    /// What has to be written onto its claim, which does not say it itself. What a policy says is written with every repair.
    pub fn supplied(self) -> Option<Duration> {
        match self {
            Self::Nothing | Self::ByPolicy(_) | Self::Bounded(_) => None,
            Self::Supplied(bound) => Some(bound),
        }
    }
}

impl NotNow {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotWhole { .. } => "terminate_first_not_whole",
            Self::OneAtATime => "terminate_first_one_at_a_time",
            Self::Unbounded => "terminate_first_unbounded_drain",
            Self::PodsWait => "terminate_first_pods_wait",
        }
    }
}

/// How the candidate goes first, or why it does not now: its pool is whole apart from it, and its drain has an end.
pub fn goes_first(
    snapshot: &Snapshot,
    candidate: &Candidate,
    because: Because,
    policy: Option<Duration>,
) -> Result<GoesFirst, Blocked> {
    whole_without(snapshot, candidate).map_err(Blocked::NotNow)?;
    let drain = Drain::of(snapshot, candidate, policy).map_err(Blocked::NotNow)?;
    Ok(GoesFirst { because, drain })
}

/// Whether every other node of its pool is there: none is going, and none has yet to come. The candidate itself may be in any state.
pub fn whole_without(snapshot: &Snapshot, candidate: &Candidate) -> Result<(), NotNow> {
    let Some(pool) = snapshot.pools.get(&candidate.pool) else { return Ok(()) };
    let (mut there, mut coming, mut going) = (0, 0, 0);
    for (index, node) in snapshot.nodes.iter().enumerate() {
        if node.pool.as_ref() != Some(&pool.name) {
            continue;
        }
        if node.deleting || snapshot.is_in_queue(node) {
            going += 1;
        } else if index == candidate.index || (node.exists && node.initialized) {
            there += 1;
        } else {
            coming += 1;
        }
    }
    coming += u64::try_from(pool.launching.amount(NODES).units()).unwrap_or_default();
    if let Some(fixed) = pool.static_pool {
        // A limit below its replicas is as much as the pool will ever have.
        let wanted = fixed.limit.map_or(fixed.replicas, |limit| limit.min(fixed.replicas));
        going = going.max(fixed.count.replacing + fixed.count.leaving);
        coming = coming.max(wanted.saturating_sub(there)).max(fixed.count.reserved);
    }
    if coming + going == 0 { Ok(()) } else { Err(NotNow::NotWhole { coming, going }) }
}

/// The reservation that the candidate holds a slot of.
pub fn reservation(snapshot: &Snapshot, candidate: &Candidate) -> Option<ReservationId> {
    let instance_type = candidate.instance_type.as_deref()?;
    ReservationId::held_by(&candidate.node.labels, instance_type, &snapshot.labels)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kerf_model::{Node, NodeCount, Pod, Pool, Quantity, Resources, disruption::StaticPool};

    use super::*;

    fn node(name: &str) -> Node {
        Node {
            name: name.to_owned(),
            claim: Some(name.to_owned()),
            pool: Some("p".to_owned()),
            exists: true,
            initialized: true,
            ..Node::default()
        }
    }

    fn snapshot(pool: Pool, nodes: Vec<Node>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.pools.insert("p".to_owned(), Arc::new(Pool { name: "p".to_owned(), ..pool }));
        snapshot.nodes = nodes.into_iter().map(Arc::new).collect();
        snapshot
    }

    fn first_of(snapshot: &Snapshot) -> Candidate {
        let node = Arc::clone(&snapshot.nodes[0]);
        let pods = (0..node.pods.len()).collect();
        Candidate { index: 0, node, pool: "p".to_owned(), pods, ..Candidate::default() }
    }

    #[test]
    fn a_pool_is_whole_when_nothing_comes_and_nothing_goes() {
        let going = |name| Node { deleting: true, ..node(name) };
        let coming = |name| Node { initialized: false, ..node(name) };
        let elsewhere = |node: Node| Node { pool: Some("q".to_owned()), ..node };
        let dynamic = || (None, 0);
        let fixed = |replicas, limit, active| {
            let count = NodeCount { active, ..NodeCount::default() };
            (Some(StaticPool { replicas, limit, count, launches: true }), 0)
        };
        let missing = |coming, going| Err(NotNow::NotWhole { coming, going });
        for (what, (static_pool, launching), others, expected) in [
            ("alone", dynamic(), vec![], Ok(())),
            ("all there", dynamic(), vec![node("b")], Ok(())),
            ("one goes", dynamic(), vec![going("b")], missing(0, 1)),
            ("one comes", dynamic(), vec![coming("b")], missing(1, 0)),
            ("one is being launched", (None, 1), vec![node("b")], missing(1, 0)),
            ("both", dynamic(), vec![coming("b"), going("c")], missing(1, 1)),
            ("in another pool", dynamic(), vec![elsewhere(going("b"))], Ok(())),
            ("has its replicas", fixed(2, Some(2), 2), vec![node("b")], Ok(())),
            ("one is missing", fixed(3, Some(3), 2), vec![node("b")], missing(1, 0)),
            ("as many as its limit allows", fixed(5, Some(2), 2), vec![node("b")], Ok(())),
        ] {
            let launching: Resources =
                [(NODES, Quantity::from_units(launching))].into_iter().collect();
            let pool = Pool { static_pool, launching, ..Pool::default() };
            // The node itself need not be ready: that it is not may be why it goes.
            for own in [node("a"), coming("a")] {
                let snapshot = snapshot(pool.clone(), [vec![own], others.clone()].concat());
                assert_eq!(whole_without(&snapshot, &first_of(&snapshot)), expected, "{what}");
            }
        }
        let count = NodeCount { active: 2, reserved: 1, ..NodeCount::default() };
        let fixed = StaticPool { replicas: 2, limit: None, count, launches: true };
        let pool = Pool { static_pool: Some(fixed), ..Pool::default() };
        let reserved = snapshot(pool, vec![node("a"), node("b")]);
        assert_eq!(whole_without(&reserved, &first_of(&reserved)), missing(1, 0));
        let mut queued = snapshot(Pool::default(), vec![node("a"), node("b")]);
        queued.in_memory.in_queue.insert("b".to_owned());
        assert_eq!(whole_without(&queued, &first_of(&queued)), missing(0, 1));
    }

    #[test]
    fn a_drain_needs_an_end_where_pods_have_to_move() {
        let (ten, five) = (Duration::from_mins(10), Duration::from_mins(5));
        let occupied = || Node { pods: vec![Arc::new(Pod::default())], ..node("a") };
        let bounded = |mut node: Node, own: Option<Duration>| {
            node.disruption.termination_grace_period = own;
            node
        };
        for (node, of_pool, expected) in [
            (node("a"), None, Ok(Drain::Nothing)),
            (occupied(), None, Err(NotNow::Unbounded)),
            (bounded(occupied(), Some(ten)), None, Ok(Drain::Bounded(ten))),
            (bounded(occupied(), Some(ten)), Some(five), Ok(Drain::Bounded(ten))),
            (occupied(), Some(five), Ok(Drain::Supplied(five))),
        ] {
            let pool = Pool { termination_grace_period: of_pool, ..Pool::default() };
            let snapshot = snapshot(pool, vec![node]);
            let by_policy = Drain::of(&snapshot, &first_of(&snapshot), Some(five));
            let occupied = !snapshot.nodes[0].pods.is_empty();
            let of_policy = if occupied { Drain::ByPolicy(five) } else { Drain::Nothing };
            assert_eq!(by_policy, Ok(of_policy));
            let drain = Drain::of(&snapshot, &first_of(&snapshot), None);
            assert_eq!(drain, expected);
            let supplied = drain.ok().and_then(Drain::supplied);
            assert_eq!(
                supplied,
                expected.ok().and_then(|it| (it == Drain::Supplied(five)).then_some(five))
            );
        }
    }
}
