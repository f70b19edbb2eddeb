//! Pools that keep a fixed number of nodes: how many to create or to remove, which ones go, and how many drifted ones can
//! be replaced.

mod staging;

pub use staging::Staging;

use std::{cmp::Reverse, collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use kerf_model::{
    Node, NodeCount, Snapshot,
    disruption::{Cost, StaticPool},
};

use crate::{
    blocked::Blocked,
    candidates::{candidate, check},
    command::{Candidate, Command, Method, Replacement},
    controls::Lifetime,
    pass::{Look, spend},
    setback,
    terminate_first::GoesFirst,
};

const METHOD: Method = Method::StaticDrift;

/// What brings a static pool to its number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    Keep,
    /// By one, and then look again.
    Grow,
    Shrink(u64),
}

/// A node that is being replaced counts until its replacement has taken its place; otherwise a pool would first get one
/// node too many and then lose one again. One that is being deleted does not count here: only the limit counts it.
pub fn resize(replicas: u64, count: NodeCount) -> Resize {
    let coming = count.active + count.replacing + count.reserved;
    if count.active > replicas {
        Resize::Shrink(count.active - replicas)
    } else if coming < replicas {
        Resize::Grow
    } else {
        Resize::Keep
    }
}

/// A node that a static pool could give up.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    pub claim: &'a str,
    /// `None`: it has no instance yet.
    pub node: Option<&'a Node>,
}

/// The claims that go when a static pool has `excess` nodes too many: those that disturb least first, and by name among
/// equals. Nothing is ever safe from it, because the user asked for fewer nodes.
pub fn victims(members: &[Member<'_>], excess: u64, now: Timestamp) -> Vec<String> {
    let mut ranked: Vec<_> =
        members.iter().map(|member| (Rank::of(member, now), member.claim)).collect();
    ranked.sort_unstable();
    let excess = usize::try_from(excess).unwrap_or(usize::MAX);
    ranked.into_iter().take(excess).map(|(_, claim)| claim.to_owned()).collect()
}

/// In the order in which nodes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Unlaunched,
    /// No pod would have to move.
    Empty,
    Occupied(Cost),
    /// Some pod asks not to be disturbed.
    Protected(Cost),
}

impl Rank {
    fn of(member: &Member<'_>, now: Timestamp) -> Self {
        let Some(node) = member.node else { return Self::Unlaunched };
        let pods = || node.pods.iter().map(|pod| &pod.disruption);
        let protected = pods().any(|pod| pod.is_protected(now));
        if !protected && !pods().any(|pod| pod.reschedulable) {
            return Self::Empty;
        }
        let costs = pods().map(|pod| pod.eviction_cost.0);
        let sum = Cost(costs.fold(0, i64::saturating_add));
        let cost = Lifetime::remaining(node, now).of(sum);
        if protected { Self::Protected(cost) } else { Self::Occupied(cost) }
    }
}

/// Why drifted nodes of a static pool are not replaced, or not all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    #[error("its NodePool is not ready")]
    NotReady,
    #[error(
        "its NodePool has {active} nodes and keeps {replicas}: surplus nodes are removed first"
    )]
    ShrinksFirst { active: u64, replicas: u64 },
    #[error(
        "its NodePool has {active} nodes and keeps {replicas}: missing nodes are launched first"
    )]
    GrowsFirst { active: u64, replicas: u64 },
    #[error(
        "static NodePool is at its node limit and cannot stage a replacement (nodes={nodes}, including those that are being launched or \
         deleted, limits.nodes={limit})"
    )]
    NoHeadroom { nodes: u64, limit: u64 },
    #[error(
        "static NodePool's capacity reservations are full and cannot stage a replacement (it holds no slot of the {offered} that are \
         offered)"
    )]
    ReservationsFull { offered: usize },
    #[error(
        "no instance type of its NodePool has an offering that meets spec.template.spec.requirements: nothing could take its place"
    )]
    NoOffering,
}

impl Held {
    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::ShrinksFirst { .. } => "static_replica_excess",
            Self::GrowsFirst { .. } => "static_replica_shortage",
            Self::NoHeadroom { .. } => "static_node_limit",
            Self::ReservationsFull { .. } => "static_reservations_full",
            Self::NoOffering => "static_no_offering",
        }
    }
}

