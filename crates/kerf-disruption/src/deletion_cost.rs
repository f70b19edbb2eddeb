//! Pod deletion costs: from which nodes `ReplicaSets` are to take pods first when they shrink.
//!
//! kube-controller-manager removes the pods with the lowest cost first. The pods of a node that Kerf would like to be rid of cost
//! less than those of others. So a workload that shrinks empties whole nodes, where it would thin them all, and the pods that are
//! left need not be evicted to get the same savings.
//!
//! | group | nodes | cost |
//! |---|---|---|
//! | A, leaving | on their way out | the least that there is |
//! | B, drifted | to be replaced | a rank |
//! | C, dispensable | that consolidation may take | a rank |
//! | D, kept | all others | none |
//!
//! Only pods of `ReplicaSets` have a cost from Kerf. Where somebody else has given a pod a cost, its `ReplicaSet` is left alone.

mod ranks;

use std::collections::{BTreeMap, BTreeSet};

use kerf_api::{ConsolidationPolicy, DisruptionReason, taints};
use kerf_model::{
    Node, Pod, Pool, Snapshot,
    disruption::{DeletionCost, Obstacle},
    labels::INSTANCE_TYPE,
};

use crate::{
    blocked::Blocked,
    budgets::{self, Allowance},
    candidates::{NODE_CHECKS, NodeCheck, bargain, describe, pool_of},
    command::Candidate,
    controls::{self, Stakes},
};

use ranks::ranks;

/// The cost of pods whose node is leaving.
pub const LEAVING: i32 = i32::MIN;
/// Of so many nodes, beside those that are leaving, pods get another cost in one round: each pod takes a write.
pub const MOST_NODES: usize = 50;

/// What each managed node is to cost, those first whose pods should go first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    pub nodes: Vec<Ranked>,
    /// Pods that are not on a managed node, or whose `ReplicaSet` is no longer Kerf's business.
    pub others: Vec<Wish>,
}

/// A managed node.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    pub node: String,
    pub pool: Option<String>,
    pub group: Group,
    /// The pods that do not have their cost yet.
    pub wishes: Vec<Wish>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Group {
    Leaving,
    Drifted { cost: i32 },
    Dispensable { cost: i32 },
    Kept(Kept),
}

/// Why the pods of a node have no cost.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    Blocked(Blocked),
    /// No `ReplicaSet` will take this pod away: a scale-down does not empty its node.
    Pinned {
        pod: String,
    },
}

/// What the annotation of a pod is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// `None`: Kerf's own is taken away.
    pub cost: Option<i32>,
}

/// The costs of all pods, as they should be.
pub fn rank(snapshot: &Snapshot) -> Ranking {
    let left_alone = left_alone(snapshot);
    let (mut leaving, mut drifted, mut dispensable, mut kept) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (index, node) in snapshot.nodes.iter().enumerate().filter(|(_, node)| node.claim.is_some())
    {
        if is_leaving(snapshot, node) {
            leaving.push(index);
            continue;
        }
        match eligible(snapshot, index) {
            Ok(candidate) if node.disruption.drifted_since.is_some() => drifted.push(candidate),
            Ok(candidate) => dispensable.push(candidate),
            Err(why) => kept.push((index, why)),
        }
    }
    let over = |(candidate, why): (Candidate, Blocked)| (candidate.index, Kept::Blocked(why));
    let mut within = Vec::new();
    for (candidates, reason) in [(drifted, Some(DisruptionReason::Drifted)), (dispensable, None)] {
        let (affordable, overflow) = afford(snapshot, candidates, reason);
        within.extend(affordable);
        kept.extend(overflow.into_iter().map(over));
    }
    let present: Vec<_> = within.iter().map(|one| cost_of(&one.node)).collect();
    let costs = ranks(&present);

    let ranked = |index: usize, group: Group| {
        let node = &snapshot.nodes[index];
        let wishes = wishes(node, &group, &left_alone);
        Ranked { node: node.name.clone(), pool: node.pool.clone(), group, wishes }
    };
    let mut nodes: Vec<_> =
        leaving.into_iter().map(|index| ranked(index, Group::Leaving)).collect();
    nodes.extend(within.iter().zip(costs).map(|(candidate, cost)| {
        let drifted = candidate.node.disruption.drifted_since.is_some();
        let group = if drifted { Group::Drifted { cost } } else { Group::Dispensable { cost } };
        ranked(candidate.index, group)
    }));
    kept.sort_by_key(|(index, _)| *index);
    nodes.extend(kept.into_iter().map(|(index, why)| ranked(index, Group::Kept(why))));
    let foreign = snapshot.nodes.iter().filter(|node| node.claim.is_none());
    let others = foreign.flat_map(|node| &node.pods).filter_map(|pod| wish(pod, None)).collect();
    Ranking { nodes, others }
}

