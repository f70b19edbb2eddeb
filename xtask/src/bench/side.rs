//! The two programs that solve a problem, each in a process of its own: so that peak memory is theirs alone.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::problem::Preferences;
use crate::cache::cache;
use crate::cargo::{cargo, workspace};

/// A program that prints one [`Run`] or [`Pass`] per line.
pub(crate) struct Side {
    program: PathBuf,
}

/// One run of a side, as it prints it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Run {
    /// What comes before solving and is not counted in the rate; Kerf counts all.
    pub(crate) setup_seconds: f64,
    pub(crate) solve_seconds: f64,
    /// Of all threads while solving.
    pub(crate) cpu_seconds: f64,
    pub(crate) claims: usize,
    pub(crate) price: f64,
    pub(crate) unplaced: usize,
    pub(crate) on_nodes: usize,
    pub(crate) allocations: u64,
    pub(crate) allocated_mib: f64,
    pub(crate) peak_mib: f64,
    /// Instance types that a new node may be, on average; upstream does not say.
    #[serde(default)]
    pub(crate) types_per_claim: f64,
}

/// One look at every node of a cluster, as a side prints it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Pass {
    /// What comes before looking and is not counted; Kerf counts all.
    pub(crate) setup_seconds: f64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) candidates: usize,
    pub(crate) commands: usize,
    pub(crate) allocated_mib: f64,
    pub(crate) peak_mib: f64,
}

/// When to stop.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) runs: usize,
    /// No further run is waited for after this.
    pub(crate) enough: Duration,
    /// Not even the first run is waited for after this.
    pub(crate) timeout: Duration,
}

impl Side {
    pub(crate) fn kerf() -> Result<Self> {
        eprintln!("building Kerf's side");
        let output = cargo(&["build", "--profile=dist", "--package", "bench-kerf"])
            .arg("--message-format=json-render-diagnostics")
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(output.status.success(), "Kerf's side of the benchmark does not build");
        let program = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
            .next_back()
            .context("cargo does not say where it put Kerf's side of the benchmark")?;
        Ok(Self { program })
    }

    /// Without Go, or without a registry to get the module from, there is nothing to compare with.
    pub(crate) fn upstream() -> Result<Self> {
        eprintln!("building upstream's side (some minutes the first time)");
        let cache = cache().join("bench");
        fs::create_dir_all(&cache)
            .with_context(|| format!("making {} for upstream's side", cache.display()))?;
        let program = cache.join("upstream");
        let status = Command::new("go")
            .args(["build", "-o"])
            .args([&program, Path::new(".")])
            .current_dir(workspace().join("xtask/bench/upstream"))
            .status()
            .context(
                "running go to build upstream's side: install Go, or leave it out with --kerf-only",
            )?;
        ensure!(
            status.success(),
            "upstream's side does not build: it needs a Go module registry, or leave it out with --kerf-only"
        );
        Ok(Self { program })
    }

    /// The runs that were finished in time, perhaps none.
    pub(crate) fn schedule(
        &self,
        problem: &Path,
        preferences: Preferences,
        patience: Patience,
    ) -> Result<Vec<Run>> {
        let policy = match preferences {
            Preferences::Respect => "respect",
            Preferences::Ignore => "ignore",
        };
        self.run(problem, policy, patience, None)
    }

    /// With a search for cheaper machines of so much work; only Kerf has one.
    pub(crate) fn pack(&self, problem: &Path, budget: u64, patience: Patience) -> Result<Vec<Run>> {
        self.run(problem, "respect", patience, Some(budget))
    }

    /// The passes that were finished in time, perhaps none.
    pub(crate) fn consolidate(&self, problem: &Path, patience: Patience) -> Result<Vec<Pass>> {
        self.run(problem, "consolidate", patience, None)
    }

    fn run<T: DeserializeOwned>(
        &self,
        problem: &Path,
        task: &str,
        patience: Patience,
        packing: Option<u64>,
    ) -> Result<Vec<T>> {
        let mut child = Command::new(&self.program)
            .arg(problem)
            .args([task, &patience.runs.to_string()])
            .args(packing.map(|budget| budget.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        let stdout = child.stdout.take().context("the child has no output")?;
        let (sender, lines) = mpsc::channel();
        let reader = thread::spawn(move || {
            BufReader::new(stdout).lines().try_for_each(|line| sender.send(line))
        });
        let finished = collect(&lines, patience);
        // Fails only when it has ended by itself.
        let stopped = child.try_wait()?.is_none() && child.kill().is_ok();
        let status = child.wait()?;
        drop(lines);
        let _ = reader.join();
        let runs = finished?;
        if !status.success() && !stopped {
            bail!("{} failed on {}", self.program.display(), problem.display());
        }
        Ok(runs)
    }
}

fn collect<T: DeserializeOwned>(
    lines: &mpsc::Receiver<io::Result<String>>,
    patience: Patience,
) -> Result<Vec<T>> {
    let started = Instant::now();
    let mut runs = Vec::new();
    while runs.len() < patience.runs {
        let limit = if runs.is_empty() { patience.timeout } else { patience.enough };
        match lines.recv_timeout(limit.saturating_sub(started.elapsed())) {
            Ok(line) => runs.push(serde_json::from_str(&line?)?),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(runs)
}
