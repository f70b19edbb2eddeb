//! `CapacityBuffer`: room that is kept free for pods to come. The API is shared with other autoscalers.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, Time},
    },
};
use kube_core::CustomResourceExt;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{conditions::Status, crd, schema};

/// The only strategy there is. Other values are accepted and treated alike.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// Whether the pods of a buffer are known.
pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
/// Whether there is room for all of them.
pub const PROVISIONING: &str = "Provisioning";
/// Whether the limits of NodePools are what keeps room from them.
pub const LIMITED_BY_QUOTAS: &str = "LimitedByQuotas";

/// Room for pods to come: how many, and of which shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1beta1",
    kind = "CapacityBuffer",
    plural = "capacitybuffers",
    shortname = "cb",
    category = "autoscaling",
    namespaced,
    doc = "CapacityBuffer keeps room free in the cluster for pods that are yet to come.",
    status = "CapacityBufferStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Strategy",
        type_ = "string",
        description = "The strategy that was asked for.",
        json_path = ".spec.provisioningStrategy"
    ),
    printcolumn(
        name = "PodTemplate",
        type_ = "string",
        description = "The PodTemplate that the pods are made from.",
        json_path = ".status.podTemplateRef.name"
    ),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        description = "Number of pods that room is kept for.",
        json_path = ".status.replicas"
    ),
    printcolumn(
        name = "ConditionsType",
        type_ = "string",
        description = "Aspects of the state.",
        json_path = ".status.conditions[*].type"
    ),
    printcolumn(
        name = "ConditionsStatus",
        type_ = "string",
        description = "Whether they hold.",
        json_path = ".status.conditions[*].status"
    ),
    printcolumn(
        name = "ConditionsReason",
        type_ = "string",
        description = "Why they are so.",
        json_path = ".status.conditions[*].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        description = "Time since the buffer was created.",
        json_path = ".metadata.creationTimestamp"
    ),
    crates(kube_core = "::kube_core")
)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)")
        .message("If podTemplateRef is set, replicas or limits must also be set"),
    validation = Rule::new("has(self.podTemplateRef) != has(self.scalableRef)")
        .message("You must define either PodTemplateRef or ScalableRef, but not both"),
)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferSpec {
    /// How the room is kept.
    #[serde(default = "active_capacity")]
    pub provisioning_strategy: String,

    /// A PodTemplate of the same namespace that says what the pods look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<PodTemplateReference>,

    /// A workload of the same namespace whose pods these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableReference>,

    /// Number of pods to keep room for. With percentage the larger number counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,

    /// Share of the workload's replicas to keep room for, rounded up. A workload without replicas
    /// gets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub percentage: Option<i32>,

    /// Most of each resource that the pods may request together. Without replicas and percentage
    /// there are as many pods as this allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantities")]
    pub limits: Option<BTreeMap<String, Quantity>>,
}

/// A PodTemplate of the buffer's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PodTemplateReference {
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A workload of the buffer's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalableReference {
    /// Its group; apps if it is empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_group: String,

    /// Deployment, StatefulSet or ReplicaSet.
    pub kind: String,

    /// Its name.
    pub name: String,
}

/// What became of the buffer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferStatus {
    /// The PodTemplate that the pods are made from; none for those of a workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<PodTemplateReference>,

    /// Generation of that PodTemplate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,

    /// Number of pods that room is kept for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// The strategy that is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,

    /// Whether the pods are known, and whether there is room for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl CapacityBuffer {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
    }

    /// Says how an aspect of the state is. The time is kept where that was so before.
    pub fn set_condition(
        &mut self,
        kind: &str,
        (status, reason, message): (Status, &str, &str),
        now: Timestamp,
    ) {
        let known = self.condition(kind).filter(|known| known.status == status.as_str());
        let since = known.map_or(Time(now), |known| known.last_transition_time.clone());
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: since,
            observed_generation: self.metadata.generation,
        };
        let conditions = &mut self.status.get_or_insert_default().conditions;
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        }
    }
}

fn active_capacity() -> String {
    ACTIVE_CAPACITY.to_owned()
}

/// The definition of the kind.
pub fn definition() -> CustomResourceDefinition {
    crd::mended(CapacityBuffer::crd())
}
