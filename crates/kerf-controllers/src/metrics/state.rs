//! How things stand at the moment of a scrape: gauges that are read from the index and kept nowhere, so that they can be
//! neither late nor left behind by an object that is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{NodeClaim, NodePool, labels};
use kerf_cluster::{Cluster, machine::Machine, pods};
use kerf_model::{InstanceType, Price, Resources};
use kerf_provider::NodeClassKind;
use kube::{Resource, ResourceExt};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
};

use crate::{
    context::Context,
    provisioning,
    transitions::{Labels, Observed, of_any},
};

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
        for (name, (help, series)) in gauges(&context).0 {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in series {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
            let Some(of_pod) = PodGauge::named(name).filter(|_| context.settings.pod_metrics)
            else {
                continue;
            };
            for (labels, value) in pods_in_pieces(&context, of_pod) {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// How many pods are looked at before the index is left to the watches again, and how many are held as text at a time.
const PODS_AT_A_TIME: usize = 256;

/// A gauge of every pod, piece by piece: with 50,000 pods, all at once would be a hundred megabytes, and the watches would
/// wait for it.
fn pods_in_pieces(context: &Context, gauge: PodGauge) -> impl Iterator<Item = (Labels, f64)> {
    let now = context.now();
    let pods: Vec<Arc<Pod>> = context.index.read().pods().values().cloned().collect();
    let pieces = pods.len().div_ceil(PODS_AT_A_TIME);
    (0..pieces).flat_map(move |piece| {
        let from = piece * PODS_AT_A_TIME;
        let to = pods.len().min(from + PODS_AT_A_TIME);
        let cluster = context.index.read();
        let series = pods[from..to].iter().filter_map(|pod| gauge.of(&cluster, pod, now));
        series.collect::<Series>()
    })
}

/// The gauges that every pod may have.
#[derive(Clone, Copy, Debug)]
enum PodGauge {
    State,
    Unstarted,
    Unbound,
}

impl PodGauge {
    fn named(name: &str) -> Option<Self> {
        match name {
            "karpenter_pods_state" => Some(Self::State),
            "karpenter_pods_unstarted_time_seconds" => Some(Self::Unstarted),
            "karpenter_pods_unbound_time_seconds" => Some(Self::Unbound),
            _ => None,
        }
    }

    fn of(self, cluster: &Cluster, pod: &Pod, now: Timestamp) -> Option<(Labels, f64)> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let waits = phase == Some("Pending");
        let is_bound = pods::node_name(pod).is_some_and(|name| !name.is_empty());
        let own = || {
            let own =
                [("name", pod.name_any()), ("namespace", pod.namespace().unwrap_or_default())];
            own.map(|(key, value)| (key.to_owned(), value)).to_vec()
        };
        let age = || age(pod.metadata.creation_timestamp.as_ref(), now);
        match self {
            Self::State => Some((state_of(cluster, pod, own()), 1.0)),
            Self::Unstarted => waits.then(|| (own(), age())),
            Self::Unbound => (waits && !is_bound).then(|| (own(), age())),
        }
    }
}

/// By name: what it means, and a value for each set of labels.
#[derive(Debug, Default)]
struct Gauges(BTreeMap<&'static str, (&'static str, Series)>);

type Series = Vec<(Labels, f64)>;

impl Gauges {
    /// A gauge without a value is there all the same: who looks for its name finds it.
    fn declare(&mut self, all: &[(&'static str, &'static str)]) {
        for (name, help) in all {
            self.0.insert(name, (help, Vec::new()));
        }
    }

    fn put(&mut self, name: &'static str, labels: Labels, value: f64) {
        self.0.entry(name).or_default().1.push((labels, value));
    }
}

/// Every gauge of this file.
const DECLARED: [(&str, &str); 38] = [
    ("karpenter_nodes_allocatable", "Resources that nodes have for pods"),
    ("karpenter_nodes_total_pod_requests", "Requests of the pods on nodes"),
    ("karpenter_nodes_total_pod_limits", "Limits of the pods on nodes"),
    ("karpenter_nodes_total_daemon_requests", "Requests of the pods of DaemonSets on nodes"),
    ("karpenter_nodes_total_daemon_limits", "Limits of the pods of DaemonSets on nodes"),
    ("karpenter_nodes_system_overhead", "Capacity that nodes keep for themselves"),
    ("karpenter_nodes_current_lifetime_seconds", "Age of nodes"),
    ("karpenter_cluster_utilization_percent", "Requests of pods in percent of allocatable"),
    ("karpenter_nodepools_limit", "Limits of NodePools"),
    ("karpenter_nodepools_usage", "What the nodes of NodePools amount to"),
    ("karpenter_nodepools_cost_total", "Price per hour of the nodes of NodePools"),
    ("karpenter_cluster_state_node_count", "Machines that the operator knows"),
    ("karpenter_cluster_state_synced", "Whether every claim has its instance"),
    ("karpenter_cluster_state_unsynced_time_seconds", "Age of the oldest claim without one"),
    ("karpenter_cluster_state_unreadable_objects", "Objects that cannot be read as a whole"),
    ("karpenter_pods_state", "Pods and where they are"),
    ("karpenter_pods_unbound_time_seconds", "Age of pods that have no node"),
    ("karpenter_pods_unstarted_time_seconds", "Age of pods that do not run"),
    ("karpenter_pods_provisioning_unbound_time_seconds", "Time since a place was found"),
    ("karpenter_pods_provisioning_unstarted_time_seconds", "Time since a place was found"),
    (
        "karpenter_pods_provisioning_scheduling_undecided_time_seconds",
        "Time for which pods have waited for a first decision",
    ),
    ("karpenter_scheduler_unfinished_work_seconds", "Time that the plan under way has taken"),
    ("karpenter_cloudprovider_instance_type_offering_price_estimate", "Price per hour"),
    ("karpenter_cloudprovider_instance_type_offering_available", "Whether it can be had"),
    ("karpenter_cloudprovider_instance_type_cpu_cores", "CPUs of instance types"),
    ("karpenter_cloudprovider_instance_type_memory_bytes", "Memory of instance types"),
    ("operator_nodeclaim_status_condition_count", "Conditions of NodeClaims"),
    ("operator_nodeclaim_status_condition_current_status_seconds", "Age of conditions"),
    ("operator_nodeclaim_termination_current_time_seconds", "Time since deletion"),
    ("operator_nodepool_status_condition_count", "Conditions of NodePools"),
    ("operator_nodepool_status_condition_current_status_seconds", "Age of conditions"),
    ("operator_nodepool_termination_current_time_seconds", "Time since deletion"),
    ("operator_node_status_condition_count", "Conditions of Nodes"),
    ("operator_node_status_condition_current_status_seconds", "Age of conditions"),
    ("operator_node_termination_current_time_seconds", "Time since deletion"),
    ("operator_status_condition_count", "Conditions of NodeClaims and NodePools"),
    ("operator_status_condition_current_status_seconds", "Age of conditions"),
    ("operator_termination_current_time_seconds", "Time since deletion"),
];

#[cfg(test)]
pub(super) fn names() -> Vec<&'static str> {
    DECLARED.map(|(name, _)| name).to_vec()
}

