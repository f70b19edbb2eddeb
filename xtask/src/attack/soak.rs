//! `cargo xtask soak`: one fault after the other on a real control plane, for as long as wanted, and what that costs.

mod meter;
mod phases;
mod run;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use self::meter::Meter;
use self::phases::Phase;
use self::run::{RECOVERY, Run};
use super::Common;
use super::api::{self, NODES};
use super::audit::Entry;
use super::ending::{FOREIGN, tell_audit};
use super::random::Random;
use super::report::Report;
use super::stage::{Stage, progress};

/// Minutes for what is not the soak itself: the start, and coming to rest.
pub(super) const AROUND: u64 = 20;
/// The longest phase. In an hour each kind of fault comes four times.
const PHASE: Duration = Duration::from_secs(90);
/// How much more memory the end of the run may take than its beginning.
const GROWTH: f64 = 1.5;
/// Pods of this workload ask not to be disrupted.
const KEPT: &str = "kept";

#[derive(Args)]
pub(crate) struct Soak {
    /// For how long there are faults
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    pub(super) minutes: u64,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Soak {
    pub(super) async fn run(&self) -> Result<Report> {
        let stage = Stage::start("soak", &self.common).await?;
        let total = Duration::from_mins(self.minutes);
        let mut run = Run::start(stage, self.common.seed, total).await?;
        let mut order = Random::new(self.common.seed);
        let phase_length = PHASE.min(total / u32::try_from(Phase::FAULTS.len())?);
        // Each kind of phase is played once at least.
        let (mut round, mut is_first) = (Phase::FAULTS.to_vec(), true);
        while is_first || run.elapsed() < total {
            let next = order.between(0, round.len() as u64);
            let phase = round.swap_remove(usize::try_from(next)?);
            run.play(phase, phase_length).await?;
            if round.is_empty() {
                (round, is_first) = (Phase::FAULTS.to_vec(), false);
            }
        }
        progress("no more faults: everything comes to rest");
        let end = run.come_to_rest().await?;
        run.tell(&end)
    }
}

/// What is wrong when there has been time to put everything right.
struct End {
    took: f64,
    waiting: Vec<String>,
    unmatched: Vec<String>,
    /// Claims came or went to the end.
    restless: Vec<String>,
}

impl Run {
    fn tell(self, end: &End) -> Result<Report> {
        let Self { stage, replicas, meter, witness, done, .. } = self;
        let mut report = Report::new("soak", done.seed, stage.logs());
        report.figure("time of the faults", done.lasted.as_secs_f64(), "s");
        for (what, count) in done.counts() {
            report.figure(what, f64::from(count), "");
        }
        let starts: u32 = replicas.iter().map(super::replica::Replica::starts).sum();
        let by_itself = starts - u32::try_from(replicas.len())? - done.kills;
        report.figure("times that a replica ended by itself", f64::from(by_itself), "");
        report.figure(
            "longest time without a leader after a fault of it",
            longest(&done.takeovers),
            "s",
        );
        let what = "longest time until all pods ran when the faults of a phase were over";
        report.at_most(what, longest(&done.recoveries), "s", RECOVERY.as_secs_f64());
        report.figure("time until everything rested at the end", end.took, "s");
        witness.tell(&mut report);
        report.never("pods without a node at the end", &end.waiting);
        report.never("claims and instances that do not match at the end", &end.unmatched);
        report.never("claims that came or went to the end", &end.restless);
        report.never("nodes that were left tainted or changed", &done.left_over);
        report.never("panics", &panics(stage.logs())?);
        tell_audit(&mut report, &stage, &replicas)?;
        let entries = stage.audit()?;
        let users: Vec<_> = replicas.iter().map(|replica| replica.user.as_str()).collect();
        let by_us: Vec<_> =
            entries.iter().filter(|entry| users.contains(&entry.user.as_str())).collect();
        report.never("do-not-disrupt pods that were evicted", &evictions_of_kept(&by_us));
        report.never("writes to a node of nobody's", &writes_to_foreign(&by_us));
        let growth = meter.growth();
        report.at_most("most memory of the last third, over that of the first", growth, "", GROWTH);
        for table in meter.tables(&users, &entries) {
            report.table(table);
        }
        Ok(report)
    }
}

fn longest(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

fn evictions_of_kept<'a>(by_us: &[&'a Entry]) -> Vec<&'a Entry> {
    let of_kept = |entry: &&&Entry| {
        let deletes = entry.resource == "pods/eviction" || entry.verb == "delete";
        deletes
            && entry.resource.starts_with("pods")
            && entry.name.starts_with(KEPT)
            && entry.code < 300
    };
    by_us.iter().filter(of_kept).copied().collect()
}