impl Ranking {
    /// What is written in one round: everything of nodes that are leaving, and of the others so many, the best first.
    pub fn due(&self) -> impl Iterator<Item = &Wish> {
        let of_leaving = self.nodes.iter().filter(|node| node.group == Group::Leaving);
        let of_others = self.nodes.iter().filter(|node| node.group != Group::Leaving);
        let of_others = of_others.filter(|node| !node.wishes.is_empty()).take(MOST_NODES);
        of_leaving.chain(of_others).flat_map(|node| &node.wishes).chain(&self.others)
    }

    /// How many nodes of each pool have pods without their cost; also of pools where there are none.
    pub fn waiting(&self) -> BTreeMap<&str, usize> {
        let mut waiting = BTreeMap::new();
        for node in &self.nodes {
            let count: &mut usize =
                waiting.entry(node.pool.as_deref().unwrap_or_default()).or_default();
            *count += usize::from(!node.wishes.is_empty());
        }
        waiting
    }
}

/// `ReplicaSets`, by uid, of which somebody else has given a pod a cost. The order in which their pods go is that one's business, and
/// a cost from Kerf on the others would turn it round.
fn left_alone(snapshot: &Snapshot) -> BTreeSet<&str> {
    let bound = snapshot.nodes.iter().flat_map(|node| &node.pods);
    let all = bound.chain(&snapshot.pods);
    let foreign = all.filter(|pod| pod.disruption.deletion_cost == DeletionCost::Foreign);
    foreign.filter_map(|pod| Some(pod.replica_set()?.uid.as_str())).collect()
}

fn is_leaving(snapshot: &Snapshot, node: &Node) -> bool {
    node.deleting
        || snapshot.is_in_queue(node)
        || node.taints.iter().any(|taint| taint.key == taints::DISRUPTED)
}

/// The node as one whose pods should go first, or why it is not.
///
/// What stands in the way for a moment only (a pod is expected, a budget is used up, a pod came or went) keeps a node from getting
/// a cost, and takes none away: every pod that a scale-down removes starts the grace period of its node again, and would
/// send the next scale-down elsewhere.
fn eligible(snapshot: &Snapshot, index: usize) -> Result<Candidate, Kept> {
    let node = &snapshot.nodes[index];
    let is_chosen = cost_of(node).is_some();
    let hold = |why: Blocked| if is_chosen { Ok(()) } else { Err(Kept::Blocked(why)) };
    for NodeCheck { check, .. } in &NODE_CHECKS {
        match check(snapshot, node) {
            Err(why @ Blocked::Nominated { .. }) => hold(why)?,
            checked => checked.map_err(Kept::Blocked)?,
        }
    }
    let pool = pool_of(snapshot, node).map_err(Kept::Blocked)?;
    for pod in &node.pods {
        let Some(obstacle) = snapshot.obstacle(pod) else { continue };
        let lasts = obstacle == Obstacle::DoNotDisrupt || snapshot.is_blocked_for_good(pod);
        let why = Blocked::Pod { pod: pod.key(), obstacle };
        if lasts { Err(Kept::Blocked(why)) } else { hold(why) }?;
    }
    if let Some(pod) = node.pods.iter().find(|pod| pins(pod)) {
        return Err(Kept::Pinned { pod: pod.key() });
    }
    // Its number of nodes is fixed.
    if pool.is_static() {
        return Err(Kept::Blocked(Blocked::StaticPool));
    }
    let candidate = describe(snapshot, index, pool);
    if let Some(name) = node.labels.get(INSTANCE_TYPE).filter(|_| candidate.instance_type.is_none())
    {
        return Err(Kept::Blocked(Blocked::InstanceTypeNotFound { name: name.clone() }));
    }
    if node.disruption.drifted_since.is_some() {
        return Ok(candidate);
    }
    if pool.disruption.consolidate_after.is_never() {
        let pool = pool.name.clone();
        return Err(Kept::Blocked(Blocked::ConsolidationDisabled { pool }));
    }
    held_back(snapshot, &candidate, pool).map_err(Kept::Blocked)?;
    match controls::grace_period(snapshot, node) {
        Err(why) if consolidates(pool) => hold(why)?,
        _ => {}
    }
    Ok(candidate)
}

