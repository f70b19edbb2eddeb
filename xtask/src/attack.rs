//! `cargo xtask attack`: what would go wrong in a bad week of production, on purpose and on loopback.
//!
//! Each attack starts a control plane of its own with the real `kerf run` as its replicas, does its worst, and compares what
//! the API server saw with what must never happen. Nothing of Kerf's own judges: the witnesses are the audit log and the
//! objects themselves, read as plain JSON.

mod api;
mod audit;
mod churn;
mod ending;
mod hangs;
mod hostile;
mod kills;
mod pauses;
mod proxy;
mod random;
mod replica;
mod report;
mod soak;
mod stage;
mod witness;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use tokio::time::timeout;

use self::report::Report;
pub(crate) use self::soak::Soak;
use crate::Output;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Kill the leader or the standby again and again while workloads scale and nodes drift
    ///
    /// Two replicas run. Deployments scale up and down, the pool's template changes, and at random moments a replica gets
    /// SIGKILL and is started again. No claim may have two instances. No pool may exceed its limit. No disruption budget or
    /// `PodDisruptionBudget` may be violated. No replica may write while another holds the lease. At the end every pod runs,
    /// and claims and instances match one to one.
    Kills(kills::Kills),
    /// Pause the leader (SIGSTOP) until another replica leads, and then continue it (SIGCONT)
    ///
    /// The audit log shows whether a replica wrote anything after another had taken the lease.
    Pauses(pauses::Pauses),
    /// Let the connections to the API server hang without closing them
    ///
    /// A proxy on loopback stops forwarding and keeps the connections open, as a firewall that forgot them would. Measured:
    /// how long a new pod is not seen, whether `/readyz` fails meanwhile, and how long SIGTERM takes.
    Hangs(hangs::Hangs),
    /// Give the operator hostile objects and requests
    ///
    /// Absurd amounts, times that no library can hold, hundreds of affinity terms, CRDs that are deleted, claims with false
    /// statuses, requests that never end. After each, an ordinary pod has to get a node, the operator has to start again, and
    /// nothing may be deleted without a request.
    Hostile(hostile::Hostile),
}

#[derive(Args)]
pub(crate) struct Common {
    /// Seed of the order and times of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The binary to attack; built from these sources if not given
    #[arg(long, value_name = "PATH")]
    kerf: Option<PathBuf>,
    /// Give up after this many minutes; by default 60, and a soak gives up 20 minutes after its time
    #[arg(long, value_name = "MINUTES")]
    within: Option<u64>,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    bounded(command.common(), 60, command.attack()).await
}

pub(crate) async fn soak(soak: &Soak) -> Result<()> {
    bounded(&soak.common, soak.minutes + soak::AROUND, soak.run()).await
}

/// Plays it for so many minutes at most, and prints what came of it.
async fn bounded(
    common: &Common,
    minutes: u64,
    play: impl Future<Output = Result<Report>>,
) -> Result<()> {
    let minutes = common.within.unwrap_or(minutes);
    // Whatever hangs, everything is stopped: the control plane and its replicas end with the values that own them.
    let Ok(report) = timeout(Duration::from_mins(minutes), Box::pin(play)).await else {
        bail!("it was not over after {minutes} minutes");
    };
    let report = report?;
    match common.output {
        Output::Table => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    let violations = report.violations();
    ensure!(violations == 0, "{violations} figures are out of bounds; logs: {}", report.logs());
    Ok(())
}

impl Command {
    fn common(&self) -> &Common {
        match self {
            Self::Kills(kills) => &kills.common,
            Self::Pauses(pauses) => &pauses.common,
            Self::Hangs(hangs) => &hangs.common,
            Self::Hostile(hostile) => &hostile.common,
        }
    }

    async fn attack(&self) -> Result<Report> {
        match self {
            Self::Kills(kills) => kills.run().await,
            Self::Pauses(pauses) => pauses.run().await,
            Self::Hangs(hangs) => hangs.run().await,
            Self::Hostile(hostile) => hostile.run().await,
        }
    }
}
