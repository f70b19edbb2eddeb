//! What happened beside what would have happened, with one sentence for those who read no more.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use kerf_provider::BoxError;
use kerf_simulation::{
    Cloud, Comparison, DEFAULTS, PlayError, Policy, Scenario, ScenarioError, Summary, compare,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    accounts,
    journal::{JournalError, Trace},
    policies::CALIBRATION,
    replay::{Story, median},
};

/// A record that is shorter says nothing: consolidation alone waits for longer.
const SHORTEST: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Play(#[from] PlayError),
    #[error("{0}")]
    InstanceTypes(BoxError),
    #[error("the record is {} s long; a report needs {} s at least", length.as_secs(), SHORTEST.as_secs())]
    TooShort { length: Duration },
}

/// How to play a record again.
#[derive(Clone, Debug)]
pub struct Terms {
    pub policies: Vec<Policy>,
    /// Instance types and their prices; those of the provider's catalogue without it.
    pub instance_types_file: Option<PathBuf>,
    pub seed: u64,
}

/// All amounts of money are dollars.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub verdict: String,
    pub calibration: Calibration,
    #[schemars(with = "String")]
    pub from: Timestamp,
    #[schemars(with = "String")]
    pub to: Timestamp,
    pub hours: f64,
    /// Of the record on the disk.
    pub bytes: u64,
    /// Pods that the record knows.
    pub pods: u64,
    /// Time in which changes were not seen when they happened, and in how many pieces.
    pub blind_seconds: u64,
    pub gaps: u32,
    /// What happened.
    pub running: Summary,
    /// What would have happened.
    pub policies: Vec<Summary>,
    pub caveats: Vec<String>,
    /// All of it, what happened first.
    #[serde(skip)]
    pub comparison: Comparison,
}

/// The replay under Karpenter's rules beside what happened.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Calibration {
    pub policy: String,
    /// By how many percent the replay cost more than what happened.
    pub cost_percent: f64,
    pub evictions: u64,
    pub evictions_happened: u64,
    pub trust: Trust,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Trust {
    /// Cost within 5 %, and evictions within a quarter, or ten.
    Close,
    /// Cost within 15 %, and evictions within a factor of two, or twenty.
    Rough,
    None,
}

/// Reads the record in a directory and plays it again under each policy, in the cloud that its pools are of. `progress` hears of the share that is done.
pub fn report(
    dir: &Path,
    terms: &Terms,
    cloud: impl FnOnce(&Scenario) -> Result<Cloud, BoxError>,
    progress: impl Fn(f64) + Sync,
) -> Result<Report, ReportError> {
    let trace = Trace::open(dir)?;
    let story = Story::read(&trace)?;
    let length = story.length();
    if length < SHORTEST {
        return Err(ReportError::TooShort { length });
    }
    let mut scenario = story.scenario(&dir.display().to_string())?;
    scenario.seed = terms.seed;
    scenario.instance_types_file.clone_from(&terms.instance_types_file);
    scenario.cloud = cloud(&scenario).map_err(ReportError::InstanceTypes)?;
    // Before the replays: it is quick, and finds what they would stumble over.
    let happened = accounts::accounts(&trace, &story, &scenario)?;
    let mut comparison = compare(&scenario, &terms.policies, 1, progress)?;
    let policies = comparison.policies.clone();
    comparison.put_first(happened);
    let running = comparison.policies[0].clone();
    let calibration = calibration(&running, &policies);
    let verdict = verdict(length, &running, &policies, &calibration);
    let caveats = caveats(&story, &running, &scenario, &comparison.notes);
    "kerf shadow".clone_into(&mut comparison.scenario);
    comparison.description = format!(
        "{} The row {} is what happened on the cluster; the others are replays of its load. {}",
        calibration.text,
        accounts::RUNNING,
        caveats.join(" ")
    );
    Ok(Report {
        verdict,
        calibration,
        from: story.start,
        to: story.end,
        hours: (length.as_secs_f64() / 36.0).round() / 100.0,
        bytes: trace.bytes(),
        pods: story.pods,
        blind_seconds: story.blind.1.as_secs(),
        gaps: story.blind.0,
        running,
        policies,
        caveats,
        comparison,
    })
}

