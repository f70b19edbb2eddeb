//! `NodeClaim`: one requested node, from the request to its deletion.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, Time},
    },
};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::{Conditioned, INITIALIZED, LAUNCHED, REGISTERED},
    duration::{DurationOrNever, GoDuration},
    nodepool::thirty_days,
    requirement::{NodeClassReference, NodeSelectorRequirement},
    schema,
};

/// The node that is requested. It cannot be changed once it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodeClaim",
    plural = "nodeclaims",
    category = "karpenter",
    doc = "NodeClaim is one node: the request to the provider, and its result.",
    status = "NodeClaimStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = r".metadata.labels.node\.kubernetes\.io/instance-type"
    ),
    printcolumn(
        name = "Capacity",
        type_ = "string",
        json_path = r".metadata.labels.karpenter\.sh/capacity-type"
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = r".metadata.labels.topology\.kubernetes\.io/zone"
    ),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "ImageID", type_ = "string", json_path = ".status.imageID", priority = 1),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.providerID", priority = 1),
    printcolumn(
        name = "NodePool",
        type_ = "string",
        json_path = r".metadata.labels.karpenter\.sh/nodepool",
        priority = 1
    ),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.nodeClassRef.name",
        priority = 1
    ),
    printcolumn(
        name = "Drifted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Drifted")].status"#,
        priority = 1
    ),
    crates(kube_core = "::kube_core")
)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("self == oldSelf").message("spec is immutable"),
)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSpec {
    /// Taints of the node for as long as it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Option<Vec<Taint>>,

    /// Taints that the node starts with and that another component removes soon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taints")]
    pub startup_taints: Option<Vec<Taint>>,

    /// Conditions on the labels of the node, all of which must hold. The provider chooses among the
    /// instance types that they leave.
    #[schemars(schema_with = "schema::node_claim_requirements")]
    pub requirements: Vec<NodeSelectorRequirement>,

    /// Resources that the node must have room for.
    #[serde(default, skip_serializing_if = "ResourceRequirements::is_empty")]
    pub resources: ResourceRequirements,

    /// The object that holds the provider's own settings.
    pub node_class_ref: NodeClassReference,

    /// Longest time that the node may take to drain, counted from its deletion. When it runs out,
    /// the remaining pods are deleted, whatever protects them. Without it the time of a drain is not
    /// limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::DURATION))]
    pub termination_grace_period: Option<GoDuration>,

    /// Age at which the node is deleted, or Never.
    #[serde(default = "thirty_days")]
    #[schemars(regex(pattern = schema::DURATION_OR_NEVER))]
    pub expire_after: DurationOrNever,
}

/// Resources that a node must have room for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceRequirements {
    /// Sum of the requests of the pods for this node, DaemonSet pods included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub requests: BTreeMap<String, Quantity>,
}

impl ResourceRequirements {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// The result of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// Name of the Node, once it has registered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,

    /// The provider's name for the instance.
    #[serde(default, rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,

    /// The image that the instance was started from.
    #[serde(default, rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub image_id: String,

    /// Resources that the instance has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub capacity: BTreeMap<String, Quantity>,

    /// Resources that the instance has for pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub allocatable: BTreeMap<String, Quantity>,

    /// When a pod last came to the node or left it; consolidateAfter counts from this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_pod_event_time: Option<Time>,

    /// State of the node's launch, registration and initialization, and of its disruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_claim_conditions")]
    pub conditions: Vec<Condition>,
}

impl Conditioned for NodeClaim {
    const DEPENDENTS: &'static [&'static str] = &[LAUNCHED, REGISTERED, INITIALIZED];

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status.get_or_insert_default().conditions
    }
}

impl Default for NodeClaimSpec {
    fn default() -> Self {
        Self {
            taints: None,
            startup_taints: None,
            requirements: Vec::new(),
            resources: ResourceRequirements::default(),
            node_class_ref: NodeClassReference::default(),
            termination_grace_period: None,
            expire_after: thirty_days(),
        }
    }
}
