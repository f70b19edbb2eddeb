//! Developer commands: `cargo xtask --help`.

mod cargo;
mod control_plane;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Kerf")]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Real Kubernetes control planes on this machine
    #[command(subcommand)]
    ControlPlane(control_plane::Command),
    /// Check everything: format, lints, unit tests, tests against a real control plane
    Test,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = match Xtask::parse().command {
        Command::ControlPlane(command) => control_plane::run(command).await,
        Command::Test => return test::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