fn gauges(context: &Context) -> Gauges {
    let now = context.now();
    let mut gauges = Gauges::default();
    gauges.declare(&DECLARED);
    let synced = provisioning::is_synced(context);
    gauges.put("karpenter_cluster_state_synced", Vec::new(), f64::from(u8::from(synced)));
    let cluster = context.index.read();
    for (kind, count) in cluster.unreadable().into_iter().filter(|(_, count)| *count > 0) {
        let labels = vec![("kind".into(), kind.into())];
        gauges.put("karpenter_cluster_state_unreadable_objects", labels, count as f64);
    }
    machines(context, &cluster, now, &mut gauges);
    pools(context, &cluster, &mut gauges);
    if context.settings.pod_metrics {
        waiting_pods(context, now, &mut gauges);
    }
    instance_types(context, &mut gauges);
    let classes = context.provider.node_classes();
    let class_labels: Vec<String> = classes.iter().map(NodeClassKind::label).collect();
    let mut unsynced = 0.0_f64;
    for claim in cluster.claims().values() {
        if !synced && provisioning::is_unlaunched(claim) {
            unsynced = unsynced.max(age(claim.meta().creation_timestamp.as_ref(), now));
        }
        conditions_of("nodeclaim", &**claim, &class_labels, now, &mut gauges);
    }
    gauges.put("karpenter_cluster_state_unsynced_time_seconds", Vec::new(), unsynced);
    for pool in cluster.pools().values() {
        conditions_of("nodepool", &**pool, &class_labels, now, &mut gauges);
    }
    for node in cluster.nodes().values() {
        conditions_of("node", &**node, &class_labels, now, &mut gauges);
    }
    gauges
}

