//! The parts of the CRD that the types alone do not express: patterns, bounds and CEL rules.

use kerf_api::schema::QUANTITY;
use schemars::{Schema, SchemaGenerator, json_schema};

pub(crate) const ACCOUNT_ID: &str = "^[0-9]{12}$";

/// 1 to 59000 Gi, 1 to 64000 G, 1 to 58 Ti, 1 to 64 T. Like Karpenter's, it has an empty alternative, which lets the bare
/// units `Ti` and `T` pass, and it refuses 18Ti, 19Ti, 28Ti and so on.
pub(crate) const VOLUME_SIZE: &str = "^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$";

/// Amounts that are kept free.
pub(crate) fn reserved(_: &mut SchemaGenerator) -> Schema {
    texts_like(QUANTITY)
}

/// Percentages or quantities. The empty text passes as it does in Karpenter.
pub(crate) fn thresholds(_: &mut SchemaGenerator) -> Schema {
    let quantity = QUANTITY.trim_start_matches('^').trim_end_matches('$');
    texts_like(&format!(r"^((\d{{1,2}}(\.\d{{1,2}})?|100(\.0{{1,2}})?)%||{quantity})$"))
}

fn texts_like(pattern: &str) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "pattern": pattern },
    })
}

/// For fields that are always written and have no default: schemars takes what the types read for a missing one.
pub(crate) fn without_default(schema: &mut Schema) {
    schema.remove("default");
}

pub(crate) fn requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "One condition on the labels of an instance type.",
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": { "description": "Label that the condition is about.", "type": "string" },
                "operator": {
                    "description": "How the label's value is compared with the values: In, NotIn, Exists, DoesNotExist, Gt or Lt.",
                    "type": "string",
                },
                "values": {
                    "description": "What the label's value is compared with.",
                    "type": "array",
                    "items": { "type": "string" },
                    "x-kubernetes-list-type": "atomic",
                },
            },
        },
    })
}
