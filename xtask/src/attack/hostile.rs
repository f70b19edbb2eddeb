//! What nobody should have to expect.

mod claims;
mod endpoints;
mod objects;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::Value;

use super::Common;
use super::api::{self, NODES, PODS, text};
use super::hangs::lonely;
use super::kills::PATIENCE;
use super::replica::Replica;
use super::report::Report;
use super::stage::{Stage, progress, resting_pool};

#[derive(Args)]
pub(crate) struct Hostile {
    /// Only the cases with this in their name
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) const REQUIREMENTS: [&str; 3] = [
    "{key: kubernetes.io/os, operator: In, values: [linux]}",
    "{key: kubernetes.io/arch, operator: In, values: [amd64]}",
    "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}",
];

/// An ordinary pod gets its node after some seconds; this is for a machine that has much else to do.
const CANARY: Duration = Duration::from_mins(1);

const CASES: [&str; 9] = [
    "a pod of 5e16 CPUs",
    "a pod of 1e15 CPUs",
    "a limit of 1e19 CPUs",
    "pods with 400 affinity terms",
    "times of the year 9999",
    "a definition that goes",
    "a claim with another's providerID",
    "a claim of a foreign NodeClass",
    "3,000 half-sent requests",
];

impl Hostile {
    pub(super) async fn run(&self) -> Result<Report> {
        let part = self.only.as_deref().unwrap_or_default();
        let cases: Vec<_> = CASES.into_iter().filter(|case| case.contains(part)).collect();
        ensure!(!cases.is_empty(), "no case has {part:?} in its name: {}", CASES.join(", "));
        let stage = Stage::start("hostile", &self.common).await?;
        stage.apply(&resting_pool(&REQUIREMENTS)).await?;
        let replica = Replica::start(&stage, "kerf-a", None)?;
        let report = Report::new("hostile", self.common.seed, stage.logs());
        let mut siege = Siege { stage, replica, report, canaries: 0 };
        siege.stage.next_leader(std::slice::from_mut(&mut siege.replica), &[], PATIENCE).await?;
        siege.canary("nothing hostile").await?;
        for case in cases {
            progress(case);
            siege.recover().await?;
            siege.play(case).await?;
        }
        Ok(siege.report)
    }
}

/// An operator in trouble.
struct Siege {
    stage: Stage,
    replica: Replica,
    report: Report,
    canaries: u32,
}

impl Siege {
    async fn play(&mut self, case: &str) -> Result<()> {
        match case {
            "a pod of 5e16 CPUs" => objects::a_huge_pod(self, case, "50000000000000000").await,
            "a pod of 1e15 CPUs" => objects::a_huge_pod(self, case, "1000000000000000").await,
            "a limit of 1e19 CPUs" => objects::a_huge_limit(self, case).await,
            "pods with 400 affinity terms" => objects::many_terms(self, case).await,
            "times of the year 9999" => objects::impossible_times(self, case).await,
            "a definition that goes" => objects::a_definition_goes(self, case).await,
            "a claim with another's providerID" => claims::a_stolen_instance(self, case).await,
            "a claim of a foreign NodeClass" => claims::a_foreign_claim(self, case).await,
            _ => endpoints::half_sent_requests(self, case).await,
        }
    }

    /// Whatever the last case did, the next one begins with an operator that is well.
    async fn recover(&mut self) -> Result<()> {
        if !self.replica.is_ready(Duration::from_secs(5)).await? {
            self.replica.signal("KILL")?;
            self.replica.end(PATIENCE).await?;
            self.replica.restart(&self.stage)?;
        }
        self.stage.next_leader(std::slice::from_mut(&mut self.replica), &[], PATIENCE).await?;
        let ready = self.replica.is_ready(PATIENCE).await?;
        ensure!(ready, "the operator does not get well between two cases");
        Ok(())
    }

    /// While it lasts and after a restart: ordinary pods get nodes, and nodes that were there are still there.
    async fn holds(&mut self, case: &str) -> Result<()> {
        let before = self.nodes().await?;
        self.canary(case).await?;
        self.restart(case).await?;
        self.canary(&format!("{case}, after a restart")).await?;
        self.lost(case, &before).await
    }

    /// An ordinary pod needs a node of its own.
    async fn canary(&mut self, case: &str) -> Result<()> {
        self.canaries += 1;
        let name = format!("canary-{}", self.canaries);
        let path = format!("{PODS}/{name}");
        self.stage.api.create(PODS, &lonely(&name)).await?;
        let begin = Instant::now();
        let node = loop {
            // Not by listing the pods: other ones wait for ever.
            let pod = self.stage.api.get(&path).await?;
            if text(&pod, "/status/phase") == "Running" {
                break text(&pod, "/spec/nodeName").to_owned();
            }
            if begin.elapsed() > CANARY {
                break String::new();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let what = format!("{case}: an ordinary pod runs after");
        // A little more than it may be, so that it counts.
        let took = if node.is_empty() {
            CANARY.as_secs_f64() + 1.0
        } else {
            begin.elapsed().as_secs_f64()
        };
        self.report.at_most(what, took, "s", CANARY.as_secs_f64());
        if node.is_empty() {
            self.stage.api.delete(&path).await?;
        } else {
            let node = self.stage.api.get(&format!("{NODES}/{node}")).await?;
            let cpu = text(&node, "/status/capacity/cpu");
            let wrong =
                if cpu == "2" { vec![] } else { vec![format!("{cpu} CPUs for a pod of one")] };
            self.report.never(format!("{case}: nodes that are too large"), &wrong);
        }
        Ok(())
    }

    /// Ends the operator as a rollout would, and starts it again.
    async fn restart(&mut self, case: &str) -> Result<()> {
        if let Some(memory) = self.replica.peak_memory() {
            self.report.figure(format!("{case}: most memory"), memory, "MB");
        }
        self.replica.signal("TERM")?;
        if self.replica.end(Duration::from_mins(1)).await?.is_none() {
            self.replica.signal("KILL")?;
            self.replica.end(PATIENCE).await?;
        }
        self.replica.restart(&self.stage)?;
        let begin = Instant::now();
        let ready = self.replica.is_ready(CANARY).await?;
        let took = if ready { begin.elapsed().as_secs_f64() } else { CANARY.as_secs_f64() + 1.0 };
        let what = format!("{case}: ready after a restart");
        self.report.at_most(what, took, "s", CANARY.as_secs_f64());
        let (lines, bytes) = self.replica.logged()?;
        let what = format!("{case}: log of the restart, {lines} lines");
        self.report.at_most(what, bytes as f64 / 1024.0, "kB", 256.0);
        Ok(())
    }

    /// The nodes of the operator that are not on their way out, by UID.
    async fn nodes(&self) -> Result<Vec<(String, String)>> {
        let nodes = self.stage.api.list(NODES).await?;
        let own = nodes
            .iter()
            .filter(|node| api::name(node).starts_with("kwok-") && !api::is_deleting(node))
            // A thief goes with what is its own.
            .filter(|node| !api::name(node).starts_with("kwok-thief-"));
        let uid = |node: &Value| text(node, "/metadata/uid").to_owned();
        Ok(own.map(|node| (uid(node), api::name(node).to_owned())).collect())
    }

    /// None of these nodes may be gone.
    async fn lost(&mut self, case: &str, before: &[(String, String)]) -> Result<()> {
        let now = self.nodes().await?;
        let lost: Vec<_> =
            before.iter().filter(|node| !now.contains(node)).map(|(_, name)| name).collect();
        self.report.never(format!("{case}: nodes that were lost"), &lost);
        Ok(())
    }
}
