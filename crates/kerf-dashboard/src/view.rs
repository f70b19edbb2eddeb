//! What the page shows: a value computed from one look at the operator, its journal and the price history. Nothing else.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use kerf_api::DisruptionReason;
use kerf_controllers::window::{Look, NodeRefusal};
use kerf_disruption::{Allowance, Method, budgets};
use kerf_model::{
    InstanceType, Node, Pod, Pool, Price, Snapshot,
    churn::GracePeriod,
    labels::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE},
    resources::{CPU, MEMORY},
};
use kerf_runtime::{events::Severity, journal::Entry};
use serde::Serialize;

use crate::history::Step;

/// Nodes that get a box. More do not fit a screen, and a browser draws these in a few milliseconds.
pub(crate) const MOST_NODES: usize = 400;
/// Pods that get a segment of their own in the boxes, over all nodes; of the others only the sum is shown.
pub(crate) const MOST_PODS: usize = 4000;
/// Objects that a refusal names.
const EXAMPLES: usize = 5;

/// Whose page it is.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    pub version: String,
    /// What the cluster is where it is not one of the user's: a demo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demo: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Of this document; a number more when a reader would have to change.
    pub format: u32,
    pub about: About,
    pub now: Timestamp,
    pub leads: bool,
    pub totals: Totals,
    pub pools: Vec<PoolView>,
    /// Those that something happens to first, then the emptiest. At most [`MOST_NODES`].
    pub nodes: Vec<NodeView>,
    pub refusals: Vec<RefusalView>,
    pub log: Vec<LogView>,
    pub prices: Vec<Step>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    pub nodes: usize,
    pub pods: usize,
    /// Pods that need a place, those of nodes that go included.
    pub pods_to_place: usize,
    pub price_per_hour: Price,
    /// Nodes whose price is not known and not in the sum.
    pub unpriced: usize,
    pub fill: Fill,
}

