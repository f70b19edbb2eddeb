//! The story of a shop: one cluster, every decision, and kubectl on it.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use kerf_controllers::settings::DashboardEndpoint;
use kerf_runtime::shutdown;
use kerf_simulation::{Play, Policy, Scenario, Summary};
use kerf_testbed::Served;
use kerf_view::{
    Stage,
    screen::{self, Screen},
};
use tokio_util::sync::CancellationToken;

use super::{DemoError, FRAME, Pace, adapted, lines, page::Page, scene, summary};
use crate::{
    cli::{DemoOptions, Format},
    output,
};

/// How much time passes between two looks when nobody waits for them.
const STRIDE: Duration = Duration::from_mins(1);

pub(super) fn play(
    options: &DemoOptions,
    policy: &String,
    serve: Option<u16>,
    dashboard: Option<DashboardEndpoint>,
) -> Result<(), DemoError> {
    let scenario = adapted(Scenario::demo()?, options);
    let policy = Policy::named(std::slice::from_ref(policy), &[])?.remove(0);
    // Before the runtime of the cluster, because it has one of its own.
    let page = dashboard.map(|at| Page::open(at, &scenario, &policy)).transpose()?;
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
        let server = match serve {
            Some(port) => Some(Server::open(&play, port).await?),
            None => None,
        };
        let started = Instant::now();
        if !options.json && screen::is_there() {
            show(&mut play, options, (server.as_ref(), page.as_ref()), &stop).await?;
        } else {
            tell(&mut play, options, page.as_ref(), &stop).await?;
        }
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

/// Plays the scenario to its end in the terminal. Whoever quits there does not want the cluster to stay, either.
async fn show(
    play: &mut Play,
    options: &DemoOptions,
    (server, page): (Option<&Server>, Option<&Page>),
    stop: &CancellationToken,
) -> Result<(), DemoError> {
    let end = play.scenario().length.as_duration();
    let mut motion = Pace::of(options, end);
    let mut screen = Screen::open()?;
    let mut time = Duration::ZERO;
    while time < end && !stop.is_cancelled() {
        let drawn = Instant::now();
        time = (time + motion.stride()).min(end);
        play.until(time).await?;
        renew(page).await;
        let ledger = play.ledger();
        let policy = ledger.policy();
        let stage = Stage {
            story: format!(
                "A shop grows, shrinks, gets a new release of nodes and grows again. Policy {policy}."
            ),
            now: ledger.now(),
            elapsed: time,
            length: end,
            speed: Some(motion.speed),
            paused: motion.paused,
            hint: server.map(Server::invitation),
            sides: vec![scene::side(ledger, "", 0)],
            verdict: None,
        };
        screen.draw(|area, buffer, palette| stage.draw(area, buffer, palette))?;
        // Blocks the whole cluster, which is the point: its time is what the terminal shows.
        if motion.keys(&screen, drawn)? {
            stop.cancel();
        }
    }
    Ok(())
}

/// Plays the scenario to its end, a line for each decision.
async fn tell(
    play: &mut Play,
    options: &DemoOptions,
    page: Option<&Page>,
    stop: &CancellationToken,
) -> Result<(), DemoError> {
    let end = play.scenario().length.as_duration();
    let stride = options.speed.map_or(STRIDE, |speed| FRAME * speed);
    let mut lines = lines::Lines::default();
    let mut time = Duration::ZERO;
    while time < end && !stop.is_cancelled() {
        let begun = Instant::now();
        time = (time + stride).min(end);
        play.until(time).await?;
        renew(page).await;
        if !options.json {
            lines.print(play, &mut io::stdout().lock())?;
        }
        if options.speed.is_some() {
            std::thread::sleep(FRAME.saturating_sub(begun.elapsed()));
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
        renew(page).await;
        if !is_read {
            lines.print(play, &mut io::stdout().lock())?;
        }
    }
    Ok(())
}

async fn renew(page: Option<&Page>) {
    if let Some(page) = page {
        page.renew().await;
    }
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
