//! Claims that do not launch or register in time are given up.

use std::time::Duration;

use jiff::Timestamp;
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, LAUNCHED, REGISTERED},
};
use kube::ResourceExt;
use tracing::warn;

use super::Step;
use crate::{context::Context, error::Result, metrics::Cause};

const LAUNCH_TIMEOUT: Duration = Duration::from_mins(5);
const REGISTRATION_TIMEOUT: Duration = Duration::from_mins(15);

/// What became of a claim by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Registered,
    Waiting(Duration),
    NotLaunched,
    NotRegistered,
}

pub(super) async fn check(context: &Context, claim: &NodeClaim) -> Result<Step> {
    let cause = match life(claim, context.now()) {
        Life::Registered => return Ok(Step::Next),
        Life::Waiting(rest) => return Ok(Step::Again(rest)),
        Life::NotLaunched => Cause::LaunchTimeout,
        Life::NotRegistered => Cause::RegistrationTimeout,
    };
    warn!(claim = claim.name_any(), reason = cause.as_str(), "giving up nodeclaim");
    context.disrupt(claim, cause).await?;
    Ok(Step::Deleted)
}

fn life(claim: &NodeClaim, now: Timestamp) -> Life {
    if claim.is_true(REGISTERED) {
        return Life::Registered;
    }
    let (condition, timeout, verdict) = if claim.is_true(LAUNCHED) {
        (REGISTERED, REGISTRATION_TIMEOUT, Life::NotRegistered)
    } else {
        (LAUNCHED, LAUNCH_TIMEOUT, Life::NotLaunched)
    };
    let Some(condition) = claim.condition(condition) else { return Life::Waiting(timeout) };
    let waited = now.duration_since(condition.last_transition_time.0);
    // A transition that lies ahead (clock skew) has waited for no time at all.
    let waited = Duration::try_from(waited).unwrap_or(Duration::ZERO);
    match timeout.checked_sub(waited) {
        Some(rest) if !rest.is_zero() => Life::Waiting(rest),
        _ => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::conditions::Status;

    #[test]
    fn a_claim_has_five_minutes_to_launch_and_fifteen_to_register() {
        use Status::{False, True, Unknown};
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let minutes = Duration::from_mins;
        let cases = [
            (Unknown, Unknown, 4, Life::Waiting(minutes(1))),
            (Unknown, Unknown, 5, Life::NotLaunched),
            (True, Unknown, 5, Life::Waiting(minutes(10))),
            (True, Unknown, 15, Life::NotRegistered),
            (True, False, 14, Life::Waiting(minutes(1))),
            (True, False, 15, Life::NotRegistered),
            (True, True, 99, Life::Registered),
        ];
        for (launched, registered, after, expected) in cases {
            let mut claim = NodeClaim::default();
            claim.metadata.creation_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(start));
            let mut conditions = claim.condition_set(start);
            conditions.set(LAUNCHED, launched, "R", "");
            conditions.set(REGISTERED, registered, "R", "");
            let now = start + jiff::SignedDuration::from_mins(after);
            assert_eq!(life(&claim, now), expected, "{launched:?} {registered:?} after {after}m");
        }
    }

    #[test]
    fn the_time_counts_from_when_the_condition_became_what_it_is() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let after = |minutes| start + jiff::SignedDuration::from_mins(minutes);
        let mut claim = NodeClaim::default();
        claim.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(start));
        claim.condition_set(after(4)).set_false(LAUNCHED, "R", "");
        assert_eq!(life(&claim, after(8)), Life::Waiting(Duration::from_mins(1)));
        assert_eq!(life(&claim, after(9)), Life::NotLaunched);
        claim.condition_set(after(8)).set_true(LAUNCHED);
        claim.condition_set(after(10)).set_false(REGISTERED, "R", "");
        assert_eq!(life(&claim, after(16)), Life::Waiting(Duration::from_mins(9)));
        assert_eq!(life(&claim, after(25)), Life::NotRegistered);
    }

    #[test]
    fn a_clock_that_runs_behind_gives_up_nothing() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut claim = NodeClaim::default();
        claim.condition_set(start).set_unknown(LAUNCHED);
        let earlier = start - jiff::SignedDuration::from_hours(1);
        assert_eq!(life(&claim, earlier), Life::Waiting(LAUNCH_TIMEOUT));
    }
}
