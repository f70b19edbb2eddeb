//! What came out, for people and for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::side::Run;

/// A problem and how both sides did on it.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) pods: usize,
    pub(crate) unconstrained: bool,
    pub(crate) lower_bound: Option<f64>,
    pub(crate) kerf: Score,
    pub(crate) upstream: Upstream,
    /// Of the machine before the case began: numbers taken under load compare badly.
    pub(crate) load: Option<f64>,
}

pub(crate) enum Upstream {
    Finished(Score),
    NotFinished(Duration),
    NotAsked,
}

impl Upstream {
    pub(crate) fn to_text(&self, pods: usize) -> String {
        match self {
            Self::Finished(score) => format!("{:.0} pods/s", score.rate(pods)),
            Self::NotFinished(timeout) => format!("not finished in {} s", timeout.as_secs()),
            Self::NotAsked => "not run".to_owned(),
        }
    }
}

/// The runs of one side in one number each.
#[derive(Clone, Copy)]
pub(crate) struct Score {
    runs: usize,
    /// Of the run in the middle.
    solve_seconds: f64,
    setup_seconds: f64,
    cpu_seconds: f64,
    /// The rest is that of the first run: later ones find memory that was used already, and the plan is the same.
    first: Run,
}

impl Score {
    /// None when there was no run.
    pub(crate) fn of(runs: &[Run]) -> Option<Self> {
        let first = *runs.first()?;
        let median = |seconds: fn(&Run) -> f64| {
            let mut sorted: Vec<_> = runs.iter().map(seconds).collect();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        Some(Self {
            runs: runs.len(),
            solve_seconds: median(|run| run.solve_seconds),
            setup_seconds: median(|run| run.setup_seconds),
            cpu_seconds: median(|run| run.cpu_seconds),
            first,
        })
    }

    pub(crate) fn rate(&self, pods: usize) -> f64 {
        pods as f64 / self.solve_seconds
    }

    fn to_json(self) -> Value {
        json!({
            "runs": self.runs,
            "setup_seconds": self.setup_seconds,
            "solve_seconds": self.solve_seconds,
            "cpu_seconds": self.cpu_seconds,
            "on_nodes": self.first.on_nodes,
            "unplaced": self.first.unplaced,
            "allocations": self.first.allocations,
            "allocated_mib": self.first.allocated_mib,
        })
    }
}

impl Case {
    fn upstream(&self) -> Option<&Score> {
        match &self.upstream {
            Upstream::Finished(score) => Some(score),
            Upstream::NotFinished(_) | Upstream::NotAsked => None,
        }
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.kerf.rate(self.pods) / self.upstream()?.rate(self.pods))
    }

    /// Of processor time, which other load on the machine hardly changes.
    fn cpu_ratio(&self) -> Option<f64> {
        Some(self.upstream()?.cpu_seconds / self.kerf.cpu_seconds)
    }

    /// By how much Kerf's price is above the bound, where the bound means something.
    fn gap(&self) -> Option<f64> {
        let bound = self.lower_bound.filter(|_| self.unconstrained)?;
        Some(self.kerf.first.price / bound - 1.0)
    }

    pub(crate) fn to_json(&self) -> Value {
        let upstream = self.upstream();
        json!({
            "name": self.name,
            "pods": self.pods,
            "kerf_pods_per_s": self.kerf.rate(self.pods),
            "upstream_pods_per_s": upstream.map(|score| score.rate(self.pods)),
            "ratio": self.ratio(),
            "cpu_ratio": self.cpu_ratio(),
            "kerf_nodes": self.kerf.first.claims,
            "upstream_nodes": upstream.map(|score| score.first.claims),
            "kerf_price": self.kerf.first.price,
            "upstream_price": upstream.map(|score| score.first.price),
            "lower_bound": self.lower_bound,
            "gap": self.gap(),
            "kerf_peak_mib": self.kerf.first.peak_mib,
            "upstream_peak_mib": upstream.map(|score| score.first.peak_mib),
            "kerf": self.kerf.to_json(),
            "upstream": upstream.map(|score| score.to_json()),
            "load": self.load,
        })
    }

