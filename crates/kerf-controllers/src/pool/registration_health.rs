//! Whether the nodes of a pool come up: the last few launches, remembered per pool.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use kerf_api::{
    NodeClaim, NodeClass, NodePool,
    conditions::{Conditioned, LAUNCHED, NODE_REGISTRATION_HEALTHY, Status},
};
use kube::ResourceExt;

/// Launches that are remembered.
const REMEMBERED: usize = 4;
/// This many failures among them make a pool unhealthy.
const TOO_MANY: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Unknown,
    Healthy,
    Unhealthy,
}

/// The outcomes of the last launches, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct History(VecDeque<bool>);

impl History {
    fn health(&self) -> Health {
        match self.0.iter().filter(|registered| !**registered).count() {
            _ if self.0.is_empty() => Health::Unknown,
            failures if failures >= TOO_MANY => Health::Unhealthy,
            _ => Health::Healthy,
        }
    }

    fn with(&self, registered: bool) -> Self {
        let mut outcomes = self.0.clone();
        if outcomes.len() == REMEMBERED {
            outcomes.pop_front();
        }
        outcomes.push_back(registered);
        Self(outcomes)
    }

    /// A history that stands for what a condition says: the operator forgets when it restarts, the condition does not.
    fn seeded(status: Status) -> Self {
        Self(match status {
            Status::True => [true].into(),
            Status::False => [false; TOO_MANY].into(),
            Status::Unknown => VecDeque::new(),
        })
    }
}

/// What is known of one pool.
#[derive(Clone, Debug, Default)]
struct Record {
    history: History,
    /// What the condition should say; nothing as long as the launches decide nothing.
    verdict: Option<Verdict>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Healthy,
    Unhealthy { reason: String, message: String },
}

/// The records of all pools, by their UID. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegistrationHealth(Arc<Mutex<BTreeMap<String, Record>>>);

impl RegistrationHealth {
    /// Notes how the launch of a claim ended; its pool says so when it is looked at next.
    pub(crate) fn note(&self, pool_uid: &str, outcome: Result<(), (String, String)>) {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let record = records.entry(pool_uid.to_owned()).or_default();
        record.history = record.history.with(outcome.is_ok());
        match (outcome, record.history.health()) {
            (Ok(()), Health::Healthy) => record.verdict = Some(Verdict::Healthy),
            (Err((reason, message)), Health::Unhealthy) => {
                record.verdict = Some(Verdict::Unhealthy { reason, message });
            }
            _ => {}
        }
    }

    /// Pools come and go; the records of those that are gone are of no use.
    pub(super) fn forget_all_but(&self, uids: impl Iterator<Item = String>) {
        let uids: BTreeSet<_> = uids.collect();
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        records.retain(|uid, _| uids.contains(uid));
    }

    /// Brings the pool's condition in line. A pool or NodeClass that changed starts with a clean record.
    pub(super) fn update(&self, pool: &mut NodePool, class: Option<&NodeClass>, now: Timestamp) {
        let Some(class) = class else { return };
        let uid = pool.uid().unwrap_or_default();
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if starts_anew(pool, class) {
            records.remove(&uid);
            pool.status.get_or_insert_default().node_class_observed_generation =
                Some(class.generation);
            pool.condition_set(now).set_unknown(NODE_REGISTRATION_HEALTHY);
            return;
        }
        let seed = History::seeded(pool.condition_status(NODE_REGISTRATION_HEALTHY));
        let record = records.entry(uid).or_insert(Record { history: seed, verdict: None });
        let already_false = pool.condition_status(NODE_REGISTRATION_HEALTHY) == Status::False;
        let mut conditions = pool.condition_set(now);
        match &record.verdict {
            Some(Verdict::Healthy) => {
                conditions.set_true(NODE_REGISTRATION_HEALTHY);
            }
            // The first failure that tips the scales is the one worth reading.
            Some(Verdict::Unhealthy { reason, message }) if !already_false => {
                conditions.set_false(NODE_REGISTRATION_HEALTHY, reason, message);
            }
            _ => {}
        }
    }
}

fn starts_anew(pool: &NodePool, class: &NodeClass) -> bool {
    let observed = pool.status.as_ref().and_then(|status| status.node_class_observed_generation);
    let condition = pool.condition(NODE_REGISTRATION_HEALTHY);
    condition.is_none_or(|condition| condition.observed_generation != pool.metadata.generation)
        || observed != Some(class.generation)
}

