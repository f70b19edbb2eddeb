//! The cluster between two operators: what is there, and whether it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kerf_control_plane::ControlPlane;
use serde_json::Value;

use crate::control_plane::kubectl;
use crate::karpenter::NAMESPACE;

/// The Deployments of xtask/shadow/cluster.yaml, and how many pods they usually have.
pub(super) const WORKLOADS: [(&str, u32); 4] =
    [("web", 20), ("api", 10), ("worker", 6), ("queue", 5)];

const LEASE: &str = "karpenter-leader-election";
const PATIENCE: Duration = Duration::from_mins(6);
/// Without churn controls a cluster of cheap, almost equal types is tidied step by step, for minutes.
const PATIENCE_TO_SETTLE: Duration = Duration::from_mins(20);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longer than `consolidateAfter`, the pause between two looks and the second look of either operator.
const SETTLED_AFTER: Duration = Duration::from_secs(75);

pub(super) struct Cluster<'c> {
    control_plane: &'c ControlPlane,
}

/// What an operator must not change without a reason: NodeClaims by name, pods by name with their nodes; each with its uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) claims: BTreeMap<String, String>,
    pub(super) pods: BTreeMap<String, (String, String)>,
}

impl<'c> Cluster<'c> {
    pub(super) fn of(control_plane: &'c ControlPlane) -> Self {
        Self { control_plane }
    }

    pub(super) async fn scale(&self, deployment: &str, replicas: u32) -> Result<()> {
        let replicas = format!("--replicas={replicas}");
        kubectl(self.control_plane, &["scale", "deployment", deployment, &replicas], "").await?;
        Ok(())
    }

    pub(super) async fn claims(&self) -> Result<Vec<Value>> {
        self.list("nodeclaims").await
    }

    async fn list(&self, kind: &str) -> Result<Vec<Value>> {
        let listed = kubectl(self.control_plane, &["get", kind, "-o", "json"], "").await?;
        let mut listed: Value = serde_json::from_str(&listed)?;
        serde_json::from_value(listed["items"].take()).context("no list")
    }

