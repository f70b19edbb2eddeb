//! `cargo xtask aws`

mod data;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write the built-in facts about EC2 anew: instance types, zones, prices
    Data(data::Sources),
}

pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Data(sources) => data::run(&sources),
    }
}