    /// A line for each side.
    pub(crate) fn to_text(&self) -> String {
        let kerf = row(&self.name, "Kerf", self.pods, &self.kerf);
        let upstream = match &self.upstream {
            Upstream::Finished(score) => row("", "upstream", self.pods, score),
            other => format!("{:<28} {:<9} {}", "", "upstream", other.to_text(self.pods)),
        };
        let mut notes = Vec::new();
        notes.extend(self.ratio().map(|ratio| format!("{ratio:.0} times upstream's rate")));
        notes.extend(self.cpu_ratio().map(|ratio| format!("{ratio:.0} times less CPU")));
        if let Some(score) = self.upstream().filter(|score| score.setup_seconds > 0.1) {
            notes.push(format!("upstream's set-up of {:.1} s not counted", score.setup_seconds));
        }
        notes.extend(self.gap().map(|gap| format!("{:.1} % above the lower bound", 100.0 * gap)));
        let unplaced = self.kerf.first.unplaced;
        if unplaced > 0 {
            notes.push(format!("Kerf leaves {unplaced} pods without a place"));
        }
        if let Some(score) = self.upstream().filter(|score| score.first.unplaced > 0) {
            notes.push(format!("upstream leaves {} pods without a place", score.first.unplaced));
        }
        if notes.is_empty() {
            format!("{kerf}\n{upstream}\n")
        } else {
            format!("{kerf}\n{upstream}\n{:<28} {}\n", "", notes.join(", "))
        }
    }
}

pub(crate) fn heading() -> String {
    format!(
        "{:<28} {:<9} {:>9} {:>9} {:>9} {:>7} {:>9} {:>11} {:>10} {:>9}",
        "case",
        "",
        "seconds",
        "CPU s",
        "pods/s",
        "nodes",
        "$/h",
        "allocations",
        "MiB in all",
        "peak MiB"
    )
}

fn row(name: &str, side: &str, pods: usize, score: &Score) -> String {
    let run = score.first;
    format!(
        "{name:<28} {side:<9} {:>9.4} {:>9.4} {:>9.0} {:>7} {:>9.2} {:>11} {:>10.0} {:>9.0}",
        score.solve_seconds,
        score.cpu_seconds,
        score.rate(pods),
        run.claims,
        run.price,
        run.allocations,
        run.allocated_mib,
        run.peak_mib,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(solve_seconds: f64, price: f64) -> Run {
        Run {
            setup_seconds: 0.0,
            solve_seconds,
            cpu_seconds: solve_seconds,
            claims: 3,
            price,
            unplaced: 0,
            on_nodes: 0,
            allocations: 1,
            allocated_mib: 1.0,
            peak_mib: 8.0,
            types_per_claim: 0.0,
        }
    }

    fn case(upstream: Upstream) -> Case {
        let kerf = Score::of(&[run(0.5, 11.0), run(0.1, 11.0), run(0.2, 11.0)]);
        Case {
            name: "generic-100".to_owned(),
            pods: 100,
            unconstrained: true,
            lower_bound: Some(10.0),
            kerf: kerf.expect("three runs"),
            upstream,
            load: None,
        }
    }

    #[test]
    fn compares_the_runs_in_the_middle() {
        let upstream = Score::of(&[run(20.0, 12.0)]).expect("a run");
        let json = case(Upstream::Finished(upstream)).to_json();
        assert_eq!(json["kerf_pods_per_s"], 500.0);
        assert_eq!(json["upstream_pods_per_s"], 5.0);
        assert_eq!(json["ratio"], 100.0);
        assert_eq!((&json["kerf_price"], &json["upstream_price"]), (&11.0.into(), &12.0.into()));
    }

    #[test]
    fn makes_up_no_numbers_for_a_side_that_did_not_finish() {
        let case = case(Upstream::NotFinished(Duration::from_mins(1)));
        let json = case.to_json();
        for field in ["upstream_pods_per_s", "ratio", "upstream_nodes", "upstream_price"] {
            assert_eq!(json[field], Value::Null, "{field}");
        }
        assert!(case.to_text().contains("not finished in 60 s"), "{}", case.to_text());
    }

    #[test]
    fn measures_the_gap_only_where_resources_decide() {
        let free = case(Upstream::NotAsked);
        assert!(free.gap().is_some_and(|gap| (gap - 0.1).abs() < 1e-9));
        assert_eq!(Case { unconstrained: false, ..free }.gap(), None);
    }
}
