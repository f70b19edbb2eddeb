//! Server-side tables: what `kubectl get` prints.

use super::meta;
use super::read;
use super::resources::Resource;
use super::store::Object;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) fn of(
    resource: &Resource,
    objects: &mut dyn Iterator<Item = &Object>,
    whole: bool,
    now: Timestamp,
) -> Value {
    let columns = columns(resource);
    let mut newest = 0;
    let rows: Vec<_> = objects
        .map(|object| {
            newest = newest.max(object.revision);
            let cells: Vec<_> =
                columns.iter().map(|column| column.cell(&object.value, now)).collect();
            let shown = if whole {
                serde_json::from_slice(&read::whole_json(resource, object)).unwrap_or_default()
            } else {
                read::partial(object)
            };
            json!({ "cells": cells, "object": shown })
        })
        .collect();
    let definitions: Vec<_> = columns
        .iter()
        .map(|column| {
            let format = if column.name == "Name" { "name" } else { "" };
            json!({
                "name": column.name, "type": column.kind, "format": format, "description": "",
                "priority": column.priority,
            })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": newest.to_string() },
        "columnDefinitions": definitions, "rows": rows,
    })
}

struct Column {
    name: String,
    kind: String,
    priority: i64,
    source: Source,
}

enum Source {
    Path(Vec<Step>),
    Computed(fn(&Value) -> Value),
}

enum Step {
    Field(String),
    /// `[?(@.type=="Ready")]`: the first item whose field has this value.
    Item(String, String),
}

impl Column {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.find(object);
        match self.kind.as_str() {
            "date" => meta::parse_time(&found).map_or_else(
                || "<unknown>".into(),
                |time| age_in_words(now.duration_since(time).as_secs()).into(),
            ),
            "integer" if found.is_null() => 0.into(),
            _ => found,
        }
    }

    fn find(&self, object: &Value) -> Value {
        match &self.source {
            Source::Computed(compute) => compute(object),
            Source::Path(steps) => {
                let found = steps.iter().fold(object, |value, step| match step {
                    Step::Field(name) => value.get(name).unwrap_or(meta::NOTHING),
                    Step::Item(key, wanted) => {
                        let items = value.as_array().into_iter().flatten();
                        items
                            .into_iter()
                            .find(|item| item[key] == wanted.as_str())
                            .unwrap_or(meta::NOTHING)
                    }
                });
                found.clone()
            }
        }
    }
}

