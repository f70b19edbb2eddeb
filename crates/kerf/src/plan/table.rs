//! A plan for people.

use std::{collections::BTreeMap, fmt::Write};

use crate::{cli::Output, columns::section};

use super::report::{Buffer, Claim, Placement, Report, Unschedulable};

/// Names shown of a group of pods.
const SHOWN: usize = 2;

pub(super) fn render(report: &Report, output: Output) -> String {
    let sections = [
        claims(report),
        placements(report),
        unschedulable(report, output.verbose),
        buffers(report),
        idle_pools(report),
        notes(report),
    ];
    let mut sections: Vec<_> = sections.into_iter().filter(|text| !text.is_empty()).collect();
    if report.summary.pods == 0 {
        sections.insert(0, "No pod needs a place.\n".to_owned());
    }
    sections.join("\n")
}

/// `1 pod`, `2 pods`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn claims(report: &Report) -> String {
    let summary = &report.summary;
    if report.claims.is_empty() {
        return String::new();
    }
    let title = format!(
        "Launch {} for {}, from {}",
        count(summary.new_claims, "node"),
        count(summary.on_new_claims, "pod"),
        summary.price_per_hour
    );
    let header =
        ["POOL", "PODS", "CHEAPEST TYPE", "TYPES", "PRICE", "ZONE", "CAPACITY", "POD NAMES"];
    section(&title, &header, report.claims.iter().map(claim))
}

fn claim(claim: &Claim) -> [String; 8] {
    let cheapest = claim.cheapest.as_ref();
    let of_cheapest = |text: Option<&String>| text.map_or("-", String::as_str).to_owned();
    [
        claim.pool.clone(),
        claim.pods.len().to_string(),
        of_cheapest(cheapest.map(|it| &it.instance_type)),
        claim.instance_types.len().to_string(),
        cheapest.map_or_else(|| "-".to_owned(), |it| it.price_per_hour.to_string()),
        of_cheapest(cheapest.and_then(|it| it.zone.as_ref())),
        of_cheapest(cheapest.and_then(|it| it.capacity_type.as_ref())),
        pod_names(claim),
    ]
}

fn pod_names(claim: &Claim) -> String {
    let room = |pods| format!("room for {} of buffers", count(pods, "pod"));
    let of_buffers = claim.virtual_pods.map(room);
    let names = Some(shortened(&claim.pods)).filter(|names| !names.is_empty());
    names.into_iter().chain(of_buffers).collect::<Vec<_>>().join(", ")
}

fn placements(report: &Report) -> String {
    if report.placements.is_empty() {
        return String::new();
    }
    let title = format!(
        "Place {} on existing nodes and NodeClaims",
        count(report.summary.on_existing, "pod")
    );
    let row = |placement: &Placement| {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        [
            or_none(&placement.node),
            or_none(&placement.claim),
            placement.pods.len().to_string(),
            shortened(&placement.pods),
        ]
    };
    section(&title, &["NODE", "NODECLAIM", "PODS", "POD NAMES"], report.placements.iter().map(row))
}

fn buffers(report: &Report) -> String {
    if report.buffers.is_empty() {
        return String::new();
    }
    let row = |buffer: &Buffer| {
        let nodes: Vec<_> =
            buffer.nodes.iter().map(|(node, pods)| format!("{node} ({pods})")).collect();
        [
            buffer.key.clone(),
            buffer.ready.to_string(),
            buffer.coming.to_string(),
            buffer.missing.to_string(),
            if nodes.is_empty() { "-".to_owned() } else { shortened(&nodes) },
        ]
    };
    let title = format!("Keep room for {}", count(report.buffers.len(), "buffer"));
    let header = ["BUFFER", "READY", "COMING", "WITHOUT ROOM", "NODES"];
    let mut text = section(&title, &header, report.buffers.iter().map(row));
    for buffer in &report.buffers {
        if let Some(message) = &buffer.message {
            let _ = writeln!(text, "  {}: {message}", buffer.key);
        }
    }
    text
}

/// Pods that are refused for the same reasons, which those of a workload usually are, are told once.
fn unschedulable(report: &Report, verbose: bool) -> String {
    let mut groups: Vec<(&Unschedulable, Vec<String>)> = Vec::new();
    let mut by_message: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &report.unschedulable {
        let group = *by_message.entry(&pod.message).or_insert(groups.len());
        if group == groups.len() {
            groups.push((pod, Vec::new()));
        }
        groups[group].1.push(pod.pod.clone());
    }
    if groups.is_empty() {
        return String::new();
    }
    let mut text = format!("No place for {}\n", count(report.unschedulable.len(), "pod"));
    for (first, names) in groups {
        let _ = writeln!(text, "  {}", shortened(&names));
        if first.pools.is_empty() {
            let _ = writeln!(text, "    {}", first.message);
        }
        for refused in &first.pools {
            let _ = writeln!(text, "    pool {}: {}", refused.pool, refused.message);
            let details = refused.details.as_ref().filter(|_| verbose);
            let _ = details.map_or(Ok(()), |details| writeln!(text, "      {details}"));
        }
    }
    text
}

fn idle_pools(report: &Report) -> String {
    if report.idle_pools.is_empty() {
        return String::new();
    }
    let mut text = format!("Nothing from {}\n", count(report.idle_pools.len(), "pool"));
    for idle in &report.idle_pools {
        let _ = writeln!(text, "  {}: {}", idle.pool, idle.reason);
    }
    text
}

fn notes(report: &Report) -> String {
    let lines = report.notes.iter().map(|note| format!("Note: {note}\n"));
    lines.collect()
}

/// The first names, and how many more there are.
pub(super) fn shortened(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
