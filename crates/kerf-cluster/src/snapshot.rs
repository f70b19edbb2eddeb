//! From the index to what a plan is made from. The operator and `kerf plan` both come through here.

use std::sync::Arc;

use jiff::Timestamp;
use kerf_api::{
    NodePool, ObjectExt,
    conditions::{Conditioned, READY},
    labels::LabelRules,
};
use kerf_model::{
    Pool, Snapshot,
    snapshot::{Idle, IdlePool},
};

use crate::{
    Cluster, Kind, pods,
    validation::{InvalidPod, validate_pod},
    view::{self, Unreadable},
};

/// A snapshot, and the pods that could not be part of it.
#[derive(Debug)]
pub struct Taken {
    pub snapshot: Snapshot,
    /// One bad pod must not keep the others from their nodes.
    pub left_out: Vec<InvalidPod>,
}

/// The pools of a cluster, by whether they launch nodes for pods.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    pub launching: Vec<Arc<Pool>>,
    pub idle: Vec<IdlePool>,
}

impl Pools {
    /// A pool that may launch nodes does, if it is known of which types.
    pub fn add(&mut self, pool: Arc<Pool>, idle: Option<Idle>) {
        let unknown = || Idle::UnknownInstanceTypes { because: String::new() };
        let idle = idle.or_else(|| pool.instance_types.is_empty().then(unknown));
        match idle {
            None => self.launching.push(pool),
            Some(why) => self.idle.push(IdlePool { pool: pool.name.clone(), why }),
        }
    }
}

impl Cluster {
    /// The cluster as it stands, with these pools to launch from.
    pub fn snapshot(
        &self,
        pools: Pools,
        rules: &LabelRules,
        now: Timestamp,
    ) -> Result<Taken, Unreadable> {
        let known = view::known_labels(rules);
        let mut reader = self.pod_reader(&known);
        let nodes = self.node_views(&known, &mut reader)?;
        let daemons = self
            .daemon_sets
            .values()
            .map(|set| view::daemon_view(set, self.newest_pod_of(set).map(Arc::as_ref), &known));
        let daemons = daemons.map(|daemon| daemon.map(Arc::new)).collect::<Result<_, _>>()?;
        let volumes = self.shared_volumes(&known)?;
        let namespaces = self.shared_namespaces();
        let (mut pods, mut left_out) = (Vec::new(), Vec::new());
        for pod in self.pods_to_place(now) {
            let view = self.pod_view(&pod, &known, &mut reader);
            // A pod that has run somewhere was good enough for that.
            let checked = if pods::is_scheduled(&pod) {
                Ok(())
            } else {
                validate_pod(&pod, view.as_deref().map_err(Clone::clone), &volumes, rules)
            };
            match (checked, view) {
                (Ok(()), Ok(view)) => pods.push(view),
                (Err(invalid), _) => left_out.push(invalid),
                (Ok(()), Err(error)) => {
                    left_out.push(InvalidPod { pod: pod.key(), problems: vec![error.into()] });
                }
            }
        }
        let (labels, Pools { launching: pools, idle: idle_pools }) = (Arc::new(known), pools);
        let snapshot =
            Snapshot { labels, pools, idle_pools, nodes, pods, daemons, volumes, namespaces };
        Ok(Taken { snapshot, left_out })
    }
}

/// Whether the pool may launch nodes for pods, and if not, why.
pub fn idle(pool: &NodePool) -> Option<Idle> {
    if pool.spec.replicas.is_some() {
        return Some(Idle::Static);
    }
    if pool.is_deleting() {
        return Some(Idle::Deleting);
    }
    let message = || pool.condition(READY).map(|ready| ready.message.clone()).unwrap_or_default();
    (!pool.is_true(READY)).then(|| Idle::NotReady(message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
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

    /// Admission may give the pods of a DaemonSet other requests than its template has.
    #[test]
    fn a_daemon_is_sized_by_its_newest_pod() {
        let affinity = |key: &str, value: &str| {
            let test = json!({"key": key, "operator": "In", "values": [value]});
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [test]}],
            }}})
        };
        let spec = |resources: Value, affinity: Value| {
            let container = json!({"name": "c", "image": "i", "resources": resources});
            json!({"containers": [container], "affinity": affinity})
        };
        let template = spec(json!({"limits": {"cpu": "1"}}), affinity("disk", "ssd"));
        let mut cluster = Cluster::default();
        cluster.apply::<DaemonSet>(from(json!({
            "metadata": {"name": "logs", "namespace": "kube-system", "uid": "logs-uid"},
            "spec": {"selector": {}, "template": {"spec": template}},
        })));
        let pod = |name: &str, minute: u8, cpu: &str, owner: &str| -> Pod {
            let resources = json!({"requests": {"cpu": cpu}});
            from(json!({
                "metadata": {
                    "name": name, "namespace": "kube-system", "uid": name,
                    "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
                    "ownerReferences": [{
                        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": owner,
                    }],
                },
                "spec": spec(resources, affinity("kubernetes.io/hostname", "its-own-node")),
            }))
        };
        let check = |cluster: &Cluster, cpu: &str| {
            let now = "2026-01-01T01:00:00Z".parse().unwrap();
            let taken = cluster.snapshot(Pools::default(), &LabelRules::default(), now).unwrap();
            let [daemon] = taken.snapshot.daemons.as_slice() else { panic!("one daemon") };
            assert_eq!(daemon.requests.amount("cpu"), cpu.parse().unwrap());
            let terms = &daemon.constraints.required_terms;
            assert!(terms.len() == 1 && terms[0].get("disk").is_some(), "{terms:?}");
        };
        check(&cluster, "1");
        cluster.apply(pod("first", 1, "2", "logs-uid"));
        check(&cluster, "2");
        cluster.apply(pod("third", 3, "3", "logs-uid"));
        cluster.apply(pod("second", 2, "4", "logs-uid"));
        cluster.apply(pod("of-another", 9, "5", "other-uid"));
        check(&cluster, "3");
        let mut leaving = pod("third", 3, "3", "logs-uid");
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        cluster.apply(leaving);
        check(&cluster, "4");
        for name in ["second", "first"] {
            cluster.delete(&pod(name, if name == "first" { 1 } else { 2 }, "0", "logs-uid"));
        }
        check(&cluster, "1");
    }

    fn from<K: serde::de::DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).unwrap()
    }
}
