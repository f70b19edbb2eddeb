//! Multi-node consolidation: remove several nodes at once, with at most one replacement.

use std::collections::BTreeMap;

use crate::{
    blocked::Blocked,
    command::{Candidate, Command, Method},
    consolidation::Consolidation,
    pass::{Look, Unmerged, spend},
    search::every,
};

const METHOD: Method = Method::MultiNode;
/// What Karpenter looks at; here, how far the first search goes before it knows that more is possible.
const FIRST_REACH: usize = 100;
/// Under this name the memory has the search as a whole.
pub(crate) const SEARCH: &str = "";

/// What stood against sets of nodes, by pool and name of the reason.
type Against = BTreeMap<(String, &'static str), Unmerged>;

/// The largest set of the best bargains that can go together.
pub(crate) fn look(look: &mut Look<'_>, consolidation: &Consolidation<'_>) {
    look.found.eligible.insert(METHOD, consolidation.candidates.len());
    look.memory.begin_pass(METHOD, look.fingerprint, look.snapshot.now);
    if look.memory.round(METHOD).is_known(SEARCH) {
        return;
    }
    let mut allowances = look.allowances(METHOD);
    let affordable: Vec<usize> = (0..consolidation.candidates.len())
        .filter(|at| spend(&mut allowances, &consolidation.candidates[*at], METHOD).is_ok())
        .collect();
    let mut against = Against::new();
    let found = longest(consolidation, &affordable, &mut against).or_else(|| {
        let movable = movable(look, consolidation, &affordable);
        let shorter = movable.len() < affordable.len();
        shorter.then(|| longest(consolidation, &movable, &mut against)).flatten()
    });
    if let Some(command) = found {
        look.found.commands.push(command);
    } else {
        look.memory.round(METHOD).looked_at(SEARCH);
        look.found.unmerged.extend(against.into_values());
    }
}

/// Halves the first [`FIRST_REACH`] as Karpenter does, so that nothing is missed that it finds; where all of those can
/// go, more are tried, twice as many each time.
fn longest(
    consolidation: &Consolidation<'_>,
    places: &[usize],
    against: &mut Against,
) -> Option<Command> {
    let nodes: Vec<_> = places.iter().map(|at| &consolidation.candidates[*at]).collect();
    let mut attempt = |count: usize| {
        let attempt = consolidation.consolidate(&nodes[..count], METHOD);
        attempt.map_err(|why| note(against, &nodes[..count], why)).ok()
    };
    let mut reach = nodes.len().min(FIRST_REACH);
    let mut best = halve(2, reach, &mut attempt);
    while reach < nodes.len() && best.as_ref().is_some_and(|it| it.candidates.len() == reach) {
        let further = (reach * 2).min(nodes.len());
        let more = attempt(further).or_else(|| halve(reach + 1, further - 1, &mut attempt));
        best = more.or(best);
        reach = further;
    }
    best
}

/// Of each rule about savings the last word counts, however many sets it was asked about.
fn note(against: &mut Against, nodes: &[&Candidate], why: Blocked) {
    if let Blocked::SavingsThreshold { pool, .. }
    | Blocked::PriceFactor { pool, .. }
    | Blocked::Score { pool, .. } = &why
    {
        let (pool, name) = (pool.clone(), why.name());
        let nodes = nodes.iter().map(|one| one.node.name.clone()).collect();
        against.insert((pool.clone(), name), Unmerged { pool, nodes, why });
    }
}

/// The last success of a binary search over how many go.
fn halve(
    mut least: usize,
    mut most: usize,
    mut attempt: impl FnMut(usize) -> Option<Command>,
) -> Option<Command> {
    let mut best = None;
    while least <= most {
        let count = least.midpoint(most);
        match attempt(count) {
            Some(command) => {
                best = Some(command);
                least = count + 1;
            }
            None => most = count - 1,
        }
    }
    best
}

/// Those whose pods have a place when they go alone. One that has not stands in the way of every set that it is in, and so
/// does one whose replacement has just failed.
fn movable(look: &Look<'_>, consolidation: &Consolidation<'_>, places: &[usize]) -> Vec<usize> {
    let within_reach = &places[..places.len().min(look.settings.looks_per_pass)];
    let movable = |at: &usize| {
        let waits = consolidation.set_back(&consolidation.candidates[*at]);
        let alone = waits.and_then(|()| consolidation.trial(*at));
        !matches!(
            alone,
            Err(Blocked::NoFeasibleSchedule { .. }
                | Blocked::MultipleReplacements { .. }
                | Blocked::Setback(_))
        )
    };
    let verdicts = every(look.settings.threads, within_reach, movable);
    within_reach.iter().zip(verdicts).filter_map(|(at, movable)| movable.then_some(*at)).collect()
}
