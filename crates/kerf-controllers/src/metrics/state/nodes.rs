//! What nodes have, and what the pods on them ask for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PodSpec};
use kerf_cluster::{Pod, pods};
use kerf_model::Resources;
use kube::ResourceExt;

use super::{Gauges, Series, age, snake_case, with};
use crate::{context::Context, transitions::Labels};

/// How many nodes are looked at before the index is left to the watches again.
const NODES_AT_A_TIME: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(super) enum NodeGauge {
    Allocatable,
    Overhead,
    Requests,
    Limits,
    DaemonRequests,
    DaemonLimits,
    Lifetime,
}

impl NodeGauge {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name.strip_prefix("karpenter_nodes_")? {
            "allocatable" => Self::Allocatable,
            "system_overhead" => Self::Overhead,
            "total_pod_requests" => Self::Requests,
            "total_pod_limits" => Self::Limits,
            "total_daemon_requests" => Self::DaemonRequests,
            "total_daemon_limits" => Self::DaemonLimits,
            "current_lifetime_seconds" => Self::Lifetime,
            _ => return None,
        })
    }
}

/// The figures of all nodes, which are small beside their text.
#[derive(Debug)]
pub(super) struct Nodes {
    well_known: BTreeSet<String>,
    figures: Vec<Figures>,
    /// What planning counts on, which for a node that starts is what its claim promises.
    allocatable: Resources,
    requested: Resources,
}

#[derive(Debug)]
struct Figures {
    node: Arc<Node>,
    managed: bool,
    /// As the node says itself.
    allocatable: Resources,
    overhead: Resources,
    usage: Usage,
}

impl Nodes {
    pub(super) fn of(context: &Context) -> Self {
        let nodes: Vec<Arc<Node>> = context.index.read().nodes().values().cloned().collect();
        let mut new = Self {
            well_known: context.known_labels().well_known,
            figures: Vec::with_capacity(nodes.len()),
            allocatable: Resources::new(),
            requested: Resources::new(),
        };
        for piece in nodes.chunks(NODES_AT_A_TIME) {
            let piece: Vec<_> = {
                let cluster = context.index.read();
                let look = |node: &Arc<Node>| {
                    let on_node: Vec<Arc<Pod>> =
                        cluster.pods_on(&node.name_any()).cloned().collect();
                    let machine = cluster.state_node_of(node);
                    (Arc::clone(node), machine.claim.is_some(), machine.allocatable(), on_node)
                };
                piece.iter().map(look).collect()
            };
            for (node, managed, promised, on_node) in piece {
                let status = node.status.as_ref();
                let read = |amounts: Option<&BTreeMap<_, _>>| {
                    amounts.map_or_else(|| Ok(Resources::new()), Resources::from_api)
                };
                let (Ok(promised), Ok(allocatable), Ok(capacity)) = (
                    promised,
                    read(status.and_then(|it| it.allocatable.as_ref())),
                    read(status.and_then(|it| it.capacity.as_ref())),
                ) else {
                    continue;
                };
                let usage = Usage::of(on_node.iter().filter(|pod| !pods::is_terminal(pod)));
                new.allocatable.add(&promised);
                new.requested.add(&usage.requests);
                let overhead = capacity.minus(&allocatable);
                new.figures.push(Figures { node, managed, allocatable, overhead, usage });
            }
        }
        new
    }

    pub(super) fn utilization(&self, gauges: &mut Gauges) {
        for (resource, total) in self.allocatable.iter().filter(|(_, total)| !total.is_zero()) {
            let percent = 100.0 * self.requested.amount(resource).as_f64() / total.as_f64();
            let labels = with(&[], "resource_type", &snake_case(resource));
            gauges.put("karpenter_cluster_utilization_percent", labels, percent);
        }
    }

    pub(super) fn series(
        &self,
        gauge: NodeGauge,
        now: Timestamp,
    ) -> Box<dyn Iterator<Item = (Labels, f64)> + '_> {
        Box::new(self.figures.iter().flat_map(move |of_node| self.of_node(gauge, of_node, now)))
    }

    fn of_node(&self, gauge: NodeGauge, of_node: &Figures, now: Timestamp) -> Series {
        let labels = node_labels(&self.well_known, of_node);
        let usage = &of_node.usage;
        let amounts = match gauge {
            NodeGauge::Allocatable => &of_node.allocatable,
            NodeGauge::Overhead => &of_node.overhead,
            NodeGauge::Requests => &usage.requests,
            NodeGauge::Limits => &usage.limits,
            NodeGauge::DaemonRequests => &usage.daemon_requests,
            NodeGauge::DaemonLimits => &usage.daemon_limits,
            NodeGauge::Lifetime => {
                let age = age(of_node.node.metadata.creation_timestamp.as_ref(), now);
                return vec![(labels, age)];
            }
        };
        let of_resource = |(resource, amount): (&str, kerf_model::Quantity)| {
            (with(&labels, "resource_type", &snake_case(resource)), amount.as_f64())
        };
        amounts.iter().map(of_resource).collect()
    }
}

/// What the pods of one node ask for.
#[derive(Debug, Default)]
struct Usage {
    requests: Resources,
    limits: Resources,
    daemon_requests: Resources,
    daemon_limits: Resources,
}

impl Usage {
    fn of<'a>(on_node: impl Iterator<Item = &'a Arc<Pod>>) -> Self {
        let mut usage = Self::default();
        for pod in on_node {
            let requests = pod.requests().unwrap_or_default();
            let limits = limits(pod.spec());
            if pods::is_owned_by_daemon_set(pod) {
                usage.daemon_requests.add(&requests);
                usage.daemon_limits.add(&limits);
            }
            usage.requests.add(&requests);
            usage.limits.add(&limits);
        }
        usage
    }
}

fn limits(spec: &PodSpec) -> Resources {
    let mut total = Resources::new();
    for container in &spec.containers {
        let limits = container.resources.as_ref().and_then(|it| it.limits.as_ref());
        if let Some(Ok(limits)) = limits.map(Resources::from_api) {
            total.add(&limits);
        }
    }
    total
}

fn node_labels(well_known: &BTreeSet<String>, of_node: &Figures) -> Labels {
    let node = &of_node.node;
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for key in well_known.iter().filter(|key| key.matches('/').count() == 1) {
        let name = snake_case(key.rsplit('/').next().unwrap_or_default());
        let value = node.labels().get(key).cloned().unwrap_or_default();
        // Two names of one label: the one that says something wins.
        let slot = all.entry(name).or_default();
        if slot.is_empty() {
            *slot = value;
        }
    }
    let phase = node.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    all.insert("node_name".into(), node.name_any());
    all.insert("phase".into(), phase);
    all.insert("managed".into(), of_node.managed.to_string());
    all.into_iter().collect()
}
