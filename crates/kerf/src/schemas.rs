//! The JSON schemas in docs/schemas are those of what the commands print.
//!
//! After a change, `cargo xtask generate` writes them anew (by setting `KERF_WRITE_GENERATED`).
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::{collections::BTreeMap, fs, path::Path};

use kerf_shadow::Report;
use kerf_simulation::{Comparison, Summary};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::{
    demo::DemoComparison,
    explain::{node, pod, pool},
    output::{API_VERSION, Answer},
    plan::{DisruptionReport, PlanReport},
    top::Document,
    version::ThisBinary,
};

#[test]
fn the_schemas_are_those_of_the_answers() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let write = std::env::var_os("KERF_WRITE_GENERATED").is_some();
    let schemas: BTreeMap<String, String> = [
        schema::<PlanReport>(),
        schema::<DisruptionReport>(),
        schema::<node::Report>(),
        schema::<pool::Report>(),
        schema::<pod::Report>(),
        schema::<Comparison>(),
        schema::<Summary>(),
        schema::<Report>(),
        schema::<DemoComparison>(),
        schema::<Document<'_>>(),
        schema::<ThisBinary>(),
    ]
    .into();
    let mut stale = Vec::new();
    for (name, wanted) in &schemas {
        let file = directory.join(name);
        if write {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&file, wanted).unwrap();
        }
        if fs::read_to_string(&file).is_ok_and(|found| found == *wanted) {
            continue;
        }
        stale.push(name);
    }
    assert!(stale.is_empty(), "stale in docs/schemas: {stale:?}; run cargo xtask generate");
    let there = fs::read_dir(&directory).unwrap().count();
    assert_eq!(there, schemas.len(), "delete what is no longer generated");
}

/// The file for an answer, and what is in it.
fn schema<A: Answer + JsonSchema>() -> (String, String) {
    let generator = SchemaGenerator::new(SchemaSettings::draft2020_12().for_serialize());
    let mut schema = json!(generator.into_root_schema_for::<A>());
    schema["title"] = A::KIND.into();
    schema["properties"]["apiVersion"] = json!({"const": API_VERSION});
    schema["properties"]["kind"] = json!({"const": A::KIND});
    if let Value::Array(required) = &mut schema["required"] {
        required.splice(..0, [json!("apiVersion"), json!("kind")]);
    }
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    (format!("{}.json", A::KIND), text)
}
