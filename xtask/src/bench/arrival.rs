//! `cargo xtask bench arrival`

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::load;
use crate::Output;
use crate::cargo::cargo;

/// A thousand pods arrive as kube-controller-manager creates them, in a cluster without nodes that lives in virtual time with the
/// whole operator in it. Measured is what it launches meanwhile, and what it evicts until nothing happens any more.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench arrival --seeds 1 --only ten         a first look
  cargo xtask bench arrival --only busy                  where pods come slowly
  cargo xtask bench arrival --batching idle,owners-30s   other ways to collect pods

Ways to collect pods: idle is --batch-idle-duration alone, owners is --owner-aware-batching. A time behind it is
--batch-max-duration, and +packing is --packing.

Reading the table: `at once` is what the pods cost when all of them are planned together, and behind it with --packing. A plan for
all pods is not the cheapest one: without --packing it fills large machines, and what comes in pieces may cost less.")]
pub(crate) struct Arrival {
    /// Only the cases with this in their name, such as ten-quiet
    #[arg(long, value_name = "PART", default_value = "")]
    only: String,
    /// How often each case is played, each time with other requests
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    seeds: u64,
    /// How pods are collected
    #[arg(
        long,
        value_name = "WAYS",
        value_delimiter = ',',
        default_value = "idle,owners,idle-60s,owners-60s"
    )]
    batching: Vec<String>,
    /// From the launch of an instance until its node is ready; KWOK's take a moment
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    node_ready: String,
    /// Processes side by side
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jobs: usize,
    /// The profile that it is built with
    #[arg(long, default_value = "play")]
    profile: String,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

const CASES: [(&str, &str); 4] = [
    ("ten", "ten Deployments of 100 pods"),
    ("one", "one Deployment of 1,000 pods"),
    ("fifty", "50 Deployments of 20 pods"),
    ("mixed", "a StatefulSet of 200 pods and eight Jobs of 100"),
];
const MACHINES: [&str; 2] = ["quiet", "busy"];
/// The machine on which all pods are there at once.
const AT_ONCE: &str = "at-once";
const TOGETHER: [&str; 2] = ["idle", "idle+packing"];

/// One play: its case, machine, way to collect pods, and seed.
type Run = (&'static str, &'static str, String, u64);

pub(super) fn run(arguments: &Arrival) -> Result<()> {
    let chosen: Vec<_> = CASES
        .iter()
        .flat_map(|(case, _)| MACHINES.map(|machine| (*case, machine)))
        .filter(|(case, machine)| format!("{case}-{machine}").contains(&arguments.only))
        .collect();
    ensure!(!chosen.is_empty(), "no case has {:?} in its name", arguments.only);
    let mut runs: VecDeque<Run> = VecDeque::new();
    for seed in 1..=arguments.seeds {
        for (case, _) in CASES {
            if chosen.iter().any(|(name, _)| *name == case) {
                runs.extend(TOGETHER.map(|way| (case, AT_ONCE, way.to_owned(), seed)));
            }
        }
        for (case, machine) in &chosen {
            let ways = arguments.batching.iter();
            runs.extend(ways.map(|way| (*case, *machine, way.clone(), seed)));
        }
    }
    let program = build(&arguments.profile)?;
    let count = runs.len();
    eprintln!("{count} plays, load {}", load().map_or("unknown".to_owned(), |it| it.to_string()));
    let lines = play_all(&program, arguments, runs)?;
    ensure!(lines.len() == count, "{} of {count} plays came to an end", lines.len());
    match arguments.output {
        Output::Json => {
            println!("{:#}", json!({"nodeReady": arguments.node_ready, "plays": lines}));
        }
        Output::Table => print!("{}", table(&lines)),
    }
    Ok(())
}

fn build(profile: &str) -> Result<String> {
    // From the whole workspace: one package alone has other features, and most of its dependencies would be compiled again.
    let mut build = cargo(&["build", "--workspace", "--features", "kerf/aws"]);
    build.args(["--example", "arrival"]);
    build.args(["--profile", profile, "--message-format", "json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "kerf-simulation cannot be built");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut program = text.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "arrival";
        message["executable"].as_str().filter(|_| is_it).map(str::to_owned)
    });
    program.next_back().context("cargo names no program")
}

