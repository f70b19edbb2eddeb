//! Several policies on one scenario, side by side.

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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub scenario: String,
    #[serde(skip)]
    pub description: String,
    pub hours: f64,
    pub seed: u64,
    pub policies: Vec<Summary>,
    /// Of each policy.
    #[serde(skip)]
    pub samples: Vec<Vec<Sample>>,
}

/// Points of a plot over time, and steps of a progress bar.
const SAMPLES: u32 = 240;

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

/// Runs all policies, several at a time, each on a thread and a runtime of its own. What is saved is measured against the
/// policy that evicts nothing, which is run for that even where nobody asked for it. `progress` hears of the share that
/// is done.
pub fn compare(
    scenario: &Scenario,
    policies: &[Policy],
    progress: impl Fn(f64) + Sync,
) -> Result<Comparison, PlayError> {
    let mut runs: Vec<Policy> = policies.to_vec();
    let asked_for = runs.iter().position(|policy| policy.name == BASELINE);
    let baseline = asked_for.unwrap_or(runs.len());
    if asked_for.is_none() {
        runs.extend(Policy::built_in().into_iter().find(|policy| policy.name == BASELINE));
    }
    let mut recordings = run_all(scenario, &runs, progress)?;
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
        policies,
        samples,
    })
}

fn run_all(
    scenario: &Scenario,
    policies: &[Policy],
    progress: impl Fn(f64) + Sync,
) -> Result<Vec<Recording>, PlayError> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..policies.len()).collect());
    let results: Mutex<Vec<Option<Result<Recording, PlayError>>>> =
        Mutex::new((0..policies.len()).map(|_| None).collect());
    let (done, failed) = (Mutex::new(0u32), AtomicBool::new(false));
    let parts = f64::from(SAMPLES) * policies.len() as f64;
    let step = || {
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        *done += 1;
        progress(f64::from(*done) / parts);
    };
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(index) = next else { return };
            let result = run(scenario, &policies[index], step);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(policies.len());
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
