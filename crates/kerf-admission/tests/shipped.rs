//! Objects judged by the definitions that Kerf ships.

use kerf_admission::{CustomSchema, Definitions};
use serde_json::{Value, json};

#[test]
fn objects_are_judged_by_the_definitions_that_are_shipped() {
    let shipped = kerf_provider_kwok::crds();
    for version in shipped.iter().flat_map(|crd| &crd.spec.versions) {
        CustomSchema::shared(&serde_json::to_value(version).unwrap()).unwrap();
    }
    let shipped = Definitions::of(&shipped);
    let pool = |spec: Value| {
        let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "d"});
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}},
        });
        json_patch::merge(&mut pool["spec"], &spec);
        pool
    };
    let check = |object: Value, expected: &[&str]| {
        let found: Vec<_> = shipped.faults(&object).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    };
    check(pool(json!({})), &[]);
    check(pool(json!({"replicas": 2_000_000_000})), &[]);
    check(pool(json!({"replicas": -5})), &["spec.replicas: Invalid value: -5: "]);
    check(pool(json!({"weight": 1000})), &["spec.weight: Invalid value: 1000: "]);
    check(
        pool(json!({"replicas": 1, "weight": 5})),
        &["spec: Invalid value: \"object\": 'weight' is not supported on static NodePools"],
    );
    check(
        pool(
            json!({"disruption": {"consolidationSavingsTreshold": 1, "budgets": [{"node": "1"}]}}),
        ),
        &[
            "unknown field \"spec.disruption.budgets[0].node\"",
            "unknown field \"spec.disruption.consolidationSavingsTreshold\"",
        ],
    );
    check(json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodes": 1}}), &[]);
}
