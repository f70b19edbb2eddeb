//! Whether a node has been quiet for as long as its pool asks.

use std::time::Duration;

use jiff::Timestamp;
use kerf_api::{
    NodeClaim, NodePool,
    conditions::{Conditioned, INITIALIZED},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Now,
    In(Duration),
    /// Not by time alone: the pool says `Never`, or the node is not initialised.
    Never,
}

pub(super) fn verdict(claim: &NodeClaim, pool: &NodePool, now: Timestamp) -> Verdict {
    let Some(wanted) = pool.spec.disruption.consolidate_after.as_duration() else {
        return Verdict::Never;
    };
    let Some(initialized) = claim.condition(INITIALIZED).filter(|_| claim.is_true(INITIALIZED))
    else {
        return Verdict::Never;
    };
    let last_event = claim.last_pod_event();
    let since = last_event.unwrap_or(initialized.last_transition_time.0);
    let quiet = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match wanted.checked_sub(quiet) {
        Some(rest) if !rest.is_zero() => Verdict::In(rest),
        _ => Verdict::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn a_node_may_go_when_it_was_quiet_for_long_enough() {
        let at = |time: &str| -> Timestamp { format!("2026-01-01T{time}Z").parse().unwrap() };
        let minutes = |n| Verdict::In(Duration::from_mins(n));
        let cases = [
            ("0s", true, None, Verdict::Now),
            ("30m", true, None, Verdict::Now),
            ("61m", true, None, minutes(1)),
            ("60m", true, None, Verdict::Now),
            ("30m", true, Some("00:50:00"), minutes(20)),
            ("10m", true, Some("00:50:00"), Verdict::Now),
            ("Never", true, None, Verdict::Never),
            ("0s", false, None, Verdict::Never),
        ];
        for (after, initialized, last_event, expected) in cases {
            let mut pool = NodePool::default();
            pool.spec.disruption.consolidate_after = after.parse().unwrap();
            let mut claim = NodeClaim::default();
            claim.metadata.creation_timestamp = Some(Time(at("00:00:00")));
            if initialized {
                claim.condition_set(at("00:00:00")).set_true(INITIALIZED);
            }
            claim.status.get_or_insert_default().last_pod_event_time =
                last_event.map(|time| Time(at(time)));
            let got = verdict(&claim, &pool, at("01:00:00"));
            assert_eq!(got, expected, "{after} {initialized} {last_event:?}");
        }
    }
}
