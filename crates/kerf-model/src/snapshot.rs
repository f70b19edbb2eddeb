//! The snapshot: the input of decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kerf_api::conditions::{Conditioned, READY};
use kerf_api::{NodePool, ObjectExt};

use crate::catalogue::satisfies_min_values;
use crate::disruption::{Consolidatable, NodeDisruption, Obstacle, PoolDisruption, StaticPool};
use crate::instance_type::InstanceType;
use crate::labels::{INITIALIZED, INSTANCE_TYPE, KnownLabels, Labels, NODE_POOL, REGISTERED};
use crate::pdb::{Evicted, PdbLimits};
use crate::pod::Pod;
use crate::quantity::Quantity;
use crate::repair::RepairRules;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::resources::{NODES, Resources};
use crate::taint::Taint;
use crate::volume::Volumes;

/// The cluster at one moment, as far as decisions depend on it. Cheap to clone: the parts are shared.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub now: Timestamp,
    pub labels: Arc<KnownLabels>,
    /// Every pool of this operator by name, those that launch nothing included.
    pub pools: BTreeMap<String, Arc<Pool>>,
    pub nodes: Vec<Arc<Node>>,
    /// The pods to place: pending ones, and those of nodes that go away.
    pub pods: Vec<Arc<Pod>>,
    /// Pods that stand for the room of buffers. They take what the others leave.
    pub virtual_pods: Vec<Arc<Pod>>,
    /// By name of the node how many of them have their place there. Disruption works it out.
    pub seats: BTreeMap<String, usize>,
    /// One pod per daemon set, as it would run on a new node.
    pub daemons: Vec<Arc<Pod>>,
    pub volumes: Arc<Volumes>,
    /// Namespaces with their labels, for affinity terms that select namespaces.
    pub namespaces: Arc<BTreeMap<String, Labels>>,
    pub pdbs: Arc<PdbLimits>,
    /// `None`: unhealthy nodes are not replaced by disruption.
    pub repair: Option<Arc<RepairRules>>,
    pub in_memory: InMemory,
}

/// What a running operator knows and no object says. It is empty where there is no operator.
#[derive(Clone, Debug, Default)]
pub struct InMemory {
    /// Claims that a command under way is about.
    pub in_queue: BTreeSet<String>,
    /// Claims that pods were planned onto, and until when these pods are expected.
    pub nominated_until: BTreeMap<String, Timestamp>,
}

/// A node pool with what it can launch.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    pub name: String,
    pub weight: i32,
    /// Labels of the template, with the one that names the node class.
    pub labels: Labels,
    /// Requirements of the template.
    pub requirements: Requirements,
    pub taints: Vec<Taint>,
    /// Limits as given; a resource that is not named is not limited.
    pub limits: Resources,
    /// What claims that have no instance yet may come to take of the limits, those to come included. They are not among the
    /// nodes.
    pub launching: Resources,
    pub instance_types: Vec<Arc<InstanceType>>,
    /// Why it launches nothing for pods, if that is so.
    pub idle: Option<Idle>,
    pub disruption: PoolDisruption,
    /// How long the drain of a node may take that is launched now.
    pub termination_grace_period: Option<Duration>,
    /// With `replicas` a pool is static.
    pub static_pool: Option<StaticPool>,
}

/// Why a pool launches no nodes for pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Idle {
    #[error("it has replicas, and keeps that number of nodes whatever pods need")]
    Static,
    #[error("it is being deleted")]
    Deleting,
    #[error("it is not ready{}", detail(.0))]
    NotReady(String),
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("its instance types are unknown{}", detail(because))]
    UnknownInstanceTypes { because: String },
    #[error("its NodeClass offers no instance types")]
    NoInstanceTypes,
}

impl Idle {
    /// Whether the pool may launch nodes for pods, and if not, why. Which instance types it has is another matter.
    pub fn of(pool: &NodePool) -> Option<Self> {
        if pool.spec.replicas.is_some() {
            return Some(Self::Static);
        }
        if pool.is_deleting() {
            return Some(Self::Deleting);
        }
        let message = || pool.condition(READY).map(|it| it.message.clone()).unwrap_or_default();
        (!pool.is_true(READY)).then(|| Self::NotReady(message()))
    }

