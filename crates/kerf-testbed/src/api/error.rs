//! What the API server answers when it refuses, in the exact words clients match on.

use kerf_admission::Cause;
use serde_json::{Map, Value, json};
use std::fmt;
use thiserror::Error;

/// A resource as error messages name it: `pods`, `nodepools.karpenter.sh`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub group: String,
    /// Plural for most refusals, kind for `Invalid`.
    pub resource: String,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

#[derive(Clone, Debug, Error)]
pub enum ApiError {
    #[error("{resource} \"{name}\" not found")]
    NotFound { resource: Named, name: String },
    #[error("{resource} \"{name}\" already exists")]
    AlreadyExists { resource: Named, name: String },
    #[error("Operation cannot be fulfilled on {resource} \"{name}\": {why}")]
    Conflict { resource: Named, name: String, why: String },
    #[error("{kind} \"{name}\" is invalid: {}", join(causes))]
    Invalid { kind: Named, name: String, causes: Vec<Cause> },
    #[error("{resource}{} is forbidden: {why}", quoted(name))]
    Forbidden { resource: Named, name: String, why: String, causes: Vec<Cause> },
    #[error("{message}")]
    TooManyRequests { message: String, causes: Vec<Cause>, retry_after: u32 },
    #[error("{}", apply_message(causes))]
    ApplyConflict { causes: Vec<Cause> },
    #[error("{0}")]
    BadRequest(String),
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable,
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    #[error("{0}")]
    UnsupportedMediaType(String),
    #[error("{0}")]
    Expired(String),
    #[error("Timeout: Too large resource version: {asked}, current: {current}")]
    RevisionAhead { asked: u64, current: u64 },
    #[error("{0}")]
    Internal(String),
    #[error("404 page not found")]
    NoSuchPath,
    #[error("the server could not find the requested resource")]
    NoSuchResource,
}

fn join(causes: &[Cause]) -> String {
    match causes {
        [one] => one.to_string(),
        many => {
            format!("[{}]", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A list has no name to speak of.
fn quoted(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" \"{name}\"") }
}

fn apply_message(causes: &[Cause]) -> String {
    match causes {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => {
            let lines: Vec<_> =
                many.iter().map(|c| format!("{}: {}", c.message, c.field)).collect();
            format!("Apply failed with {} conflicts:\n{}", many.len(), lines.join("\n"))
        }
    }
}

impl ApiError {
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Forbidden { .. } => 403,
            Self::NotFound { .. } | Self::NoSuchPath | Self::NoSuchResource => 404,
            Self::MethodNotAllowed => 405,
            Self::AlreadyExists { .. } | Self::Conflict { .. } | Self::ApplyConflict { .. } => 409,
            Self::Expired(_) => 410,
            Self::UnsupportedMediaType(_) => 415,
            Self::Invalid { .. } | Self::Unprocessable => 422,
            Self::TooManyRequests { .. } => 429,
            Self::Internal(_) => 500,
            Self::RevisionAhead { .. } => 504,
        }
    }

    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "BadRequest",
            Self::Forbidden { .. } => "Forbidden",
            Self::NotFound { .. } | Self::NoSuchPath | Self::NoSuchResource => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Conflict { .. } | Self::ApplyConflict { .. } => "Conflict",
            Self::Expired(_) => "Expired",
            Self::UnsupportedMediaType(_) => "UnsupportedMediaType",
            Self::Invalid { .. } | Self::Unprocessable => "Invalid",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::Internal(_) => "InternalError",
            Self::RevisionAhead { .. } => "Timeout",
        }
    }

    pub fn to_status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": self.reason(), "details": self.details(), "code": self.code(),
        })
    }

    fn details(&self) -> Value {
        let mut details = Map::new();
        let mut name_it = |resource: &Named, name: &str| {
            if !name.is_empty() {
                details.insert("name".into(), name.into());
            }
            if !resource.group.is_empty() {
                details.insert("group".into(), resource.group.clone().into());
            }
            details.insert("kind".into(), resource.resource.clone().into());
        };
        match self {
            Self::NotFound { resource, name }
            | Self::AlreadyExists { resource, name }
            | Self::Conflict { resource, name, .. }
            | Self::Forbidden { resource, name, .. }
            | Self::Invalid { kind: resource, name, .. } => name_it(resource, name),
            _ => {}
        }
        match self {
            Self::Forbidden { causes, .. }
            | Self::Invalid { causes, .. }
            | Self::ApplyConflict { causes } => insert_causes(&mut details, causes),
            Self::TooManyRequests { causes, retry_after, .. } => {
                insert_causes(&mut details, causes);
                if *retry_after > 0 {
                    details.insert("retryAfterSeconds".into(), (*retry_after).into());
                }
            }
            Self::RevisionAhead { .. } => {
                details.insert("retryAfterSeconds".into(), 1.into());
                let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
                details.insert("causes".into(), json!([cause]));
            }
            _ => {}
        }
        Value::Object(details)
    }
}

fn insert_causes(details: &mut Map<String, Value>, causes: &[Cause]) {
    if causes.is_empty() {
        return;
    }
    let list = causes
        .iter()
        .map(|cause| {
            let mut entry = Map::new();
            entry.insert("reason".into(), cause.reason.into());
            entry.insert("message".into(), cause.message.clone().into());
            if !cause.field.is_empty() {
                entry.insert("field".into(), cause.field.clone().into());
            }
            Value::Object(entry)
        })
        .collect();
    details.insert("causes".into(), Value::Array(list));
}
