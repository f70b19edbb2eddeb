//! `NodeOverlay`: what a user knows about instance types and the provider does not, such as a discount or a device.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::{Conditioned, VALIDATION_SUCCEEDED},
    labels::LabelRules,
    requirement::{NodeSelectorRequirement, Operator},
    schema,
    validation::{InvalidRequirement, validate_requirement},
};

/// The instance types that this is about, and what is different about them. Alpha.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1alpha1",
    kind = "NodeOverlay",
    plural = "nodeoverlays",
    shortname = "overlays",
    category = "karpenter",
    doc = "NodeOverlay changes what decisions take for the price and the capacity of instance types.",
    status = "NodeOverlayStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
    crates(kube_core = "::kube_core")
)]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.price) || !has(self.priceAdjustment)")
        .message("cannot set both 'price' and 'priceAdjustment'"),
)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlaySpec {
    /// Which instance types and offerings this is about: conditions on their labels, all of which
    /// must hold. A label that neither the instance type nor the labels of the NodePool's template
    /// have fits no condition that needs a value.
    #[schemars(schema_with = "schema::node_overlay_requirements")]
    pub requirements: Vec<NodeSelectorRequirement>,

    /// The price per hour, in the unit of the provider's prices. It replaces the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::OVERLAY_PRICE))]
    pub price: Option<String>,

    /// How the provider's price changes: by an amount such as +0.02 or -0.02, or by a percentage
    /// such as +10% or -30%. No price becomes less than 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::PRICE_ADJUSTMENT))]
    pub price_adjustment: Option<String>,

    /// Further resources of a node, such as those of a device plugin. Cpu, memory, ephemeral-storage
    /// and pods cannot be set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::overlay_capacity")]
    pub capacity: BTreeMap<String, Quantity>,

    /// Of several overlays that say something about the same price or resource the one with the
    /// highest weight counts; no weight counts as 0. Overlays of the same weight must not do so: the
    /// one whose name sorts first is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub weight: Option<i32>,
}

/// What became of the overlay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlayStatus {
    /// Whether the overlay is applied, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl Conditioned for NodeOverlay {
    const DEPENDENTS: &'static [&'static str] = &[VALIDATION_SUCCEEDED];

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status.get_or_insert_default().conditions
    }
}

/// Everything that is wrong with a NodeOverlay by itself.
///
/// It prints as the message of the `ValidationSucceeded` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNodeOverlay(pub Vec<NodeOverlayProblem>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeOverlayProblem {
    #[error("invalid value: {0} in requirements, restricted")]
    Requirement(InvalidRequirement),
    #[error("key {0} with operator NotIn must have a value defined")]
    NoValue(String),
    #[error("invalid capacity: {0} in resource, restricted")]
    Capacity(String),
    #[error("invalid capacity: {0}")]
    Amount(String),
    #[error("invalid price: {0}")]
    Price(String),
    #[error("cannot set both 'price' and 'priceAdjustment'")]
    TwoPrices,
}

/// Checks what the CRD does not: labels and values that depend on the provider. Reports all that is wrong at once.
pub fn validate_node_overlay(
    spec: &NodeOverlaySpec,
    rules: &LabelRules,
) -> Result<(), InvalidNodeOverlay> {
    let mut problems = Vec::new();
    for requirement in &spec.requirements {
        let checked = validate_requirement(requirement.into(), rules);
        problems.extend(checked.err().map(NodeOverlayProblem::Requirement));
        if requirement.operator == Operator::NotIn && requirement.values.is_empty() {
            problems.push(NodeOverlayProblem::NoValue(requirement.key.clone()));
        }
    }
    let restricted = |resource: &&String| rules.well_known_resources().contains(*resource);
    let restricted = spec.capacity.keys().filter(restricted);
    problems.extend(restricted.cloned().map(NodeOverlayProblem::Capacity));
    if spec.price.is_some() && spec.price_adjustment.is_some() {
        problems.push(NodeOverlayProblem::TwoPrices);
    }
    if problems.is_empty() { Ok(()) } else { Err(InvalidNodeOverlay(problems)) }
}

impl fmt::Display for InvalidNodeOverlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidNodeOverlay {}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_the_definition_cannot_know_is_checked() {
        let rules = LabelRules::default().knowing_resources(["example.com/gpu"]);
        // `...` stands for a list of labels.
        let check = |spec: Value, expected: &[&str]| {
            let spec: NodeOverlaySpec = serde_json::from_value(spec).unwrap();
            let found = match validate_node_overlay(&spec, &rules) {
                Ok(()) => Vec::new(),
                Err(InvalidNodeOverlay(problems)) => {
                    problems.iter().map(ToString::to_string).collect()
                }
            };
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                let (start, end) = expected.split_once("...").unwrap_or((expected, ""));
                assert!(found.starts_with(start) && found.ends_with(end), "{found}");
            }
        };
        let about = |key: &str, operator: &str, values: &[&str]| json!({"requirements": [{"key": key, "operator": operator, "values": values}]});
        check(json!({"requirements": []}), &[]);
        check(about("team", "In", &["a"]), &[]);
        check(about("karpenter.sh/capacity-type", "In", &["spot"]), &[]);
        check(about("karpenter.sh/nodepool", "In", &["a"]), &[]);
        check(
            about("karpenter.sh/capacity-type", "In", &["gold"]),
            &["invalid value: no valid values found in [gold]... in requirements, restricted"],
        );
        check(
            about("karpenter.sh/registered", "Exists", &[]),
            &["invalid value: using label karpenter.sh/registered... in requirements, restricted"],
        );
        check(
            about("team", "NotIn", &[]),
            &["key team with operator NotIn must have a value defined"],
        );
        let capacity = |name: &str| json!({"requirements": [], "capacity": {name: "1"}});
        check(capacity("example.com/fpga"), &[]);
        check(capacity("cpu"), &["invalid capacity: cpu in resource, restricted"]);
        check(
            capacity("example.com/gpu"),
            &["invalid capacity: example.com/gpu in resource, restricted"],
        );
        check(
            json!({"requirements": [], "price": "1", "priceAdjustment": "+1"}),
            &["cannot set both 'price' and 'priceAdjustment'"],
        );
    }
}
