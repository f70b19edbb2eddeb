//! The commands that are being carried out, and what each of them waits for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kerf_api::{
    NodeClaim, ObjectExt,
    annotations::DO_NOT_REPAIR,
    conditions::{Conditioned, INITIALIZED, LAUNCHED},
};
use kerf_cluster::Cluster;
use kerf_disruption::{Decision, Method, terminate_first::GoesFirst};
use kerf_model::Price;
use kube::ResourceExt;

use super::record::Record;

/// Commands under way, by name. Cheap to clone, and every clone is the same.
///
/// Nothing here has to outlive the process: see [`Record`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    underway: BTreeMap<String, Underway>,
    /// The command that a claim is part of, whether it goes or comes.
    by_claim: BTreeMap<String, String>,
}

/// One command that has been started and is not over.
#[derive(Clone, Debug)]
pub(crate) struct Underway {
    pub(crate) record: Record,
    /// The candidates go first, and what takes their place comes after.
    pub(crate) goes_first: Option<GoesFirst>,
    /// Names of the claims that come.
    pub(crate) replacements: Vec<String>,
    pub(crate) started: Timestamp,
    /// Candidates whose end has been asked for.
    pub(crate) ended: BTreeSet<String>,
    /// What the replacements cost was compared with what was promised.
    pub(crate) promise_kept: bool,
    /// It is being taken back.
    pub(crate) lost: Option<Loss>,
}

/// Why a command cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Loss {
    #[error("its replacement {0} is gone")]
    ReplacementGone(String),
    #[error("its replacements were not ready after {0:?}")]
    TimedOut(Duration),
    #[error("its candidate {0} may no longer be repaired")]
    Vetoed(String),
    #[error("its candidates could not be deleted within {0:?}")]
    Undeletable(Duration),
    #[error("its replacement costs {} and may cost at most {}", price.beside(*at_most), at_most.beside(*price))]
    PromisedSavingsLost { price: Price, at_most: Price },
}

impl Loss {
    /// Whether what was to come is to blame. Then it is of no use to ask for the same again at once.
    pub(crate) fn is_of_replacement(&self) -> bool {
        match self {
            Self::ReplacementGone(_) | Self::TimedOut(_) | Self::PromisedSavingsLost { .. } => true,
            Self::Undeletable(_) | Self::Vetoed(_) => false,
        }
    }
}

/// What is to be done next for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A replacement is not ready.
    Wait,
    /// All replacements have launched: what they really cost can be asked.
    Compare,
    /// Everything that comes is there: these claims can go.
    End(Vec<String>),
    /// Nothing is left to do.
    Done,
    TakeBack(Loss),
}

impl Underway {
    pub(crate) fn new(record: Record, replacements: Vec<String>, started: Timestamp) -> Self {
        let (ended, promise_kept, lost) = (BTreeSet::new(), false, None);
        let goes_first = None;
        Self { record, goes_first, replacements, started, ended, promise_kept, lost }
    }

    pub(crate) fn next(&self, cluster: &Cluster, now: Timestamp, limit: Duration) -> Next {
        if let Some(loss) = &self.lost {
            return Next::TakeBack(loss.clone());
        }
        let stays = |name: &&String| !self.ended.contains(*name) && is_here(cluster, name);
        let left: Vec<String> = self.record.candidates.iter().filter(stays).cloned().collect();
        if left.is_empty() {
            return Next::Done;
        }
        let vetoed = |name: &&String| is_vetoed(cluster, name);
        if self.record.method == Method::Repair
            && let Some(vetoed) = left.iter().find(vetoed)
        {
            return Next::TakeBack(Loss::Vetoed(vetoed.clone()));
        }
        if let Some(gone) = self.replacements.iter().find(|name| !is_here(cluster, name)) {
            return Next::TakeBack(Loss::ReplacementGone(gone.clone()));
        }
        // Once the first candidate goes, its pods count on the replacement whatever it costs.
        let untouched = left.len() == self.record.candidates.len();
        if self.record.promise.is_some()
            && !self.promise_kept
            && untouched
            && !self.replacements.is_empty()
            && self.have_all(cluster, LAUNCHED)
        {
            return Next::Compare;
        }
        if self.have_all(cluster, INITIALIZED) {
            Next::End(left)
        } else if self.is_older_than(limit, now) {
            Next::TakeBack(Loss::TimedOut(limit))
        } else {
            Next::Wait
        }
    }

    /// What it does, as metrics name it.
    pub(crate) fn decision(&self) -> Decision {
        match (self.goes_first, self.record.replacements) {
            (Some(_), _) => Decision::TerminateFirst,
            (None, 0) => Decision::Delete,
            (None, _) => Decision::Replace,
        }
    }

