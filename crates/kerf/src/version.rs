//! What this binary is, and what it brings for shells and manuals.

use std::{
    env,
    fmt::{self, Write},
    fs, io,
    path::Path,
    process::ExitCode,
};

use serde::Serialize;

use crate::{
    cli::{self, COMMIT, Format, VERSION},
    output::{self, Answer},
};

/// `kerf version -o json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct ThisBinary {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build_date: Option<&'static str>,
    features: Vec<&'static str>,
    target: String,
}

impl ThisBinary {
    /// Commit and date are known where the build says them, as that of a release does.
    fn this() -> Self {
        let features = [("aws", cfg!(feature = "aws")), ("simulate", cfg!(feature = "simulate"))];
        let target = option_env!("KERF_TARGET").map(str::to_owned);
        Self {
            version: VERSION,
            commit: COMMIT,
            build_date: option_env!("KERF_BUILD_DATE"),
            features: features.into_iter().filter_map(|(name, on)| on.then_some(name)).collect(),
            target: target.unwrap_or_else(|| format!("{}-{}", env::consts::ARCH, env::consts::OS)),
        }
    }
}

impl Answer for ThisBinary {
    const KIND: &'static str = "Version";
}

pub(crate) fn print(format: Format) -> ExitCode {
    match output::text(&ThisBinary::this(), format, render) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => failed("the version cannot be written", &error),
    }
}

fn render(build: &ThisBinary) -> String {
    let mut text = format!("kerf {}\n", build.version);
    for (what, value) in [
        ("commit", build.commit.map(str::to_owned)),
        ("built", build.build_date.map(str::to_owned)),
        ("features", Some(build.features.join(", ")).filter(|all| !all.is_empty())),
        ("target", Some(build.target.clone())),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "{what:<9} {value}");
        }
    }
    text
}

pub(crate) fn completions(shell: clap_complete::Shell) -> ExitCode {
    clap_complete::generate(shell, &mut cli::command(), "kerf", &mut io::stdout());
    ExitCode::SUCCESS
}

/// A page for `kerf` and one for each of its commands.
pub(crate) fn man(directory: &Path) -> ExitCode {
    let written = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(cli::command(), directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            failed(&format!("manual pages cannot be written into {}", directory.display()), &error)
        }
    }
}

fn failed(what: &str, error: &dyn fmt::Display) -> ExitCode {
    eprintln!("kerf: {what}: {error}");
    ExitCode::FAILURE
}
