//! A provider's settings object, whatever its kind.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::{DynamicObject, Resource};
use serde::{Serialize, de::DeserializeOwned};

use crate::{NodeClassReference, ObjectExt, conditions};

/// A NodeClass of any kind: the parts that are the same in all of them, and the whole object for the provider that knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClass {
    pub reference: NodeClassReference,
    pub generation: i64,
    pub deleting: bool,
    /// Its `Ready` condition.
    pub ready: Option<Condition>,
    object: Arc<DynamicObject>,
}

/// Why nothing is to be launched with a NodeClass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("NodeClass is Terminating")]
    Terminating,
    /// Its controller says so.
    #[error("{message}")]
    Refused { reason: String, message: String },
    /// Its controller has not yet seen it as it is now.
    #[error(
        "NodeClass has generation {generation}, its Ready condition is about generation {observed}"
    )]
    NotReconciled { generation: i64, observed: i64 },
    #[error("Node Class Readiness Unknown")]
    Unknown,
}

impl NotReady {
    /// For conditions.
    pub fn reason(&self) -> &str {
        match self {
            Self::Terminating => "NodeClassTerminating",
            Self::Refused { reason, .. } => reason,
            Self::NotReconciled { .. } => "NodeClassNotReconciled",
            Self::Unknown => "NodeClassReadinessUnknown",
        }
    }
}

impl NodeClass {
    /// A condition without a generation comes from a controller that does not write generations, and is believed.
    pub fn readiness(&self) -> Result<(), NotReady> {
        let generation = self.generation;
        if self.deleting {
            return Err(NotReady::Terminating);
        }
        let Some(ready) = &self.ready else { return Err(NotReady::Unknown) };
        match ready.observed_generation {
            Some(observed) if observed != generation => {
                Err(NotReady::NotReconciled { generation, observed })
            }
            _ if ready.status == "True" => Ok(()),
            _ if ready.status == "False" => {
                let (reason, message) = (ready.reason.clone(), ready.message.clone());
                Err(NotReady::Refused { reason, message })
            }
            _ => Err(NotReady::Unknown),
        }
    }

    pub fn from_object(group: &str, kind: &str, mut object: DynamicObject) -> Self {
        let reference = NodeClassReference {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: object.metadata.name.clone().unwrap_or_default(),
        };
        let conditions = object.data.pointer("/status/conditions").and_then(|list| list.as_array());
        let ready = conditions.into_iter().flatten().find(|one| one["type"] == conditions::READY);
        let ready = ready.and_then(|ready| serde_json::from_value(ready.clone()).ok());
        // Often longer than the rest, and of no use here.
        object.metadata.managed_fields = None;
        Self {
            reference,
            generation: object.metadata.generation.unwrap_or_default(),
            deleting: object.is_deleting(),
            ready,
            object: Arc::new(object),
        }
    }

    /// The NodeClass that a provider's own type describes.
    pub fn of<K>(class: &K) -> Result<Self, serde_json::Error>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let object = serde_json::from_value(serde_json::to_value(class)?)?;
        Ok(Self::from_object(&K::group(&()), &K::kind(&()), object))
    }

    /// The object as the API server has it, but for its managed fields.
    pub fn object(&self) -> &DynamicObject {
        &self.object
    }

    /// The object as its provider knows it.
    pub fn read<K: DeserializeOwned>(&self) -> Result<K, serde_json::Error> {
        serde_json::from_value(serde_json::to_value(&*self.object)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_node_class_is_read_by_what_all_kinds_have_and_kept_whole() {
        let check = |object: Value, generation: i64, deleting: bool, ready: Option<&str>| {
            let class: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            let class = NodeClass::from_object("cloud.example", "ExampleNodeClass", class);
            let found = class.ready.as_ref().map(|ready| ready.status.as_str());
            assert_eq!((class.generation, class.deleting, found), (generation, deleting, ready));
            assert_eq!(class.reference.name, "a");
            assert_eq!(class.object().metadata.managed_fields, None);
            let read: Value = class.read().unwrap();
            assert_eq!(read["spec"], object["spec"], "{object}");
        };
        let ready = |status: &str| {
            json!({"type": "Ready", "status": status, "reason": "R", "message": "",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let managed = json!([{"manager": "kubectl", "operation": "Update"}]);
        check(json!({"metadata": {"name": "a"}}), 0, false, None);
        check(
            json!({"metadata": {"name": "a", "generation": 3, "managedFields": managed},
                   "spec": {"size": 7}, "status": {"conditions": [ready("False")]}}),
            3,
            false,
            Some("False"),
        );
        check(
            json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                   "status": {"conditions": [{"type": "Other"}, ready("True")]}}),
            0,
            true,
            Some("True"),
        );
        check(
            json!({"metadata": {"name": "a"}, "status": {"conditions": "no list"}}),
            0,
            false,
            None,
        );
    }
}
