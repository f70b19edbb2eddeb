//! Many claims at once, on a cloud with the delays and the limits of the real one.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::account::Pace;
use crate::case::Case;
use crate::journal::Count;
use crate::side::Side;

const PATIENCE: Duration = Duration::from_mins(4);

#[derive(Debug, Serialize)]
pub(crate) struct Burst {
    side: &'static str,
    claims: usize,
    launched: usize,
    /// From the first claim to the last launch, by what the API server has written down.
    seconds: i64,
    calls: BTreeMap<String, Count>,
}

/// Gives a side so many claims at once.
pub(crate) async fn burst(side: &Side, count: usize, kerf: &Path, logs: &Path) -> Result<Burst> {
    let name = side.name();
    eprintln!("{name}: {count} claims at once");
    let (class, claims) = Case::burst(count)?;
    let mut stage = side.stage(Pace::Real, kerf, logs).await?;
    stage.apply(&Case::manifest(std::slice::from_ref(&class))).await?;
    let begin = Instant::now();
    while !stage.objects().await?.is_done(&class) {
        ensure!(begin.elapsed() < PATIENCE, "{name}: the class is not ready");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    stage.journal.forget();
    stage.apply(&Case::manifest(&[claims])).await?;
    let begin = Instant::now();
    loop {
        let objects = stage.objects().await?;
        let launches: Vec<_> = objects.claims.iter().filter_map(launched_at).collect();
        let late = begin.elapsed() > PATIENCE;
        if launches.len() >= count || late {
            let created = objects
                .claims
                .iter()
                .filter_map(|claim| time(&claim["metadata"]["creationTimestamp"]));
            let (first, last) = (created.min(), launches.iter().max().copied());
            let seconds =
                first.zip(last).map_or(0, |(first, last)| last.duration_since(first).as_secs());
            fs::write(logs.join(format!("{name}-burst-aws.log")), stage.journal.to_text())?;
            let calls = stage.journal.counts();
            return Ok(Burst {
                side: name,
                claims: count,
                launched: launches.len(),
                seconds,
                calls,
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn launched_at(claim: &Value) -> Option<Timestamp> {
    let conditions = claim["status"]["conditions"].as_array()?;
    let launched =
        conditions.iter().find(|one| one["type"] == "Launched" && one["status"] == "True")?;
    time(&launched["lastTransitionTime"])
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, claims, launched, seconds, calls } = self;
        let all: usize = calls.values().map(|count| count.made).sum();
        let throttled: usize = calls.values().map(|count| count.throttled).sum();
        writeln!(
            f,
            "{side}: {launched} of {claims} claims launched in {seconds} s, {all} calls, {throttled} of them throttled"
        )?;
        for (operation, Count { made, throttled }) in calls {
            writeln!(f, "    {operation:32} {made:>6} {throttled:>6}")?;
        }
        Ok(())
    }
}
