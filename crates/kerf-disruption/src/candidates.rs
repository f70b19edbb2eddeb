//! Which nodes may be disrupted at all, and which of them by which method.

use std::{cmp::Ordering, sync::Arc};

use kerf_api::ConsolidationPolicy;
use kerf_model::{
    InstanceType, Node, Pod, Pool, Snapshot,
    disruption::Obstacle,
    labels::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE},
    snapshot::Idle,
};

use crate::{
    blocked::Blocked,
    command::{Candidate, Method},
    controls, costs, repair, setback, static_capacity,
};

/// The node as a candidate of the method, or the first check that it fails.
pub fn candidate(snapshot: &Snapshot, index: usize, method: Method) -> Result<Candidate, Blocked> {
    let node = &snapshot.nodes[index];
    let repairs = method == Method::Repair;
    let mut asked = NODE_CHECKS.iter().filter(|asked| !(repairs && asked.but_for_repair));
    asked.try_for_each(|asked| (asked.check)(snapshot, node))?;
    let pool = pool_of(snapshot, node)?;
    check_pods(snapshot, node, method)?;
    Ok(describe(snapshot, index, pool))
}

/// What is asked of a node, whatever the method.
pub(crate) struct NodeCheck {
    /// What holds where it passes.
    pub(crate) fact: &'static str,
    pub(crate) check: Asked,
    /// A node that is broken is repaired all the same.
    pub(crate) but_for_repair: bool,
}

pub(crate) const NODE_CHECKS: [NodeCheck; 12] = [
    always("no command is under way for it", |snapshot, node| {
        require(!snapshot.is_in_queue(node), || Blocked::InQueue)
    }),
    always("it has a NodeClaim", |_, node| require(node.claim.is_some(), || Blocked::NotManaged)),
    always("it has a Node", |_, node| require(node.exists, || Blocked::NoNode)),
    always("it is not being rebooted", |_, node| {
        require(!node.disruption.reboots.is_under_way(), || Blocked::Rebooting)
    }),
    always("it is not being deleted", |_, node| require(!node.deleting, || Blocked::Leaving)),
    always("it is registered", |_, node| {
        require(node.initialized || node.disruption.registered, || Blocked::NotRegistered)
    }),
    but_for_repair("it is initialized", |_, node| {
        require(node.initialized, || Blocked::NotInitialized)
    }),
    // Pods that are expected on a broken node would keep it for as long as others are expected after them.
    but_for_repair("no pod is expected on it", |snapshot, node| {
        match snapshot.nominated_until(node) {
            Some(until) => Err(Blocked::Nominated { until }),
            None => Ok(()),
        }
    }),
    but_for_repair("it has no do-not-disrupt annotation", |_, node| {
        require(!node.disruption.do_not_disrupt, || Blocked::NodeDoNotDisrupt)
    }),
    always("it and its pods can be read", |_, node| match &node.disruption.unreadable {
        Some(what) => Err(Blocked::Unreadable { what: what.clone() }),
        None => Ok(()),
    }),
    always("it names its NodePool", |_, node| {
        require(node.pool.is_some(), || Blocked::NoPoolLabel)
    }),
    always("its NodePool and instance types are known", |snapshot, node| {
        pool_of(snapshot, node).map(|_| ())
    }),
];

type Asked = fn(&Snapshot, &Node) -> Result<(), Blocked>;

const fn always(fact: &'static str, check: Asked) -> NodeCheck {
    NodeCheck { fact, check, but_for_repair: false }
}

const fn but_for_repair(fact: &'static str, check: Asked) -> NodeCheck {
    NodeCheck { fact, check, but_for_repair: true }
}

fn require(holds: bool, otherwise: impl FnOnce() -> Blocked) -> Result<(), Blocked> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

pub(crate) fn pool_of<'s>(snapshot: &'s Snapshot, node: &Node) -> Result<&'s Arc<Pool>, Blocked> {
    let name = node.pool.as_ref().ok_or(Blocked::NoPoolLabel)?;
    let pool = snapshot.pools.get(name);
    let pool = pool.ok_or_else(|| Blocked::PoolNotFound { pool: name.clone() })?;
    if let Some(Idle::Unreadable(what)) = &pool.idle {
        return Err(Blocked::Unreadable { what: what.clone() });
    }
    let known = !pool.instance_types.is_empty();
    require(known, || Blocked::UnknownInstanceTypes { pool: name.clone() })?;
    Ok(pool)
}

