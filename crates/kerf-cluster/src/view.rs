//! The cluster as decisions see it: objects of the API turned into the vocabulary of the model.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{self as core, Node, Taint},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kerf_api::{
    NodeClaim, NodePool, NodeSelectorRequirement,
    conditions::{Conditioned, INSTANCE_TERMINATING},
    labels, taints,
};
use kerf_model::{
    InstanceType, KnownLabels, Operator, Requirement, Requirements, Resources,
    pod::{PodError, with_limits_as_requests},
    resources::ResourcesError,
    snapshot::{self, Pool},
};
use kube_core::ResourceExt;

use crate::{Cluster, do_not_disrupt::Protection, pods};

/// An object that holds something the model cannot read. The API server lets none of it through, so seeing one means
/// that a CRD or an admission plugin is not what we think it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Pod(#[from] PodError),
    #[error("reading {kind} {name}: {source}")]
    Resources { kind: &'static str, name: String, source: ResourcesError },
}

impl Cluster {
    /// Every node, and every claim whose node has yet to appear.
    pub fn node_views(&self, known: &KnownLabels) -> Result<Vec<Arc<snapshot::Node>>, Unreadable> {
        let of_nodes = self.nodes.values().map(|node| {
            let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            let claim = self.claim_of(provider_id.unwrap_or_default()).ok().map(Arc::as_ref);
            let mut view = view(Some(node), claim)?;
            let on_node = self.pods_on(&view.name).filter(|pod| !pods::is_terminal(pod));
            let on_node = on_node.map(|pod| kerf_model::Pod::from_api(pod, known).map(Arc::new));
            view.pods = on_node.collect::<Result<_, _>>()?;
            Ok(Arc::new(view))
        });
        let in_flight = self.claims.values().filter(|claim| {
            let provider_id = claim.status.as_ref().map_or("", |status| &status.provider_id);
            !provider_id.is_empty() && self.nodes_of(provider_id).next().is_none()
        });
        let of_claims = in_flight.map(|claim| Ok(Arc::new(view(None, Some(claim))?)));
        of_nodes.chain(of_claims).collect()
    }

    /// Pods that need a place: those without one, and those that are about to lose theirs.
    pub fn pods_to_place(&self, now: Timestamp) -> Vec<Arc<core::Pod>> {
        let pending = self.pods.values().filter(|pod| pods::is_provisionable(pod)).cloned();
        let leaving = self.nodes.values().filter(|node| self.is_leaving(node));
        let on_leaving = leaving
            .flat_map(|node| self.pods_on(node.metadata.name.as_deref().unwrap_or_default()));
        let displaced = on_leaving
            .filter(|pod| pods::is_reschedulable(pod) && !Protection::of(pod, now).is_active());
        pending.chain(displaced.cloned()).collect()
    }

