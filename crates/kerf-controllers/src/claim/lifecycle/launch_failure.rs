//! What happens to a claim whose launch failed: the one place that decides it.

use std::time::Duration;

use kerf_provider::ProviderError;

use crate::metrics::Cause;

/// A policy of the cloud has to be changed first, and that takes longer than seconds.
const UNAUTHORIZED_AGAIN: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict<'a> {
    /// The claim is deleted, and its pods are planned anew.
    GiveUp { cause: Cause, event: Option<&'static str> },
    /// The claim says why, and the launch is tried again.
    TryAgain { reason: &'a str, message: Option<&'a str>, when: When, event: Option<&'static str> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Soon at first, and later each time.
    Backoff,
    /// This claim after that time.
    After(Duration),
    /// All claims after that time: the cloud answers no launches until then.
    AllAfter(Duration),
}

/// | failure | the claim | reason of `Launched` | event |
/// |---|---|---|---|
/// | insufficient capacity | is given up | | `InsufficientCapacityError` |
/// | the NodeClass does not exist | is given up, counted as insufficient capacity, as by Karpenter | | `InsufficientCapacityError` |
/// | the NodeClass is not ready | is given up | | |
/// | throttled | and all others wait as long as the cloud says | `Throttled` | |
/// | not allowed | is tried again after a minute | `Unauthorized` | `Unauthorized` |
/// | a failure with a name | is tried again with backoff | that name | |
/// | anything else | is tried again with backoff | `LaunchFailed` | |
pub(super) fn verdict(error: &ProviderError) -> Verdict<'_> {
    let try_again = |reason, when| Verdict::TryAgain { reason, message: None, when, event: None };
    match error {
        ProviderError::InsufficientCapacity { .. } | ProviderError::NodeClassNotFound { .. } => {
            Verdict::GiveUp {
                cause: Cause::InsufficientCapacity,
                event: Some("InsufficientCapacityError"),
            }
        }
        ProviderError::NodeClassNotReady(_) => {
            Verdict::GiveUp { cause: Cause::NodeClassNotReady, event: None }
        }
        ProviderError::Throttled { retry_after, .. } => {
            try_again("Throttled", When::AllAfter(*retry_after))
        }
        ProviderError::Unauthorized { .. } => Verdict::TryAgain {
            reason: "Unauthorized",
            message: None,
            when: When::After(UNAUTHORIZED_AGAIN),
            event: Some("Unauthorized"),
        },
        ProviderError::Create { reason, message } => {
            Verdict::TryAgain { reason, message: Some(message), when: When::Backoff, event: None }
        }
        // A launch is no reboot.
        ProviderError::RebootNotImplemented
        | ProviderError::RebootRejected(_)
        | ProviderError::NotFound(_)
        | ProviderError::NotLeading(_)
        | ProviderError::Other(_) => try_again("LaunchFailed", When::Backoff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_consequence() {
        let text = || "text".to_owned();
        let again = |reason, when, event| (Err((reason, when)), event);
        let given_up = |cause, event| (Ok(cause), event);
        for (error, expected) in [
            (
                ProviderError::insufficient_capacity("text"),
                given_up(Cause::InsufficientCapacity, Some("InsufficientCapacityError")),
            ),
            (
                ProviderError::NodeClassNotFound { kind: text(), name: text() },
                given_up(Cause::InsufficientCapacity, Some("InsufficientCapacityError")),
            ),
            (ProviderError::NodeClassNotReady(text()), given_up(Cause::NodeClassNotReady, None)),
            (
                ProviderError::Throttled { retry_after: Duration::from_secs(7), message: text() },
                again("Throttled", When::AllAfter(Duration::from_secs(7)), None),
            ),
            (
                ProviderError::Unauthorized { action: text(), message: text() },
                again("Unauthorized", When::After(UNAUTHORIZED_AGAIN), Some("Unauthorized")),
            ),
            (
                ProviderError::Create { reason: "Quota".into(), message: text() },
                again("Quota", When::Backoff, None),
            ),
            (ProviderError::NotFound(text()), again("LaunchFailed", When::Backoff, None)),
            (ProviderError::NotLeading(text()), again("LaunchFailed", When::Backoff, None)),
            (ProviderError::Other(text()), again("LaunchFailed", When::Backoff, None)),
        ] {
            let got = match verdict(&error) {
                Verdict::GiveUp { cause, event } => (Ok(cause), event),
                Verdict::TryAgain { reason, when, event, .. } => (Err((reason, when)), event),
            };
            assert_eq!(got, expected, "{error:?}");
        }
    }
}
