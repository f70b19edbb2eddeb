//! The parts of the CRD that the types alone do not express: patterns, bounds and CEL rules.

use schemars::{Schema, SchemaGenerator, json_schema};

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
