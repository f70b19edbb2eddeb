//! A run: the stage, the replicas behind their proxies, and what has been done to them so far.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::phases::Phase;
use super::{End, KEPT, Meter, left_over};
use crate::attack::api::{CLAIMS, DEPLOYMENTS, NODES, eventually, text};
use crate::attack::churn::{self, Churn};
use crate::attack::ending::{FOREIGN, unmatched};
use crate::attack::kills::PATIENCE;
use crate::attack::proxy::Proxy;
use crate::attack::random::Random;
use crate::attack::replica::Replica;
use crate::attack::stage::{Stage, progress};
use crate::attack::witness::Witness;

pub(super) const REPLICAS: usize = 2;
/// For how long pods may wait when there are no faults any more.
pub(super) const RECOVERY: Duration = Duration::from_mins(3);
/// A replica that ends is started again when it has run for so long. A kubelet waits longer.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Between two looks at the replicas.
const LOOK: Duration = Duration::from_millis(250);

pub(super) struct Run {
    pub(super) stage: Stage,
    pub(super) random: Random,
    pub(super) proxies: [Proxy; REPLICAS],
    pub(super) replicas: [Replica; REPLICAS],
    pub(super) meter: Meter,
    pub(super) witness: Witness,
    pub(super) done: Done,
    begin: Instant,
    /// When each replica was started last.
    started: [Instant; REPLICAS],
}

/// What has been done and how long that took to get over, in seconds.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) seed: u64,
    pub(super) lasted: Duration,
    pub(super) phases: u32,
    pub(super) kills: u32,
    pub(super) api_server_restarts: u32,
    pub(super) etcd_restarts: u32,
    pub(super) stalls: u32,
    pub(super) cuts: u32,
    pub(super) black_holes: u32,
    pub(super) users: u32,
    pub(super) takeovers: Vec<f64>,
    pub(super) recoveries: Vec<f64>,
    pub(super) left_over: Vec<String>,
}