fn play_all(program: &str, arguments: &Arrival, runs: VecDeque<Run>) -> Result<Vec<Value>> {
    let (runs, lines) = (Mutex::new(runs), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let next = runs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some((case, machine, way, seed)) = next else { return Ok(()) };
            let name = format!("{case}-{machine}, {way}, seed {seed}");
            let mut command = Command::new(program);
            command.args([case, machine, &way, &seed.to_string(), &arguments.node_ready]);
            let output = command.stderr(Stdio::inherit()).output()?;
            ensure!(output.status.success(), "{name} failed");
            let line: Value = serde_json::from_slice(&output.stdout).context(name.clone())?;
            eprintln!("{name}: {}", in_short(&line));
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    };
    let ends: Vec<Result<()>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    ends.into_iter().collect::<Result<()>>()?;
    Ok(lines.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn in_short(line: &Value) -> String {
    let (end, rest) = (&line["end"], &line["rest"]);
    format!(
        "all run after {} s on {} nodes for {}, at rest after {} s with {} nodes for {}, {} evictions",
        end["seconds"],
        end["nodes"],
        end["price"],
        rest["seconds"],
        rest["nodes"],
        rest["price"],
        rest["evictions"]
    )
}

/// What a row says of its plays, by where it stands in a line.
const COLUMNS: [(&str, &str, usize); 10] = [
    ("all created s", "/arrived", 0),
    ("all run s", "/end/seconds", 0),
    ("wait p50 s", "/waits/0", 1),
    ("wait p99 s", "/waits/1", 1),
    ("nodes", "/end/nodes", 0),
    ("$/h", "/end/price", 2),
    ("at rest s", "/rest/seconds", 0),
    ("nodes launched", "/rest/launched", 0),
    ("$/h at rest", "/rest/price", 2),
    ("evictions", "/rest/evictions", 0),
];

fn table(lines: &[Value]) -> String {
    let mut rows: BTreeMap<(usize, &str, &str), Vec<&Value>> = BTreeMap::new();
    let mut at_once: BTreeMap<(&str, &str), Vec<&Value>> = BTreeMap::new();
    for line in lines {
        let field = |field: &str| line[field].as_str().unwrap_or_default();
        if field("machine") == AT_ONCE {
            at_once.entry((field("case"), field("batching"))).or_default().push(line);
            continue;
        }
        let place = CASES.iter().position(|(name, _)| *name == field("case")).unwrap_or_default();
        // Quiet machines first.
        let machine = if field("machine") == "quiet" { "1quiet" } else { "2busy" };
        rows.entry((place, machine, field("batching"))).or_default().push(line);
    }
    let mut out = String::from("| case | batching | at once $/h | packed $/h | ");
    let names: Vec<_> = COLUMNS.iter().map(|(name, _, _)| *name).collect();
    let _ = writeln!(out, "{} | not at rest |", names.join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(COLUMNS.len() + 5));
    for ((place, machine, way), mut lines) in rows {
        lines.sort_by_key(|line| line["seed"].as_u64());
        let (case, _) = CASES[place];
        let _ = write!(out, "| {case}-{} | {way} |", &machine[1..]);
        for way in TOGETHER {
            let plays = at_once.get(&(case, way)).map(Vec::as_slice).unwrap_or_default();
            let _ = write!(out, " {} |", range(plays, "/end/price", 2));
        }
        for (_, place, decimals) in COLUMNS {
            let _ = write!(out, " {} |", range(&lines, place, decimals));
        }
        let restless = lines.iter().filter(|line| line["isAtRest"] == false).count();
        let _ = writeln!(out, " {restless} of {} |", lines.len());
    }
    out
}

/// The mean, and the least and the most where they differ.
fn range(lines: &[&Value], place: &str, decimals: usize) -> String {
    let numbers: Vec<_> =
        lines.iter().filter_map(|line| line.pointer(place).and_then(Value::as_f64)).collect();
    if numbers.is_empty() {
        return String::new();
    }
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    let [mean, least, most] = [mean, least, most].map(|number| format!("{number:.decimals$}"));
    if least == most { mean } else { format!("{mean} ({least} to {most})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plays_that_differ_in_their_seed_share_a_row() {
        let line = |machine: &str, seed: u64, price: f64| {
            let figures =
                json!({"seconds": 10.0, "nodes": 5, "price": price, "launched": 6, "evictions": 0});
            json!({
                "case": "ten", "machine": machine, "batching": "idle", "seed": seed, "arrived": 9.0,
                "waits": [1.0, 2.0], "end": figures, "rest": figures, "isAtRest": true,
            })
        };
        let lines = [
            line("busy", 1, 4.0),
            line("quiet", 2, 3.0),
            line("quiet", 1, 2.0),
            line(AT_ONCE, 1, 1.0),
        ];
        let table = table(&lines);
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), 2, "{table}");
        assert!(
            rows[0].starts_with(
                "| ten-quiet | idle | 1.00 |  | 9 | 10 | 1.0 | 2.0 | 5 | 2.50 (2.00 to 3.00) |"
            ),
            "{table}"
        );
        assert!(rows[1].starts_with("| ten-busy | idle | 1.00 |  |"), "{table}");
        assert!(rows[0].ends_with(" 0 of 2 |"), "{table}");
        let columns = |line: &str| line.matches('|').count();
        assert!(table.lines().all(|line| columns(line) == columns(rows[0])), "{table}");
    }
}
