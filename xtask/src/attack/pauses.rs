//! SIGSTOP until the lease has run out, then SIGCONT.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use super::Common;
use super::churn::Churn;
use super::ending::tell_audit;
use super::kills::PATIENCE;
use super::random::Random;
use super::replica::Replica;
use super::report::Report;
use super::stage::{Stage, progress};
use super::witness::Witness;

#[derive(Args)]
pub(crate) struct Pauses {
    /// How many times the leader is paused
    #[arg(long = "pauses", value_name = "COUNT", default_value_t = 50)]
    count: u32,
    /// The shortest pause, in seconds: longer than the lease
    #[arg(long, default_value_t = 25)]
    shortest: u64,
    /// The longest pause, in seconds
    #[arg(long, default_value_t = 40)]
    longest: u64,
    /// How many replicas run. With three the next leader is paused while the last one still is
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    #[command(flatten)]
    pub(super) common: Common,
}

/// A replica that is stopped, and when it goes on.
struct Paused {
    replica: usize,
    until: Instant,
}

impl Pauses {
    pub(super) async fn run(&self) -> Result<Report> {
        ensure!(self.replicas >= 2, "another replica has to take over: give at least two");
        ensure!(self.shortest < self.longest, "the shortest pause is the longest one");
        let stage = Stage::start("pauses", &self.common).await?;
        let mut random = Random::new(self.common.seed);
        let mut replicas = Vec::new();
        for letter in ('a'..='z').take(self.replicas) {
            replicas.push(Replica::start(&stage, &format!("kerf-{letter}"), None)?);
        }
        stage.next_leader(&mut replicas, &[], PATIENCE).await?;
        let witness = Witness::start(&stage.api);
        let churn = Churn::start(&stage, self.common.seed).await?;
        let begin = Instant::now();
        let mut paused: Vec<Paused> = Vec::new();
        for pause in 1..=self.count {
            // One replica at least stands by.
            while paused.len() + 1 >= self.replicas {
                self.wake(&stage, &mut replicas, &mut paused, true).await?;
            }
            let stopped: Vec<_> = paused.iter().map(|one| one.replica).collect();
            let leader = self.leader(&stage, &mut replicas, &mut paused, &stopped).await?;
            tokio::time::sleep(Duration::from_millis(random.between(0, 3_000))).await;
            replicas[leader].signal("STOP")?;
            let length =
                Duration::from_millis(random.between(self.shortest * 1_000, self.longest * 1_000));
            paused.push(Paused { replica: leader, until: Instant::now() + length });
            let seconds = length.as_secs_f64();
            let user = &replicas[leader].user;
            progress(&format!("pause {pause} of {}: {user} for {seconds:.1} s", self.count));
        }
        while !paused.is_empty() {
            self.wake(&stage, &mut replicas, &mut paused, true).await?;
        }
        let lasted = begin.elapsed().as_secs_f64();
        churn.rest(&stage).await?;
        stage.next_leader(&mut replicas, &[], PATIENCE).await?;
        let pending = stage.pending(Duration::from_mins(5)).await?;

        let mut report = Report::new("pauses", self.common.seed, stage.logs());
        report.figure("pauses of the leader", f64::from(self.count), "");
        report.figure("time of the pauses", lasted, "s");
        let starts: u32 = replicas.iter().map(Replica::starts).sum();
        report.figure(
            "replicas that ended and were started again",
            f64::from(starts) - replicas.len() as f64,
            "",
        );
        witness.tell(&mut report);
        report.never("pods without a node at the end", &pending);
        tell_audit(&mut report, &stage, &replicas)?;
        Ok(report)
    }

    /// Waits until a replica leads that is not paused.
    async fn leader(
        &self,
        stage: &Stage,
        replicas: &mut [Replica],
        paused: &mut Vec<Paused>,
        stopped: &[usize],
    ) -> Result<usize> {
        let begin = Instant::now();
        loop {
            self.wake(stage, replicas, paused, false).await?;
            if let Some(leader) = stage.leader(replicas).await?
                && !stopped.contains(&leader)
            {
                return Ok(leader);
            }
            ensure!(begin.elapsed() < PATIENCE, "no replica leads after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Lets go on what has been paused for long enough, and starts again what has ended; waits for the first if asked to.
    async fn wake(
        &self,
        stage: &Stage,
        replicas: &mut [Replica],
        paused: &mut Vec<Paused>,
        wait: bool,
    ) -> Result<()> {
        if wait && let Some(first) = paused.iter().map(|one| one.until).min() {
            tokio::time::sleep_until(first.into()).await;
        }
        for Paused { replica, .. } in paused.extract_if(.., |one| one.until <= Instant::now()) {
            replicas[replica].signal("CONT")?;
        }
        for replica in replicas {
            if replica.ended()?.is_some() {
                replica.restart(stage)?;
            }
        }
        Ok(())
    }
}
