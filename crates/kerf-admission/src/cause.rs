//! What is wrong with one field, in the words of the API server.

use serde_json::Value;
use std::fmt;

/// One field's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

impl Cause {
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".into()
        } else {
            format!("Required value: {detail}")
        };
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {detail}"),
            field: field.into(),
        }
    }

    pub fn wrong_type(field: impl Into<String>, value: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: {value:?}: {detail}"),
            field: field.into(),
        }
    }

    pub fn unsupported(field: impl Into<String>, value: &Value, supported: &[Value]) -> Self {
        let list: Vec<_> = supported.iter().map(ToString::to_string).collect();
        Self {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {}", list.join(", ")),
            field: field.into(),
        }
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {detail}"),
            field: field.into(),
        }
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {value}"),
            field: field.into(),
        }
    }

    pub fn too_many(field: impl Into<String>, count: usize, most: u64) -> Self {
        Self {
            reason: "FieldValueTooMany",
            message: format!("Too many: {count}: must have at most {most} items"),
            field: field.into(),
        }
    }

    pub fn too_long(field: impl Into<String>, most: u64) -> Self {
        Self {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {most} bytes"),
            field: field.into(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
