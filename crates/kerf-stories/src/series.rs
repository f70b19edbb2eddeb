//! How many series `/metrics` has, and how many Karpenter has for the same objects.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use kerf_api::{NodeClaim, NodePool, ObjectExt, conditions::Conditioned};

use crate::pods;

/// One family of the text: its samples, and the bytes they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub series: usize,
    pub bytes: usize,
}

/// Counts the samples of each family.
pub fn sizes(text: &str) -> BTreeMap<String, Size> {
    let mut sizes = BTreeMap::<String, Size>::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some((name, _)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            name.clone_into(&mut family);
        }
        let size = sizes.entry(family.clone()).or_default();
        if !line.starts_with('#') {
            size.series += 1;
            size.bytes += line.len() + 1;
        }
    }
    sizes
}

/// What Karpenter's series are counted from.
#[derive(Debug, Default)]
pub struct Objects {
    pub nodes: Vec<Node>,
    pub claims: Vec<NodeClaim>,
    pub pools: Vec<NodePool>,
    pub pods: Vec<Pod>,
}

type Amounts<'a> = Option<&'a BTreeMap<String, Quantity>>;

impl Objects {
    /// The series that Karpenter has at most, for every family whose size depends on the number of pods or nodes.
    ///
    /// | family | series |
    /// |---|---|
    /// | `karpenter_pods_state` | one a pod |
    /// | gauges of pods that wait | one a pod that has no node, or does not run |
    /// | `karpenter_nodes_*` | one a node and resource: of its own, or of its pods |
    /// | `operator_<kind>_status_condition_*` | one an object and condition |
    /// | `operator_status_condition_*` | the same for NodeClaims and NodePools together |
    /// | `operator_*termination_current_time_seconds` | one an object that is being deleted |
    pub fn at_most(&self) -> BTreeMap<&'static str, usize> {
        let on = self.by_node();
        let per_node = |count: &dyn Fn(&Node, &[&Pod]) -> usize| -> usize {
            let of = |node: &Node| {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                count(node, on.get(name).map(Vec::as_slice).unwrap_or_default())
            };
            self.nodes.iter().map(of).sum()
        };
        let requests = |it: &ResourceRequirements| it.requests.clone();
        let limits = |it: &ResourceRequirements| it.limits.clone();
        let waiting = self.pods.iter().filter(|pod| !has_started(pod)).count();
        let unbound = self.pods.iter().filter(|pod| !pods::is_scheduled(pod)).count();
        let claims = self.claims.iter().map(|claim| claim.conditions().len()).sum::<usize>();
        let pools = self.pools.iter().map(|pool| pool.conditions().len()).sum::<usize>();
        let nodes = per_node(&|node, _| {
            node.status.as_ref().and_then(|it| it.conditions.as_ref()).map_or(0, Vec::len)
        });
        let leaving = |deleted: &mut dyn Iterator<Item = bool>| deleted.filter(|it| *it).count();
        let leaving_claims = leaving(&mut self.claims.iter().map(ObjectExt::is_deleting));
        let leaving_pools = leaving(&mut self.pools.iter().map(ObjectExt::is_deleting));
        let leaving_nodes = leaving(&mut self.nodes.iter().map(ObjectExt::is_deleting));
        BTreeMap::from([
            ("karpenter_pods_state", self.pods.len()),
            ("karpenter_pods_unstarted_time_seconds", waiting),
            ("karpenter_pods_unbound_time_seconds", unbound),
            ("karpenter_pods_provisioning_unstarted_time_seconds", waiting),
            ("karpenter_pods_provisioning_unbound_time_seconds", unbound),
            ("karpenter_pods_provisioning_scheduling_undecided_time_seconds", unbound),
            ("karpenter_nodes_allocatable", per_node(&|node, _| names(allocatable(node)))),
            ("karpenter_nodes_system_overhead", per_node(&|node, _| names(capacity(node)))),
            (
                "karpenter_nodes_total_pod_requests",
                per_node(&|_, pods| names_of_pods(pods, requests)),
            ),
            ("karpenter_nodes_total_pod_limits", per_node(&|_, pods| names_of_pods(pods, limits))),
            (
                "karpenter_nodes_total_daemon_requests",
                per_node(&|_, pods| names_of_pods(&daemons(pods), requests)),
            ),
            (
                "karpenter_nodes_total_daemon_limits",
                per_node(&|_, pods| names_of_pods(&daemons(pods), limits)),
            ),
            ("karpenter_nodes_current_lifetime_seconds", self.nodes.len()),
            ("operator_nodeclaim_status_condition_count", claims),
            ("operator_nodeclaim_status_condition_current_status_seconds", claims),
            ("operator_nodeclaim_termination_current_time_seconds", leaving_claims),
            ("operator_nodepool_status_condition_count", pools),
            ("operator_nodepool_status_condition_current_status_seconds", pools),
            ("operator_nodepool_termination_current_time_seconds", leaving_pools),
            ("operator_node_status_condition_count", nodes),
            ("operator_node_status_condition_current_status_seconds", nodes),
            ("operator_node_termination_current_time_seconds", leaving_nodes),
            ("operator_status_condition_count", claims + pools),
            ("operator_status_condition_current_status_seconds", claims + pools),
            ("operator_termination_current_time_seconds", leaving_claims + leaving_pools),
        ])
    }

    fn by_node(&self) -> BTreeMap<&str, Vec<&Pod>> {
        let mut on = BTreeMap::<&str, Vec<&Pod>>::new();
        for pod in self.pods.iter().filter(|pod| !pods::has_ended(pod)) {
            on.entry(pods::node_name(pod).unwrap_or_default()).or_default().push(pod);
        }
        on
    }
}

fn daemons<'a>(pods: &[&'a Pod]) -> Vec<&'a Pod> {
    pods.iter().copied().filter(|pod| pods::is_daemon(pod)).collect()
}

fn allocatable(node: &Node) -> Amounts<'_> {
    node.status.as_ref()?.allocatable.as_ref()
}

fn capacity(node: &Node) -> Amounts<'_> {
    node.status.as_ref()?.capacity.as_ref()
}

fn names(amounts: Amounts<'_>) -> usize {
    amounts.map_or(0, BTreeMap::len)
}

/// The resources that some container names, and the number of pods itself.
fn names_of_pods(
    pods: &[&Pod],
    amounts: impl Fn(&ResourceRequirements) -> Option<BTreeMap<String, Quantity>>,
) -> usize {
    let specs = pods.iter().filter_map(|pod| pod.spec.as_ref());
    let resources = specs.flat_map(|spec| &spec.containers).filter_map(|it| it.resources.as_ref());
    let mut names: Vec<String> =
        resources.filter_map(amounts).flat_map(BTreeMap::into_keys).collect();
    names.extend(pods.first().map(|_| "pods".to_owned()));
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn has_started(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = |it: &&k8s_openapi::api::core::v1::PodCondition| it.type_ == "Ready";
    let ready = conditions.into_iter().flatten().find(is_ready);
    ready.is_some_and(|ready| ready.status == "True") || pods::has_ended(pod)
}
