//! Nodes and claims in flight as places for pods.

use std::sync::Arc;

use kerf_model::pod::HostPort;
use kerf_model::{Node, Snapshot};

use crate::algebra::{Algebra, Key, Value, id};
use crate::attached::{AttachLimits, Attached, TypeLimits};
use crate::bits::Bits;
use crate::class::Spec;
use crate::daemons::Daemon;
use crate::lanes::{self, LaneTable, Lanes};
use crate::options::Options;

/// The nodes of a snapshot in the order in which they are tried: initialised ones first, then by name. Those
/// that go away come last and are no targets.
///
/// What they are like at first is shared between runs; what a run changes is kept beside it.
#[derive(Clone, Debug)]
pub(crate) struct ExistingNodes<'s> {
    pub(crate) nodes: Arc<[ExistingNode<'s>]>,
    pub(crate) targets: usize,
    /// By position in the snapshot the position here.
    pub(crate) positions: Arc<[u32]>,
    room: Arc<RoomTable>,
    /// Per key the value that each node carries.
    columns: Vec<Option<Arc<Column>>>,
    /// Per node its position among the changed ones.
    slots: Vec<Option<u32>>,
    changed: Vec<Changed>,
    /// Nodes that are not there in this run.
    pub(crate) gone: Bits,
}

/// A node before the run.
#[derive(Debug)]
pub(crate) struct ExistingNode<'s> {
    pub(crate) node: &'s Arc<Node>,
    /// Takes no pods that consolidation would move.
    pub(crate) settling: bool,
    ports: Vec<HostPort>,
    attach_limits: AttachLimits<'s>,
    attached: Attached,
}

/// A node that got pods in this run.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) node: usize,
    room: Lanes,
    ports: Vec<HostPort>,
    attached: Attached,
    pub(crate) placed: Vec<u32>,
}

/// A node as it is in the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupied<'a> {
    /// Of a node that got pods in this run. The others are not asked when they have no room from the start.
    pub(crate) room: Option<&'a Lanes>,
    pub(crate) ports: &'a [HostPort],
    attach_limits: AttachLimits<'a>,
    attached: &'a Attached,
}

/// What nodes have left for pods, beside the daemons that are still to come. By lane, then by node: a pod is held
/// against all nodes at once.
#[derive(Debug)]
struct RoomTable {
    lanes: Vec<Vec<i64>>,
    overdrawn: Bits,
}

#[derive(Debug)]
pub(crate) struct Column {
    values: Vec<Option<Value>>,
    /// Distinct values over the nodes that exist, with the number of those.
    pub(crate) in_use: Vec<(Value, u32)>,
}

impl<'s> ExistingNodes<'s> {
    pub(crate) fn new(
        snapshot: &'s Snapshot,
        options: &Options,
        lanes: &LaneTable,
        daemons: &[Daemon],
    ) -> Self {
        let mut order: Vec<_> = (0..snapshot.nodes.len()).collect();
        let rank = |at: usize| {
            let node = &snapshot.nodes[at];
            (node.deleting, !node.initialized, &node.name)
        };
        order.sort_by(|a, b| rank(*a).cmp(&rank(*b)));
        let mut positions = vec![0; order.len()];
        for (at, original) in order.iter().enumerate() {
            positions[*original] = id(at);
        }
        let sorted: Vec<_> = order.into_iter().map(|at| &snapshot.nodes[at]).collect();
        let targets = sorted.iter().take_while(|node| !node.deleting).count();
        let rooms: Vec<_> = sorted.iter().map(|node| room_for_pods(node, lanes, daemons)).collect();
        let type_limits = TypeLimits::new(snapshot);
        Self {
            room: Arc::new(RoomTable::new(&rooms, lanes.len())),
            slots: vec![None; sorted.len()],
            nodes: sorted
                .into_iter()
                .map(|node| ExistingNode::new(node, snapshot, options, &type_limits))
                .collect(),
            targets,
            positions: positions.into(),
            columns: Vec::new(),
            changed: Vec::new(),
            gone: Bits::default(),
        }
    }

    /// Nodes on which this never fits, even before the run.
    pub(crate) fn without_room(&self, request: &[i64]) -> Bits {
        self.room.without_room(request)
    }

