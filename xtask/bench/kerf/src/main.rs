//! Kerf's side of `cargo xtask bench`: reads a problem, solves it again and again, and prints one line of JSON per run.
//! The counterpart in Go does the same with upstream's code.

mod consolidation;
mod problem;

use std::alloc::System;
use std::env;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use kerf_model::Snapshot;
use kerf_scheduler::{Options, PreferencePolicy, schedule_cheaply};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counting costs some nanoseconds per allocation; they are in the time of each run.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let (file, task, runs, packing) = match arguments.as_slice() {
        [file, task, runs] => (file, task, runs, "0"),
        [file, task, runs, packing] => (file, task, runs, packing.as_str()),
        _ => bail!(
            "usage: bench-kerf <problem.ndjson> <respect|ignore|consolidate> <runs> [<packing budget>]"
        ),
    };
    let runs: usize = runs.parse().with_context(|| format!("{runs:?} is not a number of runs"))?;
    let packing = packing.parse().with_context(|| format!("{packing:?} is not a budget"))?;
    let snapshot = problem::read(file)?;
    match task.as_str() {
        "respect" => schedule_all(&snapshot, PreferencePolicy::Respect, packing, runs),
        "ignore" => schedule_all(&snapshot, PreferencePolicy::Ignore, packing, runs),
        "consolidate" => consolidation::look(snapshot, runs),
        other => bail!("{other:?} is not a task: respect, ignore or consolidate"),
    }
}

/// `packing` is zero, as in the operator, unless it is the search for cheaper machines that is to be measured.
fn schedule_all(
    snapshot: &Snapshot,
    preferences: PreferencePolicy,
    packing: u64,
    runs: usize,
) -> Result<()> {
    let options = Options { preferences, packing, ..Options::default() };
    for _ in 0..runs {
        let region = Region::new(ALLOCATOR);
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let plan = schedule_cheaply(black_box(snapshot), &options);
        let seconds = start.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - cpu_start;
        let memory = region.change();
        let on_nodes: usize = plan.placements.iter().map(|placement| placement.pods.len()).sum();
        let types: usize = plan.claims.iter().map(|claim| claim.instance_types.len()).sum();
        let outcome = json!({
            // All of it is solving: the snapshot is all that is prepared.
            "setup_seconds": 0.0,
            "solve_seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "claims": plan.claims.len(),
            "price": plan.price().as_f64(),
            "unplaced": plan.failures.len(),
            "on_nodes": on_nodes,
            "allocations": memory.allocations + memory.reallocations,
            "allocated_mib": memory.bytes_allocated as f64 / f64::from(1 << 20),
            "peak_mib": peak_mib()?,
            "types_per_claim": types as f64 / plan.claims.len().max(1) as f64,
        });
        println!("{outcome}");
    }
    Ok(())
}

/// What all threads of this process have had of all cores: other load slows a run down, but adds little to this.
fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// The most memory that this process has had.
fn peak_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"))
        .context("the system does not tell how much memory was used")?;
    Ok(kib.trim().parse::<f64>()? / 1024.0)
}
