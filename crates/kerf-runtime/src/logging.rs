//! Logs: JSON lines for machines, text for a person at a terminal.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, IsTerminal},
    path::PathBuf,
    str::FromStr,
    sync::Mutex,
};

use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    fmt::{MakeWriter, format::JsonFields},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::{SubscriberInitExt, TryInitError},
};

mod json;

/// Where logs go, how much, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    pub level: Level,
    pub format: Format,
    pub outputs: Vec<Output>,
}

impl Default for Logging {
    fn default() -> Self {
        Self { level: Level::Info, format: Format::Auto, outputs: vec![Output::Stdout] }
    }
}

/// There is no `warn`: Karpenter has none, and a deployment's `LOG_LEVEL` has to mean the same here.
/// Warnings are shown at `info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text on a terminal, JSON everywhere else.
    Auto,
    Json,
    Text,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Stdout,
    Stderr,
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot open the log file {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot start logging: {0}")]
    Init(#[from] TryInitError),
}

impl Logging {
    /// Sends the logs of the whole process where the settings say. `commit` is the revision that the
    /// process was built from, where it is known.
    pub fn start(&self, commit: Option<&'static str>) -> Result<(), Error> {
        let layers = self
            .outputs
            .iter()
            .map(|output| self.layer(output, commit))
            .collect::<Result<Vec<_>, Error>>()?;
        tracing_subscriber::registry().with(layers).with(self.level.filter()).try_init()?;
        Ok(())
    }

    fn layer<S>(
        &self,
        output: &Output,
        commit: Option<&'static str>,
    ) -> Result<Box<dyn Layer<S> + Send + Sync>, Error>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        Ok(match output {
            Output::Stdout => self.formatted(io::stdout, io::stdout().is_terminal(), commit),
            Output::Stderr => self.formatted(io::stderr, io::stderr().is_terminal(), commit),
            Output::File(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                let file = file.map_err(|source| Error::Open { path: path.clone(), source })?;
                self.formatted(Mutex::new(file), false, commit)
            }
        })
    }

    fn formatted<S, W>(
        &self,
        writer: W,
        is_terminal: bool,
        commit: Option<&'static str>,
    ) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let layer = tracing_subscriber::fmt::layer().with_writer(writer);
        let text = match self.format {
            Format::Auto => is_terminal,
            Format::Json => false,
            Format::Text => true,
        };
        if text {
            let colours = is_terminal && !wants_no_colour();
            layer.with_target(self.level == Level::Debug).with_ansi(colours).boxed()
        } else {
            let lines = json::Lines { commit, caller: self.level == Level::Debug };
            layer.fmt_fields(JsonFields::new()).event_format(lines).boxed()
        }
    }
}

impl Level {
    fn filter(self) -> Targets {
        let (ours, others) = match self {
            Self::Debug => (LevelFilter::DEBUG, LevelFilter::INFO),
            Self::Info => (LevelFilter::INFO, LevelFilter::WARN),
            Self::Error => (LevelFilter::ERROR, LevelFilter::ERROR),
        };
        Targets::new()
            .with_default(others)
            .with_target("kerf", ours)
            // It writes whole answers to the log when it cannot read them, with every environment variable of every
            // pod, and every failed request at error level. Who sent the request knows whether the failure
            // matters, and says so.
            .with_target("kube_client", LevelFilter::OFF)
            // That a certificate cannot be read again is said by it alone.
            .with_target("kube_client::client::tls", others.min(LevelFilter::WARN))
    }
}

/// A text that is none of the allowed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl FromStr for Level {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "debug" => Ok(Self::Debug),
            "" | "info" => Ok(Self::Info),
            "error" => Ok(Self::Error),
            _ => Err(Unknown),
        }
    }
}

impl FromStr for Format {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "auto" => Ok(Self::Auto),
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err(Unknown),
        }
    }
}

