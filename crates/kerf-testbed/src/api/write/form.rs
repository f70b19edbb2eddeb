//! The form of objects: as clients send them, as they are stored, and which part of them a write may touch.

use super::super::request::Call;
use super::super::resources::Resource;
use super::super::{ApiError, builtin, event, meta};
use super::Part;
use serde_json::{Map, Value, json};

pub(in super::super) fn parse_object(resource: &Resource, body: &[u8]) -> Result<Value, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        ApiError::BadRequest(format!("the object provided is unrecognized: {error}"))
    })?;
    stored(resource, value)
}

/// Takes `kind` and `apiVersion` off, after checking them.
pub(super) fn stored(resource: &Resource, value: Value) -> Result<Value, ApiError> {
    let Value::Object(mut map) = value else {
        return Err(ApiError::BadRequest(
            "the object provided is unrecognized: not an object".into(),
        ));
    };
    let kind = map.remove("kind");
    let api_version = map.remove("apiVersion");
    let given = |value: &Option<Value>| {
        value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (kind, api_version) = (given(&kind), given(&api_version));
    if kind.is_empty() && resource.custom.is_some() {
        return Err(ApiError::BadRequest(format!(
            "Object 'Kind' is missing in '{}'",
            Value::Object(map)
        )));
    }
    if !kind.is_empty() && kind != resource.kind {
        let message =
            format!("{kind} in version {api_version:?} cannot be handled as a {}", resource.kind);
        return Err(ApiError::BadRequest(message));
    }
    if !api_version.is_empty() && api_version != resource.api_version() {
        return Err(ApiError::BadRequest(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            resource.api_version()
        )));
    }
    let mut value = Value::Object(map);
    if !value["metadata"].is_object() {
        meta::map_mut(&mut value).insert("metadata".into(), json!({}));
    }
    if resource.group == event::GROUP {
        value = event::to_core(&value);
    }
    Ok(value)
}

/// The reverse of [`stored`]: the object as the client sees it.
pub(super) fn shown(resource: &Resource, value: &Value) -> Value {
    let mut value =
        if resource.group == event::GROUP { event::to_group(value) } else { value.clone() };
    let map = meta::map_mut(&mut value);
    map.insert("kind".into(), resource.kind.clone().into());
    map.insert("apiVersion".into(), resource.api_version().into());
    value
}

pub(super) fn adopt_namespace(
    resource: &Resource,
    call: &Call,
    value: &mut Value,
) -> Result<(), ApiError> {
    if !resource.namespaced {
        meta::unset(value, "namespace");
        return Ok(());
    }
    let given = meta::namespace(value);
    if given.is_empty() {
        meta::set(value, "namespace", call.namespace.clone());
    } else if given != call.namespace {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::BadRequest(message.into()));
    }
    Ok(())
}

/// Brings an object into the form it is stored in; returns the fields that were dropped.
pub(super) fn conform(
    resource: &Resource,
    call: &Call,
    value: &mut Value,
) -> Result<Vec<String>, ApiError> {
    tidy_metadata(value);
    let Some(schema) = &resource.custom else {
        let mut dropped = Vec::new();
        builtin::conform(resource, value, is_strict(call).then_some(&mut dropped))?;
        return Ok(dropped);
    };
    let dropped = schema.prune(value);
    schema.fill_defaults(value);
    Ok(dropped)
}

fn is_strict(call: &Call) -> bool {
    call.query.get("fieldValidation") == "Strict"
}

fn tidy_metadata(value: &mut Value) {
    let metadata = meta::object_mut(value, "metadata");
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

pub(super) fn refuse_unknown_fields(
    resource: &Resource,
    call: &Call,
    dropped: &[String],
) -> Result<(), ApiError> {
    if dropped.is_empty() || !is_strict(call) {
        return Ok(());
    }
    let list: Vec<_> = dropped.iter().map(|path| format!("unknown field {path:?}")).collect();
    let (kind, version) = (&resource.kind, resource.api_version());
    let what = match resource.custom {
        Some(_) => String::new(),
        None => format!("{kind} in version {version:?} cannot be handled as a {kind}: "),
    };
    Err(ApiError::BadRequest(format!("{what}strict decoding error: {}", list.join(", "))))
}

/// What the server alone decides stays as it was.
pub(super) fn carry_metadata(old: &Value, new: &mut Value) {
    let before = &old["metadata"];
    let metadata = meta::object_mut(new, "metadata");
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "resourceVersion",
        "generateName",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    ] {
        meta::carry(metadata, before, key);
    }
}

/// A write through one endpoint leaves what belongs to the other as it was.
pub(super) fn keep_other_parts(resource: &Resource, part: Part, old: &Value, new: &mut Value) {
    match part {
        Part::Main if resource.has_status => meta::carry(meta::map_mut(new), old, "status"),
        Part::Main | Part::Finalize => {}
        Part::Status if resource.custom.is_some() => {
            let status = new.get("status").cloned();
            *new = old.clone();
            match status {
                Some(status) => meta::map_mut(new).insert("status".into(), status),
                None => meta::map_mut(new).remove("status"),
            };
        }
        Part::Status => {
            let map = meta::map_mut(new);
            let others: Vec<String> = map
                .keys()
                .chain(old.as_object().into_iter().flat_map(Map::keys))
                .cloned()
                .collect();
            for key in others.iter().filter(|key| !matches!(key.as_str(), "metadata" | "status")) {
                meta::carry(map, old, key);
            }
            let metadata = meta::object_mut(new, "metadata");
            meta::carry(metadata, &old["metadata"], "ownerReferences");
            // Kubelets label nodes and annotate pods through their status; controllers may not.
            if !matches!(resource.plural.as_str(), "pods" | "nodes") {
                meta::carry(metadata, &old["metadata"], "labels");
            }
        }
    }
}

pub(super) fn spec_changed(resource: &Resource, old: &Value, new: &Value) -> bool {
    if resource.custom.is_none() {
        return old.get("spec") != new.get("spec");
    }
    let ignored = |key: &str| key == "metadata" || (key == "status" && resource.has_status);
    let keys = |value: &Value| -> Map<String, Value> {
        let map = value.as_object().cloned().unwrap_or_default();
        map.into_iter().filter(|(key, _)| !ignored(key)).collect()
    };
    keys(old) != keys(new)
}