/// Each drifted node that budget and limit allow, the oldest drift first, and one more of the pool's template in its place. Where
/// no replacement can be launched beside them, one node goes first: one that gives back what its successor needs.
///
/// Nothing is tried out: the pool keeps as many nodes as it had, and its pods find room on what is alike.
pub(crate) fn look(look: &mut Look<'_>) {
    let snapshot = look.snapshot;
    let mut by_pool: BTreeMap<&str, Vec<Candidate>> = BTreeMap::new();
    for (index, node) in snapshot.nodes.iter().enumerate() {
        let drifted = node.disruption.drifted_since.is_some();
        let pool = snapshot.pool_of(node).filter(|pool| drifted && pool.is_static());
        if let Some(pool) = pool
            && let Ok(candidate) = candidate(snapshot, index, METHOD)
        {
            by_pool.entry(&pool.name).or_default().push(candidate);
        }
    }
    look.found.eligible.insert(METHOD, by_pool.values().map(Vec::len).sum());
    let mut allowances = look.allowances(METHOD);
    for (pool, mut drifted) in by_pool {
        let mut staging =
            Staging::of(snapshot, &snapshot.pools[pool], look.settings.terminate_first_drift);
        drifted.sort_by_cached_key(|one| {
            let holds = staging.holds_what_is_wanted(snapshot, one);
            (Reverse(holds), one.node.disruption.drifted_since, one.node.name.clone())
        });
        for candidate in drifted {
            let allowed = check(snapshot, &candidate, METHOD)
                .and_then(|()| setback::awake(&look.found.drift_rests, pool))
                .and_then(|()| staging.stage(snapshot, &candidate, None))
                .and_then(|way| spend(&mut allowances, &candidate, METHOD).map(|()| way));
            match allowed {
                Ok(way) => {
                    staging.use_up(way);
                    look.found.commands.push(replace(METHOD, snapshot, candidate, way));
                }
                Err(why) => look.refuse(&candidate, METHOD, why),
            }
        }
    }
}

/// What would be done with the drifted node if it were the only one.
pub(crate) fn verdict(
    snapshot: &Snapshot,
    terminate_first: bool,
    candidate: &Candidate,
) -> Result<Command, Blocked> {
    let staging = Staging::of(snapshot, &snapshot.pools[&candidate.pool], terminate_first);
    let way = staging.stage(snapshot, candidate, None)?;
    Ok(replace(METHOD, snapshot, candidate.clone(), way))
}

/// One more of the pool's template in the place of the node, before it goes or after.
pub(crate) fn replace(
    method: Method,
    snapshot: &Snapshot,
    candidate: Candidate,
    way: Option<GoesFirst>,
) -> Command {
    if let Some(first) = way {
        return Command::terminating_first(method, candidate, first, Vec::new());
    }
    let pool = Arc::clone(&snapshot.pools[&candidate.pool]);
    Command {
        // The provider picks, among all that the template allows.
        savings: None,
        replacements: vec![Replacement::OfTemplate(pool)],
        ..Command::removal(method, vec![candidate])
    }
}

/// Whether the pool is so that its nodes may be replaced, in whatever order they come and go.
pub(crate) fn settled(snapshot: &Snapshot, pool: &str) -> Result<(), Blocked> {
    let pool = snapshot.pools.get(pool).and_then(|pool| pool.static_pool);
    match headroom(&pool.ok_or(Blocked::NotStatic)?) {
        Ok(_) | Err(Held::NoHeadroom { .. }) => Ok(()),
        Err(held) => Err(Blocked::Static(held)),
    }
}

/// How many nodes of the pool can be replaced at once. Each replacement comes first, so it takes up room under the limit
/// beside the node that it replaces.
fn headroom(pool: &StaticPool) -> Result<u64, Held> {
    let StaticPool { replicas, limit, count, launches } = *pool;
    let active = count.active;
    if !launches {
        return Err(Held::NotReady);
    }
    match (resize(replicas, count), count.headroom(limit)) {
        (Resize::Shrink(_), _) => Err(Held::ShrinksFirst { active, replicas }),
        (_, 0) => Err(full(pool)),
        // What is missing needs the room more than what is out of date.
        (Resize::Grow, _) => Err(Held::GrowsFirst { active, replicas }),
        (Resize::Keep, room) => Ok(room),
    }
}

fn full(pool: &StaticPool) -> Held {
    let limit = pool.limit.unwrap_or(u64::MAX);
    Held::NoHeadroom { nodes: pool.count.total(), limit }
}

/// Drifted nodes that no amount of waiting replaces: the limit leaves no room beside the nodes that the pool keeps. Of a
/// dynamic pool only those can go whose pods find room elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{drifted} drifted nodes cannot be replaced: a replacement comes before the old node goes, and limits.nodes is {limit} with \
     {kept}; set limits.nodes to {} or more",
    .kept.nodes().saturating_add(1)
)]
pub struct DriftBlocked {
    pub drifted: u64,
    pub limit: u64,
    pub kept: Kept,
}

/// The nodes that a pool keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Replicas(u64),
    /// Of a dynamic pool, those that are here to stay.
    Nodes(u64),
}

impl Kept {
    fn nodes(self) -> u64 {
        let (Self::Replicas(nodes) | Self::Nodes(nodes)) = self;
        nodes
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicas(nodes) => write!(f, "{nodes} replicas"),
            Self::Nodes(nodes) => write!(f, "{nodes} nodes"),
        }
    }
}

pub fn drift_blocked(kept: Kept, limit: Option<u64>, drifted: u64) -> Option<DriftBlocked> {
    let limit = limit.filter(|limit| *limit <= kept.nodes() && drifted > 0)?;
    Some(DriftBlocked { drifted, limit, kept })
}

#[cfg(test)]
mod tests;
