//! `cargo xtask aws`

mod compare;
mod data;
mod moto;
mod seeds;

use anyhow::{Result, ensure};
use clap::Subcommand;

pub(crate) use moto::run as moto;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run Karpenter's AWS provider and Kerf's on the same objects and the same stand-in for AWS, and compare what they do
    ///
    /// Karpenter's controller is built with Go from the module registry, which takes minutes the first time. Each side works on a
    /// control plane of its own. A difference that xtask/aws-compare/differences.yaml does not list fails the command.
    Compare(compare::Comparing),
    /// Write the built-in facts about EC2 again: instance types, zones, prices
    Data(data::Sources),
    /// Call moto, a simulation of AWS by another project, on loopback: launch, list, terminate, read a queue
    Moto,
    /// Live days on the stand-in for AWS in which everything goes wrong that can, in virtual time
    ///
    /// Capacity runs out by type and zone, calls are refused, throttled or lose their answers, spot instances are taken,
    /// reservations end, machines break, subnets fill, and the operator is killed. Never may an instance leak, a claim have two
    /// instances or a pool exceed its limit, and at the end every pod runs.
    Seeds(seeds::Days),
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
        Command::Compare(comparing) => compare::run(&comparing),
        Command::Data(sources) => data::run(&sources),
        Command::Seeds(with) => seeds::run(&with),
        Command::Moto => moto()?.or_say("the calls of moto"),
    }
}
