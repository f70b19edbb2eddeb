//! Small estates, written down quickly.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kerf_api::{Budget, ConsolidationPolicy, DurationOrNever};
use kerf_disruption::{Command, Memory, Pass, Settings, pass};
use kerf_model::churn::{ChurnControls, Fraction, GracePeriod, SavingsThreshold};
use kerf_model::estate::{Cost, Estate, Obstacle, Rules, Standing, Tenant};
use kerf_model::labels::{CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ON_DEMAND, ZONE};
use kerf_model::{InstanceType, Node, Pod, Pool};

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

/// A pool that can launch `fake-it-0` with one core to `fake-it-15` with sixteen, and lets everything go at once.
pub(crate) fn rules(name: &str) -> Rules {
    let instance_types = many_types(16);
    Rules {
        replicas: None,
        node_limit: None,
        pool: Arc::new(Pool { name: name.to_owned(), instance_types, ..Pool::default() }),
        policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
        consolidate_after: DurationOrNever::from(Duration::ZERO),
        budgets: vec![budget("100%")],
        controls: parity(),
    }
}

/// A node with how it stands.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) node: Node,
    pub(crate) standing: Standing,
    pub(crate) instance_type: Arc<InstanceType>,
}

/// A node with so many cores, of the pool `default`, that could go.
pub(crate) fn place(name: &str, cores: usize) -> Place {
    let instance_type = Arc::clone(&many_types(16)[cores - 1]);
    let mut node = node(name, "", "");
    node.claim = Some(format!("claim-{name}"));
    node.capacity = instance_type.capacity().clone();
    node.allocatable = instance_type.allocatable().clone();
    let place = Place {
        node,
        instance_type,
        standing: Standing {
            provider_id: format!("i-{name}"),
            ready: true,
            consolidatable: true,
            created: Some(ago(600)),
            initialized_at: Some(ago(590)),
            ..Standing::default()
        },
    };
    let of_type = place.instance_type.name().to_owned();
    place
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
        let tenant = Tenant {
            reschedulable: true,
            counted: true,
            eviction_cost: Cost::ONE,
            ..Tenant::default()
        };
        self.with_tenant(pod, tenant)
    }

    pub(crate) fn with_tenant(mut self, pod: &Pod, tenant: Tenant) -> Self {
        let bound = Pod { node_name: Some(self.node.name.clone()), ..pod.clone() };
        self.node.pods.push(Arc::new(bound));
        self.standing.tenants.push(tenant);
        self
    }

    /// Something stands against evicting the last pod.
    pub(crate) fn obstacle(mut self, obstacle: Obstacle) -> Self {
        self.standing.tenants.last_mut().expect("a pod").obstacle = Some(obstacle);
        self
    }

    /// It is there to take pods, and not to go.
    pub(crate) fn stays(self) -> Self {
        self.set(|_, standing| standing.consolidatable = false)
    }

    pub(crate) fn set(mut self, change: impl FnOnce(&mut Node, &mut Standing)) -> Self {
        change(&mut self.node, &mut self.standing);
        self
    }
}

pub(crate) fn estate(pools: Vec<Rules>, places: Vec<Place>) -> Estate {
    let launching = pools.iter().filter(|rules| !rules.is_static());
    let to_launch = launching.map(|rules| Pool::clone(&rules.pool)).collect();
    let (nodes, standings): (Vec<_>, Vec<_>) =
        places.into_iter().map(|place| (place.node, place.standing)).unzip();
    Estate {
        snapshot: with_nodes(cluster(to_launch, Vec::new()), nodes),
        standings,
        static_pools: std::collections::BTreeMap::new(),
        pools: pools.into_iter().map(|rules| (rules.pool.name.clone(), rules)).collect(),
        now: now(),
    }
}

pub(crate) fn first_pass(estate: &Estate) -> Pass {
    pass(estate, &Settings::default(), &mut Memory::default())
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
pub(crate) fn decided(estate: &Estate) -> Vec<String> {
    first_pass(estate).commands.iter().map(told).collect()
}

pub(crate) fn why(pass: &Pass, node: &str) -> Vec<String> {
    let of_node = pass.refused.iter().filter(|refused| refused.node == node);
    of_node.map(|refused| refused.why.to_string()).collect()
}
