//! The state at the moment of a scrape: gauges that are read from the index and stored nowhere. So they are never late,
//! and none remains of an object that is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use jiff::Timestamp;
use kerf_api::{NodeClaim, NodePool, labels};
use kerf_model::{InstanceType, Price, Resources};
use kube::ResourceExt;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use crate::{context::Context, provisioning, transitions::Labels};

mod conditions;
mod nodes;
mod pods;

use conditions::ConditionGauge;
use nodes::{NodeGauge, Nodes};
use pods::PodGauge;

/// What the instance types of each pool cost, as their provider last said.
#[derive(Debug, Default)]
pub(crate) struct Prices(Mutex<BTreeMap<String, Vec<Arc<InstanceType>>>>);

impl Prices {
    pub(crate) fn remember(&self, pool: &str, types: &[Arc<InstanceType>]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(pool.to_owned(), types.to_vec());
    }

    /// Pools come and go; what is known of those that are gone is of no use.
    pub(crate) fn forget_all_but<'a>(&self, pools: impl Iterator<Item = &'a NodePool>) {
        let names: BTreeSet<String> = pools.map(ResourceExt::name_any).collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| names.contains(name));
    }

    /// What a claim costs by its labels; nothing if its provider does not know.
    pub(crate) fn of(&self, claim: &NodeClaim) -> Option<Price> {
        let label = |key: &str| claim.labels().get(key).map(String::as_str);
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = label(labels::INSTANCE_TYPE)?;
        let types = known.get(label(labels::NODE_POOL)?)?;
        let of_claim = types.iter().find(|one| one.name() == name)?;
        of_claim.offering_price(label(labels::ZONE)?, label(labels::CAPACITY_TYPE)?)
    }

    /// Every instance type that some pool may have, by name.
    fn types(&self) -> BTreeMap<String, Arc<InstanceType>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().flatten().map(|one| (one.name().to_owned(), Arc::clone(one))).collect()
    }
}

/// Reads the gauges. Holds the operator only weakly: a registry outlives it.
pub(crate) struct State(pub(crate) Weak<Context>);

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(context) = self.0.upgrade() else { return Ok(()) };
        let now = context.now();
        let nodes = Nodes::of(&context);
        let mut gauges = gauges(&context, now);
        nodes.utilization(&mut gauges);
        for (name, (help, few)) in gauges.0 {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            let many = many(&context, &nodes, name, now);
            for (labels, value) in few.into_iter().chain(many.into_iter().flatten()) {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// The series of a gauge that has one for every pod, node or claim. They are made one by one, and the index is read in pieces
/// in between: with 50,000 pods, all at once would be hundreds of megabytes, and the watches would wait for it.
fn many<'a>(
    context: &'a Context,
    nodes: &'a Nodes,
    name: &str,
    now: Timestamp,
) -> Option<Box<dyn Iterator<Item = (Labels, f64)> + 'a>> {
    if let Some(gauge) = PodGauge::named(name) {
        return context.settings.pod_metrics.then(|| pods::series(context, gauge, now));
    }
    if let Some(gauge) = NodeGauge::named(name) {
        return Some(nodes.series(gauge, now));
    }
    ConditionGauge::named(name).map(|gauge| conditions::series(context, gauge, now))
}

/// By name: what it means, and a value for each set of labels.
#[derive(Debug, Default)]
struct Gauges(BTreeMap<&'static str, (&'static str, Series)>);

type Series = Vec<(Labels, f64)>;