fn verdict(
    length: Duration,
    running: &Summary,
    policies: &[Summary],
    calibration: &Calibration,
) -> String {
    let mut text = format!(
        "In {} the running autoscaler spent ${:.2} and evicted {}.",
        shown(length),
        running.cost,
        pods(running.evictions)
    );
    let defaults = policies.iter().find(|policy| policy.name == DEFAULTS);
    let other = defaults.or_else(|| policies.iter().find(|policy| policy.name != CALIBRATION));
    if let Some(policy) = other {
        let name = if policy.name == DEFAULTS {
            "Kerf's defaults".to_owned()
        } else {
            format!("Kerf's policy {}", policy.name)
        };
        let percent = percent(policy.cost, running.cost);
        let _ = write!(
            text,
            " {name} would have spent ${:.2} ({}) and evicted {}.",
            policy.cost,
            signed(percent),
            policy.evictions
        );
    }
    if calibration.trust == Trust::None {
        text.push_str(" Do not rely on that: the replay does not match this cluster.");
    }
    text
}

fn calibration(running: &Summary, policies: &[Summary]) -> Calibration {
    let replay = policies.iter().find(|policy| policy.name == CALIBRATION).unwrap_or(running);
    let cost_percent = percent(replay.cost, running.cost);
    let (there, here) = (running.evictions, replay.evictions);
    let apart = there.abs_diff(here);
    let trust = if cost_percent.abs() <= 5.0 && apart <= (there / 4).max(10) {
        Trust::Close
    } else if cost_percent.abs() <= 15.0 && apart <= there.max(20) && here <= (2 * there).max(20) {
        Trust::Rough
    } else {
        Trust::None
    };
    let so = match trust {
        Trust::Close => "the replay is close to what happened",
        Trust::Rough => "the replay is rough: read differences between replays, not single figures",
        Trust::None => "the replay is too far from what happened to say anything",
    };
    Calibration {
        policy: CALIBRATION.to_owned(),
        cost_percent,
        evictions: here,
        evictions_happened: there,
        trust,
        text: format!(
            "Replayed under Karpenter's rules, the same load costs ${:.2} ({} of what happened) and evicts {}, where {there} were evicted: {so}.",
            replay.cost,
            signed(cost_percent),
            pods(here)
        ),
    }
}

fn caveats(story: &Story, running: &Summary, scenario: &Scenario, notes: &[String]) -> Vec<String> {
    let mut caveats = vec![
        "A replay has the recorded number of pods of each workload at each time. What an autoscaler of pods would have changed \
         because of other evictions is not in it."
            .to_owned(),
        "An eviction is a pod with the condition DisruptionTarget: pods that people drained or that others preempted count too."
            .to_owned(),
        "Volumes, and nodes that belong to no NodePool and came later, are not replayed.".to_owned(),
    ];
    let prices = match &scenario.instance_types_file {
        Some(path) => format!("those of {}", path.display()),
        None => format!("those of the catalogue of provider {}", scenario.cloud.name()),
    };
    caveats.push(format!(
        "Instance types and prices are {prices}, and stay the same all the time. Every type can be had."
    ));
    caveats.extend(notes.iter().map(|note| format!("Note: {note}.")));
    let seconds = |seen: &[i64]| median(seen).map(|ms| format!("{:.1} s", ms as f64 / 1000.0));
    let delays = &story.delays;
    match (seconds(&delays.node_ready), seconds(&delays.pod_start)) {
        (Some(node), Some(pod)) => caveats.push(format!(
            "Replayed nodes take {node} to be ready and pods take {pod} to run: the medians of the record."
        )),
        _ => caveats.push(
            "Too few nodes or pods started while it was recorded to say how long that takes. Replays take 40 s and 4 s, or the \
             median that is known."
                .to_owned(),
        ),
    }
    if story.blind.1 >= Duration::from_mins(1) {
        let (gaps, time) = (story.blind.0, shown(story.blind.1));
        caveats.push(format!(
            "Changes were not seen when they happened for {time} in {gaps} gaps. Evictions in a gap are not counted."
        ));
    }
    let deleted = running.removed.get("deleted").copied().unwrap_or_default();
    if deleted > 0 {
        caveats.push(format!(
            "{deleted} of the {} nodes that went were not consolidated, empty or drifted: they expired, or the cloud or people \
             took them. Replays take no nodes away for that, but for expiry.",
            running.terminated
        ));
    }
    if story.foreign_nodes > 0 {
        caveats.push(format!(
            "{} nodes that no NodePool made came while it was recorded, and are not in the replays.",
            story.foreign_nodes
        ));
    }
    if story.length() < Duration::from_hours(24) {
        caveats.push(
            "The record is shorter than a day. Loads of nights and weekends are not in it."
                .to_owned(),
        );
    }
    caveats
}

