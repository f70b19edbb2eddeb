//! Status conditions: a root condition `Ready` that follows from the conditions it depends on.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube_core::Resource;

/// The root condition of every kind.
pub const READY: &str = "Ready";

// NodePool
pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
pub const NODE_CLASS_READY: &str = "NodeClassReady";
pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
/// A static pool has the nodes that it keeps.
pub const REPLICAS_SATISFIED: &str = "ReplicasSatisfied";
/// A static pool has drifted nodes that its limit leaves no room to replace.
pub const DRIFT_BLOCKED: &str = "DriftBlocked";

// NodeClaim
pub const LAUNCHED: &str = "Launched";
pub const REGISTERED: &str = "Registered";
pub const INITIALIZED: &str = "Initialized";
pub const CONSOLIDATABLE: &str = "Consolidatable";
pub const DRIFTED: &str = "Drifted";
pub const DRAINED: &str = "Drained";
pub const VOLUMES_DETACHED: &str = "VolumesDetached";
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
pub const DISRUPTION_REASON: &str = "DisruptionReason";

/// The machine of its node is restarted in place. While it is True, the reason says whether the cloud has accepted.
pub const REBOOTING: &str = "Rebooting";
pub const REBOOT_REQUESTED: &str = "RebootRequested";
pub const REBOOT_ISSUED: &str = "RebootIssued";
pub const REBOOT_SUCCEEDED: &str = "RebootSucceeded";
pub const REBOOT_FAILED: &str = "RebootFailed";
/// It was called off before the cloud was asked.
pub const REBOOT_WITHDRAWN: &str = "RebootWithdrawn";

/// The reason of a condition that has not been checked yet.
pub const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";

/// What a condition says; a condition that is missing says `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    fn of(condition: &Condition) -> Self {
        match condition.status.as_str() {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// A kind whose status has conditions.
pub trait Conditioned: Resource {
    /// The conditions that `Ready` depends on.
    const DEPENDENTS: &'static [&'static str];

    fn conditions(&self) -> &[Condition];

    fn conditions_mut(&mut self) -> &mut Vec<Condition>;

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions().iter().find(|condition| condition.type_ == kind)
    }

    fn condition_status(&self, kind: &str) -> Status {
        self.condition(kind).map_or(Status::Unknown, Status::of)
    }

    fn is_true(&self, kind: &str) -> bool {
        self.condition_status(kind) == Status::True
    }

    /// The conditions for writing. Those of `Ready` and its dependents that are missing are added
    /// as `Unknown`, so that this alone can change the object; compare with it as it was before.
    fn condition_set(&mut self, now: Timestamp) -> ConditionSet<'_> {
        self.condition_set_of(Self::DEPENDENTS, now)
    }

    /// As [`Self::condition_set`], for a kind whose dependents differ with the settings.
    fn condition_set_of(
        &mut self,
        dependents: &'static [&'static str],
        now: Timestamp,
    ) -> ConditionSet<'_> {
        let meta = self.meta();
        let generation = meta.generation.unwrap_or(0);
        let created = meta.creation_timestamp.as_ref().map_or(now, |created| created.0);
        let deleting = meta.deletion_timestamp.is_some();
        let conditions = self.conditions_mut();
        let mut set = ConditionSet { dependents, generation, created, deleting, now, conditions };
        for kind in [READY].iter().chain(dependents) {
            if set.get(kind).is_none() {
                set.set_unknown(kind);
            }
        }
        set
    }
}

/// The conditions of one object, for writing.
#[derive(Debug)]
pub struct ConditionSet<'a> {
    dependents: &'static [&'static str],
    generation: i64,
    created: Timestamp,
    deleting: bool,
    now: Timestamp,
    conditions: &'a mut Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot clear the condition {0}: Ready depends on it")]
pub struct ClearDependentError(String);

