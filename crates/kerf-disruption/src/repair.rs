//! Repair: nodes that are broken, as the policies of their provider say. It is asked before every other method.
//!
//! What a node's conditions match is a fact of the node ([`RepairMatch`]). Here is what follows from that at a time: whether
//! something is due, which nodes go first, when too many are broken for the nodes to be the cause, and what takes their place.

use std::{cell::OnceCell, cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kerf_model::{
    Node, Snapshot,
    labels::ZONE,
    reboot::LastReboot,
    repair::{RepairAction, RepairMatch, RepairPolicy},
};

use crate::{
    blocked::{Blocked, TooManyUnhealthy},
    budgets::Allowance,
    candidates::{REPAIR_OF_NODE, candidate},
    command::{Candidate, Command, Method},
    pass::{Look, afford, spend},
    reboot::{self, Escalation},
    setback,
    settings::Settings,
    simulation::Simulation,
    static_capacity::{self, Staging},
    terminate_first::{Because, goes_first, reservation},
};

const METHOD: Method = Method::Repair;

/// A node that has waited this long goes before one whose policy is one rank higher and that has not waited.
const AGING: SignedDuration = SignedDuration::from_mins(30);

/// What is to be done about a node, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    pub action: RepairAction,
    /// The policy that asks for the action, and the condition that it found.
    pub policy: Arc<RepairPolicy>,
    pub is_fallback: bool,
    pub condition: String,
    pub status: String,
    pub reason: String,
    /// Since when it is due.
    pub since: Timestamp,
    /// How long the drain may take at most. `None`: as long as the NodeClaim says.
    pub drain: Option<Duration>,
    /// Why the node is replaced where the policy asks for a reboot.
    pub instead: Option<Escalation>,
    /// The higher goes first.
    urgency: SignedDuration,
}

/// What is due for the node now.
pub fn due(node: &Node, now: Timestamp) -> Result<Remedy, Blocked> {
    let (matches, reboots) = (&node.disruption.repair, &node.disruption.reboots);
    let not_before = not_before(node);
    let remedy = resolve(matches, now, not_before).ok_or_else(|| {
        let next = matches.iter().min_by_key(|one| one.eligible_at(not_before));
        next.map_or(Blocked::Healthy, |next| Blocked::Tolerated {
            condition: next.condition.clone(),
            status: next.status.clone(),
            until: next.eligible_at(not_before),
        })
    })?;
    let instead = match remedy.action {
        RepairAction::Reboot => reboot::escalation(reboots, now),
        RepairAction::Replace => None,
    };
    let action = if instead.is_some() { RepairAction::Replace } else { remedy.action };
    Ok(Remedy { action, instead, ..remedy })
}

/// A node that was rebooted has to show again that it is broken. One whose reboot failed has shown it.
pub(crate) fn not_before(node: &Node) -> Option<Timestamp> {
    match node.disruption.reboots.last {
        LastReboot::Succeeded { at } => Some(at),
        LastReboot::None | LastReboot::UnderWay | LastReboot::Failed { .. } => None,
    }
}

/// One remedy from all matches whose toleration is over. The most disruptive action is taken; who asks for it, how long the drain
/// may take and how urgent it is are separate questions, and any match may answer them.
fn resolve(
    matches: &[RepairMatch],
    now: Timestamp,
    not_before: Option<Timestamp>,
) -> Option<Remedy> {
    let at = |one: &RepairMatch| one.eligible_at(not_before);
    let due = || matches.iter().filter(|one| at(one) <= now);
    let action = due().map(|one| one.policy.action).max()?;
    let source = due()
        .filter(|one| one.policy.action == action)
        .min_by_key(|one| (Reverse(one.rank), at(one), &one.condition))?;
    let drain = due().filter_map(|one| one.policy.termination_grace_period).min();
    let urgency = |one: &RepairMatch| {
        let waited = now.duration_since(at(one));
        waited.saturating_add(AGING.saturating_mul(i32::try_from(one.rank).unwrap_or(i32::MAX)))
    };
    Some(Remedy {
        action,
        policy: Arc::clone(&source.policy),
        is_fallback: source.is_fallback,
        condition: source.condition.clone(),
        status: source.status.clone(),
        reason: source.reason.clone(),
        since: at(source),
        drain,
        instead: None,
        urgency: due().map(urgency).max().unwrap_or_default(),
    })
}

