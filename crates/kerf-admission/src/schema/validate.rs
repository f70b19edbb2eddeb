//! A value against a node of a structural schema.

use super::{Cause, ListKind, Schema, Type};
use serde_json::Value;

impl Schema {
    pub(super) fn validate(&self, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        if value.is_null() && self.nullable {
            return;
        }
        if let Some(expected) = self.mismatch(value) {
            let got = type_name(value);
            let detail = format!("{path} in body must be of type {expected}: {got:?}");
            causes.push(Cause::wrong_type(path, got, &detail));
            return;
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            causes.push(Cause::unsupported(path, value, &self.choices));
        }
        match value {
            Value::String(text) => self.validate_text(text, value, path, causes),
            Value::Number(number) => {
                self.validate_number(number.as_f64().unwrap_or_default(), value, path, causes);
            }
            Value::Array(items) => self.validate_items(items, path, causes),
            Value::Object(map) => {
                for name in self.required.iter().filter(|name| !map.contains_key(*name)) {
                    causes.push(Cause::required(format!("{path}.{name}"), ""));
                }
                if let Some(most) = self.max_properties.filter(|most| map.len() as u64 > *most) {
                    causes.push(Cause::too_many(path, map.len(), most));
                }
                if let Some(least) = self.min_properties.filter(|least| (map.len() as u64) < *least)
                {
                    let detail = format!("{path} in body should have at least {least} properties");
                    causes.push(Cause::invalid(path, value, &detail));
                }
                for (name, value) in map {
                    if let Some(schema) = self.properties.get(name).or(self.additional.as_deref()) {
                        schema.validate(value, &format!("{path}.{name}"), causes);
                    }
                }
            }
            _ => {}
        }
        self.validate_combinations(value, path, causes);
    }

    fn validate_text(&self, text: &str, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let length = text.chars().count() as u64;
        if let Some(most) = self.max_length.filter(|most| length > *most) {
            causes.push(Cause::too_long(path, most));
        }
        if let Some(least) = self.min_length.filter(|least| length < *least) {
            let detail = format!("{path} in body should be at least {least} chars long");
            causes.push(Cause::invalid(path, value, &detail));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            let detail = format!("{path} in body should match '{}'", pattern.as_str());
            causes.push(Cause::invalid(path, value, &detail));
        }
        if self.date_time && !is_date_time(text) {
            let detail = format!("{path} in body must be of type date-time: {value}");
            causes.push(Cause::invalid(path, value, &detail));
        }
    }

    fn validate_number(&self, number: f64, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        if let Some(most) = self.maximum.filter(|most| number > *most) {
            let detail = format!("{path} in body should be less than or equal to {most}");
            causes.push(Cause::invalid(path, value, &detail));
        }
        if let Some(least) = self.minimum.filter(|least| number < *least) {
            let detail = format!("{path} in body should be greater than or equal to {least}");
            causes.push(Cause::invalid(path, value, &detail));
        }
        if self.int32 && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
            let detail = format!("{path} in body must be of type int32: {value}");
            causes.push(Cause::invalid(path, value, &detail));
        }
    }

    fn validate_items(&self, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
        if let Some(most) = self.max_items.filter(|most| items.len() as u64 > *most) {
            causes.push(Cause::too_many(path, items.len(), most));
        }
        if let Some(least) = self.min_items.filter(|least| (items.len() as u64) < *least) {
            let detail = format!("{path} in body should have at least {least} items");
            causes.push(Cause::invalid(path, &Value::from(items.len()), &detail));
        }
        if let Some(schema) = &self.items {
            for (index, item) in items.iter().enumerate() {
                schema.validate(item, &format!("{path}[{index}]"), causes);
            }
        }
        let identity = |item: &Value| -> Option<Value> {
            match &self.list {
                ListKind::Atomic => None,
                ListKind::Set => Some(item.clone()),
                ListKind::Map(keys) => Some(Value::Object(
                    keys.iter()
                        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
                        .collect(),
                )),
            }
        };
        let identities: Vec<_> = items.iter().filter_map(identity).collect();
        for (index, one) in identities.iter().enumerate() {
            if identities[..index].contains(one) {
                causes.push(Cause::duplicate(format!("{path}[{index}]"), one));
            }
        }
    }

    fn validate_combinations(&self, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let holds = |schema: &Schema| {
            let mut inner = Vec::new();
            schema.validate(value, path, &mut inner);
            inner.is_empty()
        };
        for schema in &self.all_of {
            schema.validate(value, path, causes);
        }
        // The two alternatives of int-or-string are checked by `mismatch` already.
        if !self.any_of.is_empty() && !self.int_or_string && !self.any_of.iter().any(holds) {
            let detail = format!("{path} in body must validate at least one schema (anyOf)");
            causes.push(Cause::invalid(path, &Value::from(""), &detail));
        }
        if !self.one_of.is_empty() && self.one_of.iter().filter(|schema| holds(schema)).count() != 1
        {
            let detail = format!("{path} in body must validate one and only one schema (oneOf)");
            causes.push(Cause::invalid(path, &Value::from(""), &detail));
        }
        if self.not.as_deref().is_some_and(holds) {
            let detail = format!("{path} in body must not validate the schema (not)");
            causes.push(Cause::invalid(path, &Value::from(""), &detail));
        }
    }

    fn mismatch(&self, value: &Value) -> Option<&'static str> {
        if self.int_or_string {
            let fits = value.is_string() || value.is_i64() || value.is_u64();
            return (!fits).then_some("integer,string");
        }
        let (fits, name) = match self.kind? {
            Type::Object => (value.is_object(), "object"),
            Type::Array => (value.is_array(), "array"),
            Type::String => (value.is_string(), "string"),
            Type::Boolean => (value.is_boolean(), "boolean"),
            Type::Number => (value.is_number(), "number"),
            Type::Integer => {
                let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
                (value.is_i64() || value.is_u64() || whole, "integer")
            }
        };
        (!fits).then_some(name)
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// As the API server has it: it looks at the form and at the time of day, and takes any offset.
fn is_date_time(text: &str) -> bool {
    let offset_at = text.len().saturating_sub(6);
    let (time, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(time) => (time, "+00:00"),
        None if text.is_char_boundary(offset_at) => text.split_at(offset_at),
        None => return false,
    };
    let has_form = matches!(offset.as_bytes(), [b'+' | b'-', a, b, b':', c, d]
        if [a, b, c, d].iter().all(|digit| digit.is_ascii_digit()));
    has_form && time.parse::<jiff::civil::DateTime>().is_ok()
}
