//! `kerf simulate`: what policies would cost and spare.

use std::{
    io,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

use kerf_provider::BoxError;
use kerf_simulation::{
    Cloud, Comparison, DEFAULTS, Load, LoadError, PlayError, Policy, PolicyError, Scenario,
    ScenarioError, compare, html,
};

use crate::{
    cli::SimulateOptions,
    exit::{self, Exit},
    output::{self, Answer, Pending, Readers},
    providers::{self, Chosen},
};

mod table;

#[derive(Debug, thiserror::Error)]
enum SimulateError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Play(#[from] PlayError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}")]
    InstanceTypes(BoxError),
    #[error(
        "{path} has no nodes of pools, so there are no instance types to print; take a snapshot of a cluster with kerf snapshot"
    )]
    NoNodes { path: String },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error("cannot write the report: {0}")]
    Print(String),
}

impl Answer for Comparison {
    const KIND: &'static str = "SimulationReport";
}

pub(crate) fn simulate(options: &SimulateOptions) -> ExitCode {
    match report(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kerf: {error}");
            match error {
                SimulateError::Scenario(_)
                | SimulateError::Policy(_)
                | SimulateError::Load(_)
                | SimulateError::InstanceTypes(_)
                | SimulateError::NoNodes { .. } => exit::WRONG_INPUT.into(),
                SimulateError::Play(error) => exit_of(&error).into(),
                _ => exit::FAILED.into(),
            }
        }
    }
}

pub(crate) fn exit_of(error: &PlayError) -> Exit {
    match error {
        PlayError::Refused { .. }
        | PlayError::Policy { .. }
        | PlayError::Market(_)
        | PlayError::Load(_)
        | PlayError::TooFewSeeds { .. }
        | PlayError::UnknownInstanceType { .. } => exit::WRONG_INPUT,
        _ => exit::FAILED,
    }
}

fn report(options: &SimulateOptions) -> Result<(), SimulateError> {
    let mut scenario = Scenario::from_file(&options.scenario)?;
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    if let Some(length) = &options.length {
        scenario.length = length.clone();
    }
    if let Some(file) = &options.instance_types_file {
        scenario.instance_types.clear();
        scenario.instance_types_file = Some(file.clone());
    }
    if let Some(load) = &options.load {
        scenario.load = Load::read(load)?;
    }
    scenario.cloud = cloud(&options.providers, &scenario).map_err(SimulateError::InstanceTypes)?;
    if options.print_instance_types {
        let path = || options.scenario.display().to_string();
        let sample = scenario.instance_types_sample()?;
        return write(&sample.ok_or_else(|| SimulateError::NoNodes { path: path() })?);
    }
    let policies = policies(options, &scenario)?;
    // Before the runs: what takes minutes is not begun for a path that cannot be written.
    let page = options.html.as_ref().map(|path| {
        let unwritable = |source| unwritable(path, source);
        Pending::open(path, Readers::Usual).map_err(unwritable).map(|page| (path, page))
    });
    let page = page.transpose()?;
    let bar = Bar::of(&scenario, &policies, options.seeds);
    let comparison = compare(&scenario, &policies, options.seeds, |share| bar.show(share));
    bar.clear();
    let comparison = comparison?;
    let render = |comparison: &Comparison| table::render(comparison) + &notes(comparison);
    let text = output::text(&comparison, options.format, render);
    write(&text.map_err(SimulateError::Print)?)?;
    let Some((path, page)) = page else { return Ok(()) };
    page.finish(|to| to.write_all(html(&comparison).as_bytes()))
        .map_err(|source| unwritable(path, source))
}

fn write(text: &str) -> Result<(), SimulateError> {
    output::print(text).map_err(|error| SimulateError::Print(error.to_string()))
}

fn unwritable(path: &Path, source: io::Error) -> SimulateError {
    SimulateError::Write { path: path.display().to_string(), source }
}

/// Of the providers to choose from, that of the first pool whose NodeClass this build knows, else the first.
pub(crate) fn cloud(choice: &[Chosen], scenario: &Scenario) -> Result<Cloud, BoxError> {
    let of_pools = scenario.node_class_kinds().find_map(|(group, kind)| {
        let name = providers::of_node_class(group, kind)?.name();
        choice.iter().find(|chosen| chosen.provider.name() == name)
    });
    let chosen = of_pools.unwrap_or(&choice[0]);
    Ok(Cloud::new(chosen.provider, chosen.catalogue()?))
}

