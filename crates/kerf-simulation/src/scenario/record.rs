//! What was recorded of a real cluster, as a scenario: it begins as the cluster was, and its workloads, pools and budgets change
//! when those of the cluster did.

use std::time::Duration;

use jiff::Timestamp;
use kerf_api::GoDuration;
use serde_json::{Value, json};

use super::{OverlayEntry, PoolEntry, Scenario, ScenarioError, Wrong, snapshot};
use crate::{
    cloud::Cloud,
    objects::{self, WORKLOAD},
    play::PlayError,
    policy::Policy,
    writing::Writer,
};

/// Something that happened, by its time after the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    pub at: Duration,
    pub what: Recorded,
}

/// What can happen to a cluster without its autoscaler.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// Pods of one owner come for the first time. The name is also a label's value, and unlike that of any other set: at most
    /// 63 characters, and not `set-` and a number, which is how sets that were there from the start are marked.
    SetComes {
        namespace: String,
        name: String,
        /// One of its pods.
        pod: Box<Value>,
        replicas: u32,
    },
    /// An owner that is there wants another number of pods.
    SetScales {
        namespace: String,
        name: String,
        replicas: u32,
    },
    /// A NodePool, a DaemonSet, a budget or a namespace is created or changed.
    Applied(Value),
    Deleted(Value),
}

impl Scenario {
    /// A cluster of these objects, as it was at the start, and what then happened to it. `source` is how errors call it.
    pub fn from_record(
        items: Vec<Value>,
        start: Timestamp,
        length: GoDuration,
        record: Vec<Moment>,
        source: &str,
    ) -> Result<Self, ScenarioError> {
        let pools = record.iter().filter_map(|moment| moment.what.pool()).cloned();
        let read = snapshot::cluster(items, &pools.collect::<Vec<_>>(), start).and_then(|read| {
            let scenario = Self { length, record, ..read };
            if scenario.all_pools().is_empty() {
                let problem = "there is no NodePool in it, so no node can be launched";
                return Err(Wrong::new("NodePools", problem));
            }
            Ok(scenario)
        });
        read.map_err(|Wrong { field, problem }| ScenarioError::Wrong {
            path: source.to_owned(),
            field,
            problem,
        })
    }

    /// Its pools, and those that come later.
    pub(crate) fn all_pools(&self) -> Vec<PoolEntry> {
        let mut pools = self.pools.clone();
        for pool in self.record.iter().filter_map(|moment| moment.what.pool()) {
            if !pools.iter().any(|known| pool["metadata"]["name"] == *known.name) {
                pools.push(PoolEntry::of(pool));
            }
        }
        pools
    }

    /// The templates of their NodeClaims.
    pub(crate) fn pool_templates(&self) -> impl Iterator<Item = &Value> {
        let later = self.record.iter().filter_map(|moment| moment.what.pool());
        let later = later.filter_map(|pool| pool["spec"].get("template"));
        self.pools.iter().filter_map(|pool| pool.spec.get("template")).chain(later)
    }
}

impl PoolEntry {
    /// As a cluster has it.
    pub(super) fn of(pool: &Value) -> Self {
        Self {
            name: pool["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            spec: pool["spec"].as_object().cloned().unwrap_or_default(),
            changes: Vec::new(),
        }
    }
}

impl OverlayEntry {
    /// As a cluster has it.
    pub(super) fn of(overlay: &Value) -> Self {
        Self {
            name: overlay["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            spec: overlay["spec"].as_object().cloned().unwrap_or_default(),
        }
    }
}

impl Recorded {
    /// The NodePool that is created or changed.
    fn pool(&self) -> Option<&Value> {
        match self {
            Self::Applied(object) => Some(object).filter(|object| object["kind"] == "NodePool"),
            _ => None,
        }
    }

    pub(crate) async fn happen(
        &self,
        writer: &Writer,
        policy: &Policy,
        cloud: &Cloud,
    ) -> Result<(), PlayError> {
        match self {
            Self::SetComes { namespace, name, pod, replicas } => {
                writer.apply(&set(namespace, name, pod, *replicas)).await?;
            }
            Self::SetScales { namespace, name, replicas } => {
                let patch = json!({
                    "apiVersion": "apps/v1", "kind": "ReplicaSet",
                    "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": replicas},
                });
                writer.change(&patch, &format!("the scaling of {namespace}/{name}")).await?;
            }
            Self::Applied(object) if object["kind"] == "NodePool" => {
                let entry = PoolEntry::of(object);
                writer.apply(&objects::node_pool(&entry, policy, cloud)).await?;
            }
            Self::Applied(object) => {
                writer.apply(&snapshot::bare(object)).await?;
            }
            Self::Deleted(object) => writer.delete(object).await?,
        }
        Ok(())
    }
}

fn set(namespace: &str, name: &str, pod: &Value, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {WORKLOAD: name}},
            "template": snapshot::template(pod, name),
        },
    })
}
