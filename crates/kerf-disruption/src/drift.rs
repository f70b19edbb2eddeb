//! Drift: nodes that no longer match their pool.

use std::cmp::Reverse;

use kerf_model::Snapshot;

use crate::{
    blocked::Blocked,
    candidates::{candidate, check},
    command::{Candidate, Command, Method},
    pass::{Look, afford},
    search::first_found,
    setback,
    simulation::{Outcome, Simulation},
};

const METHOD: Method = Method::Drift;

/// The node that has drifted for the longest time and whose pods have a place, with as many new nodes as that takes.
pub(crate) fn look(look: &mut Look<'_>) {
    let snapshot = look.snapshot;
    let since = |candidate: &Candidate| candidate.node.disruption.drifted_since;
    let drifted = (0..snapshot.nodes.len())
        .filter(|index| snapshot.nodes[*index].disruption.drifted_since.is_some())
        .filter_map(|index| candidate(snapshot, index, METHOD).ok())
        .filter(|candidate| check(snapshot, candidate, METHOD).is_ok());
    let mut drifted: Vec<_> = drifted.collect();
    look.found.eligible.insert(METHOD, drifted.len());
    if drifted.is_empty() {
        return;
    }
    look.memory.begin_pass(METHOD, look.fingerprint, snapshot.now);
    let round = look.memory.round(METHOD);
    round.retain(&drifted);
    drifted.retain(|candidate| !round.is_known(&candidate.node.name));
    drifted.sort_by_cached_key(|candidate| {
        let name = &candidate.node.name;
        (round.last_look(name), Reverse(candidate.pods.is_empty()), since(candidate), name.clone())
    });
    let allowances = look.allowances(METHOD);
    let mut affordable = Vec::new();
    for candidate in drifted {
        match afford(&allowances, &candidate, METHOD) {
            Ok(()) => affordable.push(candidate),
            Err(why) => look.refuse(&candidate, METHOD, why),
        }
    }
    look.found.complete &= affordable.len() <= look.settings.looks_per_pass;
    affordable.truncate(look.settings.looks_per_pass);

    let simulation = Simulation::of_drift(snapshot, look.settings);
    let (in_vain, found) = first_found(look.settings.threads, &affordable, |candidate| {
        replace(snapshot, &simulation, candidate)
    });
    for (candidate, why) in affordable.iter().zip(in_vain) {
        look.memory.round(METHOD).looked_at(&candidate.node.name);
        look.refuse(candidate, METHOD, why);
    }
    if let Some((at, outcome)) = found {
        let candidate = affordable.swap_remove(at);
        look.found.commands.push(Command::replacing(METHOD, candidate, outcome));
    }
}

/// The world without the node, unless it takes a new one and the last new one has just failed.
pub(crate) fn replace(
    snapshot: &Snapshot,
    simulation: &Simulation<'_>,
    candidate: &Candidate,
) -> Result<Outcome, Blocked> {
    let outcome = simulation.without(&[candidate])?;
    if !outcome.claims.is_empty() {
        setback::check(&candidate.node, METHOD.reason(), snapshot.now)?;
    }
    Ok(outcome)
}
