//! Small clusters with nodes that could go, written down quickly.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kerf_api::{Budget, ConsolidationPolicy, DurationOrNever};
use kerf_disruption::{Command, Memory, Pass, Settings, pass};
use kerf_model::churn::{ChurnControls, Fraction, GracePeriod, SavingsThreshold};
use kerf_model::disruption::{
    DoNotDisrupt, NodeDisruption, Obstacle, PodDisruption, PoolDisruption, StaticPool,
};
use kerf_model::labels::{CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ON_DEMAND, ZONE};
use kerf_model::pdb::Pdb;
use kerf_model::snapshot::Idle;
use kerf_model::{Node, Pod, Pool, Selector, Snapshot};

use crate::build::{ZONES, cluster, many_types, node, pod, with_nodes};

/// What upstream does: no control has a say.
pub(crate) fn parity() -> ChurnControls {
    ChurnControls {
        utilization_threshold: Fraction::ONE,
        price_improvement_factor: Fraction::ONE,
        savings_threshold: SavingsThreshold::OFF,
        grace_period: GracePeriod::Off,
    }
}

pub(crate) fn now() -> Timestamp {
    "2026-03-04T12:00:00Z".parse().expect("a time")
}

pub(crate) fn ago(minutes: u64) -> Timestamp {
    now() - Duration::from_mins(minutes)
}

pub(crate) fn budget(nodes: &str) -> Budget {
    Budget { nodes: nodes.to_owned(), schedule: None, duration: None, reasons: None }
}

/// A pool that can launch `fake-it-0` with one core to `fake-it-15` with sixteen, and lets everything go at once. A node
/// where a pod has just come or gone is settling.
pub(crate) fn pool(name: &str) -> Pool {
    Pool {
        name: name.to_owned(),
        instance_types: many_types(16),
        disruption: PoolDisruption {
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: DurationOrNever::from(Duration::from_mins(1)),
            budgets: vec![budget("100%")],
            controls: parity(),
        },
        ..Pool::default()
    }
}

/// The same with one replica.
pub(crate) fn static_pool(name: &str) -> Pool {
    let static_pool = Some(StaticPool { replicas: 1, ..StaticPool::default() });
    Pool { static_pool, idle: Some(Idle::Static), ..pool(name) }
}

/// A node with its pods, and what else is about them.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) node: Node,
    pub(crate) in_queue: bool,
    pub(crate) nominated_until: Option<Timestamp>,
    pub(crate) pdbs: Vec<Pdb>,
}

/// A node with so many cores, of the pool `default`, that could go.
pub(crate) fn place(name: &str, cores: usize) -> Place {
    let instance_type = Arc::clone(&many_types(16)[cores - 1]);
    let mut node = node(name, "", "");
    node.claim = Some(format!("claim-{name}"));
    node.capacity = instance_type.capacity().clone();
    node.allocatable = instance_type.allocatable().clone();
    node.disruption = NodeDisruption {
        provider_id: format!("i-{name}"),
        registered: true,
        ready: true,
        consolidatable: true,
        created: Some(ago(600)),
        initialized_at: Some(ago(590)),
        ..NodeDisruption::default()
    };
    let of_type = instance_type.name().to_owned();
    Place { node, in_queue: false, nominated_until: None, pdbs: Vec::new() }
        .label(NODE_POOL, "default")
        .label(INSTANCE_TYPE, &of_type)
        .label(ZONE, ZONES[0])
        .label(CAPACITY_TYPE, ON_DEMAND)
}