    /// What the node has, with what it has got in this run.
    pub(crate) fn occupied(&self, index: usize) -> Occupied<'_> {
        let node = &self.nodes[index];
        let attach_limits = node.attach_limits;
        match self.slots[index] {
            Some(slot) => {
                let Changed { room, ports, attached, .. } = &self.changed[slot as usize];
                Occupied { room: Some(room), ports, attach_limits, attached }
            }
            None => {
                Occupied { room: None, ports: &node.ports, attach_limits, attached: &node.attached }
            }
        }
    }

    pub(crate) fn take(&mut self, index: usize, pod: u32, spec: &Spec) {
        let slot = *self.slots[index].get_or_insert_with(|| {
            let node = &self.nodes[index];
            self.changed.push(Changed {
                node: index,
                room: self.room.lanes.iter().map(|lane| lane[index]).collect(),
                ports: node.ports.clone(),
                attached: node.attached.clone(),
                placed: Vec::new(),
            });
            id(self.changed.len() - 1)
        });
        let changed = &mut self.changed[slot as usize];
        lanes::subtract(&mut changed.room, &spec.base.key.requests);
        changed.ports.extend_from_slice(spec.ports());
        for (driver, claims) in &spec.base.attachments {
            if self.nodes[index].attach_limits.of(driver).is_some() {
                changed.attached.add(driver, claims.iter().cloned());
            }
        }
        changed.placed.push(pod);
    }

    /// Nodes that got pods, in the order in which nodes are tried.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &Changed> {
        let mut order: Vec<_> = self.changed.iter().collect();
        order.sort_by_key(|changed| changed.node);
        order.into_iter()
    }

    /// Forgets the run.
    pub(crate) fn restore(&mut self) {
        for changed in self.changed.drain(..) {
            self.slots[changed.node] = None;
        }
        self.gone.clear();
    }

    pub(crate) fn column(&mut self, key: Key, algebra: &mut Algebra) -> &Arc<Column> {
        if self.columns.len() <= key.index() {
            self.columns.resize_with(key.index() + 1, || None);
        }
        self.columns[key.index()].get_or_insert_with(|| {
            let name = algebra.key_name(key).to_owned();
            let values: Vec<_> = self
                .nodes
                .iter()
                .map(|node| node.node.labels.get(&name).map(|value| algebra.value(key, value)))
                .collect();
            let mut carried: Vec<_> = values
                .iter()
                .zip(self.nodes.iter())
                .filter(|(_, node)| node.node.exists)
                .filter_map(|(value, _)| *value)
                .collect();
            carried.sort_unstable();
            let in_use = carried.chunk_by(|a, b| a == b).map(|same| (same[0], id(same.len())));
            Arc::new(Column { in_use: in_use.collect(), values })
        })
    }

    /// The value that the node carries for a key.
    pub(crate) fn value(&mut self, node: usize, key: Key, algebra: &mut Algebra) -> Option<Value> {
        match self.columns.get(key.index()) {
            Some(Some(known)) => known.values[node],
            _ => self.column(key, algebra).values[node],
        }
    }
}

impl<'s> ExistingNode<'s> {
    fn new(
        node: &'s Arc<Node>,
        snapshot: &Snapshot,
        options: &Options,
        type_limits: &TypeLimits<'s>,
    ) -> Self {
        let mut existing = Self {
            node,
            settling: options.honor_settling && snapshot.is_settling(node),
            ports: Vec::new(),
            attach_limits: type_limits.of_node(node),
            attached: Attached::default(),
        };
        for pod in &node.pods {
            existing.ports.extend_from_slice(&pod.constraints.host_ports);
            if !existing.attach_limits.are_none() && !pod.volumes.is_empty() {
                for (driver, claims) in snapshot.volumes.attachments(pod) {
                    if existing.attach_limits.of(driver).is_some() {
                        existing.attached.add(driver, claims);
                    }
                }
            }
        }
        existing
    }
}

impl Occupied<'_> {
    /// Whether its drivers can attach these claims beside those that they have.
    pub(crate) fn can_attach(&self, wanted: &[(String, Vec<String>)]) -> bool {
        wanted.iter().all(|(driver, claims)| {
            let limit = self.attach_limits.of(driver);
            limit.is_none_or(|limit| self.attached.count_with(driver, claims) <= limit as usize)
        })
    }
}

fn room_for_pods(node: &Node, lanes: &LaneTable, daemons: &[Daemon]) -> Lanes {
    let mut room = lanes.room(&node.allocatable);
    let mut outstanding = lanes.zero();
    for daemon in daemons {
        if daemon.runs_on_node(&node.taints, &node.labels) {
            lanes::add(&mut outstanding, &daemon.requests);
        }
    }
    for pod in &node.pods {
        let requests = lanes.request(&pod.requests);
        lanes::subtract(&mut room, &requests);
        if pod.is_daemon() {
            lanes::subtract(&mut outstanding, &requests);
        }
    }
    // More daemons than expected do not give room back.
    for (left, outstanding) in room.iter_mut().zip(&outstanding) {
        *left = left.saturating_sub((*outstanding).max(0));
    }
    room
}

impl RoomTable {
    fn new(rooms: &[Lanes], lanes: usize) -> Self {
        let overdrawn = |at: &usize| rooms[*at].iter().any(|left| *left < 0);
        Self {
            lanes: (0..lanes).map(|lane| rooms.iter().map(|room| room[lane]).collect()).collect(),
            overdrawn: (0..rooms.len()).filter(overdrawn).collect(),
        }
    }

    fn without_room(&self, request: &[i64]) -> Bits {
        let asked = || self.lanes.iter().zip(request).filter(|(_, amount)| **amount > 0);
        let nodes = self.lanes.first().map_or(0, Vec::len);
        let mut without = self.overdrawn.clone();
        for word in 0..nodes.div_ceil(64) {
            let range = word * 64..nodes.min(word * 64 + 64);
            let mut full = 0_u64;
            for (lane, amount) in asked() {
                for (bit, left) in lane[range.clone()].iter().enumerate() {
                    full |= u64::from(left < amount) << bit;
                }
            }
            without.insert_word(word, full);
        }
        without
    }
}
