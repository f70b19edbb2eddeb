//! `chaos FIRST SEEDS STEP HOURS PROVIDER [ONLY]` plays the plans of the seeds FIRST, FIRST+STEP and so on below FIRST+SEEDS, one after the
//! other, and prints a line of JSON for each. ONLY is a list of places of actions that are kept, separated by commas, or `@FILE` with
//! a plan. `cargo xtask chaos` starts it, several at once.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kerf_chaos::plan::Provider;
use kerf_chaos::{Outcome, Plan, run, shrink};
use serde_json::{Value, json};

/// Runs that are spent on making a plan shorter.
const ATTEMPTS: usize = 150;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments[place].parse::<u64>().expect("a number");
    let (first, seeds, step, hours) = (number(0), number(1), number(2), number(3));
    let provider = if arguments[4] == "aws" { Provider::Aws } else { Provider::Kwok };
    let only = arguments.get(5).map(String::as_str).unwrap_or_default();
    let mut failed = false;
    for seed in (first..first + seeds).step_by(usize::try_from(step).expect("a small number")) {
        let whole = match only.strip_prefix('@') {
            Some(file) => {
                let text = std::fs::read_to_string(file).expect("a file");
                let found: Value = serde_json::from_str(&text).expect("JSON");
                serde_json::from_value(found["plan"].clone()).expect("a plan")
            }
            None => Plan::of(seed, hours, provider),
        };
        let places: Vec<usize> = match only {
            "" => Vec::new(),
            only => only.split(',').filter_map(|place| place.parse().ok()).collect(),
        };
        let plan = if places.is_empty() { whole.clone() } else { whole.only(&places) };
        let begin = Instant::now();
        forget_most_memory();
        let before = computed();
        let outcome = run(&plan);
        let computed = computed()
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before).as_secs_f64());
        let memory = most_memory();
        let seconds = begin.elapsed().as_secs_f64();
        let mut line = line(seed, &plan, &outcome);
        line["seconds"] = json!(seconds);
        line["cpuSeconds"] = json!(computed);
        line["megabytes"] = json!(memory);
        if outcome.has_failed() {
            failed = true;
            line["plan"] = json!(plan);
            if places.is_empty() && only.is_empty() {
                eprintln!("seed {seed}: {}; shrinking", outcome.violations[0]);
                let (kept, shorter) = shrink(&plan, outcome, ATTEMPTS);
                line["only"] = json!(kept);
                line["plan"] = json!(plan.only(&kept));
                line["log"] = json!(shorter.log);
                line["cluster"] = json!(shorter.cluster);
                line["shortest"] =
                    json!(shorter.violations.iter().map(ToString::to_string).collect::<Vec<_>>());
            }
        }
        println!("{line}");
        std::io::stdout().flush().expect("standard output is open");
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn line(seed: u64, plan: &Plan, outcome: &Outcome) -> Value {
    json!({
        "seed": seed, "actions": plan.actions.len(), "writes": outcome.writes,
        "launched": outcome.launched, "disrupted": outcome.disrupted,
        "refused": outcome.refused.len(), "refusals": outcome.refused.iter().take(3).collect::<Vec<_>>(),
        "digest": format!("{:016x}", outcome.digest),
        "violations": outcome.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "log": outcome.log, "cluster": outcome.cluster, "coverage": outcome.coverage.to_json(),
    })
}

/// From now on the most memory of this process is counted anew. Not where the kernel cannot do it.
fn forget_most_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most memory that this process has had, in megabytes, testbed and checker included.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(most.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? / 1_024)
}

/// How long the thread on which all runs happen has computed. On a busy machine that says more than how long they took.
fn computed() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}
