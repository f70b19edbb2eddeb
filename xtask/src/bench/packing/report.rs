//! What came out, as a table and as JSON.

use std::fmt::Write;

use bench_bound::{Bound, Kind};
use serde_json::{Value, json};

use crate::bench::side::Run;

pub(super) struct Case {
    pub(super) name: String,
    pub(super) pods: u32,
    /// By seed.
    pub(super) outcomes: Vec<Outcome>,
}

pub(super) struct Outcome {
    pub(super) seed: u64,
    pub(super) bound: Bound,
    /// The plan as the operator makes it.
    pub(super) today: Run,
    /// With the search for cheaper machines.
    pub(super) packed: Run,
    /// None where it was not asked, or not done in time.
    pub(super) upstream: Option<Run>,
}

/// Over the seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    least: f64,
    mean: f64,
    most: f64,
}

impl Range {
    /// None of no numbers.
    fn of(numbers: &[f64]) -> Option<Self> {
        let fold = |start, pick: fn(f64, f64) -> f64| numbers.iter().copied().fold(start, pick);
        (!numbers.is_empty()).then(|| Self {
            least: fold(f64::INFINITY, f64::min),
            mean: numbers.iter().sum::<f64>() / numbers.len() as f64,
            most: fold(f64::NEG_INFINITY, f64::max),
        })
    }

    fn to_json(self) -> Value {
        json!({"min": self.least, "mean": self.mean, "max": self.most})
    }
}

type Side = fn(&Outcome) -> Option<&Run>;
const SIDES: [(&str, Side); 3] = [
    ("today", |outcome| Some(&outcome.today)),
    ("packed", |outcome| Some(&outcome.packed)),
    ("upstream", |outcome| outcome.upstream.as_ref()),
];

impl Outcome {
    /// By how much a plan is above the bound. A plan that leaves pods out says nothing.
    fn gap(&self, run: &Run) -> Option<f64> {
        (run.unplaced == 0).then(|| run.price / self.bound.price - 1.0)
    }
}

impl Case {
    fn range(&self, side: Side, number: impl Fn(&Outcome, &Run) -> Option<f64>) -> Option<Range> {
        let runs = self.outcomes.iter().filter_map(|outcome| number(outcome, side(outcome)?));
        Range::of(&runs.collect::<Vec<_>>())
    }

    fn gaps(&self, side: Side) -> Option<Range> {
        self.range(side, Outcome::gap)
    }

    /// For the line of progress.
    pub(super) fn in_short(&self) -> String {
        let gaps = SIDES.iter().filter_map(|(name, side)| {
            Some(format!("{name} {:.1} %", 100.0 * self.gaps(*side)?.mean))
        });
        format!("above the bound: {}", gaps.collect::<Vec<_>>().join(", "))
    }

    pub(super) fn to_json(&self) -> Value {
        let side = |(name, side): &(&str, Side)| {
            let range = |number: fn(&Outcome, &Run) -> Option<f64>| {
                self.range(*side, number).map(Range::to_json)
            };
            let summary = json!({
                "gap": range(Outcome::gap),
                "price": range(|_, run| Some(run.price)),
                "nodes": range(|_, run| Some(run.claims as f64)),
                "types_per_claim": range(|_, run| Some(run.types_per_claim)),
                "cpu_seconds": range(|_, run| Some(run.cpu_seconds)),
                "unplaced": range(|_, run| Some(run.unplaced as f64)),
            });
            ((*name).to_owned(), summary)
        };
        let seed = |outcome: &Outcome| {
            let run = |run: &Run| {
                json!({
                    "price": run.price,
                    "gap": outcome.gap(run),
                    "nodes": run.claims,
                    "cpu_seconds": run.cpu_seconds,
                    "unplaced": run.unplaced,
                    "types_per_claim": run.types_per_claim,
                })
            };
            json!({
                "seed": outcome.seed,
                "bound": outcome.bound.price,
                "bound_kind": kind(outcome.bound.kind),
                "today": run(&outcome.today),
                "packed": run(&outcome.packed),
                "upstream": outcome.upstream.as_ref().map(run),
            })
        };
        json!({
            "name": self.name,
            "pods": self.pods,
            "sides": SIDES.iter().map(side).collect::<serde_json::Map<_, _>>(),
            "seeds": self.outcomes.iter().map(seed).collect::<Vec<_>>(),
        })
    }