impl Done {
    pub(super) fn counts(&self) -> [(&'static str, u32); 8] {
        [
            ("phases", self.phases),
            ("kills", self.kills),
            ("restarts of the API server", self.api_server_restarts),
            ("restarts of etcd", self.etcd_restarts),
            ("stalls", self.stalls),
            ("cuts", self.cuts),
            ("black holes", self.black_holes),
            ("claims and nodes that users deleted or drained", self.users),
        ]
    }
}

impl Run {
    pub(super) async fn start(stage: Stage, seed: u64, length: Duration) -> Result<Self> {
        churn::prepare(&stage).await?;
        stage.api.create(DEPLOYMENTS, &kept()).await?;
        stage.api.create(NODES, &foreign()).await?;
        let api_server = stage.cluster.api_server();
        let port = api_server.rsplit(':').next().context("an API server has a port")?.parse()?;
        let proxies = [Proxy::start(port).await?, Proxy::start(port).await?];
        let mut replicas = [
            Replica::start(&stage, "kerf-a", Some(&proxies[0].url()))?,
            Replica::start(&stage, "kerf-b", Some(&proxies[1].url()))?,
        ];
        stage.next_leader(&mut replicas, &[], PATIENCE).await?;
        let witness = Witness::start(&stage.api);
        let mut run = Self {
            random: Random::new(seed ^ 0x50A4),
            proxies,
            replicas,
            meter: Meter::new(length),
            witness,
            done: Done { seed, ..Done::default() },
            begin: Instant::now(),
            started: [Instant::now(); REPLICAS],
            stage,
        };
        let waiting = run.recover().await?;
        ensure!(
            waiting.is_empty(),
            "without a fault these pods get no node: {}",
            waiting.join(", ")
        );
        run.done.recoveries.clear();
        run.begin = Instant::now();
        Ok(run)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// A phase: faults while workloads change, then neither until all pods run.
    pub(super) async fn play(&mut self, phase: Phase, length: Duration) -> Result<()> {
        let begin = Instant::now();
        self.look()?;
        self.meter.begin(phase, self.cpu());
        let churn = phase.drift_every().map(|every| {
            Churn::of_what_is_there(&self.stage.api, self.random.between(0, u64::MAX), every)
        });
        let caused = self.cause(phase, begin + length * 3 / 4).await;
        let faults =
            caused.with_context(|| format!("{phase}; logs: {}", self.stage.logs().display()))?;
        if let Some(churn) = churn {
            churn.rest(&self.stage).await?;
        }
        let waiting = self.recover().await?;
        self.pass(length.saturating_sub(begin.elapsed())).await?;
        self.meter.end(self.cpu());
        self.done.phases += 1;
        self.done.lasted = self.elapsed();
        let recovered = self.done.recoveries.last().copied().unwrap_or_default();
        progress(&format!(
            "{:4.0} s: {phase}, {faults} faults; all pods ran {}",
            self.elapsed().as_secs_f64(),
            if waiting.is_empty() {
                format!("{recovered:.1} s later")
            } else {
                format!("not within {recovered:.0} s: {}", waiting.join(", "))
            }
        ));
        Ok(())
    }

    /// Lets time pass. Replicas that end are started again, as a kubelet would.
    pub(super) async fn pass(&mut self, length: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.look()?;
            let left = length.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    pub(super) async fn pass_between(&mut self, low: u64, high: u64) -> Result<()> {
        let length = Duration::from_millis(self.random.between(low, high));
        self.pass(length).await
    }

    fn look(&mut self) -> Result<()> {
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            if replica.ended()?.is_some() {
                if self.started[index].elapsed() > AGAIN_AFTER {
                    replica.restart(&self.stage)?;
                    self.started[index] = Instant::now();
                }
            } else if let Some(peak) = replica.peak_since_last_time() {
                self.meter.saw(index, peak);
            }
        }
        Ok(())
    }

    /// SIGKILL, and a new process at once.
    pub(super) async fn kill_replica(&mut self, victim: usize) -> Result<()> {
        let replica = &mut self.replicas[victim];
        if replica.ended()?.is_none() {
            replica.signal("KILL")?;
            replica.end(PATIENCE).await?;
        }
        replica.restart(&self.stage)?;
        self.started[victim] = Instant::now();
        Ok(())
    }

    fn cpu(&self) -> [f64; REPLICAS] {
        std::array::from_fn(|index| self.replicas[index].cpu())
    }

    /// Waits until a replica leads that is none of these.
    pub(super) async fn leader(&mut self, not: Option<usize>) -> Result<usize> {
        let begin = Instant::now();
        loop {
            // The API server may be away.
            if let Ok(Some(leader)) = self.stage.leader(&mut self.replicas).await
                && not != Some(leader)
            {
                return Ok(leader);
            }
            ensure!(begin.elapsed() < PATIENCE, "no replica leads after {PATIENCE:?}");
            self.pass(LOOK).await?;
        }
    }

    /// Waits until all pods run; those that do not after a long time.
    async fn recover(&mut self) -> Result<Vec<String>> {
        let begin = Instant::now();
        loop {
            let waiting = self.stage.waiting().await;
            let is_over = begin.elapsed() > RECOVERY;
            match waiting {
                Ok(waiting) if waiting.is_empty() || is_over => {
                    self.done.recoveries.push(begin.elapsed().as_secs_f64());
                    return Ok(waiting);
                }
                Err(error) if is_over => return Err(error),
                _ => self.pass(LOOK).await?,
            }
        }
    }

    /// Waits until claims neither come nor go and everything fits together.
    pub(super) async fn come_to_rest(&mut self) -> Result<End> {
        const QUIET: Duration = Duration::from_secs(30);
        const LONGEST: Duration = Duration::from_mins(6);
        let begin = Instant::now();
        self.look()?;
        self.meter.begin(Phase::Rest, self.cpu());
        let waiting = self.recover().await?;
        let (mut claims, mut since) = (self.claims().await?, Instant::now());
        let end = loop {
            self.pass(Duration::from_millis(500)).await?;
            let now = self.claims().await?;
            let unmatched = unmatched(&self.stage).await?;
            if now != claims || !unmatched.is_empty() {
                since = Instant::now();
            }
            let rests = since.elapsed() > QUIET;
            if rests || begin.elapsed() > LONGEST {
                let changed = now.symmetric_difference(&claims).cloned();
                let restless = if rests { Vec::new() } else { changed.collect() };
                let took = since.duration_since(begin).as_secs_f64();
                break End { took, waiting, unmatched, restless };
            }
            claims = now;
        };
        self.meter.end(self.cpu());
        self.done.left_over = eventually(PATIENCE, async || left_over(&self.stage).await).await?;
        Ok(end)
    }

    async fn claims(&self) -> Result<BTreeSet<String>> {
        let claims = eventually(PATIENCE, async || self.stage.api.list(CLAIMS).await).await?;
        Ok(claims.iter().map(|claim| text(claim, "/metadata/name").to_owned()).collect())
    }
}

/// Pods that ask not to be disrupted.
fn kept() -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": KEPT},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": KEPT}},
            "template": {
                "metadata": {"labels": {"app": KEPT}, "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": "main",
                        "resources": {"requests": {"cpu": "300m", "memory": "64Mi"}}}],
                },
            },
        },
    })
}

/// A node that somebody else made. Nothing runs on it.
fn foreign() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": FOREIGN},
        "spec": {"taints": [{"key": "somebody-elses", "effect": "NoSchedule"}]},
    })
}
