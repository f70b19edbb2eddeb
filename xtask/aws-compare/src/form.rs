//! Requests of AWS's query protocols, read as they are on the wire: what Kerf's own types do not know is seen too.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// `A.1.B=x&A.2.B=y` as `{"A": [{"B": "x"}, {"B": "y"}]}`.
pub(crate) fn read(body: &str) -> Value {
    let mut root = Node::default();
    for pair in body.split('&').filter(|pair| !pair.is_empty()) {
        let (path, text) = pair.split_once('=').unwrap_or((pair, ""));
        let mut node = &mut root;
        for part in decode(path).split('.') {
            node = node.parts.entry(part.to_owned()).or_default();
        }
        node.text = Some(decode(text));
    }
    root.to_value()
}

#[derive(Default)]
struct Node {
    text: Option<String>,
    parts: BTreeMap<String, Node>,
}

impl Node {
    fn to_value(&self) -> Value {
        if let Some(text) = &self.text {
            return Value::String(text.clone());
        }
        let numbered: Option<BTreeMap<u32, &Node>> =
            self.parts.iter().map(|(name, node)| Some((name.parse().ok()?, node))).collect();
        match numbered {
            Some(items) if !items.is_empty() => list(items.values().map(|node| node.to_value())),
            _ => {
                let parts = self.parts.iter();
                Value::Object(parts.map(|(name, node)| (name.clone(), node.to_value())).collect())
            }
        }
    }
}

/// Tags and the like have no order: a list of keys with values is a map.
fn list(items: impl Iterator<Item = Value>) -> Value {
    let items: Vec<_> = items.collect();
    let entries: Option<Map<String, Value>> = items
        .iter()
        .map(|item| {
            let item = item.as_object().filter(|item| item.len() <= 2)?;
            Some((item.get("Key")?.as_str()?.to_owned(), item.get("Value").cloned()?))
        })
        .collect();
    entries.map_or(Value::Array(items), Value::Object)
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, hex) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 2;
            }
            (b'+', _) => decoded.push(b' '),
            _ => decoded.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_lists_and_tags_are_maps() {
        let cases = [
            ("Action=A&Version=1", json!({"Action": "A", "Version": "1"})),
            ("A.1.B=x&A.10.B=z&A.2.B=y", json!({"A": [{"B": "x"}, {"B": "y"}, {"B": "z"}]})),
            ("T.1.Key=a%2Fb&T.1.Value=c+d", json!({"T": {"a/b": "c d"}})),
            ("T.1.Key=a&T.1.Value=", json!({"T": {"a": ""}})),
            ("", json!({})),
        ];
        for (body, expect) in cases {
            assert_eq!(read(body), expect, "{body}");
        }
    }
}
