//! A control plane with Kerf's definitions, a pool and room for logs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kerf_control_plane::{ControlPlane, Profile};
use serde_json::Value;

use super::api::{self, Api, LEASE, PODS, text};
use super::replica::Replica;
use super::{Common, audit};
use crate::cargo::workspace;
use crate::control_plane;
use crate::try_out::build_kerf;

/// The name of the lease that the replicas compete for.
pub(super) const LEASE_NAME: &str = "karpenter-leader-election";

pub(super) struct Stage {
    pub(super) cluster: ControlPlane,
    pub(super) api: Api,
    pub(super) kerf: PathBuf,
    /// Kept when the cluster is gone.
    pub(super) logs: PathBuf,
}

/// A NodeClass, and the beginning of a pool of it.
pub(super) const NODE_POOL: &str = "
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}";

/// A NodeClass and a pool that consolidates nothing, with requirements as YAML writes them in a line.
pub(super) fn resting_pool(requirements: &[&str]) -> String {
    let requirements = requirements.join("\n      - ");
    format!(
        "{NODE_POOL}
spec:
  disruption: {{consolidateAfter: Never}}
  template:
    spec:
      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}
      requirements:
      - {requirements}
"
    )
}

impl Stage {
    pub(super) async fn start(attack: &str, common: &Common) -> Result<Self> {
        let kerf = match &common.kerf {
            Some(path) => fs::canonicalize(path).with_context(|| path.display().to_string())?,
            None => build_kerf(&[])?.into(),
        };
        control_plane::binaries()?;
        let logs = workspace().join(format!("target/attack/{attack}-{}", common.seed));
        if logs.exists() {
            fs::remove_dir_all(&logs)?;
        }
        fs::create_dir_all(&logs)?;
        // Taint eviction deletes pods without asking their budgets, and would be taken for the operator.
        let cluster = ControlPlane::start_with(Profile::WithoutTaintEviction.audited()).await?;
        let stage = Self { api: Api::new(cluster.client()), cluster, kerf, logs };
        stage.install_crds().await?;
        Ok(stage)
    }

    pub(super) async fn install_crds(&self) -> Result<()> {
        let crds = Command::new(&self.kerf).arg("crds").output().context("kerf crds")?;
        ensure!(crds.status.success(), "kerf crds: {}", String::from_utf8_lossy(&crds.stderr));
        self.apply(&String::from_utf8(crds.stdout)?).await?;
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"], "")
            .await
    }

    pub(super) async fn apply(&self, manifest: &str) -> Result<()> {
        self.kubectl(&["apply", "-f", "-"], manifest).await
    }

    pub(super) async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<()> {
        let output = self.cluster.kubectl_with_input(arguments, input).await?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), error.trim());
        Ok(())
    }

    /// Which of the replicas holds the lease; none while it is with a process that is gone.
    pub(super) async fn leader(&self, replicas: &mut [Replica]) -> Result<Option<usize>> {
        let Some(lease) = self.api.find(LEASE).await? else { return Ok(None) };
        let holder = text(&lease, "/spec/holderIdentity");
        for (index, replica) in replicas.iter_mut().enumerate() {
            if !holder.is_empty() && replica.identity()?.as_deref() == Some(holder) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Waits until a replica other than `not` holds the lease.
    pub(super) async fn next_leader(
        &self,
        replicas: &mut [Replica],
        not: &[usize],
        patience: Duration,
    ) -> Result<usize> {
        let begin = Instant::now();
        loop {
            if let Some(leader) = self.leader(replicas).await?
                && !not.contains(&leader)
            {
                return Ok(leader);
            }
            ensure!(begin.elapsed() < patience, "no replica leads after {patience:?}");
            for (index, replica) in replicas.iter_mut().enumerate() {
                // As a kubelet would.
                if !not.contains(&index) && replica.ended()?.is_some() {
                    replica.restart(self)?;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until every pod runs; the names of those that do not when it is over.
    pub(super) async fn pending(&self, patience: Duration) -> Result<Vec<String>> {
        let begin = Instant::now();
        loop {
            let waiting = self.waiting().await?;
            if waiting.is_empty() || begin.elapsed() > patience {
                return Ok(waiting);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The names of the pods that do not run, or not for long any more.
    pub(super) async fn waiting(&self) -> Result<Vec<String>> {
        let pods = self.api.list(PODS).await?;
        let waits = |pod: &&Value| text(pod, "/status/phase") != "Running" || api::is_deleting(pod);
        Ok(pods.iter().filter(waits).map(|pod| api::name(pod).to_owned()).collect())
    }

    /// What the API server wrote down so far.
    pub(super) fn audit(&self) -> Result<Vec<audit::Entry>> {
        match self.cluster.audit_log() {
            Some(path) => {
                fs::copy(&path, self.logs.join("audit.log"))?;
                audit::read(&path)
            }
            None => bail!("the cluster keeps no audit log"),
        }
    }

    pub(super) fn logs(&self) -> &Path {
        &self.logs
    }
}

pub(super) fn progress(line: &str) {
    eprintln!("{line}");
}
