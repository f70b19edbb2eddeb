//! Reading and writing `metadata` of objects kept as JSON.

use jiff::Timestamp;
use serde_json::{Map, Value};

pub(crate) const NOTHING: &Value = &Value::Null;

/// The value at a path of object keys; null where there is none.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, key| value.get(key).unwrap_or(NOTHING))
}

pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

pub(crate) fn field<'a>(value: &'a Value, key: &str) -> &'a Value {
    at(value, &["metadata", key])
}

pub(crate) fn name(value: &Value) -> &str {
    text(value, &["metadata", "name"])
}

pub(crate) fn namespace(value: &Value) -> &str {
    text(value, &["metadata", "namespace"])
}

pub(crate) fn uid(value: &Value) -> &str {
    text(value, &["metadata", "uid"])
}

pub(crate) fn is_deleting(value: &Value) -> bool {
    !field(value, "deletionTimestamp").is_null()
}

pub(crate) fn finalizers(value: &Value) -> Vec<&str> {
    field(value, "finalizers").as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The object at `key`, created empty where it is missing or of another type.
pub(crate) fn object_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let entry = map_mut(value).entry(key).or_insert_with(|| Value::Object(Map::new()));
    map_mut(entry)
}

pub(crate) fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

pub(crate) fn set(value: &mut Value, key: &str, to: impl Into<Value>) {
    object_mut(value, "metadata").insert(key.to_owned(), to.into());
}

pub(crate) fn unset(value: &mut Value, key: &str) {
    object_mut(value, "metadata").remove(key);
}

/// Puts `from`'s value of a top-level or metadata key into `to`, absence included.
pub(crate) fn carry(to: &mut Map<String, Value>, from: &Value, key: &str) {
    match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
}

/// `metav1.Time`: whole seconds, as the API server writes it.
pub(crate) fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

pub(crate) fn parse_time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
