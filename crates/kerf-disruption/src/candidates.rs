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
    costs,
};

/// The node as a candidate of the method, or the first check that it fails.
pub fn candidate(estate: &Estate, index: usize, method: Method) -> Result<Candidate, Blocked> {
    let rules = check_node(estate, index)?;
    let (node, standing) = (&estate.snapshot.nodes[index], &estate.standings[index]);
    check_pods(node, standing, method)?;
    Ok(describe(estate, index, rules))
}

/// What is asked of every node, whatever the method.
pub(crate) fn check_node(estate: &Estate, index: usize) -> Result<&Rules, Blocked> {
    let (node, standing) = (&estate.snapshot.nodes[index], &estate.standings[index]);
    if standing.in_queue {
        return Err(Blocked::InQueue);
    }
    if node.claim.is_none() {
        return Err(Blocked::NotManaged);
    }
    if !node.exists {
        return Err(Blocked::NoNode);
    }
    if !node.initialized {
        return Err(Blocked::NotInitialized);
    }
    if node.deleting {
        return Err(Blocked::Leaving);
    }
    if let Some(until) = standing.nominated_until.filter(|until| *until > estate.now) {
        return Err(Blocked::Nominated { until });
    }
    if standing.do_not_disrupt {
        return Err(Blocked::NodeDoNotDisrupt);
    }
    let pool = node.pool.as_ref().ok_or(Blocked::NoPoolLabel)?;
    let rules = estate.pools.get(pool).filter(|rules| !rules.pool.instance_types.is_empty());
    rules.ok_or_else(|| Blocked::PoolNotFound { pool: pool.clone() })
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

/// Whether Emptiness may take the candidate.
pub(crate) fn check_empty(estate: &Estate, candidate: &Candidate) -> Result<(), Blocked> {
    let rules = dynamic_rules(estate, candidate)?;
    if rules.consolidate_after.is_never() {
        return Err(Blocked::ConsolidationDisabled { pool: candidate.pool.clone() });
    }
    if !candidate.is_empty() {
        return Err(Blocked::NotEmpty { pods: candidate.pods.len() });
    }
    check_consolidatable(estate, candidate)
}

/// Whether Drift may take the candidate.
pub(crate) fn check_drifted(estate: &Estate, candidate: &Candidate) -> Result<(), Blocked> {
    dynamic_rules(estate, candidate)?;
    let drifted = estate.standings[candidate.index].drifted_since.is_some();
    if drifted { Ok(()) } else { Err(Blocked::NotDrifted) }
}

/// Whether consolidation may look at the candidate, before the controls are asked.
pub(crate) fn check_underutilized(estate: &Estate, candidate: &Candidate) -> Result<(), Blocked> {
    let rules = dynamic_rules(estate, candidate)?;
    let label = |key: &str| candidate.node.labels.get(key).cloned().unwrap_or_default();
    if candidate.instance_type.is_none() {
        return Err(Blocked::InstanceTypeNotFound { name: label(INSTANCE_TYPE) });
    }
    if candidate.capacity_type.is_none() {
        return Err(Blocked::NoCapacityType);
    }
    if candidate.zone.is_none() {
        return Err(Blocked::NoZone);
    }
    if rules.consolidate_after.is_never() {
        return Err(Blocked::ConsolidationDisabled { pool: candidate.pool.clone() });
    }
    if candidate.is_empty() {
        return Err(Blocked::Empty);
    }
    if rules.policy == ConsolidationPolicy::WhenEmpty {
        return Err(Blocked::PolicyWhenEmpty { pool: candidate.pool.clone() });
    }
    check_consolidatable(estate, candidate)
}

fn dynamic_rules<'e>(estate: &'e Estate, candidate: &Candidate) -> Result<&'e Rules, Blocked> {
    let rules = &estate.pools[&candidate.pool];
    if rules.is_static() { Err(Blocked::StaticPool) } else { Ok(rules) }
}

fn check_consolidatable(estate: &Estate, candidate: &Candidate) -> Result<(), Blocked> {
    let standing = &estate.standings[candidate.index];
    if standing.consolidatable { Ok(()) } else { Err(Blocked::NotConsolidatable) }
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
