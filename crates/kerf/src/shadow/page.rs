//! The current report over HTTP, read-only.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};
use kerf_shadow::{Report, Terms};

use crate::{
    cli::{Format, RecordOptions},
    output,
    providers::Chosen,
    simulate,
};

/// Replays take the processor for a while. A report that is younger than this is good enough.
const FRESH: Duration = Duration::from_mins(10);

/// The reports on the record in one directory, made when someone asks.
#[derive(Debug)]
pub(super) struct Reports {
    dir: PathBuf,
    terms: Terms,
    providers: Vec<Chosen>,
    /// Held while one is made: the others wait for it.
    last: Mutex<Option<(Instant, Arc<Report>)>>,
}

impl Reports {
    pub(super) fn new(options: &RecordOptions, terms: Terms) -> Self {
        let providers = options.replay.providers.clone();
        Self { dir: options.dir.clone(), terms, providers, last: Mutex::new(None) }
    }

    fn current(&self) -> Result<Arc<Report>, String> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, report)) = &*last
            && made.elapsed() < FRESH
        {
            return Ok(Arc::clone(report));
        }
        let cloud = |scenario: &_| simulate::cloud(&self.providers, scenario);
        let report = kerf_shadow::report(&self.dir, &self.terms, cloud, |_| {});
        let report = Arc::new(report.map_err(|error| error.to_string())?);
        *last = Some((Instant::now(), Arc::clone(&report)));
        Ok(report)
    }
}

/// `/` is a page, `/report.json` the same for programs.
pub(super) fn routes(reports: Arc<Reports>) -> Router {
    let page = async |State(reports): State<Arc<Reports>>| {
        answer(reports, "text/html; charset=utf-8", super::html).await
    };
    let json = async |State(reports): State<Arc<Reports>>| {
        answer(reports, "application/json", |report| {
            output::text(report, Format::Json, super::table::render).unwrap_or_default()
        })
        .await
    };
    Router::new().route("/", get(page)).route("/report.json", get(json)).with_state(reports)
}

async fn answer(
    reports: Arc<Reports>,
    content_type: &'static str,
    render: fn(&Report) -> String,
) -> Response {
    let made = tokio::task::spawn_blocking(move || reports.current()).await;
    match made.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(report) => ([(header::CONTENT_TYPE, content_type)], render(&report)).into_response(),
        Err(problem) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("there is no report yet: {problem}\n"))
                .into_response()
        }
    }
}
