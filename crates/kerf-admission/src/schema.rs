//! Custom resources: what their CRD's schema prunes, fills in and refuses.

use crate::Cause;
use kube_cel::{CompiledSchema, ErrorKind, Validator, compile_schema};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

mod validate;

#[derive(Debug, Error)]
pub enum SchemaError {
    #[error("pattern {pattern:?} at {path} does not compile: {source}")]
    Pattern { pattern: String, path: String, source: regex::Error },
    #[error("CEL rule at {path} does not compile: {detail}")]
    Rule { path: String, detail: String },
    #[error("version {0} has no openAPIV3Schema: structural schemas are required")]
    Missing(String),
}

/// One version of a CRD, compiled.
#[derive(Debug)]
pub struct CustomSchema {
    root: Schema,
    /// Rules by top-level field: a field that a write leaves alone need not be evaluated again.
    /// Under the empty name: the whole object, where it has rules at its root.
    rules: BTreeMap<String, CompiledSchema>,
    /// What each rule says when it fails, by its expression.
    messages: BTreeMap<String, String>,
    validator: Validator,
    columns: Value,
}

impl CustomSchema {
    /// The version of a CRD, compiled by whoever needed it first: a test program starts a hundred clusters with the same
    /// rules and patterns.
    pub fn shared(version: &Value) -> Result<Arc<Self>, SchemaError> {
        static COMPILED: Mutex<BTreeMap<String, Arc<CustomSchema>>> = Mutex::new(BTreeMap::new());
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let key = version.to_string();
        if let Some(known) = compiled.get(&key) {
            return Ok(Arc::clone(known));
        }
        let schema = Arc::new(Self::compile(version)?);
        compiled.insert(key, Arc::clone(&schema));
        Ok(schema)
    }

    fn compile(version: &Value) -> Result<Self, SchemaError> {
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            return Err(SchemaError::Missing(
                version["name"].as_str().unwrap_or_default().to_owned(),
            ));
        }
        let mut rules = BTreeMap::new();
        let whole = schema.get("x-kubernetes-validations").map(|_| (String::new(), schema));
        let fields = schema["properties"].as_object().into_iter().flatten();
        let fields =
            fields.map(|(field, schema)| (field.clone(), schema)).filter(|_| whole.is_none());
        for (field, schema) in whole.clone().into_iter().chain(fields) {
            if has_rules(schema) {
                let compiled = compile_schema(schema);
                refuse_broken_rules(&compiled, &field)?;
                rules.insert(field, compiled);
            }
        }
        let mut messages = BTreeMap::new();
        collect_messages(schema, &mut messages);
        let root = Schema::compile(schema, "")?;
        let columns = version["additionalPrinterColumns"].clone();
        Ok(Self { root, rules, messages, validator: Validator::new(), columns })
    }

    /// The `additionalPrinterColumns` of the version.
    pub fn columns(&self) -> &Value {
        &self.columns
    }

    pub fn root(&self) -> &Schema {
        &self.root
    }

    /// Drops fields the schema does not know, and nulls where it wants none; returns the paths of the former.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        let Some(object) = value.as_object_mut() else { return dropped };
        object.retain(|key, value| {
            if matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                return true;
            }
            if let Some(schema) = self.root.properties.get(key) {
                schema.prune(value, key, &mut dropped);
                !schema.refuses_null(value)
            } else if self.root.preserve {
                true
            } else {
                dropped.push(key.clone());
                false
            }
        });
        dropped
    }

    pub fn fill_defaults(&self, value: &mut Value) {
        self.root.fill_defaults(value);
    }

    pub fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        for (field, schema) in &self.root.properties {
            if matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let new = value.get(field);
            if let Some(new) = new
                // What was stored and is not touched is not judged again, even where the schema became stricter.
                && old.and_then(|old| old.get(field)) != Some(new)
            {
                schema.validate(new, field, &mut causes);
            }
        }
        for field in &self.root.required {
            if value.get(field).is_none() && field != "metadata" {
                causes.push(Cause::required(field.as_str(), ""));
            }
        }
        let blocked = causes.iter().any(|cause| {
            !matches!(
                cause.reason,
                "FieldValueInvalid" | "FieldValueDuplicate" | "FieldValueForbidden"
            )
        });
        if blocked && !self.rules.is_empty() {
            let detail = "some validation rules were not checked because the object was invalid; \
                          correct the existing errors to complete validation";
            causes.push(Cause::invalid("<nil>", &Value::Null, detail));
            return causes;
        }
        for (field, rules) in &self.rules {
            let (new, old) = if field.is_empty() {
                (value, old)
            } else {
                let Some(new) = value.get(field) else { continue };
                (new, old.and_then(|old| old.get(field)))
            };
            if old == Some(new) {
                continue;
            }
            let failures = self.validator.validate_compiled(rules, new, old).err();
            let mut failures: Vec<_> = failures.into_iter().flatten().collect();
            // The rules are kept in hash maps: without sorting, messages would differ from run to run.
            failures.sort_by(|a, b| a.field_path.cmp(&b.field_path));
            for failure in failures {
                let path = match failure.field_path.as_str() {
                    "" => field.clone(),
                    inner if field.is_empty() => inner.to_owned(),
                    inner if inner.starts_with('[') => format!("{field}{inner}"),
                    inner => format!("{field}.{inner}"),
                };
                let reason = failure.reason.as_deref();
                let message = match failure.kind {
                    // A rule that breaks down refuses as well, and says which one it was.
                    ErrorKind::EvaluationError => {
                        let rule = self.messages.get(&failure.rule).unwrap_or(&failure.rule);
                        format!("{} evaluating rule: {rule}", failure.message)
                    }
                    _ => failure.message,
                };
                let shown = shown_value(value, &path);
                causes.push(match reason {
                    Some("FieldValueRequired") => Cause::required(path, &message),
                    Some("FieldValueForbidden") => Cause::forbidden(path, &message),
                    _ => Cause::invalid(path, &shown, &message),
                });
            }
        }
        causes
    }
}

