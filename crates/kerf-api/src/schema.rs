//! The parts of the CRD schemas that the types alone do not express: patterns, bounds, list types
//! and CEL rules.

use kube_core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::{
    nodepool::{Budget, DisruptionReason},
    requirement::NodeSelectorRequirement,
};

pub const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const REASON_OR_NONE: &str = "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$";

pub const DURATION: &str = "^([0-9]+(s|m|h))+$";
pub(crate) const DURATION_OR_NEVER: &str = "^(([0-9]+(s|m|h))+|Never)$";
pub(crate) const BUDGET_NODES: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";
pub(crate) const BUDGET_DURATION: &str = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
/// The anchors bind to one alternative each, so `@dailyxyz` passes. Kept: what Karpenter accepts,
/// Kerf accepts.
pub(crate) const BUDGET_SCHEDULE: &str =
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";

pub(crate) const OVERLAY_PRICE: &str = r"^\d+(\.\d+)?$";
pub(crate) const PRICE_ADJUSTMENT: &str =
    r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$";

pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        },
    })
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

pub(crate) fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "description": "A mark on the node. Pods that do not tolerate it are not placed there.",
            "required": ["effect", "key"],
            "properties": {
                "key": {
                    "description": "Name of the taint.",
                    "type": "string",
                    "minLength": 1,
                    "pattern": QUALIFIED_NAME,
                },
                "value": {
                    "description": "Value that tolerations may be compared with.",
                    "type": "string",
                    "pattern": QUALIFIED_NAME,
                },
                "effect": {
                    "description": "What happens to pods that do not tolerate the taint: NoSchedule keeps new pods away, PreferNoSchedule does so while there is room elsewhere, NoExecute also evicts running pods.",
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "timeAdded": {
                    "description": "When the taint was added.",
                    "type": "string",
                    "format": "date-time",
                },
            },
        },
    })
}

pub(crate) fn node_class_group(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": "^[^/]*$",
        "x-kubernetes-validations": [not_empty("group")],
    })
}

pub(crate) fn node_class_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "x-kubernetes-validations": [not_empty("kind")] })
}

pub(crate) fn node_class_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "x-kubernetes-validations": [not_empty("name")] })
}

fn not_empty(field: &str) -> Rule {
    Rule::new("self != ''").message(format!("{field} may not be empty").as_str())
}

/// NodePools may not constrain which pool a node belongs to; NodeClaims say it.
pub(crate) fn node_pool_requirements(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = node_claim_requirements(generator);
    let rules = schema.pointer_mut("/items/properties/key/x-kubernetes-validations");
    if let Some(Value::Array(rules)) = rules {
        rules.insert(1, json!(is_not("self", "karpenter.sh/nodepool")));
    }
    schema
}

pub(crate) fn node_claim_requirements(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "x-kubernetes-list-type": "atomic",
        "items": generator.subschema_for::<NodeSelectorRequirement>(),
        "x-kubernetes-validations": [
            Rule::new("self.all(r, r.operator != 'In' || (has(r.values) && size(r.values) > 0))")
                .message("requirements with operator 'In' must have a value defined"),
            Rule::new("self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(r.values) && size(r.values) == 1 && int(r.values[0]) >= 0))")
                .message("requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value"),
            Rule::new("self.all(r, r.operator != 'In' || !has(r.minValues) || (has(r.values) && size(r.values) >= r.minValues))")
                .message("requirements with 'minValues' must have at least that many values specified in the 'values' field"),
        ],
    })
}

/// Requirements of overlays have no `minValues`, and `NotIn` needs a value.
pub(crate) fn node_overlay_requirements(generator: &mut SchemaGenerator) -> Schema {
    let mut item = generator.subschema_for::<NodeSelectorRequirement>();
    if let Some(Value::Object(properties)) = item.pointer_mut("/properties") {
        properties.remove("minValues");
    }
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "x-kubernetes-list-type": "atomic",
        "items": item,
        "x-kubernetes-validations": [
            Rule::new("self.all(r, r.operator != 'NotIn' || (has(r.values) && size(r.values) > 0))")
                .message("requirements with operator 'NotIn' must have a value defined"),
            Rule::new("self.all(r, r.operator != 'In' || (has(r.values) && size(r.values) > 0))")
                .message("requirements with operator 'In' must have a value defined"),
            Rule::new("self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(r.values) && size(r.values) == 1 && int(r.values[0]) >= 0))")
                .message("requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value"),
        ],
    })
}