/// Pods that must not be evicted now. Drift need not wait for them where the pool bounds how long a drain takes.
pub(crate) fn check_pods(snapshot: &Snapshot, node: &Node, method: Method) -> Result<(), Blocked> {
    if method.is_eventual() && node.disruption.termination_grace_period.is_some() {
        return Ok(());
    }
    // What bounds the drain follows from the policies: it has a check of its own.
    if method == Method::Repair {
        return Ok(());
    }
    match blocking_pod(snapshot, node) {
        Some((pod, obstacle)) => Err(Blocked::Pod { pod, obstacle }),
        None => Ok(()),
    }
}

/// A pod that must not be evicted now, and why.
fn blocking_pod(snapshot: &Snapshot, node: &Node) -> Option<(String, Obstacle)> {
    let mut first = None;
    for pod in &node.pods {
        match snapshot.obstacle(pod) {
            None => {}
            // What a pod asks for itself is said before what a budget forbids.
            Some(obstacle @ Obstacle::DoNotDisrupt) => {
                return Some((pod.key(), obstacle));
            }
            Some(obstacle) => drop(first.get_or_insert((pod, obstacle))),
        }
    }
    first.map(|(pod, obstacle)| (pod.key(), obstacle))
}

pub(crate) fn describe(snapshot: &Snapshot, index: usize, pool: &Pool) -> Candidate {
    let node = &snapshot.nodes[index];
    let label = |key: &str| node.labels.get(key).cloned();
    let instance_type = label(INSTANCE_TYPE).and_then(|name| instance_type(pool, &name)).cloned();
    let (zone, capacity_type) = (label(ZONE), label(CAPACITY_TYPE));
    let reschedulable = |place: &usize| node.pods[*place].disruption.reschedulable;
    let moves = |pod: &Pod| {
        !pod.disruption.is_protected(snapshot.now) && !snapshot.is_blocked_for_good(pod)
    };
    let pods: Vec<usize> = (0..node.pods.len()).filter(reschedulable).collect();
    Candidate {
        index,
        node: Arc::clone(node),
        pool: pool.name.clone(),
        provider_id: node.disruption.provider_id.clone(),
        price: costs::price(instance_type.as_deref(), zone.as_deref(), capacity_type.as_deref()),
        instance_type,
        zone,
        capacity_type,
        moving: pods.iter().copied().filter(|place| moves(&node.pods[*place])).collect(),
        pods,
        virtual_pods: snapshot.seats.get(&node.name).copied().unwrap_or_default(),
        rescheduling_cost: costs::rescheduling_cost(node),
        disruption_cost: costs::disruption_cost(node, snapshot.now),
    }
}

fn instance_type<'a>(pool: &'a Pool, name: &str) -> Option<&'a Arc<InstanceType>> {
    pool.instance_types.iter().find(|instance_type| instance_type.name() == name)
}

pub(crate) type CandidateCheck = fn(&Snapshot, &Candidate) -> Result<(), Blocked>;

const DYNAMIC: (&str, CandidateCheck) = ("its NodePool is not static", |snapshot, candidate| {
    require(!pool(snapshot, candidate).is_static(), || Blocked::StaticPool)
});
const ENABLED: (&str, CandidateCheck) = ("its NodePool consolidates", |snapshot, candidate| {
    let never = pool(snapshot, candidate).disruption.consolidate_after.is_never();
    require(!never, || Blocked::ConsolidationDisabled { pool: candidate.pool.clone() })
});
const QUIET: (&str, CandidateCheck) =
    ("no pod has come or gone for consolidateAfter", |snapshot, candidate| {
        require(snapshot.is_quiet(&candidate.node), || Blocked::NotConsolidatable)
    });

pub(crate) const EMPTINESS: [(&str, CandidateCheck); 4] = [
    DYNAMIC,
    ENABLED,
    ("it is empty", |_, candidate| {
        let pods = candidate.pods.len();
        require(!candidate.has_pods_to_move(), || Blocked::NotEmpty { pods })?;
        let node = || candidate.node.name.clone();
        require(candidate.virtual_pods == 0, || Blocked::BufferPods { node: node() })
    }),
    QUIET,
];

const DRIFTED: (&str, CandidateCheck) = ("it has drifted", |_, candidate| {
    let drifted = candidate.node.disruption.drifted_since.is_some();
    require(drifted, || Blocked::NotDrifted)
});

pub(crate) const DRIFT: [(&str, CandidateCheck); 2] = [DYNAMIC, DRIFTED];

