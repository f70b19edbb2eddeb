//! Clocks that differ. AWS refuses a signature that is more than five minutes off.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};

use crate::error::Failure;

/// What AWS's clock is ahead of ours, in seconds.
#[derive(Debug, Default)]
pub(crate) struct Skew(AtomicI64);

impl Skew {
    /// Smaller differences are the way of the answer, and do no harm.
    const LEAST: SignedDuration = SignedDuration::from_mins(4);

    /// Our time, as AWS would have it.
    pub(crate) fn correct(&self, now: Timestamp) -> Timestamp {
        let skew = SignedDuration::from_secs(self.0.load(Ordering::Relaxed));
        now.checked_add(skew).unwrap_or(now)
    }

    /// Takes note of the time that an answer carries. True when requests will be dated differently from now on.
    pub(crate) fn learn(&self, now: Timestamp, date: Option<&str>) -> bool {
        let Some(there) = date.and_then(|date| rfc2822::parse(date).ok()) else { return false };
        let skew = there.timestamp().duration_since(now);
        let skew = if skew.abs() < Self::LEAST { 0 } else { skew.as_secs() };
        let before = self.0.swap(skew, Ordering::Relaxed);
        skew.abs_diff(before) >= Self::LEAST.as_secs().unsigned_abs()
    }
}

/// Whether a service says that the date of a request is wrong, or may mean it: EC2 calls a signature of another day an unknown key.
pub(crate) fn may_be_skew(failure: &Failure) -> bool {
    let Failure::Refused { code, .. } = failure else { return false };
    matches!(
        code.as_str(),
        "RequestTimeTooSkewed"
            | "RequestExpired"
            | "RequestInTheFuture"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "AuthFailure"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_matters_is_learned() {
        let now: Timestamp = "2026-11-16T19:00:00Z".parse().unwrap();
        let cases = [
            (Some("Mon, 16 Nov 2026 19:00:01 GMT"), false, "2026-11-16T19:00:00Z"),
            (Some("Mon, 16 Nov 2026 19:03:59 GMT"), false, "2026-11-16T19:00:00Z"),
            (Some("Mon, 16 Nov 2026 19:10:00 GMT"), true, "2026-11-16T19:10:00Z"),
            (Some("Sun, 15 Nov 2026 19:00:00 GMT"), true, "2026-11-15T19:00:00Z"),
            (Some("yesterday"), false, "2026-11-16T19:00:00Z"),
            (None, false, "2026-11-16T19:00:00Z"),
        ];
        for (date, changed, expect) in cases {
            let skew = Skew::default();
            assert_eq!(skew.learn(now, date), changed, "{date:?}");
            assert_eq!(skew.correct(now).to_string(), expect, "{date:?}");
        }
    }

    #[test]
    fn a_clock_that_is_right_again_is_believed() {
        let now: Timestamp = "2026-11-16T19:00:00Z".parse().unwrap();
        let skew = Skew::default();
        assert!(skew.learn(now, Some("Mon, 16 Nov 2026 20:00:00 GMT")));
        assert!(!skew.learn(now, Some("Mon, 16 Nov 2026 20:00:02 GMT")));
        assert!(skew.learn(now, Some("Mon, 16 Nov 2026 19:00:02 GMT")));
        assert_eq!(skew.correct(now), now);
    }
}
