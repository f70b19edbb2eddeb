//! `kerf demo`: a cluster in this process, in fast motion.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use kerf_runtime::shutdown;
use kerf_simulation::{Play, PlayError, Policy, PolicyError, Scenario, ScenarioError, Summary};
use kerf_testbed::Served;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{DemoOptions, Format},
    exit,
    output::{self, Answer},
};
use page::Page;
use view::{Screen, Setting};

mod lines;
mod page;
mod summary;
mod view;

/// Two hours in 45 seconds: slow enough to read, short enough to stay.
const SPEED: u32 = 160;
/// Pictures per second are enough at ten.
const FRAME: Duration = Duration::from_millis(100);
/// How much time passes between two looks when nobody waits for them.
const STRIDE: Duration = Duration::from_mins(1);

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
    #[error("cannot listen on port {port} (--serve): {source}")]
    Serve { port: u16, source: io::Error },
    #[error("cannot serve the page on port {port} (--dashboard-port): {source}")]
    Page { port: u16, source: io::Error },
    #[error("cannot write a kubeconfig file: {0}")]
    Kubeconfig(io::Error),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Answer for Summary {
    const KIND: &'static str = "DemoSummary";
}

pub(crate) fn demo(options: &DemoOptions) -> ExitCode {
    match perform(options) {
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

fn perform(options: &DemoOptions) -> Result<(), DemoError> {
    let mut scenario = Scenario::demo()?;
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    if let Some(length) = &options.length {
        scenario.length = length.clone();
    }
    let policy = Policy::named(std::slice::from_ref(&options.policy), &[])?.remove(0);
    // Before the runtime of the cluster, because it has one of its own.
    let page = options.dashboard.map(|at| Page::open(at, &scenario, &policy)).transpose()?;
    // Time stands still while everyone waits for the terminal; signals and kubectl need the I/O driver.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .map_err(DemoError::Runtime)?;
    runtime.block_on(async {
        let stop = shutdown::on_signals().map_err(DemoError::Runtime)?;
        let window = page.as_ref().map(Page::window).unwrap_or_default();
        let mut play = Play::start_watched(&scenario, &policy, window).await?;
        let server = match options.serve {
            Some(port) => Some(Server::open(&play, port).await?),
            None => None,
        };
        let started = Instant::now();
        tell_story(&mut play, options, (server.as_ref(), page.as_ref()), &stop).await?;
        let summary = Summary::of(&play);
        let format = if options.json { Format::Json } else { Format::Table };
        let render =
            |summary: &Summary| summary::render(summary, play.elapsed(), started.elapsed());
        let text = output::text(&summary, format, render).map_err(io::Error::other)?;
        io::stdout().write_all(text.as_bytes())?;
        match server {
            Some(server) if !stop.is_cancelled() => {
                stay(&mut play, (&server, page.as_ref()), options.json, &stop).await
            }
            _ => Ok(()),
        }
    })
}

/// Plays the scenario to its end, and shows it.
async fn tell_story(
    play: &mut Play,
    options: &DemoOptions,
    (server, page): (Option<&Server>, Option<&Page>),
    stop: &CancellationToken,
) -> Result<(), DemoError> {
    let end = play.scenario().length.as_duration();
    let watched = !options.json && io::stdout().is_terminal() && !output::is_dumb();
    let speed = options.speed.or(watched.then_some(SPEED));
    let stride = speed.map_or(STRIDE, |speed| FRAME * speed);
    let setting = Setting { speed, kubeconfig: server.map(Server::path) };
    let mut screen = watched.then(Screen::open).transpose()?;
    let mut lines = lines::Lines::default();
    let mut time = Duration::ZERO;
    while time < end && !stop.is_cancelled() {
        let drawn = Instant::now();
        time = (time + stride).min(end);
        play.until(time).await?;
        if let Some(page) = page {
            page.renew().await;
        }
        match &mut screen {
            Some(screen) => screen.draw(play, &setting)?,
            None if options.json => {}
            None => lines.print(play, &mut io::stdout().lock())?,
        }
        if speed.is_some() {
            // Blocks the whole cluster, which is the point: its time is what the terminal shows.
            thread::sleep(FRAME.saturating_sub(drawn.elapsed()));
        }
    }
    Ok(())
}

/// Keeps the cluster up in real time. Where a program reads standard output, nothing more is printed there.
async fn stay(
    play: &mut Play,
    (server, page): (&Server, Option<&Page>),
    is_read: bool,
    stop: &CancellationToken,
) -> Result<(), DemoError> {
    let stays = "The cluster stays up in real time until Ctrl-C.";
    let page_url = page.map(|page| format!("{}\n", page.url())).unwrap_or_default();
    let invitation = format!("\n{}\n{page_url}{stays}\n", server.invitation());
    if is_read {
        eprint!("{invitation}");
    } else {
        io::stdout().write_all(invitation.as_bytes())?;
    }
    tokio::time::resume();
    let mut lines = lines::Lines::after(play);
    while !stop.is_cancelled() {
        let next = play.elapsed() + FRAME;
        play.until(next).await?;
        if let Some(page) = page {
            page.renew().await;
        }
        if !is_read {
            lines.print(play, &mut io::stdout().lock())?;
        }
    }
    Ok(())
}

/// The cluster on a port, and the file that leads there. Both go with it.
struct Server {
    _served: Served,
    kubeconfig: tempfile::NamedTempFile,
}

impl Server {
    async fn open(play: &Play, port: u16) -> Result<Self, DemoError> {
        let served = play.testbed().serve(port).await;
        let served = served.map_err(|source| DemoError::Serve { port, source })?;
        let file = tempfile::Builder::new().prefix("kerf-demo-").suffix(".kubeconfig").tempfile();
        let mut kubeconfig = file.map_err(DemoError::Kubeconfig)?;
        let written = kubeconfig.write_all(served.kubeconfig().as_bytes());
        written.map_err(DemoError::Kubeconfig)?;
        Ok(Self { _served: served, kubeconfig })
    }

    fn path(&self) -> String {
        self.kubeconfig.path().display().to_string()
    }

    fn invitation(&self) -> String {
        format!("kubectl --kubeconfig {} get nodes", self.path())
    }
}
