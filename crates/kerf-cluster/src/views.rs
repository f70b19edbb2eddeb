//! Views are made once: an object that has not changed is not converted again for the next snapshot.
//!
//! A change to an object only forgets what was made from it. What is missing is made when it is asked for, under a lock of
//! its own, because asking is reading: at 5,000 nodes and 50,000 pods a pass would otherwise spend most of its time
//! turning the same objects into the same views.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kerf_api::NodeClaim;
use kerf_model::{
    KnownLabels, Labels, Resources, Volumes,
    pdb::{Pdb, PdbLimits},
    pod::{Constraints, PodError, PodReader},
    requirement::UnknownOperator,
    snapshot,
};
use kube_core::ResourceExt;

use crate::{
    Cluster, Key, Pod,
    disruption::{CostOf, pod_disruption},
    state_node::{StateNode, UnreadableStateNode},
    view::Unreadable,
};

/// A machine, by its node or, as long as there is none, by its claim: the two may have the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    Node(String),
    Claim(String),
}

#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    /// The labels that the views were made with; they hold for no others.
    known: Option<KnownLabels>,
    pods: BTreeMap<Key, Result<Arc<kerf_model::Pod>, PodError>>,
    cost_of: CostOf,
    /// The pods of a workload ask for the same, and share it.
    constraints: HashSet<Arc<Constraints>>,
    nodes: BTreeMap<Which, Arc<snapshot::Node>>,
    volumes: Option<Arc<Volumes>>,
    namespaces: Option<Arc<BTreeMap<String, Labels>>>,
    pdbs: Option<Arc<PdbLimits>>,
    totals: PoolCapacities,
}

/// What the machines of each pool amount to, kept in step machine by machine.
#[derive(Debug, Default)]
struct PoolCapacities {
    /// Not added again since they changed.
    changed: BTreeSet<Which>,
    shares: BTreeMap<Which, Share>,
    of_pools: BTreeMap<String, (Resources, u64)>,
}

type Share = Result<(String, Resources), UnreadableStateNode>;

/// Interned constraints that are no longer used are swept out when there are this many.
const SWEEP_AT: usize = 4096;

impl Cluster {
    /// From now on deletion costs of pods are the operator's own, and say nothing about what it costs to move a pod.
    pub fn manage_deletion_costs(&mut self) {
        let made = self.views.get_mut();
        made.cost_of = CostOf::DisruptionCostAlone;
        made.pods.clear();
        made.nodes.clear();
    }

    pub(crate) fn pod_view(
        &self,
        pod: &Pod,
        known: &KnownLabels,
        reader: &mut PodReader<'_>,
    ) -> Result<Arc<kerf_model::Pod>, PodError> {
        self.views.made_with(known).pod(pod, reader)
    }

    /// Every machine with its pods. `reader` reads those that are not known, by the labels of `known`.
    pub fn node_views(
        &self,
        known: &KnownLabels,
        reader: &mut PodReader<'_>,
    ) -> Result<Vec<Arc<snapshot::Node>>, Unreadable> {
        let mut made = self.views.made_with(known);
        let mut views = Vec::with_capacity(self.nodes.values().size_hint().0);
        for machine in self.state_nodes() {
            views.push(made.node(self, machine, reader)?);
        }
        Ok(views)
    }

    /// The node of a claim with its pods. `None`: the claim has no instance yet.
    pub fn node_of_claim(
        &self,
        claim: &Arc<NodeClaim>,
        known: &KnownLabels,
    ) -> Result<Option<Arc<snapshot::Node>>, Unreadable> {
        let Some(machine) = self.machine_of(claim) else { return Ok(None) };
        let mut reader = self.pod_reader(known);
        self.views.made_with(known).node(self, machine, &mut reader).map(Some)
    }

    pub(crate) fn shared_volumes(
        &self,
        known: &KnownLabels,
    ) -> Result<Arc<Volumes>, UnknownOperator> {
        let mut made = self.views.made_with(known);
        if let Some(volumes) = &made.volumes {
            return Ok(Arc::clone(volumes));
        }
        let volumes = Arc::new(self.volumes_view(known)?);
        made.volumes = Some(Arc::clone(&volumes));
        Ok(volumes)
    }

    pub(crate) fn shared_namespaces(&self) -> Arc<BTreeMap<String, Labels>> {
        let mut made = self.views.lock();
        let labels = || Arc::new(self.namespace_labels());
        Arc::clone(made.namespaces.get_or_insert_with(labels))
    }

