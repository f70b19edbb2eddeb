//! What people, other programs and attackers put where something else is expected.
#![allow(
    dead_code,
    reason = "each test of a crate is a program of its own and takes what it needs"
)]

use std::time::{Duration, Instant};

use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

/// Far more than one of these cases takes anywhere: what takes as long grows faster than what it is given.
const LONGEST: Duration = Duration::from_mins(1);

/// Texts that mean something to a parser of ours, and nearly so.
const TEXTS: [&str; 34] = [
    "",
    " ",
    "0",
    "-1",
    "1e30",
    "-9e99",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1.7976931348623157e308",
    "100m",
    "0.000000000000000001n",
    "16Ei",
    "1E999999999",
    "NaN",
    "Never",
    "1h0m0.000000001s",
    "2562047h47m16.854775807s",
    "-5m",
    "9999999999999999h",
    "2026-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2026-01-01T00:00:00+99:99",
    "* * * * *",
    "0 0 31 2 *",
    "0-59/1 */1 1,2,3 jan-dec sun-sat",
    "120%",
    "true",
    "kubernetes.io/hostname",
    "karpenter.sh/capacity-type",
    "\u{202e}\u{0}\n\r\u{7f}",
    "<script>alert(1)</script>\"'&",
    "../../../etc/passwd",
];

pub(crate) fn hostile_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(TEXTS.as_slice()).prop_map(str::to_owned),
        2 => ".{0,12}",
        1 => (1_usize..70_000).prop_map(|length| "a".repeat(length)),
        1 => (1_usize..3_000).prop_map(|length| "1,*/".repeat(length)),
    ]
}

/// A value of any type, small or large.
pub(crate) fn anything() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => prop_oneof![-3_i64..100, any::<i64>()].prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        6 => hostile_text().prop_map(Value::from),
        1 => Just(json!([])),
        1 => Just(json!({})),
        1 => Just(json!([{"key": 7}, null])),
        1 => prop::collection::vec(hostile_text(), 0..4).prop_map(Value::from),
        1 => prop::collection::hash_map(hostile_text(), hostile_text(), 0..4)
            .prop_map(|map| map.into_iter().map(|(key, value)| (key, Value::from(value))).collect::<Value>()),
        1 => (1_usize..2_000).prop_map(|length| vec![json!({"key": "a", "operator": "In", "values": ["b"]}); length].into()),
        1 => (1_usize..100).prop_map(|depth| (0..depth).fold(json!(1), |inner, _| json!([inner]))),
    ]
}

/// One to four places, by chance, and what stands there instead.
pub(crate) fn damages() -> impl Strategy<Value = Vec<(Index, Index, Value)>> {
    prop::collection::vec((any::<Index>(), any::<Index>(), anything()), 1..5)
}

/// Puts each value to its place in one of the objects.
pub(crate) fn damage(objects: &mut [Value], damages: Vec<(Index, Index, Value)>) {
    for (object, place, instead) in damages {
        let object = object.index(objects.len());
        let mut found = Vec::new();
        places(&objects[object], "", &mut found);
        let place: &String = place.get(&found);
        *objects[object].pointer_mut(place).expect("it was found") = instead;
    }
}

/// Everything in the value that could be replaced.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                places(field, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// What it gives, if that did not take so long that it would never end for a little more.
pub(crate) fn in_time<T>(work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = work();
    let took = begin.elapsed();
    assert!(took < LONGEST, "it took {took:?}");
    result
}

/// Whether a complaint says something, and in no more than a person reads.
pub(crate) fn is_a_sentence(complaint: &str) -> bool {
    complaint.trim().len() > 8 && complaint.len() < 4_096
}