impl From<&str> for Output {
    fn from(path: &str) -> Self {
        match path {
            "stdout" => Self::Stdout,
            "stderr" => Self::Stderr,
            path => Self::File(path.strip_prefix("file://").unwrap_or(path).into()),
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Whether the environment asks for text without colours: `NO_COLOR`, or a terminal that has none.
pub fn wants_no_colour() -> bool {
    let set = |name: &str| std::env::var_os(name).unwrap_or_default();
    !set("NO_COLOR").is_empty() || set("TERM") == "dumb"
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::{debug, info, info_span, warn};

    /// What a file with these settings holds after `emit`.
    fn written(level: Level, format: Format, emit: impl FnOnce()) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let output = Output::File(path.clone());
        let logging = Logging { level, format, outputs: vec![output.clone()] };
        let layer = logging.layer(&output, Some("1a2b3c4")).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer).with(level.filter());
        tracing::subscriber::with_default(subscriber, emit);
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn json_lines_carry_the_fields_of_event_and_spans() {
        let line = written(Level::Info, Format::Json, || {
            let _span = info_span!("reconcile", controller = "nodeclaim.lifecycle").entered();
            info!(
                nodes = 3,
                ready = true,
                name = "a \"b\"",
                Pod.namespace = "shop",
                Pod.name = "web",
                "registered {}",
                "nodeclaim"
            );
        });
        let (head, tail) = line.split_once("\"time\":\"").unwrap();
        let (time, tail) = tail.split_once('"').unwrap();
        assert_eq!(head, "{\"level\":\"INFO\",");
        assert_eq!(
            tail,
            ",\"logger\":\"controller\",\"message\":\"registered nodeclaim\",\"commit\":\"1a2b3c4\",\
             \"controller\":\"nodeclaim.lifecycle\",\"nodes\":3,\"ready\":true,\"name\":\"a \\\"b\\\"\",\
             \"Pod\":{\"name\":\"web\",\"namespace\":\"shop\"}}\n"
        );
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
        assert_eq!(time.len(), "2026-01-01T00:00:00.000Z".len(), "{time}");
    }

    #[test]
    fn only_debug_lines_name_their_caller() {
        let shown = |level| {
            written(level, Format::Json, || {
                debug!("details");
                warn!("careful");
            })
        };
        let lines = shown(Level::Debug);
        assert!(lines.lines().next().unwrap().contains("\"caller\":\""), "{lines}");
        assert_eq!(lines.lines().count(), 2);
        let lines = shown(Level::Info);
        assert!(lines.contains("\"level\":\"WARN\"") && !lines.contains("caller"), "{lines}");
        assert_eq!(lines.lines().count(), 1);
        assert_eq!(shown(Level::Error), "");
    }

    #[test]
    fn text_is_one_readable_line_without_colour_codes_in_files() {
        let line = written(Level::Info, Format::Text, || info!(port = 8080, "serving metrics"));
        assert!(line.ends_with(" INFO serving metrics port=8080\n"), "{line:?}");
        assert!(!line.contains('\u{1b}'), "{line:?}");
    }

    #[test]
    fn other_crates_speak_up_only_for_warnings() {
        let lines = written(Level::Info, Format::Json, || {
            tracing::info!(target: "hyper_util::client", "connected");
            tracing::warn!(target: "rustls::check", "careful");
            tracing::error!(target: "kube_client::client::builder", "failed with error");
        });
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains("careful"));
    }

    #[test]
    fn the_client_library_writes_no_answers_to_the_log_at_any_level() {
        for level in [Level::Debug, Level::Info, Level::Error] {
            let lines = written(level, Format::Json, || {
                tracing::error!(target: "kube_client::client", "the whole answer");
                tracing::warn!(target: "kube_client::client", "the whole answer");
                tracing::info!(target: "kube_client::client", "the whole answer");
                tracing::debug!(target: "kube_client::client", "the whole answer");
                tracing::trace!(target: "kube_client::client", "the whole answer");
            });
            assert_eq!(lines, "", "{level:?}");
        }
    }

    #[test]
    fn a_log_file_that_cannot_be_opened_is_named() {
        let outputs = vec![Output::from("/nonexistent/kerf.log")];
        let error = Logging { outputs, ..Logging::default() }.start(None).unwrap_err();
        let sentence = error.to_string();
        assert!(
            sentence.starts_with("cannot open the log file /nonexistent/kerf.log: "),
            "{sentence}"
        );
    }

    #[test]
    fn levels_and_outputs_have_the_names_of_the_flags() {
        for (text, level) in [
            ("", Ok(Level::Info)),
            ("info", Ok(Level::Info)),
            ("debug", Ok(Level::Debug)),
            ("error", Ok(Level::Error)),
            ("warn", Err(Unknown)),
            ("INFO", Err(Unknown)),
        ] {
            assert_eq!(text.parse(), level, "{text:?}");
        }
        for (text, output) in [
            ("stdout", Output::Stdout),
            ("stderr", Output::Stderr),
            ("/var/log/kerf", Output::File("/var/log/kerf".into())),
            ("file:///var/log/kerf", Output::File("/var/log/kerf".into())),
        ] {
            assert_eq!(Output::from(text), output);
        }
    }
}