    pub(crate) fn shared_pdbs(&self) -> Arc<PdbLimits> {
        let mut made = self.views.lock();
        let limits = || Arc::new(self.pdbs.values().map(|budget| Pdb::from(&**budget)).collect());
        Arc::clone(made.pdbs.get_or_insert_with(limits))
    }

    /// The capacity and the number of the pool's machines. Those that are being deleted do not count.
    pub(crate) fn pool_total(&self, pool: &str) -> Result<(Resources, u64), UnreadableStateNode> {
        let mut made = self.views.lock();
        let totals = &mut made.totals;
        for which in std::mem::take(&mut totals.changed) {
            totals.put(&which, self.machine_at(&which).and_then(share));
        }
        match totals.shares.values().find_map(|share| share.as_ref().err()) {
            Some(unreadable) => Err(unreadable.clone()),
            None => Ok(totals.of_pools.get(pool).cloned().unwrap_or_default()),
        }
    }

    /// What the machine of a claim adds to this pool: nothing if it is being deleted.
    pub(crate) fn share_of(
        &self,
        claim: &str,
        pool: &str,
    ) -> Result<Resources, UnreadableStateNode> {
        let machine = self.claims.named(claim).and_then(|claim| self.machine_of(claim));
        match machine.and_then(share).transpose()? {
            Some((of, amounts)) if of == pool => Ok(amounts),
            _ => Ok(Resources::new()),
        }
    }

    /// `None`: the claim has no instance yet.
    fn machine_of<'a>(&'a self, claim: &'a Arc<NodeClaim>) -> Option<StateNode<'a>> {
        let node = self.node_of(claim.provider_id()).ok();
        node.map(|node| self.state_node_of(node)).or_else(|| self.in_flight(claim))
    }

    fn machine_at(&self, which: &Which) -> Option<StateNode<'_>> {
        match which {
            Which::Node(name) => self.nodes.named(name).map(|node| self.state_node_of(node)),
            Which::Claim(name) => self.claims.named(name).and_then(|claim| self.in_flight(claim)),
        }
    }

    /// Forgets what was made from a claim, and from the nodes of its instance.
    pub(crate) fn claim_changed(&mut self, claim: &str, provider_ids: [Option<&str>; 2]) {
        let nodes = provider_ids.into_iter().flatten().flat_map(|id| self.nodes_of(id));
        let nodes: Vec<String> = nodes.map(|node| node.name_any()).collect();
        let claim = Which::Claim(claim.to_owned());
        self.forget(nodes.into_iter().map(Which::Node).chain([claim]));
    }

    /// Forgets what was made from a node, and from the claims of its instance: they are machines while there is no node.
    pub(crate) fn node_changed(&mut self, node: &str, provider_ids: [Option<&str>; 2]) {
        // Two nodes of one instance have no claim, and one that goes gives it back to the other.
        let ids = || provider_ids.into_iter().flatten();
        let others: Vec<_> =
            ids().flat_map(|id| self.nodes_of(id)).map(|it| it.name_any()).collect();
        let claims = ids().filter_map(|id| self.claims_by_provider_id.get(id)).flatten();
        let claims: Vec<String> = claims.map(|key| key.name.clone()).collect();
        let others = others.into_iter().map(Which::Node);
        let claims = claims.into_iter().map(Which::Claim);
        self.forget(others.chain(claims).chain([Which::Node(node.to_owned())]));
    }

    fn forget(&mut self, machines: impl Iterator<Item = Which>) {
        for which in machines {
            let exists = self.machine_at(&which).is_some();
            self.views.forget(which, exists);
        }
    }

    pub(crate) fn pod_changed(&mut self, pod: &Key, nodes: [Option<&str>; 2]) {
        let made = self.views.get_mut();
        made.pods.remove(pod);
        for node in nodes.into_iter().flatten() {
            // Pods change nothing in what a pool has.
            made.nodes.remove(&Which::Node(node.to_owned()));
        }
    }

    /// What pods belong to decides which default spread constraints they get.
    pub(crate) fn workloads_changed(&mut self) {
        if self.spreads_by_default() {
            let made = self.views.get_mut();
            made.pods.clear();
            made.nodes.clear();
        }
    }

    pub(crate) fn volumes_changed(&mut self) {
        self.views.get_mut().volumes = None;
    }

    pub(crate) fn volume_limits_changed(&mut self, node: &str) {
        self.views.get_mut().nodes.remove(&Which::Node(node.to_owned()));
    }

    pub(crate) fn namespaces_changed(&mut self) {
        self.views.get_mut().namespaces = None;
    }

    pub(crate) fn pdbs_changed(&mut self) {
        self.views.get_mut().pdbs = None;
    }
}

