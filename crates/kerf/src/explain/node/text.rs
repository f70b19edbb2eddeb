//! One node for people: the answer first, then what it rests on.

use std::fmt::Write;

use kerf_disruption::controls::Bound;
use kerf_model::Price;

use super::{
    CheckReport, Facts, MatchReport, MethodReport, NewDrift, PricesReport, RemedyReport,
    RepairReport, Report, SimulationReport,
};
use crate::{
    columns::facts,
    plan::{CommandReport, count},
};

pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.verdict.sentence);
    text.push_str(&facts(about(report)));
    if let Some(moment) = report.moment.shown() {
        let _ = writeln!(text, "  {moment}");
    }
    if let Some(found) = &report.repair {
        repair(found, &mut text);
    }
    text.push_str("\nWhatever the method\n");
    checks(&report.checks, &mut text);
    for method in &report.methods {
        let _ = writeln!(text, "\n{} {}", method.title, outcome(method));
        checks(&method.checks, &mut text);
        if let Some(simulation) = &method.simulation {
            text.push_str("  without it\n");
            simulated(simulation, &mut text);
        }
        if let Some(prices) = &method.prices {
            let _ = writeln!(
                text,
                "  it costs {}; with a price improvement factor of {} and {} to save per unit of disruption,\n  {}",
                prices.node_price_per_hour,
                prices.price_improvement_factor,
                prices.savings_threshold,
                bound(prices)
            );
        }
    }
    text
}

fn about(report: &Report) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(known) = &report.facts {
        lines.push(("machine", machine(known)));
        lines.push(("NodePool", known.pool.clone()));
    }
    lines.extend(report.node_claim.iter().map(|claim| ("NodeClaim", claim.clone())));
    lines.extend(report.unknown_types.iter().map(|why| ("of its pool", why.clone())));
    if let Some(known) = &report.facts {
        let (pods, cost) = (count(known.pods_to_move, "pod"), known.disruption_cost);
        lines.push(("to move", format!("{pods}, at a disruption cost of {cost:.2}")));
    }
    lines.push(("utilization", report.utilization.clone()));
    lines.extend(report.quiet_since.iter().map(|since| ("quiet since", since.clone())));
    if let Some(NewDrift { from, reason, because }) = &report.new_drift {
        let because = because.as_ref().map(|because| format!(", {because}")).unwrap_or_default();
        lines.push(("drifted", format!("from its {from} as it is here: {reason}{because}")));
    }
    lines
}

fn machine(known: &Facts) -> String {
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    format!(
        "{}, {} in {}, {}",
        or_unknown(&known.instance_type),
        or_unknown(&known.capacity_type),
        or_unknown(&known.zone),
        known.price_per_hour.map_or("price unknown".to_owned(), |price| price.to_string())
    )
}

/// What the method does with it.
fn outcome(method: &MethodReport) -> String {
    match (&method.command, &method.refusal) {
        (Some(command), _) => format!("would {}", done(command)),
        (None, Some(refusal)) => {
            format!("leaves it alone ({}): {}", refusal.reason, refusal.message)
        }
        (None, None) => "says nothing".to_owned(),
    }
}

fn done(command: &CommandReport) -> String {
    let pods = count(command.evictions, "pod");
    let what = match (&command.terminate_first, command.decision) {
        (Some(first), _) => {
            format!("terminate it first and replace it after, moving {pods}: {}", first.shown())
        }
        (None, "delete") => format!("remove it, moving {pods}"),
        (None, "reboot") => return format!("reboot it, evicting {pods}"),
        (None, _) => format!("replace it, moving {pods}"),
    };
    match command.savings_per_hour {
        Some(savings) => format!("{what}, saving {savings}"),
        None => what,
    }
}

/// In as many digits as it has: a rounded bound may be the very price that it excludes.
fn bound(prices: &PricesReport) -> String {
    let in_full = |price: Price| format!("${}/h", price.exact());
    match (prices.replacement_at_most, prices.bound) {
        (None, _) => "no replacement is worth it".to_owned(),
        (Some(_), Bound::Below(price)) => {
            format!("a replacement has to cost less than {}", in_full(price))
        }
        (Some(_), Bound::AtMost(price)) => {
            format!("a replacement may cost at most {}", in_full(price))
        }
    }
}

/// Which policies are about it, and when they want something.
fn repair(found: &RepairReport, text: &mut String) {
    text.push_str("\nIts health\n");
    for one in &found.matches {
        let MatchReport { condition, status, reason, since, policy, due, .. } = one;
        let fallback = if one.is_fallback { ", the fallback" } else { "" };
        let is_due = if one.is_due { "due since" } else { "tolerated until" };
        let because = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let _ = writeln!(text, "  {condition}={status}{because} since {since}");
        let _ = writeln!(text, "    policy {policy}{fallback}, {is_due} {due}");
    }
    let _ = match &found.remedy {
        None => writeln!(text, "  nothing is done yet"),
        Some(RemedyReport { action, condition, instead, drain_seconds }) => {
            let drain = match drain_seconds {
                None => "the drain takes as long as the NodeClaim says".to_owned(),
                Some(0) => "without a drain".to_owned(),
                Some(seconds) => format!("the drain takes {seconds} s at most"),
            };
            let instead = instead.as_ref().map(|why| format!(" instead of RebootNode ({why})"));
            let instead = instead.unwrap_or_default();
            writeln!(text, "  {action}{instead} because of {condition}, {drain}")
        }
    };
}

/// Every line states what is so.
fn checks(checks: &[CheckReport], text: &mut String) {
    for check in checks {
        let _ = match &check.refusal {
            None => writeln!(text, "  ok       {}", check.fact),
            Some(refusal) => {
                let but = if check.but_for_repair { " (repair does not ask)" } else { "" };
                writeln!(text, "  BLOCKS   {}{but}", refusal.message)
            }
        };
    }
}

fn simulated(simulation: &SimulationReport, text: &mut String) {
    for one in &simulation.moves {
        let _ = match (&one.node, one.new_node, &one.refusal) {
            (Some(node), ..) => writeln!(text, "    {} goes to {node}", one.pod),
            (_, Some(at), _) => writeln!(text, "    {} goes to new node {}", one.pod, at + 1),
            (_, _, Some(refusal)) => {
                writeln!(text, "    {} has no other place: {}", one.pod, refusal.message)
            }
            (None, None, None) => Ok(()),
        };
    }
    for (at, claim) in simulation.new_nodes.iter().enumerate() {
        let _ = writeln!(text, "    new node {} of {}", at + 1, claim.offer());
    }
}
