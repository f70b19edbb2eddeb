//! A cluster that stands when its story begins: machines with their ages, and pods where they are.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kerf_api::{NodePool, annotations, labels};
use kerf_testbed::Testbed;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    cloud::Cloud, ledger::text, market::Place, objects, play::PlayError, policy::Policy,
    scenario::PoolEntry, writing::Writer,
};

/// What is there from the start. Snapshots bring it; scenarios begin with an empty cluster.
#[derive(Clone, Debug, Default)]
pub struct InitialCluster {
    /// Those that pools refer to, as they are in the cluster that they come from.
    pub(crate) node_classes: Vec<Value>,
    /// Namespaces, daemon sets, disruption budgets.
    pub(crate) objects: Vec<Value>,
    /// The oldest first.
    pub(crate) machines: Vec<InitialNode>,
    pub(crate) sets: Vec<Set>,
}

/// A node, with its claim if it came from a pool.
#[derive(Clone, Debug)]
pub(crate) struct InitialNode {
    pub(crate) created: Timestamp,
    pub(crate) node: Value,
    pub(crate) claim: Option<Value>,
}

/// Pods that are replaced by their like when they go, and the set that does so.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// A `ReplicaSet`.
    pub(crate) object: Value,
    pub(crate) pods: Vec<Value>,
    /// What makes its pods in the cluster that it comes from, as `namespace/name`.
    pub(crate) workload: String,
    /// Whether the number of its pods is somebody's to choose. That of a Job, or of a pod without an owner, is not.
    pub(crate) scales: bool,
}

impl Set {
    pub(crate) fn replicas(&self) -> u32 {
        u32::try_from(self.pods.len()).unwrap_or(u32::MAX)
    }
}

impl InitialCluster {
    /// Whether the story begins with nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.sets.is_empty() && self.node_classes.is_empty()
    }

    pub(crate) fn node_class(&self, reference: &Value) -> Option<&Value> {
        self.node_classes.iter().find(|class| {
            let group = text(class, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
            reference["group"] == *group
                && reference["kind"] == class["kind"]
                && reference["name"] == class["metadata"]["name"]
        })
    }

    /// Whether this is the largest set of its workload: during a rollout a Deployment has two.
    pub(crate) fn is_main(&self, set: &Set) -> bool {
        let of_workload = self.sets.iter().filter(|other| other.workload == set.workload);
        // The first of equals.
        let main = of_workload.rev().max_by_key(|other| other.pods.len());
        main.is_some_and(|main| std::ptr::eq(main, set))
    }

    /// When the clock has to start for all ages to come out right.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.machines.first().map(|machine| machine.created)
    }

    /// What the machines of pools were bought as, with the names of their nodes.
    pub(crate) fn bought(&self) -> impl Iterator<Item = (String, Place)> {
        self.machines.iter().filter_map(|InitialNode { node, claim, .. }| {
            Some((text(node, "/metadata/name").to_owned(), Place::of(claim.as_ref()?)))
        })
    }

    /// Builds it up in a cluster in which nobody is at work yet, and lets the time until `start` pass: the API server dates
    /// what is created, so that the past has to be lived through. It is virtual, and costs nothing.
    pub(crate) async fn build(
        &self,
        testbed: &Testbed,
        start: Timestamp,
        pools: &Pools,
        writer: &Writer,
    ) -> Result<(), PlayError> {
        for object in &self.objects {
            writer.apply(object).await?;
        }
        for machine in &self.machines {
            sleep_until(testbed, machine.created).await;
            machine.build(pools, writer).await?;
        }
        sleep_until(testbed, start).await;
        for Set { object, pods, .. } in &self.sets {
            let set = writer.create(object).await?;
            let owner = owner("apps/v1", "ReplicaSet", &set.name_any(), set.uid());
            for pod in pods {
                let mut pod = pod.clone();
                pod["metadata"]["ownerReferences"] = json!([owner]);
                writer.create(&pod).await?;
            }
        }
        Ok(())
    }
}

impl InitialNode {
    async fn build(&self, pools: &Pools, writer: &Writer) -> Result<(), PlayError> {
        let mut node = self.node.clone();
        if let Some(claim) = &self.claim {
            let mut claim = claim.clone();
            let class = &mut claim["spec"]["nodeClassRef"];
            *class = pools.cloud.node_class_ref(class);
            pools.adopt(&mut claim);
            let claim = writer.create(&claim).await?;
            let owner = owner("karpenter.sh/v1", "NodeClaim", &claim.name_any(), claim.uid());
            node["metadata"]["ownerReferences"] = json!([owner]);
        }
        writer.create(&node).await?;
        Ok(())
    }
}

/// The pools as they are in the simulated cluster, by name.
#[derive(Debug)]
pub(crate) struct Pools {
    cloud: Cloud,
    adopted: BTreeMap<String, Adopted>,
}

#[derive(Debug)]
struct Adopted {
    uid: Option<String>,
    /// The hash of the template before its node class was replaced, and after.
    hashes: Option<(String, String)>,
}

impl Pools {
    pub(crate) fn of(cloud: &Cloud) -> Self {
        Self { cloud: cloud.clone(), adopted: BTreeMap::new() }
    }

    /// Takes note of a pool that was created from this entry.
    pub(crate) fn add(&mut self, entry: &PoolEntry, policy: &Policy, uid: Option<String>) {
        let hash = |pool: Value| Some(serde_json::from_value::<NodePool>(pool).ok()?.hash());
        let before = json!({"metadata": {"name": entry.name}, "spec": entry.spec});
        let hashes = hash(before).zip(hash(objects::node_pool(entry, policy, &self.cloud)));
        self.adopted.insert(entry.name.clone(), Adopted { uid, hashes });
    }

    /// Makes a claim one of its pool's. A claim that was up to date stays so, though its pool has another node class here.
    fn adopt(&self, claim: &mut Value) {
        let pool = claim["metadata"]["labels"][labels::NODE_POOL].as_str().unwrap_or_default();
        let pool = pool.to_owned();
        let Some(Adopted { uid, hashes }) = self.adopted.get(&pool) else { return };
        let owner = owner("karpenter.sh/v1", "NodePool", &pool, uid.clone());
        claim["metadata"]["ownerReferences"] = json!([owner]);
        // Claims of before hashes were written have none.
        let written = claim["metadata"].get_mut("annotations");
        let known = written.and_then(|all| all.get_mut(annotations::NODE_POOL_HASH));
        if let Some(known) = known
            && let Some((before, after)) = hashes
            && *known == **before
        {
            *known = after.clone().into();
        }
    }
}

fn owner(api_version: &str, kind: &str, name: &str, uid: Option<String>) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid.unwrap_or_default(),
        "controller": kind == "ReplicaSet", "blockOwnerDeletion": true,
    })
}

async fn sleep_until(testbed: &Testbed, time: Timestamp) {
    let left = time.duration_since(testbed.clock().now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
}