impl Place {
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.node.labels.insert(key.to_owned(), value.to_owned());
        if key == NODE_POOL {
            self.node.pool = Some(value.to_owned());
        }
        self
    }

    pub(crate) fn without_label(mut self, key: &str) -> Self {
        self.node.labels.remove(key);
        if key == NODE_POOL {
            self.node.pool = None;
        }
        self
    }

    pub(crate) fn pool(self, name: &str) -> Self {
        self.label(NODE_POOL, name)
    }

    /// Runs a pod that takes so many cores.
    pub(crate) fn runs(self, name: &str, cpu: &str) -> Self {
        self.with(&pod(name).requests(&format!("cpu={cpu}")).running().build())
    }

    pub(crate) fn with(self, pod: &Pod) -> Self {
        self.with_pod(pod, PodDisruption::movable())
    }

    pub(crate) fn with_pod(mut self, pod: &Pod, disruption: PodDisruption) -> Self {
        let node_name = Some(self.node.name.clone());
        self.node.pods.push(Arc::new(Pod { node_name, disruption, ..pod.clone() }));
        self
    }

    /// Something stands against evicting the last pod: its annotation, or budgets of these names that never allow anything.
    pub(crate) fn obstacle(mut self, obstacle: &Obstacle) -> Self {
        let names = match obstacle {
            Obstacle::DoNotDisrupt => {
                self.last_pod().disruption.do_not_disrupt = DoNotDisrupt::Always;
                return self;
            }
            Obstacle::Budget(name) => vec![name.clone()],
            Obstacle::SeveralBudgets(names) => names.clone(),
        };
        let pod = self.last_pod();
        pod.labels.insert("held".to_owned(), pod.name.clone());
        let selector = Selector::from_labels(&pod.labels);
        let budget = |key: String| {
            let (namespace, name) = key.split_once('/').expect("namespace/name");
            Pdb {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                selector: selector.clone(),
                disruptions_allowed: 0,
                never_allows: true,
                spares_unhealthy: false,
            }
        };
        self.pdbs.extend(names.into_iter().map(budget));
        self
    }

    pub(crate) fn last_pod(&mut self) -> &mut Pod {
        Arc::make_mut(self.node.pods.last_mut().expect("a pod"))
    }

    /// It is there to take pods, and not to go: its claim says nothing of when it was initialised.
    pub(crate) fn stays(self) -> Self {
        self.set(|node| {
            let facts = &mut node.disruption;
            facts.consolidatable = false;
            facts.initialized_at = facts.initialized_at.filter(|_| facts.last_pod_event.is_some());
        })
    }

    /// A pod has just come or gone.
    pub(crate) fn settling(self) -> Self {
        self.set(|node| {
            node.disruption.initialized_at = Some(ago(590));
            node.disruption.last_pod_event = Some(now());
        })
    }

    pub(crate) fn set(mut self, change: impl FnOnce(&mut Node)) -> Self {
        change(&mut self.node);
        self
    }
}

pub(crate) fn snapshot(pools: Vec<Pool>, places: Vec<Place>) -> Snapshot {
    let mut snapshot = Snapshot { now: now(), ..cluster(pools, Vec::new()) };
    let claim = |place: &Place| place.node.claim.clone();
    let in_queue = places.iter().filter(|place| place.in_queue).filter_map(claim);
    let nominated = places.iter().filter_map(|place| Some((claim(place)?, place.nominated_until?)));
    snapshot.in_memory.in_queue = in_queue.collect();
    snapshot.in_memory.nominated_until = nominated.collect();
    snapshot.pdbs = Arc::new(places.iter().flat_map(|place| place.pdbs.clone()).collect());
    with_nodes(snapshot, places.into_iter().map(|place| place.node).collect())
}

pub(crate) fn first_pass(snapshot: &Snapshot) -> Pass {
    pass(snapshot, &Settings::default(), &mut Memory::default())
}

/// A command in short: `SingleNode a b -> fake-it-3`.
pub(crate) fn told(command: &Command) -> String {
    let mut text = format!("{:?}", command.method);
    for candidate in &command.candidates {
        text.push(' ');
        text.push_str(&candidate.node.name);
    }
    for replacement in &command.replacements {
        match replacement {
            kerf_disruption::Replacement::Planned(claim) => {
                text.push_str(" -> ");
                text.push_str(claim.instance_types[0].name());
            }
            kerf_disruption::Replacement::OfTemplate(pool) => {
                text.push_str(" -> ");
                text.push_str(&pool.name);
            }
        }
    }
    text
}

/// What the first pass would do, and why the named node is left alone.
pub(crate) fn decided(snapshot: &Snapshot) -> Vec<String> {
    first_pass(snapshot).commands.iter().map(told).collect()
}

pub(crate) fn why(pass: &Pass, node: &str) -> Vec<String> {
    let of_node = pass.refused.iter().filter(|refused| refused.node == node);
    of_node.map(|refused| refused.why.to_string()).collect()
}
