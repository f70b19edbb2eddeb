//! Objects in Kubernetes' protobuf encoding, as `kubectl create deployment`, `create namespace` and `auth can-i` send them.
//! kubectl does not fall back to JSON when it is refused that, so they are read here. Answers are JSON: every client takes it.
//!
//! `messages.txt` holds what the encoding does not say by itself: a line for each message, and a line for each of its fields with
//! number, JSON name and type. These are the tags of the Go types of k8s.io/api v0.36. A `?` marks fields that are pointers there:
//! of others, zero means absent. `-` marks fields whose own fields stand in their place in JSON. Statuses are left out, as the
//! server does not take them from clients.

use base64::Engine;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What an encoded object begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Deeper than any object, and less than what a stack takes.
const DEEPEST: usize = 64;

/// Why bytes are not an object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unread {
    #[error("it does not begin as an encoded object does")]
    NoMagic,
    #[error("it breaks off")]
    BreaksOff,
    #[error("it is nested too deeply")]
    TooDeep,
    #[error("the testbed does not know the message {0}; send JSON")]
    UnknownMessage(String),
    #[error("the testbed does not know field {number} of {message}; send JSON")]
    UnknownField { message: String, number: u64 },
    #[error("field {field} of {message} has the wrong wire type")]
    WireType { message: String, field: &'static str },
}

type Fields = BTreeMap<u64, (&'static str, &'static str)>;

static MESSAGES: LazyLock<BTreeMap<&'static str, Fields>> = LazyLock::new(|| {
    let mut messages: BTreeMap<&str, Fields> = BTreeMap::new();
    let mut last = "";
    for line in include_str!("protobuf/messages.txt").lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(number), Some(name), Some(kind)) => {
                let fields = messages.entry(last).or_default();
                fields.insert(number.parse().unwrap_or_default(), (name, kind));
            }
            (Some(message), ..) => {
                last = message;
                messages.entry(last).or_default();
            }
            _ => {}
        }
    }
    messages
});

