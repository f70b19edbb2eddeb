//! Events are stored once and served under two groups, which name the same fields differently.

use serde_json::{Map, Value};

pub(super) const GROUP: &str = "events.k8s.io";

/// Name in `v1`, name in `events.k8s.io/v1`.
const RENAMED: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

pub(super) fn to_group(event: &Value) -> Value {
    let mut event = rename(event, |(core, group)| (core, group));
    move_field(&mut event, "count", "deprecatedCount");
    Value::Object(event)
}

pub(super) fn to_core(event: &Value) -> Value {
    let mut event = rename(event, |(core, group)| (group, core));
    move_field(&mut event, "deprecatedCount", "count");
    Value::Object(event)
}

fn rename(
    event: &Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Map<String, Value> {
    let mut event = event.as_object().cloned().unwrap_or_default();
    for pair in RENAMED {
        let (from, to) = direction(pair);
        move_field(&mut event, from, to);
    }
    event
}

fn move_field(event: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = event.remove(from) {
        event.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_reads_the_same_after_a_round_trip() {
        let core = json!({ "involvedObject": { "name": "a" }, "message": "hello", "count": 2, "type": "Normal" });
        let group = to_group(&core);
        assert_eq!(
            group,
            json!({ "regarding": { "name": "a" }, "note": "hello", "deprecatedCount": 2, "type": "Normal" })
        );
        assert_eq!(to_core(&group), core);
    }
}