/// Why a claim failed, for the pool's condition.
pub(crate) fn failure(claim: &NodeClaim) -> (String, String) {
    match claim.condition(LAUNCHED) {
        Some(launched) if launched.status != "True" => {
            (launched.reason.clone(), launched.message.clone())
        }
        _ => ("RegistrationFailed".into(), "Failed to register node".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_among_the_last_four_are_too_many() {
        use Health::{Healthy, Unhealthy, Unknown};
        let cases: [(&[bool], Health); 7] = [
            (&[], Unknown),
            (&[true], Healthy),
            (&[false], Healthy),
            (&[false, true], Healthy),
            (&[false, false], Unhealthy),
            (&[false, true, false], Unhealthy),
            (&[false, false, true, true, true], Healthy),
        ];
        for (outcomes, expected) in cases {
            let history =
                outcomes.iter().fold(History::default(), |history, one| history.with(*one));
            assert_eq!(history.health(), expected, "{outcomes:?}");
        }
    }

    #[test]
    fn a_history_survives_a_restart_in_its_condition() {
        assert_eq!(History::seeded(Status::True).health(), Health::Healthy);
        assert_eq!(History::seeded(Status::False).health(), Health::Unhealthy);
        assert_eq!(History::seeded(Status::Unknown).health(), Health::Unknown);
    }

    fn class(generation: i64) -> NodeClass {
        let object = serde_json::json!({"metadata": {"generation": generation}});
        let object = serde_json::from_value(object).unwrap();
        NodeClass::from_object("cloud.example", "ExampleNodeClass", object)
    }

    #[test]
    fn a_changed_pool_or_node_class_starts_with_a_clean_record() {
        let healths = RegistrationHealth::default();
        let now = Timestamp::UNIX_EPOCH;
        let mut pool = NodePool::default();
        pool.metadata.generation = Some(1);
        pool.metadata.uid = Some("u".into());
        let status = |pool: &NodePool| pool.condition_status(NODE_REGISTRATION_HEALTHY);

        healths.update(&mut pool, None, now);
        assert_eq!(pool.condition(NODE_REGISTRATION_HEALTHY), None, "there is no NodeClass");
        healths.update(&mut pool, Some(&class(1)), now);
        assert_eq!(status(&pool), Status::Unknown);
        healths.note("u", Ok(()));
        healths.update(&mut pool, Some(&class(1)), now);
        assert_eq!(status(&pool), Status::True);
        healths.update(&mut pool, Some(&class(2)), now);
        assert_eq!(status(&pool), Status::Unknown, "the NodeClass changed");
        for _ in 0..2 {
            healths.note("u", Err(("Why".into(), "because".into())));
        }
        healths.update(&mut pool, Some(&class(2)), now);
        assert_eq!(status(&pool), Status::False);
        assert_eq!(pool.condition(NODE_REGISTRATION_HEALTHY).unwrap().reason, "Why");
        pool.metadata.generation = Some(2);
        healths.update(&mut pool, Some(&class(2)), now);
        assert_eq!(status(&pool), Status::Unknown, "the pool changed");
    }

    #[test]
    fn a_pool_turns_with_the_second_failure_and_back_when_only_one_is_left() {
        let class = class(1);
        let healths = RegistrationHealth::default();
        let now = Timestamp::UNIX_EPOCH;
        let pool = |uid: &str| {
            let mut pool = NodePool::default();
            pool.metadata.generation = Some(1);
            pool.metadata.uid = Some(uid.into());
            healths.update(&mut pool, Some(&class), now);
            pool
        };
        let (mut pool, mut other) = (pool("u"), pool("v"));
        let (yes, no) = (true, false);
        for (registered, expected) in [
            (yes, Status::True),
            (no, Status::True),
            (no, Status::False),
            (yes, Status::False),
            (yes, Status::False),
            (yes, Status::True),
        ] {
            let failure = || ("Why".to_owned(), "because".to_owned());
            healths.note("u", registered.then_some(()).ok_or_else(failure));
            healths.update(&mut pool, Some(&class), now);
            assert_eq!(pool.condition_status(NODE_REGISTRATION_HEALTHY), expected);
        }
        healths.update(&mut other, Some(&class), now);
        let status = other.condition_status(NODE_REGISTRATION_HEALTHY);
        assert_eq!(status, Status::Unknown, "another pool has its own record");
    }

    #[test]
    fn a_pool_that_is_gone_leaves_nothing_behind() {
        let healths = RegistrationHealth::default();
        let known = || healths.0.lock().unwrap().keys().cloned().collect::<Vec<_>>();
        for uid in ["u", "v", "w"] {
            healths.note(uid, Ok(()));
        }
        for (left, expected) in [
            (&["u", "v", "w"][..], &["u", "v", "w"][..]),
            // One that has launched nothing yet has no record to keep.
            (&["v", "x"], &["v"]),
            (&[], &[]),
        ] {
            healths.forget_all_but(left.iter().map(|uid| (*uid).to_owned()));
            assert_eq!(known(), expected);
        }
    }

    #[test]
    fn one_failure_after_a_restart_does_not_make_a_healthy_pool_unhealthy() {
        let healths = RegistrationHealth::default();
        let now = Timestamp::UNIX_EPOCH;
        let class = class(1);
        let mut pool = NodePool::default();
        pool.status.get_or_insert_default().node_class_observed_generation = Some(1);
        pool.condition_set(now).set_true(NODE_REGISTRATION_HEALTHY);
        pool.metadata.generation = Some(0);
        healths.update(&mut pool, Some(&class), now);
        healths.note("", Err(("Why".into(), "because".into())));
        healths.update(&mut pool, Some(&class), now);
        assert_eq!(pool.condition_status(NODE_REGISTRATION_HEALTHY), Status::True);
    }
}
