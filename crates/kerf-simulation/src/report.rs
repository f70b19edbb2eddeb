//! What a run comes to, in figures.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::{ledger::Ledger, play::Play};

/// The figures of a run, or the means of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub name: String,
    /// Dollars, as are all amounts of money here.
    #[serde(serialize_with = "amount")]
    #[schemars(with = "String")]
    pub cost: f64,
    /// Pods that had to go though they would have run on.
    pub evictions: u64,
    /// Nodes.
    pub launched: u64,
    pub terminated: u64,
    /// Nodes that were gone within 30 minutes.
    pub short_lived: u64,
    /// Nodes that consolidation decided to take away within ten minutes after their launch.
    pub reconsolidated: u64,
    /// Consolidations that were not done, by the reason.
    pub blocked: BTreeMap<String, u64>,
    /// Nodes that went, by the reason.
    pub removed: BTreeMap<String, u64>,
    pub node_hours: f64,
    pub pods_started: u64,
    /// Pods that were restarted more than once within an hour.
    pub restarted_often: u64,
    /// Waited for all together, from creation until running.
    pub pending_seconds: f64,
    pub pending_at_end: usize,
    /// The share of the CPUs paid for that pods asked for.
    pub cpu_fill: f64,
    pub peak_nodes: usize,
    #[serde(serialize_with = "amount")]
    #[schemars(with = "String")]
    pub peak_price_per_hour: f64,
    /// Had the most expensive moment lasted all the time.
    #[serde(serialize_with = "amount")]
    #[schemars(with = "String")]
    pub cost_at_peak: f64,
    /// Against the policy that evicts nothing; missing where that was not run.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_amount")]
    #[schemars(with = "Option<String>")]
    pub savings: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_amount")]
    #[schemars(with = "Option<String>")]
    pub savings_per_eviction: Option<f64>,
    /// The least and the most of several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// How far runs that differ in their seed only lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    #[serde(serialize_with = "amounts")]
    #[schemars(with = "(String, String)")]
    pub cost: (f64, f64),
    pub evictions: (u64, u64),
}

/// A moment of a run, for plots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub hours: f64,
    pub nodes: f64,
    pub price_per_hour: f64,
    pub cost: f64,
    pub evictions: f64,
    pub pending: f64,
}

impl Summary {
    pub fn of(play: &Play) -> Self {
        let blocked = counted(&play.metrics(), BLOCKED, "reason");
        Self { blocked, ..Self::of_ledger(play.ledger()) }
    }

    /// What a ledger knows: all but what the operator alone knows.
    pub(crate) fn of_ledger(ledger: &Ledger) -> Self {
        let totals = ledger.totals();
        let hours = ledger.now().duration_since(ledger.opened()).as_secs_f64() / 3600.0;
        let peak = totals.peak_price.as_f64();
        Self {
            name: ledger.policy().to_owned(),
            cost: rounded(totals.cost()),
            evictions: totals.evictions,
            launched: totals.launched,
            terminated: totals.terminated,
            short_lived: totals.short_lived,
            reconsolidated: totals.reconsolidated,
            blocked: BTreeMap::new(),
            removed: totals.removals.clone(),
            node_hours: rounded(totals.node_hours()),
            pods_started: totals.pods_started,
            restarted_often: totals.restarted_often,
            pending_seconds: rounded(totals.pending_seconds()),
            pending_at_end: ledger.pending_pods(),
            cpu_fill: rounded(totals.cpu_fill()),
            peak_nodes: totals.peak_nodes,
            peak_price_per_hour: rounded(peak),
            cost_at_peak: rounded(peak * hours),
            savings: None,
            savings_per_eviction: None,
            spread: None,
        }
    }

    /// What came and went, in the order of the tables: pods restarted often, nodes launched, terminated, short-lived,
    /// consolidated again.
    pub fn churn(&self) -> [u64; 5] {
        [
            self.restarted_often,
            self.launched,
            self.terminated,
            self.short_lived,
            self.reconsolidated,
        ]
    }

    /// The means of several runs; of one run, that run.
    pub(crate) fn mean(runs: &[&Self]) -> Self {
        let count = runs.len();
        let runs = runs.iter().copied();
        let amount =
            |of: fn(&Self) -> f64| rounded(runs.clone().map(of).sum::<f64>() / count as f64);
        let number = |of: fn(&Self) -> u64| whole(runs.clone().map(of).sum::<u64>(), count);
        let size = |of: fn(&Self) -> usize| runs.clone().map(of).sum::<usize>().div_ceil(count);
        let counts = |of: fn(&Self) -> &BTreeMap<String, u64>| {
            let mut sums: BTreeMap<String, u64> = BTreeMap::new();
            for (reason, times) in runs.clone().flat_map(of) {
                *sums.entry(reason.clone()).or_default() += times;
            }
            sums.into_iter().map(|(reason, times)| (reason, whole(times, count))).collect()
        };
        let costs = || runs.clone().map(|run| run.cost);
        let evictions = || runs.clone().map(|run| run.evictions);
        Self {
            name: runs.clone().next().map(|run| run.name.clone()).unwrap_or_default(),
            cost: amount(|run| run.cost),
            evictions: number(|run| run.evictions),
            launched: number(|run| run.launched),
            terminated: number(|run| run.terminated),
            short_lived: number(|run| run.short_lived),
            reconsolidated: number(|run| run.reconsolidated),
            blocked: counts(|run| &run.blocked),
            removed: counts(|run| &run.removed),
            node_hours: amount(|run| run.node_hours),
            pods_started: number(|run| run.pods_started),
            restarted_often: number(|run| run.restarted_often),
            pending_seconds: amount(|run| run.pending_seconds),
            pending_at_end: size(|run| run.pending_at_end),
            cpu_fill: amount(|run| run.cpu_fill),
            peak_nodes: size(|run| run.peak_nodes),
            peak_price_per_hour: amount(|run| run.peak_price_per_hour),
            cost_at_peak: amount(|run| run.cost_at_peak),
            savings: None,
            savings_per_eviction: None,
            spread: (count > 1).then(|| Spread {
                cost: (
                    costs().min_by(f64::total_cmp).unwrap_or_default(),
                    costs().max_by(f64::total_cmp).unwrap_or_default(),
                ),
                evictions: (
                    evictions().min().unwrap_or_default(),
                    evictions().max().unwrap_or_default(),
                ),
            }),
        }
    }

