//! Objects as the API server sends them, read into the types and written back.
#![allow(clippy::unwrap_used, reason = "tests")]

use kerf_api::{DurationOrNever, NodeClaim, NodePool, crds_without_provider};
use serde_json::{Value, json};

fn smallest_pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "default" },
        "spec": { "template": { "spec": {
            "requirements": [],
            "nodeClassRef": { "group": "g", "kind": "k", "name": "n" },
        }}},
    })
}

/// The defaults of the CRD at that place of the schema, those of its parts filled in.
fn defaults(crd: usize, path: &str) -> Value {
    fn filled(schema: &Value) -> Option<Value> {
        let mut value = schema.get("default").cloned();
        let fields = schema.get("properties").and_then(Value::as_object);
        for (name, field) in fields.into_iter().flatten() {
            if let (Some(Value::Object(value)), Some(field)) = (&mut value, filled(field)) {
                value.entry(name).or_insert(field);
            }
        }
        value
    }
    let crd = serde_json::to_value(&crds_without_provider()[crd]).unwrap();
    filled(crd.pointer(&format!("/spec/versions/0/schema/openAPIV3Schema{path}")).unwrap()).unwrap()
}

#[test]
fn pools_have_the_defaults_of_the_crd() {
    let pool: NodePool = serde_json::from_value(smallest_pool()).unwrap();
    assert_eq!(
        serde_json::to_value(&pool.spec.disruption).unwrap(),
        defaults(0, "/properties/spec/properties/disruption")
    );
    assert_eq!(
        serde_json::to_value(&pool.spec.template.spec.expire_after).unwrap(),
        defaults(0, "/properties/spec/properties/template/properties/spec/properties/expireAfter")
    );
    let empty: NodePool = serde_json::from_value({
        let mut pool = smallest_pool();
        pool["spec"]["disruption"] = json!({});
        pool
    })
    .unwrap();
    assert_eq!(empty, pool);
}

#[test]
fn claims_have_the_defaults_of_the_crd() {
    let claim: NodeClaim = serde_json::from_value(json!({
        "metadata": { "name": "a" },
        "spec": smallest_pool()["spec"]["template"]["spec"],
    }))
    .unwrap();
    let written = serde_json::to_value(&claim.spec.expire_after).unwrap();
    assert_eq!(written, defaults(1, "/properties/spec/properties/expireAfter"));
}

#[test]
fn pools_are_written_as_they_were_read() {
    let mut written = smallest_pool();
    written["spec"] = json!({
        "replicas": 3,
        "limits": { "nodes": "5" },
        "template": {
            "metadata": { "labels": {}, "annotations": { "a": "b" } },
            "spec": {
                "taints": [],
                "startupTaints": [{ "key": "a", "effect": "NoSchedule" }],
                "requirements": [
                    { "key": "team", "operator": "In", "values": ["a", "b"], "minValues": 2 },
                    { "key": "size", "operator": "Lte", "values": ["5"] },
                ],
                "nodeClassRef": { "group": "g", "kind": "k", "name": "n" },
                "terminationGracePeriod": "60m",
                "expireAfter": "Never",
            },
        },
        "disruption": {
            "consolidateAfter": "30s",
            "consolidationPolicy": "Balanced",
            "consolidationUtilizationThreshold": 0.5,
            "consolidationPriceImprovementFactor": 0.8,
            "consolidationSavingsThreshold": 0.01,
            "consolidationGracePeriod": "1h",
            "budgets": [
                { "nodes": "0", "schedule": "@daily", "duration": "10m", "reasons": ["Empty", "Unhealthy"] },
                { "nodes": "10%", "reasons": [] },
            ],
        },
    });
    let read: NodePool = serde_json::from_value(written.clone()).unwrap();
    assert!(read.is_static());
    assert_eq!(serde_json::to_value(read).unwrap(), written);
}

#[test]
fn claims_are_written_as_they_were_read() {
    let written = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": { "name": "a" },
        "spec": {
            "taints": [{ "key": "a", "value": "b", "effect": "NoExecute" }],
            "requirements": [{ "key": "team", "operator": "Exists" }],
            "resources": { "requests": { "cpu": "1500m" } },
            "nodeClassRef": { "group": "g", "kind": "k", "name": "n" },
            "expireAfter": "720h",
        },
        "status": {
            "nodeName": "node",
            "providerID": "example://node",
            "imageID": "image",
            "capacity": { "cpu": "2" },
            "allocatable": { "cpu": "1900m" },
            "lastPodEventTime": "2026-01-01T00:00:00Z",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
            }],
        },
    });
    let read: NodeClaim = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), written);
}

#[test]
fn quantities_may_be_written_as_numbers() {
    let mut pool = smallest_pool();
    pool["spec"]["limits"] = json!({ "cpu": 10, "memory": "1Gi" });
    let pool: NodePool = serde_json::from_value(pool).unwrap();
    assert_eq!(pool.spec.limits["cpu"].0, "10");
}

#[test]
fn fields_of_later_versions_are_passed_over() {
    let mut pool = smallest_pool();
    pool["spec"]["disruption"] = json!({ "consolidateAfter": "Never", "later": true });
    let pool: NodePool = serde_json::from_value(pool).unwrap();
    assert_eq!(pool.spec.disruption.consolidate_after, DurationOrNever::Never);
}
