//! Which nodes may be disrupted at all, and which of them by which method.

use std::sync::Arc;

use kerf_api::ConsolidationPolicy;
use kerf_model::{
    InstanceType, Node,
    estate::{Estate, Obstacle, Rules, Standing, Tenant},
    labels::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE},
};

use crate::{
    blocked::Blocked,
    command::{Candidate, Method},
    controls, costs, setback, static_capacity,
};

/// The node as a candidate of the method, or the first check that it fails.
pub fn candidate(estate: &Estate, index: usize, method: Method) -> Result<Candidate, Blocked> {
    let rules = check_node(estate, index)?;
    let (node, standing) = (&estate.snapshot.nodes[index], &estate.standings[index]);
    check_pods(node, standing, method)?;
    Ok(describe(estate, index, rules))
}

pub(crate) type NodeCheck = fn(&Estate, usize) -> Result<(), Blocked>;

/// What is asked of every node, whatever the method, and how it is called where it is explained.
pub(crate) const NODE_CHECKS: [(&str, NodeCheck); 10] = [
    ("no command is under way for it", |estate, index| {
        require(!estate.standings[index].in_queue, || Blocked::InQueue)
    }),
    ("it has a NodeClaim", |estate, index| {
        require(estate.snapshot.nodes[index].claim.is_some(), || Blocked::NotManaged)
    }),
    ("it has a Node", |estate, index| {
        require(estate.snapshot.nodes[index].exists, || Blocked::NoNode)
    }),
    ("it is initialized", |estate, index| {
        require(estate.snapshot.nodes[index].initialized, || Blocked::NotInitialized)
    }),
    ("it is not on its way out", |estate, index| {
        require(!estate.snapshot.nodes[index].deleting, || Blocked::Leaving)
    }),
    ("no pod is about to come", |estate, index| {
        let nominated = estate.standings[index].nominated_until;
        match nominated.filter(|until| *until > estate.now) {
            Some(until) => Err(Blocked::Nominated { until }),
            None => Ok(()),
        }
    }),
    ("it does not ask to be left alone", |estate, index| {
        require(!estate.standings[index].do_not_disrupt, || Blocked::NodeDoNotDisrupt)
    }),
    ("it and its pods can be read", |estate, index| match &estate.standings[index].unreadable {
        Some(what) => Err(Blocked::Unreadable { what: what.clone() }),
        None => Ok(()),
    }),
    ("it names its NodePool", |estate, index| {
        require(estate.snapshot.nodes[index].pool.is_some(), || Blocked::NoPoolLabel)
    }),
    ("its NodePool and instance types are known", |estate, index| {
        rules_of(estate, index).map(|_| ())
    }),
];

fn require(holds: bool, otherwise: impl FnOnce() -> Blocked) -> Result<(), Blocked> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn check_node(estate: &Estate, index: usize) -> Result<&Rules, Blocked> {
    NODE_CHECKS.iter().try_for_each(|(_, check)| check(estate, index))?;
    rules_of(estate, index)
}

pub(crate) fn rules_of(estate: &Estate, index: usize) -> Result<&Rules, Blocked> {
    let pool = estate.snapshot.nodes[index].pool.as_ref().ok_or(Blocked::NoPoolLabel)?;
    let rules = estate.pools.get(pool);
    let rules = rules.ok_or_else(|| Blocked::PoolNotFound { pool: pool.clone() })?;
    let known = !rules.pool.instance_types.is_empty();
    require(known, || Blocked::UnknownInstanceTypes { pool: pool.clone() })?;
    Ok(rules)
}

/// Pods that must not be evicted now. Drift need not wait for them where the pool bounds how long a drain takes.
pub(crate) fn check_pods(node: &Node, standing: &Standing, method: Method) -> Result<(), Blocked> {
    if method.is_eventual() && standing.termination_grace_period.is_some() {
        return Ok(());
    }
    let blocking = |protected: bool| {
        standing.tenants.iter().enumerate().find_map(|(place, tenant)| {
            let obstacle = tenant.obstacle.as_ref()?;
            let pod = || node.pods[place].key();
            let own = *obstacle == Obstacle::DoNotDisrupt;
            (own == protected).then(|| Blocked::Pod { pod: pod(), obstacle: obstacle.clone() })
        })
    };
    blocking(true).or_else(|| blocking(false)).map_or(Ok(()), Err)
}