impl Gauges {
    /// A gauge without a value is there all the same: who looks for its name finds it.
    fn declare(&mut self, all: &[(&'static str, &'static str, &'static str)]) {
        for (name, help, _) in all {
            self.0.insert(name, (help, Vec::new()));
        }
    }

    fn put(&mut self, name: &'static str, labels: Labels, value: f64) {
        self.0.entry(name).or_default().1.push((labels, value));
    }
}

const POD: &str = "name namespace";
const UNBOUND: &str = "name namespace dynamic_resources";
const NODE: &str = "node_name nodepool managed phase arch capacity_type instance_type os region windows_build zone";
const NODE_RESOURCE: &str = "node_name nodepool managed phase arch capacity_type instance_type os region windows_build zone resource_type";

/// Every gauge of this file: its name, what it means, and its labels. Those of the provider come on top: its own well-known labels
/// on nodes, and that of the NodeClass on conditions.
const DECLARED: [(&str, &str, &str); 41] = [
    ("karpenter_nodes_allocatable", "Resources that nodes have for pods", NODE_RESOURCE),
    ("karpenter_nodes_total_pod_requests", "Requests of the pods on nodes", NODE_RESOURCE),
    ("karpenter_nodes_total_pod_limits", "Limits of the pods on nodes", NODE_RESOURCE),
    (
        "karpenter_nodes_total_daemon_requests",
        "Requests of the pods of DaemonSets on nodes",
        NODE_RESOURCE,
    ),
    (
        "karpenter_nodes_total_daemon_limits",
        "Limits of the pods of DaemonSets on nodes",
        NODE_RESOURCE,
    ),
    (
        "karpenter_nodes_system_overhead",
        "Capacity of nodes that is not allocatable to pods",
        NODE_RESOURCE,
    ),
    ("karpenter_nodes_current_lifetime_seconds", "Age of nodes", NODE),
    (
        "karpenter_cluster_utilization_percent",
        "Requests of pods in percent of allocatable",
        "resource_type",
    ),
    ("karpenter_nodepools_limit", "Limits of NodePools", "nodepool resource_type"),
    ("karpenter_nodepools_usage", "Resources of the nodes of NodePools", "nodepool resource_type"),
    ("karpenter_nodepools_cost_total", "Price per hour of the nodes of NodePools", "nodepool"),
    ("karpenter_cluster_state_node_count", "Nodes in the cluster state", ""),
    ("karpenter_cluster_state_synced", "Whether every claim has its instance", ""),
    (
        "karpenter_cluster_state_unsynced_time_seconds",
        "Age of the oldest claim without an instance",
        "",
    ),
    (
        "karpenter_cluster_state_unreadable_objects",
        "Objects that cannot be read as a whole",
        "kind",
    ),
    (
        "karpenter_pods_state",
        "State of pods",
        "name namespace owner node scheduled nodepool zone arch capacity_type instance_type phase ready managed",
    ),
    ("karpenter_pods_unbound_time_seconds", "Age of pods that have no node", UNBOUND),
    ("karpenter_pods_unstarted_time_seconds", "Age of pods that do not run", POD),
    (
        "karpenter_pods_provisioning_unbound_time_seconds",
        "Time since a plan placed a pod that is not bound",
        UNBOUND,
    ),
    (
        "karpenter_pods_provisioning_unstarted_time_seconds",
        "Time since a plan placed a pod that does not run",
        POD,
    ),
    (
        "karpenter_pods_provisioning_scheduling_undecided_time_seconds",
        "Time for which pods have waited for a first decision",
        POD,
    ),
    (
        "karpenter_scheduler_unfinished_work_seconds",
        "Time that the plan under way has taken",
        "controller scheduling_id",
    ),
    (
        "karpenter_cloudprovider_instance_type_offering_price_estimate",
        "Price per hour of an offering",
        "instance_type capacity_type zone",
    ),
    (
        "karpenter_cloudprovider_instance_type_offering_available",
        "Whether an offering is available",
        "instance_type capacity_type zone",
    ),
    ("karpenter_cloudprovider_instance_type_cpu_cores", "CPUs of instance types", "instance_type"),
    (
        "karpenter_cloudprovider_instance_type_memory_bytes",
        "Memory of instance types",
        "instance_type",
    ),
    (
        "operator_nodeclaim_status_condition_count",
        "Conditions of NodeClaims",
        "name namespace karpenter_sh_nodepool type status reason",
    ),
    (
        "operator_nodeclaim_status_condition_current_status_seconds",
        "Age of conditions",
        "name namespace karpenter_sh_nodepool type status reason",
    ),
    (
        "operator_nodeclaim_termination_current_time_seconds",
        "Time since deletion",
        "name namespace karpenter_sh_nodepool",
    ),
    (
        "operator_nodepool_status_condition_count",
        "Conditions of NodePools",
        "name namespace type status reason",
    ),
    (
        "operator_nodepool_status_condition_current_status_seconds",
        "Age of conditions",
        "name namespace type status reason",
    ),
    ("operator_nodepool_termination_current_time_seconds", "Time since deletion", "name namespace"),
    (
        "operator_node_status_condition_count",
        "Conditions of Nodes",
        "name namespace karpenter_sh_nodepool karpenter_sh_initialized type status reason",
    ),
    (
        "operator_node_status_condition_current_status_seconds",
        "Age of conditions",
        "name namespace karpenter_sh_nodepool karpenter_sh_initialized type status reason",
    ),
    (
        "operator_node_termination_current_time_seconds",
        "Time since deletion",
        "name namespace karpenter_sh_nodepool karpenter_sh_initialized",
    ),
    (
        "operator_capacitybuffer_status_condition_count",
        "Conditions of CapacityBuffers",
        "name namespace type status reason",
    ),
    (
        "operator_capacitybuffer_status_condition_current_status_seconds",
        "Age of conditions",
        "name namespace type status reason",
    ),
    (
        "operator_capacitybuffer_termination_current_time_seconds",
        "Time since deletion",
        "name namespace",
    ),
    (
        "operator_status_condition_count",
        "Conditions of NodeClaims and NodePools",
        "name namespace group kind type status reason",
    ),
    (
        "operator_status_condition_current_status_seconds",
        "Age of conditions",
        "name namespace group kind type status reason",
    ),
    (
        "operator_termination_current_time_seconds",
        "Time since deletion",
        "name namespace group kind",
    ),
];

/// The gauges without a cluster, for documentation.
#[derive(Debug)]
pub(super) struct Examples;

impl Collector for Examples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, labels) in DECLARED {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            let labels: Vec<_> = labels.split_whitespace().map(|label| (label, "")).collect();
            ConstGauge::new(0.0).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) fn names() -> Vec<&'static str> {
    DECLARED.map(|(name, _, _)| name).to_vec()
}

