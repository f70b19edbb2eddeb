//! `seeds [SEEDS] [FIRST]` lives days in an account in which everything goes wrong that can, one for each seed, a thousand unless
//! told otherwise. It says on standard error how far it has come, and on standard output how it went, as JSON.

use std::{
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    time::Instant,
};

use kerf_stories_aws::day::day;
use serde_json::json;

const HOURS: u64 = 24;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |place: usize, default: u64| {
        arguments.get(place).map_or(default, |argument| argument.parse().expect("a number"))
    };
    let (seeds, first) = (number(0, 1000), number(1, 0));
    let begin = Instant::now();
    let (mut days, mut failed) = (Vec::new(), Vec::new());
    // What went wrong is said once, with its seed.
    panic::set_hook(Box::new(|_| {}));
    for seed in first..first + seeds {
        match panic::catch_unwind(AssertUnwindSafe(|| day(seed, HOURS))) {
            Ok(day) => {
                eprintln!("seed {seed}: {day:?}");
                days.push(day);
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.unwrap_or_else(|| "it panicked".to_owned());
                eprintln!("seed {seed}: FAILED: {text}");
                let line = text.lines().next().unwrap_or_default();
                failed.push(json!({"seed": seed, "why": line}));
            }
        }
    }
    let sum = |of: fn(&kerf_stories_aws::day::Day) -> u64| days.iter().map(of).sum::<u64>();
    let result = json!({
        "seeds": seeds, "first": first, "failed": failed,
        "seconds": begin.elapsed().as_secs(),
        "launched": sum(|day| day.launched as u64),
        "calls": sum(|day| day.calls.into()),
        "refused": sum(|day| day.refused.into()),
        "crashes": sum(|day| day.crashes.into()),
        "lost": sum(|day| day.lost as u64),
        "daysAtTheirLimit": days.iter().filter(|day| day.peak == day.limit).count(),
        "mostLaunchTemplates": days.iter().map(|day| day.launch_templates).max(),
    });
    println!("{result:#}");
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