    async fn state(&self) -> Result<State> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let claims = self.claims().await?;
        let claims = claims
            .iter()
            .map(|claim| (text(&claim["metadata"]["name"]), text(&claim["metadata"]["uid"])));
        let claims = claims.collect();
        let pods = self.list("pods").await?;
        let pods = pods.iter().map(|pod| {
            let place = (text(&pod["metadata"]["uid"]), text(&pod["spec"]["nodeName"]));
            (text(&pod["metadata"]["name"]), place)
        });
        Ok(State { claims, pods: pods.collect() })
    }

    /// Waits until all pods of the Deployments run; how long that took.
    pub(super) async fn until_all_pods_run(&self) -> Result<Duration> {
        self.until("all pods run", async || {
            let deployments = self.list("deployments").await?;
            Ok(deployments.iter().all(|one| {
                let wanted = one["spec"]["replicas"].as_u64().unwrap_or_default();
                let ready = one["status"]["readyReplicas"].as_u64().unwrap_or_default();
                let there = one["status"]["replicas"].as_u64().unwrap_or_default();
                ready == wanted && there == wanted
            }))
        })
        .await
    }

    /// Waits until nothing has changed for a while.
    pub(super) async fn settle(&self) -> Result<State> {
        let begin = Instant::now();
        let (mut state, mut since) = (self.state().await?, Instant::now());
        while since.elapsed() < SETTLED_AFTER {
            ensure!(begin.elapsed() < PATIENCE_TO_SETTLE, "the cluster does not come to rest");
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.state().await?;
            if now != state {
                (state, since) = (now, Instant::now());
            }
        }
        self.until_all_pods_run().await?;
        Ok(state)
    }

    /// Fails if a NodeClaim or a pod comes, goes or changes within this time.
    pub(super) async fn unchanged_for(&self, time: Duration, before: &State) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            let now = self.state().await?;
            if now != *before {
                let names = |one: &State| -> BTreeSet<String> {
                    one.claims.keys().chain(one.pods.keys()).cloned().collect()
                };
                let (then, after) = (names(before), names(&now));
                let (gone, came): (Vec<_>, Vec<_>) =
                    (then.difference(&after).collect(), after.difference(&then).collect());
                bail!("after {} s: gone {gone:?}, new {came:?}", begin.elapsed().as_secs());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// No NodeClaim has the condition Drifted.
    pub(super) async fn nothing_drifts(&self) -> Result<()> {
        for claim in self.claims().await? {
            let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let drifted = conditions.iter().find(|one| one["type"] == "Drifted");
            ensure!(drifted.is_none(), "{} drifts: {drifted:?}", claim["metadata"]["name"]);
        }
        Ok(())
    }

    /// Who holds the lease.
    async fn holder(&self) -> Result<String> {
        let get = ["get", "lease", LEASE, "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"];
        kubectl(self.control_plane, &get, "").await
    }

    /// Runs `stop`, which ends the operator that leads, and waits until another one holds the lease; how long that took.
    pub(super) async fn hand_over(&self, stop: impl FnOnce() -> Result<()>) -> Result<Duration> {
        let before = self.holder().await?;
        stop()?;
        let begin = Instant::now();
        loop {
            let now = self.holder().await?;
            if !now.is_empty() && now != before {
                return Ok(begin.elapsed());
            }
            ensure!(begin.elapsed() < PATIENCE, "{before} keeps the lease");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Gives the pool's nodes another label, and waits until the first of them is tainted for it; what there is then.
    pub(super) async fn begin_drift(&self, release: &str) -> Result<String> {
        let patch = format!(
            r#"{{"spec":{{"template":{{"metadata":{{"labels":{{"release":"{release}"}}}}}}}}}}"#
        );
        let patch = ["patch", "nodepool", "general", "--type=merge", "-p", &patch];
        kubectl(self.control_plane, &patch, "").await?;
        self.until("a node is disrupted", async || Ok(self.disrupted().await? > 0)).await?;
        let (disrupted, new) = (self.disrupted().await?, self.of_release(release).await?);
        let all = self.claims().await?.len();
        Ok(format!("{disrupted} nodes tainted, {new} of {all} NodeClaims new"))
    }

    /// Waits until each NodeClaim is of this release, no node is tainted and all pods run; says so.
    pub(super) async fn until_drift_is_over(&self, release: &str) -> Result<String> {
        let took = self
            .until("the drift is over", async || {
                let (claims, new) = (self.claims().await?.len(), self.of_release(release).await?);
                Ok(claims > 0 && new == claims && self.disrupted().await? == 0)
            })
            .await?;
        self.until_all_pods_run().await?;
        let (claims, nodes) = (self.claims().await?.len(), self.nodes_of_pools().await?.len());
        ensure!(claims == nodes, "{claims} NodeClaims and {nodes} Nodes");
        Ok(format!(
            "{:.0} s later all {claims} NodeClaims are new, each has its Node, no node is tainted, and all pods run",
            took.as_secs_f64()
        ))
    }

    pub(super) async fn until_no_claims(&self) -> Result<Duration> {
        self.until("no NodeClaim is left", async || {
            Ok(self.claims().await?.is_empty() && self.nodes_of_pools().await?.is_empty())
        })
        .await
    }

    async fn of_release(&self, release: &str) -> Result<usize> {
        let claims = self.claims().await?;
        Ok(claims.iter().filter(|one| one["metadata"]["labels"]["release"] == release).count())
    }

    /// Nodes with the taint of a command.
    async fn disrupted(&self) -> Result<usize> {
        let nodes = self.nodes_of_pools().await?;
        let is_tainted = |node: &&Value| {
            let taints = node["spec"]["taints"].as_array();
            taints.is_some_and(|all| all.iter().any(|one| one["key"] == "karpenter.sh/disrupted"))
        };
        Ok(nodes.iter().filter(is_tainted).count())
    }

    async fn nodes_of_pools(&self) -> Result<Vec<Value>> {
        let mut nodes = self.list("nodes").await?;
        nodes.retain(|node| node["metadata"]["labels"]["karpenter.sh/nodepool"].is_string());
        Ok(nodes)
    }

    async fn until(&self, what: &str, ask: impl AsyncFn() -> Result<bool>) -> Result<Duration> {
        let begin = Instant::now();
        while !ask().await? {
            ensure!(begin.elapsed() < PATIENCE, "not after {} s: {what}", PATIENCE.as_secs());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(begin.elapsed())
    }
}