/// The gauges that have a value or a few, and the names of all the others.
fn gauges(context: &Context, now: Timestamp) -> Gauges {
    let mut gauges = Gauges::default();
    gauges.declare(&DECLARED);
    let synced = provisioning::is_synced(context);
    gauges.put("karpenter_cluster_state_synced", Vec::new(), f64::from(u8::from(synced)));
    let (machines, unreadable, claims, all_pools) = {
        let cluster = context.index.read();
        let claims: Vec<Arc<NodeClaim>> = cluster.claims().values().cloned().collect();
        let pools: Vec<Arc<NodePool>> = cluster.pools().values().cloned().collect();
        (cluster.state_nodes().count(), cluster.unreadable(), claims, pools)
    };
    gauges.put("karpenter_cluster_state_node_count", Vec::new(), machines as f64);
    for (kind, count) in unreadable.into_iter().filter(|(_, count)| *count > 0) {
        let labels = vec![("kind".into(), kind.into())];
        gauges.put("karpenter_cluster_state_unreadable_objects", labels, count as f64);
    }
    pools(context, &claims, &all_pools, &mut gauges);
    if let Some((labels, since)) = context.metrics.scheduling.under_way() {
        gauges.put("karpenter_scheduler_unfinished_work_seconds", labels, seconds(since, now));
    }
    instance_types(context, &mut gauges);
    let unlaunched = claims.iter().filter(|claim| !synced && claim.is_unlaunched());
    let ages = unlaunched.map(|claim| age(claim.metadata.creation_timestamp.as_ref(), now));
    let unsynced = ages.fold(0.0, f64::max);
    gauges.put("karpenter_cluster_state_unsynced_time_seconds", Vec::new(), unsynced);
    gauges
}

fn pools(
    context: &Context,
    claims: &[Arc<NodeClaim>],
    pools: &[Arc<NodePool>],
    gauges: &mut Gauges,
) {
    let mut costs: BTreeMap<String, f64> = BTreeMap::new();
    for claim in claims {
        if let Some(pool) = claim.labels().get(labels::NODE_POOL) {
            let price = context.prices.of(claim).map_or(0.0, Price::as_f64);
            *costs.entry(pool.clone()).or_default() += price;
        }
    }
    for pool in pools {
        let name = pool.name_any();
        let used = pool.status.as_ref().map(|status| status.resources.clone()).unwrap_or_default();
        for (gauge, amounts) in [
            ("karpenter_nodepools_limit", Resources::from_api(&pool.spec.limits)),
            ("karpenter_nodepools_usage", Resources::from_api(&used)),
        ] {
            for (resource, amount) in amounts.unwrap_or_default().iter() {
                let labels = with(&[], "resource_type", &snake_case(resource));
                gauges.put(gauge, with(&labels, "nodepool", &name), amount.as_f64());
            }
        }
        let cost = costs.get(&name).copied().unwrap_or_default();
        gauges.put("karpenter_nodepools_cost_total", with(&[], "nodepool", &name), cost);
    }
}

