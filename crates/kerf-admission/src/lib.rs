//! What an API server says about a custom resource before it stores it: the schema and the rules of its definition, without
//! a server. The testbed's API server uses it, and so do the commands that read manifests.

mod cause;
mod schema;

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

pub use cause::Cause;
pub use schema::{CustomSchema, ListKind, Schema, SchemaError, strings};

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The definition knows no such field. A server drops it, and refuses it where the client asks for strict validation,
    /// as kubectl does.
    Unknown { field: String },
    /// The value is refused by the schema or by a rule.
    Invalid(Cause),
}

impl Fault {
    pub fn field(&self) -> &str {
        match self {
            Self::Unknown { field } => field,
            Self::Invalid(cause) => &cause.field,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { field } => write!(f, "unknown field {field:?}"),
            Self::Invalid(cause) => write!(f, "{cause}"),
        }
    }
}

/// Custom resources that can be judged.
#[derive(Debug)]
pub struct Definitions(BTreeMap<(String, String), Arc<CustomSchema>>);

impl Definitions {
    /// All versions of these definitions. A version that does not compile judges nothing, as an API server would have
    /// refused it.
    pub fn of(crds: &[CustomResourceDefinition]) -> Self {
        let mut definitions = BTreeMap::new();
        for crd in crds {
            for version in &crd.spec.versions {
                let api_version = format!("{}/{}", crd.spec.group, version.name);
                let schema = serde_json::to_value(version).ok();
                let schema = schema.and_then(|version| CustomSchema::shared(&version).ok());
                if let Some(schema) = schema {
                    definitions.insert((api_version, crd.spec.names.kind.clone()), schema);
                }
            }
        }
        Self(definitions)
    }

    /// What is wrong with an object, as if it were to be created. Nothing is wrong with objects of other kinds.
    pub fn faults(&self, object: &Value) -> Vec<Fault> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let kind = (text("apiVersion").to_owned(), text("kind").to_owned());
        let Some(schema) = self.0.get(&kind) else { return Vec::new() };
        let mut stored = object.clone();
        let unknown = schema.prune(&mut stored).into_iter().map(|field| Fault::Unknown { field });
        schema.fill_defaults(&mut stored);
        let causes = schema.validate(&stored, None).into_iter();
        // One cause says only that others kept the rules from being checked.
        let causes = causes.filter(|cause| cause.field != "<nil>").map(Fault::Invalid);
        unknown.chain(causes).collect()
    }
}
