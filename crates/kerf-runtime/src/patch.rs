//! Writing back an object that was changed in memory: only what changed, and only if no other writer was faster.

use std::{collections::BTreeSet, fmt::Debug};

use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Whether a write may go on top of changes that the writer has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The server answers 409 if the object is not the one the change was made on. Needed wherever a
    /// list is written, because a merge patch replaces lists whole.
    Optimistic,
    /// The change is right whatever else happened to the object.
    None,
}

/// Sends the difference between `before` and `after`, first without and then with the `status`. With a lock, both are on
/// the condition that no other writer wrote in between. `None`: there is none.
pub async fn patch_both<K>(
    api: &Api<K>,
    before: &K,
    after: &K,
    lock: Lock,
) -> kube::Result<Option<K>>
where
    K: Resource + Serialize + DeserializeOwned + Clone + Debug + PartialEq,
{
    // Most looks at an object find nothing to write, and to compare two is much cheaper than to write both out as JSON.
    if before == after {
        return Ok(None);
    }
    let Difference { rest, status } = difference(before, after)?;
    let (name, params) = (before.meta().name.clone().unwrap_or_default(), PatchParams::default());
    let mut version = before.meta().resource_version.clone();
    let mut written = None;
    if !rest.is_empty() {
        let changed = api.patch(&name, &params, &merge(rest, lock, version.as_deref())).await?;
        version.clone_from(&changed.meta().resource_version);
        written = Some(changed);
    }
    if !status.is_empty() {
        let patch = merge(status, lock, version.as_deref());
        written = Some(api.patch_status(&name, &params, &patch).await?);
    }
    Ok(written)
}

/// The change from `before` to `after`, made to `newest`, which others have changed meanwhile. `None`: both changed the
/// same thing; a list is one thing.
pub fn carry_over<K>(before: &K, after: &K, newest: &K) -> Option<K>
where
    K: Serialize + DeserializeOwned,
{
    let value = |object: &K| serde_json::to_value(object).ok();
    let merged = merged(Some(&value(before)?), Some(&value(after)?), Some(&value(newest)?));
    serde_json::from_value(merged.ok()??).ok()
}

/// Two changes of the same thing.
struct Clash;

/// The value after both changes, if there is one then.
fn merged(
    before: Option<&Value>,
    ours: Option<&Value>,
    theirs: Option<&Value>,
) -> Result<Option<Value>, Clash> {
    if ours == before || ours == theirs {
        return Ok(theirs.cloned());
    }
    if theirs == before {
        return Ok(ours.cloned());
    }
    let (Some(Value::Object(ours)), Some(Value::Object(theirs))) = (ours, theirs) else {
        return Err(Clash);
    };
    let before = before.and_then(Value::as_object);
    let fields: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut all = Map::new();
    for field in fields {
        let before = before.and_then(|before| before.get(field));
        if let Some(value) = merged(before, ours.get(field), theirs.get(field))? {
            all.insert(field.clone(), value);
        }
    }
    Ok(Some(Value::Object(all)))
}

/// What changed, in the two parts that are written one after the other.
struct Difference {
    rest: Map<String, Value>,
    status: Map<String, Value>,
}

fn difference<K: Serialize>(before: &K, after: &K) -> kube::Result<Difference> {
    let to_value = |k: &K| serde_json::to_value(k).map_err(kube::Error::SerdeError);
    let mut rest = merge_patch(&to_value(before)?, &to_value(after)?);
    let status = rest.remove_entry("status").into_iter().collect();
    Ok(Difference { rest, status })
}

/// With a lock, the server compares the version.
fn merge(mut changes: Map<String, Value>, lock: Lock, version: Option<&str>) -> Patch<Value> {
    if lock == Lock::Optimistic
        && let Some(version) = version
    {
        let metadata = changes.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.insert("resourceVersion".into(), version.into());
        }
    }
    Patch::Merge(Value::Object(changes))
}

/// The merge patch (RFC 7396) that turns `before` into `after`; empty when they are equal.
fn merge_patch(before: &Value, after: &Value) -> Map<String, Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return Map::new() };
    let mut patch = Map::new();
    for (field, new) in after {
        match before.get(field) {
            Some(old) if old == new => {}
            Some(old @ Value::Object(_)) if new.is_object() => {
                patch.insert(field.clone(), Value::Object(merge_patch(old, new)));
            }
            _ => {
                patch.insert(field.clone(), new.clone());
            }
        }
    }
    for field in before.keys() {
        if !after.contains_key(field) {
            patch.insert(field.clone(), Value::Null);
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_merge_patch_holds_what_changed_and_nulls_for_what_is_gone() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), json!({})),
            (json!({"a": 1}), json!({"a": 2, "b": 3}), json!({"a": 2, "b": 3})),
            (
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"c": 3}}),
                json!({"a": {"b": null, "c": 3}}),
            ),
            (json!({"a": [1, 2]}), json!({"a": [2]}), json!({"a": [2]})),
            (json!({"a": {"b": 1}}), json!({"a": "x"}), json!({"a": "x"})),
        ];
        for (before, after, patch) in cases {
            assert_eq!(Value::Object(merge_patch(&before, &after)), patch, "{before} -> {after}");
        }
    }

    #[test]
    fn a_change_is_carried_over_to_what_others_wrote_meanwhile() {
        let check = |before: &Value, ours: &Value, theirs: &Value, expected: Option<Value>| {
            let carried = carry_over(before, ours, theirs);
            assert_eq!(carried, expected, "{before}: {ours} on {theirs}");
        };
        let empty = &json!({"a": 1});
        check(empty, &json!({"a": 2}), empty, Some(json!({"a": 2})));
        check(empty, empty, &json!({"a": 3}), Some(json!({"a": 3})));
        check(empty, &json!({"a": 2}), &json!({"a": 1, "b": 1}), Some(json!({"a": 2, "b": 1})));
        check(empty, &json!({"a": 2}), &json!({"a": 3}), None);
        check(empty, &json!({}), &json!({"a": 1, "b": 1}), Some(json!({"b": 1})));
        check(empty, &json!({}), &json!({"a": 2}), None);
        check(
            &json!({}),
            &json!({"l": {"x": "1"}}),
            &json!({"l": {"y": "2"}}),
            Some(json!({"l": {"x": "1", "y": "2"}})),
        );
        check(&json!({"f": ["a"]}), &json!({"f": ["a", "b"]}), &json!({"f": ["a", "c"]}), None);
    }

    #[test]
    fn the_lock_carries_the_version_that_was_read_and_status_travels_alone() {
        let before = node(json!({"metadata": {"name": "n", "resourceVersion": "7"}}));
        let mut after = before.clone();
        after.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        after.status = Some(serde_json::from_value(json!({"phase": "Running"})).unwrap());
        let Difference { rest, status } = difference(&before, &after).unwrap();
        let sent = |changes: &Map<String, Value>, lock| {
            let Patch::Merge(patch) = merge(changes.clone(), lock, Some("7")) else {
                panic!("no merge patch")
            };
            patch
        };
        assert_eq!(
            sent(&rest, Lock::Optimistic),
            json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}})
        );
        assert_eq!(sent(&status, Lock::None), json!({"status": {"phase": "Running"}}));
        let Difference { rest, status } = difference(&before, &before).unwrap();
        assert!(rest.is_empty() && status.is_empty());
    }
}
