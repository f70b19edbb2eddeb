//! The cluster as decisions see it: objects of the API turned into the vocabulary of the model.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1 as core};
use kerf_api::{
    GoDuration, NodePool,
    labels::{self, LabelRules},
};
use kerf_model::{
    InstanceType, KnownLabels, Labels, Resources,
    pdb::Evicted,
    pod::{PodError, PodParts, with_limits_as_requests},
    requirement::UnknownOperator,
    resources::ResourcesError,
    snapshot::{self, Pool},
};
use kube_core::ResourceExt;

use crate::{
    Cluster, Pod,
    disruption::{CostOf, pod_disruption},
    pods,
    state_node::{StateNode, UnreadableStateNode},
};

/// An object that holds something the model cannot read. The API server lets little of it through, and what the watch brings
/// is checked on its way in, so seeing one means that a file was not written by an API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Pod(#[from] PodError),
    #[error(transparent)]
    StateNode(#[from] UnreadableStateNode),
    #[error("reading the node affinity of a PersistentVolume: {0}")]
    Volume(#[from] UnknownOperator),
    #[error("reading the limits of NodePool {pool}: {source}")]
    Limits { pool: String, source: ResourcesError },
}

impl Cluster {
    /// A machine with its pods, each seen through `pod_view`.
    pub(crate) fn node_view(
        &self,
        machine: StateNode<'_>,
        mut pod_view: impl FnMut(&Pod) -> Result<Arc<kerf_model::Pod>, PodError>,
    ) -> Result<snapshot::Node, Unreadable> {
        let name = machine.name();
        let on_node = machine.node.into_iter().flat_map(|_| self.pods_on(&name));
        // Until a machine has been restarted, pods that leave it are gone, and those that come find their room.
        let leaves = |pod: &Pod| machine.is_rebooting() && pods::is_terminating(pod);
        let on_node = on_node.filter(|pod| !pods::is_terminal(pod) && !leaves(pod));
        let on_node = on_node.map(|pod| pod_view(pod));
        // How much room is left on it is unknown.
        let is_readable = self.unreadable_part(machine).is_none();
        Ok(snapshot::Node {
            claim: machine.claim.map(|claim| claim.name_any()),
            pool: machine.pool().map(str::to_owned),
            labels: machine.labels().cloned().unwrap_or_default(),
            taints: machine.taints().into_iter().map(Into::into).collect(),
            capacity: machine.capacity()?,
            allocatable: if is_readable { machine.allocatable()? } else { Resources::new() },
            pods: on_node.collect::<Result<_, _>>()?,
            initialized: machine.is_initialized(),
            exists: machine.node.is_some(),
            deleting: machine.is_leaving(),
            disruption: self.node_disruption(machine),
            volume_limits: self.volume_limits(&name),
            name,
        })
    }

    pub fn namespace_labels(&self) -> BTreeMap<String, Labels> {
        let namespaces = self.namespaces.iter();
        namespaces.map(|(key, namespace)| (key.name.clone(), namespace.labels().clone())).collect()
    }

    /// Pods that need a place: those without one, and those that are about to lose theirs.
    pub fn pods_to_place(&self, now: Timestamp) -> Vec<Arc<Pod>> {
        let pending = self.waiting_pods.iter().filter_map(|key| self.pods.get(key)).cloned();
        let leaving = self.nodes.values().filter(|node| {
            let machine = self.state_node_of(node);
            machine.is_leaving() && !machine.of_another
        });
        let on_leaving = leaving
            .flat_map(|node| self.pods_on(node.metadata.name.as_deref().unwrap_or_default()));
        let budgets = self.shared_pdbs();
        let displaced = on_leaving.filter(|pod| {
            let disruption = &pod_disruption(pod, CostOf::default());
            let evicted = Evicted { namespace: pod.namespace(), labels: pod.labels(), disruption };
            disruption.reschedulable
                && !disruption.do_not_disrupt.holds(now)
                && !budgets.is_blocked_for_good(evicted, now)
        });
        pending.chain(displaced.cloned()).collect()
    }
}

/// The labels that a provider's nodes carry, as planning sees them.
pub fn known_labels(rules: &LabelRules) -> KnownLabels {
    KnownLabels::from(rules)
}

/// A pool with the instance types that its provider has for it.
pub fn pool_view(
    pool: &NodePool,
    instance_types: Vec<Arc<InstanceType>>,
    known: &KnownLabels,
) -> Result<Pool, Unreadable> {
    let template = &pool.spec.template;
    let mut all_labels = template.metadata.labels.clone().unwrap_or_default();
    let class = &template.spec.node_class_ref;
    all_labels.insert(labels::node_class(&class.group, &class.kind), class.name.clone());
    Ok(Pool {
        name: pool.name_any(),
        weight: pool.spec.weight.unwrap_or_default(),
        labels: all_labels,
        requirements: known.requirements(&template.spec.requirements),
        taints: template.spec.taints.iter().flatten().map(Into::into).collect(),
        limits: Resources::from_api(&pool.spec.limits)
            .map_err(|source| Unreadable::Limits { pool: pool.name_any(), source })?,
        instance_types,
        termination_grace_period: template
            .spec
            .termination_grace_period
            .as_ref()
            .map(GoDuration::as_duration),
        ..Pool::default()
    })
}

/// The pod that a DaemonSet would run on a new node: like its newest one, since admission may have changed what the template
/// asks for, or like the template where it has none.
pub fn daemon_view(
    daemon_set: &DaemonSet,
    newest: Option<&Pod>,
    known: &KnownLabels,
) -> Result<kerf_model::Pod, Unreadable> {
    let template = daemon_set.spec.as_ref().map(|spec| &spec.template);
    let of_template = template.and_then(|template| template.spec.as_ref());
    let made;
    let like = if let Some(newest) = newest {
        newest.parts()
    } else {
        let mut spec = of_template.cloned();
        spec.iter_mut().for_each(with_limits_as_requests);
        let metadata = template.and_then(|template| template.metadata.clone());
        made = core::Pod { metadata: metadata.unwrap_or_default(), spec, status: None };
        PodParts::from(&made)
    };
    // The controller has pinned the pod to its node; the template says where others may run.
    let node_affinity = |spec: &core::PodSpec| spec.affinity.as_ref()?.node_affinity.clone();
    let mut spec = like.spec.clone();
    spec.affinity.get_or_insert_default().node_affinity = of_template.and_then(node_affinity);
    let (name, namespace) = (daemon_set.name_any(), daemon_set.namespace().unwrap_or_default());
    let parts =
        PodParts { name: &name, namespace: &namespace, node_name: None, spec: &spec, ..like };
    Ok(kerf_model::Pod::from_parts(parts, known)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use kerf_api::NodeClaim;
    use serde_json::{Value, json};

    fn node(labels: &Value, taints: &Value, allocatable: &Value) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": labels},
            "spec": {"providerID": "p", "taints": taints},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }))
        .unwrap()
    }

    fn claim() -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "default"}},
            "spec": {
                "requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
                "taints": [{"key": "dedicated", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
            },
            "status": {"providerID": "p", "allocatable": {"cpu": "4", "gpu": "1"}, "capacity": {"cpu": "4", "gpu": "1"}},
        }))
        .unwrap()
    }

    fn views(cluster: &Cluster) -> Vec<Arc<snapshot::Node>> {
        let known = KnownLabels::default();
        cluster.node_views(&known, &mut cluster.pod_reader(&known)).unwrap()
    }

    fn taint_keys(node: &snapshot::Node) -> Vec<&str> {
        node.taints.iter().map(|taint| taint.key.as_str()).collect()
    }

    #[test]
    fn a_claim_in_flight_is_seen_by_its_promise() {
        let mut cluster = Cluster::default();
        cluster.apply(claim());
        let views = views(&cluster);
        let [view] = views.as_slice() else { panic!("{views:?}") };
        assert_eq!((view.name.as_str(), view.exists, view.initialized), ("c", false, false));
        assert_eq!(view.pool.as_deref(), Some("default"));
        assert_eq!(taint_keys(view), ["dedicated"]);
        assert_eq!(view.allocatable.amount("gpu").to_string(), "1");
    }

    #[test]
    fn a_starting_node_hides_the_taints_that_go_away_and_keeps_promised_devices() {
        let taints = json!([
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            {"key": "cni", "effect": "NoExecute"}, {"key": "dedicated", "effect": "NoSchedule"},
        ]);
        let registered = json!({"karpenter.sh/registered": "true"});
        let mut cluster = Cluster::default();
        cluster.apply(claim());
        cluster.apply(node(&registered, &taints, &json!({"cpu": "3", "gpu": "0"})));
        let views = views(&cluster);
        let [view] = views.as_slice() else { panic!("{views:?}") };
        assert_eq!((view.name.as_str(), view.exists, view.initialized), ("n", true, false));
        assert_eq!(taint_keys(view), ["dedicated"]);
        assert_eq!(view.allocatable.to_api()["cpu"].0, "3");
        assert_eq!(view.allocatable.to_api()["gpu"].0, "1");
    }

    #[test]
    fn an_initialised_node_is_seen_as_it_is() {
        let labels = json!({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
        let taints = json!([{"key": "cni", "effect": "NoExecute"}]);
        let mut cluster = Cluster::default();
        cluster.apply(claim());
        cluster.apply(node(&labels, &taints, &json!({"cpu": "3"})));
        let views = views(&cluster);
        assert_eq!(taint_keys(&views[0]), ["cni"]);
        assert!(views[0].allocatable.get("gpu").is_none());
    }

    #[test]
    fn pods_of_a_leaving_node_need_a_place_unless_they_are_protected() {
        let pod = |name: &str, annotations: Value| -> core::Pod {
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
                "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"},
            }))
            .unwrap()
        };
        let mut cluster = Cluster::default();
        let mut leaving = claim();
        cluster.apply(node(&json!({}), &json!([]), &json!({})));
        cluster.apply(pod("a", json!({})));
        cluster.apply(pod("b", json!({"karpenter.sh/do-not-disrupt": "true"})));
        cluster.apply(leaving.clone());
        assert!(cluster.pods_to_place(Timestamp::UNIX_EPOCH).is_empty());
        leaving.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        cluster.apply(leaving);
        let names: Vec<_> = cluster
            .pods_to_place(Timestamp::UNIX_EPOCH)
            .iter()
            .map(|pod| pod.name().to_owned())
            .collect();
        assert_eq!(names, ["a"]);
    }
}