    /// How it is called in output that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Static => "Static",
            Self::Deleting => "Deleting",
            Self::NotReady(_) => "NotReady",
            Self::Unreadable(_) => "Unreadable",
            Self::UnknownInstanceTypes { .. } => "UnknownInstanceTypes",
            Self::NoInstanceTypes => "NoInstanceTypes",
        }
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// A node, or a claim whose node has yet to appear.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub name: String,
    /// The claim behind it; a node without one is not ours.
    pub claim: Option<String>,
    pub pool: Option<String>,
    pub labels: Labels,
    /// Without those that go away before pods start: start-up taints and ephemeral ones while the node
    /// is not initialised.
    pub taints: Vec<Taint>,
    pub capacity: Resources,
    pub allocatable: Resources,
    /// Bound pods that still use resources.
    pub pods: Vec<Arc<Pod>>,
    /// Unmanaged nodes count as initialised.
    pub initialized: bool,
    /// Whether the Kubernetes node exists.
    pub exists: bool,
    /// Going away: no place for pods, though its pods count until they are gone.
    pub deleting: bool,
    /// Attachable volumes by driver; `None` for a driver that is there and names no limit. For a driver that has yet to come,
    /// the limit of the instance type holds.
    pub volume_limits: BTreeMap<String, Option<u32>>,
    pub disruption: NodeDisruption,
}

/// Pools as a snapshot has them.
pub fn by_name(pools: impl IntoIterator<Item = Arc<Pool>>) -> BTreeMap<String, Arc<Pool>> {
    pools.into_iter().map(|pool| (pool.name.clone(), pool)).collect()
}

impl Snapshot {
    /// The pools that launch nodes for pods.
    pub fn launching_pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values().filter(|pool| pool.idle.is_none())
    }

    pub fn pool_of(&self, node: &Node) -> Option<&Arc<Pool>> {
        self.pools.get(node.pool.as_ref()?)
    }

    /// Whether the node takes no pods that consolidation would move.
    pub fn is_settling(&self, node: &Node) -> bool {
        let until = self.pool_of(node).and_then(|pool| pool.settles_at(node));
        until.is_some_and(|until| self.now < until)
    }

    /// Whether no pod has come or gone on the node for as long as its pool asks. The condition of its claim says so a moment after time
    /// does. In that moment the node would be none that may go, and one that takes the pods of others.
    pub fn is_quiet(&self, node: &Node) -> bool {
        let rules = self.pool_of(node).map(|pool| &pool.disruption);
        let by_time = rules.map(|rules| rules.consolidatable(&node.disruption, self.now));
        node.disruption.consolidatable || by_time == Some(Consolidatable::Now)
    }

    /// Until when the node is left out of consolidation because a pod came or went, if it is now.
    pub fn grace_until(&self, node: &Node) -> Option<Timestamp> {
        let until = self.pool_of(node)?.grace_until(node)?;
        (self.now < until).then_some(until)
    }

    /// Whether a command under way is about the node.
    pub fn is_in_queue(&self, node: &Node) -> bool {
        node.claim.as_ref().is_some_and(|claim| self.in_memory.in_queue.contains(claim))
    }

    /// Until when pods are expected that were planned onto the node.
    pub fn nominated_until(&self, node: &Node) -> Option<Timestamp> {
        let until = *self.in_memory.nominated_until.get(node.claim.as_ref()?)?;
        (self.now < until).then_some(until)
    }

    /// What stands against evicting the pod now.
    pub fn obstacle(&self, pod: &Pod) -> Option<Obstacle> {
        if pod.disruption.is_protected(self.now) {
            return Some(Obstacle::DoNotDisrupt);
        }
        self.pdbs.blocks(Evicted::from(pod), self.now)
    }

    /// Whether no amount of waiting makes its eviction possible, so that no room is planned for it.
    pub fn is_blocked_for_good(&self, pod: &Pod) -> bool {
        self.pdbs.is_blocked_for_good(Evicted::from(pod), self.now)
    }
}

