//! `cargo xtask test --slow`: the stories on a real control plane, on a tenth of the machine.
//!
//! A story that reads something once, where it should have waited for it, holds on an idle machine and fails on a busy one.

use std::env;
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use kerf_control_plane::SLOWNESS;

use super::brake::Brake;
use super::{Tally, read_output, result_line};
use crate::cargo::cargo;
use crate::control_plane;

/// How much of the machine the stories get, and how much longer they may take for each thing they wait for.
const PERCENT: u32 = 10;

#[derive(Args)]
pub(crate) struct Testing {
    /// Only play the stories on a real control plane, at a tenth of the speed
    ///
    /// The stories and the control planes they start share a tenth of the CPUs: by a cgroup where one can be made, else by busy
    /// processes beside them. Their time limits are ten times as long.
    #[arg(long)]
    pub(super) slow: bool,
    /// With --slow: only the stories with this in their name, such as `churn_controls::`
    #[arg(long, value_name = "PART", requires = "slow")]
    only: Option<String>,
    /// With --slow: stop the stories after this many minutes
    #[arg(long, value_name = "MINUTES", requires = "slow", default_value_t = 120)]
    within: u64,
}

pub(super) fn run(testing: &Testing) -> ExitCode {
    match play(testing) {
        Ok(tally) if tally.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(testing: &Testing) -> Result<Tally> {
    control_plane::binaries()?;
    // At full speed: it is the stories that are to be slow.
    let stories = build()?;
    let brake = Brake::engage(PERCENT)?;
    eprintln!("==> stories on {brake}");
    let mut command = brake.command(&stories);
    command.args(["--test-threads", "2"]).args(&testing.only);
    command.env(SLOWNESS, (100 / PERCENT).to_string()).stdout(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().context("the stories do not start")?;
    let stdout = child.stdout.take().context("the stories have an output")?;
    let lines = thread::spawn(move || {
        let (mut tally, mut summed_up) = (Tally::default(), false);
        let read = read_output(stdout, |line| {
            println!("{line}");
            if let Some(result) = result_line(line) {
                tally += result;
                summed_up = true;
            }
        });
        read.map(|()| (tally, summed_up))
    });
    let end = begin + Duration::from_mins(testing.within);
    let succeeded = loop {
        if let Some(status) = child.try_wait()? {
            break status.success();
        }
        if Instant::now() > end {
            eprintln!("!!! not over after {} minutes", testing.within);
            // Its control planes end with it.
            child.kill()?;
            child.wait()?;
            break false;
        }
        thread::sleep(Duration::from_millis(200));
    };
    let (mut tally, summed_up) = match lines.join() {
        Ok(read) => read?,
        Err(_) => (Tally::default(), false),
    };
    if !succeeded || !summed_up {
        tally.failed = tally.failed.max(1);
    }
    let minutes = begin.elapsed().as_secs_f64() / 60.0;
    let Tally { passed, failed, skipped } = tally;
    println!(
        "slow stories on {brake}: {passed} passed, {failed} failed, {skipped} skipped, {minutes:.1} min"
    );
    Ok(tally)
}

/// Builds the stories and says where their program is.
fn build() -> Result<String> {
    let output = cargo(&["test", "--workspace", "--test", "stories", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the stories do not build");
    let package = format!("crates{}kerf-e2e", std::path::MAIN_SEPARATOR);
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "stories")
        .filter(|message| message["manifest_path"].as_str().is_some_and(|it| it.contains(&package)))
        .find_map(|message| message["executable"].as_str().map(str::to_owned))
        .with_context(|| {
            let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
            format!("{cargo} does not say where it put the stories")
        })
}