    pub(crate) fn is_older_than(&self, limit: Duration, now: Timestamp) -> bool {
        Duration::try_from(now.duration_since(self.started)).is_ok_and(|age| age > limit)
    }

    /// The replacements that did not get as far as this.
    pub(crate) fn without<'a>(
        &'a self,
        cluster: &'a Cluster,
        condition: &'a str,
    ) -> impl Iterator<Item = &'a String> {
        self.replacements
            .iter()
            .filter(move |name| claim(cluster, name).is_none_or(|claim| !claim.is_true(condition)))
    }

    fn have_all(&self, cluster: &Cluster, condition: &str) -> bool {
        self.without(cluster, condition).next().is_none()
    }
}

impl Commands {
    /// Adds a command. The execution queue refers to it by its name.
    pub(crate) fn insert(&self, command: Underway) {
        let mut state = self.state();
        let name = command.record.command.clone();
        for claim in command.record.candidates.iter().chain(&command.replacements) {
            state.by_claim.insert(claim.clone(), name.clone());
        }
        state.underway.insert(name, command);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Underway> {
        self.state().underway.get(name).cloned()
    }

    pub(crate) fn update(&self, name: &str, change: impl FnOnce(&mut Underway)) {
        if let Some(command) = self.state().underway.get_mut(name) {
            change(command);
        }
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut state = self.state();
        state.underway.remove(name);
        state.by_claim.retain(|_, command| command != name);
    }

    /// The command that the claim is part of.
    pub(crate) fn of(&self, claim: &str) -> Option<String> {
        self.state().by_claim.get(claim).cloned()
    }

    /// Every claim that goes.
    pub(crate) fn candidates(&self) -> BTreeSet<String> {
        let state = self.state();
        let candidates = state.underway.values().flat_map(|command| &command.record.candidates);
        candidates.cloned().collect()
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.state().underway.keys().cloned().collect()
    }

    /// How long a command may take. A cloud that is asked for many nodes at once needs longer for each.
    pub(crate) fn time_limit(&self) -> Duration {
        let state = self.state();
        time_limit(state.underway.values().map(|command| command.record.candidates.len()).sum())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock panics half-way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn time_limit(candidates: usize) -> Duration {
    const EACH: Duration = Duration::from_millis(80);
    let all = EACH.saturating_mul(u32::try_from(candidates).unwrap_or(u32::MAX));
    all.clamp(Duration::from_mins(10), Duration::from_hours(1))
}

/// Whether there is such a claim and it is here to stay.
pub(super) fn is_here(cluster: &Cluster, name: &str) -> bool {
    claim(cluster, name).is_some_and(|claim| !claim.is_deleting())
}

/// Whether someone forbade the repair of the claim's node, be it while it was under way.
fn is_vetoed(cluster: &Cluster, name: &str) -> bool {
    let node = claim(cluster, name).and_then(|claim| cluster.node_of(claim.provider_id()).ok());
    let annotation = node.and_then(|node| node.annotations().get(DO_NOT_REPAIR));
    annotation.is_some_and(|value| value == "true")
}

fn claim<'a>(cluster: &'a Cluster, name: &str) -> Option<&'a Arc<NodeClaim>> {
    cluster.claims().named(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_disruption::Promise;
    use serde_json::json;

    const LIMIT: Duration = Duration::from_mins(10);

    #[test]
    fn many_commands_have_more_time_each() {
        for (candidates, seconds) in [
            (100, 600),
            (4000, 600),
            (10_000, 800),
            (40_000, 3200),
            (80_000, 3600),
            (100_000, 3600),
        ] {
            assert_eq!(time_limit(candidates).as_secs(), seconds, "{candidates}");
        }
    }

    /// A claim in one of the states that matter: `deleting`, or by how far it got.
    fn put(cluster: &mut Cluster, name: &str, state: &str) {
        let reached: &[&str] = match state {
            "launched" => &[LAUNCHED],
            "initialized" => &[LAUNCHED, INITIALIZED],
            _ => &[],
        };
        let deleted = (state == "deleting").then_some("2026-01-01T00:00:00Z");
        let mut claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "deletionTimestamp": deleted},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
        }))
        .unwrap();
        for condition in reached {
            claim.condition_set(Timestamp::UNIX_EPOCH).set_true(condition);
        }
        cluster.apply(claim);
    }

    struct Case {
        /// Candidates `a` and `b`.
        candidates: [&'static str; 2],
        replacements: &'static [&'static str],
        promise: bool,
        minutes: i64,
    }

    fn check(case: &Case, expected: &Next) {
        let mut cluster = Cluster::default();
        let mut replacements = Vec::new();
        for (name, state) in ["a", "b"].into_iter().zip(case.candidates) {
            if state != "gone" {
                put(&mut cluster, name, state);
            }
        }
        for (place, state) in case.replacements.iter().enumerate() {
            let name = format!("r{place}");
            if *state != "gone" {
                put(&mut cluster, &name, state);
            }
            replacements.push(name);
        }
        let record = Record {
            command: "a.0".into(),
            method: Method::MultiNode,
            candidates: vec!["a".into(), "b".into()],
            replacements: replacements.len(),
            promise: case.promise.then_some(Promise { at_most: Price::ZERO }),
            repair: None,
        };
        let underway = Underway::new(record, replacements, Timestamp::UNIX_EPOCH);
        let now = Timestamp::from_second(case.minutes * 60).unwrap();
        let text = format!("{:?} {:?}", case.candidates, case.replacements);
        assert_eq!(underway.next(&cluster, now, LIMIT), *expected, "{text}");
    }

    #[test]
    fn nothing_goes_before_everything_that_comes_is_ready() {
        let case = |replacements, minutes| Case {
            candidates: ["", ""],
            replacements,
            promise: false,
            minutes,
        };
        let both = || Next::End(vec!["a".into(), "b".into()]);
        let gone = |name: &str| Next::TakeBack(Loss::ReplacementGone(name.into()));
        check(&case(&[], 0), &both());
        check(&case(&[""], 0), &Next::Wait);
        check(&case(&["launched"], 0), &Next::Wait);
        check(&case(&["initialized"], 0), &both());
        check(&case(&["initialized", "launched"], 0), &Next::Wait);
        check(&case(&["initialized", "initialized"], 0), &both());
        check(&case(&["gone"], 0), &gone("r0"));
        check(&case(&["initialized", "deleting"], 0), &gone("r1"));
        check(&case(&["launched"], 10), &Next::Wait);
        check(&case(&["launched"], 11), &Next::TakeBack(Loss::TimedOut(LIMIT)));
        check(&case(&["initialized"], 11), &both());
    }

    #[test]
    fn a_repair_ends_when_someone_forbids_it() {
        let next = |method, annotated: Option<&str>| {
            let mut cluster = Cluster::default();
            for name in ["a", "r"] {
                put(&mut cluster, name, "initialized");
            }
            let mut claim = NodeClaim::clone(cluster.claims().named("a").unwrap());
            claim.status.get_or_insert_default().provider_id = "i-a".into();
            cluster.apply(claim);
            cluster.apply::<k8s_openapi::api::core::v1::Node>(
                serde_json::from_value(json!({
                    "metadata": {"name": "n", "annotations": annotated.map(|value| json!({DO_NOT_REPAIR: value}))},
                    "spec": {"providerID": "i-a"},
                }))
                .unwrap(),
            );
            let record = Record {
                command: "a.0".into(),
                method,
                candidates: vec!["a".into()],
                replacements: 1,
                promise: None,
                repair: None,
            };
            let underway = Underway::new(record, vec!["r".into()], Timestamp::UNIX_EPOCH);
            underway.next(&cluster, Timestamp::UNIX_EPOCH, LIMIT)
        };
        let goes = || Next::End(vec!["a".into()]);
        assert_eq!(next(Method::Repair, None), goes());
        assert_eq!(next(Method::Repair, Some("false")), goes());
        assert_eq!(next(Method::Drift, Some("true")), goes(), "it is about repair");
        let vetoed = Next::TakeBack(Loss::Vetoed("a".into()));
        assert_eq!(next(Method::Repair, Some("true")), vetoed);
    }

    #[test]
    fn candidates_that_go_by_themselves_are_not_waited_for() {
        let case = |candidates| Case {
            candidates,
            replacements: &["initialized"],
            promise: false,
            minutes: 0,
        };
        check(&case(["deleting", ""]), &Next::End(vec!["b".into()]));
        check(&case(["gone", "deleting"]), &Next::Done);
    }

    #[test]
    fn the_price_is_compared_after_the_launch_and_before_anything_goes() {
        let case =
            |candidates, replacements| Case { candidates, replacements, promise: true, minutes: 0 };
        check(&case(["", ""], &[""]), &Next::Wait);
        check(&case(["", ""], &["launched"]), &Next::Compare);
        check(&case(["", ""], &["initialized"]), &Next::Compare);
        check(&case(["deleting", ""], &["launched"]), &Next::Wait);
        check(&case(["deleting", ""], &["initialized"]), &Next::End(vec!["b".into()]));
        check(&case(["", ""], &[]), &Next::End(vec!["a".into(), "b".into()]));
    }
}
