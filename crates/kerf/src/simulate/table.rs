//! A comparison for people.

use std::fmt::Write;

use kerf_simulation::{Comparison, Summary};

use crate::columns;

pub(super) fn render(comparison: &Comparison) -> String {
    let title = format!(
        "{}: {}, {}",
        comparison.scenario,
        comparison.shown_length(),
        comparison.shown_seeds()
    );
    let header = [
        "POLICY",
        "COST",
        "SAVED",
        "PER EVICTION",
        "EVICTED",
        "AGAIN",
        "LAUNCHED",
        "REMOVED",
        "<30M",
        "<10M",
        "NODE-HOURS",
        "CPU",
        "PENDING",
    ];
    let mut text = columns::figures(&title, &header, comparison.policies.iter().map(row));
    for policy in &comparison.policies {
        let removed = counts(&policy.removed);
        let blocked = counts(&policy.blocked);
        if removed.is_empty() && blocked.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}", policy.name);
        if !removed.is_empty() {
            let _ = writeln!(text, "  removed   {removed}");
        }
        if !blocked.is_empty() {
            let _ = writeln!(text, "  refused   {blocked}");
        }
    }
    text
}

fn row(policy: &Summary) -> [String; 13] {
    let money = |amount: Option<f64>, decimals| {
        amount.map_or_else(|| "-".to_owned(), |amount| format!("{amount:.decimals$}"))
    };
    let (mut cost, mut evictions) = (format!("{:.2}", policy.cost), policy.evictions.to_string());
    if let Some(spread) = policy.spread {
        let _ = write!(cost, " ({:.2}-{:.2})", spread.cost.0, spread.cost.1);
        let _ = write!(evictions, " ({}-{})", spread.evictions.0, spread.evictions.1);
    }
    let [again, launched, removed, short, shortest] = policy.churn().map(|count| count.to_string());
    [
        policy.name.clone(),
        cost,
        money(policy.savings, 2),
        money(policy.savings_per_eviction, 4),
        evictions,
        again,
        launched,
        removed,
        short,
        shortest,
        format!("{:.0}", policy.node_hours),
        format!("{:.0}%", policy.cpu_fill * 100.0),
        duration(policy.pending_seconds),
    ]
}

/// The most frequent first.
fn counts(counts: &std::collections::BTreeMap<String, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by(|(a, m), (b, n)| n.cmp(m).then_with(|| a.cmp(b)));
    let counts = counts.into_iter().map(|(reason, count)| format!("{count} {reason}"));
    counts.collect::<Vec<_>>().join(", ")
}

fn duration(seconds: f64) -> String {
    let minutes = seconds / 60.0;
    if minutes < 60.0 { format!("{minutes:.0}m") } else { format!("{:.1}h", minutes / 60.0) }
}