    fn is_leaving(&self, node: &Node) -> bool {
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        match self.claim_of(provider_id.unwrap_or_default()) {
            Ok(claim) => is_deleting(claim),
            Err(_) => node.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// A pool with the instance types that its provider has for it.
pub fn pool_view(
    pool: &NodePool,
    node_class_label: &str,
    instance_types: Vec<Arc<InstanceType>>,
    known: &KnownLabels,
) -> Result<Pool, Unreadable> {
    let template = &pool.spec.template;
    let mut labels = template.metadata.labels.clone().unwrap_or_default();
    labels.insert(node_class_label.to_owned(), template.spec.node_class_ref.name.clone());
    Ok(Pool {
        name: pool.name_any(),
        weight: pool.spec.weight.unwrap_or_default(),
        labels,
        requirements: requirements(&template.spec.requirements, known),
        taints: template.spec.taints.iter().flatten().map(Into::into).collect(),
        limits: resources("NodePool", pool.name_any(), Some(&pool.spec.limits))?,
        instance_types,
    })
}

pub fn requirements(list: &[NodeSelectorRequirement], known: &KnownLabels) -> Requirements {
    Requirements::new(list.iter().map(|requirement| requirement_view(requirement, known)))
}

fn requirement_view(requirement: &NodeSelectorRequirement, known: &KnownLabels) -> Requirement {
    let operator = match requirement.operator {
        kerf_api::Operator::In => Operator::In,
        kerf_api::Operator::NotIn => Operator::NotIn,
        kerf_api::Operator::Exists => Operator::Exists,
        kerf_api::Operator::DoesNotExist => Operator::DoesNotExist,
        kerf_api::Operator::Gt => Operator::Gt,
        kerf_api::Operator::Lt => Operator::Lt,
        kerf_api::Operator::Gte => Operator::Gte,
        kerf_api::Operator::Lte => Operator::Lte,
    };
    known
        .requirement(&requirement.key, operator, &requirement.values)
        .with_min_values(requirement.min_values)
}

/// The pod that a DaemonSet would run on a new node.
pub fn daemon_view(
    daemon_set: &DaemonSet,
    known: &KnownLabels,
) -> Result<kerf_model::Pod, Unreadable> {
    let template = daemon_set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = core::Pod {
        metadata: template.metadata.unwrap_or_default(),
        spec: template.spec,
        status: None,
    };
    pod.metadata.name = Some(daemon_set.name_any());
    pod.metadata.namespace = daemon_set.namespace();
    if let Some(spec) = &mut pod.spec {
        with_limits_as_requests(spec);
    }
    Ok(kerf_model::Pod::from_api(&pod, known)?)
}

fn view(node: Option<&Node>, claim: Option<&NodeClaim>) -> Result<snapshot::Node, Unreadable> {
    let on_node = |label| node.is_some_and(|node| is_true(node.labels().get(label)));
    let registered = claim.is_none() || on_node(labels::REGISTERED);
    let initialized = claim.is_none() || on_node(labels::INITIALIZED);
    // Until a node is registered, what the claim promises is truer than what the node says of itself.
    let by_claim = claim.filter(|_| node.is_none() || !registered);
    let node_labels = match (by_claim, node) {
        (Some(claim), _) => claim.labels().clone(),
        (None, Some(node)) => node.labels().clone(),
        (None, None) => BTreeMap::new(),
    };
    let kind = if node.is_some() { "Node" } else { "NodeClaim" };
    let name = node.map(ResourceExt::name_any).or(claim.map(ResourceExt::name_any));
    let name = name.unwrap_or_default();
    let node_status = node.and_then(|node| node.status.as_ref());
    let claim_status = claim.and_then(|claim| claim.status.as_ref());
    let amounts = |of_node: Option<&BTreeMap<String, Quantity>>,
                   of_claim: Option<&BTreeMap<String, Quantity>>|
     -> Result<Resources, Unreadable> {
        let of_node = resources(kind, name.clone(), of_node)?;
        if initialized {
            return Ok(of_node);
        }
        // A kubelet reports devices as zero until their driver runs.
        let promised = resources(kind, name.clone(), of_claim)?;
        let reported = of_node.iter().filter(|(_, amount)| !amount.is_zero()).collect();
        Ok(promised.overridden_by(&reported))
    };
    Ok(snapshot::Node {
        claim: claim.map(ResourceExt::name_any),
        pool: node_labels.get(labels::NODE_POOL).cloned(),
        taints: taints_for_pods(node, claim, registered, initialized),
        capacity: amounts(
            node_status.and_then(|status| status.capacity.as_ref()),
            claim_status.map(|status| &status.capacity),
        )?,
        allocatable: amounts(
            node_status.and_then(|status| status.allocatable.as_ref()),
            claim_status.map(|status| &status.allocatable),
        )?,
        labels: node_labels,
        pods: Vec::new(),
        initialized,
        exists: node.is_some(),
        deleting: match (claim, node) {
            (Some(claim), _) => is_deleting(claim),
            (None, Some(node)) => node.metadata.deletion_timestamp.is_some(),
            (None, None) => false,
        },
        settling: false,
        volume_limits: BTreeMap::new(),
        name,
    })
}

/// The taints that pods have to tolerate: those that go away while a node starts do not count.
fn taints_for_pods(
    node: Option<&Node>,
    claim: Option<&NodeClaim>,
    registered: bool,
    initialized: bool,
) -> Vec<kerf_model::Taint> {
    let of_node = node.and_then(|node| node.spec.as_ref()?.taints.as_deref());
    let of_claim = claim.and_then(|claim| claim.spec.taints.as_deref());
    let all = if claim.is_some() && !registered { of_claim } else { of_node.or(of_claim) };
    let startup = claim.and_then(|claim| claim.spec.startup_taints.as_deref()).unwrap_or_default();
    let goes_away = |taint: &Taint| {
        taints::is_ephemeral(taint) || startup.iter().any(|startup| taints::same(startup, taint))
    };
    let all = all.unwrap_or_default().iter();
    all.filter(|taint| initialized || !goes_away(taint)).map(Into::into).collect()
}

fn is_deleting(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some() || claim.is_true(INSTANCE_TERMINATING)
}

fn is_true(value: Option<&String>) -> bool {
    value.is_some_and(|value| value == "true")
}

fn resources(
    kind: &'static str,
    name: String,
    map: Option<&BTreeMap<String, Quantity>>,
) -> Result<Resources, Unreadable> {
    let Some(map) = map else { return Ok(Resources::new()) };
    Resources::from_api(map).map_err(|source| Unreadable::Resources { kind, name, source })
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn taint_keys(node: &snapshot::Node) -> Vec<&str> {
        node.taints.iter().map(|taint| taint.key.as_str()).collect()
    }

    #[test]
    fn a_claim_in_flight_is_seen_by_its_promise() {
        let mut cluster = Cluster::default();
        cluster.apply(claim());
        let views = cluster.node_views(&KnownLabels::default()).unwrap();
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
        let views = cluster.node_views(&KnownLabels::default()).unwrap();
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
        let views = cluster.node_views(&KnownLabels::default()).unwrap();
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
        let names: Vec<_> =
            cluster.pods_to_place(Timestamp::UNIX_EPOCH).iter().map(|pod| pod.name_any()).collect();
        assert_eq!(names, ["a"]);
    }
}
