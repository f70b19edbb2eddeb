//! Drift: nodes that no longer match their pool.

use std::cmp::Reverse;

use kerf_model::Snapshot;

use crate::{
    blocked::Blocked,
    candidates::{candidate, check},
    command::{Candidate, Command, Method},
    pass::{Look, afford},
    search::first_found,
    setback::{self, Rests},
    settings::Settings,
    simulation::Simulation,
    terminate_first::{Because, goes_first, reservation},
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

    let ways = Ways::new(snapshot, look.settings);
    let rests = &look.found.drift_rests;
    let (in_vain, found) = first_found(look.settings.threads, &affordable, |candidate| {
        replace(snapshot, &ways, rests, candidate)
    });
    for (candidate, why) in affordable.iter().zip(in_vain) {
        look.memory.round(METHOD).looked_at(&candidate.node.name);
        look.refuse(candidate, METHOD, why);
    }
    look.found.commands.extend(found.map(|(_, command)| command));
}

/// The worlds in which a drifted node is replaced.
#[derive(Debug)]
pub(crate) struct Ways<'e> {
    /// What comes, comes first.
    pub(crate) beside: Simulation<'e>,
    /// The node goes first. `None`: none may.
    first: Option<Simulation<'e>>,
}

impl<'e> Ways<'e> {
    pub(crate) fn new(snapshot: &'e Snapshot, settings: &Settings) -> Self {
        let first = settings.terminate_first_drift;
        Self {
            beside: Simulation::of_drift(snapshot, settings),
            first: first.then(|| Simulation::of_terminate_first(snapshot, settings)),
        }
    }

    pub(crate) fn may_terminate_first(&self) -> bool {
        self.first.is_some()
    }
}

/// The world without the node, unless it takes a new one and the last new ones have just failed.
pub(crate) fn replace(
    snapshot: &Snapshot,
    ways: &Ways<'_>,
    rests: &Rests,
    candidate: &Candidate,
) -> Result<Command, Blocked> {
    let nowhere = match ways.beside.replacing(candidate) {
        Ok(outcome) => {
            if !outcome.claims.is_empty() {
                setback::check(&candidate.node, METHOD.reason(), snapshot.now)?;
                setback::awake(rests, &candidate.pool)?;
            }
            return Ok(Command::replacing(METHOD, candidate.clone(), outcome));
        }
        Err(nowhere) => nowhere,
    };
    let held = ways.first.as_ref().zip(reservation(snapshot, candidate));
    let Some((first, held)) = held else { return Err(nowhere) };
    // Its pods fit into the slot that it gives back, and would not be bought anything else.
    let outcome = match first.refilled(candidate, &held) {
        Ok(outcome) => outcome,
        Err(Blocked::NotNow(why)) => return Err(Blocked::NotNow(why)),
        Err(_) => return Err(nowhere),
    };
    setback::awake(rests, &candidate.pool)?;
    let goes_first = goes_first(snapshot, candidate, Because::NoReservedCapacity, None)?;
    let placements = outcome.placements;
    Ok(Command::terminating_first(METHOD, candidate.clone(), goes_first, placements))
}
