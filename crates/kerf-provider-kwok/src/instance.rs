//! Which instance a claim gets, and the Node that it is.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Node, NodeSpec, NodeStatus, Taint},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kerf_api::{NodeClaim, ObjectExt, Operator, labels, taints};
use kerf_model::{InstanceType, KnownLabels, Offering, Requirement, Requirements, Resources};
use kerf_provider::{Launched, ProviderError};
use kube::ResourceExt;

const PROVIDER_ID_PREFIX: &str = "kwok://";

/// By this annotation kwok knows the nodes that it is to run. It stands among the labels as well,
/// for selectors.
const RUN_BY_KWOK: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
/// Several kwok instances can share the nodes by this label.
const PARTITION: (&str, &str) = ("kwok-partition", "a");
/// The claim that the Node was made for.
const CLAIM_UID: &str = "karpenter.kwok.sh/nodeclaim-uid";
/// Read by a well-known terminal dashboard.
const PRICE: &str = "eks-node-viewer/instance-price";

const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// An instance type and the terms on which it is bought.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    pub instance_type: &'a InstanceType,
    pub offering: &'a Offering,
}

/// The cheapest offering that meets the claim, of a type that has room for it; the first by name
/// among equals.
///
/// Claims of static pools do not say which instance types they want, and any that suits will do.
pub fn choose<'a>(
    claim: &NodeClaim,
    instance_types: &'a [Arc<InstanceType>],
    known_labels: &KnownLabels,
) -> Result<Choice<'a>, ProviderError> {
    let requirements = requirements(claim)?;
    let requests = Resources::from_api(&claim.spec.resources.requests);
    let requests =
        requests.map_err(|error| ProviderError::Other(format!("reading requests: {error}")))?;
    instance_types
        .iter()
        .filter(|candidate| candidate.requirements().intersects(&requirements).is_ok())
        .filter(|candidate| requests.fits_in(candidate.allocatable()))
        .filter_map(|instance_type| {
            let offering = instance_type.cheapest(&requirements, known_labels)?;
            Some(Choice { instance_type, offering })
        })
        .min_by_key(|choice| (choice.offering.price, choice.instance_type.name()))
        .ok_or_else(|| {
            let message = format!(
                "no available instance type meets the requirements [{requirements}] and the requests [{requests}]"
            );
            ProviderError::insufficient_capacity(message)
        })
}

/// What the claim asks for. Labels count as well: those of a launched claim say what it has got.
fn requirements(claim: &NodeClaim) -> Result<Requirements, ProviderError> {
    let mut all = Requirements::default();
    for written in &claim.spec.requirements {
        let operator = written.operator.as_str().parse();
        let operator = operator
            .map_err(|error| ProviderError::Other(format!("reading requirements: {error}")))?;
        all.add(Requirement::new(&written.key, operator, &written.values));
    }
    for (key, value) in claim.labels() {
        if [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE].contains(&key.as_str()) {
            all.add(Requirement::is_in(key, [value]));
        }
    }
    Ok(all)
}

/// The Node that a kubelet on the chosen instance would register.
pub(super) fn node(claim: &NodeClaim, choice: Choice<'_>) -> Node {
    let name = node_name(claim);
    let mut annotations = claim.annotations().clone();
    annotations.insert(RUN_BY_KWOK.0.to_owned(), RUN_BY_KWOK.1.to_owned());
    annotations.extend(claim.uid().map(|uid| (CLAIM_UID.to_owned(), uid)));
    Node {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(node_labels(claim, choice)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(format!("{PROVIDER_ID_PREFIX}{name}")),
            taints: Some(born_with(claim)),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            // Karpenter's KWOK provider puts the claim's requests here, so that limits and the
            // pool's resources count what was asked for instead of what was bought, and nodes have
            // less than they offer. Ours tells what it has.
            capacity: Some(choice.instance_type.capacity().to_api()),
            allocatable: Some(choice.instance_type.allocatable().to_api()),
            phase: Some("Pending".to_owned()),
            ..NodeStatus::default()
        }),
    }
}

