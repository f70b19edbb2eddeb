//! Single-node consolidation: remove one node, or replace it by a cheaper one.

use std::collections::BTreeMap;

use crate::{
    command::Method,
    consolidation::Consolidation,
    pass::{Look, afford},
    search::first_found,
};

const METHOD: Method = Method::SingleNode;

/// The first move that is worth it. Pools take turns, and what was not looked at for long comes first.
pub(crate) fn look(look: &mut Look<'_>, consolidation: &Consolidation<'_>) {
    let candidates = &consolidation.candidates;
    look.found.eligible.insert(METHOD, candidates.len());
    look.memory.begin_pass(METHOD, look.fingerprint, look.snapshot.now);
    look.memory.round(METHOD).retain(candidates);
    let allowances = look.allowances(METHOD);
    let mut affordable = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        match afford(&allowances, candidate, METHOD) {
            Ok(()) => affordable.push(at),
            Err(why) => look.refuse(candidate, METHOD, why),
        }
    }
    let round = look.memory.round(METHOD);
    let name = |at: usize| &candidates[at].node.name;
    affordable.retain(|at| !round.is_known(name(*at)));
    let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
    affordable.sort_by_cached_key(|at| {
        let turn = turns.entry(&candidates[*at].pool).or_default();
        *turn += 1;
        (round.last_look(name(*at)), *turn, *at)
    });
    look.found.complete &= affordable.len() <= look.settings.looks_per_pass;
    affordable.truncate(look.settings.looks_per_pass);

    let (in_vain, found) = first_found(look.settings.threads, &affordable, |at| {
        consolidation.consolidate_one(*at, METHOD)
    });
    for (at, why) in affordable.iter().zip(in_vain) {
        look.memory.round(METHOD).looked_at(name(*at));
        look.refuse(&candidates[*at], METHOD, why);
    }
    if let Some((_, command)) = found {
        look.found.commands.push(command);
    }
}
