//! `kerf demo`: clusters in this process, in fast motion.

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use kerf_simulation::{PlayError, PolicyError, Scenario, ScenarioError, Summary};
use kerf_view::{Key, screen::Screen};

use crate::{
    cli::{DemoOptions, Story},
    exit,
    output::Answer,
};

mod cascade;
mod lines;
mod page;
mod scene;
mod shop;
mod summary;

#[cfg(test)]
pub(crate) use cascade::Report as DemoComparison;

/// Slow enough to read, short enough to stay.
const WATCHED: u64 = 45;
/// Pictures per second are enough at ten.
const FRAME: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Play(#[from] PlayError),
    #[error("the cluster under {name} ended without a word; this is a bug of kerf demo")]
    Lost { name: &'static str },
    #[error("cannot listen on port {port} (--serve): {source}")]
    Serve { port: u16, source: io::Error },
    #[error("cannot serve the page on port {port} (--dashboard-port): {source}")]
    Page { port: u16, source: io::Error },
    #[error("cannot write a kubeconfig file: {0}")]
    Kubeconfig(io::Error),
    #[error("cannot write pictures into {directory}: {source}")]
    Pictures { directory: String, source: io::Error },
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Answer for Summary {
    const KIND: &'static str = "DemoSummary";
}

pub(crate) fn demo(options: &DemoOptions) -> ExitCode {
    let played = match &options.story {
        Story::Cascade => cascade::play(options),
        Story::Shop { policy, serve, dashboard } => shop::play(options, policy, *serve, *dashboard),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough (`kerf demo | head`) is not an error.
        Err(DemoError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("kerf: {error}");
            match error {
                DemoError::Scenario(_) | DemoError::Policy(_) => exit::WRONG_INPUT.into(),
                _ => exit::FAILED.into(),
            }
        }
    }
}

/// The scenario with what the command line says about it.
fn adapted(mut scenario: Scenario, options: &DemoOptions) -> Scenario {
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    if let Some(length) = &options.length {
        scenario.length = length.clone();
    }
    scenario
}

/// How fast time passes, and whether it does.
struct Pace {
    speed: u32,
    paused: bool,
}

impl Pace {
    fn of(options: &DemoOptions, length: Duration) -> Self {
        let speed = u32::try_from(length.as_secs() / WATCHED).unwrap_or(u32::MAX).max(1);
        Self { speed: options.speed.unwrap_or(speed), paused: false }
    }

    /// How much time passes until the next picture.
    fn stride(&self) -> Duration {
        if self.paused { Duration::ZERO } else { FRAME * self.speed }
    }

    /// Reads keys until the time of this picture is over. Says whether the user wants to end it.
    fn keys(&mut self, screen: &Screen, drawn: Instant) -> io::Result<bool> {
        loop {
            let left = FRAME.saturating_sub(drawn.elapsed());
            match screen.key(left)? {
                Some(Key::Char('q') | Key::Interrupt | Key::Escape) => return Ok(true),
                Some(Key::Char('p' | ' ')) => self.paused = !self.paused,
                Some(Key::Char('+' | '=')) => self.speed = (self.speed * 2).min(100_000),
                Some(Key::Char('-')) => self.speed = (self.speed / 2).max(1),
                _ => {}
            }
            if drawn.elapsed() >= FRAME {
                return Ok(false);
            }
        }
    }
}