pub(crate) fn describe(estate: &Estate, index: usize, rules: &Rules) -> Candidate {
    let (node, standing) = (&estate.snapshot.nodes[index], &estate.standings[index]);
    let label = |key: &str| node.labels.get(key).cloned();
    let instance_type = label(INSTANCE_TYPE).and_then(|name| instance_type(rules, &name)).cloned();
    let (zone, capacity_type) = (label(ZONE), label(CAPACITY_TYPE));
    let places = |wanted: fn(&Tenant) -> bool| -> Vec<usize> {
        let tenants = standing.tenants.iter().enumerate();
        tenants.filter(|(_, tenant)| wanted(tenant)).map(|(place, _)| place).collect()
    };
    Candidate {
        index,
        node: Arc::clone(node),
        pool: rules.pool.name.clone(),
        provider_id: standing.provider_id.clone(),
        price: costs::price(instance_type.as_deref(), zone.as_deref(), capacity_type.as_deref()),
        instance_type,
        zone,
        capacity_type,
        pods: places(|tenant| tenant.reschedulable),
        moving: places(|tenant| {
            let protected = tenant.obstacle == Some(Obstacle::DoNotDisrupt);
            tenant.reschedulable && !protected && !tenant.blocked_for_good
        }),
        rescheduling_cost: costs::rescheduling_cost(standing),
        disruption_cost: costs::disruption_cost(standing, estate.now),
    }
}

fn instance_type<'a>(rules: &'a Rules, name: &str) -> Option<&'a Arc<InstanceType>> {
    rules.pool.instance_types.iter().find(|instance_type| instance_type.name() == name)
}

pub(crate) type CandidateCheck = fn(&Estate, &Candidate) -> Result<(), Blocked>;

const DYNAMIC: (&str, CandidateCheck) = ("its NodePool is not static", |estate, candidate| {
    require(!rules(estate, candidate).is_static(), || Blocked::StaticPool)
});
const ENABLED: (&str, CandidateCheck) =
    ("its NodePool does not say consolidateAfter: Never", |estate, candidate| {
        let never = rules(estate, candidate).consolidate_after.is_never();
        require(!never, || Blocked::ConsolidationDisabled { pool: candidate.pool.clone() })
    });
const QUIET: (&str, CandidateCheck) =
    ("its NodeClaim is Consolidatable: quiet for consolidateAfter", |estate, candidate| {
        let quiet = estate.standings[candidate.index].consolidatable;
        require(quiet, || Blocked::NotConsolidatable)
    });

const EMPTINESS: [(&str, CandidateCheck); 4] = [
    DYNAMIC,
    ENABLED,
    ("no pod would have to move", |_, candidate| {
        require(candidate.is_empty(), || Blocked::NotEmpty { pods: candidate.pods.len() })
    }),
    QUIET,
];

const DRIFTED: (&str, CandidateCheck) =
    ("it is no longer as its NodePool wants it", |estate, candidate| {
        let drifted = estate.standings[candidate.index].drifted_since.is_some();
        require(drifted, || Blocked::NotDrifted)
    });

const DRIFT: [(&str, CandidateCheck); 2] = [DYNAMIC, DRIFTED];

const STATIC_DRIFT: [(&str, CandidateCheck); 3] = [
    DRIFTED,
    ("its NodePool has room for its replacement", |estate, candidate| {
        static_capacity::room(estate, &candidate.pool).map(|_| ())
    }),
    ("no replacement for it has just failed", |estate, candidate| {
        let standing = &estate.standings[candidate.index];
        setback::check(standing, Method::StaticDrift.reason(), estate.now)
    }),
];

const CONSOLIDATION: [(&str, CandidateCheck); 10] = [
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
    ("it is not empty", |_, candidate| require(!candidate.is_empty(), || Blocked::Empty)),
    ("its NodePool's policy is not WhenEmpty", |estate, candidate| {
        let only_empty = rules(estate, candidate).policy == ConsolidationPolicy::WhenEmpty;
        require(!only_empty, || Blocked::PolicyWhenEmpty { pool: candidate.pool.clone() })
    }),
    QUIET,
    ("its grace period is over", |estate, candidate| {
        let standing = &estate.standings[candidate.index];
        controls::grace_period(standing, rules(estate, candidate), estate.now)
    }),
    ("its utilization is not above the threshold", |estate, candidate| {
        let standing = &estate.standings[candidate.index];
        let controls = &rules(estate, candidate).controls;
        controls::utilization(&candidate.node, standing, controls, estate.now)
    }),
];

/// What a method asks of its candidates, and how it is called where it is explained.
pub(crate) fn checks(method: Method) -> &'static [(&'static str, CandidateCheck)] {
    match method {
        Method::Emptiness => &EMPTINESS,
        Method::Drift => &DRIFT,
        Method::MultiNode | Method::SingleNode => &CONSOLIDATION,
        Method::StaticDrift => &STATIC_DRIFT,
    }
}

/// Whether the method may take the candidate.
pub(crate) fn check(estate: &Estate, candidate: &Candidate, method: Method) -> Result<(), Blocked> {
    checks(method).iter().try_for_each(|(_, check)| check(estate, candidate))
}

fn rules<'e>(estate: &'e Estate, candidate: &Candidate) -> &'e Rules {
    &estate.pools[&candidate.pool]
}

/// The best bargain first: what a node costs for what it costs to disturb it. Equal ones by name.
pub(crate) fn by_savings_ratio(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| {
        let bargain = |one: &Candidate, other: &Candidate| {
            i128::from(one.price.ten_billionths()) * i128::from(other.rescheduling_cost.0)
        };
        bargain(b, a).cmp(&bargain(a, b)).then_with(|| a.node.name.cmp(&b.node.name))
    });
}
