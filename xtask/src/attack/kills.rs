//! SIGKILL at any moment.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use super::Common;
use super::churn::Churn;
use super::ending::{matched, tell_audit};
use super::random::Random;
use super::replica::Replica;
use super::report::Report;
use super::stage::{Stage, progress};
use super::witness::Witness;

/// Longer than a lease lasts and a debug build takes to start on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Args)]
pub(crate) struct Kills {
    /// How many times a replica is killed
    #[arg(long = "kills", value_name = "COUNT", default_value_t = 60)]
    count: u32,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Kills {
    pub(super) async fn run(&self) -> Result<Report> {
        let stage = Stage::start("kills", &self.common).await?;
        let mut random = Random::new(self.common.seed);
        let mut replicas =
            [Replica::start(&stage, "kerf-a", None)?, Replica::start(&stage, "kerf-b", None)?];
        stage.next_leader(&mut replicas, &[], PATIENCE).await?;
        let witness = Witness::start(&stage.api);
        let churn = Churn::start(&stage, self.common.seed).await?;
        let begin = Instant::now();
        let mut leaders_killed = 0;
        for kill in 1..=self.count {
            let leader = stage.next_leader(&mut replicas, &[], PATIENCE).await?;
            tokio::time::sleep(Duration::from_millis(random.between(0, 5_000))).await;
            let leads = random.chance(75);
            let victim = &mut replicas[if leads { leader } else { 1 - leader }];
            victim.signal("KILL")?;
            victim.end(PATIENCE).await?;
            victim.restart(&stage)?;
            leaders_killed += u32::from(leads);
            let role = if leads { "the leader" } else { "the standby" };
            progress(&format!("kill {kill} of {}: {}, {role}", self.count, victim.user));
        }
        let lasted = begin.elapsed().as_secs_f64();
        churn.rest(&stage).await?;
        stage.next_leader(&mut replicas, &[], PATIENCE).await?;
        let pending = stage.pending(Duration::from_mins(5)).await?;
        let rest = Instant::now();
        let mismatches = matched(&stage, Duration::from_mins(3)).await?;

        let mut report = Report::new("kills", self.common.seed, stage.logs());
        report.figure("kills", f64::from(self.count), "");
        report.figure("of them of the leader", f64::from(leaders_killed), "");
        report.figure("time of the kills", lasted, "s");
        report.figure("time until claims and instances matched", rest.elapsed().as_secs_f64(), "s");
        witness.tell(&mut report);
        report.never("pods without a node at the end", &pending);
        report.never("claims and instances that do not match at the end", &mismatches);
        tell_audit(&mut report, &stage, &replicas)?;
        Ok(report)
    }
}
