//! Launches that were given up, so that a pool whose cloud has no capacity does not ask for it all the time.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{NodeClaim, ObjectExt};
use kerf_cluster::{Cluster, Delta};
use kerf_runtime::Clock;

/// Waits double from the first to the last with each launch that fails after another.
const FIRST_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Per pool, the failures in a row.
pub(super) struct LaunchFailures {
    clock: Clock,
    by_pool: Mutex<BTreeMap<String, Failures>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failures {
    in_a_row: u32,
    wait_until: Timestamp,
}

impl LaunchFailures {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, by_pool: Mutex::default() }
    }

    /// Takes note of what happened to a claim of the pool.
    pub(super) fn notice(&self, pool: &str, delta: &Delta<NodeClaim>, cluster: &Cluster) {
        match launch(delta, cluster) {
            Some(Launch::Succeeded) => self.forget(pool),
            Some(Launch::Failed) => self.add(pool, self.clock.now()),
            None => {}
        }
    }

    /// How long to wait before the next launch.
    pub(super) fn wait(&self, pool: &str, now: Timestamp) -> Option<Duration> {
        let until = self.by_pool().get(pool)?.wait_until;
        Duration::try_from(until.duration_since(now)).ok().filter(|wait| !wait.is_zero())
    }

    pub(super) fn forget(&self, pool: &str) {
        self.by_pool().remove(pool);
    }

    /// Launches that began together fail together, and count as one failure.
    fn add(&self, pool: &str, now: Timestamp) {
        let mut by_pool = self.by_pool();
        let before = by_pool.get(pool).copied();
        if before.is_some_and(|before| now < before.wait_until) {
            return;
        }
        let in_a_row = before.map_or(0, |before| before.in_a_row) + 1;
        let wait = FIRST_WAIT.saturating_mul(2u32.saturating_pow(in_a_row - 1)).min(LONGEST_WAIT);
        let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        let wait_until = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        by_pool.insert(pool.to_owned(), Failures { in_a_row, wait_until });
    }

    fn by_pool(&self) -> MutexGuard<'_, BTreeMap<String, Failures>> {
        self.by_pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launch {
    Succeeded,
    Failed,
}

/// Whether the change ends a launch, and how. A claim that the pool itself gave up did not fail.
fn launch(delta: &Delta<NodeClaim>, cluster: &Cluster) -> Option<Launch> {
    let launched = |claim: &NodeClaim| !claim.provider_id().is_empty();
    let before = delta.before.as_ref().filter(|before| !launched(before))?;
    match &delta.after {
        Some(after) if launched(after) => Some(Launch::Succeeded),
        Some(after) => {
            let deleted = after.is_deleting();
            let anew = deleted && !before.is_deleting();
            (anew && !cluster.is_marked_for_deletion(&delta.key.name)).then_some(Launch::Failed)
        }
        None => (!before.is_deleting()).then_some(Launch::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_cluster::Key;
    use serde_json::json;
    use std::sync::Arc;

    fn claim(provider_id: &str, deleted: bool) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z")},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": provider_id},
        }))
        .unwrap()
    }

    #[test]
    fn a_launch_ends_with_an_instance_or_with_the_claim() {
        let check = |before: Option<NodeClaim>, after: Option<NodeClaim>, expected| {
            let (before, after) = (before.map(Arc::new), after.map(Arc::new));
            let delta = Delta { key: Key::cluster("c"), before, after };
            assert_eq!(launch(&delta, &Cluster::default()), expected, "{delta:?}");
        };
        check(None, Some(claim("", false)), None);
        check(Some(claim("", false)), Some(claim("", false)), None);
        check(Some(claim("", false)), Some(claim("i", false)), Some(Launch::Succeeded));
        check(Some(claim("", false)), Some(claim("", true)), Some(Launch::Failed));
        check(Some(claim("", false)), None, Some(Launch::Failed));
        check(Some(claim("", true)), None, None);
        check(Some(claim("i", false)), Some(claim("i", true)), None);
        check(Some(claim("i", false)), None, None);
    }

    #[test]
    fn a_claim_that_was_given_up_did_not_fail() {
        let mut cluster = Cluster::default();
        cluster.apply(claim("", false));
        cluster.mark_for_deletion("c");
        let (before, after) = (claim("", false), claim("", true));
        let (before, after) = (Some(Arc::new(before)), Some(Arc::new(after)));
        let delta = Delta { key: Key::cluster("c"), before, after };
        assert_eq!(launch(&delta, &cluster), None);
    }

    #[test]
    fn waits_double_up_to_five_minutes() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let failures = LaunchFailures::new(Clock::system());
        assert_eq!(failures.wait("p", at(0)), None);
        let mut now = 0;
        for seconds in [5, 10, 20, 40, 80, 160, 300, 300] {
            failures.add("p", at(now));
            failures.add("p", at(now + 1));
            assert_eq!(failures.wait("p", at(now)), Some(Duration::from_secs(seconds)));
            now += i64::try_from(seconds).unwrap();
            assert_eq!(failures.wait("p", at(now)), None);
        }
        failures.forget("p");
        failures.add("p", at(now));
        assert_eq!(failures.wait("p", at(now)), Some(FIRST_WAIT));
    }
}
