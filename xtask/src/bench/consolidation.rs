//! `cargo xtask bench consolidation`

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::problem::{Filling, Problem};
use super::side::{Pass, Patience, Side};
use super::{Comparing, load, write};
use crate::Output;

/// Upstream looks at each node in the light of all the others, so its time grows with the square of their number:
/// past this it is not asked.
const MOST_FOR_UPSTREAM: usize = 500;

pub(super) fn run(arguments: &Comparing) -> Result<()> {
    let problems = arguments.chosen(problems(arguments.quick))?;
    let (kerf, upstream) = arguments.sides()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut cases = Vec::new();
    for problem in &problems {
        cases.push(compare(problem, &kerf, upstream.as_ref(), arguments.timeout)?);
    }
    match arguments.output {
        Output::Json => {
            let cases: Vec<_> = cases.iter().map(Case::to_json).collect();
            println!("{:#}", json!({"cores": cores, "cases": cases}));
        }
        Output::Table => {
            println!("{}", heading());
            for case in &cases {
                print!("{}", case.to_text());
            }
        }
    }
    Ok(())
}

fn problems(quick: bool) -> Vec<Problem> {
    let sizes: &[usize] = if quick { &[100] } else { &[500, 2000, 10_000] };
    let each = |nodes: &usize| {
        [Filling::Plain, Filling::Diverse, Filling::Oversized].map(|one| Problem::full(*nodes, one))
    };
    sizes.iter().flat_map(each).collect()
}

struct Case {
    name: String,
    nodes: usize,
    kerf: Pass,
    upstream: Option<Pass>,
    load: Option<f64>,
}

fn compare(problem: &Problem, kerf: &Side, upstream: Option<&Side>, timeout: u64) -> Result<Case> {
    let load = load();
    let file = write(problem)?;
    let timeout_after = Duration::from_secs(timeout);
    eprint!("{}: Kerf ", problem.name);
    let patience = Patience { runs: 9, enough: Duration::from_secs(30), timeout: timeout_after };
    let kerf = middle(&kerf.consolidate(file.path(), patience)?)
        .with_context(|| format!("Kerf did not finish {} in {timeout} s", problem.name))?;
    eprint!("{:.3} s, upstream ", kerf.seconds);
    let patience = Patience { runs: 3, enough: Duration::from_mins(2), timeout: timeout_after };
    let upstream = match upstream.filter(|_| problem.nodes <= MOST_FOR_UPSTREAM) {
        None => None,
        Some(side) => middle(&side.consolidate(file.path(), patience)?),
    };
    match &upstream {
        Some(pass) => eprintln!("{:.1} s", pass.seconds),
        None => eprintln!("not asked, or not finished"),
    }
    Ok(Case { name: problem.name.clone(), nodes: problem.nodes, kerf, upstream, load })
}

/// The pass that is in the middle by its time; none when there was none.
fn middle(passes: &[Pass]) -> Option<Pass> {
    let mut sorted = passes.to_vec();
    sorted.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    sorted.get(sorted.len() / 2).copied()
}

impl Case {
    fn ratio(&self) -> Option<f64> {
        Some(self.upstream?.seconds / self.kerf.seconds)
    }

    /// Of processor time, which other load on the machine hardly changes.
    fn cpu_ratio(&self) -> Option<f64> {
        Some(self.upstream?.cpu_seconds / self.kerf.cpu_seconds)
    }

    fn to_json(&self) -> Value {
        let upstream = self.upstream.as_ref();
        json!({
            "name": self.name,
            "nodes": self.nodes,
            "kerf_seconds": self.kerf.seconds,
            "upstream_seconds": upstream.map(|pass| pass.seconds),
            "ratio": self.ratio(),
            "kerf_cpu_seconds": self.kerf.cpu_seconds,
            "upstream_cpu_seconds": upstream.map(|pass| pass.cpu_seconds),
            "cpu_ratio": self.cpu_ratio(),
            "kerf_peak_mib": self.kerf.peak_mib,
            "upstream_peak_mib": upstream.map(|pass| pass.peak_mib),
            "kerf_candidates": self.kerf.candidates,
            "upstream_candidates": upstream.map(|pass| pass.candidates),
            "kerf_commands": self.kerf.commands,
            "upstream_commands": upstream.map(|pass| pass.commands),
            "load": self.load,
        })
    }

    /// A line for each side.
    fn to_text(&self) -> String {
        let kerf = row(&self.name, "Kerf", &self.kerf);
        let Some(upstream) = &self.upstream else { return format!("{kerf}\n") };
        let ratios = self.ratio().zip(self.cpu_ratio()).map_or(String::new(), |(time, cpu)| {
            format!("{:<20} {time:.0} times faster, {cpu:.0} times less CPU\n", "")
        });
        format!("{kerf}\n{}\n{ratios}", row("", "upstream", upstream))
    }
}

fn heading() -> String {
    format!(
        "{:<20} {:<9} {:>9} {:>9} {:>9} {:>10} {:>8} {:>10} {:>9}",
        "case",
        "",
        "set-up s",
        "seconds",
        "CPU s",
        "candidates",
        "commands",
        "MiB in all",
        "peak MiB"
    )
}

fn row(name: &str, side: &str, pass: &Pass) -> String {
    format!(
        "{name:<20} {side:<9} {:>9.4} {:>9.4} {:>9.4} {:>10} {:>8} {:>10.0} {:>9.0}",
        pass.setup_seconds,
        pass.seconds,
        pass.cpu_seconds,
        pass.candidates,
        pass.commands,
        pass.allocated_mib,
        pass.peak_mib,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(seconds: f64) -> Pass {
        Pass {
            setup_seconds: 0.0,
            seconds,
            cpu_seconds: 2.0 * seconds,
            candidates: 5,
            commands: 0,
            allocated_mib: 1.0,
            peak_mib: 8.0,
        }
    }

    #[test]
    fn compares_the_passes_in_the_middle() {
        let case = |upstream: &[f64]| Case {
            name: "tight-5".to_owned(),
            nodes: 5,
            kerf: middle(&[pass(0.5), pass(0.1), pass(0.2)]).expect("three passes"),
            upstream: middle(&upstream.iter().map(|seconds| pass(*seconds)).collect::<Vec<_>>()),
            load: None,
        };
        let json = case(&[40.0]).to_json();
        assert_eq!((&json["kerf_seconds"], &json["ratio"]), (&0.2.into(), &200.0.into()));
        let alone = case(&[]).to_json();
        for field in ["upstream_seconds", "ratio", "cpu_ratio", "upstream_peak_mib"] {
            assert_eq!(alone[field], Value::Null, "{field}");
        }
    }
}
