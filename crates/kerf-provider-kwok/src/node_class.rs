//! `KWOKNodeClass`: settings of the KWOK provider, whose nodes exist in the API server only.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube_core::CustomResourceExt;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use crate::labels;

use kerf_api::{
    GoDuration,
    conditions::Conditioned,
    crd::{self, Additions},
    schema,
};
use kerf_provider::NodeClassKind;

pub const GROUP: &str = "karpenter.kwok.sh";
pub const KIND: &str = "KWOKNodeClass";

/// How simulated nodes come up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema, CustomResource)]
#[kube(
    group = "karpenter.kwok.sh",
    version = "v1alpha1",
    kind = "KWOKNodeClass",
    root = "KwokNodeClass",
    plural = "kwoknodeclasses",
    category = "karpenter",
    shortname = "kwoknc",
    shortname = "kwokncs",
    doc = "KWOKNodeClass holds the settings of simulated nodes.",
    status = "KwokNodeClassStatus",
    derive = "PartialEq",
    derive = "Default",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct KwokNodeClassSpec {
    /// Time between the launch of an instance and the appearance of its Node; none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::DURATION))]
    pub node_registration_delay: Option<GoDuration>,
}

/// The whole spec may be left out, which a derived implementation on the generated root type would
/// refuse.
impl<'de> Deserialize<'de> for KwokNodeClassSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Written {
            node_registration_delay: Option<GoDuration>,
        }
        let written = Option::<Written>::deserialize(deserializer)?.unwrap_or_default();
        Ok(Self { node_registration_delay: written.node_registration_delay })
    }
}

/// Whether the settings can be used. Nothing reconciles them: they are ready from the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KwokNodeClassStatus {
    /// Whether the settings can be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::plain_conditions")]
    pub conditions: Vec<Condition>,
}

impl Conditioned for KwokNodeClass {
    const DEPENDENTS: &'static [&'static str] = &[];

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status.get_or_insert_default().conditions
    }
}

/// The core's CRDs with this provider's labels reserved, and its own.
pub fn crds() -> Vec<CustomResourceDefinition> {
    crd::crds(&[additions()])
}

pub(crate) fn additions() -> Additions<'static> {
    Additions {
        node_classes: vec![node_class()],
        domain: labels::DOMAIN,
        labels_in_requirements: &labels::IN_REQUIREMENTS,
        restricts_template_labels: false,
    }
}

pub(crate) fn kind() -> NodeClassKind {
    NodeClassKind {
        group: GROUP.to_owned(),
        version: "v1alpha1".to_owned(),
        kind: KIND.to_owned(),
        plural: "kwoknodeclasses".to_owned(),
    }
}

fn node_class() -> CustomResourceDefinition {
    let mut crd = crd::mended(KwokNodeClass::crd());
    let Some(root) = crd::root(&mut crd) else { return crd };
    root.required = None;
    if let Some(status) = crd::at(root, &["status"]) {
        // Nothing reconciles a KWOKNodeClass. Ready from the start, it needs nothing that does.
        status.default = Some(JSON(json!({ "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "lastTransitionTime": "2024-01-01T01:01:01Z",
            "message": "",
        }]})));
    }
    crd
}
