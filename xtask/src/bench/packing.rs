//! `cargo xtask bench packing`

mod dice;
mod market;
mod pods;
mod report;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bench_bound::{Bound, Problem as Bounded};
use clap::Args;
use serde_json::json;
use tempfile::NamedTempFile;

use self::market::{BARGAINS, Market, Terms};
use self::pods::{Deployment, Mix, read_trace, sorts};
use self::report::{Case, Outcome, heading};
use super::side::{Patience, Run, Side};
use super::{Comparing, load};
use crate::Output;

/// Each case is drawn as often as there are seeds, with other pods and other spot prices each time. Its plans are compared with a
/// lower bound that no plan can be below; the gap to it is what is lost at most.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench packing --quick --kerf-only       a first look: one size of each kind of pods, three seeds
  cargo xtask bench packing --only spot --kerf-only   the cases on spot
  cargo xtask bench packing --only large-1000         one kind of pods, beside upstream
  cargo xtask bench packing --trace openb_pod_list_default.csv --only trace

The list of pods openb_pod_list_default.csv is in the directory cluster-trace-gpu-v2023 of github.com/alibaba/clusterdata.

Reading the table: a gap of 5 % says that the plan costs 5 % more than the bound. The best plan that there is is somewhere
between, so a gap is an upper limit of what could be saved. `pods` in the column `bound` means that pods are kept whole (the better
bound), `shares` that pods and machines may both be cut.")]
pub(crate) struct Packing {
    #[command(flatten)]
    comparing: Comparing,
    /// How often each case is drawn; 10 if not given, 3 with --quick
    #[arg(long, value_name = "COUNT")]
    seeds: Option<u64>,
    /// What the search for cheaper machines may cost, in looks at sorts of pods; a million takes some 15 ms
    #[arg(long, value_name = "LOOKS", default_value_t = 1_500_000)]
    budget: u64,
    /// Rounds of the search for a better lower bound; the bound holds after any number of them
    #[arg(long, value_name = "COUNT", default_value_t = 30)]
    rounds: usize,
    /// A list of pods to draw from: comma-separated, with the columns `cpu_milli` and `memory_mib`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Pods of one kind, and what can be bought for them.
struct Setting {
    name: String,
    mix: Mix,
    pods: u32,
    terms: Terms,
    bargains: bool,
}

pub(super) fn run(arguments: &Packing) -> Result<()> {
    let trace = arguments.trace.as_deref().map(read_trace).transpose()?.unwrap_or_default();
    let comparing = &arguments.comparing;
    let part = comparing.only.as_deref().unwrap_or_default();
    let mut settings = settings(comparing.quick, !trace.is_empty());
    settings.retain(|setting| setting.name.contains(part));
    ensure!(!settings.is_empty(), "no case has {part:?} in its name");
    let (kerf, upstream) = comparing.sides()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let types = Market::new(Terms::OnDemand, 0)?.types();
    let load = load().map_or("unknown".to_owned(), |load| load.to_string());
    eprintln!("{cores} cores, load {load}; {types} instance types");
    let bench = Bench { arguments, trace, kerf, upstream };
    let mut cases = Vec::new();
    for (at, setting) in settings.iter().enumerate() {
        eprint!("{} of {}: {} ", at + 1, settings.len(), setting.name);
        let case = bench.case(setting)?;
        eprintln!(" {}", case.in_short());
        cases.push(case);
    }
    match comparing.output {
        Output::Json => {
            let cases: Vec<_> = cases.iter().map(Case::to_json).collect();
            let budget = arguments.budget;
            println!(
                "{:#}",
                json!({"cores": cores, "types": types, "budget": budget, "cases": cases})
            );
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

/// Every mix in sizes up to 1,000 pods, some with 5,000; without bargains at 1,000.
fn settings(quick: bool, with_trace: bool) -> Vec<Setting> {
    let mut settings = Vec::new();
    let traced = with_trace.then_some(Mix::Trace);
    for mix in Mix::GENERATED.into_iter().chain(traced) {
        for pods in [100, 1000, 5000] {
            let many = [Mix::Wide, Mix::Zones, Mix::Openb, Mix::Trace].contains(&mix);
            if pods > if quick { 100 } else { 1000 } && (quick || !many) {
                continue;
            }
            for (terms, name) in [(Terms::OnDemand, "on-demand"), (Terms::Spot, "spot")] {
                let name = format!("{}-{pods}-{name}", mix.name());
                if pods == 1000 || quick {
                    let name = format!("{name}-without-{BARGAINS}");
                    settings.push(Setting { name, mix, pods, terms, bargains: false });
                }
                settings.push(Setting { name, mix, pods, terms, bargains: true });
            }
        }
    }
    settings
}

struct Bench<'a> {
    arguments: &'a Packing,
    trace: Vec<(u64, u64)>,
    kerf: Side,
    upstream: Option<Side>,
}

impl Bench<'_> {
    fn case(&self, setting: &Setting) -> Result<Case> {
        let seeds =
            self.arguments.seeds.unwrap_or(if self.arguments.comparing.quick { 3 } else { 10 });
        let mut outcomes = Vec::new();
        for seed in 1..=seeds {
            let outcome = self.outcome(setting, seed);
            outcomes.push(outcome.with_context(|| format!("{}, seed {seed}", setting.name))?);
            eprint!(".");
        }
        Ok(Case { name: setting.name.clone(), pods: setting.pods, outcomes })
    }

    fn outcome(&self, setting: &Setting, seed: u64) -> Result<Outcome> {
        let deployments = setting.mix.draw(setting.pods, seed, &self.trace);
        let mut market = Market::new(setting.terms, seed)?;
        if !setting.bargains {
            market = market.without_bargains();
        }
        let file = write(&market, &deployments)?;
        let timeout = Duration::from_secs(self.arguments.comparing.timeout);
        let patience = Patience { runs: 3, enough: timeout, timeout };
        let today = middle(&self.kerf.pack(file.path(), 0, patience)?);
        let packed = middle(&self.kerf.pack(file.path(), self.arguments.budget, patience)?);
        let patience = Patience { runs: 1, ..patience };
        let upstream = self
            .upstream
            .as_ref()
            .map(|side| side.schedule(file.path(), super::problem::Preferences::Respect, patience));
        let late = || format!("Kerf did not finish in {} s", self.arguments.comparing.timeout);
        Ok(Outcome {
            seed,
            bound: bound(&market, &deployments, self.arguments.rounds)?,
            today: today.with_context(late)?,
            packed: packed.with_context(late)?,
            upstream: upstream.transpose()?.and_then(|runs| middle(&runs)),
        })
    }
}

fn bound(market: &Market, deployments: &[Deployment], rounds: usize) -> Result<Bound> {
    let problem = Bounded { sorts: sorts(deployments), offers: market.offers() };
    problem.bound(rounds).context("a pod fits no instance type, so that there is no lower bound")
}

/// In the middle by processor time; all of them have the same plan.
fn middle(runs: &[Run]) -> Option<Run> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds));
    sorted.get(sorted.len() / 2).copied()
}