/// Objects and lists are not printed in refusals of rules, only that they are one.
fn shown_value(value: &Value, path: &str) -> Value {
    let steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let found = steps.fold(value, |value, step| match value {
        Value::Array(items) => {
            step.parse::<usize>().ok().and_then(|i| items.get(i)).unwrap_or(&Value::Null)
        }
        other => other.get(step).unwrap_or(&Value::Null),
    });
    match found {
        Value::Object(_) => "object".into(),
        Value::Array(_) => "array".into(),
        plain => plain.clone(),
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.contains_key("x-kubernetes-validations") || map.values().any(has_rules)
        }
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

fn collect_messages(schema: &Value, messages: &mut BTreeMap<String, String>) {
    match schema {
        Value::Object(map) => {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
                if !text("message").is_empty() {
                    messages.insert(text("rule"), text("message"));
                }
            }
            for inner in map.values() {
                collect_messages(inner, messages);
            }
        }
        Value::Array(items) => {
            for inner in items {
                collect_messages(inner, messages);
            }
        }
        _ => {}
    }
}

fn refuse_broken_rules(compiled: &CompiledSchema, path: &str) -> Result<(), SchemaError> {
    if let Some(error) = compiled.compilation_errors().first() {
        return Err(SchemaError::Rule { path: path.into(), detail: error.to_string() });
    }
    for (name, child) in &compiled.properties {
        refuse_broken_rules(child, &format!("{path}.{name}"))?;
    }
    for (name, child) in [("[]", &compiled.items), (".*", &compiled.additional_properties)] {
        if let Some(child) = child {
            refuse_broken_rules(child, &format!("{path}{name}"))?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// A node of a structural schema.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are the schema's own keywords")]
pub struct Schema {
    kind: Option<Type>,
    nullable: bool,
    int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    preserve: bool,
    /// `x-kubernetes-embedded-resource`
    embedded: bool,
    properties: BTreeMap<String, Schema>,
    additional: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    default: Option<Value>,
    choices: Vec<Value>,
    pattern: Option<Regex>,
    date_time: bool,
    int32: bool,
    minimum: Option<f64>,
    maximum: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
    list: ListKind,
    /// `x-kubernetes-map-type: atomic`
    atomic_map: bool,
    any_of: Vec<Schema>,
    all_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

impl Schema {
    fn compile(schema: &Value, path: &str) -> Result<Self, SchemaError> {
        let text = |key: &str| schema[key].as_str();
        let flag = |key: &str| schema[key] == true;
        let count = |key: &str| schema[key].as_u64();
        let child = |schema: &Value, step: &str| Self::compile(schema, &format!("{path}{step}"));
        let all = |key: &str| -> Result<Vec<Self>, SchemaError> {
            schema[key].as_array().into_iter().flatten().map(|schema| child(schema, "")).collect()
        };
        let boxed = |key: &str, step: &str| -> Result<Option<Box<Self>>, SchemaError> {
            match &schema[key] {
                inner @ Value::Object(_) => Ok(Some(Box::new(child(inner, step)?))),
                _ => Ok(None),
            }
        };
        let mut properties = BTreeMap::new();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            properties.insert(name.clone(), child(schema, &format!(".{name}"))?);
        }
        let pattern = text("pattern").map(|pattern| {
            Regex::new(pattern).map_err(|source| SchemaError::Pattern {
                pattern: pattern.into(),
                path: path.into(),
                source,
            })
        });
        Ok(Self {
            kind: match text("type") {
                Some("object") => Some(Type::Object),
                Some("array") => Some(Type::Array),
                Some("string") => Some(Type::String),
                Some("integer") => Some(Type::Integer),
                Some("number") => Some(Type::Number),
                Some("boolean") => Some(Type::Boolean),
                _ => None,
            },
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields")
                || schema["additionalProperties"] == true,
            embedded: flag("x-kubernetes-embedded-resource"),
            properties,
            additional: boxed("additionalProperties", ".*")?,
            items: boxed("items", "[]")?,
            required: strings(&schema["required"]),
            default: schema.get("default").cloned(),
            choices: schema["enum"].as_array().cloned().unwrap_or_default(),
            pattern: pattern.transpose()?,
            date_time: text("format") == Some("date-time"),
            int32: text("format") == Some("int32"),
            minimum: schema["minimum"].as_f64(),
            maximum: schema["maximum"].as_f64(),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            list: match text("x-kubernetes-list-type") {
                Some("set") => ListKind::Set,
                Some("map") => ListKind::Map(strings(&schema["x-kubernetes-list-map-keys"])),
                _ => ListKind::Atomic,
            },
            atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
            any_of: all("anyOf")?,
            all_of: all("allOf")?,
            one_of: all("oneOf")?,
            not: boxed("not", "")?,
        })
    }

    pub fn child(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(self.additional.as_deref())
    }

    pub fn item(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    pub fn list(&self) -> &ListKind {
        &self.list
    }

    pub fn is_atomic_map(&self) -> bool {
        self.atomic_map
    }

    fn refuses_null(&self, value: &Value) -> bool {
        value.is_null() && !self.nullable && !self.preserve
    }

    fn prune(&self, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.retain(|key, value| {
                let inner = || format!("{path}.{key}");
                if self.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                    true
                } else if let Some(schema) = self.properties.get(key).or(self.additional.as_deref())
                {
                    schema.prune(value, &inner(), dropped);
                    !schema.refuses_null(value)
                } else if self.preserve {
                    true
                } else {
                    dropped.push(inner());
                    false
                }
            }),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for (index, item) in items.iter_mut().enumerate() {
                        schema.prune(item, &format!("{path}[{index}]"), dropped);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, schema) in &self.properties {
                    if let Some(default) = &schema.default {
                        map.entry(name.clone()).or_insert_with(|| default.clone());
                    }
                    if let Some(value) = map.get_mut(name) {
                        schema.fill_defaults(value);
                    }
                }
                if let Some(schema) = &self.additional {
                    map.values_mut().for_each(|value| schema.fill_defaults(value));
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.fill_defaults(item);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The texts of a list; nothing where there is none.
pub fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
