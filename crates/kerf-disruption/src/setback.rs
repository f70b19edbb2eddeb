//! Leaving a node alone for a while after its replacement failed.
//!
//! A cloud without capacity, nodes that never register, a provider that launches at a higher price than promised: all of
//! these tend to be the same a minute later. Without a pause the oldest drifted node would be tried again and again while
//! the others wait for their turn, and a consolidation that is never worth it would launch and undo for ever.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kerf_api::{DisruptionReason, Setback};
use kerf_model::Node;

use crate::Blocked;

/// After the first failure; each one that follows doubles it.
const FIRST: SignedDuration = SignedDuration::from_mins(1);
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
/// So often that it is longer than the longest.
const DOUBLINGS: u32 = 6;

/// What the node is to remember after a replacement for this reason failed.
pub fn set_back(
    before: Option<&Setback>,
    reason: DisruptionReason,
    message: String,
    now: Timestamp,
) -> Setback {
    // What failed long ago says nothing about today.
    let recent = |before: &&Setback| {
        before.reason == reason && now.duration_since(before.until.0) <= LONGEST
    };
    let failures = before.filter(recent).map_or(0, |before| before.failures).saturating_add(1);
    let pause = (FIRST * (1 << (failures - 1).min(DOUBLINGS))).min(LONGEST);
    let until = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
    Setback { reason, failures, until: Time(until), message }
}

/// Whether a replacement for this reason may be tried now. Removing a node without one always may.
pub(crate) fn check(node: &Node, reason: DisruptionReason, now: Timestamp) -> Result<(), Blocked> {
    match in_force(node, now) {
        Some(setback) if setback.reason == reason => Err(Blocked::Setback(setback.clone())),
        _ => Ok(()),
    }
}

/// What the node still has to wait for.
pub fn in_force(node: &Node, now: Timestamp) -> Option<&Setback> {
    node.disruption.setback.as_ref().filter(|setback| setback.until.0 > now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DisruptionReason::{Drifted, Underutilized};

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(minutes * 60).unwrap()
    }

    #[test]
    fn pauses_double_up_to_an_hour_and_start_anew_after_a_quiet_one() {
        let mut last: Option<Setback> = None;
        let mut fail = |reason, minutes: i64| {
            let next = set_back(last.as_ref(), reason, "gone".to_owned(), at(minutes));
            let pause = next.until.0.duration_since(at(minutes)).as_mins();
            last = Some(next.clone());
            (next.failures, pause)
        };
        assert_eq!(fail(Drifted, 0), (1, 1));
        assert_eq!(fail(Drifted, 1), (2, 2));
        assert_eq!(fail(Drifted, 10), (3, 4));
        for (failures, pause) in [(4, 8), (5, 16), (6, 32), (7, 60), (8, 60)] {
            assert_eq!(fail(Drifted, 20), (failures, pause));
        }
        assert_eq!(fail(Underutilized, 20), (1, 1), "another reason is another story");
        assert_eq!(fail(Underutilized, 81), (2, 2), "within an hour of the last pause");
        assert_eq!(fail(Underutilized, 200), (1, 1));
    }

    #[test]
    fn the_pause_never_overflows() {
        let before = set_back(None, Drifted, String::new(), at(0));
        let before = Setback { failures: u32::MAX, ..before };
        let next = set_back(Some(&before), Drifted, String::new(), at(0));
        assert_eq!((next.failures, next.until.0), (u32::MAX, at(60)));
        let last = set_back(None, Drifted, String::new(), Timestamp::MAX);
        assert_eq!(last.until.0, Timestamp::MAX);
    }

    #[test]
    fn only_the_same_reason_waits_and_only_for_as_long() {
        let setback = set_back(None, Drifted, "gone".to_owned(), at(0));
        let mut node = Node::default();
        node.disruption.setback = Some(setback.clone());
        assert_eq!(check(&node, Drifted, at(0)), Err(Blocked::Setback(setback)));
        assert_eq!(check(&node, Drifted, at(1)), Ok(()));
        assert_eq!(check(&node, Underutilized, at(0)), Ok(()));
        assert_eq!(check(&Node::default(), Drifted, at(0)), Ok(()));
    }
}