/// The object in JSON.
pub(super) fn to_json(bytes: &[u8]) -> Result<Value, Unread> {
    let mut envelope = Reader(bytes.strip_prefix(MAGIC).ok_or(Unread::NoMagic)?);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while let Some((number, found)) = envelope.next()? {
        match (number, found) {
            (1, Wire::Bytes(type_meta)) => {
                let mut type_meta = Reader(type_meta);
                while let Some((number, found)) = type_meta.next()? {
                    match (number, found) {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes),
                        (2, Wire::Bytes(bytes)) => kind = text(bytes),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = message(&kind, raw, 0)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, Unread> {
    if depth > DEEPEST {
        return Err(Unread::TooDeep);
    }
    let fields = MESSAGES.get(name).ok_or_else(|| Unread::UnknownMessage(name.to_owned()))?;
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, found)) = reader.next()? {
        let unknown = || Unread::UnknownField { message: name.to_owned(), number };
        let (field, kind) = *fields.get(&number).ok_or_else(unknown)?;
        let wrong = || Unread::WireType { message: name.to_owned(), field };
        if kind == "skip" {
            continue;
        }
        if let Some(kind) = kind.strip_prefix("[]") {
            let item = value(kind, found, depth)?.ok_or_else(wrong)?.item();
            if let Value::Array(list) = object.entry(field).or_insert_with(|| json!([])) {
                list.push(item);
            }
        } else if let Some(kind) = kind.strip_prefix("map:") {
            let Wire::Bytes(entry) = found else { return Err(wrong()) };
            let (key, item) = map_entry(kind, entry, depth)?.ok_or_else(wrong)?;
            let map = object.entry(field).or_insert_with(|| json!({}));
            if let Value::Object(map) = map {
                map.insert(key, item);
            }
        } else {
            match (value(kind, found, depth)?.ok_or_else(wrong)?, field) {
                (Read::Value(Value::Object(inner)), "-") => object.extend(inner),
                (Read::Value(it), _) => {
                    object.insert(field.to_owned(), it);
                }
                (Read::Zero(_), _) => {}
            }
        }
    }
    Ok(object)
}

/// A value that was read, or one that JSON leaves out outside of lists.
enum Read {
    Value(Value),
    Zero(Value),
}

impl Read {
    fn item(self) -> Value {
        match self {
            Self::Value(value) | Self::Zero(value) => value,
        }
    }
}

/// `None`: the wire has something else than the type says.
fn value(kind: &str, found: Wire<'_>, depth: usize) -> Result<Option<Read>, Unread> {
    let (kind, keeps_zero) = match kind.strip_suffix('?') {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    let read = |value: Value, is_zero: bool| {
        Some(if is_zero && !keeps_zero { Read::Zero(value) } else { Read::Value(value) })
    };
    Ok(match (kind, found) {
        ("string", Wire::Bytes(bytes)) => read(text(bytes).into(), bytes.is_empty()),
        ("bytes", Wire::Bytes(bytes)) => read(in_base64(bytes), bytes.is_empty()),
        // Negative numbers are the large ones.
        ("int", Wire::Number(number)) => read(number.cast_signed().into(), number == 0),
        ("bool", Wire::Number(number)) => read((number != 0).into(), number == 0),
        ("Quantity", Wire::Bytes(bytes)) => read(inner_text(bytes, 1)?.into(), false),
        ("Time" | "MicroTime", Wire::Bytes(bytes)) => {
            let seconds = inner_number(bytes, 1)?;
            let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
            read(time.to_string().into(), bytes.is_empty())
        }
        ("IntOrString", Wire::Bytes(bytes)) => {
            let is_text = inner_number(bytes, 1)? == 1;
            let number = || inner_number(bytes, 2);
            let it = if is_text { inner_text(bytes, 3)?.into() } else { number()?.into() };
            read(it, false)
        }
        (
            "string" | "bytes" | "int" | "bool" | "Quantity" | "Time" | "MicroTime" | "IntOrString",
            _,
        ) => None,
        (name, Wire::Bytes(bytes)) => read(Value::Object(message(name, bytes, depth + 1)?), false),
        _ => None,
    })
}

fn map_entry(kind: &str, entry: &[u8], depth: usize) -> Result<Option<(String, Value)>, Unread> {
    let (mut key, mut item) = (String::new(), Some(Value::from("")));
    let mut reader = Reader(entry);
    while let Some((number, found)) = reader.next()? {
        match (number, found) {
            (1, Wire::Bytes(bytes)) => key = text(bytes),
            (2, found) => item = value(kind, found, depth)?.map(Read::item),
            _ => {}
        }
    }
    Ok(item.map(|item| (key, item)))
}

fn inner_text(bytes: &[u8], wanted: u64) -> Result<String, Unread> {
    let mut reader = Reader(bytes);
    let mut last = String::new();
    while let Some((number, found)) = reader.next()? {
        if let (true, Wire::Bytes(bytes)) = (number == wanted, found) {
            last = text(bytes);
        }
    }
    Ok(last)
}

fn inner_number(bytes: &[u8], wanted: u64) -> Result<i64, Unread> {
    let mut reader = Reader(bytes);
    let mut last = 0;
    while let Some((number, found)) = reader.next()? {
        if let (true, Wire::Number(it)) = (number == wanted, found) {
            last = it.cast_signed();
        }
    }
    Ok(last)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn in_base64(bytes: &[u8]) -> Value {
    base64::engine::general_purpose::STANDARD.encode(bytes).into()
}

/// What is left of a message.
struct Reader<'a>(&'a [u8]);

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Reader<'a> {
    /// The next field with its number.
    fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, Unread> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let found = match tag & 7 {
            0 => Wire::Number(self.number()?),
            1 => Wire::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| Unread::BreaksOff)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Bytes(self.take(4)?),
            _ => return Err(Unread::BreaksOff),
        };
        Ok(Some((tag >> 3, found)))
    }

    fn number(&mut self) -> Result<u64, Unread> {
        let mut number = 0;
        for place in 0..10 {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Unread::BreaksOff)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Unread> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Unread::BreaksOff)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that holds bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn object(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &type_meta), &field(2, raw)].concat()
    }

    fn check(kind: &str, raw: &[u8], mut expected: Value) {
        expected["apiVersion"] = "v1".into();
        expected["kind"] = kind.into();
        assert_eq!(to_json(&object(kind, raw)), Ok(expected));
    }

    #[test]
    fn objects_read_as_their_json_does() {
        // Go writes texts that are empty, and a time of creation that is none.
        let metadata = [
            field(1, b"x"),
            field(2, b""),
            vec![7 << 3, 0],
            field(8, b""),
            field(11, &[field(1, b"a"), field(2, b"b")].concat()),
            field(14, b"f1"),
            field(14, b""),
        ];
        let read = json!({"name": "x", "labels": {"a": "b"}, "finalizers": ["f1", ""]});
        let namespace =
            [field(1, &metadata.concat()), field(2, b""), field(3, &field(1, b"Active"))];
        check("Namespace", &namespace.concat(), json!({"metadata": read, "spec": {}}));

        let none_of = field(2, &[1 << 3, 0]);
        check("Deployment", &none_of, json!({"spec": {"replicas": 0}}));
        let quantity = field(1, b"500m");
        let requests = field(2, &[field(1, b"cpu"), field(2, &quantity)].concat());
        let container = [field(1, b"main"), field(8, &requests)].concat();
        let pod = field(2, &field(2, &container));
        let expected = json!({"name": "main", "resources": {"requests": {"cpu": "500m"}}});
        check("Pod", &pod, json!({"spec": {"containers": [expected]}}));
        // A volume's source stands in its place.
        let volume = [field(1, b"v"), field(2, &field(1, &field(1, b"/tmp")))].concat();
        let pod = field(2, &field(1, &volume));
        let expected = json!({"name": "v", "hostPath": {"path": "/tmp"}});
        check("Pod", &pod, json!({"spec": {"volumes": [expected]}}));
        let secret = field(2, &[field(1, b"k"), field(2, b"\xff\x00")].concat());
        check("Secret", &secret, json!({"data": {"k": "/wA="}}));
        for (encoded, expected) in [
            (field(1, &[vec![1 << 3, 1], field(3, b"25%")].concat()), json!("25%")),
            (field(1, &[1 << 3, 0, 2 << 3, 3]), json!(3)),
        ] {
            check(
                "PodDisruptionBudget",
                &field(2, &encoded),
                json!({"spec": {"minAvailable": expected}}),
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let unknown = Unread::UnknownField { message: "Namespace".into(), number: 9 };
        let wrong = Unread::WireType { message: "Namespace".into(), field: "metadata" };
        for (bytes, expected) in [
            (b"{}".to_vec(), Unread::NoMagic),
            (object("Widget", b""), Unread::UnknownMessage("Widget".into())),
            (object("Namespace", &field(9, b"")), unknown),
            (object("Namespace", &[1 << 3, 0]), wrong),
            (object("Namespace", &[1 << 3 | 2, 200]), Unread::BreaksOff),
            (object("Namespace", &[0xff; 11]), Unread::BreaksOff),
            (object("Namespace", &[1 << 3 | 3]), Unread::BreaksOff),
        ] {
            assert_eq!(to_json(&bytes), Err(expected), "{bytes:?}");
        }
    }

    #[test]
    fn every_message_that_is_referred_to_is_there() {
        let scalars = [
            "string",
            "int",
            "bool",
            "bytes",
            "skip",
            "Quantity",
            "Time",
            "MicroTime",
            "IntOrString",
        ];
        for (message, fields) in MESSAGES.iter() {
            for (name, kind) in fields.values() {
                let kind = kind.trim_start_matches("[]").trim_start_matches("map:");
                let kind = kind.trim_end_matches('?');
                let known = scalars.contains(&kind) || MESSAGES.contains_key(kind);
                assert!(known, "{message}.{name}: {kind}");
            }
        }
    }
}
