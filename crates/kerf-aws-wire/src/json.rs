//! Requests and responses of the services that speak JSON.

use serde_json::{Map, Number, Value};

use crate::error::{DecodeError, Problem};
use crate::node::Node;

pub(crate) fn write(node: &Node) -> String {
    value(node).to_string()
}

pub(crate) fn read(json: &str) -> Result<Node, DecodeError> {
    if json.trim().is_empty() {
        return Ok(Node::Structure(Vec::new()));
    }
    let value: Value = serde_json::from_str(json)
        .map_err(|error| DecodeError::new(Problem::Json(error.to_string())))?;
    Ok(node(value))
}

fn value(node: &Node) -> Value {
    match node {
        Node::Null => Value::Null,
        Node::Text(text) => Value::String(text.clone()),
        Node::Bool(value) => Value::Bool(*value),
        Node::Integer(value) => Value::Number((*value).into()),
        Node::Float(value) => Number::from_f64(*value).map_or(Value::Null, Value::Number),
        Node::Time(time) if time.subsec_nanosecond() == 0 => Value::Number(time.as_second().into()),
        Node::Time(time) => {
            let seconds = time.as_millisecond() as f64 / 1e3;
            Number::from_f64(seconds).map_or(Value::Null, Value::Number)
        }
        Node::List(items) => Value::Array(items.iter().map(value).collect()),
        Node::Structure(members) => {
            let members = members.iter().map(|(name, node)| (name.to_string(), value(node)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

fn node(value: Value) -> Node {
    match value {
        Value::Null => Node::Null,
        Value::Bool(value) => Node::Bool(value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Node::Integer(whole),
            None => Node::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Node::Text(text),
        Value::Array(items) => Node::List(items.into_iter().map(node).collect()),
        Value::Object(members) => Node::Structure(
            members.into_iter().map(|(name, value)| (name.into(), node(value))).collect(),
        ),
    }
}