/// The problem in a file that is gone with the value.
fn write(market: &Market, deployments: &[Deployment]) -> Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix("kerf-bench-").suffix(".ndjson").tempfile()?;
    let mut out = BufWriter::new(File::create(file.path())?);
    for instance_type in market.to_json() {
        writeln!(out, "{instance_type}")?;
    }
    for (at, deployment) in deployments.iter().enumerate() {
        for pod in deployment.to_json(at) {
            writeln!(out, "{pod}")?;
        }
    }
    out.flush()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_is_drawn_on_demand_and_on_spot_with_and_without_bargains() {
        for quick in [true, false] {
            let names: Vec<_> = settings(quick, true).into_iter().map(|one| one.name).collect();
            let size = if quick { 100 } else { 1000 };
            for mix in Mix::GENERATED.into_iter().chain([Mix::Trace]) {
                for end in ["on-demand", "spot", "on-demand-without-8", "spot-without-8"] {
                    let name = format!("{}-{size}-{end}", mix.name());
                    assert!(names.contains(&name), "{name}");
                }
            }
            assert!(settings(quick, false).iter().all(|one| one.mix != Mix::Trace));
        }
    }

    #[test]
    fn every_pod_of_every_mix_fits_a_machine() {
        for (terms, seed) in [(Terms::OnDemand, 1), (Terms::Spot, 2)] {
            let market = Market::new(terms, seed).unwrap().without_bargains();
            for mix in Mix::GENERATED {
                let bound = bound(&market, &mix.draw(100, seed, &[]), 2).unwrap();
                assert!(bound.price > 0.0, "{mix:?}");
            }
        }
    }
}
