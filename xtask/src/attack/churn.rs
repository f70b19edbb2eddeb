//! Workloads that come and go, and a pool that changes its mind.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::task::JoinHandle;

use super::api::{Api, DEPLOYMENTS, POOLS, eventually};
use super::random::Random;
use super::stage::{NODE_POOL, Stage};

/// What the pool may have at most, how many nodes may be disrupted at once, and what the guarded pods are guarded by.
pub(super) const CPU_LIMIT: f64 = 32.0;
pub(super) const BUDGET: usize = 2;
pub(super) const GUARDED: &str = "guarded";
pub(super) const GUARDED_AT_LEAST: usize = 5;
const WAVES: [&str; 3] = ["wave-0", "wave-1", "wave-2"];

/// Small machines, so that there are many; nodes may be consolidated soon.
fn pool() -> String {
    format!(
        "{NODE_POOL}
spec:
  limits: {{cpu: \"{CPU_LIMIT}\"}}
  disruption: {{consolidateAfter: 5s, budgets: [{{nodes: \"{BUDGET}\"}}]}}
  template:
    metadata: {{labels: {{version: zero}}}}
    spec:
      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}
      requirements:
      - {{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}
      - {{key: node.kubernetes.io/instance-type, operator: In, values: [c-2x-amd64-linux, c-4x-amd64-linux]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: {GUARDED}}}
spec: {{minAvailable: {GUARDED_AT_LEAST}, selector: {{matchLabels: {{app: {GUARDED}}}}}}}
"
    )
}

fn deployment(name: &str, replicas: usize, cpu: &str) -> String {
    format!(
        "
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{{name: main, image: main, resources: {{requests: {{cpu: {cpu}, memory: 64Mi}}}}}}]
"
    )
}

/// Makes the pool and the workloads.
pub(super) async fn prepare(stage: &Stage) -> Result<()> {
    let mut manifest = pool();
    manifest.push_str(&deployment(GUARDED, GUARDED_AT_LEAST + 1, "500m"));
    for wave in WAVES {
        manifest.push_str(&deployment(wave, 2, "700m"));
    }
    stage.apply(&manifest).await
}

/// Workloads that change every second or two; ended by [`Churn::rest`].
pub(super) struct Churn {
    task: JoinHandle<()>,
}

impl Churn {
    pub(super) async fn start(stage: &Stage, seed: u64) -> Result<Self> {
        prepare(stage).await?;
        Ok(Self::of_what_is_there(&stage.api, seed, 15))
    }

    /// Changes to what [`prepare`] made. The pool changes its mind with every so manieth change; with 0 it never does.
    pub(super) fn of_what_is_there(api: &Api, seed: u64, drift_every: u64) -> Self {
        let (api, mut random) = (api.clone(), Random::new(seed));
        let task = tokio::spawn(async move {
            for round in 1_u64.. {
                tokio::time::sleep(Duration::from_millis(random.between(300, 2_000))).await;
                let wave = random.choose(&WAVES);
                let replicas = random.between(0, 11);
                // One that fails is one change less.
                let _ = scale(&api, wave, replicas).await;
                if round.checked_rem(drift_every) == Some(0) {
                    let drift = json!({"spec": {"template": {"metadata": {"labels": {
                        "version": format!("v{seed}-{round}"),
                    }}}}});
                    let _ = api.patch(&format!("{POOLS}/default"), &drift).await;
                }
            }
        });
        Self { task }
    }

    /// Ends the changes, with workloads for which there is room.
    pub(super) async fn rest(self, stage: &Stage) -> Result<()> {
        self.task.abort();
        for wave in WAVES {
            let scaled = async || scale(&stage.api, wave, 4).await;
            eventually(Duration::from_mins(1), scaled).await?;
        }
        Ok(())
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn scale(api: &Api, deployment: &str, replicas: u64) -> Result<()> {
    let replicas = json!({"spec": {"replicas": replicas}});
    api.patch(&format!("{DEPLOYMENTS}/{deployment}"), &replicas).await.map(drop)
}
