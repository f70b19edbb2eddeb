//! What the demo came to.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use kerf_simulation::Summary;

pub(super) fn render(summary: &Summary, lived: Duration, took: Duration) -> String {
    let minutes = lived.as_secs() / 60;
    let mut text = format!(
        "\n{}h{:02}m of a cluster under the policy {}, in {:.1} s\n",
        minutes / 60,
        minutes % 60,
        summary.name,
        took.as_secs_f64()
    );
    let mut line = |name: &str, rest: String| {
        let _ = writeln!(text, "  {name:<10} {rest}");
    };
    line(
        "nodes",
        format!(
            "{} launched, {} terminated, {} of them within 30 minutes; at most {} at a time",
            summary.launched, summary.terminated, summary.short_lived, summary.peak_nodes
        ),
    );
    line(
        "pods",
        format!(
            "{} started, {} evicted, {} of them again within an hour; {:.0} s pending each",
            summary.pods_started,
            summary.evictions,
            summary.restarted_often,
            summary.pending_seconds / (summary.pods_started.max(1) as f64)
        ),
    );
    line(
        "money",
        format!(
            "${:.2} for {:.1} node-hours, {:.0}% of the CPU requested; ${:.2} if the peak had stayed",
            summary.cost,
            summary.node_hours,
            summary.cpu_fill * 100.0,
            summary.cost_at_peak
        ),
    );
    line("removed", by_reason(&summary.removed));
    line("refused", by_reason(&summary.blocked));
    text
}

/// The most frequent first.
fn by_reason(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "nothing".to_owned();
    }
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), (*reason).clone()));
    let counts = counts.into_iter().map(|(reason, count)| format!("{count} {reason}"));
    counts.collect::<Vec<_>>().join(", ")
}