/// The controls that keep consolidation from the node: what Kerf would not remove it need not empty. They have no say in pools
/// where only empty nodes go.
fn held_back(snapshot: &Snapshot, candidate: &Candidate, pool: &Pool) -> Result<(), Blocked> {
    if !consolidates(pool) {
        return Ok(());
    }
    controls::utilization(&candidate.node, &pool.disruption.controls, snapshot.now)?;
    Stakes::of([candidate], &snapshot.pools).allow_removal()
}

fn consolidates(pool: &Pool) -> bool {
    pool.disruption.policy != ConsolidationPolicy::WhenEmpty
}

/// Whether the node is not empty as long as the pod is there, whatever `ReplicaSets` do. A Job's pod ends by itself, and what belongs to
/// the cluster does not count.
fn pins(pod: &Pod) -> bool {
    const OF_THE_CLUSTER: &str = "kube-system";
    pod.disruption.reschedulable
        && pod.namespace != OF_THE_CLUSTER
        && pod.replica_set().is_none()
        && !pod.is_of_job()
}

/// As many as the budgets of their pools leave, the best bargains first, and the others.
fn afford(
    snapshot: &Snapshot,
    mut candidates: Vec<Candidate>,
    reason: Option<DisruptionReason>,
) -> (Vec<Candidate>, Vec<(Candidate, Blocked)>) {
    // Of equal ones those that have a cost, in their order: a node that was chosen is emptied before another.
    let standing = |one: &Candidate| cost_of(&one.node).unwrap_or(0);
    candidates.sort_by(|a, b| {
        let equal = || standing(a).cmp(&standing(b)).then_with(|| a.node.name.cmp(&b.node.name));
        bargain(a, b).then_with(equal)
    });
    let mut allowances: BTreeMap<DisruptionReason, BTreeMap<String, Allowance>> = BTreeMap::new();
    let (mut within, mut over) = (Vec::new(), Vec::new());
    for candidate in candidates {
        // Where only empty nodes go, the budget for those counts.
        let reason = reason.unwrap_or_else(|| {
            let pool = snapshot.pools.get(&candidate.pool);
            let consolidates = pool.is_some_and(|pool| consolidates(pool));
            if consolidates { DisruptionReason::Underutilized } else { DisruptionReason::Empty }
        });
        let of_reason =
            allowances.entry(reason).or_insert_with(|| budgets::allowances(snapshot, reason));
        let allowance = of_reason.entry(candidate.pool.clone()).or_default();
        if allowance.left() == 0 {
            let why =
                Blocked::Budget { pool: candidate.pool.clone(), reason, allowance: *allowance };
            over.push((candidate, why));
        } else {
            allowance.disrupting += 1;
            within.push(candidate);
        }
    }
    (within, over)
}

/// The cost that most pods of the node have from Kerf; of a node that was about to leave, none.
fn cost_of(node: &Node) -> Option<i32> {
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    for pod in node.pods.iter().filter(|pod| is_ours(pod)) {
        match pod.disruption.deletion_cost {
            DeletionCost::Managed(cost) if cost != LEAVING && cost < 0 => {
                *counts.entry(cost).or_default() += 1;
            }
            _ => {}
        }
    }
    // Of equals the lower.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(cost, _)| cost)
}

/// Whether a deletion cost decides when the pod goes.
fn is_ours(pod: &Pod) -> bool {
    pod.disruption.active && pod.replica_set().is_some()
}

fn wishes(node: &Node, group: &Group, left_alone: &BTreeSet<&str>) -> Vec<Wish> {
    let cost = match group {
        Group::Leaving => Some(LEAVING),
        Group::Drifted { cost } | Group::Dispensable { cost } => Some(*cost),
        // What cannot be read is left alone.
        Group::Kept(Kept::Blocked(Blocked::Unreadable { .. })) => return Vec::new(),
        Group::Kept(_) => None,
    };
    let pods = node.pods.iter().filter(|pod| pod.disruption.active);
    let wishes = pods.filter_map(|pod| {
        let set = pod.replica_set().filter(|set| !left_alone.contains(set.uid.as_str()));
        wish(pod, cost.filter(|_| set.is_some()))
    });
    wishes.collect()
}

/// What has to change so that the pod has this cost. What somebody else has written stays.
fn wish(pod: &Pod, cost: Option<i32>) -> Option<Wish> {
    let present = match pod.disruption.deletion_cost {
        DeletionCost::Foreign => return None,
        DeletionCost::Managed(cost) => Some(cost),
        DeletionCost::None => None,
    };
    (present != cost).then(|| Wish {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        cost,
    })
}
