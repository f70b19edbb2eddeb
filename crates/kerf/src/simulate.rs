//! `kerf simulate`: what policies would cost and spare.

use std::{
    fs, io,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
};

use kerf_simulation::{
    Comparison, DEFAULTS, PlayError, Policy, PolicyError, Scenario, ScenarioError, compare, html,
};

use crate::cli::{Format, SimulateOptions};

mod table;

#[derive(Debug, thiserror::Error)]
enum SimulateError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Play(#[from] PlayError),
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error("cannot write the report: {0}")]
    Print(String),
}

pub(crate) fn simulate(options: &SimulateOptions) -> ExitCode {
    match report(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kerf: {error}");
            match error {
                SimulateError::Scenario(_)
                | SimulateError::Policy(_)
                | SimulateError::Play(
                    PlayError::Refused { .. }
                    | PlayError::Policy { .. }
                    | PlayError::Market(_)
                    | PlayError::TooFewSeeds { .. }
                    | PlayError::UnknownInstanceType { .. },
                ) => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
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
    let policies = policies(options, &scenario)?;
    let bar = Bar::default();
    let comparison = compare(&scenario, &policies, options.seeds, |share| bar.show(share));
    bar.clear();
    let comparison = comparison?;
    // First: what took minutes to find out is not lost to a path that cannot be written.
    print(&comparison, options.format)?;
    let Some(path) = &options.html else { return Ok(()) };
    fs::write(path, html(&comparison))
        .map_err(|source| SimulateError::Write { path: path.display().to_string(), source })
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

fn print(comparison: &Comparison, format: Format) -> Result<(), SimulateError> {
    let wrong = |error: &dyn std::error::Error| SimulateError::Print(error.to_string());
    let text = match format {
        Format::Table => table::render(comparison),
        Format::Json => serde_json::to_string_pretty(comparison).map_err(|e| wrong(&e))? + "\n",
        Format::Yaml => serde_saphyr::to_string(comparison).map_err(|e| wrong(&e))?,
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // A reader that has seen enough (`kerf simulate | head`) is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(wrong(&error)),
        _ => Ok(()),
    }
}

/// How far the runs are, on standard error, if somebody looks.
#[derive(Debug, Default)]
struct Bar {
    percent: Mutex<Option<u32>>,
}

const BAR: u32 = 40;

impl Bar {
    fn show(&self, share: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share lies between 0 and 1"
        )]
        let percent = (share * 100.0) as u32;
        let Ok(mut shown) = self.percent.lock() else { return };
        if *shown == Some(percent) || !io::stderr().is_terminal() {
            return;
        }
        *shown = Some(percent);
        let full = percent * BAR / 100;
        let bar: String = (0..BAR).map(|at| if at < full { '█' } else { '·' }).collect();
        // A bar that cannot be drawn is no reason to stop.
        let _ = write!(io::stderr(), "\r{bar} {percent:>3}%");
    }

    fn clear(&self) {
        if self.percent.lock().is_ok_and(|shown| shown.is_some()) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
