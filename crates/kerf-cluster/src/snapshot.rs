//! From the index to the snapshot of decisions. The operator, `kerf plan`, `kerf explain` and simulations all come through
//! here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kerf_api::{
    NodePool, ObjectExt,
    conditions::{Conditioned, READY},
    labels::LabelRules,
};
use kerf_model::{
    InstanceType, KnownLabels, Pool, Snapshot,
    churn::ChurnControls,
    disruption::{PoolDisruption, StaticPool},
    snapshot::{Idle, InMemory},
};
use kube_core::ResourceExt;

use crate::{
    Cluster, Key, node_counts, pods,
    validation::{InvalidPod, validate_pod},
    view::{self, Unreadable},
};

/// What a snapshot is made from beside the index.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub now: Timestamp,
    pub label_rules: LabelRules,
    /// By pool, as the provider has them. Of pools that are not among them nothing is known.
    pub instance_types: BTreeMap<String, KnownTypes>,
    /// What holds where a pool says nothing itself.
    pub churn: ChurnControls,
    /// Claims that a command under way is about. Only an operator knows them.
    pub in_queue: BTreeSet<String>,
    /// Pods that get a place on a claim without an instance: nothing is planned for them. Only an operator knows them.
    pub promised: BTreeSet<Key>,
    /// The same for virtual pods of buffers, by uid.
    pub promised_to_buffers: BTreeSet<String>,
}

/// What a provider has for a pool, or why that is not known.
pub type KnownTypes = Result<Vec<Arc<InstanceType>>, String>;

/// A snapshot, and the pods that could not be part of it.
#[derive(Debug)]
pub struct Taken {
    pub snapshot: Snapshot,
    /// One bad pod must not keep the others from their nodes.
    pub left_out: Vec<InvalidPod>,
}

impl Inputs {
    /// The index alone, at this time.
    pub fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }
}

impl Cluster {
    /// The cluster as it stands.
    pub fn snapshot(&self, inputs: Inputs) -> Result<Taken, Unreadable> {
        let (now, rules) = (inputs.now, &inputs.label_rules);
        let known = view::known_labels(rules);
        let types = self.overlaid(inputs.instance_types, rules).types;
        let mut reader = self.pod_reader(&known);
        let nodes = self.node_views(&known, &mut reader)?;
        let daemons = self
            .daemon_sets
            .values()
            .map(|set| view::daemon_view(set, self.newest_pod_of(set).map(Arc::as_ref), &known));
        let daemons = daemons.map(|daemon| daemon.map(Arc::new)).collect::<Result<_, _>>()?;
        let volumes = self.shared_volumes(&known)?;
        let (mut pods, mut left_out) = (Vec::new(), Vec::new());
        for pod in self.pods_to_place(now) {
            if inputs.promised.contains(&pod.key()) {
                continue;
            }
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
        let virtual_pods = self.virtual_pods(&mut reader, &inputs.promised_to_buffers);
        let snapshot = Snapshot {
            now,
            pools: self.pool_views(types, inputs.churn, &known),
            labels: Arc::new(known),
            nodes,
            pods,
            daemons,
            volumes,
            namespaces: self.shared_namespaces(),
            virtual_pods,
            seats: BTreeMap::new(),
            pdbs: self.shared_pdbs(),
            repair: self.repair.clone(),
            in_memory: InMemory {
                in_queue: inputs.in_queue,
                nominated_until: self.nominations(now),
            },
        };
        Ok(Taken { snapshot, left_out })
    }

    fn pool_views(
        &self,
        mut instance_types: BTreeMap<String, KnownTypes>,
        churn: ChurnControls,
        known: &KnownLabels,
    ) -> BTreeMap<String, Arc<Pool>> {
        let view = |(key, pool): (&Key, &Arc<NodePool>)| {
            let types = instance_types.remove(&key.name);
            let types = types.unwrap_or_else(|| Err(String::new()));
            let disruption = PoolDisruption::new(&pool.spec.disruption, churn);
            (key.name.clone(), Pool { disruption, ..self.pool_with(key, pool, types, known) })
        };
        let mut pools: BTreeMap<String, Pool> = self.pools.iter().map(view).collect();
        let launching: Vec<_> = self.launching(|pool| pools.get(pool), known).collect();
        for (pool, amount) in launching {
            if let Some(pool) = pools.get_mut(pool) {
                pool.launching.add(&amount);
            }
        }
        pools.into_iter().map(|(name, pool)| (name, Arc::new(pool))).collect()
    }

    fn pool_with(
        &self,
        key: &Key,
        object: &NodePool,
        types: KnownTypes,
        known: &KnownLabels,
    ) -> Pool {
        let (types, unknown) = match types {
            Ok(types) if types.is_empty() => (types, Some(Idle::NoInstanceTypes)),
            Ok(types) => (types, None),
            Err(because) => (Vec::new(), Some(Idle::UnknownInstanceTypes { because })),
        };
        let unreadable = self.pools.unreadable(key).map(ToString::to_string);
        let (pool, unreadable) = match view::pool_view(object, types, known) {
            Ok(pool) => (pool, unreadable),
            // Its limits cannot be read, so they cannot be kept.
            Err(error) => {
                let pool = Pool { name: key.name.clone(), ..Pool::default() };
                (pool, unreadable.or_else(|| Some(error.to_string())))
            }
        };
        Pool {
            idle: unreadable.map(Idle::Unreadable).or_else(|| Idle::of(object)).or(unknown),
            static_pool: self.static_pool(object),
            ..pool
        }
    }

    fn static_pool(&self, pool: &NodePool) -> Option<StaticPool> {
        Some(StaticPool {
            replicas: pool.replicas()?,
            limit: node_counts::node_limit(pool),
            count: self.node_count(&pool.name_any()),
            launches: !pool.is_deleting() && pool.is_true(READY),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
    use serde_json::{Value, json};

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
            let taken = cluster.snapshot(Inputs::at(now)).unwrap();
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