/// What the scheduler itself counts with belongs to the provider.
pub(crate) fn overlay_capacity(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = quantities(generator);
    let rule =
        Rule::new("self.all(name, !(name in ['cpu', 'memory', 'ephemeral-storage', 'pods']))");
    let rules = json!([rule.message("invalid resource restricted")]);
    schema.insert("x-kubernetes-validations".to_owned(), rules);
    schema
}

pub(crate) fn requirement_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 316,
        "pattern": QUALIFIED_NAME,
        "x-kubernetes-validations": [
            outside_of_karpenter("self"),
            is_not("self", "kubernetes.io/hostname"),
        ],
    })
}

/// Karpenter's CRDs carry the length and the pattern of a label value at this place, where they
/// check nothing because a list is not a string. They are left as they are: on the items they would
/// turn away objects that Karpenter accepts.
pub(crate) fn requirement_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "string" },
        "x-kubernetes-list-type": "atomic",
        "maxLength": 63,
        "pattern": LABEL_VALUE,
    })
}

pub(crate) fn min_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1, "maximum": 50 })
}

pub(crate) fn template_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "maxProperties": 100,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
        "x-kubernetes-validations": [
            every_key(outside_of_karpenter("key")),
            every_key(is_not("key", "karpenter.sh/nodepool")),
            every_key(is_not("key", "kubernetes.io/hostname")),
        ],
    })
}

/// A rule about the variable `key`, for all keys of a map.
pub(crate) fn every_key(rule: Rule) -> Rule {
    Rule { rule: format!("self.all(key, {})", rule.rule), ..rule }
}

pub(crate) fn template_annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "granular",
        "additionalProperties": { "type": "string" },
    })
}

fn outside_of_karpenter(key: &str) -> Rule {
    outside_of_domain(key, "karpenter.sh", &["karpenter.sh/capacity-type", "karpenter.sh/nodepool"])
}

/// The key (the name of a CEL variable) is one of those allowed, or its part before the first slash
/// does not end with the domain. A plain suffix, as in Karpenter: `notkarpenter.sh/x` is refused
/// too.
pub(crate) fn outside_of_domain(key: &str, domain: &str, allowed: &[&str]) -> Rule {
    let allowed = json!(allowed);
    Rule::new(format!("{key} in {allowed} || !{key}.split('/')[0].endsWith('{domain}')"))
        .message(format!("label domain \"{domain}\" is restricted").as_str())
}

fn is_not(key: &str, label: &str) -> Rule {
    Rule::new(format!("{key} != '{label}'"))
        .message(format!("label \"{label}\" is restricted").as_str())
}

pub(crate) fn budgets(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 50,
        "x-kubernetes-list-type": "atomic",
        "items": generator.subschema_for::<Budget>(),
        "x-kubernetes-validations": [
            Rule::new("self.all(budget, has(budget.schedule) == has(budget.duration))")
                .message("'schedule' must be set with 'duration'"),
        ],
    })
}

pub(crate) fn budget_reasons(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 50,
        "x-kubernetes-list-type": "set",
        "items": generator.subschema_for::<DisruptionReason>(),
    })
}

pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = plain_conditions(generator);
    schema.insert("x-kubernetes-list-type".to_owned(), json!("map"));
    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(["type"]));
    schema
}

/// NodeClaims were written without reasons and messages by early versions of Karpenter; such
/// objects stay valid.
pub(crate) fn node_claim_conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = conditions(generator);
    if let Some(Value::Object(item)) = schema.get_mut("items") {
        item.insert("required".to_owned(), json!(["lastTransitionTime", "status", "type"]));
    }
    if let Some(Value::Object(reason)) = schema.pointer_mut("/items/properties/reason") {
        reason.remove("minLength");
        reason.insert("pattern".to_owned(), json!(REASON_OR_NONE));
    }
    schema
}

/// A plain list: several conditions of one type are not refused here, unlike in the other kinds.
pub fn plain_conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "One aspect of the state of the object.",
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "description": "Which aspect this is.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": CONDITION_TYPE,
                },
                "status": {
                    "description": "Whether it holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, in one word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": REASON,
                },
                "message": {
                    "description": "Why, in a sentence for people.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The metadata.generation of the object that this condition describes. If the object has a newer generation, the condition is out of date.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}
