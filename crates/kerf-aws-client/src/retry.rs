//! Which calls are tried again, and when: the standard mode of AWS's own clients.

use std::time::Duration;

use kerf_aws_model::errors::Meaning;

use crate::error::Failure;

/// Why a failed call may succeed if it is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Throttled,
    /// The service or the way to it had a moment of weakness.
    Transient,
    TimedOut,
}

impl Cause {
    pub(crate) fn of(failure: &Failure) -> Option<Self> {
        match failure {
            Failure::TimedOut { .. } => Some(Self::TimedOut),
            Failure::Unreachable { .. } => Some(Self::Transient),
            Failure::Refused { status, code, .. } => match failure.meaning() {
                Meaning::Throttled => Some(Self::Throttled),
                Meaning::Internal => Some(Self::Transient),
                _ if matches!(code.as_str(), "RequestTimeout" | "RequestTimeoutException") => {
                    Some(Self::Transient)
                }
                _ if matches!(status, 500 | 502 | 503 | 504) => Some(Self::Transient),
                _ if *status == 429 => Some(Self::Throttled),
                _ => None,
            },
            // Credentials were asked for with patience of their own; the others stay as they are.
            Failure::Credentials(_)
            | Failure::NotLeading(_)
            | Failure::Unsigned(_)
            | Failure::Unreadable(_) => None,
        }
    }

    fn cost(self) -> u32 {
        match self {
            Self::TimedOut => 10,
            Self::Throttled | Self::Transient => 5,
        }
    }
}

/// The longest wait before the next attempt: a second after the first, two after the second, and so on to 20. Which part of it is
/// waited is left to chance.
pub(crate) fn longest_wait(attempts: u32) -> Duration {
    const MOST: Duration = Duration::from_secs(20);
    Duration::from_secs(1).saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(MOST)
}

/// What all retries together may cost, so that a service in trouble is not called three times as often as before. Every call that goes
/// well gives something back.
#[derive(Debug)]
pub(crate) struct Quota {
    left: u32,
}

impl Quota {
    const FULL: u32 = 500;

    pub(crate) fn full() -> Self {
        Self { left: Self::FULL }
    }

    /// Pays for a retry, if there is enough to pay with.
    pub(crate) fn pay(&mut self, cause: Cause) -> bool {
        match self.left.checked_sub(cause.cost()) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// A call went well. What its last retry has cost comes back, or else a little.
    pub(crate) fn succeeded(&mut self, retried: Option<Cause>) {
        self.left = (self.left + retried.map_or(1, Cause::cost)).min(Self::FULL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str) -> Failure {
        Failure::Refused { status, code: code.to_owned(), message: String::new(), request_id: None }
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let cases = [
            (refused(503, "RequestLimitExceeded"), Some(Cause::Throttled)),
            (refused(400, "ThrottlingException"), Some(Cause::Throttled)),
            (refused(400, "Throttling"), Some(Cause::Throttled)),
            (refused(429, "SomethingNew"), Some(Cause::Throttled)),
            (refused(500, "InternalError"), Some(Cause::Transient)),
            (refused(503, "Unavailable"), Some(Cause::Transient)),
            (refused(502, ""), Some(Cause::Transient)),
            (refused(400, "RequestTimeout"), Some(Cause::Transient)),
            (refused(412, "DryRunOperation"), None),
            (refused(400, "InvalidParameterValue"), None),
            (refused(403, "UnauthorizedOperation"), None),
            (refused(400, "InsufficientInstanceCapacity"), None),
            (refused(501, "NotImplemented"), None),
            (Failure::TimedOut { after: Duration::from_mins(4) }, Some(Cause::TimedOut)),
            (
                Failure::Unreachable { endpoint: String::new(), reason: String::new() },
                Some(Cause::Transient),
            ),
            (Failure::Credentials(String::new()), None),
        ];
        for (failure, expect) in cases {
            assert_eq!(Cause::of(&failure), expect, "{failure}");
        }
    }

    #[test]
    fn waits_double_and_end_at_twenty_seconds() {
        let seconds = |attempts| longest_wait(attempts).as_secs();
        assert_eq!([1, 2, 3, 4, 5, 6, 100].map(seconds), [1, 2, 4, 8, 16, 20, 20]);
    }

    #[test]
    fn retries_end_when_all_fail_and_come_back_with_success() {
        let mut quota = Quota::full();
        let mut paid = 0;
        while quota.pay(Cause::Transient) {
            paid += 1;
        }
        assert_eq!(paid, 100);
        for _ in 0..5 {
            assert!(!quota.pay(Cause::Transient));
            quota.succeeded(None);
        }
        assert!(quota.pay(Cause::Transient));
        quota.succeeded(Some(Cause::TimedOut));
        assert!(quota.pay(Cause::TimedOut));
        for _ in 0..1000 {
            quota.succeeded(None);
        }
        assert_eq!(quota.left, Quota::FULL);
    }
}
