//! `NodePool`: the shape of nodes, their limits, and how they are disrupted.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition},
};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::{Conditioned, NODE_CLASS_READY, VALIDATION_SUCCEEDED},
    duration::{DurationOrNever, GoDuration},
    requirement::{NodeClassReference, NodeSelectorRequirement},
    schema,
};

/// Shape of the nodes of this pool, and how the pool launches, replaces and removes nodes. Nodes
/// are launched for pods that have no place, or, with `replicas`, in a fixed number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    plural = "nodepools",
    category = "karpenter",
    doc = "NodePool describes a kind of node that may be launched for pods, and how such nodes are replaced and removed.",
    status = "NodePoolStatus",
    derive = "PartialEq",
    derive = "Default",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.nodes"),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.template.spec.nodeClassRef.name"
    ),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
    printcolumn(name = "CPU", type_ = "string", json_path = ".status.resources.cpu", priority = 1),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".status.resources.memory",
        priority = 1
    ),
    crates(kube_core = "::kube_core")
)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("has(self.replicas) == has(oldSelf.replicas)")
        .message("Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes"),
    validation = Rule::new("!has(self.replicas) || !has(self.limits) || size(self.limits) <= ('nodes' in self.limits ? 1 : 0)")
        .message("only 'limits.nodes' is supported on static NodePools"),
    validation = Rule::new("!(has(self.replicas) && has(self.weight))")
        .message("'weight' is not supported on static NodePools"),
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Shape of the nodes. A NodeClaim is usually narrower than this: it also has to suit the
    /// pods that it is launched for.
    pub template: NodeClaimTemplate,

    /// When and how fast nodes of this pool may be removed or replaced.
    #[serde(default)]
    #[schemars(extend("default" = { "consolidateAfter": "0s" }))]
    pub disruption: Disruption,

    /// Most of each resource that the nodes of this pool may have together, e.g. cpu, memory,
    /// nodes. Nothing is launched that would exceed it. With `replicas` only nodes may be limited.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub limits: BTreeMap<String, Quantity>,

    /// Pools with a higher weight are tried first; no weight counts as 0. Cannot be combined with
    /// `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<i32>,

    /// Number of nodes that the pool keeps, whether pods need them or not. A pool with this field is
    /// static: its nodes are never consolidated, so consolidationPolicy, consolidateAfter and all
    /// other consolidation settings have no effect. Weight cannot be set, and of the limits only
    /// nodes. The number can be changed (also by kubectl scale). The field cannot be added to an
    /// existing pool or removed from it. Alpha.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
}

/// Shape of the nodes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the nodes.
    #[serde(default, skip_serializing_if = "TemplateMetadata::is_empty")]
    pub metadata: TemplateMetadata,

    /// Constraints on the nodes.
    pub spec: NodeClaimTemplateSpec,
}

/// Labels and annotations of the nodes of a pool.
///
/// An empty map and no map are kept apart because the drift hash tells them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Labels that every node of the pool gets. Pods can select nodes by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::template_labels")]
    pub labels: Option<BTreeMap<String, String>>,

    /// Annotations that every node of the pool gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::template_annotations")]
    pub annotations: Option<BTreeMap<String, String>>,
}

impl TemplateMetadata {
    fn is_empty(&self) -> bool {
        self.labels.is_none() && self.annotations.is_none()
    }
}

/// Constraints on the nodes of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Taints of the nodes for as long as they live. Only pods that tolerate them are placed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Option<Vec<Taint>>,

    /// Taints that the nodes start with and that another component, typically a DaemonSet, removes
    /// soon. Pods need not tolerate them for a node to be launched, but the node counts as
    /// initialized only when they are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taints")]
    pub startup_taints: Option<Vec<Taint>>,

    /// Which nodes may be launched: conditions on their labels (instance type, zone, architecture,
    /// capacity type, or labels of your own), all of which must hold.
    #[schemars(schema_with = "schema::node_pool_requirements")]
    pub requirements: Vec<NodeSelectorRequirement>,

    /// The object that holds the provider's own settings. Its group and kind cannot be changed
    /// later, its name can.
    #[x_kube(
        validation = Rule::new("self.group == oldSelf.group").message("nodeClassRef.group is immutable"),
        validation = Rule::new("self.kind == oldSelf.kind").message("nodeClassRef.kind is immutable"),
    )]
    pub node_class_ref: NodeClassReference,

    /// Longest time that a node may take to drain, counted from its deletion. When it runs out, the
    /// remaining pods are deleted, whatever their disruption budgets, their
    /// karpenter.sh/do-not-disrupt annotation or their own grace period. A pod is deleted early
    /// enough to have its own grace period within this time. Nodes of a pool with this setting may
    /// also be replaced because of drift while such pods block eviction. Without it the time of a
    /// drain is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::DURATION))]
    pub termination_grace_period: Option<GoDuration>,

    /// Age at which a node is deleted, or Never.
    #[serde(default = "thirty_days")]
    #[schemars(regex(pattern = schema::DURATION_OR_NEVER))]
    pub expire_after: DurationOrNever,
}

/// The largest `consolidationSavingsThreshold`. No node costs as much per hour, so a larger value would have no other effect.
pub const MAX_SAVINGS_THRESHOLD: u32 = 100_000;