fn instance_types(context: &Context, gauges: &mut Gauges) {
    for (name, one) in context.prices.types() {
        let own = with(&[], "instance_type", &name);
        for (gauge, resource) in [
            ("karpenter_cloudprovider_instance_type_cpu_cores", "cpu"),
            ("karpenter_cloudprovider_instance_type_memory_bytes", "memory"),
        ] {
            gauges.put(gauge, own.clone(), one.capacity().amount(resource).as_f64());
        }
        for offering in one.offerings() {
            let value = |key: &str| offering.requirements.get(key).and_then(|it| it.only_value());
            let mut labels = own.clone();
            for (label, key) in [("capacity_type", labels::CAPACITY_TYPE), ("zone", labels::ZONE)] {
                labels.push((label.to_owned(), value(key).unwrap_or_default().to_owned()));
            }
            let available = f64::from(u8::from(offering.available));
            let name = "karpenter_cloudprovider_instance_type_offering_available";
            gauges.put(name, labels.clone(), available);
            let name = "karpenter_cloudprovider_instance_type_offering_price_estimate";
            gauges.put(name, labels, offering.price.as_f64());
        }
    }
}

fn with(labels: &[(String, String)], key: &str, value: &str) -> Labels {
    let mut all = labels.to_vec();
    all.push((key.to_owned(), value.to_owned()));
    all
}

fn snake_case(resource: &str) -> String {
    resource.to_lowercase().replace('-', "_")
}

fn age(
    created: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    now: Timestamp,
) -> f64 {
    created.map_or(0.0, |created| seconds(created.0, now))
}

fn seconds(since: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(since).as_secs_f64().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::{Offering, Overhead, Requirement, Requirements};

    #[test]
    fn a_claim_costs_what_its_provider_last_said() {
        let types = |price: &str| {
            let offering = Offering {
                requirements: Requirements::new([
                    Requirement::is_in(labels::ZONE, ["a"]),
                    Requirement::is_in(labels::CAPACITY_TYPE, ["spot"]),
                ]),
                price: price.parse().unwrap(),
                // What runs is paid for, whether more of it can be had or not.
                available: false,
                ..Offering::default()
            };
            let (none, nothing) = (Requirements::default(), Resources::new());
            [Arc::new(InstanceType::new("t", none, vec![offering], nothing, Overhead::default()))]
        };
        let prices = Prices::default();
        let check = |pool: &str, instance_type: &str, zone: &str, expected: Option<&str>| {
            let mut claim = NodeClaim::default();
            for (key, value) in [
                (labels::NODE_POOL, pool),
                (labels::INSTANCE_TYPE, instance_type),
                (labels::ZONE, zone),
                (labels::CAPACITY_TYPE, "spot"),
            ] {
                claim.labels_mut().insert(key.into(), value.into());
            }
            let expected = expected.map(|price| price.parse().unwrap());
            assert_eq!(prices.of(&claim), expected, "{pool} {instance_type} {zone}");
        };
        check("p", "t", "a", None);
        prices.remember("p", &types("0.3"));
        check("p", "t", "a", Some("0.3"));
        check("p", "t", "b", None);
        check("p", "u", "a", None);
        check("q", "t", "a", None);
        prices.remember("q", &types("0.5"));
        prices.remember("p", &types("0.4"));
        check("p", "t", "a", Some("0.4"));
        check("q", "t", "a", Some("0.5"));

        let mut left = NodePool::default();
        left.metadata.name = Some("q".into());
        prices.forget_all_but([&left].into_iter());
        check("p", "t", "a", None);
        check("q", "t", "a", Some("0.5"));
        assert_eq!(prices.types().len(), 1, "another pool still has the type");
        prices.forget_all_but(std::iter::empty());
        check("q", "t", "a", None);
        assert!(prices.types().is_empty());
    }
}
