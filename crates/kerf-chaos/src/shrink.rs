//! Makes a plan that fails as short as it can be while it still fails in the same way.

use crate::plan::{Action, Plan};
use crate::run::{Outcome, run};

/// The shortest plan found with at most `attempts` runs, with the places of its actions in the whole plan, and how it fails.
pub fn shrink(plan: &Plan, failed: Outcome, attempts: usize) -> (Vec<usize>, Outcome) {
    let Some(first) = failed.violations.first() else { return (Vec::new(), failed) };
    let (invariant, end) = (first.invariant, first.at);
    let mut left = attempts;
    let mut best = failed;
    // What comes after the violation has no part in it.
    let by_then = |place: &usize| {
        i64::try_from(plan.actions[*place].at).is_ok_and(|at| end == 0 || at <= end)
    };
    let mut kept: Vec<usize> = (0..plan.actions.len()).filter(by_then).collect();
    let mut size = kept.len().div_ceil(2);
    while size > 0 && left > 0 {
        let mut from = 0;
        while from < kept.len() && left > 0 {
            let to = (from + size).min(kept.len());
            let mut fewer = kept.clone();
            fewer.drain(from..to);
            // Nothing is judged by its end without a calm.
            let ends =
                fewer.last().is_some_and(|it| matches!(plan.actions[*it].action, Action::Calm(_)));
            let had =
                matches!(kept.last().map(|it| &plan.actions[*it].action), Some(Action::Calm(_)));
            if had && !ends {
                from = to;
                continue;
            }
            left -= 1;
            let outcome = run(&plan.only(&fewer));
            if outcome.violations.iter().any(|it| it.invariant == invariant) {
                kept = fewer;
                best = outcome;
            } else {
                from = to;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    (kept, best)
}
