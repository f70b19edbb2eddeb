//! Leaving a node alone for a while after its replacement failed.
//!
//! A cloud without capacity, nodes that never register, a provider that launches at a higher price than promised: all of
//! these tend to be the same a minute later. Without a pause the oldest drifted node would be tried again and again while
//! the others wait for their turn, and a consolidation that is never worth it would launch and undo for ever.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kerf_api::{DisruptionReason, Setback};
use kerf_model::{Node, Snapshot};

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
    let until = now.saturating_add(pause(failures)).unwrap_or(Timestamp::MAX);
    Setback { reason, failures, until: Time(until), message }
}

/// How long the node waits after so many failures in a row.
fn pause(failures: u32) -> SignedDuration {
    (FIRST * (1 << failures.saturating_sub(1).min(DOUBLINGS))).min(LONGEST)
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

/// So many nodes of a pool that could not be replaced make the pool rest.
const FAILED_NODES: usize = 3;
/// For as long at first; each node more doubles it.
const FIRST_REST: SignedDuration = SignedDuration::from_mins(1);
const LONGEST_REST: SignedDuration = SignedDuration::from_mins(10);

/// A pool of which no node is replaced for a while, because replacing several of them failed: where one after the other fails, each
/// would otherwise be tried again and again, however many there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "replacing {nodes} nodes of its NodePool failed, the last time because {message}; no other is tried {}",
    .until.map_or_else(|| "while one is being tried".to_owned(), |until| format!("before {until}"))
)]
pub struct PoolRest {
    /// Nodes that were to be replaced within the last hour, and could not be.
    pub nodes: usize,
    /// `None`: the time is over and one node is being tried. The others wait for what comes of it.
    pub until: Option<Timestamp>,
    /// What happened to the last of them.
    pub message: String,
}

/// Pools that rest, by name.
pub type Rests = BTreeMap<String, PoolRest>;

/// The pools that rest after replacements for this reason failed. It follows from the setbacks of their nodes, so nothing else has
/// to be remembered. A node that was initialised after the last failure ends the rest: the pool can launch again.
pub fn rests(snapshot: &Snapshot, reason: DisruptionReason) -> Rests {
    let mut by_pool: BTreeMap<&str, Vec<&Setback>> = BTreeMap::new();
    for node in &snapshot.nodes {
        let setback = node.disruption.setback.as_ref().filter(|setback| setback.reason == reason);
        if let Some((pool, setback)) = node.pool.as_deref().zip(setback) {
            by_pool.entry(pool).or_default().push(setback);
        }
    }
    by_pool.retain(|_, setbacks| setbacks.len() >= FAILED_NODES);
    let rest = |(pool, setbacks): (&str, Vec<&Setback>)| {
        let of_pool = snapshot.nodes.iter().filter(|node| node.pool.as_deref() == Some(pool));
        let last_success = of_pool.filter_map(|node| node.disruption.initialized_at).max();
        let mut rest = rest(&setbacks, last_success, snapshot.now)?;
        if rest.until.is_some_and(|until| until <= snapshot.now) {
            let mut of_pool =
                snapshot.nodes.iter().filter(|node| node.pool.as_deref() == Some(pool));
            let one_is_tried = of_pool.any(|node| snapshot.is_in_queue(node));
            if !one_is_tried {
                return None;
            }
            rest.until = None;
        }
        Some((pool.to_owned(), rest))
    };
    by_pool.into_iter().filter_map(rest).collect()
}

fn rest(
    setbacks: &[&Setback],
    last_success: Option<Timestamp>,
    now: Timestamp,
) -> Option<PoolRest> {
    let recent = |setback: &&&Setback| {
        let failed = failed_at(setback);
        now.duration_since(failed) <= LONGEST && last_success.is_none_or(|since| since < failed)
    };
    let recent: Vec<_> = setbacks.iter().filter(recent).collect();
    let last = recent.iter().max_by_key(|setback| (failed_at(setback), &setback.message))?;
    let more = u32::try_from(recent.len().checked_sub(FAILED_NODES)?).unwrap_or(u32::MAX);
    let length = (FIRST_REST * (1 << more.min(DOUBLINGS))).min(LONGEST_REST);
    let until = failed_at(last).saturating_add(length).unwrap_or(Timestamp::MAX);
    let (nodes, message) = (recent.len(), last.message.clone());
    Some(PoolRest { nodes, until: Some(until), message })
}

/// When the replacement failed of which the setback tells.
fn failed_at(setback: &Setback) -> Timestamp {
    setback.until.0.saturating_sub(pause(setback.failures)).unwrap_or(Timestamp::MIN)
}

/// Whether nodes of the pool may be replaced now.
pub fn awake(rests: &Rests, pool: &str) -> Result<(), Blocked> {
    rests.get(pool).map_or(Ok(()), |rest| Err(Blocked::PoolRests(rest.clone())))
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
