//! From the index to what a plan is made from. The operator and `kerf plan` both come through here.

use std::sync::Arc;

use jiff::Timestamp;
use kerf_api::{
    NodePool,
    conditions::{Conditioned, READY},
};
use kerf_model::{KnownLabels, Pool, Snapshot, pod::PodError};

use crate::{
    Cluster,
    view::{self, Unreadable},
};

/// A snapshot, and the pods that could not be part of it.
#[derive(Debug)]
pub struct Taken {
    pub snapshot: Snapshot,
    /// One unreadable pod must not keep the others from their nodes.
    pub left_out: Vec<PodError>,
}

/// Why a pool launches no nodes for pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Idle {
    #[error("it has replicas, and keeps that number of nodes whatever pods want")]
    Static,
    #[error("it is being deleted")]
    Deleting,
    #[error("it is not ready{}", if .0.is_empty() { String::new() } else { format!(": {}", .0) })]
    NotReady(String),
}

impl Cluster {
    /// The cluster as it stands, with these pools to launch from.
    pub fn snapshot(
        &self,
        pools: Vec<Arc<Pool>>,
        known: KnownLabels,
        now: Timestamp,
    ) -> Result<Taken, Unreadable> {
        let mut reader = self.pod_reader(&known);
        let nodes = self.node_views(&known, &mut reader)?;
        let daemons = self.daemon_sets.values().map(|daemon| view::daemon_view(daemon, &known));
        let daemons = daemons.map(|daemon| daemon.map(Arc::new)).collect::<Result<_, _>>()?;
        let volumes = self.shared_volumes(&known)?;
        let namespaces = self.shared_namespaces();
        let (mut pods, mut left_out) = (Vec::new(), Vec::new());
        for pod in self.pods_to_place(now) {
            match self.pod_view(&pod, &known, &mut reader) {
                Ok(pod) => pods.push(pod),
                Err(error) => left_out.push(error),
            }
        }
        let labels = Arc::new(known);
        let snapshot = Snapshot { labels, pools, nodes, pods, daemons, volumes, namespaces };
        Ok(Taken { snapshot, left_out })
    }
}

/// Whether the pool may launch nodes for pods, and if not, why.
pub fn idle(pool: &NodePool) -> Option<Idle> {
    if pool.spec.replicas.is_some() {
        return Some(Idle::Static);
    }
    if pool.metadata.deletion_timestamp.is_some() {
        return Some(Idle::Deleting);
    }
    let message = || pool.condition(READY).map(|ready| ready.message.clone()).unwrap_or_default();
    (!pool.is_true(READY)).then(|| Idle::NotReady(message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pools_launch_for_pods_when_they_are_ready_and_here_to_stay() {
        let ready = json!({"conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        let not_ready = json!({"conditions": [{
            "type": "Ready", "status": "False", "reason": "R", "message": "NodeClassReady=False",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]});
        let deleted = json!({"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let named = json!({"name": "p"});
        let check = |metadata: &Value, replicas: Value, status: &Value, expected: Option<Idle>| {
            let class = json!({"group": "g", "kind": "k", "name": "n"});
            let template = json!({"spec": {"nodeClassRef": class, "requirements": []}});
            let pool: NodePool = serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata,
                "spec": {"replicas": replicas, "template": template}, "status": status,
            }))
            .unwrap();
            assert_eq!(idle(&pool), expected, "{metadata} {status}");
        };
        check(&named, Value::Null, &ready, None);
        check(&named, json!(2), &ready, Some(Idle::Static));
        check(&deleted, Value::Null, &ready, Some(Idle::Deleting));
        check(&named, Value::Null, &json!({}), Some(Idle::NotReady(String::new())));
        let because = Idle::NotReady("NodeClassReady=False".into());
        check(&named, Value::Null, &not_ready, Some(because));
    }
}
