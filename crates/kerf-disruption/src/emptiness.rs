//! Emptiness: nodes without pods that would have to move.

use kerf_api::ConsolidationPolicy;

use crate::{
    blocked::Blocked,
    candidates::{by_savings_ratio, check},
    command::{Candidate, Command, Method},
    pass::{Look, spend},
};

const METHOD: Method = Method::Emptiness;

/// All that the budgets allow, in one command. No pod has to find a place, so nothing is tried out.
pub(crate) fn look(look: &mut Look<'_>, graceful: &[Candidate]) {
    let mut empty = Vec::new();
    for candidate in graceful {
        match check(look.snapshot, candidate, METHOD) {
            Ok(()) => empty.push(candidate.clone()),
            // Consolidation looks at those with room for buffers, and finds out whether that is needed here.
            Err(Blocked::NotEmpty { .. } | Blocked::StaticPool) => {}
            Err(Blocked::BufferPods { .. }) if consolidates_with_pods(look, candidate) => {}
            Err(why) => look.refuse(candidate, METHOD, why),
        }
    }
    look.found.eligible.insert(METHOD, empty.len());
    by_savings_ratio(&mut empty);
    let mut allowances = look.allowances(METHOD);
    let mut taken = Vec::new();
    for candidate in empty {
        match spend(&mut allowances, &candidate, METHOD) {
            Ok(()) => taken.push(candidate),
            Err(why) => look.refuse(&candidate, METHOD, why),
        }
    }
    if !taken.is_empty() {
        look.found.commands.push(Command::removal(METHOD, taken));
    }
}

fn consolidates_with_pods(look: &Look<'_>, candidate: &Candidate) -> bool {
    let policy = look.snapshot.pools[&candidate.pool].disruption.policy;
    policy != ConsolidationPolicy::WhenEmpty
}