/// A kubelet is told the taints of its node before it starts.
fn born_with(claim: &NodeClaim) -> Vec<Taint> {
    let asked_for = claim.spec.taints.iter().chain(&claim.spec.startup_taints).flatten();
    asked_for.cloned().chain([taints::unregistered()]).collect()
}

/// Later ones win.
fn node_labels(claim: &NodeClaim, choice: Choice<'_>) -> BTreeMap<String, String> {
    let Choice { instance_type, offering } = choice;
    let asked_for =
        claim.spec.requirements.iter().filter_map(|requirement| match &requirement.values[..] {
            [value] if requirement.operator == Operator::In => {
                Some((labels::normalize(&requirement.key).to_owned(), value.clone()))
            }
            _ => None,
        });
    let bought = instance_type.requirements().iter().chain(offering.requirements.iter());
    let bought =
        bought.filter_map(|one| Some((one.key().to_owned(), one.only_value()?.to_owned())));
    let price = format!("{:.6}", offering.price.as_f64());
    let own = [
        (labels::INSTANCE_TYPE, instance_type.name()),
        (PRICE, &price),
        PARTITION,
        (labels::HOSTNAME, &hostname(claim)),
        RUN_BY_KWOK,
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut all = claim.labels().clone();
    all.extend(asked_for.chain(bought).chain(own));
    all
}

/// Different from the Node's name, so that nothing can come to rely on their being the same.
fn hostname(claim: &NodeClaim) -> String {
    let name = claim.name_any();
    if name.len() <= LONGEST_LABEL { name } else { claim.uid().unwrap_or_default() }
}

/// The one name that the Node of a claim can have.
///
/// The UID is part of it because a claim can be deleted and another one of the same name created
/// while the Node of the first is still draining.
pub(super) fn node_name(claim: &NodeClaim) -> String {
    let uid = claim.uid().unwrap_or_default();
    let suffix = uid.get(..8).unwrap_or(&uid);
    let claim = claim.name_any();
    let room = LONGEST_NAME - "kwok--".len() - suffix.len();
    let claim = claim.get(..room).unwrap_or(&claim).trim_end_matches(['-', '.']);
    format!("kwok-{claim}-{suffix}")
}

/// The name of the Node with that provider id; nothing if it is not one of ours.
pub(super) fn name_in(provider_id: &str) -> Option<&str> {
    provider_id.strip_prefix(PROVIDER_ID_PREFIX)
}

pub(super) fn is_ours(node: &Node) -> bool {
    name_in(&provider_id(node)).is_some()
}

/// The instance that a Node is.
pub(super) fn launched(node: &Node) -> Launched {
    let mut labels = node.labels().clone();
    // These say how far the Node has come and not what the instance is; the claim must not inherit
    // them.
    labels.remove(labels::REGISTERED);
    labels.remove(labels::INITIALIZED);
    let status = node.status.clone().unwrap_or_default();
    Launched {
        provider_id: provider_id(node),
        image_id: String::new(),
        claim_uid: node.annotations().get(CLAIM_UID).cloned(),
        node_name: Some(node.name_any()),
        launched_at: None,
        labels,
        annotations: node.annotations().clone(),
        capacity: status.capacity.unwrap_or_default(),
        allocatable: status.allocatable.unwrap_or_default(),
        terminating: node.is_deleting(),
    }
}

fn provider_id(node: &Node) -> String {
    node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::generated;

    fn claim(spec: &Value) -> NodeClaim {
        let mut claim = json!({
            "metadata": {
                "name": "default-x7k2p",
                "uid": "6b7a1c90-0000-4000-8000-000000000000",
                "labels": { "karpenter.sh/nodepool": "default", "team": "a" },
                "annotations": { "karpenter.sh/nodepool-hash": "1" },
            },
            "spec": {
                "requirements": [],
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
            },
        });
        for (field, value) in spec.as_object().unwrap() {
            claim["spec"][field] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    fn chosen(claim: &NodeClaim) -> Result<Node, ProviderError> {
        let types: Vec<_> = generated().into_iter().map(Arc::new).collect();
        choose(claim, &types, &KnownLabels::default()).map(|choice| node(claim, choice))
    }

    #[test]
    fn takes_the_cheapest_offering_that_suits() {
        let check = |spec: Value, instance_type: &str, capacity_type: &str, zone: &str| {
            let node = chosen(&claim(&spec)).unwrap();
            let label = |key: &str| node.labels()[key].as_str();
            assert_eq!(
                (label(labels::INSTANCE_TYPE), label(labels::CAPACITY_TYPE), label(labels::ZONE)),
                (instance_type, capacity_type, zone),
                "{spec}"
            );
        };
        let requirements = |list: Value| json!({ "requirements": list });
        check(json!({}), "c-1x-amd64-linux", "spot", "test-zone-a");
        check(
            requirements(
                json!([{ "key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["spot"] }]),
            ),
            "c-1x-amd64-linux",
            "on-demand",
            "test-zone-a",
        );
        check(
            requirements(json!([
                { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["gone", "m-2x-arm64-linux", "s-4x-arm64-linux"] },
                { "key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": ["test-zone-c"] },
            ])),
            "m-2x-arm64-linux",
            "spot",
            "test-zone-c",
        );
        check(
            requirements(json!([
                { "key": "karpenter.kwok.sh/instance-cpu", "operator": "Gte", "values": ["16"] },
                { "key": "kubernetes.io/os", "operator": "In", "values": ["windows"] },
            ])),
            "c-16x-amd64-windows",
            "spot",
            "test-zone-a",
        );
        check(
            json!({ "resources": { "requests": { "cpu": "1", "memory": "5Gi" } } }),
            "s-2x-amd64-linux",
            "spot",
            "test-zone-a",
        );
    }

    #[test]
    fn chooses_again_what_was_launched() {
        let mut launched = claim(&json!({}));
        for (key, value) in [
            (labels::INSTANCE_TYPE, "m-8x-arm64-windows"),
            (labels::ZONE, "test-zone-d"),
            (labels::CAPACITY_TYPE, "on-demand"),
        ] {
            launched.labels_mut().insert(key.to_owned(), value.to_owned());
        }
        let node = chosen(&launched).unwrap();
        assert_eq!(node.labels()[labels::INSTANCE_TYPE], "m-8x-arm64-windows");
        assert_eq!(node.labels()[PRICE], "0.268719");
    }

    #[test]
    fn says_what_cannot_be_had() {
        let check = |spec: Value, message: &str| {
            assert_eq!(chosen(&claim(&spec)).unwrap_err().to_string(), message);
        };
        check(
            json!({ "requirements": [{ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["mars"] }] }),
            "insufficient capacity, no available instance type meets the requirements [topology.kubernetes.io/zone In [mars]] and the requests []",
        );
        check(
            json!({ "resources": { "requests": { "cpu": "256" } } }),
            "insufficient capacity, no available instance type meets the requirements [] and the requests [cpu 256]",
        );
        check(
            json!({ "resources": { "requests": { "cpu": "many" } } }),
            "reading requests: resource cpu: \"many\" is not a quantity: write a number with an optional suffix such as 500m, 2 or 1.5Gi",
        );
    }

    #[test]
    fn the_node_is_what_was_bought() {
        let claim = claim(&json!({
            "taints": [{ "key": "dedicated", "effect": "NoSchedule" }],
            "startupTaints": [{ "key": "starting", "effect": "NoExecute" }],
            "resources": { "requests": { "cpu": "100m" } },
            "requirements": [
                { "key": "example.com/rack", "operator": "In", "values": ["r1"] },
                { "key": "example.com/row", "operator": "In", "values": ["a", "b"] },
                { "key": "beta.kubernetes.io/arch", "operator": "In", "values": ["arm64"] },
            ],
        }));
        let types: Vec<_> = generated().into_iter().map(Arc::new).collect();
        let known = KnownLabels::default();
        let choice = choose(&claim, &types, &known).unwrap();
        assert_eq!(
            serde_json::to_value(node(&claim, choice)).unwrap(),
            json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": "kwok-default-x7k2p-6b7a1c90",
                    "annotations": {
                        "karpenter.kwok.sh/nodeclaim-uid": "6b7a1c90-0000-4000-8000-000000000000",
                        "karpenter.sh/nodepool-hash": "1",
                        "kwok.x-k8s.io/node": "fake",
                    },
                    "labels": {
                        "eks-node-viewer/instance-price": "0.019003",
                        "example.com/rack": "r1",
                        "karpenter.kwok.sh/instance-cpu": "1",
                        "karpenter.kwok.sh/instance-family": "c",
                        "karpenter.kwok.sh/instance-memory": "2Gi",
                        "karpenter.kwok.sh/instance-size": "1",
                        "karpenter.sh/capacity-type": "spot",
                        "karpenter.sh/nodepool": "default",
                        "kubernetes.io/arch": "arm64",
                        "kubernetes.io/hostname": "default-x7k2p",
                        "kubernetes.io/os": "linux",
                        "kwok-partition": "a",
                        "kwok.x-k8s.io/node": "fake",
                        "node.kubernetes.io/instance-type": "c-1x-arm64-linux",
                        "team": "a",
                        "topology.kubernetes.io/zone": "test-zone-a",
                    },
                },
                "spec": {
                    "providerID": "kwok://kwok-default-x7k2p-6b7a1c90",
                    "taints": [
                        { "key": "dedicated", "effect": "NoSchedule" },
                        { "key": "starting", "effect": "NoExecute" },
                        { "key": "karpenter.sh/unregistered", "effect": "NoExecute" },
                    ],
                },
                "status": {
                    "capacity": { "cpu": "1", "memory": "2Gi", "pods": "16", "ephemeral-storage": "20Gi" },
                    "allocatable": { "cpu": "900m", "memory": "2038Mi", "pods": "16", "ephemeral-storage": "20Gi" },
                    "phase": "Pending",
                },
            })
        );
    }

    #[test]
    fn names_are_valid_and_follow_from_the_claim() {
        let named = |name: String, uid: Option<&str>| {
            let mut named = NodeClaim::default();
            named.metadata.name = Some(name);
            named.metadata.uid = uid.map(str::to_owned);
            named
        };
        let uid = Some("0123456789-abc");
        assert_eq!(node_name(&named("a".to_owned(), uid)), "kwok-a-01234567");
        let long = named(format!("{}.b", "a".repeat(238)), uid);
        let name = node_name(&long);
        assert_eq!(name, format!("kwok-{}-01234567", "a".repeat(238)));
        assert!(name.len() <= LONGEST_NAME);
        assert_eq!(hostname(&long), "0123456789-abc");
        assert_eq!(hostname(&named("a".repeat(63), uid)), "a".repeat(63));
    }

    #[test]
    fn a_claim_does_not_inherit_how_far_its_node_has_come() {
        let mut node = chosen(&claim(&json!({}))).unwrap();
        node.labels_mut().insert(labels::REGISTERED.to_owned(), "true".to_owned());
        node.labels_mut().insert(labels::INITIALIZED.to_owned(), "true".to_owned());
        let launched = launched(&node);
        assert!(!launched.labels.contains_key(labels::REGISTERED));
        assert!(!launched.labels.contains_key(labels::INITIALIZED));
        assert_eq!(launched.provider_id, "kwok://kwok-default-x7k2p-6b7a1c90");
        assert_eq!(launched.claim_uid.as_deref(), Some("6b7a1c90-0000-4000-8000-000000000000"));
        assert_eq!(launched.capacity["cpu"].0, "1");
    }

    #[test]
    fn knows_its_own_nodes() {
        let mut node = Node::default();
        assert!(!is_ours(&node));
        node.spec.get_or_insert_default().provider_id = Some("aws:///a/i-1".to_owned());
        assert!(!is_ours(&node));
        node.spec.get_or_insert_default().provider_id = Some("kwok://a".to_owned());
        assert!(is_ours(&node));
    }
}
