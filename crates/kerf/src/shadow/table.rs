//! A report for people.

use std::fmt::Write;

use kerf_shadow::Report;
use kerf_simulation::Summary;

use crate::columns;

/// The verdict first, then the figures, then what to bear in mind.
pub(super) fn render(report: &Report) -> String {
    let mut text = format!("{}\n{}\n\n", report.verdict, report.calibration.text);
    let title = format!(
        "{:.1} h, {} to {} (record: {:.1} MiB)",
        report.hours,
        report.from.strftime("%Y-%m-%d %H:%M"),
        report.to.strftime("%Y-%m-%d %H:%M UTC"),
        report.bytes as f64 / f64::from(1 << 20)
    );
    let header = [
        "",
        "COST",
        "EVICTED",
        "AGAIN",
        "LAUNCHED",
        "REMOVED",
        "<30M",
        "NODE-HOURS",
        "CPU",
        "PENDING",
    ];
    let rows = std::iter::once(&report.running).chain(&report.policies).map(row);
    text.push_str(&columns::figures(&title, &header, rows));
    for one in std::iter::once(&report.running).chain(&report.policies) {
        if one.removed.is_empty() {
            continue;
        }
        let removed = one.removed.iter().map(|(reason, count)| format!("{count} {reason}"));
        let removed = removed.collect::<Vec<_>>().join(", ");
        let _ = write!(text, "\n{} removed {removed}", one.name);
    }
    text.push_str("\n\nAGAIN: pods evicted twice within an hour. <30M: nodes that lived less than 30 minutes. CPU: the share of the\n");
    text.push_str("CPUs paid for that pods asked for. PENDING: all waiting of pods together.\n\nBear in mind\n");
    for caveat in &report.caveats {
        let _ = writeln!(text, "- {caveat}");
    }
    text
}

fn row(one: &Summary) -> [String; 10] {
    let [again, launched, removed, short, _] = one.churn().map(|count| count.to_string());
    [
        one.name.clone(),
        format!("{:.2}", one.cost),
        one.evictions.to_string(),
        again,
        launched,
        removed,
        short,
        format!("{:.0}", one.node_hours),
        format!("{:.0}%", one.cpu_fill * 100.0),
        format!("{:.0}m", one.pending_seconds / 60.0),
    ]
}
