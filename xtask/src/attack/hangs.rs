//! Connections that hang.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use super::Common;
use super::api::{self, CLAIMS, LEASE, PODS, text};
use super::kills::PATIENCE;
use super::proxy::Proxy;
use super::replica::Replica;
use super::report::Report;
use super::stage::{Stage, progress, resting_pool};

/// For how long the operator may be blind, and for how long readiness may not know it.
const BLIND: f64 = 30.0;
/// From seeing a pod to a claim for it: the batch closes after a second, and the machine may be busy.
const PLANNING: f64 = 5.0;
const SIGTERM: f64 = 10.0;

#[derive(Args)]
pub(crate) struct Hangs {
    /// How long to wait for an operator that does not see, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 420)]
    patience: u64,
    #[command(flatten)]
    pub(super) common: Common,
}

const REQUIREMENTS: &str =
    "{key: node.kubernetes.io/instance-type, operator: In, values: [c-2x-amd64-linux]}";

impl Hangs {
    pub(super) async fn run(&self) -> Result<Report> {
        let stage = Stage::start("hangs", &self.common).await?;
        stage.apply(&resting_pool(&[REQUIREMENTS])).await?;
        let api_server = stage.cluster.api_server();
        let port = api_server.rsplit(':').next().context("an API server has a port")?;
        let proxy = Proxy::start(port.parse()?).await?;
        let mut leader = Replica::start(&stage, "kerf-a", Some(&proxy.url()))?;
        let mut report = Report::new("hangs", self.common.seed, stage.logs());

        settled(&stage, &mut leader).await?;
        let first = self.blind(&stage, &mut leader, "seen").await?;
        report.figure("no fault: a new pod has a claim after", first.until_claim, "s");

        progress("the open connections of the leader hang");
        settled(&stage, &mut leader).await?;
        let before = proxy.opened();
        proxy.freeze_open_connections();
        let blind = self.blind(&stage, &mut leader, "unseen").await?;
        let what = "open connections hang: a new pod has a claim after";
        report.at_most(what, blind.until_claim, "s", BLIND + PLANNING);
        let what = "open connections hang: it was blind and said ready for";
        report.at_most(what, blind.ready, "s", BLIND + PLANNING);
        report.figure("open connections hang: times it ended", f64::from(blind.ended), "");
        report.figure("open connections hang: lease held for", blind.leading, "s");
        report.figure(
            "connections that were opened meanwhile",
            (proxy.opened() - before) as f64,
            "",
        );
        proxy.thaw();

        progress("SIGTERM while the open connections hang");
        settled(&stage, &mut leader).await?;
        proxy.freeze_open_connections();
        let took = sigterm(&mut leader).await?;
        report.at_most("open connections hang: SIGTERM takes", took, "s", SIGTERM);
        proxy.thaw();

        progress("everything of the leader hangs");
        leader.restart(&stage)?;
        settled(&stage, &mut leader).await?;
        proxy.freeze();
        let took = unready(&mut leader, Duration::from_secs(self.patience)).await?;
        report.at_most("everything hangs: the leader says so after", took, "s", BLIND);
        proxy.thaw();

        progress("SIGTERM while everything hangs");
        leader = Replica::start(&stage, "kerf-b", Some(&proxy.url()))?;
        settled(&stage, &mut leader).await?;
        proxy.freeze();
        let took = sigterm(&mut leader).await?;
        report.at_most("everything hangs: SIGTERM takes", took, "s", SIGTERM);
        proxy.thaw();

        progress("everything of a standby hangs");
        let mut direct = Replica::start(&stage, "kerf-c", None)?;
        settled(&stage, &mut direct).await?;
        let mut standby = Replica::start(&stage, "kerf-d", Some(&proxy.url()))?;
        standby.says("standing by", PATIENCE).await?;
        ensure!(standby.is_ready(PATIENCE).await?, "the standby does not get ready");
        proxy.freeze();
        let took = unready(&mut standby, Duration::from_secs(self.patience)).await?;
        report.at_most("everything hangs: a standby says so after", took, "s", 2.0 * BLIND);
        let took = sigterm(&mut standby).await?;
        report.at_most("everything hangs: SIGTERM of a standby takes", took, "s", SIGTERM);
        Ok(report)
    }

    /// Creates a pod that needs a node of its own and waits for its claim.
    async fn blind(&self, stage: &Stage, leader: &mut Replica, pod: &str) -> Result<Blind> {
        let claims = stage.api.list(CLAIMS).await?.len();
        let begin = Instant::now();
        stage.api.create(PODS, &lonely(pod)).await?;
        let mut blind = Blind::default();
        let mut last = begin;
        while stage.api.list(CLAIMS).await?.len() <= claims {
            if begin.elapsed() > Duration::from_secs(self.patience) {
                break;
            }
            if leader.ended()?.is_some() {
                blind.ended += 1;
                leader.restart(stage)?;
            }
            let ready = leader.probe("/readyz", Duration::from_secs(2)).await? == Some(200);
            let lease = stage.api.find(LEASE).await?.unwrap_or_default();
            let identity = leader.identity()?.unwrap_or_default();
            let holds = !identity.is_empty() && text(&lease, "/spec/holderIdentity") == identity;
            let passed = last.elapsed().as_secs_f64();
            last = Instant::now();
            blind.ready += if ready { passed } else { 0.0 };
            blind.leading += if holds { passed } else { 0.0 };
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        blind.until_claim = begin.elapsed().as_secs_f64();
        Ok(blind)
    }
}

#[derive(Default)]
struct Blind {
    until_claim: f64,
    /// For how long of that it was ready, and held the lease.
    ready: f64,
    leading: f64,
    ended: u32,
}

/// The replica leads, is ready, and all pods run.
async fn settled(stage: &Stage, leader: &mut Replica) -> Result<()> {
    if leader.ended()?.is_some() {
        leader.restart(stage)?;
    }
    stage.next_leader(std::slice::from_mut(leader), &[], PATIENCE).await?;
    ensure!(leader.is_ready(PATIENCE).await?, "{} does not get ready", leader.user);
    let pending = stage.pending(PATIENCE).await?;
    ensure!(pending.is_empty(), "without a fault these pods get no node: {}", pending.join(", "));
    let claims = stage.api.list(CLAIMS).await?;
    ensure!(!claims.iter().any(api::is_deleting), "claims go that should not");
    Ok(())
}

async fn sigterm(replica: &mut Replica) -> Result<f64> {
    const LONGEST: Duration = Duration::from_mins(2);
    replica.signal("TERM")?;
    if let Some(took) = replica.end(LONGEST).await? {
        return Ok(took.as_secs_f64());
    }
    replica.signal("KILL")?;
    replica.end(LONGEST).await?;
    Ok(LONGEST.as_secs_f64())
}

/// How long it takes until readiness fails or the process ends.
async fn unready(replica: &mut Replica, patience: Duration) -> Result<f64> {
    let begin = Instant::now();
    while begin.elapsed() < patience
        && replica.ended()?.is_none()
        && replica.probe("/readyz", Duration::from_secs(2)).await? == Some(200)
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// A pod that shares its node with no other of its kind.
pub(super) fn lonely(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "lonely"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "main",
                // Not a round number: amounts that are rounded up need a larger node.
                "resources": {"requests": {"cpu": "1100m", "memory": "64Mi"}}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {"app": "lonely"}},
                "topologyKey": "kubernetes.io/hostname",
            }]}},
        },
    })
}
