//! `cargo xtask aws compare`: Karpenter's AWS provider and Kerf's on the same objects.
//!
//! Each side gets a control plane and a stand-in for AWS of its own, and all cases at once. What it wrote into the API server and
//! what it asked of AWS is laid side by side. A difference fails the command unless `differences.yaml` lists it with its reason, and
//! so does one that is listed and does not occur.

mod account;
mod burst;
mod case;
mod diff;
mod differences;
mod form;
mod journal;
mod observation;
mod report;
mod side;
mod user_data;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};

use self::case::Case;
use self::differences::Differences;
use self::report::Report;
use self::side::Side;

#[derive(Parser)]
#[command(about = "Compare what Karpenter's AWS provider and Kerf's do with the same objects")]
struct Arguments {
    /// Karpenter's controller for AWS
    #[arg(long, value_name = "PATH")]
    upstream: PathBuf,
    /// Kerf, built with the feature aws
    #[arg(long, value_name = "PATH")]
    kerf: PathBuf,
    /// Only the cases with this in their name
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Only show what this side does
    #[arg(long, value_enum, value_name = "SIDE")]
    show: Option<Which>,
    /// Instead: give both sides so many claims at once, on a cloud with the delays and limits of the real one
    #[arg(long, value_name = "CLAIMS", conflicts_with_all = ["only", "show"])]
    burst: Option<usize>,
    /// Where to keep the logs of both sides
    #[arg(long, value_name = "DIRECTORY")]
    logs: PathBuf,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Upstream,
    Kerf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let cases = Case::all(arguments.only.as_deref())?;
    let listed = Differences::read()?;
    let upstream = Side::Upstream(arguments.upstream);
    let kerf = Side::Kerf(arguments.kerf.clone());
    if let Some(count) = arguments.burst {
        let bursts = [
            burst::burst(&upstream, count, &arguments.kerf, &arguments.logs).await?,
            burst::burst(&kerf, count, &arguments.kerf, &arguments.logs).await?,
        ];
        match arguments.output {
            Output::Table => bursts.iter().for_each(|burst| print!("{burst}")),
            Output::Json => println!("{}", serde_json::to_string_pretty(&bursts)?),
        }
        return Ok(());
    }
    if let Some(which) = arguments.show {
        let side = if which == Which::Kerf { kerf } else { upstream };
        let seen = side.observe(&cases, &arguments.kerf, &arguments.logs).await?;
        println!("{}", serde_json::to_string_pretty(&seen)?);
        return Ok(());
    }
    let of_upstream = upstream.observe(&cases, &arguments.kerf, &arguments.logs).await?;
    let of_kerf = kerf.observe(&cases, &arguments.kerf, &arguments.logs).await?;
    let complete = arguments.only.is_none();
    let report = Report::new(&of_upstream, &of_kerf, &listed, complete);
    match arguments.output {
        Output::Table => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    let failures = report.failures();
    ensure!(failures == 0, "{failures} differences are not as differences.yaml lists them");
    Ok(())
}
