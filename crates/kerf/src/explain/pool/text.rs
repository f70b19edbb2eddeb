//! One NodePool for people.

use std::{collections::BTreeSet, fmt::Write};

use super::Report;
use crate::columns::section;

pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.verdict.sentence);
    if let Some(replicas) = report.replicas {
        let _ = writeln!(text, "  static: keeps {replicas} nodes, and consolidates none");
    }
    let _ = writeln!(
        text,
        "  policy {}, consolidateAfter {}\n  utilization threshold {}, price improvement factor {}, \
         savings threshold {}, grace period {}",
        report.policy,
        report.consolidate_after,
        report.utilization_threshold,
        report.price_improvement_factor,
        report.savings_threshold,
        report.grace_period
    );
    if let Some(rest) = &report.drift_rests {
        let _ = writeln!(
            text,
            "  drift rests {}: replacing {} of its nodes failed, the last time because {}",
            rest.until
                .map_or_else(|| "while one node is tried".to_owned(), |it| format!("until {it}")),
            rest.nodes,
            rest.message
        );
    }
    for line in report.unknown_types.iter().cloned().chain(report.moment.shown()) {
        let _ = writeln!(text, "  {line}");
    }
    text.push('\n');
    if !report.overlays.is_empty() {
        let overlays = report.overlays.iter().map(|one| {
            [
                one.overlay.clone(),
                one.priced_offerings.to_string(),
                one.types_with_capacity.to_string(),
            ]
        });
        let header = ["OVERLAY", "PRICED OFFERINGS", "TYPES WITH CAPACITY"];
        text.push_str(&section("NodeOverlays that change instance types", &header, overlays));
        text.push('\n');
    }
    let budgets = report.budgets.iter().map(|budget| {
        [
            budget.nodes.clone(),
            budget.reasons.as_ref().map_or("all".to_owned(), |reasons| reasons.join(",")),
            budget.schedule.clone().unwrap_or_else(|| "always".to_owned()),
            budget.duration.clone().unwrap_or_else(|| "-".to_owned()),
            match (&budget.error, budget.active) {
                (Some(error), _) => format!("allows nothing: {error}"),
                (None, active) => if active { "yes" } else { "no" }.to_owned(),
            },
        ]
    });
    let header = ["NODES", "REASONS", "SCHEDULE", "DURATION", "ACTIVE"];
    text.push_str(&section("Budgets", &header, budgets));
    for reason in unasked(report) {
        let _ = writeln!(
            text,
            "  {reason}: nothing is disrupted for this reason; --feature-gates=NodeRepair=true switches repair on"
        );
    }
    text.push('\n');
    let allowances = report.allowances.iter().map(|one| {
        [
            one.reason.to_owned(),
            one.nodes.to_string(),
            one.allowed.map_or_else(|| "unlimited".to_owned(), |allowed| allowed.to_string()),
            one.disrupting.to_string(),
        ]
    });
    let header = ["REASON", "NODES", "ALLOWED", "DISRUPTING"];
    text.push_str(&section("May be disrupted at a time", &header, allowances));
    text.push('\n');
    let nodes = report.nodes.iter().map(|node| {
        let verdict = match (&node.refusal, node.decision) {
            (Some(refusal), _) => format!("stays ({}): {}", refusal.reason, refusal.message),
            (None, decision) => {
                let reboots = decision == Some("reboot");
                let saves = node.savings_per_hour.filter(|_| !reboots);
                let saves = saves.map(|savings| format!(", saves {savings}"));
                let (decision, reason) =
                    (decision.unwrap_or_default(), node.reason.unwrap_or_default());
                let goes = match decision {
                    "delete" => "removed",
                    "terminate-first" => "terminated first and replaced after",
                    "reboot" => "rebooted",
                    _ => "replaced",
                };
                format!("would be {goes} ({reason}){}", saves.unwrap_or_default())
            }
        };
        let price = node.price_per_hour.map_or("unknown".to_owned(), |price| price.to_string());
        [node.node.clone(), price, node.pods.to_string(), verdict]
    });
    let header = ["NODE", "PRICE", "PODS", "BY ITSELF"];
    text.push_str(&section("Nodes", &header, nodes));
    text
}

/// Reasons that budgets name and that hold nothing back.
fn unasked(report: &Report) -> BTreeSet<&'static str> {
    let named = report.budgets.iter().filter_map(|budget| budget.reasons.as_ref()).flatten();
    let is_asked = |reason: &&str| report.allowances.iter().any(|one| one.reason == *reason);
    named.copied().filter(|reason| !is_asked(reason)).collect()
}
