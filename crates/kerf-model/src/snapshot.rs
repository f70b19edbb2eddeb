//! What a decision is made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalogue::satisfies_min_values;
use crate::instance_type::InstanceType;
use crate::labels::{INITIALIZED, KnownLabels, Labels, NODE_POOL, REGISTERED};
use crate::pod::Pod;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::taint::Taint;
use crate::volume::Volumes;

/// The cluster at one moment, as far as decisions depend on it. Cheap to clone: the parts are shared.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub labels: Arc<KnownLabels>,
    pub pools: Vec<Arc<Pool>>,
    /// Pools that launch nothing for pods; they are there to be named.
    pub idle_pools: Vec<IdlePool>,
    pub nodes: Vec<Arc<Node>>,
    /// The pods to place: pending ones, and those of nodes that go away.
    pub pods: Vec<Arc<Pod>>,
    /// One pod per daemon set, as it would run on a new node.
    pub daemons: Vec<Arc<Pod>>,
    pub volumes: Arc<Volumes>,
    /// Namespaces with their labels, for affinity terms that select namespaces.
    pub namespaces: Arc<BTreeMap<String, Labels>>,
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
    /// What claims that have no instance yet may come to take of the limits. They are not among the nodes.
    pub launching: Resources,
    pub instance_types: Vec<Arc<InstanceType>>,
}

/// A pool that launches nothing for pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdlePool {
    pub pool: String,
    pub why: Idle,
}

/// Why a pool launches no nodes for pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Idle {
    #[error("it has replicas, and keeps that number of nodes whatever pods want")]
    Static,
    #[error("it is being deleted")]
    Deleting,
    #[error("it is not ready{}", detail(.0))]
    NotReady(String),
    #[error("its instance types are unknown{}", detail(because))]
    UnknownInstanceTypes { because: String },
    #[error("its NodeClass offers no instance types")]
    NoInstanceTypes,
}

impl Idle {
    /// How it is called in output that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Static => "Static",
            Self::Deleting => "Deleting",
            Self::NotReady(_) => "NotReady",
            Self::UnknownInstanceTypes { .. } => "UnknownInstanceTypes",
            Self::NoInstanceTypes => "NoInstanceTypes",
        }
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// A node, or a claim whose node has yet to appear.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, none implies another")]
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
    /// Under its pool's `consolidateAfter`: takes no pods that consolidation would move.
    pub settling: bool,
    /// Attachable volumes per driver.
    pub volume_limits: BTreeMap<String, u32>,
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
