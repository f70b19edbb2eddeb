//! Kerf, a node autoscaler for Kubernetes.

mod cli;
mod columns;
mod crds;
mod demo;
mod explain;
mod plan;
mod run;
mod simulate;
mod snapshot;

use std::{env, process::ExitCode};

use cli::Command;

fn main() -> ExitCode {
    match cli::parse(env::args_os(), |name| env::var_os(name)) {
        Ok(Command::Run(options)) => run::run(&options),
        Ok(Command::Plan(options)) => plan::plan(&options),
        Ok(Command::Explain(options)) => explain::explain(&options),
        Ok(Command::Snapshot(options)) => snapshot::snapshot(&options),
        Ok(Command::Demo(options)) => demo::demo(&options),
        Ok(Command::Simulate(options)) => simulate::simulate(&options),
        Ok(Command::Crds) => crds::print(),
        Err(refused) => refused.report(),
    }
}