/// Requested beside allocatable; CPU in thousandths, memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fill {
    pub cpu: i64,
    pub cpu_of: i64,
    pub memory: i64,
    pub memory_of: i64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    pub name: String,
    pub nodes: usize,
    pub price_per_hour: Price,
    pub fill: Fill,
    pub policy: &'static str,
    pub consolidate_after: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u64>,
    pub utilization_threshold: String,
    pub price_improvement_factor: String,
    pub savings_threshold: String,
    /// `off`, or a number of seconds.
    pub grace_period: String,
    /// Why it launches nothing, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<String>,
    /// By resource, as text.
    pub limits: BTreeMap<String, String>,
    pub budgets: Vec<BudgetView>,
    pub allowances: Vec<AllowanceView>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetView {
    pub nodes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    pub active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How many nodes may go at a time for a reason.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowanceView {
    pub reason: &'static str,
    /// Missing: as many as there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u32>,
    pub disrupting: u32,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// Missing where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<Price>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    pub fill: Fill,
    pub pod_count: usize,
    /// The largest first. Fewer than `podCount` where there are too many pods to name.
    pub pods: Vec<PodView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<NodeRefusalView>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Going,
    Coming,
    NotReady,
    Ready,
    /// No NodeClaim of this operator is behind it.
    NotManaged,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    pub name: String,
    pub cpu: i64,
    pub memory: i64,
    /// It stays with its node: a daemon, or a mirror of a file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRefusalView {
    pub reason: &'static str,
    pub message: String,
    /// `None`: it is no candidate for any method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'static str>,
    pub at: Timestamp,
}

/// Nodes or pods that are refused for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusalView {
    /// `nodes` that are not disrupted, or `pods` that get no place.
    pub of: &'static str,
    pub reason: &'static str,
    pub count: usize,
    pub names: Vec<String>,
    /// In the words of the first.
    pub message: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogView {
    pub at: Timestamp,
    pub warning: bool,
    pub reason: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub message: String,
    pub count: u32,
}

impl View {
    pub fn of(look: &Look, log: &[Entry], prices: &[Step], about: &About) -> Self {
        let snapshot = &look.snapshot;
        let prices_of_types = Prices::of(snapshot);
        let nodes = snapshot.nodes.iter();
        let nodes: Vec<NodeView> =
            nodes.map(|node| NodeView::of(node, look, &prices_of_types)).collect();
        let totals = Totals::of(snapshot, &nodes);
        let of_reason = |reason| (reason, budgets::allowances(snapshot, reason));
        let allowances: Vec<_> = Method::reasons(snapshot).into_iter().map(of_reason).collect();
        let pools = snapshot.pools.values();
        let pools =
            pools.map(|pool| PoolView::of(pool, snapshot.now, &nodes, &allowances)).collect();
        // Most pods of a large cluster are on nodes that get no box.
        let mut boxes: Vec<_> = nodes.into_iter().zip(&snapshot.nodes).collect();
        boxes.sort_by_cached_key(|(node, _)| {
            (node.state, node.fill.used_permille(), node.name.clone())
        });
        boxes.truncate(MOST_NODES);
        Self {
            format: 1,
            about: about.clone(),
            now: snapshot.now,
            leads: look.leads,
            totals,
            pools,
            nodes: with_pods(boxes),
            refusals: refusals(look),
            log: log.iter().map(LogView::of).collect(),
            prices: prices.to_vec(),
        }
    }
}

impl Totals {
    fn of(snapshot: &Snapshot, nodes: &[NodeView]) -> Self {
        let ours = || nodes.iter().filter(|node| node.state != State::NotManaged);
        Self {
            nodes: nodes.len(),
            pods: nodes.iter().map(|node| node.pod_count).sum(),
            pods_to_place: snapshot.pods.len(),
            price_per_hour: nodes.iter().filter_map(|node| node.price_per_hour).sum(),
            unpriced: ours().filter(|node| node.price_per_hour.is_none()).count(),
            fill: nodes.iter().fold(Fill::default(), |sum, node| sum.plus(node.fill)),
        }
    }
}

impl Fill {
    fn of(node: &Node) -> Self {
        let requested = |resource| node.pods.iter().map(|pod| pod.requests.amount(resource)).sum();
        let (cpu, memory): (kerf_model::Quantity, kerf_model::Quantity) =
            (requested(CPU), requested(MEMORY));
        Self {
            cpu: cpu.millis(),
            cpu_of: node.allocatable.amount(CPU).millis(),
            memory: memory.units(),
            memory_of: node.allocatable.amount(MEMORY).units(),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            cpu_of: self.cpu_of.saturating_add(other.cpu_of),
            memory: self.memory.saturating_add(other.memory),
            memory_of: self.memory_of.saturating_add(other.memory_of),
        }
    }

    /// The fuller of the two, for an order.
    fn used_permille(self) -> i128 {
        let share = |used: i64, of: i64| i128::from(used) * 1000 / i128::from(of.max(1));
        share(self.cpu, self.cpu_of).max(share(self.memory, self.memory_of))
    }
}

impl PoolView {
    fn of(
        pool: &Pool,
        now: Timestamp,
        nodes: &[NodeView],
        allowances: &[(DisruptionReason, BTreeMap<String, Allowance>)],
    ) -> Self {
        let own = || nodes.iter().filter(|node| node.pool.as_deref() == Some(&*pool.name));
        let rules = &pool.disruption;
        let allowances = allowances.iter().filter_map(|(reason, pools)| {
            pools.get(&pool.name).map(|allowance| AllowanceView::of(*reason, allowance))
        });
        let limits = pool.limits.iter();
        Self {
            name: pool.name.clone(),
            nodes: own().count(),
            price_per_hour: own().filter_map(|node| node.price_per_hour).sum(),
            fill: own().fold(Fill::default(), |sum, node| sum.plus(node.fill)),
            policy: rules.policy.as_str(),
            consolidate_after: rules.consolidate_after.as_str().to_owned(),
            replicas: pool.static_pool.map(|it| it.replicas),
            utilization_threshold: rules.controls.utilization_threshold.to_string(),
            price_improvement_factor: rules.controls.price_improvement_factor.to_string(),
            savings_threshold: rules.controls.savings_threshold.to_string(),
            grace_period: match rules.controls.grace_period {
                GracePeriod::Off => "off".to_owned(),
                GracePeriod::For(length) => format!("{}s", length.as_secs()),
            },
            idle: pool.idle.as_ref().map(ToString::to_string),
            limits: limits.map(|(name, amount)| (name.to_owned(), amount.to_string())).collect(),
            budgets: rules.budgets.iter().map(|one| BudgetView::of(one, now)).collect(),
            allowances: allowances.collect(),
        }
    }
}

impl BudgetView {
    fn of(budget: &kerf_api::Budget, now: Timestamp) -> Self {
        let is_active = budgets::is_active(budget, now);
        let reasons = budget.reasons.as_ref();
        Self {
            nodes: budget.nodes.clone(),
            reasons: reasons.map(|list| list.iter().map(|reason| reason.as_str()).collect()),
            schedule: budget.schedule.clone(),
            duration: budget.duration.as_ref().map(|it| it.as_str().to_owned()),
            active: is_active == Ok(true),
            error: is_active.err().map(|error| error.to_string()),
        }
    }
}

impl AllowanceView {
    fn of(reason: DisruptionReason, allowance: &Allowance) -> Self {
        Self {
            reason: reason.as_str(),
            allowed: Some(allowance.allowed).filter(|it| *it < Allowance::UNLIMITED),
            disrupting: allowance.disrupting,
        }
    }
}

/// Instance types by pool and name. A pool of AWS has hundreds, and a cluster thousands of nodes.
struct Prices<'s>(BTreeMap<&'s str, HashMap<&'s str, &'s InstanceType>>);

