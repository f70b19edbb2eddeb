//! `cargo xtask chaos`: the whole operator under random workloads, users and faults, in virtual time.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::Output;
use crate::cargo::cargo;

mod coverage;

#[derive(Args)]
pub(crate) struct Chaos {
    /// How many plans are played; each follows from its seed
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Virtual hours of each plan
    #[arg(long, default_value_t = 24)]
    hours: u64,
    #[arg(long, value_enum, default_value_t = Provider::Kwok)]
    provider: Provider,
    /// Processes side by side
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Play these actions of the plan only, by their places, separated by commas; or `@FILE` with a plan of its own
    #[arg(long, default_value = "")]
    only: String,
    /// Print what was reached, and what never
    #[arg(long)]
    coverage: bool,
    /// The profile that it is built with
    #[arg(long, default_value = "play")]
    profile: String,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Provider {
    Kwok,
    Aws,
}

impl Provider {
    fn as_str(self) -> &'static str {
        match self {
            Self::Kwok => "kwok",
            Self::Aws => "aws",
        }
    }
}

pub(crate) fn run(with: &Chaos) -> Result<()> {
    let program = build(with)?;
    let begin = Instant::now();
    let (send, receive) = mpsc::channel();
    let jobs = with.jobs.clamp(1, with.seeds.max(1));
    let mut processes = Vec::new();
    for job in 0..jobs {
        let mut process = Command::new(&program);
        let numbers = [with.seed + job, with.seeds - job, jobs, with.hours];
        process.args(numbers.map(|number| number.to_string())).arg(with.provider.as_str());
        if !with.only.is_empty() {
            process.arg(&with.only);
        }
        let mut process = process.stdout(Stdio::piped()).spawn().context("starting a process")?;
        let lines = process.stdout.take().context("it has a standard output")?;
        let send = send.clone();
        thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                // Nobody listens any more: this is over.
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        processes.push(process);
    }
    drop(send);
    let mut played = Vec::new();
    for line in receive {
        let result: Value = serde_json::from_str(&line).context("a line of a process")?;
        played.push(result);
        if let Some(last) = played.last() {
            tell(with, last, played.len(), begin);
        }
    }
    for mut process in processes {
        process.wait()?;
    }
    report(with, &played, begin);
    let failed = played.iter().filter(|it| has_failed(it)).count();
    ensure!(
        played.len() as u64 == with.seeds,
        "{} of {} seeds were played",
        played.len(),
        with.seeds
    );
    ensure!(failed == 0, "{failed} of {} seeds failed", with.seeds);
    Ok(())
}

fn build(with: &Chaos) -> Result<String> {
    let mut build = cargo(&["build", "--package", "kerf-chaos", "--example", "chaos"]);
    build.args(["--profile", &with.profile, "--message-format", "json-render-diagnostics"]);
    if matches!(with.provider, Provider::Aws) {
        build.args(["--features", "aws"]);
    }
    let output = build.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "kerf-chaos cannot be built");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut program = text.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "chaos";
        message["executable"].as_str().filter(|_| is_it).map(str::to_owned)
    });
    program.next_back().context("cargo names no program")
}

fn has_failed(result: &Value) -> bool {
    result["violations"].as_array().is_some_and(|all| !all.is_empty())
}

/// How far it has come, and all about a seed that failed.
fn tell(with: &Chaos, result: &Value, played: usize, begin: Instant) {
    let seed = &result["seed"];
    let each = begin.elapsed().as_secs_f64() / played as f64;
    eprintln!(
        "seed {seed}: {} actions, {} nodes, {} disrupted, {:.1} s of CPU, {} MB ({played} of {}, {each:.1} s each)",
        result["actions"],
        result["launched"],
        result["disrupted"],
        result["cpuSeconds"].as_f64().unwrap_or_default(),
        result["megabytes"].as_u64().unwrap_or_default(),
        with.seeds,
    );
    if !has_failed(result) {
        return;
    }
    let lines = |name: &str| {
        let lines = result[name].as_array().into_iter().flatten();
        lines.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    eprintln!("seed {seed} FAILED:");
    for violation in lines("violations") {
        eprintln!("  {violation}");
    }
    let only = result["only"]
        .as_array()
        .map(|places| places.iter().map(Value::to_string).collect::<Vec<_>>().join(","));
    let only = only.map(|only| format!(" --only {only}")).unwrap_or_default();
    eprintln!("what happened, in the shortest plan that fails:");
    for line in lines("log") {
        eprintln!("  {line}");
    }
    eprintln!(
        "again: cargo xtask chaos --seed {seed} --hours {} --provider {}{only}",
        with.hours,
        with.provider.as_str()
    );
}

fn report(with: &Chaos, played: &[Value], begin: Instant) {
    let sum = |name: &str| played.iter().filter_map(|it| it[name].as_u64()).sum::<u64>();
    let reached = coverage::sum(played.iter().map(|it| &it["coverage"]));
    let failed: Vec<_> = played
        .iter()
        .filter(|it| has_failed(it))
        .map(|it| {
            json!({
                "seed": it["seed"], "violations": it["violations"], "only": it["only"],
                "plan": it["plan"], "log": it["log"],
            })
        })
        .collect();
    let result = json!({
        "seeds": played.len(), "hours": with.hours, "provider": with.provider.as_str(),
        "seconds": begin.elapsed().as_secs(), "actions": sum("actions"), "writes": sum("writes"),
        "launched": sum("launched"), "disrupted": sum("disrupted"), "failed": failed.len(),
    });
    match with.output {
        Output::Json => {
            let mut result = result;
            result["failed"] = json!(failed);
            result["coverage"] = reached.clone();
            result["never"] = json!(coverage::never(&reached));
            println!("{result:#}");
        }
        Output::Table => {
            for (what, figure) in result.as_object().into_iter().flatten() {
                println!("{what:<12} {figure}");
            }
            if with.coverage {
                coverage::print(&reached);
            }
        }
    }
}
