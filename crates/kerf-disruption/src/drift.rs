//! Nodes that are no longer as their pool wants them.

use std::cmp::Reverse;

use crate::{
    candidates::{candidate, check_drifted},
    command::{Candidate, Command, Method, Replacement},
    pass::{Look, spend},
    search::first_found,
    simulation::Simulation,
};

const METHOD: Method = Method::Drift;

/// The node that has drifted for the longest time and whose pods have a place, with as many new nodes as that takes.
pub(crate) fn look(look: &mut Look<'_>) {
    let estate = look.estate;
    let since = |candidate: &Candidate| estate.standings[candidate.index].drifted_since;
    let drifted = (0..estate.standings.len())
        .filter(|index| estate.standings[*index].drifted_since.is_some())
        .filter_map(|index| candidate(estate, index, METHOD).ok())
        .filter(|candidate| check_drifted(estate, candidate).is_ok());
    let mut drifted: Vec<_> = drifted.collect();
    look.found.eligible.insert(METHOD, drifted.len());
    if drifted.is_empty() {
        return;
    }
    look.memory.begin_pass(METHOD, look.fingerprint, estate.now);
    let round = look.memory.round(METHOD);
    round.retain(|name| drifted.iter().any(|candidate| candidate.node.name == name));
    drifted.retain(|candidate| !round.is_known(&candidate.node.name));
    drifted.sort_by_cached_key(|candidate| {
        let name = &candidate.node.name;
        (round.last_look(name), Reverse(candidate.pods.is_empty()), since(candidate), name.clone())
    });
    let mut affordable = Vec::new();
    for candidate in drifted {
        match spend(&mut look.allowances(METHOD), &candidate, METHOD) {
            Ok(()) => affordable.push(candidate),
            Err(why) => look.refuse(&candidate, METHOD, why),
        }
    }
    look.found.complete &= affordable.len() <= look.settings.looks_per_pass;
    affordable.truncate(look.settings.looks_per_pass);

    let simulation = Simulation::of_drift(estate, look.settings);
    let (in_vain, found) = first_found(look.settings.threads, &affordable, |candidate| {
        simulation.without(&[candidate])
    });
    for (candidate, why) in affordable.iter().zip(in_vain) {
        look.memory.round(METHOD).looked_at(&candidate.node.name);
        look.refuse(candidate, METHOD, why);
    }
    if let Some((at, outcome)) = found {
        let new: kerf_model::Price = outcome.claims.iter().map(|claim| claim.price).sum();
        let candidate = affordable.swap_remove(at);
        look.found.commands.push(Command {
            savings: candidate.price - new,
            placements: outcome.placements,
            replacements: outcome.claims.into_iter().map(Replacement::Planned).collect(),
            ..Command::removal(METHOD, vec![candidate])
        });
    }
}
