//! `cargo xtask bench`

mod arrival;
mod consolidation;
mod go_random;
mod lower_bound;
mod packing;
mod problem;
mod report;
mod side;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use serde_json::json;
use tempfile::NamedTempFile;

use self::lower_bound::lower_bound;
use self::problem::{Preferences, Problem};
use self::report::{Case, Score, Upstream};
use self::side::{Patience, Side};
use crate::Output;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Schedule the same pods with Kerf and with upstream Karpenter, and compare
    Scheduling(Comparing),
    /// Look at every node of full clusters with Kerf and with upstream Karpenter, and compare
    Consolidation(Comparing),
    /// Plan pods with EC2's types and prices, and compare what the plans cost with a lower bound
    Packing(packing::Packing),
    /// Let a thousand pods arrive in virtual time, and measure what is launched and evicted until nothing happens any more
    Arrival(arrival::Arrival),
}

#[derive(Args)]
pub(crate) struct Comparing {
    /// Small cases only: a minute or two instead of many
    #[arg(long)]
    quick: bool,
    /// Only the cases with this in their name
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Leave upstream out; Go is not needed then
    #[arg(long)]
    kerf_only: bool,
    /// Seconds that a side gets for one case
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Scheduling(arguments) => scheduling(&arguments),
        Command::Consolidation(arguments) => consolidation::run(&arguments),
        Command::Packing(arguments) => packing::run(&arguments),
        Command::Arrival(arguments) => arrival::run(&arguments),
    }
}

impl Comparing {
    /// Those of `--only`.
    fn chosen(&self, mut problems: Vec<Problem>) -> Result<Vec<Problem>> {
        let part = self.only.as_deref().unwrap_or_default();
        problems.retain(|problem| problem.name.contains(part));
        ensure!(!problems.is_empty(), "no case has {part:?} in its name");
        Ok(problems)
    }

    /// Kerf, and upstream unless it is left out.
    fn sides(&self) -> Result<(Side, Option<Side>)> {
        Ok((Side::kerf()?, if self.kerf_only { None } else { Some(Side::upstream()?) }))
    }
}

fn scheduling(arguments: &Comparing) -> Result<()> {
    let problems = arguments.chosen(problems(arguments.quick))?;
    let (kerf, upstream) = arguments.sides()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    eprintln!(
        "{cores} cores, load {}",
        load().map_or("unknown".to_owned(), |load| load.to_string())
    );

    let mut cases = Vec::new();
    for problem in &problems {
        cases.push(compare(problem, &kerf, upstream.as_ref(), arguments)?);
    }
    match arguments.output {
        Output::Json => {
            let cases: Vec<_> = cases.iter().map(Case::to_json).collect();
            println!("{:#}", json!({"cores": cores, "cases": cases}));
        }
        Output::Table => {
            println!("{}", report::heading());
            for case in &cases {
                print!("{}", case.to_text());
            }
        }
    }
    Ok(())
}

fn problems(quick: bool) -> Vec<Problem> {
    let sizes: &[usize] = if quick {
        &[100, 500]
    } else {
        &[1, 50, 100, 500, 1000, 1500, 2000, 5000, 10_000, 20_000]
    };
    let mut problems: Vec<_> = sizes.iter().map(|count| Problem::diverse(*count)).collect();
    let (generic, preferring, existing, buffered) =
        if quick { (500, 200, (100, 100), 100) } else { (5000, 4000, (1000, 5000), 10_000) };
    problems.extend([
        Problem::generic(generic),
        Problem::preferring(preferring, Preferences::Respect),
        Problem::preferring(preferring, Preferences::Ignore),
        Problem::existing(existing.0, existing.1),
        Problem::buffered(buffered, buffered),
    ]);
    problems
}

fn compare(
    problem: &Problem,
    kerf: &Side,
    upstream: Option<&Side>,
    arguments: &Comparing,
) -> Result<Case> {
    let load = load();
    let file = write(problem)?;
    let timeout = Duration::from_secs(arguments.timeout);
    let pods = problem.pods.len() + problem.virtual_pods.len();
    eprint!("{}: Kerf ", problem.name);
    let patience = Patience { runs: 9, enough: Duration::from_secs(20), timeout };
    let runs = kerf.schedule(file.path(), problem.preferences, patience)?;
    let kerf = Score::of(&runs).with_context(|| {
        format!("Kerf did not finish {} in {} s", problem.name, arguments.timeout)
    })?;
    eprint!("{:.0} pods/s, upstream ", kerf.rate(pods));
    // Three runs of what takes seconds, one of what takes minutes.
    let patience = Patience { runs: 3, enough: Duration::from_mins(1), timeout };
    let upstream = match upstream {
        None => Upstream::NotAsked,
        Some(side) => Score::of(&side.schedule(file.path(), problem.preferences, patience)?)
            .map_or(Upstream::NotFinished(timeout), Upstream::Finished),
    };
    eprintln!("{}", upstream.to_text(pods));
    Ok(Case {
        name: problem.name.clone(),
        pods,
        unconstrained: problem.is_unconstrained(),
        // Pods that go on nodes that exist cost nothing.
        lower_bound: if problem.nodes == 0 { lower_bound(problem) } else { None },
        kerf,
        upstream,
        load,
    })
}

/// The problem in a file that is gone with the value.
fn write(problem: &Problem) -> Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix("kerf-bench-").suffix(".ndjson").tempfile()?;
    let mut out = BufWriter::new(File::create(file.path())?);
    problem.write(&mut out)?;
    out.flush()?;
    Ok(file)
}

/// The average number of processes that wanted to run in the last minute.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