fn writes_to_foreign<'a>(by_us: &[&'a Entry]) -> Vec<&'a Entry> {
    let foreign = |entry: &&&Entry| {
        entry.is_write() && entry.resource.starts_with("nodes") && entry.name == FOREIGN
    };
    by_us.iter().filter(foreign).copied().collect()
}

/// Nodes that wait for a disruption which nothing carries out; and the foreign one, if it is not there any more.
async fn left_over(stage: &Stage) -> Result<Vec<String>> {
    let nodes = stage.api.list(NODES).await?;
    let mut found: Vec<_> = nodes
        .iter()
        .filter(|node| is_tainted(node))
        .map(|node| format!("{} is tainted for disruption", api::name(node)))
        .collect();
    if !nodes.iter().any(|node| api::name(node) == FOREIGN) {
        found.push(format!("{FOREIGN} is gone"));
    }
    Ok(found)
}

fn is_tainted(node: &Value) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    taints.into_iter().flatten().any(|taint| taint["key"] == "karpenter.sh/disrupted")
}

/// The lines with which a thread of a replica ended.
fn panics(logs: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in fs::read_dir(logs)? {
        let path = file?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kerf-")) {
            continue;
        }
        let log = fs::read(&path)?;
        let lines = String::from_utf8_lossy(&log);
        found.extend(lines.lines().filter(|line| line.contains("panicked at")).map(str::to_owned));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn entry(verb: &str, resource: &str, name: &str, code: u16) -> Entry {
        Entry {
            received: Timestamp::UNIX_EPOCH,
            answered: Timestamp::UNIX_EPOCH,
            user: "kerf-a".to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            code,
            holder: None,
        }
    }

    #[test]
    fn finds_what_was_done_to_objects_that_are_to_be_left_alone() {
        let entries = [
            entry("create", "pods/eviction", "kept-a", 201),
            entry("create", "pods/eviction", "kept-b", 429),
            entry("delete", "pods", "kept-c", 200),
            entry("patch", "pods/status", "kept-d", 200),
            entry("create", "pods/eviction", "wave-0-a", 201),
            entry("patch", "nodes", FOREIGN, 200),
            entry("get", "nodes", FOREIGN, 200),
            entry("patch", "nodes", "default-a", 200),
        ];
        let entries: Vec<_> = entries.iter().collect();
        let names =
            |found: Vec<&Entry>| found.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(evictions_of_kept(&entries)), ["kept-a", "kept-c"]);
        assert_eq!(names(writes_to_foreign(&entries)), [FOREIGN]);
    }

    #[test]
    fn a_taint_that_is_left_is_seen() {
        let node = |key: &str| json!({"spec": {"taints": [{"key": "other"}, {"key": key}]}});
        assert!(is_tainted(&node("karpenter.sh/disrupted")));
        assert!(!is_tainted(&node("karpenter.sh/unregistered")));
    }

    #[test]
    fn the_last_words_of_a_thread_are_found() {
        let logs = tempfile::tempdir().unwrap();
        fs::write(logs.path().join("kerf-a-1.log"), "{}\nthread 'main' panicked at x.rs:1\n")
            .unwrap();
        fs::write(logs.path().join("audit.log"), "panicked at\n").unwrap();
        assert_eq!(panics(logs.path()).unwrap(), ["thread 'main' panicked at x.rs:1"]);
    }
}
