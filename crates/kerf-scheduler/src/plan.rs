//! The result of a run: where pods go, and why the other pods have no place.

use std::collections::BTreeMap;
use std::sync::Arc;

use kerf_model::{InstanceType, Node, Pod, Pool, Price, Requirements, Resources};

use crate::refusal::{PoolRefusal, Refusal};

#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub claims: Vec<PlannedClaim>,
    /// Nodes and claims in flight that get pods, in the order in which they were tried.
    pub placements: Vec<Placement>,
    /// In the order of the snapshot's pods.
    pub failures: Vec<PodFailure>,
    /// What became of the room of buffers. New claims name the virtual pods that they have room for themselves.
    pub buffers: BufferRoom,
    /// Pools that cannot launch anything at all, whatever the pod.
    pub unusable_pools: Vec<PoolRefusal>,
    /// Why the rest was not worked out. Such a plan says nothing else.
    pub stopped: Option<Stopped>,
}

/// Where the virtual pods of buffers have room on what is there, and why others have none.
#[derive(Clone, Debug, Default)]
pub struct BufferRoom {
    /// Nodes and claims in flight, in the order in which they were tried.
    pub placements: Vec<Placement>,
    /// In the order of the snapshot's virtual pods.
    pub failures: Vec<PodFailure>,
}

/// How the room of one buffer stands, in virtual pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// There is room on initialised nodes.
    pub ready: usize,
    /// Room is on its way, or to be launched.
    pub coming: usize,
    /// There is none.
    pub missing: usize,
    /// Why, of the first.
    pub refusal: Option<Refusal>,
}

/// Where a probe gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    #[error("more than {most} new nodes are needed")]
    NewClaims { most: usize },
    #[error("the new nodes cost {at_least} or more, which is not below {below}")]
    Price { at_least: Price, below: Price },
}

/// A node to launch.
#[derive(Clone, Debug)]
pub struct PlannedClaim {
    pub pool: Arc<Pool>,
    pub pods: Vec<Arc<Pod>>,
    /// Those of buffers that it has room for beside its pods.
    pub virtual_pods: Vec<Arc<Pod>>,
    /// Any of these will do; the cheapest first.
    pub instance_types: Vec<Arc<InstanceType>>,
    /// Without the hostname, which is not known yet.
    pub requirements: Requirements,
    /// Of its pods, those of buffers among them, and of the daemons that will run on any of its types.
    pub requests: Resources,
    /// The lowest price at which it can be bought.
    pub price: Price,
    /// `minValues` could not be met and was lowered.
    pub min_values_relaxed: bool,
}

/// Pods that fit on existing nodes and claims.
#[derive(Clone, Debug)]
pub struct Placement {
    pub node: Arc<Node>,
    pub pods: Vec<Arc<Pod>>,
}

#[derive(Clone, Debug)]
pub struct PodFailure {
    pub pod: Arc<Pod>,
    pub origin: Origin,
    pub refusal: Refusal,
}

/// Why a pod looks for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It has none.
    Pending,
    /// Its node is being deleted.
    Deleting,
    /// It would leave its node in the case that is probed.
    Leaving,
    /// It stands for the room of a buffer.
    Buffer,
}

impl Plan {
    /// What the new claims cost per hour when each is bought as cheaply as it can be.
    pub fn price(&self) -> Price {
        self.claims.iter().map(|claim| claim.price).sum()
    }

    /// By namespace and name of the buffer.
    pub fn rooms(&self) -> BTreeMap<(String, String), Room> {
        let mut rooms: BTreeMap<_, Room> = BTreeMap::new();
        let mut of = |pod: &Pod, count: &mut dyn FnMut(&mut Room)| {
            let buffer = pod.buffer.as_deref().unwrap_or_default().to_owned();
            count(rooms.entry((pod.namespace.clone(), buffer)).or_default());
        };
        for placement in &self.buffers.placements {
            let is_ready = placement.node.initialized;
            for pod in &placement.pods {
                of(pod, &mut |room| {
                    *(if is_ready { &mut room.ready } else { &mut room.coming }) += 1;
                });
            }
        }
        for pod in self.claims.iter().flat_map(|claim| &claim.virtual_pods) {
            of(pod, &mut |room| room.coming += 1);
        }
        for failure in &self.buffers.failures {
            of(&failure.pod, &mut |room| {
                room.missing += 1;
                room.refusal.get_or_insert_with(|| failure.refusal.clone());
            });
        }
        rooms
    }

    /// Failures that speak against taking nodes away: of pods that have a place now.
    pub fn losses(&self) -> impl Iterator<Item = &PodFailure> {
        self.failures.iter().filter(|failure| failure.origin != Origin::Pending)
    }
}
