//! Developer commands: `cargo xtask --help`.

mod control_plane;

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
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = match Xtask::parse().command {
        Command::ControlPlane(command) => control_plane::run(command).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