impl<'s> Prices<'s> {
    fn of(snapshot: &'s Snapshot) -> Self {
        let types = |pool: &'s Pool| pool.instance_types.iter().map(|it| (it.name(), &**it));
        let pools = snapshot.pools.values();
        Self(pools.map(|pool| (pool.name.as_str(), types(pool).collect())).collect())
    }

    fn per_hour(&self, node: &Node) -> Option<Price> {
        let label = |key: &str| node.labels.get(key);
        let types = self.0.get(node.pool.as_deref()?)?;
        let known = types.get(label(INSTANCE_TYPE)?.as_str())?;
        known.offering_price(label(ZONE)?, label(CAPACITY_TYPE)?)
    }
}

impl NodeView {
    /// Without its pods.
    fn of(node: &Node, look: &Look, prices: &Prices<'_>) -> Self {
        let label = |key: &str| node.labels.get(key).cloned();
        Self {
            name: node.name.clone(),
            pool: node.pool.clone(),
            state: State::of(&look.snapshot, node),
            instance_type: label(INSTANCE_TYPE),
            zone: label(ZONE),
            capacity_type: label(CAPACITY_TYPE),
            price_per_hour: prices.per_hour(node),
            created: node.disruption.created,
            fill: Fill::of(node),
            pod_count: node.pods.len(),
            pods: Vec::new(),
            refusal: look.refusals.nodes.get(&node.name).map(NodeRefusalView::of),
        }
    }
}

impl State {
    fn of(snapshot: &Snapshot, node: &Node) -> Self {
        if node.claim.is_none() {
            Self::NotManaged
        } else if node.deleting || snapshot.is_in_queue(node) {
            Self::Going
        } else if !node.exists || !node.initialized {
            Self::Coming
        } else if node.disruption.ready {
            Self::Ready
        } else {
            Self::NotReady
        }
    }
}

impl PodView {
    fn of(pod: &Pod) -> Self {
        Self {
            name: pod.key(),
            cpu: pod.requests.amount(CPU).millis(),
            memory: pod.requests.amount(MEMORY).units(),
            stays: !pod.disruption.reschedulable,
        }
    }
}

impl NodeRefusalView {
    fn of(refusal: &NodeRefusal) -> Self {
        Self {
            reason: refusal.reason,
            message: refusal.message.clone(),
            method: refusal.method.map(kerf_disruption::Method::title),
            at: refusal.at,
        }
    }
}

impl LogView {
    fn of(entry: &Entry) -> Self {
        Self {
            at: entry.first,
            warning: entry.severity == Severity::Warning,
            reason: entry.reason.clone(),
            kind: entry.about.kind.clone(),
            namespace: entry.about.namespace.clone(),
            name: entry.about.name.clone(),
            message: entry.message.clone(),
            count: entry.count,
        }
    }
}

/// Names as many pods as a page can show, the same number on each node where there are too many.
fn with_pods(nodes: Vec<(NodeView, &Arc<Node>)>) -> Vec<NodeView> {
    let total: usize = nodes.iter().map(|(view, _)| view.pod_count).sum();
    let each = if total > MOST_PODS { MOST_PODS / nodes.len().max(1) } else { usize::MAX };
    let named = nodes.into_iter().map(|(view, node)| {
        let mut pods: Vec<_> = node.pods.iter().map(|pod| PodView::of(pod)).collect();
        pods.sort_by(|a, b| (Reverse(a.cpu), &a.name).cmp(&(Reverse(b.cpu), &b.name)));
        pods.truncate(each);
        NodeView { pods, ..view }
    });
    named.collect()
}

/// The most frequent first.
fn refusals(look: &Look) -> Vec<RefusalView> {
    let nodes =
        look.refusals.nodes.iter().map(|(node, why)| (("nodes", why.reason), node, &why.message));
    let pods = look.refusals.pods.iter().map(|why| (("pods", why.reason), &why.pod, &why.message));
    let mut found: BTreeMap<(&'static str, &'static str), RefusalView> = BTreeMap::new();
    for ((of, reason), name, message) in nodes.chain(pods) {
        let one = found.entry((of, reason)).or_insert_with(|| RefusalView {
            of,
            reason,
            count: 0,
            names: Vec::new(),
            message: message.clone(),
        });
        one.count += 1;
        if one.names.len() < EXAMPLES {
            one.names.push(name.clone());
        }
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|one| (Reverse(one.count), one.of, one.reason));
    found
}

#[cfg(test)]
pub(crate) mod tests;
