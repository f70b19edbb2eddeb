//! Reading objects one by one, so that one that cannot be read takes no other with it.
//!
//! The API server accepts values that our types cannot hold: a time of 9999-12-31 in any `status`, an offset of `+99:99` in a
//! custom resource. A user who may write one object must not be able to keep all others from being read. What cannot be
//! read is left out of the object, and the object is marked, so that nothing is decided from what is missing.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// An object that cannot be read as a whole: which, where in it, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{kind} {}: field {field} cannot be read: {reason}", self.key())]
pub struct Unreadable {
    pub kind: String,
    /// Empty for kinds without namespaces.
    pub namespace: String,
    pub name: String,
    /// The first field that cannot be read.
    pub field: String,
    pub reason: String,
}

impl Unreadable {
    /// `key` is the object's namespace and name.
    pub fn new(kind: &str, key: (&str, &str), field: String, reason: &dyn fmt::Display) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: key.0.to_owned(),
            name: key.1.to_owned(),
            field,
            reason: reason.to_string().chars().take(REASON_AT_MOST).collect(),
        }
    }

    /// `namespace/name`, or only the name.
    pub fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// What became of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded<K> {
    Whole(K),
    /// Without the fields that cannot be read.
    Partial(K, Unreadable),
    /// Nothing of it but its name.
    Nothing(Unreadable),
}

impl<K> Decoded<K> {
    pub fn map<T>(self, convert: impl FnOnce(K) -> T) -> Decoded<T> {
        match self {
            Self::Whole(object) => Decoded::Whole(convert(object)),
            Self::Partial(object, unreadable) => Decoded::Partial(convert(object), unreadable),
            Self::Nothing(unreadable) => Decoded::Nothing(unreadable),
        }
    }

    /// What there is of the object.
    pub fn object(self) -> Option<K> {
        match self {
            Self::Whole(object) | Self::Partial(object, _) => Some(object),
            Self::Nothing(_) => None,
        }
    }
}

/// This many fields are left out one by one. Each costs another reading of the object, and an author of more of them than
/// this writes them to cost something.
const FIELDS_AT_MOST: usize = 8;
/// A reason quotes the value, which may be long.
const REASON_AT_MOST: usize = 200;

/// Reads one object of `kind`.
pub fn decode<K: DeserializeOwned>(kind: &str, mut object: Value) -> Decoded<K> {
    let mut unreadable: Option<Unreadable> = None;
    for round in 0..=FIELDS_AT_MOST {
        let error = match serde_path_to_error::deserialize(&object) {
            Ok(read) => {
                return match unreadable {
                    None => Decoded::Whole(read),
                    Some(unreadable) => Decoded::Partial(read, unreadable),
                };
            }
            Err(error) => error,
        };
        unreadable.get_or_insert_with(|| describe(kind, &object, &error));
        let left_out = if round + 1 == FIELDS_AT_MOST {
            object.as_object_mut().and_then(|fields| fields.remove("status")).is_some()
        } else {
            remove(&mut object, error.path())
        };
        if !left_out {
            break;
        }
    }
    Decoded::Nothing(unreadable.unwrap_or_else(|| Unreadable {
        kind: kind.to_owned(),
        namespace: String::new(),
        name: String::new(),
        field: String::new(),
        reason: String::new(),
    }))
}

/// Reads a list of objects, as the API server answers it. An error means that it is no list.
pub fn decode_list<K: DeserializeOwned>(
    kind: &str,
    text: &str,
) -> Result<(Vec<Decoded<K>>, ListMeta), serde_json::Error> {
    // Nearly always all of them can be read, and reading them at once takes a third of the time.
    if let Ok(list) = serde_json::from_str::<List<K>>(text) {
        return Ok((list.items.into_iter().map(Decoded::Whole).collect(), list.metadata));
    }
    let list: List<Value> = serde_json::from_str(text)?;
    Ok((list.items.into_iter().map(|item| decode(kind, item)).collect(), list.metadata))
}

#[derive(serde::Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
struct List<K> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default = "Vec::new", deserialize_with = "null_as_empty")]
    items: Vec<K>,
}

fn null_as_empty<'de, D, K>(items: D) -> Result<Vec<K>, D::Error>
where
    D: serde::Deserializer<'de>,
    K: DeserializeOwned,
{
    serde::Deserialize::deserialize(items).map(Option::<Vec<K>>::unwrap_or_default)
}

/// Where a list stands: at which revision, and how it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    pub resource_version: String,
    /// Empty on the last page.
    #[serde(rename = "continue")]
    pub continue_token: String,
}