/// Whether so few nodes of the pool are unhealthy that it is worth replacing them. With many, something else than the nodes is
/// broken: a network, a zone, an image, whatever says that they are unhealthy.
///
/// Any condition that a policy is about counts, tolerated or not. A node with `do-not-repair` does not: its owner
/// knows of it.
pub(crate) fn few_unhealthy(snapshot: &Snapshot, pool: &str) -> Result<(), Blocked> {
    let percent = snapshot.repair.as_ref().map_or(100, |rules| rules.most_unhealthy_percent);
    let (mut nodes, mut unhealthy, mut zones) = (0, 0, BTreeMap::new());
    let of_pool = |node: &&Arc<Node>| node.exists && node.pool.as_deref() == Some(pool);
    for node in snapshot.nodes.iter().filter(of_pool) {
        nodes += 1;
        if !node.disruption.repair.is_empty() && !node.disruption.do_not_repair {
            unhealthy += 1;
            let zone = node.labels.get(ZONE).map_or("unknown zone", String::as_str);
            *zones.entry(zone.to_owned()).or_default() += 1;
        }
    }
    if unhealthy <= (nodes * usize::from(percent)).div_ceil(100) {
        return Ok(());
    }
    let pool = pool.to_owned();
    let many = TooManyUnhealthy { pool, unhealthy, nodes, percent, zones };
    Err(Blocked::TooManyUnhealthy(many))
}

/// The most urgent node that can be replaced; or all empty ones that may go, where the most urgent is empty.
pub(crate) fn look(look: &mut Look<'_>) {
    let snapshot = look.snapshot;
    let mut due = find(look);
    look.found.eligible.insert(METHOD, due.len());
    if due.is_empty() {
        return;
    }
    look.memory.begin_pass(METHOD, look.fingerprint, snapshot.now);
    let round = look.memory.round(METHOD);
    let candidates: Vec<_> = due.iter().map(|(candidate, _)| candidate.clone()).collect();
    round.retain(&candidates);
    due.retain(|(candidate, _)| !round.is_known(&candidate.node.name));
    due.sort_by_cached_key(|(candidate, remedy)| {
        let name = candidate.node.name.clone();
        let (waits, cost) = (round.was_set_aside(&name), candidate.disruption_cost);
        (waits, Reverse(remedy.urgency), cost, name)
    });
    let simulation = OnceCell::new();
    let simulate = || simulation.get_or_init(|| Simulation::of_repair(snapshot, look.settings));
    let mut allowances = look.found.allowances[&METHOD.reason()].clone();
    let mut looks = 0;
    for (candidate, remedy) in due {
        if let Err(why) = affordable(&allowances, &candidate) {
            look.refuse(&candidate, METHOD, why);
            continue;
        }
        // Those that are only removed or rebooted are independent of each other. A replacement is planned in a world that stays as it is.
        let alone = needs_room(snapshot, &candidate, remedy.action);
        if alone {
            if !look.found.commands.is_empty() {
                continue;
            }
            if looks == look.settings.looks_per_pass {
                look.found.complete = false;
                break;
            }
            looks += 1;
        }
        match command(snapshot, look.settings, simulate, &candidate) {
            Ok(command) => {
                if came_up(&candidate.node) {
                    // There is room: it was looked at above.
                    drop(spend(&mut allowances, &candidate, METHOD));
                }
                look.found.commands.push(command);
                if alone {
                    break;
                }
            }
            Err(why) => {
                look.memory.round(METHOD).looked_at(&candidate.node.name);
                look.refuse(&candidate, METHOD, why);
            }
        }
    }
}

/// The nodes that are to be repaired now, whatever that takes.
fn find(look: &mut Look<'_>) -> Vec<(Candidate, Remedy)> {
    let snapshot = look.snapshot;
    let mut few: BTreeMap<String, Result<(), Blocked>> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, node) in snapshot.nodes.iter().enumerate() {
        if node.disruption.repair.is_empty() {
            continue;
        }
        let remedy = due(node, snapshot.now);
        if node.claim.is_some() && node.pool.is_none() && remedy.is_ok() {
            look.refuse_node(node, METHOD, Blocked::RepairWithoutPool);
        }
        // Why it is no candidate was said where all nodes were looked at, or repair has no business with it.
        let Ok(candidate) = candidate(snapshot, index, METHOD) else { continue };
        let mut of_node = REPAIR_OF_NODE.iter();
        let asked = of_node.try_for_each(|(_, check)| check(snapshot, &candidate));
        let asked = asked.and_then(|()| {
            let pool = &candidate.pool;
            few.entry(pool.clone()).or_insert_with(|| few_unhealthy(snapshot, pool)).clone()
        });
        match asked.and(remedy) {
            Ok(remedy) => found.push((candidate, remedy)),
            Err(why) => look.refuse(&candidate, METHOD, why),
        }
    }
    found
}

