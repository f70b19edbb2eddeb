//! Equal nodes are simulated once.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use kerf_model::{
    Constraints, Labels, Pod, Price, Resources, Snapshot, Taint, labels::HOSTNAME, pod::Phase,
};
use rustc_hash::FxHashMap;

use crate::{
    blocked::{Blocked, Homeless},
    command::Candidate,
    simulation::Outcome,
};

/// What became of removing each kind of node, filled in as the search goes.
#[derive(Debug)]
pub(crate) struct Trials {
    /// By candidate.
    kinds: Vec<usize>,
    /// By candidate, its moving pods in an order that equal nodes share.
    pods: Vec<Vec<usize>>,
    /// By kind: its first candidate, and the result.
    outcomes: Vec<(usize, OnceLock<Told>)>,
    /// By kind: what it waits for, if its destination's grace period is all that holds it.
    held_by_grace: Vec<OnceLock<Option<Blocked>>>,
}

/// The same for all of the kind.
type Told = Result<Arc<Outcome>, Blocked>;

/// What two nodes have to have in common for the cluster to be as well off without the one as without the other.
///
/// The order in which places are tried is by name, so that equal nodes may still differ in luck; not in kind.
#[derive(PartialEq, Eq, Hash)]
struct NodeKind<'e> {
    pool: &'e str,
    price: Price,
    /// Its instance type, zone and capacity type among them; not its name.
    labels: Vec<(&'e String, &'e String)>,
    taints: &'e [Taint],
    allocatable: &'e Resources,
    volume_limits: &'e BTreeMap<String, Option<u32>>,
    settling: bool,
    pods: Vec<(usize, bool)>,
}

#[derive(PartialEq, Eq, Hash)]
struct PodKind<'e> {
    namespace: &'e str,
    labels: &'e Labels,
    requests: &'e Resources,
    constraints: &'e Constraints,
    phase: Phase,
    deleting: bool,
    daemon: bool,
    /// Volumes are not alike.
    unique: Option<&'e str>,
}

impl Trials {
    pub(crate) fn new(snapshot: &Snapshot, candidates: &[Candidate]) -> Self {
        let mut pod_kinds = FxHashMap::default();
        let mut node_kinds = FxHashMap::default();
        let mut trials = Self {
            kinds: Vec::new(),
            pods: Vec::new(),
            outcomes: Vec::new(),
            held_by_grace: Vec::new(),
        };
        for (at, candidate) in candidates.iter().enumerate() {
            let node = &snapshot.nodes[candidate.index];
            let mut pods: Vec<_> = node
                .pods
                .iter()
                .enumerate()
                .map(|(place, pod)| {
                    let next = pod_kinds.len();
                    let kind = *pod_kinds.entry(PodKind::of(pod)).or_insert(next);
                    (kind, candidate.moving.contains(&place), place)
                })
                .collect();
            pods.sort_unstable();
            let moving = pods.iter().filter(|(_, moving, _)| *moving);
            trials.pods.push(moving.map(|(_, _, place)| *place).collect());
            let labels = node.labels.iter().filter(|(key, _)| *key != HOSTNAME);
            let kind = NodeKind {
                pool: node.pool.as_deref().unwrap_or_default(),
                price: candidate.price,
                labels: labels.collect(),
                taints: &node.taints,
                allocatable: &node.allocatable,
                volume_limits: &node.volume_limits,
                settling: snapshot.is_settling(node),
                pods: pods.into_iter().map(|(kind, moving, _)| (kind, moving)).collect(),
            };
            let next = node_kinds.len();
            let kind = *node_kinds.entry(kind).or_insert(next);
            if kind == next {
                trials.outcomes.push((at, OnceLock::new()));
                trials.held_by_grace.push(OnceLock::new());
            }
            trials.kinds.push(kind);
        }
        trials
    }

    /// The candidate that is tried out for this one.
    pub(crate) fn example(&self, at: usize) -> usize {
        self.outcomes[self.kinds[at]].0
    }

    /// The result of its kind. `trial` must be of the example, whichever node asks first.
    pub(crate) fn of(&self, at: usize, trial: impl FnOnce() -> Result<Outcome, Blocked>) -> Told {
        self.outcomes[self.kinds[at]].1.get_or_init(|| trial().map(Arc::new)).clone()
    }

    /// What its kind waits for, if that is a grace period. `find` must be of the example, whichever node asks first.
    pub(crate) fn held_by_grace(
        &self,
        at: usize,
        find: impl FnOnce() -> Option<Blocked>,
    ) -> Option<Blocked> {
        self.held_by_grace[self.kinds[at]].get_or_init(find).clone()
    }

    /// What stopped the example, with the pods of this one.
    pub(crate) fn told_of(&self, at: usize, candidates: &[Candidate], why: Blocked) -> Blocked {
        let example = self.example(at);
        match why {
            Blocked::NoFeasibleSchedule { pods } if example != at => {
                let key = |of: usize, place: usize| candidates[of].node.pods[place].key();
                let places = self.pods[example].iter().zip(&self.pods[at]);
                let names: BTreeMap<_, _> =
                    places.map(|(theirs, own)| (key(example, *theirs), key(at, *own))).collect();
                let own = |one: Homeless| Homeless {
                    pod: names.get(&one.pod).cloned().unwrap_or(one.pod),
                    ..one
                };
                Blocked::NoFeasibleSchedule { pods: pods.into_iter().map(own).collect() }
            }
            why => why,
        }
    }
}

impl<'e> PodKind<'e> {
    fn of(pod: &'e Pod) -> Self {
        Self {
            namespace: &pod.namespace,
            labels: &pod.labels,
            requests: &pod.requests,
            constraints: &pod.constraints,
            phase: pod.phase,
            deleting: pod.deleting,
            daemon: pod.is_daemon(),
            unique: (!pod.volumes.is_empty()).then_some(&*pod.uid),
        }
    }
}