impl<'a> From<&'a Pod> for Evicted<'a> {
    fn from(pod: &'a Pod) -> Self {
        Self { namespace: &pod.namespace, labels: &pod.labels, disruption: &pod.disruption }
    }
}

impl Pool {
    pub fn is_static(&self) -> bool {
        self.static_pool.is_some()
    }

    /// Until when the node takes no pods that consolidation would move. Nodes of static pools always take them.
    fn settles_at(&self, node: &Node) -> Option<Timestamp> {
        self.disruption.settles_at(&node.disruption).filter(|_| !self.is_static())
    }

    /// Until when a node of this pool is left out of consolidation because a pod came or went.
    pub fn grace_until(&self, node: &Node) -> Option<Timestamp> {
        self.disruption.grace_until(&node.disruption).filter(|_| !self.is_static())
    }

    /// What a claim with these requirements may come to take of the limits: as much as the largest type has that they allow.
    pub fn largest_for(&self, claim: &Requirements) -> Resources {
        let allowed = claim.get(INSTANCE_TYPE);
        let types = self.instance_types.iter();
        let types = types.filter(|one| allowed.is_none_or(|allowed| allowed.has(one.name())));
        let one_node = Resources::new().with(NODES, Quantity::from_units(1));
        types.fold(one_node, |largest, one| largest.max(one.capacity()))
    }
}

impl Pool {
    /// What every node of this pool will meet: requirements, labels, and the labels that a node gets
    /// on its way to being ready, so that daemons that select on those are counted.
    pub fn template_requirements(&self) -> Requirements {
        let own = [
            Requirement::is_in(NODE_POOL, [&self.name]),
            Requirement::is_in(REGISTERED, ["true"]),
            Requirement::is_in(INITIALIZED, ["true"]),
        ];
        let mut all = self.requirements.merged(&Requirements::from_labels(&self.labels));
        all.extend(own);
        all
    }
}

impl Pool {
    /// Whether anything can be launched from it, for whatever pod: types that meet the template, and can be bought.
    pub fn launchable(&self, labels: &KnownLabels) -> Result<(), NothingToLaunch> {
        let template = self.template_requirements();
        let suits = |instance_type: &&Arc<InstanceType>| {
            instance_type.requirements().intersects(&template).is_ok()
                && instance_type.is_offered(&template, labels)
        };
        let types: Vec<_> = self.instance_types.iter().filter(suits).cloned().collect();
        if types.is_empty() {
            return Err(NothingToLaunch::NoInstanceType);
        }
        match satisfies_min_values(&types, &template) {
            Ok(_) => Ok(()),
            Err(_) => Err(NothingToLaunch::TooFewValues),
        }
    }
}

/// Why a pool cannot launch anything. The messages are Karpenter's, for the sake of alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NothingToLaunch {
    #[error("NodePool requirements filtered out all compatible available instance types")]
    NoInstanceType,
    #[error(
        "NodePool requirements filtered out all compatible available instance types due to minValues incompatibility"
    )]
    TooFewValues,
}

impl Node {
    /// The value of the hostname label, or else the name.
    pub fn hostname(&self) -> &str {
        self.labels.get(crate::labels::HOSTNAME).map_or(&self.name, String::as_str)
    }

    /// Requests of all its pods.
    pub fn requested(&self) -> Resources {
        let mut sum = Resources::new();
        for pod in &self.pods {
            sum.add(&pod.requests);
        }
        sum
    }
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
            assert_eq!(Idle::of(&pool), expected, "{metadata} {status}");
        };
        check(&named, Value::Null, &ready, None);
        check(&named, json!(2), &ready, Some(Idle::Static));
        check(&deleted, Value::Null, &ready, Some(Idle::Deleting));
        check(&named, Value::Null, &json!({}), Some(Idle::NotReady(String::new())));
        let because = Idle::NotReady("NodeClassReady=False".into());
        check(&named, Value::Null, &not_ready, Some(because));
    }
}
