//! Several policies on one scenario, side by side, under one seed or several.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use kerf_testbed::Testbed;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    play::{Play, PlayError},
    policy::{BASELINE, Policy},
    report::{Sample, Summary},
    scenario::Scenario,
};

/// How a run went.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    pub summary: Summary,
    pub samples: Vec<Sample>,
}

/// All runs, in the order of their policies.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    pub scenario: String,
    #[serde(skip)]
    pub description: String,
    pub hours: f64,
    /// The first of them.
    pub seed: u64,
    /// How many there were. All figures are means over them.
    pub seeds: u32,
    pub policies: Vec<Summary>,
    /// What is assumed, and what the figures cannot show, in sentences.
    pub notes: Vec<String>,
    /// Of each policy.
    #[serde(skip)]
    pub samples: Vec<Vec<Sample>>,
}

/// Points of a plot over time, and steps of a progress bar.
pub(crate) const SAMPLES: u32 = 240;

/// Runs one policy to the end, in virtual time. `progress` hears of each of the 240 parts of the run.
pub fn run(
    scenario: &Scenario,
    policy: &Policy,
    mut progress: impl FnMut(),
) -> Result<Recording, PlayError> {
    let length = scenario.length.as_duration();
    let played = Testbed::in_virtual_time(async {
        let mut play = Play::start(scenario, policy).await?;
        let mut samples = Vec::with_capacity(SAMPLES as usize);
        for part in 1..=SAMPLES {
            let time = if part == SAMPLES { length } else { length / SAMPLES * part };
            play.until(time).await?;
            samples.push(Sample::of(play.ledger(), time));
            progress();
        }
        Ok(Recording { summary: Summary::of(&play), samples })
    });
    played.map_err(PlayError::Runtime)?
}

/// Runs all policies under this many seeds, several runs at a time, each on a thread and a runtime of its own. What is saved
/// is measured against the policy that evicts nothing, which is run for that even where nobody asked for it. `progress`
/// hears of the share that is done.
pub fn compare(
    scenario: &Scenario,
    policies: &[Policy],
    seeds: u32,
    progress: impl Fn(f64) + Sync,
) -> Result<Comparison, PlayError> {
    let mut runs: Vec<Policy> = policies.to_vec();
    let asked_for = runs.iter().position(|policy| policy.name == BASELINE);
    let baseline = asked_for.unwrap_or(runs.len());
    if asked_for.is_none() {
        runs.extend(Policy::built_in().into_iter().find(|policy| policy.name == BASELINE));
    }
    let notes = scenario.notes()?;
    for policy in &runs {
        // Before anything runs, rather than after what stands before it has.
        policy.settings(&scenario.operator).map_err(|source| PlayError::of(policy, source))?;
    }
    let seeds = seeds.max(1);
    let last = last_seed(scenario.seed, seeds)
        .ok_or(PlayError::TooFewSeeds { first: scenario.seed, seeds })?;
    let scenarios: Vec<Scenario> =
        (scenario.seed..=last).map(|seed| Scenario { seed, ..scenario.clone() }).collect();
    let pairs: Vec<_> = runs
        .iter()
        .flat_map(|policy| scenarios.iter().map(move |scenario| (scenario, policy)))
        .collect();
    let recordings = run_all(&pairs, progress)?;
    let mut recordings: Vec<_> = recordings.chunks(scenarios.len()).map(Recording::mean).collect();
    let cost = recordings[baseline].summary.cost;
    recordings.truncate(policies.len());
    for recording in &mut recordings {
        recording.summary.measure_against(cost);
    }
    let (policies, samples) =
        recordings.into_iter().map(|recording| (recording.summary, recording.samples)).unzip();
    Ok(Comparison {
        scenario: scenario.name.clone(),
        description: scenario.description.clone(),
        hours: scenario.length.as_duration().as_secs_f64() / Duration::from_hours(1).as_secs_f64(),
        seed: scenario.seed,
        seeds,
        policies,
        notes,
        samples,
    })
}

impl Comparison {
    /// Puts a run that was not played before all others. What it saved is measured as theirs is.
    pub fn put_first(&mut self, mut recording: Recording) {
        let baseline = self.policies.iter().find_map(|one| Some(one.cost + one.savings?));
        if let Some(cost) = baseline {
            recording.summary.measure_against(cost);
        }
        self.policies.insert(0, recording.summary);
        self.samples.insert(0, recording.samples);
    }

    /// The length in words.
    pub fn shown_length(&self) -> String {
        let hours = format!("{:.2}", self.hours);
        let hours = hours.trim_end_matches('0').trim_end_matches('.');
        if hours == "1" { "1 hour".to_owned() } else { format!("{hours} hours") }
    }

    /// The seeds in words.
    pub fn shown_seeds(&self) -> String {
        if self.seeds == 1 {
            return format!("seed {}", self.seed);
        }
        let last = last_seed(self.seed, self.seeds).unwrap_or(u64::MAX);
        format!("means of {} seeds ({} to {last})", self.seeds, self.seed)
    }
}

/// `None` if there are not so many from there on.
fn last_seed(first: u64, seeds: u32) -> Option<u64> {
    first.checked_add(u64::from(seeds).saturating_sub(1))
}

impl Recording {
    /// What several runs come to on average. They were looked at at the same times.
    fn mean(runs: &[Self]) -> Self {
        let samples = (0..runs[0].samples.len())
            .map(|at| Sample::mean(&runs.iter().map(|run| run.samples[at]).collect::<Vec<_>>()))
            .collect();
        Self {
            summary: Summary::mean(&runs.iter().map(|run| &run.summary).collect::<Vec<_>>()),
            samples,
        }
    }
}

fn run_all(
    runs: &[(&Scenario, &Policy)],
    progress: impl Fn(f64) + Sync,
) -> Result<Vec<Recording>, PlayError> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..runs.len()).collect());
    let results: Mutex<Vec<Option<Result<Recording, PlayError>>>> =
        Mutex::new((0..runs.len()).map(|_| None).collect());
    let (done, failed) = (Mutex::new(0u32), AtomicBool::new(false));
    let parts = f64::from(SAMPLES) * runs.len() as f64;
    let step = || {
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        *done += 1;
        progress(f64::from(*done) / parts);
    };
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(index) = next else { return };
            let (scenario, policy) = runs[index];
            let result = run(scenario, policy, step);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(runs.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut recordings, mut first_error) = (Vec::new(), None);
    for result in results.into_iter().flatten() {
        match result {
            Ok(recording) => recordings.push(recording),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(recordings), Err)
}