impl ConditionSet<'_> {
    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == kind)
    }

    /// Sets the condition to `True`, with its own name as the reason.
    pub fn set_true(&mut self, kind: &str) -> bool {
        self.set(kind, Status::True, kind, "")
    }

    pub fn set_true_because(&mut self, kind: &str, reason: &str, message: &str) -> bool {
        self.set(kind, Status::True, reason, message)
    }

    pub fn set_false(&mut self, kind: &str, reason: &str, message: &str) -> bool {
        self.set(kind, Status::False, reason, message)
    }

    /// Sets the condition to what it was before anything looked at it.
    pub fn set_unknown(&mut self, kind: &str) -> bool {
        self.set(
            kind,
            Status::Unknown,
            AWAITING_RECONCILIATION,
            "object is awaiting reconciliation",
        )
    }

    pub fn set_unknown_because(&mut self, kind: &str, reason: &str, message: &str) -> bool {
        self.set(kind, Status::Unknown, reason, message)
    }

    /// Sets a condition, and `Ready` after it, and says whether that changed anything.
    pub fn set(&mut self, kind: &str, status: Status, reason: &str, message: &str) -> bool {
        let changed = self.put(kind, status, reason, message);
        if changed && kind != READY {
            self.recompute_ready();
        }
        changed
    }

    /// Removes a condition that `Ready` does not depend on.
    pub fn clear(&mut self, kind: &str) -> Result<(), ClearDependentError> {
        if self.is_dependent(kind) {
            return Err(ClearDependentError(kind.to_owned()));
        }
        if self.get(kind).is_some() {
            self.conditions.retain(|condition| condition.type_ != kind);
            self.conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
        }
        Ok(())
    }

    /// Takes over what one controller changed between `before` and `after`, when others have changed other conditions
    /// meanwhile. Each condition is decided by one controller, except for `Ready`, which follows from the others.
    pub fn take_over(&mut self, before: &[Condition], after: &[Condition]) {
        let find = |conditions: &[Condition], kind: &str| {
            conditions.iter().position(|condition| condition.type_ == kind)
        };
        for gone in before.iter().filter(|one| find(after, &one.type_).is_none()) {
            self.conditions.retain(|condition| condition.type_ != gone.type_);
        }
        let decided = after.iter().filter(|one| one.type_ != READY);
        for ours in decided.filter(|one| !before.contains(one)) {
            let theirs = find(self.conditions, &ours.type_);
            let superfluous = theirs.is_some_and(|place| {
                let theirs = &self.conditions[place];
                // Where both say the same, the one that came first knows since when.
                ours.reason == AWAITING_RECONCILIATION
                    || Condition {
                        last_transition_time: ours.last_transition_time.clone(),
                        ..theirs.clone()
                    } == *ours
            });
            if !superfluous {
                if let Some(place) = theirs {
                    self.conditions.remove(place);
                }
                self.conditions.push(ours.clone());
            }
        }
        self.sort();
        self.recompute_ready();
    }

    fn sort(&mut self) {
        self.conditions.sort_by_key(|condition| {
            let last = condition.type_ == READY;
            (last, (!last).then_some(condition.last_transition_time.0))
        });
    }

    fn put(&mut self, kind: &str, status: Status, reason: &str, message: &str) -> bool {
        let place = self.conditions.iter().position(|condition| condition.type_ == kind);
        let since = match place.map(|place| &self.conditions[place]) {
            Some(old) if Status::of(old) == status => old.last_transition_time.0,
            // The conditions that every object has begin with the object.
            None if self.is_dependent(kind) => self.created,
            _ => self.now,
        };
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: Some(self.generation),
            last_transition_time: Time(whole_seconds(since)),
        };
        if place.is_some_and(|place| self.conditions[place] == condition) {
            return false;
        }
        if let Some(place) = place {
            self.conditions.remove(place);
        }
        if self.deleting {
            for other in self.conditions.iter_mut() {
                other.observed_generation = Some(self.generation);
            }
        }
        self.conditions.push(condition);
        self.sort();
        true
    }

    fn recompute_ready(&mut self) {
        let outdated =
            |condition: &Condition| condition.observed_generation.unwrap_or(0) != self.generation;
        let mut unhealthy: Vec<&Condition> = self
            .conditions
            .iter()
            .filter(|condition| self.dependents.contains(&condition.type_.as_str()))
            .filter(|condition| Status::of(condition) != Status::True || outdated(condition))
            .collect();
        if unhealthy.is_empty() {
            self.put(READY, Status::True, READY, "");
            return;
        }
        unhealthy.sort_by_key(|condition| std::cmp::Reverse(condition.last_transition_time.0));
        let failed = unhealthy
            .iter()
            .any(|condition| Status::of(condition) == Status::False && !outdated(condition));
        let message = unhealthy
            .iter()
            .map(|condition| format!("{}={}", condition.type_, condition.status))
            .collect::<Vec<_>>()
            .join(", ");
        if failed {
            self.put(READY, Status::False, "UnhealthyDependents", &message);
        } else {
            self.put(READY, Status::Unknown, "ReconcilingDependents", &message);
        }
    }

    fn is_dependent(&self, kind: &str) -> bool {
        kind == READY || self.dependents.contains(&kind)
    }
}