impl Views {
    /// What was made with these labels; everything else is forgotten.
    fn made_with(&self, known: &KnownLabels) -> MutexGuard<'_, Made> {
        let mut made = self.lock();
        if made.known.as_ref() != Some(known) {
            let (totals, cost_of) = (std::mem::take(&mut made.totals), made.cost_of);
            *made = Made { known: Some(known.clone()), totals, cost_of, ..Made::default() };
        }
        made
    }

    /// The names of machines that are gone are not kept: a replica that stands by is never asked for totals, and would gather
    /// all that there ever were.
    fn forget(&mut self, which: Which, exists: bool) {
        let made = self.get_mut();
        made.nodes.remove(&which);
        if exists {
            made.totals.changed.insert(which);
        } else {
            made.totals.changed.remove(&which);
            made.totals.put(&which, None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get_mut(&mut self) -> &mut Made {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made {
    fn node(
        &mut self,
        cluster: &Cluster,
        machine: StateNode<'_>,
        reader: &mut PodReader<'_>,
    ) -> Result<Arc<snapshot::Node>, Unreadable> {
        let which = Which::of(&machine);
        if let Some(view) = self.nodes.get(&which) {
            return Ok(Arc::clone(view));
        }
        let view = Arc::new(cluster.node_view(machine, |pod| self.pod(pod, reader))?);
        self.nodes.insert(which, Arc::clone(&view));
        Ok(view)
    }

    fn pod(
        &mut self,
        pod: &Pod,
        reader: &mut PodReader<'_>,
    ) -> Result<Arc<kerf_model::Pod>, PodError> {
        let key = pod.key();
        if let Some(view) = self.pods.get(&key) {
            return view.clone();
        }
        let view = reader.read(pod.parts()).map(|mut view| {
            view.constraints = self.interned(view.constraints);
            view.disruption = pod_disruption(pod, self.cost_of);
            Arc::new(view)
        });
        self.pods.insert(key, view.clone());
        view
    }

    fn interned(&mut self, constraints: Arc<Constraints>) -> Arc<Constraints> {
        if let Some(known) = self.constraints.get(&constraints) {
            return Arc::clone(known);
        }
        if self.constraints.len() >= SWEEP_AT {
            self.constraints.retain(|constraints| Arc::strong_count(constraints) > 1);
        }
        self.constraints.insert(Arc::clone(&constraints));
        constraints
    }
}

impl PoolCapacities {
    fn put(&mut self, which: &Which, share: Option<Share>) {
        let before = match share {
            Some(share) => self.shares.insert(which.clone(), share),
            None => self.shares.remove(which),
        };
        if let Some(Ok((pool, amounts))) = before
            && let Some((total, machines)) = self.of_pools.get_mut(&pool)
        {
            *total = total.minus(&amounts).iter().filter(|(_, left)| !left.is_zero()).collect();
            *machines -= 1;
            if *machines == 0 {
                self.of_pools.remove(&pool);
            }
        }
        if let Some(Ok((pool, amounts))) = self.shares.get(which) {
            let (total, machines) = self.of_pools.entry(pool.clone()).or_default();
            total.add(amounts);
            *machines += 1;
        }
    }
}

impl Which {
    fn of(machine: &StateNode<'_>) -> Self {
        match machine.node {
            Some(node) => Self::Node(node.name_any()),
            None => Self::Claim(machine.name()),
        }
    }
}

/// What a machine adds to its pool.
fn share(machine: StateNode<'_>) -> Option<Share> {
    let pool = machine.pool()?.to_owned();
    if machine.is_leaving() {
        return None;
    }
    Some(machine.capacity().map(|capacity| (pool, capacity)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1 as core;
    use k8s_openapi::api::core::v1::Node;
    use kerf_api::NodeClaim;
    use kerf_model::Quantity;
    use serde_json::{Value, json};

    fn node(name: &str, provider_id: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}},
            "spec": {"providerID": provider_id}, "status": {"capacity": {"cpu": "4"}},
        }))
        .unwrap()
    }

    fn claim(name: &str, cpu: &str) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": "i", "capacity": {"cpu": cpu}},
        }))
        .unwrap()
    }

    fn pod(name: &str, node: &str, labels: &Value) -> core::Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "labels": labels},
            "spec": {"nodeName": node, "containers": [], "nodeSelector": {"a": "b"}},
        }))
        .unwrap()
    }

    fn views(cluster: &Cluster) -> Vec<Arc<snapshot::Node>> {
        let known = KnownLabels::default();
        cluster.node_views(&known, &mut cluster.pod_reader(&known)).unwrap()
    }

    #[test]
    fn what_has_not_changed_is_not_made_again() {
        let mut cluster = Cluster::default();
        cluster.apply(node("a", "i"));
        cluster.apply(node("b", "j"));
        cluster.apply(pod("p", "a", &json!({})));
        cluster.apply(pod("q", "b", &json!({})));
        let before = views(&cluster);
        assert!(views(&cluster).iter().zip(&before).all(|(one, other)| Arc::ptr_eq(one, other)));
        cluster.apply(pod("r", "b", &json!({})));
        let after = views(&cluster);
        assert!(Arc::ptr_eq(&before[0], &after[0]), "node a has not changed");
        assert_eq!(after[1].pods.len(), 2);
        assert!(Arc::ptr_eq(&before[1].pods[0], &after[1].pods[0]), "pod q has not changed");
        let shared = |one: &kerf_model::Pod, other: &kerf_model::Pod| {
            Arc::ptr_eq(&one.constraints, &other.constraints)
        };
        assert!(shared(&after[0].pods[0], &after[1].pods[1]), "they ask for the same");
    }

    #[test]
    fn every_change_is_seen() {
        let mut cluster = Cluster::default();
        let seen = |cluster: &Cluster| {
            let views = views(cluster);
            let view = views.first().map(|view| {
                let labels = view.pods.iter().map(|pod| pod.labels.len()).collect::<Vec<_>>();
                (view.name.clone(), view.claim.clone(), view.deleting, labels)
            });
            (views.len(), view)
        };
        let machine = |name: &str, claim: Option<&str>, deleting, labels: &[usize]| {
            (1, Some((name.to_owned(), claim.map(str::to_owned), deleting, labels.to_vec())))
        };
        assert_eq!(seen(&cluster), (0, None));
        cluster.apply(claim("c", "4"));
        assert_eq!(seen(&cluster), machine("c", Some("c"), false, &[]));
        cluster.apply(node("n", "i"));
        assert_eq!(seen(&cluster), machine("n", Some("c"), false, &[]));
        cluster.apply(pod("p", "n", &json!({})));
        assert_eq!(seen(&cluster), machine("n", Some("c"), false, &[0]));
        cluster.apply(pod("p", "n", &json!({"x": "y"})));
        assert_eq!(seen(&cluster), machine("n", Some("c"), false, &[1]));
        cluster.mark_for_deletion("c");
        assert_eq!(seen(&cluster), machine("n", Some("c"), true, &[1]));
        cluster.unmark_for_deletion("c");
        cluster.delete(&claim("c", "4"));
        assert_eq!(seen(&cluster), machine("n", None, false, &[1]));
        cluster.delete(&pod("p", "n", &json!({})));
        assert_eq!(seen(&cluster), machine("n", None, false, &[]));
        cluster.delete(&node("n", "i"));
        assert_eq!(seen(&cluster), (0, None));
    }

    /// A standby makes no snapshots.
    #[test]
    fn machines_that_are_gone_leave_nothing_behind_if_nobody_asks() {
        let mut cluster = Cluster::default();
        for number in 0..100 {
            let name = format!("n{number}");
            cluster.apply(claim(&name, "8"));
            cluster.apply(node(&name, "i"));
            cluster.delete(&node(&name, "i"));
            cluster.delete(&claim(&name, "8"));
        }
        let made = cluster.views.get_mut();
        assert_eq!((made.totals.changed.len(), made.totals.shares.len()), (0, 0));
    }

    #[test]
    fn totals_follow_every_machine() {
        let mut cluster = Cluster::default();
        let total = |cluster: &Cluster| {
            let (amounts, machines) = cluster.pool_total("p").unwrap();
            (amounts.amount("cpu"), machines)
        };
        let cpus = Quantity::from_units;
        assert_eq!(total(&cluster), (cpus(0), 0));
        cluster.apply(claim("c", "8"));
        assert_eq!(total(&cluster), (cpus(8), 1), "what was promised");
        cluster.apply(node("n", "i"));
        assert_eq!(total(&cluster), (cpus(4), 1), "what is there");
        cluster.apply(node("other", "j"));
        assert_eq!(total(&cluster), (cpus(8), 2));
        cluster.mark_for_deletion("c");
        assert_eq!(total(&cluster), (cpus(4), 1));
        cluster.unmark_for_deletion("c");
        assert_eq!(total(&cluster), (cpus(8), 2));
        cluster.delete(&node("n", "i"));
        assert_eq!(total(&cluster), (cpus(12), 2), "the claim is there again without its node");
        cluster.delete(&claim("c", "8"));
        cluster.delete(&node("other", "j"));
        assert_eq!(total(&cluster), (cpus(0), 0));
    }
}
