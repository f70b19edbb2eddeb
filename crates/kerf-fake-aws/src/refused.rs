//! What a service says when it refuses.

use kerf_aws_client::AwsError;
use kerf_aws_wire::Operation;

/// A refusal: of a call, or of one override of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    pub code: String,
    pub message: String,
}

impl Refused {
    /// With the status that most refusals have.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { status: 400, code: code.to_owned(), message: message.into() }
    }

    pub(crate) fn with_status(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, ..Self::new(code, message) }
    }

    pub(crate) fn invalid_value(message: impl Into<String>) -> Self {
        Self::new("InvalidParameterValue", message)
    }

    pub(crate) fn missing(parameter: &str) -> Self {
        Self::new("MissingParameter", format!("The request must contain the parameter {parameter}"))
    }

    pub(crate) fn dry_run() -> Self {
        Self::with_status(
            412,
            "DryRunOperation",
            "Request would have succeeded, but DryRun flag is set.",
        )
    }

    pub(crate) fn error<O: Operation>(&self) -> AwsError {
        AwsError::refused::<O>(self.status, &self.code, self.message.clone())
    }
}