pub(crate) const STATIC_DRIFT: [(&str, CandidateCheck); 3] = [
    DRIFTED,
    ("its NodePool is ready and has the nodes that it keeps", |snapshot, candidate| {
        static_capacity::settled(snapshot, &candidate.pool)
    }),
    ("no replacement for it has just failed", |snapshot, candidate| {
        setback::check(&candidate.node, Method::StaticDrift.reason(), snapshot.now)
    }),
];

const DUE: (&str, CandidateCheck) = ("a repair policy asks for it", |snapshot, candidate| {
    repair::due(&candidate.node, snapshot.now).map(|_| ())
});
const NOT_VETOED: (&str, CandidateCheck) =
    ("it has no do-not-repair annotation", |_, candidate| {
        require(!candidate.node.disruption.do_not_repair, || Blocked::DoNotRepair)
    });
const BOUNDED: (&str, CandidateCheck) =
    ("its pods may be evicted, or its drain is bounded", |snapshot, candidate| {
        let facts = &candidate.node.disruption;
        let Ok(remedy) = repair::due(&candidate.node, snapshot.now) else { return Ok(()) };
        if remedy.drain.is_some() || facts.termination_grace_period.is_some() {
            return Ok(());
        }
        match blocking_pod(snapshot, &candidate.node) {
            Some((pod, obstacle)) => Err(Blocked::UnboundedDrain { pod, obstacle }),
            None => Ok(()),
        }
    });
const FEW: (&str, CandidateCheck) =
    ("few nodes of its NodePool are unhealthy", |snapshot, candidate| {
        repair::few_unhealthy(snapshot, &candidate.pool)
    });

pub(crate) const REPAIR: [(&str, CandidateCheck); 4] = [DUE, NOT_VETOED, BOUNDED, FEW];
/// The same without what is true of all nodes of a pool.
pub(crate) const REPAIR_OF_NODE: [(&str, CandidateCheck); 3] = [DUE, NOT_VETOED, BOUNDED];

pub(crate) const CONSOLIDATION: [(&str, CandidateCheck); 10] = [
    DYNAMIC,
    ("its instance type is known", |_, candidate| {
        let name = || candidate.node.labels.get(INSTANCE_TYPE).cloned().unwrap_or_default();
        let known = candidate.instance_type.is_some();
        require(known, || Blocked::InstanceTypeNotFound { name: name() })
    }),
    ("its capacity type is known", |_, candidate| {
        require(candidate.capacity_type.is_some(), || Blocked::NoCapacityType)
    }),
    ("its zone is known", |_, candidate| require(candidate.zone.is_some(), || Blocked::NoZone)),
    ENABLED,
    ("it has pods that would have to move", |_, candidate| {
        require(!candidate.is_empty(), || Blocked::Empty)
    }),
    ("its NodePool also consolidates nodes with pods", |snapshot, candidate| {
        let only_empty =
            pool(snapshot, candidate).disruption.policy == ConsolidationPolicy::WhenEmpty;
        require(!only_empty, || Blocked::PolicyWhenEmpty { pool: candidate.pool.clone() })
    }),
    QUIET,
    ("its grace period is over", |snapshot, candidate| {
        controls::grace_period(snapshot, &candidate.node)
    }),
    ("its utilization is within the threshold", |snapshot, candidate| {
        let controls = &pool(snapshot, candidate).disruption.controls;
        controls::utilization(&candidate.node, controls, snapshot.now)
    }),
];

/// Whether the method may take the candidate.
pub(crate) fn check(
    snapshot: &Snapshot,
    candidate: &Candidate,
    method: Method,
) -> Result<(), Blocked> {
    method.row().checks.iter().try_for_each(|(_, check)| check(snapshot, candidate))
}

fn pool<'s>(snapshot: &'s Snapshot, candidate: &Candidate) -> &'s Pool {
    &snapshot.pools[&candidate.pool]
}

/// The best bargain first. Equal ones by name.
pub(crate) fn by_savings_ratio(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| bargain(a, b).then_with(|| a.node.name.cmp(&b.node.name)));
}

/// Which of two is the better bargain, and comes first: what a node costs for what it costs to disturb it.
pub(crate) fn bargain(a: &Candidate, b: &Candidate) -> Ordering {
    let product = |one: &Candidate, other: &Candidate| {
        i128::from(one.price.ten_billionths()) * i128::from(other.rescheduling_cost.0)
    };
    product(b, a).cmp(&product(a, b))
}
