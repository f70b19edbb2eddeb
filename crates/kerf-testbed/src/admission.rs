//! What an API server would have to say about an object of ours, without a server.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
};

use serde_json::Value;

use crate::api::{Cause, CustomSchema};

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

/// The definitions that Kerf ships, by version and kind.
static SHIPPED: LazyLock<BTreeMap<(String, String), Arc<CustomSchema>>> = LazyLock::new(|| {
    let mut shipped = BTreeMap::new();
    for crd in kerf_provider_kwok::crds() {
        for version in &crd.spec.versions {
            let api_version = format!("{}/{}", crd.spec.group, version.name);
            let schema = serde_json::to_value(version).ok();
            // Tests see to it that all of them compile; without its schema a kind is not judged.
            let schema = schema.and_then(|version| CustomSchema::shared(&version).ok());
            if let Some(schema) = schema {
                shipped.insert((api_version, crd.spec.names.kind.clone()), schema);
            }
        }
    }
    shipped
});

/// What is wrong with an object, as if it were to be created. Nothing is wrong with objects of other kinds than ours.
pub fn faults(object: &Value) -> Vec<Fault> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let kind = (text("apiVersion").to_owned(), text("kind").to_owned());
    let Some(schema) = SHIPPED.get(&kind) else { return Vec::new() };
    let mut stored = object.clone();
    let unknown = schema.prune(&mut stored).into_iter().map(|field| Fault::Unknown { field });
    schema.fill_defaults(&mut stored);
    let causes = schema.validate(&stored, None).into_iter();
    // One cause says only that others kept the rules from being checked.
    let causes = causes.filter(|cause| cause.field != "<nil>").map(Fault::Invalid);
    unknown.chain(causes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_judged_by_the_definitions_that_are_shipped() {
        assert_eq!(SHIPPED.len(), kerf_provider_kwok::crds().len(), "all of them compile");
        let pool = |spec: Value| {
            let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "d"});
            let mut pool = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
                "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}},
            });
            json_patch::merge(&mut pool["spec"], &spec);
            pool
        };
        let check = |object: Value, expected: &[&str]| {
            let found: Vec<_> = faults(&object).iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(found.starts_with(expected), "{found}");
            }
        };
        check(pool(json!({})), &[]);
        check(pool(json!({"replicas": 2_000_000_000})), &[]);
        check(pool(json!({"replicas": -5})), &["spec.replicas: Invalid value: -5: "]);
        check(pool(json!({"weight": 1000})), &["spec.weight: Invalid value: 1000: "]);
        check(
            pool(json!({"replicas": 1, "weight": 5})),
            &["spec: Invalid value: \"object\": 'weight' is not supported on static NodePools"],
        );
        check(
            pool(
                json!({"disruption": {"consolidationSavingsTreshold": 1, "budgets": [{"node": "1"}]}}),
            ),
            &[
                "unknown field \"spec.disruption.budgets[0].node\"",
                "unknown field \"spec.disruption.consolidationSavingsTreshold\"",
            ],
        );
        check(json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodes": 1}}), &[]);
    }
}
