//! How many pods a workload wanted, from the pods that came and went.

use std::collections::VecDeque;

/// A pod that was evicted, and is followed by another within this time, was replaced: the workload wanted it all along. A StatefulSet
/// waits until the old pod is gone, and that may take its grace period.
const EVICTED_MS: i64 = 2 * 60 * 1000;
/// The same for a pod that went otherwise: it was deleted, or its node died.
const WENT_MS: i64 = 5 * 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Came,
    Went { evicted: bool },
}

/// The number of pods from `start` on, each time that it changes. The times are in order.
pub(crate) fn replicas(start: u32, turns: &[(i64, Turn)]) -> Vec<(i64, u32)> {
    /// A place that is kept for a successor, since when and until when.
    struct Kept {
        since: i64,
        until: i64,
    }
    let mut kept: VecDeque<Kept> = VecDeque::new();
    let mut steps: Vec<(i64, i64)> = Vec::new();
    for (at, turn) in turns {
        kept.retain(|place| {
            if place.until < *at {
                steps.push((place.since, -1));
            }
            place.until >= *at
        });
        match turn {
            Turn::Came if kept.pop_front().is_none() => steps.push((*at, 1)),
            Turn::Came => {}
            Turn::Went { evicted } => {
                let wait = if *evicted { EVICTED_MS } else { WENT_MS };
                kept.push_back(Kept { since: *at, until: at + wait });
                kept.make_contiguous().sort_by_key(|place| place.until);
            }
        }
    }
    steps.extend(kept.iter().map(|place| (place.since, -1)));
    steps.sort_by_key(|(at, _)| *at);
    let mut count = i64::from(start);
    let mut changes: Vec<(i64, u32)> = Vec::new();
    for (at, step) in steps {
        count += step;
        let replicas = u32::try_from(count).unwrap_or_default();
        match changes.last_mut() {
            Some((last, value)) if *last == at => *value = replicas,
            _ => changes.push((at, replicas)),
        }
    }
    let mut before = start;
    changes.retain(|(_, replicas)| std::mem::replace(&mut before, *replicas) != *replicas);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_was_wanted_all_along() {
        let came = |at| (at, Turn::Came);
        let evicted = |at| (at, Turn::Went { evicted: true });
        let went = |at| (at, Turn::Went { evicted: false });
        for (start, turns, expected) in [
            (3, vec![], vec![]),
            (0, vec![came(0), came(0), came(9)], vec![(0, 2), (9, 3)]),
            (2, vec![evicted(1000), came(1002)], vec![]),
            (2, vec![evicted(1000), came(90_000)], vec![]),
            (2, vec![evicted(1000)], vec![(1000, 1)]),
            (2, vec![evicted(1000), came(200_000)], vec![(1000, 1), (200_000, 2)]),
            (2, vec![went(1000), came(1500)], vec![]),
            (2, vec![went(1000), came(30_000)], vec![(1000, 1), (30_000, 2)]),
            (5, vec![went(10), went(10), went(10)], vec![(10, 2)]),
            // The place that is given up first is filled first.
            (2, vec![evicted(0), went(10), came(20), came(60_000)], vec![]),
            (2, vec![evicted(0), went(10), came(6000)], vec![(10, 1)]),
        ] {
            assert_eq!(replicas(start, &turns), expected, "{turns:?}");
        }
    }
}