fn machines(context: &Context, cluster: &Cluster, now: Timestamp, gauges: &mut Gauges) {
    let known = context.known_labels();
    let (mut allocatable, mut requested) = (Resources::new(), Resources::new());
    let mut count = 0_u32;
    for machine in cluster.machines() {
        count += 1;
        let (Some(node), Ok(has), Ok(capacity)) =
            (machine.node, machine.allocatable(), machine.capacity())
        else {
            continue;
        };
        let node_labels = node_labels(&known.well_known, &machine, node);
        let on_node = cluster.pods_on(node.metadata.name.as_deref().unwrap_or_default());
        let usage = Usage::of(on_node.filter(|pod| !pods::is_terminal(pod)));
        for (name, amounts) in [
            ("karpenter_nodes_allocatable", &has),
            ("karpenter_nodes_total_pod_requests", &usage.requests),
            ("karpenter_nodes_total_pod_limits", &usage.limits),
            ("karpenter_nodes_total_daemon_requests", &usage.daemon_requests),
            ("karpenter_nodes_total_daemon_limits", &usage.daemon_limits),
            ("karpenter_nodes_system_overhead", &capacity.minus(&has)),
        ] {
            for (resource, amount) in amounts.iter() {
                let labels = with(&node_labels, "resource_type", &snake_case(resource));
                gauges.put(name, labels, amount.as_f64());
            }
        }
        let age = age(node.metadata.creation_timestamp.as_ref(), now);
        gauges.put("karpenter_nodes_current_lifetime_seconds", node_labels, age);
        allocatable.add(&has);
        requested.add(&usage.requests);
    }
    gauges.put("karpenter_cluster_state_node_count", Vec::new(), f64::from(count));
    for (resource, total) in allocatable.iter().filter(|(_, total)| !total.is_zero()) {
        let percent = 100.0 * requested.amount(resource).as_f64() / total.as_f64();
        let labels = with(&[], "resource_type", &snake_case(resource));
        gauges.put("karpenter_cluster_utilization_percent", labels, percent);
    }
}