fn describe(
    kind: &str,
    object: &Value,
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> Unreadable {
    let metadata = |field: &str| {
        let text = object.pointer(field).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    let key = (metadata("/metadata/namespace"), metadata("/metadata/name"));
    Unreadable::new(kind, key, error.path().to_string(), error.inner())
}

/// Takes out what is at the path. False: there is nothing that could be taken out.
fn remove(object: &mut Value, path: &Path) -> bool {
    let segments: Vec<&Segment> = path.iter().collect();
    let Some((last, before)) = segments.split_last() else { return false };
    let mut place = object;
    for segment in before {
        let next = match segment {
            Segment::Map { key } => place.get_mut(key),
            Segment::Seq { index } => place.get_mut(*index),
            _ => None,
        };
        match next {
            Some(next) => place = next,
            None => return false,
        }
    }
    match (last, place) {
        // Without its name an object is none.
        (Segment::Map { key }, _) if before.is_empty() && key == "metadata" => false,
        (Segment::Map { key }, Value::Object(fields)) => fields.remove(key).is_some(),
        (Segment::Seq { index }, Value::Array(items)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeClaim, NodePool};
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::json;

    fn pod(status: &Value) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}},
            "spec": {"nodeName": "n", "containers": []}, "status": status,
        })
    }

    fn pool(time: &str) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": [],
                }},
            },
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": time,
            }]},
        })
    }

    /// The field that is named, or nothing for an object that is read as a whole.
    fn field<K: DeserializeOwned>(object: &Value) -> Option<String> {
        match decode::<K>("Kind", object.clone()) {
            Decoded::Whole(_) => None,
            Decoded::Partial(_, unreadable) => Some(unreadable.field),
            Decoded::Nothing(unreadable) => Some(format!("all, for {}", unreadable.field)),
        }
    }

    #[test]
    fn what_the_api_server_accepts_and_our_types_cannot_hold_is_named() {
        for (time, readable) in [
            ("2026-01-01T00:00:00Z", true),
            ("9999-12-30T00:00:00Z", true),
            ("9999-12-31T23:59:59Z", false),
            ("2026-01-01T00:00:00+99:99", false),
            ("10000-01-01T11:59:59Z", false),
        ] {
            let expected = |field: &str| (!readable).then(|| field.to_owned());
            assert_eq!(
                field::<Pod>(&pod(&json!({"startTime": time}))),
                expected("status.startTime")
            );
            let node = json!({"metadata": {"name": "n"}, "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": time},
            ]}});
            let of_node = "status.conditions[0].lastHeartbeatTime";
            assert_eq!(field::<Node>(&node), expected(of_node), "{time}");
            let of_pool = "status.conditions[0].lastTransitionTime";
            assert_eq!(field::<NodePool>(&pool(time)), expected(of_pool), "{time}");
            let claim = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"},
                "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
                "status": {"lastPodEventTime": time},
            });
            assert_eq!(field::<NodeClaim>(&claim), expected("status.lastPodEventTime"), "{time}");
        }
    }

    #[test]
    fn the_rest_of_the_object_is_kept() {
        let status = json!({
            "phase": "Running", "startTime": "9999-12-31T23:59:59Z",
            "conditions": [
                {"type": "Ready", "status": "True", "lastProbeTime": "9999-12-31T23:59:59Z"},
            ],
        });
        let Decoded::Partial(read, unreadable) = decode::<Pod>("Pod", pod(&status)) else {
            panic!("it cannot be read as a whole")
        };
        assert_eq!(read.spec.unwrap().node_name.as_deref(), Some("n"));
        let kept = read.status.unwrap();
        assert_eq!(kept.phase.as_deref(), Some("Running"));
        assert_eq!((kept.start_time, kept.conditions.unwrap().len()), (None, 1));
        let said = unreadable.to_string();
        assert!(said.starts_with("Pod ns/p: field status."), "{said}");
        assert!(said.contains(" cannot be read: "), "{said}");
    }

    #[test]
    fn an_object_with_more_bad_fields_than_are_looked_for_loses_its_status() {
        let bad = json!({"type": "T", "status": "True", "lastProbeTime": "9999-12-31T23:59:59Z"});
        let status = json!({"phase": "Running", "conditions": vec![bad; 1000]});
        let Decoded::Partial(read, _) = decode::<Pod>("Pod", pod(&status)) else {
            panic!("its spec can be read")
        };
        assert_eq!(read.status, None);
        assert_eq!(read.spec.unwrap().node_name.as_deref(), Some("n"));
    }

    #[test]
    fn one_bad_item_takes_no_other_of_its_list_along() {
        let good = pod(&json!({"phase": "Running"}));
        let bad = pod(&json!({"startTime": "9999-12-31T23:59:59Z"}));
        for items in [vec![good.clone()], vec![good.clone(), bad, good]] {
            let list = json!({
                "kind": "PodList", "metadata": {"resourceVersion": "7", "continue": "c"}, "items": items,
            });
            let (read, meta) = decode_list::<Pod>("Pod", &list.to_string()).unwrap();
            let whole = read.iter().filter(|one| matches!(one, Decoded::Whole(_))).count();
            assert_eq!((read.len(), whole), (items.len(), if items.len() == 1 { 1 } else { 2 }));
            assert_eq!((meta.resource_version.as_str(), meta.continue_token.as_str()), ("7", "c"));
        }
        let none = decode_list::<Pod>("Pod", r#"{"metadata": {}, "items": null}"#).unwrap();
        assert_eq!(none.0.len(), 0);
        assert!(decode_list::<Pod>("Pod", "no list").is_err());
    }
}
