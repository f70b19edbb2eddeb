//! `kerf shadow`: what another autoscaler does on a live cluster, and what Kerf would have done.

use std::{io, path::Path, process::ExitCode, sync::Arc};

use kerf_runtime::{
    Clock, Fence, Metrics,
    client::{self, Connection, RequestMetrics, Target},
    logging::{Logging, Output},
    shutdown,
};
use kerf_shadow::{JournalError, Limits, RecordError, Report, ReportError, Terms};
use kerf_simulation::{Heading, PolicyError, html_under};
use kube::Client;
use tracing::info;

use crate::{
    cli::{COMMIT, RecordOptions, ReplayOptions, ReportOptions, ShadowOptions, VERSION},
    exit,
    exit::Exit,
    output::{self, Answer, Pending, Readers},
    providers,
    simulate::{self, Bar},
};

mod page;
mod table;

#[derive(Debug, thiserror::Error)]
enum ShadowError {
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("{0}")]
    Logs(String),
    #[error(transparent)]
    Connection(#[from] client::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("cannot listen on {address} (--serve): {source}")]
    Serve { address: std::net::SocketAddr, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error("cannot write the report: {0}")]
    Print(String),
}

impl Answer for Report {
    const KIND: &'static str = "ShadowReport";
}

pub(crate) fn shadow(options: &ShadowOptions) -> ExitCode {
    let done = match options {
        ShadowOptions::Record(options) => record(options),
        ShadowOptions::Report(options) => report(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kerf: {error}");
            exit_of(&error).into()
        }
    }
}

fn exit_of(error: &ShadowError) -> Exit {
    match error {
        ShadowError::Report(ReportError::Play(error)) => simulate::exit_of(error),
        // A record that is read is an input; one that is written is not, unless it is not ours to write.
        ShadowError::Policy(_)
        | ShadowError::Report(_)
        | ShadowError::Record(RecordError::Journal(
            JournalError::OtherCluster { .. }
            | JournalError::InUse { .. }
            | JournalError::Line { .. }
            | JournalError::Version { .. },
        )) => exit::WRONG_INPUT,
        _ => exit::FAILED,
    }
}

fn record(options: &RecordOptions) -> Result<(), ShadowError> {
    // What is wrong with them is known now, and not after a day.
    let terms = terms(&options.replay)?;
    let logging = Logging { outputs: vec![Output::Stderr], ..Logging::default() };
    logging.start(COMMIT).map_err(|error| ShadowError::Logs(error.to_string()))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(ShadowError::Runtime)?.block_on(async {
        let stop = shutdown::on_signals().map_err(ShadowError::Runtime)?;
        let client = reading_client(&options.target).await?;
        if let Some(address) = options.serve {
            let listener = tokio::net::TcpListener::bind(address).await;
            let listener = listener.map_err(|source| ShadowError::Serve { address, source })?;
            let shown = listener.local_addr().unwrap_or(address);
            info!(address = %shown, "serving the report");
            let routes = page::routes(Arc::new(page::Reports::new(options, terms)));
            tokio::spawn(kerf_runtime::admin::serve(listener, routes, stop.clone()));
        }
        if let Some(length) = &options.length {
            let (length, stop) = (length.as_duration(), stop.clone());
            tokio::spawn(async move {
                tokio::time::sleep(length).await;
                info!("the time of --for is over");
                stop.cancel();
            });
        }
        let limits = Limits { all: options.max_size, ..Limits::default() };
        Ok(kerf_shadow::record(
            client,
            &providers::node_classes(),
            Clock::system(),
            &options.dir,
            limits,
            stop,
        )
        .await?)
    })
}

/// A client that cannot write: its fence is closed, and nothing here could open it.
async fn reading_client(target: &Target) -> Result<Client, client::Error> {
    let mut config = client::config_of(target).await?;
    // A first read that fails is an answer for whoever waits; later ones are tried again by those who watch.
    config.default_retry = false;
    let user_agent = format!("kerf-shadow/{VERSION}");
    let metrics = RequestMetrics::register(&Metrics::default());
    let connection = Connection { config, user_agent: &user_agent, metrics: &metrics };
    connection.client(None, Fence::closed(Clock::system()))
}

fn report(options: &ReportOptions) -> Result<(), ShadowError> {
    let terms = terms(&options.replay)?;
    // Before the replays: what takes minutes is not begun for a path that cannot be written.
    let page = options.html.as_ref().map(|path| {
        Pending::open(path, Readers::Usual)
            .map_err(|source| unwritable(path, source))
            .map(|page| (path, page))
    });
    let page = page.transpose()?;
    let bar = Bar::new(format!("replays under {} policies", terms.policies.len()));
    let cloud = |scenario: &_| simulate::cloud(&options.replay.providers, scenario);
    let report = kerf_shadow::report(&options.dir, &terms, cloud, |share| bar.show(share));
    bar.clear();
    let report = report?;
    let text = output::text(&report, options.format, table::render).map_err(ShadowError::Print)?;
    output::print(&text).map_err(|error| ShadowError::Print(error.to_string()))?;
    let Some((path, page)) = page else { return Ok(()) };
    page.finish(|to| to.write_all(html(&report).as_bytes()))
        .map_err(|source| unwritable(path, source))
}

fn html(report: &Report) -> String {
    let subject = "a recorded cluster and of its replays";
    let heading = Heading { command: "kerf shadow", verdict: &report.verdict, subject };
    html_under(heading, &report.comparison)
}

fn terms(options: &ReplayOptions) -> Result<Terms, PolicyError> {
    Ok(Terms {
        policies: kerf_shadow::by_name(&options.compare)?,
        instance_types_file: options.instance_types_file.clone(),
        seed: options.seed,
    })
}

fn unwritable(path: &Path, source: io::Error) -> ShadowError {
    ShadowError::Write { path: path.display().to_string(), source }
}