fn columns(resource: &Resource) -> Vec<Column> {
    let mut columns = vec![path_column("Name", "string", "metadata.name")];
    if let Some(schema) = &resource.custom {
        let defined = schema.columns().as_array().cloned().unwrap_or_default();
        for column in &defined {
            let text = |key: &str| meta::text(column, &[key]);
            let mut made = path_column(text("name"), text("type"), text("jsonPath"));
            made.priority = column["priority"].as_i64().unwrap_or(0);
            columns.push(made);
        }
        if defined.is_empty() {
            columns.push(age());
        }
        return columns;
    }
    let computed = |name: &str, compute: fn(&Value) -> Value| Column {
        name: name.into(),
        kind: "string".into(),
        priority: 0,
        source: Source::Computed(compute),
    };
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            columns.push(computed("Ready", |pod| {
                let total = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
                let ready = if has_condition(pod, "Ready") { total } else { 0 };
                format!("{ready}/{total}").into()
            }));
            columns.push(computed("Status", |pod| {
                if meta::is_deleting(pod) {
                    "Terminating".into()
                } else {
                    pod["status"]["phase"].clone()
                }
            }));
            columns.push(computed("Restarts", |_| "0".into()));
            columns.push(age());
            let mut node = path_column("Node", "string", "spec.nodeName");
            node.priority = 1;
            columns.push(node);
            return columns;
        }
        ("", "nodes") => {
            columns.push(computed("Status", |node| {
                let ready = if has_condition(node, "Ready") { "Ready" } else { "NotReady" };
                let cordoned =
                    if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
                format!("{ready}{cordoned}").into()
            }));
            columns.push(computed("Roles", |_| "<none>".into()));
            columns.push(age());
            columns.push(path_column("Version", "string", "status.nodeInfo.kubeletVersion"));
            return columns;
        }
        ("apps", "deployments" | "statefulsets") => {
            columns.push(computed("Ready", |w| {
                let count = |value: &Value| value.as_i64().unwrap_or(0);
                format!(
                    "{}/{}",
                    count(&w["status"]["readyReplicas"]),
                    count(&w["spec"]["replicas"])
                )
                .into()
            }));
            columns.push(path_column("Up-to-date", "integer", "status.updatedReplicas"));
            columns.push(path_column("Available", "integer", "status.availableReplicas"));
        }
        ("apps", "replicasets") => {
            columns.push(path_column("Desired", "integer", "spec.replicas"));
            columns.push(path_column("Current", "integer", "status.replicas"));
            columns.push(path_column("Ready", "integer", "status.readyReplicas"));
        }
        ("apps", "daemonsets") => {
            columns.push(path_column("Desired", "integer", "status.desiredNumberScheduled"));
            columns.push(path_column("Current", "integer", "status.currentNumberScheduled"));
            columns.push(path_column("Ready", "integer", "status.numberReady"));
        }
        ("policy", "poddisruptionbudgets") => {
            columns.push(path_column("Min Available", "string", "spec.minAvailable"));
            columns.push(path_column("Max Unavailable", "string", "spec.maxUnavailable"));
            columns.push(path_column(
                "Allowed Disruptions",
                "integer",
                "status.disruptionsAllowed",
            ));
        }
        ("", "namespaces") => columns.push(path_column("Status", "string", "status.phase")),
        ("coordination.k8s.io", "leases") => {
            columns.push(path_column("Holder", "string", "spec.holderIdentity"));
        }
        ("" | "events.k8s.io", "events") => {
            columns.clear();
            columns.push(path_column("Last Seen", "date", "lastTimestamp"));
            columns.push(path_column("Type", "string", "type"));
            columns.push(path_column("Reason", "string", "reason"));
            columns.push(computed("Object", |event| {
                let about = &event["involvedObject"];
                let part = |key: &str| meta::text(about, &[key]);
                format!("{}/{}", part("kind").to_lowercase(), part("name")).into()
            }));
            columns.push(path_column("Message", "string", "message"));
            return columns;
        }
        _ => {}
    }
    columns.push(age());
    columns
}

fn age() -> Column {
    path_column("Age", "date", "metadata.creationTimestamp")
}

/// Two units at most, and the smaller one only while it matters.
fn age_in_words(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let and =
        |rest: i64, unit: &str| if rest == 0 { String::new() } else { format!("{rest}{unit}") };
    match seconds {
        ..0 => "<invalid>".into(),
        0..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}", and(seconds % 60, "s")),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format!("{hours}h{}", and(minutes % 60, "m")),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => format!("{days}d{}", and(hours % 24, "h")),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => format!("{}y{}", days / 365, and(days % 365, "d")),
        _ => format!("{}y", days / 365),
    }
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == kind && c["status"] == "True")
}

fn path_column(name: &str, kind: &str, path: &str) -> Column {
    Column {
        name: name.into(),
        kind: kind.into(),
        priority: 0,
        source: Source::Path(parse_path(path)),
    }
}

/// The part of `JSONPath` that printer columns use: fields, escaped dots, and one-condition filters.
fn parse_path(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut field = String::new();
    let mut rest = path.trim_start_matches('.').chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => field.extend(rest.next()),
            '.' => steps.push(Step::Field(std::mem::take(&mut field))),
            '[' => {
                if !field.is_empty() {
                    steps.push(Step::Field(std::mem::take(&mut field)));
                }
                let inner: String = rest.by_ref().take_while(|c| *c != ']').collect();
                let inner = inner.trim_start_matches("?(@.").trim_end_matches(')');
                if let Some((key, value)) = inner.split_once("==") {
                    steps.push(Step::Item(key.into(), value.trim_matches(['"', '\'']).into()));
                }
                if rest.peek() == Some(&'.') {
                    rest.next();
                }
            }
            other => field.push(other),
        }
    }
    if !field.is_empty() {
        steps.push(Step::Field(field));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, expected) in [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (700, "11m"),
            (10_860, "3h1m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (70_000_000, "2y80d"),
        ] {
            assert_eq!(age_in_words(seconds), expected, "{seconds}");
        }
    }
}
