//! What the operator hears of a call that failed.

use std::time::Duration;

use kerf_aws_client::{AwsError, Failure};
use kerf_aws_model::errors::{LaunchReason, Meaning};
use kerf_provider::ProviderError;

/// The client has waited and tried again by itself before it says that calls are throttled. This is on top of it.
const AFTER_THROTTLING: Duration = Duration::from_secs(5);

/// For calls that launch nothing.
pub(crate) fn failed(error: &AwsError) -> ProviderError {
    common(error).unwrap_or_else(|| match error.meaning() {
        Meaning::NotFound => ProviderError::NotFound(error.to_string()),
        _ => ProviderError::Other(error.to_string()),
    })
}

/// For calls of a launch, whose failures have names.
pub(crate) fn launch_failed(error: &AwsError) -> ProviderError {
    common(error).unwrap_or_else(|| match &error.failure {
        Failure::Refused { code, message, .. } => match error.meaning() {
            Meaning::NoCapacity(_) => ProviderError::insufficient_capacity(error.to_string()),
            _ => named(LaunchReason::of(code, message), &error.to_string()),
        },
        _ => named(LaunchReason::LaunchFailed, &error.to_string()),
    })
}

/// A launch that failed for a reason that has a name.
pub(crate) fn named(reason: LaunchReason, message: &str) -> ProviderError {
    let message = match reason {
        LaunchReason::LaunchFailed => message.to_owned(),
        _ => format!("{message}; {}", reason.advice()),
    };
    ProviderError::Create { reason: reason.as_str().to_owned(), message }
}

/// The call that failed, as IAM writes it: `ec2:DescribeSubnets`.
pub(crate) fn action(error: &AwsError) -> String {
    format!("{}:{}", error.service.to_lowercase(), error.operation)
}

/// What a condition says of it. The same failure has the same text: what differs from call to call is left out.
pub(crate) fn told(error: &AwsError) -> String {
    match &error.failure {
        Failure::Refused { code, message, .. } => {
            let message = message.split(ENCODED).next().unwrap_or_default();
            format!("{code}: {}", message.trim_end())
        }
        other => other.to_string(),
    }
}

/// What follows is for whoever may decode it, and another one each time.
const ENCODED: &str = "Encoded authorization failure message";

fn common(error: &AwsError) -> Option<ProviderError> {
    if let Failure::NotLeading(refused) = &error.failure {
        return Some(ProviderError::NotLeading(refused.to_string()));
    }
    match error.meaning() {
        Meaning::Throttled => Some(ProviderError::Throttled {
            retry_after: AFTER_THROTTLING,
            message: error.to_string(),
        }),
        Meaning::Unauthorized => {
            Some(ProviderError::Unauthorized { action: action(error), message: error.to_string() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::ec2::CreateFleetRequest;

    use super::*;

    #[test]
    fn the_same_failure_has_the_same_text() {
        let message =
            "You are not authorized. Encoded authorization failure message: 4GIOHlTkIaWHQD0Q";
        let error = AwsError::refused::<CreateFleetRequest>(403, "UnauthorizedOperation", message);
        assert_eq!(told(&error), "UnauthorizedOperation: You are not authorized.");
        assert_eq!(action(&error), "ec2:CreateFleet");
    }

    #[test]
    fn failures_have_their_names() {
        let refused = |code: &str| AwsError::refused::<CreateFleetRequest>(400, code, "no");
        let kind = |error: ProviderError| match error {
            ProviderError::Throttled { .. } => "throttled".to_owned(),
            ProviderError::Unauthorized { action, .. } => format!("unauthorized {action}"),
            ProviderError::InsufficientCapacity { .. } => "capacity".to_owned(),
            ProviderError::Create { reason, .. } => reason,
            ProviderError::NotFound(_) => "not found".to_owned(),
            other => format!("{other:?}").chars().take(5).collect(),
        };
        for (code, launching, otherwise) in [
            ("RequestLimitExceeded", "throttled", "throttled"),
            (
                "UnauthorizedOperation",
                "unauthorized ec2:CreateFleet",
                "unauthorized ec2:CreateFleet",
            ),
            ("InsufficientInstanceCapacity", "capacity", "Other"),
            ("VcpuLimitExceeded", "capacity", "Other"),
            ("InvalidAMIID.NotFound", "AMINotFound", "Other"),
            ("InvalidInstanceID.NotFound", "LaunchFailed", "not found"),
            ("InternalError", "InternalError", "Other"),
            ("SomethingNew", "LaunchFailed", "Other"),
        ] {
            let error = refused(code);
            let got = (kind(launch_failed(&error)), kind(failed(&error)));
            assert_eq!(got, (launching.to_owned(), otherwise.to_owned()), "{code}");
        }
        let lost = AwsError::new::<CreateFleetRequest>(
            Failure::TimedOut { after: Duration::from_mins(4) },
            3,
        );
        assert_eq!(kind(launch_failed(&lost)), "LaunchFailed");
    }
}
