//! Whether a command is still right a while after it was found.

use std::sync::Arc;

use kerf_model::{InstanceType, KnownLabels, Node, Snapshot, catalogue::satisfies_min_values};
use kerf_scheduler::PlannedClaim;

use crate::{
    blocked::Blocked,
    budgets::allowances,
    candidates::{candidate, check},
    command::{Candidate, Command, Method, Replacement},
    pass::spend,
    seats::seated,
    settings::Settings,
    simulation::Simulation,
};

/// A command that is still right.
#[derive(Clone, Debug)]
pub struct Validated {
    pub command: Command,
    /// Nodes that it no longer has. Only a command that removes empty nodes can do without some.
    pub dropped: Vec<(Candidate, Blocked)>,
}

/// A command that is no longer right.
#[derive(Clone, Debug)]
pub struct Invalid {
    /// One of the `Validation` reasons.
    pub why: Blocked,
    /// How many nodes that concerns, as Karpenter's metric counts them.
    pub failures: usize,
}

/// Looks at a command again, with the cluster as it is now.
pub fn validate(
    command: &Command,
    snapshot: &Snapshot,
    settings: &Settings,
) -> Result<Validated, Invalid> {
    match command.method.row().second_look {
        Some(look) => look(command, &seated(snapshot, settings), settings),
        None => Ok(Validated { command: command.clone(), dropped: Vec::new() }),
    }
}

pub(crate) fn still_empty(command: &Command, snapshot: &Snapshot) -> Result<Validated, Invalid> {
    let mut allowances = allowances(snapshot, command.reason());
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for old in &command.candidates {
        let again = again(snapshot, old, command.method)
            .and_then(|new| check(snapshot, &new, command.method).map(|()| new))
            .and_then(|new| spend(&mut allowances, &new, command.method).map(|()| new));
        match again {
            Ok(new) => kept.push(new),
            Err(why) => dropped.push((old.clone(), why)),
        }
    }
    if kept.is_empty() {
        let only_budgets = |(_, why): &(_, Blocked)| {
            matches!(why, Blocked::Budget { .. } | Blocked::Nominated { .. })
        };
        let why = if dropped.iter().any(only_budgets) {
            Blocked::ValidationBudget
        } else {
            Blocked::ValidationChurn
        };
        return Err(Invalid { why, failures: dropped.len() });
    }
    Ok(Validated { command: Command::removal(command.method, kept), dropped })
}

pub(crate) fn still_underutilized(
    command: &Command,
    snapshot: &Snapshot,
    settings: &Settings,
) -> Result<Validated, Invalid> {
    let failed = |why| Invalid { why, failures: command.candidates.len() };
    let fresh = still_candidates(command, snapshot)?;
    let simulation = Simulation::of_consolidation(snapshot, settings);
    let candidates: Vec<_> = fresh.iter().collect();
    let outcome =
        simulation.without(&candidates).map_err(|_| failed(Blocked::ValidationSchedule))?;
    let replacements = match (&command.replacements[..], &outcome.claims[..]) {
        ([], []) => Vec::new(),
        ([Replacement::Planned(old)], [new]) => {
            let claim = still_fits(old, new, &snapshot.labels);
            vec![Replacement::Planned(claim.ok_or_else(|| failed(Blocked::ValidationSchedule))?)]
        }
        _ => return Err(failed(Blocked::ValidationSchedule)),
    };
    let command = Command {
        candidates: fresh,
        replacements,
        placements: outcome.placements,
        ..command.clone()
    };
    Ok(Validated { command, dropped: Vec::new() })
}

/// Its nodes as they are now, all of which have to be candidates yet.
pub(crate) fn still_candidates(
    command: &Command,
    snapshot: &Snapshot,
) -> Result<Vec<Candidate>, Invalid> {
    let failed = |why| Invalid { why, failures: command.candidates.len() };
    let mut allowances = allowances(snapshot, command.reason());
    let again = |old| {
        let new = again(snapshot, old, command.method)
            .and_then(|new| check(snapshot, &new, command.method).map(|()| new))
            .map_err(|why| match why {
                Blocked::Nominated { .. } => failed(Blocked::ValidationBudget),
                _ => failed(Blocked::ValidationChurn),
            })?;
        spend(&mut allowances, &new, command.method)
            .map_err(|_| failed(Blocked::ValidationBudget))?;
        Ok(new)
    };
    command.candidates.iter().map(again).collect()
}

/// The claim as it was chosen, for the pods as they are now. `None`: some of its types would no longer do, or none can be
/// bought as both looks want it. A zone that the first chose for a spread and the second did not is such a case.
fn still_fits(
    old: &PlannedClaim,
    new: &PlannedClaim,
    labels: &KnownLabels,
) -> Option<PlannedClaim> {
    old.requirements.intersects(&new.requirements).ok()?;
    let requirements = old.requirements.merged(&new.requirements);
    let now = |old: &Arc<InstanceType>| {
        new.instance_types.iter().find(|one| one.name() == old.name()).cloned()
    };
    let mut instance_types: Vec<_> = old.instance_types.iter().map(now).collect::<Option<_>>()?;
    instance_types.retain(|one| one.cheapest(&requirements, labels).is_some());
    if instance_types.is_empty() {
        return None;
    }
    satisfies_min_values(&instance_types, &requirements).ok()?;
    Some(PlannedClaim { requirements, instance_types, price: old.price, ..new.clone() })
}

/// The same node as a candidate now.
fn again(snapshot: &Snapshot, old: &Candidate, method: Method) -> Result<Candidate, Blocked> {
    let same = |node: &Arc<Node>| node.disruption.provider_id == old.provider_id;
    let index = snapshot.nodes.iter().position(same).ok_or(Blocked::NoNode)?;
    candidate(snapshot, index, method)
}
