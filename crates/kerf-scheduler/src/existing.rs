//! Nodes and claims in flight as places for pods.

use std::sync::Arc;

use kerf_model::pod::HostPort;
use kerf_model::{Node, Snapshot};
use rustc_hash::FxHashMap;

use crate::algebra::{Algebra, Key, Value};
use crate::daemons::Daemon;
use crate::lanes::{self, LaneTable, Lanes};

/// The nodes of a snapshot in the order in which they are tried: initialised ones first, then by name. Those
/// that go away come last and are no targets.
#[derive(Debug)]
pub(crate) struct ExistingNodes<'s> {
    pub(crate) nodes: Vec<ExistingNode<'s>>,
    pub(crate) targets: usize,
    /// Per key the value that each node carries.
    columns: Vec<Option<Vec<Option<Value>>>>,
}

#[derive(Debug)]
pub(crate) struct ExistingNode<'s> {
    pub(crate) node: &'s Arc<Node>,
    /// What is left for pods, beside the daemons that are still to come.
    pub(crate) room: Lanes,
    pub(crate) ports: Vec<HostPort>,
    /// Claims attached, by driver; only for drivers with a limit.
    attached: FxHashMap<String, Vec<String>>,
    pub(crate) placed: Vec<u32>,
}

impl<'s> ExistingNodes<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot, lanes: &LaneTable, daemons: &[Daemon]) -> Self {
        let mut sorted: Vec<_> = snapshot.nodes.iter().collect();
        sorted.sort_by(|a, b| {
            (a.deleting, !a.initialized, &a.name).cmp(&(b.deleting, !b.initialized, &b.name))
        });
        let targets = sorted.iter().take_while(|node| !node.deleting).count();
        let nodes = sorted
            .into_iter()
            .map(|node| ExistingNode::new(node, snapshot, lanes, daemons))
            .collect();
        Self { nodes, targets, columns: Vec::new() }
    }

    /// The distinct values of a key over the nodes that exist.
    pub(crate) fn values_in_use(&mut self, key: Key, algebra: &mut Algebra) -> Vec<Value> {
        let existing = (0..self.nodes.len()).filter(|at| self.nodes[*at].node.exists);
        let existing: Vec<_> = existing.collect();
        let mut values: Vec<_> =
            existing.into_iter().filter_map(|at| self.value(at, key, algebra)).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// The value that the node carries for a key.
    pub(crate) fn value(&mut self, node: usize, key: Key, algebra: &mut Algebra) -> Option<Value> {
        if self.columns.len() <= key.index() {
            self.columns.resize_with(key.index() + 1, || None);
        }
        let column = self.columns[key.index()].get_or_insert_with(|| {
            let name = algebra.key_name(key).to_owned();
            self.nodes
                .iter()
                .map(|node| node.node.labels.get(&name).map(|value| algebra.value(key, value)))
                .collect()
        });
        column[node]
    }
}

impl<'s> ExistingNode<'s> {
    fn new(
        node: &'s Arc<Node>,
        snapshot: &Snapshot,
        lanes: &LaneTable,
        daemons: &[Daemon],
    ) -> Self {
        let mut room = lanes.room(&node.allocatable);
        let mut outstanding = lanes.zero();
        for daemon in daemons {
            if daemon.runs_on_node(&node.taints, &node.labels) {
                lanes::add(&mut outstanding, &daemon.requests);
            }
        }
        let mut existing = Self {
            node,
            room: Lanes::new(),
            ports: Vec::new(),
            attached: FxHashMap::default(),
            placed: Vec::new(),
        };
        for pod in &node.pods {
            let requests = lanes.request(&pod.requests);
            lanes::subtract(&mut room, &requests);
            if pod.is_daemon() {
                lanes::subtract(&mut outstanding, &requests);
            }
            existing.ports.extend_from_slice(&pod.constraints.host_ports);
            if !node.volume_limits.is_empty() && !pod.volumes.is_empty() {
                for (driver, claims) in snapshot.volumes.attachments(pod) {
                    existing.attach(driver, claims);
                }
            }
        }
        // More daemons than expected do not give room back.
        for (left, outstanding) in room.iter_mut().zip(&outstanding) {
            *left -= (*outstanding).max(0);
        }
        existing.room = room;
        existing
    }

    pub(crate) fn can_attach(&self, attachments: &[(String, Vec<String>)]) -> bool {
        attachments.iter().all(|(driver, claims)| {
            self.node.volume_limits.get(driver).is_none_or(|limit| {
                let attached = self.attached.get(driver).map_or(&[][..], Vec::as_slice);
                let new = claims.iter().filter(|claim| !attached.contains(claim)).count();
                attached.len() + new <= *limit as usize
            })
        })
    }

    pub(crate) fn attach(&mut self, driver: &str, claims: impl IntoIterator<Item = String>) {
        if self.node.volume_limits.contains_key(driver) {
            let attached = self.attached.entry(driver.to_owned()).or_default();
            for claim in claims {
                if !attached.contains(&claim) {
                    attached.push(claim);
                }
            }
        }
    }
}