    /// A line for each side.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        let bounds: Vec<_> = self.outcomes.iter().map(|outcome| outcome.bound.price).collect();
        let kinds = self.outcomes.iter().map(|outcome| outcome.bound.kind);
        let worst = kinds.min_by_key(|kind| *kind == Kind::Patterns);
        let (mut name, mut bound) = (self.name.as_str(), String::new());
        if let (Some(range), Some(worst)) = (Range::of(&bounds), worst) {
            bound = format!("{:.2} {}", range.mean, kind(worst));
        }
        for (side, run) in SIDES {
            let Some(price) = self.range(run, |_, run| Some(run.price)) else { continue };
            let percent = |pick: fn(&Range) -> f64| {
                let gap = self.gaps(run).map(|range| format!("{:.1}", 100.0 * pick(&range)));
                gap.unwrap_or("-".to_owned())
            };
            let mean = |number: fn(&Run) -> f64| {
                self.range(run, |_, run| Some(number(run))).map_or(0.0, |range| range.mean)
            };
            let types = match mean(|run| run.types_per_claim) {
                0.0 => "-".to_owned(),
                types => format!("{types:.1}"),
            };
            let cpu = self.range(run, |_, run| Some(1000.0 * run.cpu_seconds));
            let _ = writeln!(
                text,
                "{name:<32} {bound:>16} {side:<9} {:>7} {:>7} {:>7} {:>9.2} {:>7.1} {types:>6} {:>9.1} {:>9.1}",
                percent(|range| range.least),
                percent(|range| range.mean),
                percent(|range| range.most),
                price.mean,
                mean(|run| run.claims as f64),
                cpu.map_or(0.0, |range| range.mean),
                cpu.map_or(0.0, |range| range.most),
            );
            let unplaced = self.range(run, |_, run| Some(run.unplaced as f64));
            if let Some(unplaced) = unplaced.filter(|range| range.most > 0.0) {
                let most = unplaced.most;
                let _ =
                    writeln!(text, "{:<32} {side} leaves up to {most} pods without a place", "");
            }
            (name, bound) = ("", String::new());
        }
        text
    }
}

pub(super) fn heading() -> String {
    format!(
        "{:<32} {:>16} {:<9} {:>7} {:>7} {:>7} {:>9} {:>7} {:>6} {:>9} {:>9}",
        "case",
        "bound $/h",
        "",
        "gap min",
        "mean %",
        "max",
        "$/h",
        "nodes",
        "types",
        "CPU ms",
        "max"
    )
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Fractions => "shares",
        Kind::Patterns => "pods",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(price: f64, unplaced: usize) -> Run {
        Run {
            setup_seconds: 0.0,
            solve_seconds: 0.1,
            cpu_seconds: 0.1,
            claims: 3,
            price,
            unplaced,
            on_nodes: 0,
            allocations: 1,
            allocated_mib: 1.0,
            peak_mib: 8.0,
            types_per_claim: 20.0,
        }
    }

    fn outcome(seed: u64, today: Run, packed: f64) -> Outcome {
        let bound = Bound { price: 10.0, kind: Kind::Patterns };
        Outcome { seed, bound, today, packed: run(packed, 0), upstream: None }
    }

    #[test]
    fn gaps_have_ranges_over_the_seeds() {
        let outcomes = vec![outcome(1, run(12.0, 0), 10.5), outcome(2, run(14.0, 0), 11.5)];
        let case = Case { name: "wide-100-spot".to_owned(), pods: 100, outcomes };
        let today = case.gaps(|outcome| Some(&outcome.today)).unwrap();
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(today.least, 0.2) && near(today.mean, 0.3) && near(today.most, 0.4));
        let text = case.to_text();
        assert!(text.contains("20.0    30.0    40.0"), "{text}");
        assert!(text.contains("5.0    10.0    15.0"), "{text}");
        assert_eq!(case.to_json()["sides"]["upstream"]["gap"], Value::Null);
    }

    #[test]
    fn a_plan_that_leaves_pods_out_has_no_gap() {
        let outcomes = vec![outcome(1, run(8.0, 2), 10.5)];
        let case = Case { name: "wide-100-spot".to_owned(), pods: 100, outcomes };
        assert_eq!(case.gaps(|outcome| Some(&outcome.today)), None);
        assert!(case.to_text().contains("today leaves up to 2 pods"), "{}", case.to_text());
    }
}