/// Kubernetes writes times in whole seconds. Rounding here lets a condition equal itself after it
/// has been stored.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeClaim, NodePool};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_one_controller_changed_is_taken_over_into_what_others_changed() {
        type Change = fn(&mut ConditionSet<'_>);
        // What was read (`None`: a claim without conditions), what each of two made of it, and what stands in the end.
        let check = |read: Option<Change>, ours: Change, theirs: Change, expected: &[&str]| {
            let changed = |claim: &NodeClaim, second: i64, change: Change| {
                let mut claim = claim.clone();
                change(&mut claim.condition_set(at(second)));
                claim
            };
            let before = read.map_or_else(claim, |read| changed(&claim(), 1, read));
            let (ours, mut newest) = (changed(&before, 2, ours), changed(&before, 3, theirs));
            newest.condition_set(at(4)).take_over(before.conditions(), ours.conditions());
            let conditions = newest.conditions().iter();
            let mut found: Vec<_> =
                conditions.filter(|one| one.status == "True").map(|one| &*one.type_).collect();
            found.sort_unstable();
            assert_eq!(found, expected);
        };
        let nothing: Change = |_| {};
        let launch: Change = |set| assert!(set.set_true(LAUNCHED));
        let register: Change = |set| assert!(set.set_true(REGISTERED));
        let drift: Change = |set| assert!(set.set_true(DRIFTED));
        // Conditions that one only added because every claim has them do not hide what the other says.
        check(None, launch, nothing, &[LAUNCHED]);
        check(None, nothing, launch, &[LAUNCHED]);
        check(Some(launch), drift, register, &[DRIFTED, LAUNCHED, REGISTERED]);
        check(Some(drift), |set| assert_eq!(set.clear(DRIFTED), Ok(())), launch, &[LAUNCHED]);
        // Ready follows from what both did.
        let almost: Change = |set| assert!(set.set_true(LAUNCHED) && set.set_true(REGISTERED));
        let initialize: Change = |set| assert!(set.set_true(INITIALIZED));
        let all = [DRIFTED, INITIALIZED, LAUNCHED, READY, REGISTERED];
        check(Some(almost), initialize, drift, &all);
    }

    #[test]
    fn of_two_who_say_the_same_the_first_knows_since_when() {
        let before = claim();
        let (mut ours, mut newest) = (before.clone(), before.clone());
        ours.condition_set(at(20)).set_true(INSTANCE_TERMINATING);
        newest.condition_set(at(10)).set_true(INSTANCE_TERMINATING);
        let first = newest.clone();
        newest.condition_set(at(30)).take_over(before.conditions(), ours.conditions());
        let since = |claim: &NodeClaim| claim.condition(INSTANCE_TERMINATING).unwrap().clone();
        assert_eq!(since(&newest), since(&first));
    }

    fn claim() -> NodeClaim {
        let mut claim = NodeClaim::default();
        claim.metadata.generation = Some(1);
        claim.metadata.creation_timestamp = Some(Time(at(100)));
        claim
    }

    /// `type=status/reason@second#generation`
    fn shown(object: &impl Conditioned) -> Vec<String> {
        let show = |condition: &Condition| {
            format!(
                "{}={}/{}@{}#{}",
                condition.type_,
                condition.status,
                condition.reason,
                condition.last_transition_time.0.as_second(),
                condition.observed_generation.unwrap()
            )
        };
        object.conditions().iter().map(show).collect()
    }

    fn ready_message(object: &impl Conditioned) -> &str {
        &object.condition(READY).unwrap().message
    }

    #[test]
    fn begins_with_unknown_conditions_from_the_time_of_creation() {
        let mut claim = claim();
        claim.condition_set(at(200));
        assert_eq!(
            shown(&claim),
            [
                "Launched=Unknown/AwaitingReconciliation@100#1",
                "Registered=Unknown/AwaitingReconciliation@100#1",
                "Initialized=Unknown/AwaitingReconciliation@100#1",
                "Ready=Unknown/ReconcilingDependents@100#1",
            ]
        );
        assert_eq!(claim.condition(LAUNCHED).unwrap().message, "object is awaiting reconciliation");
        assert_eq!(
            ready_message(&claim),
            "Launched=Unknown, Registered=Unknown, Initialized=Unknown"
        );
        let before = claim.clone();
        claim.condition_set(at(300));
        assert_eq!(claim, before);
    }

    #[test]
    fn is_ready_when_all_dependents_are_true() {
        let mut claim = claim();
        let mut set = claim.condition_set(at(200));
        assert!(set.set_true(LAUNCHED));
        assert!(set.set_true(REGISTERED));
        assert!(set.set_true(INITIALIZED));
        assert!(!set.set_true(INITIALIZED));
        assert_eq!(
            shown(&claim),
            [
                "Launched=True/Launched@200#1",
                "Registered=True/Registered@200#1",
                "Initialized=True/Initialized@200#1",
                "Ready=True/Ready@200#1",
            ]
        );
        assert_eq!(ready_message(&claim), "");
    }

    #[test]
    fn is_not_ready_when_a_dependent_is_false() {
        let mut claim = claim();
        claim.condition_set(at(200)).set_true(LAUNCHED);
        claim.condition_set(at(300)).set_false(REGISTERED, "MultipleNodesFound", "text");
        assert_eq!(
            shown(&claim),
            [
                "Initialized=Unknown/AwaitingReconciliation@100#1",
                "Launched=True/Launched@200#1",
                "Registered=False/MultipleNodesFound@300#1",
                "Ready=False/UnhealthyDependents@300#1",
            ]
        );
        assert_eq!(ready_message(&claim), "Registered=False, Initialized=Unknown");
    }

    #[test]
    fn keeps_the_time_while_the_status_stays() {
        let mut claim = claim();
        claim.condition_set(at(200)).set_unknown_because(LAUNCHED, "LaunchFailed", "one");
        let mut set = claim.condition_set(at(300));
        assert!(set.set_unknown_because(LAUNCHED, "LaunchFailed", "two"));
        let launched = claim.condition(LAUNCHED).unwrap();
        assert_eq!((launched.message.as_str(), launched.last_transition_time.0), ("two", at(100)));
    }

    #[test]
    fn begins_other_conditions_now() {
        let mut claim = claim();
        claim.condition_set(at(200)).set_true_because(
            DRIFTED,
            "NodePoolDrifted",
            "NodePoolDrifted",
        );
        assert_eq!(shown(&claim)[3], "Drifted=True/NodePoolDrifted@200#1");
        assert!(claim.is_true(DRIFTED));
    }

    #[test]
    fn does_not_trust_conditions_of_an_older_generation() {
        let mut pool = NodePool::default();
        pool.metadata.generation = Some(1);
        let mut set = pool.condition_set(at(100));
        set.set_true(VALIDATION_SUCCEEDED);
        set.set_false(NODE_CLASS_READY, "NodeClassNotFound", "");
        pool.metadata.generation = Some(2);
        pool.condition_set(at(200)).set_true(VALIDATION_SUCCEEDED);
        assert_eq!(
            shown(&pool),
            [
                "NodeClassReady=False/NodeClassNotFound@100#1",
                "ValidationSucceeded=True/ValidationSucceeded@100#2",
                "Ready=Unknown/ReconcilingDependents@200#2",
            ]
        );
        assert_eq!(ready_message(&pool), "NodeClassReady=False");
    }

    #[test]
    fn moves_all_conditions_of_a_deleted_object_to_its_generation() {
        let mut claim = claim();
        let mut set = claim.condition_set(at(200));
        for kind in [LAUNCHED, REGISTERED, INITIALIZED] {
            set.set_true(kind);
        }
        claim.metadata.generation = Some(2);
        claim.metadata.deletion_timestamp = Some(Time(at(250)));
        claim.condition_set(at(300)).set_unknown_because(DRAINED, "Draining", "Draining");
        assert!(shown(&claim).iter().all(|condition| condition.ends_with("#2")));
        assert_eq!(shown(&claim)[4], "Ready=True/Ready@200#2");
    }

    #[test]
    fn changes_nothing_when_nothing_is_new() {
        let mut claim = claim();
        claim.condition_set(at(200)).set_true(LAUNCHED);
        let before = claim.clone();
        assert!(!claim.condition_set(at(300)).set_true(LAUNCHED));
        assert_eq!(claim, before);
    }

    #[test]
    fn clears_conditions_that_ready_does_not_depend_on() {
        let mut claim = claim();
        let mut set = claim.condition_set(at(200));
        set.set_true(DRIFTED);
        set.set_true(CONSOLIDATABLE);
        assert_eq!(set.clear(DRIFTED), Ok(()));
        assert_eq!(set.clear(DRIFTED), Ok(()));
        let order: Vec<&str> = claim.conditions().iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(order, [CONSOLIDATABLE, INITIALIZED, LAUNCHED, READY, REGISTERED]);
        for kind in [READY, LAUNCHED] {
            assert_eq!(
                claim.condition_set(at(300)).clear(kind),
                Err(ClearDependentError(kind.to_owned()))
            );
        }
    }

    #[test]
    fn reads_a_missing_condition_as_unknown() {
        assert_eq!(claim().condition_status(LAUNCHED), Status::Unknown);
        assert!(!claim().is_true(READY));
    }

    #[test]
    fn stores_times_in_whole_seconds() {
        let mut claim = claim();
        claim.condition_set(Timestamp::new(200, 999_999_999).unwrap()).set_true(LAUNCHED);
        let stored: NodeClaim =
            serde_json::from_value(serde_json::to_value(&claim).unwrap()).unwrap();
        assert_eq!(stored, claim);
    }
}
