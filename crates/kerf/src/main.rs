//! Kerf, a node autoscaler for Kubernetes.

#[cfg(feature = "aws")]
mod aws;
#[cfg(all(test, feature = "aws"))]
mod chart;
mod cli;
mod columns;
mod crds;
#[cfg(feature = "simulate")]
mod demo;
#[cfg(all(test, feature = "aws"))]
mod documentation;
mod exit;
mod explain;
mod output;
mod plan;
mod providers;
mod run;
#[cfg(all(test, feature = "simulate"))]
mod schemas;
#[cfg(feature = "simulate")]
mod shadow;
#[cfg(feature = "simulate")]
mod simulate;
mod snapshot;
mod top;
mod version;

use std::{env, process::ExitCode};

use cli::Command;

fn main() -> ExitCode {
    match cli::parse(env::args_os(), |name| env::var_os(name)) {
        Ok(Command::Run(options)) => run::run(&options),
        Ok(Command::Plan(options)) => plan::plan(&options),
        Ok(Command::Explain(options)) => explain::explain(&options),
        Ok(Command::Snapshot(options)) => snapshot::snapshot(&options),
        Ok(Command::Top(options)) => top::top(&options),
        #[cfg(feature = "simulate")]
        Ok(Command::Demo(options)) => demo::demo(&options),
        #[cfg(feature = "simulate")]
        Ok(Command::Simulate(options)) => simulate::simulate(&options),
        #[cfg(feature = "simulate")]
        Ok(Command::Shadow(options)) => shadow::shadow(&options),
        Ok(Command::Crds(provider)) => crds::print(provider),
        #[cfg(feature = "aws")]
        Ok(Command::Aws(command)) => aws::run(&command),
        Ok(Command::Version(format)) => version::print(format),
        Ok(Command::Completions(shell)) => version::completions(shell),
        Ok(Command::Man(directory)) => version::man(&directory),
        Err(refused) => refused.report(),
    }
}
