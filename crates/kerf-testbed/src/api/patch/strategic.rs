//! Strategic merge patch: a merge patch that knows which lists are keyed.

use super::super::meta;
use super::shape::strategic_key;
use serde_json::{Map, Value};

pub(super) fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if patch.get("$patch").is_some_and(|directive| directive == "replace") {
        let mut whole = patch.clone();
        whole.remove("$patch");
        *value = Value::Object(whole);
        return;
    }
    let map = meta::map_mut(value);
    if patch.get("$patch").is_some_and(|directive| directive == "delete") {
        map.clear();
        return;
    }
    if let Some(Value::Array(kept)) = patch.get("$retainKeys") {
        map.retain(|key, _| kept.iter().any(|k| k == key.as_str()));
    }
    for (key, change) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            remove_items(map, field, change);
        } else if !key.starts_with('$') {
            merge_field(map, key, change);
        }
    }
    for (key, order) in patch {
        if let Some(field) = key.strip_prefix("$setElementOrder/") {
            reorder(map, field, order);
        }
    }
}

fn merge_field(map: &mut Map<String, Value>, key: &str, change: &Value) {
    match change {
        Value::Null => {
            map.remove(key);
        }
        Value::Object(_) => merge(map.entry(key).or_insert(Value::Null), change),
        Value::Array(changes) => merge_list(map, key, changes),
        plain => {
            map.insert(key.to_owned(), plain.clone());
        }
    }
}

fn merge_list(map: &mut Map<String, Value>, key: &str, changes: &[Value]) {
    let is_directive =
        |change: &Value, directive: &str| change.get("$patch").is_some_and(|d| d == directive);
    let replaces = changes.iter().any(|change| is_directive(change, "replace"));
    let merge_key = strategic_key(key).filter(|_| !replaces);
    let mut items = match map.get(key) {
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    match merge_key {
        Some(merge_key) => {
            for change in changes {
                let same = |item: &Value| item.get(merge_key) == change.get(merge_key);
                if is_directive(change, "delete") {
                    items.retain(|item| !same(item));
                } else if let Some(item) = items.iter_mut().find(|item| same(item)) {
                    merge(item, change);
                } else {
                    let mut fresh = Value::Null;
                    merge(&mut fresh, change);
                    items.push(fresh);
                }
            }
        }
        None if key == "finalizers" => {
            for change in
                changes.iter().filter(|change| !items.contains(change)).cloned().collect::<Vec<_>>()
            {
                items.push(change);
            }
        }
        None => {
            items =
                changes.iter().filter(|change| change.get("$patch").is_none()).cloned().collect();
        }
    }
    map.insert(key.to_owned(), Value::Array(items));
}

fn remove_items(map: &mut Map<String, Value>, field: &str, gone: &Value) {
    if let (Some(Value::Array(items)), Value::Array(gone)) = (map.get_mut(field), gone) {
        items.retain(|item| !gone.contains(item));
    }
}

/// Items that the order names come in that order; others stay behind them.
fn reorder(map: &mut Map<String, Value>, field: &str, order: &Value) {
    let (Some(Value::Array(items)), Value::Array(order)) = (map.get_mut(field), order) else {
        return;
    };
    let merge_key = strategic_key(field);
    let rank = |item: &Value| {
        let place = order.iter().position(|wanted| match merge_key {
            Some(key) => wanted.get(key) == item.get(key),
            None => wanted == item,
        });
        place.unwrap_or(usize::MAX)
    };
    items.sort_by_key(rank);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(mut value: Value, patch: &Value, expect: &Value) {
        let before = value.clone();
        merge(&mut value, patch);
        assert_eq!(&value, expect, "{before} patched with {patch}");
    }

    #[test]
    fn merges_by_key() {
        check(
            json!({ "containers": [{ "name": "a", "image": "x" }, { "name": "b", "image": "y" }] }),
            &json!({ "containers": [{ "name": "b", "image": "z" }, { "name": "c" }] }),
            &json!({ "containers": [{ "name": "a", "image": "x" }, { "name": "b", "image": "z" }, { "name": "c" }] }),
        );
        check(
            json!({ "conditions": [{ "type": "Ready", "status": "False" }] }),
            &json!({ "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Disk", "status": "False" }] }),
            &json!({ "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Disk", "status": "False" }] }),
        );
    }

    #[test]
    fn directives_delete_replace_and_order() {
        check(
            json!({ "env": [{ "name": "a" }, { "name": "b" }] }),
            &json!({ "env": [{ "$patch": "delete", "name": "a" }] }),
            &json!({ "env": [{ "name": "b" }] }),
        );
        check(
            json!({ "env": [{ "name": "a" }, { "name": "b" }] }),
            &json!({ "env": [{ "$patch": "replace" }, { "name": "c" }] }),
            &json!({ "env": [{ "name": "c" }] }),
        );
        check(
            json!({ "finalizers": ["a", "b"] }),
            &json!({ "$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"] }),
            &json!({ "finalizers": ["b", "c"] }),
        );
        check(
            json!({ "env": [{ "name": "a" }, { "name": "b" }] }),
            &json!({ "$setElementOrder/env": [{ "name": "b" }, { "name": "a" }] }),
            &json!({ "env": [{ "name": "b" }, { "name": "a" }] }),
        );
        check(
            json!({ "spec": { "a": 1, "b": 2 } }),
            &json!({ "spec": { "$patch": "replace", "c": 3 } }),
            &json!({ "spec": { "c": 3 } }),
        );
    }

    #[test]
    fn null_removes_and_unkeyed_lists_are_replaced() {
        check(
            json!({ "spec": { "unschedulable": true }, "tolerations": [{ "key": "a" }] }),
            &json!({ "spec": { "unschedulable": null }, "tolerations": [{ "key": "b" }] }),
            &json!({ "spec": {}, "tolerations": [{ "key": "b" }] }),
        );
    }
}
