//! `cargo xtask test`

mod brake;
mod slow;

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::Instant;

use kerf_control_plane::BinariesError;

use crate::aws::{self, Outcome};
use crate::cargo::{cargo, workspace};
use crate::control_plane;
use crate::generate;
use crate::page;

pub(crate) use slow::Testing;

/// The binary has the provider of AWS where it is asked for.
const WITH_AWS: &str = "kerf/aws";

pub(crate) async fn run(testing: &Testing) -> ExitCode {
    if testing.slow {
        return slow::run(testing);
    }
    let started = Instant::now();
    let mut total = Tally::default();
    total += step("format", || check(&["fmt", "--all", "--check"]));
    total += step("lints", || {
        let features = ["--workspace", "--all-targets", "--features", WITH_AWS];
        check(&[&["clippy"], &features[..], &["--", "-D", "warnings"]].concat())
    });
    // With all packages selected the dependencies keep their features, and only the binary is looked at again.
    total += step("lints of the production build", || {
        let features = ["--workspace", "--all-targets", "--no-default-features"];
        check(&[&["clippy"], &features[..], &["--", "-D", "warnings"]].concat())
    });
    total +=
        step("types of AWS", || lane("whether the types of AWS are current", generate::aws(true)));
    total += step("unit tests", || {
        tests(&["--workspace", "--exclude", "kerf-e2e", "--features", WITH_AWS], &[])
    });
    total += step("calls of moto", || lane("the calls of moto", aws::moto()));
    total += step("page", || lane("the page in a browser", page::run(&page::Looking::default())));
    total += step("rules", || lane("the rules of Prometheus", crate::charts::rules::run()));
    total += step("control plane tests", control_plane_tests);
    // The command that README.md and CONTRIBUTING.md begin with.
    let tried = Step::begin("cargo xtask try");
    total += tried.end(tried_out().await);
    let charts = Step::begin("charts");
    total += charts.end(lane("the charts", crate::charts::run(None).await));

    let minutes = started.elapsed().as_secs_f64() / 60.0;
    eprintln!("\n==> all in {minutes:.1} min");
    let skip_fails = crate::ci() && total.skipped > 0;
    if skip_fails {
        eprintln!("CI=true: what is skipped counts as a failure of this run");
    }
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    if total.failed > 0 || skip_fails { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// How many checks and tests ended in which way. Each step that is not a test counts as one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

fn step(name: &'static str, run: impl FnOnce() -> Tally) -> Tally {
    Step::begin(name).end(run())
}

/// A step that is under way.
struct Step {
    name: &'static str,
    started: Instant,
}

impl Step {
    fn begin(name: &'static str) -> Self {
        eprintln!("\n==> {name}");
        Self { name, started: Instant::now() }
    }

    fn end(self, tally: Tally) -> Tally {
        let (name, Tally { passed, failed, skipped }) = (self.name, tally);
        let seconds = self.started.elapsed().as_secs();
        let verdict = if failed > 0 { "FAILED" } else { "ok" };
        eprintln!(
            "==> {name}: {verdict}, {passed} passed, {failed} failed, {skipped} skipped, {seconds} s"
        );
        tally
    }
}

fn check(arguments: &[&str]) -> Tally {
    match cargo(arguments).status() {
        Ok(status) if status.success() => Tally { passed: 1, ..Tally::default() },
        Ok(_) => Tally { failed: 1, ..Tally::default() },
        Err(error) => broken(&error.to_string()),
    }
}

/// A check that needs tools which a machine may not have.
fn lane(what: &str, result: anyhow::Result<Outcome>) -> Tally {
    match result {
        Ok(Outcome::Done) => Tally { passed: 1, ..Tally::default() },
        Ok(Outcome::Skipped { reason }) => {
            eprintln!("!!! SKIPPED: {what}. {reason}");
            Tally { skipped: 1, ..Tally::default() }
        }
        Err(error) => broken(&format!("{error:#}")),
    }
}

fn control_plane_tests() -> Tally {
    let selection = match control_plane_selection() {
        Ok(selection) => selection,
        Err(error) => return broken(&error.to_string()),
    };
    let selection: Vec<_> = selection.iter().map(String::as_str).collect();
    match control_plane::binaries() {
        Ok(_) => {
            // They mostly wait; but each may run a cluster of its own, of half a gigabyte.
            let cores = thread::available_parallelism().map_or(2, usize::from);
            let threads = (2 * cores).min(8).to_string();
            tests(&selection, &["--test-threads", &threads])
        }
        Err(error @ BinariesError::NotFound(_)) => {
            let skipped = count(&selection);
            eprintln!("!!! SKIPPED: {skipped} tests against a real control plane.");
            eprintln!("!!! {error}");
            Tally { skipped, ..Tally::default() }
        }
        Err(error) => broken(&format!("{:#}", anyhow::Error::from(error))),
    }
}

async fn tried_out() -> Tally {
    match control_plane::binaries() {
        Err(BinariesError::NotFound(refusals)) => {
            eprintln!("!!! SKIPPED: cargo xtask try. {refusals}");
            Tally { skipped: 1, ..Tally::default() }
        }
        Err(error) => broken(&format!("{:#}", anyhow::Error::from(error))),
        Ok(_) => lane("cargo xtask try", crate::try_out::run().await.map(|()| Outcome::Done)),
    }
}

/// The test programs of kerf-e2e, selected from the whole workspace: `--package kerf-e2e` would switch
/// off features that other crates ask of shared dependencies, and compile most of those once more.
fn control_plane_selection() -> std::io::Result<Vec<String>> {
    let mut selection = vec!["--workspace".to_owned()];
    for entry in fs::read_dir(workspace().join("crates/kerf-e2e/tests"))? {
        let path = entry?.path();
        if let (Some(stem), true) = (path.file_stem(), path.is_file()) {
            selection.extend(["--test".to_owned(), stem.to_string_lossy().into_owned()]);
        }
    }
    Ok(selection)
}

/// Runs tests and counts them by what libtest says at the end of each test program.
fn tests(packages: &[&str], libtest: &[&str]) -> Tally {
    let mut command = cargo(&["test", "--no-fail-fast"]);
    command.args(packages).arg("--").args(libtest);
    let mut tally = Tally::default();
    let succeeded = read_lines(command, |line| {
        println!("{line}");
        tally += result_line(line).unwrap_or_default();
    });
    match succeeded {
        Ok(true) => tally,
        // What does not compile, or dies before its summary, has no test that failed.
        Ok(false) => Tally { failed: tally.failed.max(1), ..tally },
        Err(error) => broken(&error.to_string()),
    }
}

/// How many tests there are, without running them; at least one, lest nobody notices.
fn count(packages: &[&str]) -> usize {
    let mut command = cargo(&["test", "--quiet"]);
    command.args(packages).args(["--", "--list"]);
    let mut count = 0;
    let listed = read_lines(command, |line| count += usize::from(line.ends_with(": test")));
    if listed.is_err() { 1 } else { count.max(1) }
}

fn read_lines(mut command: std::process::Command, each: impl FnMut(&str)) -> std::io::Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    if let Some(stdout) = child.stdout.take() {
        read_output(stdout, each)?;
    }
    Ok(child.wait()?.success())
}

fn read_output(output: impl std::io::Read, mut each: impl FnMut(&str)) -> std::io::Result<()> {
    for line in BufReader::new(output).split(b'\n') {
        each(&String::from_utf8_lossy(&line?));
    }
    Ok(())
}

/// `test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s`
fn result_line(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |label: &str| {
        let part = counts.split("; ").find_map(|part| part.strip_suffix(label))?;
        part.trim().parse().ok()
    };
    Some(Tally {
        passed: number("passed")?,
        failed: number("failed")?,
        skipped: number("ignored")?,
    })
}

fn broken(reason: &str) -> Tally {
    eprintln!("{reason}");
    Tally { failed: 1, ..Tally::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_libtest_sums_up() {
        let counted = |passed, failed, skipped| Some(Tally { passed, failed, skipped });
        let cases = [
            (
                "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s",
                counted(5, 0, 2),
            ),
            (
                "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out; finished in 61.00s",
                counted(12, 3, 0),
            ),
            ("test result::tests::reads ... ok", None),
            ("running 5 tests", None),
            ("", None),
        ];
        for (line, expect) in cases {
            assert_eq!(result_line(line), expect, "{line}");
        }
    }
}
