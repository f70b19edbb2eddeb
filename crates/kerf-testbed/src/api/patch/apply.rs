//! Server-side apply: who owns which field, and what happens when two want the same.
//!
//! Ownership is recorded from an object's first apply on. Until then all its fields count as one
//! manager's, where a real server would know several: conflicts arise alike, under another name.

use super::super::error::ApiError;
use super::super::request::Call;
use super::super::resources::Resource;
use super::super::store::Object;
use super::super::write::{Part, parse_object};
use super::super::{Answer, State, meta};
use super::Patch;
use super::shape::{Merging, Shape};
use http::StatusCode;
use kerf_admission::Cause;
use serde_json::{Map, Value, json};
use std::sync::Arc;

type Fields = Map<String, Value>;

impl State {
    pub(in super::super) fn apply(
        &mut self,
        resource: &Arc<Resource>,
        part: Part,
        call: &Call,
        patch: Patch,
    ) -> Result<Answer, ApiError> {
        let Patch::Apply(applied) = patch else { return Err(ApiError::Unprocessable) };
        let manager = call.query.get("fieldManager").to_owned();
        if manager.is_empty() {
            let kind = super::super::Named {
                group: "meta.k8s.io".into(),
                resource: "PatchOptions".into(),
            };
            let causes = vec![Cause::required("fieldManager", "is required for apply patch")];
            return Err(ApiError::Invalid { kind, name: String::new(), causes });
        }
        let mut applied = parse_object(resource, applied.to_string().as_bytes())?;
        if !meta::field(&applied, "managedFields").is_null() {
            return Err(ApiError::BadRequest("metadata.managedFields must be nil".into()));
        }
        meta::set(&mut applied, "name", call.name.clone());
        if resource.namespaced {
            meta::set(&mut applied, "namespace", call.namespace.clone());
        }
        let shape = Shape::root(resource);
        let wanted = owned_fields(shape, &applied);
        let entry = |fields: &Fields, time: String| {
            let mut entry = json!({
                "manager": manager, "operation": "Apply", "apiVersion": resource.api_version(), "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": fields,
            });
            if part == Part::Status {
                entry["subresource"] = "status".into();
            }
            entry
        };
        let now = meta::seconds(self.clock.now());
        let Ok(old) = self.existing(resource, call).cloned() else {
            if part != Part::Main {
                return Err(ApiError::NotFound {
                    resource: resource.named(),
                    name: call.name.clone(),
                });
            }
            let managers = vec![entry(&wanted, now)];
            let object = self.insert(resource, applied, Some(managers), call)?;
            return Ok(Answer::Object(StatusCode::CREATED, resource.clone(), object));
        };
        let (mine, mut others) = Self::managers_of(resource, part, &old, &manager);
        let mut conflicts = Vec::new();
        changed_leaves(shape, &old.value, &applied, &wanted, &mut Vec::new(), &mut |path| {
            for other in &others {
                if owns(other["fieldsV1"].as_object(), path) {
                    conflicts.push((other.clone(), path.to_vec()));
                }
            }
        });
        if !call.query.is_true("force") && !conflicts.is_empty() {
            return Err(conflict(resource, &conflicts));
        }
        for (_, path) in &conflicts {
            for other in &mut others {
                disown(other["fieldsV1"].as_object_mut(), path);
            }
        }
        let mut merged = old.value.clone();
        merge(shape, &mut merged, &applied);
        let before = mine
            .as_ref()
            .and_then(|mine| mine["fieldsV1"].as_object().cloned())
            .unwrap_or_default();
        drop_abandoned(&mut merged, &before, &wanted, &others);
        meta::set(&mut merged, "resourceVersion", {
            let given = meta::text(&applied, &["metadata", "resourceVersion"]);
            if given.is_empty() { old.revision.to_string() } else { given.to_owned() }
        });
        others
            .retain(|other| other["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty()));
        // An apply that changes nothing must not even change the time of the last one.
        let same =
            mine.as_ref().filter(|mine| mine["fieldsV1"].as_object() == Some(&wanted)).cloned();
        others.push(same.unwrap_or_else(|| entry(&wanted, now)));
        let written = self.update(resource, part, &old, merged, Some(others), call)?;
        Ok(Answer::Object(StatusCode::OK, resource.clone(), written.into_object()))
    }

    /// This applier's entry of its last apply, and the entries of everyone else.
    fn managers_of(
        resource: &Resource,
        part: Part,
        old: &Object,
        manager: &str,
    ) -> (Option<Value>, Vec<Value>) {
        let recorded = meta::field(&old.value, "managedFields").as_array().cloned();
        let recorded = recorded.unwrap_or_else(|| {
            let fields = owned_fields(Shape::root(resource), &old.value);
            vec![json!({
                "manager": "before-first-apply", "operation": "Update", "apiVersion": resource.api_version(),
                "time": meta::field(&old.value, "creationTimestamp"), "fieldsType": "FieldsV1", "fieldsV1": fields,
            })]
        });
        let status = part == Part::Status;
        let (mine, others): (Vec<_>, Vec<_>) = recorded.into_iter().partition(|entry| {
            entry["manager"] == manager
                && entry["operation"] == "Apply"
                && (entry["subresource"] == "status") == status
        });
        (mine.into_iter().next(), others)
    }
}

/// After a write that was no apply, managers no longer own what it changed.
pub(in super::super) fn disown_changed(resource: &Resource, old: &Value, new: &mut Value) {
    let Some(Value::Array(mut managers)) = new["metadata"].get("managedFields").cloned() else {
        return;
    };
    for manager in &mut managers {
        let Some(fields) = manager["fieldsV1"].as_object().cloned() else { continue };
        let mut gone = Vec::new();
        changed_leaves(Shape::root(resource), old, new, &fields, &mut Vec::new(), &mut |path| {
            gone.push(path.to_vec());
        });
        for path in gone {
            disown(manager["fieldsV1"].as_object_mut(), &path);
        }
    }
    managers
        .retain(|manager| manager["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty()));
    meta::set(new, "managedFields", managers);
}

/// The fields an object sets, as a tree in the form of `fieldsV1`.
fn owned_fields(shape: Shape<'_>, object: &Value) -> Fields {
    let mut fields = fields_of(shape, object);
    if let Some(Value::Object(metadata)) = fields.get_mut("f:metadata") {
        for key in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "generateName",
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            metadata.remove(&format!("f:{key}"));
        }
        if metadata.is_empty() {
            fields.remove("f:metadata");
        }
    }
    fields
}

fn fields_of(shape: Shape<'_>, value: &Value) -> Fields {
    let mut fields = Fields::new();
    match value {
        Value::Object(map) if !shape.is_atomic_map() => {
            for (key, value) in map {
                fields
                    .insert(format!("f:{key}"), Value::Object(fields_of(shape.child(key), value)));
            }
        }
        Value::Array(items) => {
            let merging = shape.list();
            for item in items {
                if let Some(id) = item_id(&merging, item) {
                    let mut inner = match merging {
                        Merging::Set => Fields::new(),
                        _ => fields_of(shape.item(), item),
                    };
                    if merging != Merging::Set {
                        inner.insert(".".into(), json!({}));
                    }
                    fields.insert(id, Value::Object(inner));
                }
            }
        }
        _ => {}
    }
    fields
}

fn item_id(merging: &Merging, item: &Value) -> Option<String> {
    match merging {
        Merging::Atomic => None,
        Merging::Set => Some(format!("v:{item}")),
        Merging::Keyed(keys) => {
            let default = |key: &str| if key == "protocol" { "TCP".into() } else { Value::Null };
            let keys: Map<_, _> = keys
                .iter()
                .map(|key| (key.clone(), item.get(key).cloned().unwrap_or_else(|| default(key))))
                .collect();
            Some(format!("k:{}", Value::Object(keys)))
        }
    }
}

fn find_item<'a>(merging: &Merging, list: &'a Value, id: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|item| item_id(merging, item).as_deref() == Some(id))
}

/// Calls `found` with each field of `fields` whose value differs between `old` and `new`.
fn changed_leaves(
    shape: Shape<'_>,
    old: &Value,
    new: &Value,
    fields: &Fields,
    path: &mut Vec<String>,
    found: &mut dyn FnMut(&[String]),
) {
    for (id, inner) in fields.iter().filter(|(id, _)| *id != ".") {
        let merging = shape.list();
        let (before, after, shape) = match id.strip_prefix("f:") {
            Some(key) => (
                old.get(key).unwrap_or(meta::NOTHING),
                new.get(key).unwrap_or(meta::NOTHING),
                shape.child(key),
            ),
            None => (
                find_item(&merging, old, id).unwrap_or(meta::NOTHING),
                find_item(&merging, new, id).unwrap_or(meta::NOTHING),
                shape.item(),
            ),
        };
        path.push(id.clone());
        match inner.as_object().filter(|inner| !inner.is_empty()) {
            Some(inner) => changed_leaves(shape, before, after, inner, path, found),
            // To set an empty map or keyed list is to own that it is there, not what others put into it.
            None if is_container(shape, before) && is_container(shape, after) => {}
            None if before != after => found(path),
            None => {}
        }
        path.pop();
    }
}

fn is_container(shape: Shape<'_>, value: &Value) -> bool {
    (value.is_object() && !shape.is_atomic_map())
        || (value.is_array() && shape.list() != Merging::Atomic)
}

fn owns(fields: Option<&Fields>, path: &[String]) -> bool {
    match path {
        [] => true,
        [head, rest @ ..] => fields
            .and_then(|fields| fields.get(head))
            .and_then(Value::as_object)
            .is_some_and(|inner| owns(Some(inner), rest)),
    }
}

fn disown(fields: Option<&mut Fields>, path: &[String]) {
    let (Some(fields), [head, rest @ ..]) = (fields, path) else { return };
    if rest.is_empty() {
        fields.remove(head);
        return;
    }
    if let Some(inner) = fields.get_mut(head).and_then(Value::as_object_mut) {
        disown(Some(inner), rest);
        if inner.is_empty() {
            fields.remove(head);
        }
    }
}

fn merge(shape: Shape<'_>, value: &mut Value, applied: &Value) {
    match applied {
        Value::Object(applied) if !shape.is_atomic_map() => {
            let map = meta::map_mut(value);
            for (key, change) in applied {
                merge(shape.child(key), map.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
        Value::Array(changes) if shape.list() != Merging::Atomic => {
            let merging = shape.list();
            let mut items = value.as_array().cloned().unwrap_or_default();
            for change in changes {
                let id = item_id(&merging, change);
                match items.iter_mut().find(|item| item_id(&merging, item) == id) {
                    Some(item) => merge(shape.item(), item, change),
                    None => items.push(change.clone()),
                }
            }
            *value = Value::Array(items);
        }
        plain => *value = plain.clone(),
    }
}

/// Removes what this manager applied before and no longer does, unless someone else wants it.
fn drop_abandoned(value: &mut Value, before: &Fields, now: &Fields, others: &[Value]) {
    let others: Vec<&Fields> =
        others.iter().filter_map(|other| other["fieldsV1"].as_object()).collect();
    drop_fields(value, before, Some(now), &others);
}

fn drop_fields(value: &mut Value, before: &Fields, now: Option<&Fields>, others: &[&Fields]) {
    for (id, inner) in before.iter().filter(|(id, _)| *id != ".") {
        let still = now.and_then(|now| now.get(id)).and_then(Value::as_object);
        let theirs: Vec<&Fields> =
            others.iter().filter_map(|o| o.get(id)).filter_map(Value::as_object).collect();
        let inner = inner.as_object().filter(|inner| !inner.is_empty());
        if still.is_none() && theirs.is_empty() {
            remove_field(value, id);
        } else if let (Some(inner), Some(place)) = (inner, field_mut(value, id)) {
            drop_fields(place, inner, still, &theirs);
        }
    }
}

fn same_item(item: &Value, id: &str) -> bool {
    if let Some(text) = id.strip_prefix("v:") {
        return *item == text;
    }
    let keys = id.strip_prefix("k:").and_then(|text| serde_json::from_str::<Fields>(text).ok());
    keys.is_some_and(|keys| {
        keys.iter().all(|(key, value)| match item.get(key) {
            Some(found) => found == value,
            None => value.is_null() || (key == "protocol" && value == "TCP"),
        })
    })
}

fn field_mut<'a>(value: &'a mut Value, id: &str) -> Option<&'a mut Value> {
    match id.strip_prefix("f:") {
        Some(key) => value.get_mut(key),
        None => value.as_array_mut()?.iter_mut().find(|item| same_item(item, id)),
    }
}

fn remove_field(value: &mut Value, id: &str) {
    match (value, id.strip_prefix("f:")) {
        (Value::Object(map), Some(key)) => {
            map.remove(key);
        }
        (Value::Array(items), None) => items.retain(|item| !same_item(item, id)),
        _ => {}
    }
}

fn conflict(resource: &Resource, conflicts: &[(Value, Vec<String>)]) -> ApiError {
    let causes: Vec<Cause> = conflicts
        .iter()
        .map(|(manager, path)| Cause {
            reason: "FieldManagerConflict",
            message: {
                let name = meta::text(manager, &["manager"]);
                // Who applied is named alone; who wrote otherwise, with the version written in.
                match meta::text(manager, &["operation"]) {
                    "Apply" => format!("conflict with {name:?}"),
                    _ => format!("conflict with {name:?} using {}", resource.api_version()),
                }
            },
            field: path.iter().map(|id| dotted(id)).collect(),
        })
        .collect();
    ApiError::ApplyConflict { causes }
}

fn dotted(id: &str) -> String {
    match id.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys = serde_json::from_str::<Fields>(keys).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[={}]", id.trim_start_matches("v:")),
    }
}
