//! What the operator needs to know of a provider's settings object, whatever its kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kerf_api::{NodeClassReference, ObjectExt, conditions};
use kube_core::DynamicObject;

use crate::{Key, changes::version_of};

/// A NodeClass of any kind, reduced to the parts that are the same in all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClass {
    pub reference: NodeClassReference,
    pub version: u64,
    pub generation: i64,
    pub deleting: bool,
    /// Its `Ready` condition.
    pub ready: Option<Condition>,
}

impl NodeClass {
    pub fn from_object(group: &str, kind: &str, object: &DynamicObject) -> Self {
        let reference = NodeClassReference {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: object.metadata.name.clone().unwrap_or_default(),
        };
        let conditions = object.data.pointer("/status/conditions").and_then(|list| list.as_array());
        let ready = conditions.into_iter().flatten().find(|one| one["type"] == conditions::READY);
        Self {
            reference,
            version: version_of(object),
            generation: object.metadata.generation.unwrap_or_default(),
            deleting: object.is_deleting(),
            ready: ready.and_then(|ready| serde_json::from_value(ready.clone()).ok()),
        }
    }

    /// NodeClasses of several kinds share one index: group and kind stand where a namespace would.
    pub fn key_for(reference: &NodeClassReference) -> Key {
        Key::namespaced(format!("{}/{}", reference.group, reference.kind), &reference.name)
    }
}