/// When and how fast nodes of a pool may be removed or replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Time without a pod that came or went after which a node may be consolidated, or Never.
    /// Static pools ignore it.
    #[serde(default = "at_once")]
    #[schemars(regex(pattern = schema::DURATION_OR_NEVER))]
    pub consolidate_after: DurationOrNever,

    /// Which nodes consolidation may remove. WhenEmpty: nodes without pods that would have to move.
    /// WhenEmptyOrUnderutilized: also nodes whose pods fit on other nodes, or on a cheaper node.
    /// Balanced: as WhenEmptyOrUnderutilized, if the savings outweigh the disruption of pods.
    /// Static pools ignore it.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,

    /// How many nodes of the pool may be disrupted at a time. The strictest active budget counts.
    #[serde(default = "ten_percent")]
    #[schemars(schema_with = "schema::budgets")]
    pub budgets: Vec<Budget>,

    /// Consolidation leaves a node with pods alone while the average of its requested share of CPU
    /// and of memory is above this (0 to 1). 1 switches the check off. It does not protect nodes that
    /// are drifted or in the last tenth of their lifetime. Default: the operator's
    /// --scaledown-utilization-threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub consolidation_utilization_threshold: Option<f64>,

    /// The replacement of a consolidation has to cost less than this share (0 to 1) of the price of
    /// the nodes that it replaces. With 0.8 it has to save more than a fifth, with 1 anything at all,
    /// and with 0 nothing is replaced. Removals without a replacement are not affected. Default: the
    /// operator's --consolidation-price-improvement-factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub consolidation_price_improvement_factor: Option<f64>,

    /// Alpha: the field may change or be removed in any release. Amount that a consolidation must save
    /// per hour (in the unit of the provider's prices, at most 100000) for each unit of disruption
    /// cost. A unit is about one pod. 0 switches the check off. Default: the operator's
    /// --consolidation-savings-threshold, or 0 with the policy Balanced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_SAVINGS_THRESHOLD))]
    pub consolidation_savings_threshold: Option<f64>,

    /// For this time after a pod came or went, consolidation does not remove a node and moves no
    /// pods to it. Empty nodes are removed all the same. Never switches the control off. Default: the
    /// operator's --consolidation-grace-period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::DURATION_OR_NEVER))]
    pub consolidation_grace_period: Option<DurationOrNever>,
}

/// Which nodes consolidation may remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConsolidationPolicy {
    WhenEmpty,
    #[default]
    WhenEmptyOrUnderutilized,
    Balanced,
}

impl ConsolidationPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WhenEmpty => "WhenEmpty",
            Self::WhenEmptyOrUnderutilized => "WhenEmptyOrUnderutilized",
            Self::Balanced => "Balanced",
        }
    }
}

/// How many nodes may be disrupted at a time, and when that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Number of nodes, or percentage of the nodes of the pool (rounded up), that may be disrupted
    /// at a time.
    #[schemars(regex(pattern = schema::BUDGET_NODES), extend("default" = "10%"))]
    pub nodes: String,

    /// When the budget becomes active, in cron syntax (five fields, or a name like @daily), in UTC.
    /// Needs `duration`. Without both the budget is always active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::BUDGET_SCHEDULE))]
    pub schedule: Option<String>,

    /// How long the budget is active after each hit of `schedule`, in hours and minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::BUDGET_DURATION))]
    pub duration: Option<GoDuration>,

    /// Kinds of disruption that the budget counts for; all of them if left out. A list without
    /// entries makes the budget count for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::budget_reasons")]
    pub reasons: Option<Vec<DisruptionReason>>,
}

/// Why a node is disrupted.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum DisruptionReason {
    Underutilized,
    Empty,
    Drifted,
    Unhealthy,
}

impl DisruptionReason {
    pub const ALL: [Self; 4] = [Self::Underutilized, Self::Empty, Self::Drifted, Self::Unhealthy];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Underutilized => "Underutilized",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Unhealthy => "Unhealthy",
        }
    }
}

/// What the pool has at the moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Sum of the capacity of the nodes of the pool that are not on their way out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resources: BTreeMap<String, Quantity>,

    /// Number of nodes of the pool that are not on their way out.
    #[serde(default)]
    pub nodes: i64,

    /// Generation of the NodeClass that NodeRegistrationHealthy was found for; a newer one resets
    /// that condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,

    /// Whether the pool can be used, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl NodePool {
    /// A static pool keeps a fixed number of nodes and is never consolidated.
    pub fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
    }

    /// How many nodes a static pool keeps; `None` for any other.
    pub fn replicas(&self) -> Option<u64> {
        self.spec.replicas.map(|replicas| u64::try_from(replicas).unwrap_or(0))
    }
}

impl Conditioned for NodePool {
    const DEPENDENTS: &'static [&'static str] = &[VALIDATION_SUCCEEDED, NODE_CLASS_READY];

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status.get_or_insert_default().conditions
    }
}

impl Default for NodeClaimTemplateSpec {
    fn default() -> Self {
        Self {
            taints: None,
            startup_taints: None,
            requirements: Vec::new(),
            node_class_ref: NodeClassReference::default(),
            termination_grace_period: None,
            expire_after: thirty_days(),
        }
    }
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidate_after: at_once(),
            consolidation_policy: ConsolidationPolicy::default(),
            budgets: ten_percent(),
            consolidation_utilization_threshold: None,
            consolidation_price_improvement_factor: None,
            consolidation_savings_threshold: None,
            consolidation_grace_period: None,
        }
    }
}

fn at_once() -> DurationOrNever {
    Duration::ZERO.into()
}

fn ten_percent() -> Vec<Budget> {
    vec![Budget { nodes: "10%".to_owned(), schedule: None, duration: None, reasons: None }]
}

pub(crate) fn thirty_days() -> DurationOrNever {
    DurationOrNever::hours(720)
}