/// Whether the node was ever one that its pool counts on. One that is back from a reboot is to be initialised again, and one that did
/// not come back is a loss all the same.
pub(crate) fn came_up(node: &Node) -> bool {
    node.initialized || node.disruption.reboots.last != LastReboot::None
}

/// A node that never came up is no loss to its pool.
fn affordable(
    allowances: &BTreeMap<String, Allowance>,
    candidate: &Candidate,
) -> Result<(), Blocked> {
    if came_up(&candidate.node) { afford(allowances, candidate, METHOD) } else { Ok(()) }
}

/// Whether the node can go without a look at where its pods would go: it has none. A static pool gets another node all the same.
pub(crate) fn needs_no_room(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    candidate.pods.is_empty() && !snapshot.pools[&candidate.pool].is_static()
}

/// Whether it is repaired only where something else has room for its pods. Those of a node that is rebooted wait for it.
pub(crate) fn needs_room(snapshot: &Snapshot, candidate: &Candidate, action: RepairAction) -> bool {
    action == RepairAction::Replace && !needs_no_room(snapshot, candidate)
}

/// What repairs the node.
pub(crate) fn command<'s, 'e: 's>(
    snapshot: &Snapshot,
    settings: &Settings,
    simulation: impl FnOnce() -> &'s Simulation<'e>,
    candidate: &Candidate,
) -> Result<Command, Blocked> {
    let mut remedy = due(&candidate.node, snapshot.now)?;
    let own = candidate.node.disruption.termination_grace_period;
    remedy.drain = remedy.drain.map(|drain| own.map_or(drain, |own| own.min(drain)));
    if remedy.action == RepairAction::Reboot {
        // A deletion would observe the claim's own bound by itself. Here there is none.
        remedy.drain = remedy.drain.or(own);
        let command = Command::reboot(METHOD, candidate.clone());
        return Ok(Command { remedy: Some(remedy), ..command });
    }
    let rested = || setback::check(&candidate.node, METHOD.reason(), snapshot.now);
    let pool = &snapshot.pools[&candidate.pool];
    let command = if pool.is_static() {
        if !settings.static_capacity {
            return Err(Blocked::StaticPool);
        }
        let staging = Staging::of(snapshot, pool, settings.terminate_first_repair);
        let way = staging.stage(snapshot, candidate, remedy.drain)?;
        if way.is_none() {
            rested()?;
        }
        static_capacity::replace(METHOD, snapshot, candidate.clone(), way)
    } else if needs_no_room(snapshot, candidate) {
        Command::removal(METHOD, vec![candidate.clone()])
    } else {
        match simulation().replacing(candidate) {
            Ok(outcome) => {
                if !outcome.claims.is_empty() {
                    rested()?;
                }
                Command::replacing(METHOD, candidate.clone(), outcome)
            }
            Err(nowhere) => in_its_own_slot(snapshot, settings, candidate, remedy.drain, nowhere)?,
        }
    };
    Ok(Command { remedy: Some(remedy), ..command })
}

/// The node goes first, where its pods run only in the slot of the reservation that it gives back.
fn in_its_own_slot(
    snapshot: &Snapshot,
    settings: &Settings,
    candidate: &Candidate,
    drain: Option<Duration>,
    nowhere: Blocked,
) -> Result<Command, Blocked> {
    let held = reservation(snapshot, candidate).filter(|_| settings.terminate_first_repair);
    let Some(held) = held else { return Err(nowhere) };
    let world = Simulation::of_repair_that_terminates_first(snapshot, settings);
    let outcome = match world.refilled(candidate, &held) {
        Ok(outcome) => outcome,
        Err(Blocked::NotNow(why)) => return Err(Blocked::NotNow(why)),
        Err(_) => return Err(nowhere),
    };
    let first = goes_first(snapshot, candidate, Because::NoReservedCapacity, drain)?;
    Ok(Command::terminating_first(METHOD, candidate.clone(), first, outcome.placements))
}

#[cfg(test)]
mod tests;