fn percent(value: f64, of: f64) -> f64 {
    if of == 0.0 { 0.0 } else { ((value / of - 1.0) * 1000.0).round() / 10.0 }
}

/// `+1 %`, `-12 %`; a decimal where that is all there is.
fn signed(percent: f64) -> String {
    if percent != 0.0 && percent.abs() < 1.0 {
        format!("{percent:+.1} %")
    } else {
        format!("{percent:+.0} %")
    }
}

fn pods(count: u64) -> String {
    format!("{count} pod{}", if count == 1 { "" } else { "s" })
}

fn shown(length: Duration) -> String {
    let minutes = length.as_secs() / 60;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{} s", length.as_secs()),
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) if hours < 10 && minutes > 0 => format!("{hours} h {minutes} min"),
        (hours, _) => format!("{hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(name: &str, cost: f64, evictions: u64) -> Summary {
        Summary { name: name.to_owned(), cost, evictions, ..Summary::default() }
    }

    #[test]
    fn the_verdict_says_what_happened_and_what_would_have() {
        let running = summary("running autoscaler", 41.2, 512);
        for (length, policies, expected) in [
            (
                Duration::from_mins(26 * 60 + 12),
                vec![summary(CALIBRATION, 41.9, 498), summary(DEFAULTS, 41.6, 96)],
                "In 26 h the running autoscaler spent $41.20 and evicted 512 pods. Kerf's defaults would have spent $41.60 \
                 (+1 %) and evicted 96.",
            ),
            (
                Duration::from_mins(95),
                vec![summary(CALIBRATION, 41.2, 512), summary("all-controls", 30.9, 1)],
                "In 1 h 35 min the running autoscaler spent $41.20 and evicted 512 pods. Kerf's policy all-controls would have \
                 spent $30.90 (-25 %) and evicted 1.",
            ),
            (
                Duration::from_mins(30),
                vec![summary(CALIBRATION, 80.0, 3), summary(DEFAULTS, 41.2, 96)],
                "In 30 min the running autoscaler spent $41.20 and evicted 512 pods. Kerf's defaults would have spent $41.20 \
                 (+0 %) and evicted 96. Do not rely on that: the replay does not match this cluster.",
            ),
        ] {
            let calibration = calibration(&running, &policies);
            assert_eq!(verdict(length, &running, &policies, &calibration), expected);
        }
    }

    #[test]
    fn a_replay_is_trusted_as_far_as_it_matches() {
        for (happened, replayed, expected) in [
            ((100.0, 100), (100.0, 100), Trust::Close),
            ((100.0, 100), (105.0, 125), Trust::Close),
            ((100.0, 100), (105.0, 126), Trust::Rough),
            ((100.0, 100), (94.0, 100), Trust::Rough),
            ((100.0, 0), (100.0, 10), Trust::Close),
            ((100.0, 0), (100.0, 20), Trust::Rough),
            ((100.0, 0), (100.0, 21), Trust::None),
            ((100.0, 100), (100.0, 201), Trust::None),
            ((100.0, 100), (116.0, 100), Trust::None),
        ] {
            let running = summary("running autoscaler", happened.0, happened.1);
            let replay = summary(CALIBRATION, replayed.0, replayed.1);
            let found = calibration(&running, &[replay]).trust;
            assert_eq!(found, expected, "{happened:?} {replayed:?}");
        }
    }
}
