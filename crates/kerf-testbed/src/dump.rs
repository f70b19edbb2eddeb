//! The cluster in words, for a person who wonders why a test failed.

use crate::api::{Api, meta};
use serde_json::Value;
use std::fmt::Write;

/// More lines of one kind than this help nobody.
const MOST: usize = 40;

impl Api {
    pub(crate) fn dump(&self) -> String {
        let mut out = String::new();
        for (group, plural, count) in self.inhabited() {
            if matches!(
                plural.as_str(),
                "customresourcedefinitions" | "priorityclasses" | "namespaces"
            ) {
                continue;
            }
            let _ = writeln!(out, "{plural} ({count})");
            let mut lines = 0;
            self.each(&group, &plural, |object| {
                lines += 1;
                if lines <= MOST {
                    let _ = writeln!(out, "  {}", line(&plural, object));
                }
            });
            if count > MOST {
                let _ = writeln!(out, "  and {} more", count - MOST);
            }
        }
        out
    }
}

fn line(plural: &str, object: &Value) -> String {
    let mut line = match meta::namespace(object) {
        "" => meta::name(object).to_owned(),
        namespace => format!("{namespace}/{}", meta::name(object)),
    };
    let mut add = |text: &str| {
        if !text.is_empty() {
            line.push(' ');
            line.push_str(text);
        }
    };
    add(meta::text(object, &["status", "phase"]));
    if plural == "events" {
        add(meta::text(object, &["reason"]));
        add(meta::text(object, &["message"]));
    }
    for path in [
        &["spec", "nodeName"],
        &["status", "nodeName"],
        &["spec", "providerID"],
        &["status", "providerID"],
    ] {
        add(meta::text(object, path));
    }
    let taints = object["spec"]["taints"].as_array().into_iter().flatten();
    for taint in taints.filter(|_| plural == "nodes") {
        add(&format!("taint:{}:{}", meta::text(taint, &["key"]), meta::text(taint, &["effect"])));
    }
    for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
        let (kind, status) = (meta::text(condition, &["type"]), meta::text(condition, &["status"]));
        let reason = if status == "True" { "" } else { meta::text(condition, &["reason"]) };
        add(&format!("{kind}={status}{}{reason}", if reason.is_empty() { "" } else { "/" }));
    }
    if let Some(replicas) = object["spec"]["replicas"].as_i64() {
        add(&format!(
            "{}/{replicas} replicas",
            object["status"]["readyReplicas"].as_i64().unwrap_or(0)
        ));
    }
    if meta::is_deleting(object) {
        add(&format!("deleting, held by {:?}", meta::finalizers(object)));
    }
    line
}