/// The one of `--policy`, those of `--compare` and those of the sweeps, which take the place of the one that they start from.
/// The default policy runs where nothing else does.
fn policies(options: &SimulateOptions, scenario: &Scenario) -> Result<Vec<Policy>, SimulateError> {
    let mut own = scenario.own_policies();
    let alone = options.policy.as_ref().filter(|_| options.sweeps.is_empty());
    let mut names: Vec<_> = alone.into_iter().cloned().collect();
    for text in &options.compare {
        let is_file = Path::new(text).extension().is_some_and(|end| end == "yaml" || end == "yml");
        if is_file {
            let listed = Policy::from_file(&PathBuf::from(text))?;
            names.extend(listed.iter().map(|policy| policy.name.clone()));
            // Who names a file means what stands in it.
            own.splice(..0, listed);
        } else {
            names.push(text.clone());
        }
    }
    let swept = options.policy.clone().unwrap_or_else(|| DEFAULTS.to_owned());
    if names.is_empty() && options.sweeps.is_empty() {
        names.push(swept.clone());
    }
    let mut policies = Policy::named(&names, &own)?;
    let base = Policy::named(&[swept], &own)?;
    for sweep in &options.sweeps {
        for policy in &base {
            policies.extend(policy.sweep(sweep)?);
        }
    }
    Ok(policies)
}

/// As under a plan.
fn notes(comparison: &Comparison) -> String {
    let notes = comparison.notes.iter().map(|note| format!("Note: {note}\n"));
    if comparison.notes.is_empty() {
        String::new()
    } else {
        format!("\n{}", notes.collect::<String>())
    }
}

/// What runs and for how long still, on standard error, if somebody looks.
#[derive(Debug)]
pub(crate) struct Bar {
    what: String,
    started: Instant,
    percent: Mutex<Option<u32>>,
}

const BAR: u32 = 24;

impl Bar {
    fn of(scenario: &Scenario, policies: &[Policy], seeds: u32) -> Self {
        let what = format!(
            "{} of {} under {}",
            shown_hours(scenario.length.as_duration()),
            scenario.name,
            match (policies, seeds) {
                ([one], 1) => one.name.clone(),
                (all, 1) => format!("{} policies", all.len()),
                (all, seeds) => format!("{} policies, {seeds} seeds each", all.len()),
            }
        );
        Self::new(what)
    }

    pub(crate) fn new(what: String) -> Self {
        Self { what, started: Instant::now(), percent: Mutex::default() }
    }

    pub(crate) fn show(&self, share: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share lies between 0 and 1"
        )]
        let percent = (share * 100.0) as u32;
        let Ok(mut shown) = self.percent.lock() else { return };
        if *shown == Some(percent) || !output::draws_on_stderr() {
            return;
        }
        *shown = Some(percent);
        let full = percent * BAR / 100;
        let bar: String = (0..BAR).map(|at| if at < full { '█' } else { '·' }).collect();
        let line =
            format!("{bar} {percent:>3}%  {}{}", left(self.started.elapsed(), share), self.what);
        let width = output::width().unwrap_or(80).saturating_sub(1);
        let line: String = line.chars().take(width).collect();
        // A bar that cannot be drawn is no reason to stop.
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    pub(crate) fn clear(&self) {
        if self.percent.lock().is_ok_and(|shown| shown.is_some()) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn shown_hours(length: Duration) -> String {
    let hours = length.as_secs_f64() / 3600.0;
    if hours < 48.0 { format!("{hours:.0} h") } else { format!("{:.0} days", hours / 24.0) }
}

/// How long it will take from what it took. The first seconds say little.
fn left(elapsed: Duration, share: f64) -> String {
    if elapsed < Duration::from_secs(2) || share <= 0.0 {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * (1.0 - share) / share;
    match seconds {
        seconds if seconds < 90.0 => format!("about {seconds:.0} s left  "),
        seconds => format!("about {:.0} min left  ", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_time_taken() {
        let after = |seconds, share| left(Duration::from_secs(seconds), share);
        for (left, expected) in [
            (after(1, 0.5), ""),
            (after(10, 0.0), ""),
            (after(10, 0.5), "about 10 s left  "),
            (after(60, 0.2), "about 4 min left  "),
        ] {
            assert_eq!(left, expected);
        }
    }
}
