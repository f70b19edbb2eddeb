//! `cargo xtask aws`

mod data;
mod moto;

use anyhow::{Result, ensure};
use clap::Subcommand;

pub(crate) use moto::run as moto;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write the built-in facts about EC2 anew: instance types, zones, prices
    Data(data::Sources),
    /// Call moto, a simulation of AWS that others wrote, on loopback: launch, list, terminate, read a queue
    Moto,
}

/// How a lane ended that needs tools which a machine may not have.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Skipped { reason: String },
}

impl Outcome {
    /// Says loudly what was skipped. A machine that must not skip anything fails by it.
    pub(crate) fn or_say(self, what: &str) -> Result<()> {
        if let Self::Skipped { reason } = self {
            eprintln!("!!! SKIPPED: {what}. {reason}");
            ensure!(!crate::ci(), "CI=true: what is skipped counts as a failure");
        }
        Ok(())
    }
}

pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Data(sources) => data::run(&sources),
        Command::Moto => moto()?.or_say("the calls of moto"),
    }
}
