//! One pod for people.

use std::fmt::Write;

use super::Report;
use crate::columns::facts;

pub(crate) fn render(report: &Report, verbose: bool) -> String {
    let mut text = format!("{}\n", report.verdict.sentence);
    let requests = report.requests.iter().map(|requests| {
        let requests = requests.iter().map(|(name, amount)| format!("{name} {amount}"));
        ("asks for", requests.collect::<Vec<_>>().join(", "))
    });
    let node = report.node_verdict.iter().map(|node| ("its node", node.sentence.clone()));
    let lines: Vec<_> = requests.filter(|(_, value)| !value.is_empty()).chain(node).collect();
    let moment = report.moment.shown();
    if !lines.is_empty() || moment.is_some() {
        text.push('\n');
    }
    text.push_str(&facts(lines));
    if let Some(moment) = moment {
        let _ = writeln!(text, "  {moment}");
    }
    if !report.pools.is_empty() {
        text.push_str("\nNodePools\n");
        let details = |details: &String| ("", details.clone());
        text.push_str(&facts(report.pools.iter().flat_map(|one| {
            let details = one.details.as_ref().filter(|_| verbose).map(details);
            [(one.pool.as_str(), one.message.clone())].into_iter().chain(details)
        })));
    }
    text
}
