//! What time it was in the cluster that files were taken from.

use jiff::Timestamp;
use serde_json::Value;

/// `takenAt` is said by snapshots; the others by objects, of which dumps by kubectl consist. What lies ahead of an object (a
/// deletion that waits for its grace period) does not tell what time it was.
const TIMES: [&str; 6] = [
    "takenAt",
    "creationTimestamp",
    "lastTransitionTime",
    "lastHeartbeatTime",
    "lastPodEventTime",
    "startTime",
];

/// The last time at which something is known to have happened, anywhere in a document.
pub fn newest(document: &Value) -> Option<Timestamp> {
    match document {
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(field, value)| match value {
                Value::String(time) if TIMES.contains(&field.as_str()) => time.parse().ok(),
                other => newest(other),
            })
            .max(),
        Value::Array(items) => items.iter().filter_map(newest).max(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_that_happened_tells_the_time() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let check = |document: &Value, expected: Option<&str>| {
            let told = newest(document).map(|time| time.to_string());
            assert_eq!(told.as_deref(), expected, "{document}");
        };
        check(
            &json!({"kind": "NodePool", "metadata": {"name": "p", "creationTimestamp": null}}),
            None,
        );
        check(
            &json!({"metadata": {"creationTimestamp": early, "deletionTimestamp": late}}),
            Some(early),
        );
        check(&json!({"metadata": {"annotations": {"startTime": "soon"}}}), None);
        let claim =
            json!({"metadata": {"creationTimestamp": early}, "status": {"lastPodEventTime": late}});
        check(&claim, Some(late));
        let ready = json!({"status": {"conditions": [{"lastTransitionTime": early, "lastHeartbeatTime": late}]}});
        check(&ready, Some(late));
        check(&json!({"kind": "List", "items": [{"startTime": early}, claim]}), Some(late));
        check(
            &json!({"kind": "List", "takenAt": late, "items": [{"startTime": early}]}),
            Some(late),
        );
    }
}