    /// Says what this run saved, given what it cost to evict nothing.
    pub(crate) fn measure_against(&mut self, baseline: f64) {
        let saved = baseline - self.cost;
        self.savings = Some(rounded(saved));
        self.savings_per_eviction =
            (self.evictions > 0).then(|| rounded(saved / self.evictions as f64));
    }
}

impl Sample {
    pub(crate) fn of(ledger: &Ledger, elapsed: Duration) -> Self {
        Self {
            hours: elapsed.as_secs_f64() / 3600.0,
            nodes: ledger.nodes().len() as f64,
            price_per_hour: ledger.price_per_hour().as_f64(),
            cost: ledger.totals().cost(),
            evictions: ledger.totals().evictions as f64,
            pending: ledger.pending_pods() as f64,
        }
    }

    /// What several runs were like at the same time.
    pub(crate) fn mean(runs: &[Self]) -> Self {
        let amount = |of: fn(&Self) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        Self {
            hours: amount(|run| run.hours),
            nodes: amount(|run| run.nodes),
            price_per_hour: amount(|run| run.price_per_hour),
            cost: amount(|run| run.cost),
            evictions: amount(|run| run.evictions),
            pending: amount(|run| run.pending),
        }
    }
}

/// Money is text, as in all answers of commands: a reader that takes it for a float decides so itself.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn amount<S: Serializer>(amount: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(amount)
}

#[expect(clippy::ref_option, reason = "serde passes references")]
fn optional_amount<S: Serializer>(amount: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match amount {
        Some(amount) => serializer.collect_str(amount),
        None => serializer.serialize_none(),
    }
}

fn amounts<S: Serializer>((least, most): &(f64, f64), serializer: S) -> Result<S::Ok, S::Error> {
    (least.to_string(), most.to_string()).serialize(serializer)
}

const BLOCKED: &str = "karpenter_consolidation_blocked_total";

/// A counter's values by one of its labels, from metrics in text form.
fn counted(metrics: &str, name: &str, label: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in metrics.lines() {
        let Some(rest) = line.strip_prefix(name).and_then(|rest| rest.strip_prefix('{')) else {
            continue;
        };
        let Some((labels, count)) = rest.rsplit_once("} ") else { continue };
        let value = labels.split(&format!("{label}=\"")).nth(1).and_then(|v| v.split('"').next());
        if let (Some(value), Ok(count)) = (value, count.trim().parse::<u64>()) {
            *counts.entry(value.to_owned()).or_default() += count;
        }
    }
    counts
}

/// The nearest whole number to a mean.
fn whole(sum: u64, count: usize) -> u64 {
    let count = (count as u64).max(1);
    (sum + count / 2) / count
}

/// To four decimals: less than a cent, and no digits that floats made up.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_runs_are_reported_by_their_means_and_how_far_they_lie_apart() {
        let run = |cost, evictions, pdb| Summary {
            name: "a".into(),
            cost,
            evictions,
            blocked: [("pdb".to_owned(), pdb)].into(),
            ..Summary::default()
        };
        let runs = [run(1.0, 10, 0), run(2.0, 11, 3), run(4.5, 30, 3)];
        let mean = Summary::mean(&runs.each_ref());
        assert_eq!((mean.cost, mean.evictions, mean.blocked["pdb"]), (2.5, 17, 2));
        assert_eq!(mean.spread, Some(Spread { cost: (1.0, 4.5), evictions: (10, 30) }));
        assert_eq!(Summary::mean(&[&runs[0]]), runs[0], "one run is its own mean");
    }

    #[test]
    fn counters_are_added_up_by_their_label() {
        let metrics = "# TYPE karpenter_consolidation_blocked_total counter\n\
             karpenter_consolidation_blocked_total{nodepool=\"a\",reason=\"pdb\"} 3\n\
             karpenter_consolidation_blocked_total{nodepool=\"b\",reason=\"pdb\"} 4\n\
             karpenter_consolidation_blocked_total{nodepool=\"b\",reason=\"budget\"} 1\n\
             karpenter_other_total{reason=\"pdb\"} 9\n";
        let counts = counted(metrics, BLOCKED, "reason");
        assert_eq!(counts, [("budget".to_owned(), 1), ("pdb".to_owned(), 7)].into());
    }
}
