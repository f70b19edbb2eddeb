//! A call that failed.

use std::time::Duration;

use kerf_aws_model::errors::Meaning;
use kerf_aws_wire::{DecodeError, Operation};
use kerf_runtime::WriteRefused;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{service} {operation} failed: {failure}")]
pub struct AwsError {
    pub service: &'static str,
    pub operation: &'static str,
    /// How often it was tried.
    pub attempts: u32,
    pub failure: Failure,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The service answered, and said no. The code decides what it means; see [`AwsError::meaning`].
    #[error("{}", refusal(*status, code, message, request_id.as_deref()))]
    Refused { status: u16, code: String, message: String, request_id: Option<String> },
    #[error("there was no answer within {} s", after.as_secs())]
    TimedOut { after: Duration },
    #[error("the endpoint {endpoint} cannot be reached: {reason}")]
    Unreachable { endpoint: String, reason: String },
    #[error("there are no credentials for it: {0}")]
    Credentials(String),
    /// It was not made: this process may not change anything now.
    #[error(transparent)]
    NotLeading(WriteRefused),
    #[error("the request cannot be signed: {0}")]
    Unsigned(String),
    #[error("the response cannot be read: {0}")]
    Unreadable(#[from] DecodeError),
}

/// An answer without a code is not one of AWS: then its status says most.
fn refusal(status: u16, code: &str, message: &str, request_id: Option<&str>) -> String {
    let request = request_id.map(|id| format!(", request {id}")).unwrap_or_default();
    if code.is_empty() {
        return format!("status {status}: {message}");
    }
    format!("{code}: {message} (status {status}{request})")
}

impl AwsError {
    pub fn new<O: Operation>(failure: Failure, attempts: u32) -> Self {
        Self { service: O::SERVICE.id, operation: O::NAME, attempts, failure }
    }

    /// What a service says that refuses; for those that stand in for AWS.
    pub fn refused<O: Operation>(status: u16, code: &str, message: impl Into<String>) -> Self {
        let failure = Failure::Refused {
            status,
            code: code.to_owned(),
            message: message.into(),
            request_id: None,
        };
        Self::new::<O>(failure, 1)
    }

    /// The code of a refusal, as AWS documents it.
    pub fn code(&self) -> Option<&str> {
        match &self.failure {
            Failure::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// What it means to whoever made the call.
    pub fn meaning(&self) -> Meaning {
        self.failure.meaning()
    }

    /// Whether a dry run ended as dry runs should.
    pub fn is_dry_run_passed(&self) -> bool {
        self.meaning() == Meaning::DryRunPassed
    }

    pub fn is_not_found(&self) -> bool {
        self.meaning().is_not_found()
    }

    /// Whether too many calls were made, by us or by others in the account.
    pub fn is_throttled(&self) -> bool {
        self.meaning() == Meaning::Throttled
    }
}

impl Failure {
    pub(crate) fn meaning(&self) -> Meaning {
        match self {
            Self::Refused { code, message, .. } => Meaning::of(code, message),
            _ => Meaning::Other,
        }
    }

    /// For metrics: the status of the answer, 0 where there was none.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Refused { status, .. } => *status,
            Self::Unreadable(_) => 200,
            _ => 0,
        }
    }
}