fn pools(context: &Context, cluster: &Cluster, gauges: &mut Gauges) {
    let mut costs: BTreeMap<String, f64> = BTreeMap::new();
    for claim in cluster.claims().values() {
        if let Some(pool) = claim.labels().get(labels::NODE_POOL) {
            let price = context.prices.of(claim).map_or(0.0, Price::as_f64);
            *costs.entry(pool.clone()).or_default() += price;
        }
    }
    for pool in cluster.pools().values() {
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

/// Where a pod is, and what it is doing there.
fn state_of(cluster: &Cluster, pod: &Pod, own: Labels) -> Labels {
    let node_name = pods::node_name(pod).unwrap_or_default();
    let node = cluster.nodes().named(node_name);
    let label = |key: &str| node.and_then(|node| node.labels().get(key)).cloned();
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
    let managed = label(labels::NODE_POOL).is_some();
    let mut all = own;
    all.extend(
        [
            ("owner", owner(pod)),
            ("node", node_name.to_owned()),
            ("scheduled", (!node_name.is_empty()).to_string()),
            ("nodepool", label(labels::NODE_POOL).unwrap_or_default()),
            ("zone", label(labels::ZONE).unwrap_or_default()),
            ("arch", label(labels::ARCH).unwrap_or_default()),
            ("capacity_type", label(labels::CAPACITY_TYPE).unwrap_or_default()),
            ("instance_type", label(labels::INSTANCE_TYPE).unwrap_or_default()),
            ("phase", phase),
            ("ready", ready.map(|ready| ready.status.to_lowercase()).unwrap_or_default()),
            ("managed", managed.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    all
}

/// How long pods have waited for what planning does for them.
fn waiting_pods(context: &Context, now: Timestamp, gauges: &mut Gauges) {
    for waiting in context.metrics.pods.waiting() {
        let mut own = with(&[], "name", &waiting.pod.name);
        own.push(("namespace".into(), waiting.pod.namespace.clone()));
        if let Some(since) = waiting.undecided_since {
            let name = "karpenter_pods_provisioning_scheduling_undecided_time_seconds";
            gauges.put(name, own.clone(), seconds(since, now));
        }
        let Some(since) = waiting.placed_at.map(|since| seconds(since, now)) else { continue };
        gauges.put("karpenter_pods_provisioning_unstarted_time_seconds", own.clone(), since);
        if !waiting.bound {
            gauges.put("karpenter_pods_provisioning_unbound_time_seconds", own, since);
        }
    }
    if let Some((labels, since)) = context.metrics.scheduling.under_way() {
        gauges.put("karpenter_scheduler_unfinished_work_seconds", labels, seconds(since, now));
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

fn conditions_of<K: Observed>(
    kind: &str,
    object: &K,
    class_labels: &[String],
    now: Timestamp,
    gauges: &mut Gauges,
) {
    let (count, current, terminating, is_ours) = match kind {
        "nodeclaim" => (
            "operator_nodeclaim_status_condition_count",
            "operator_nodeclaim_status_condition_current_status_seconds",
            "operator_nodeclaim_termination_current_time_seconds",
            true,
        ),
        "nodepool" => (
            "operator_nodepool_status_condition_count",
            "operator_nodepool_status_condition_current_status_seconds",
            "operator_nodepool_termination_current_time_seconds",
            true,
        ),
        _ => (
            "operator_node_status_condition_count",
            "operator_node_status_condition_current_status_seconds",
            "operator_node_termination_current_time_seconds",
            false,
        ),
    };
    let mut own = with(&[], "namespace", "");
    own.push(("name".into(), object.name_any()));
    let mut of_any_kind = own.clone();
    of_any_kind.extend(of_any::<K>());
    own.extend(K::labels_of(object, class_labels));
    for one in K::said(object) {
        let saying = |labels: &Labels| {
            let mut labels = labels.clone();
            for (key, value) in [("type", one.kind), ("status", one.status), ("reason", one.reason)]
            {
                labels.push((key.to_owned(), value.to_owned()));
            }
            labels
        };
        let since = one.since.map_or(0.0, |since| seconds(since, now));
        gauges.put(count, saying(&own), 1.0);
        gauges.put(current, saying(&own), since);
        if is_ours {
            let labels = saying(&of_any_kind);
            gauges.put("operator_status_condition_count", labels.clone(), 1.0);
            gauges.put("operator_status_condition_current_status_seconds", labels, since);
        }
    }
    if let Some(deleted) = &object.meta().deletion_timestamp {
        let since = seconds(deleted.0, now);
        gauges.put(terminating, own, since);
        if is_ours {
            gauges.put("operator_termination_current_time_seconds", of_any_kind, since);
        }
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
            let Some(spec) = &pod.spec else { continue };
            let requests = kerf_model::pod::requests(spec, pod.status.as_ref()).unwrap_or_default();
            let limits = limits(spec);
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

fn limits(spec: &k8s_openapi::api::core::v1::PodSpec) -> Resources {
    let mut total = Resources::new();
    for container in &spec.containers {
        let limits = container.resources.as_ref().and_then(|it| it.limits.as_ref());
        if let Some(Ok(limits)) = limits.map(Resources::from_api) {
            total.add(&limits);
        }
    }
    total
}

fn node_labels(
    well_known: &std::collections::BTreeSet<String>,
    machine: &Machine<'_>,
    node: &Node,
) -> Labels {
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
    all.insert("managed".into(), machine.claim.is_some().to_string());
    all.into_iter().collect()
}

fn owner(pod: &Pod) -> String {
    let Some(owner) = pod.owner_references().first() else { return String::new() };
    let namespace = pod.namespace().unwrap_or_default();
    let kind = owner.kind.to_lowercase();
    format!("/apis/{}/namespaces/{namespace}/{kind}s/{}", owner.api_version, owner.name)
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
    }
}
