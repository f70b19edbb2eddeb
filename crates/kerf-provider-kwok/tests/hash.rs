//! The drift hash of NodePools that refer to a KWOKNodeClass: the values that Karpenter computes for them.

use kerf_api::NodePool;
use serde_json::{Value, json};

fn hash(metadata: &Value, spec: &Value) -> String {
    let mut template = json!({
        "metadata": metadata,
        "spec": {
            "requirements": [],
            "expireAfter": "720h",
            "nodeClassRef": { "kind": "KWOKNodeClass", "name": "default", "group": "karpenter.kwok.sh" },
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        template["spec"][field] = value.clone();
    }
    let template = serde_json::from_value(template).unwrap();
    let mut pool = NodePool::default();
    pool.spec.template = template;
    pool.hash()
}

/// Values that Karpenter v1.14 computes.
#[test]
fn agrees_with_karpenter() {
    let check = |metadata: Value, spec: Value, expected: &str| {
        assert_eq!(hash(&metadata, &spec), expected, "{metadata} {spec}");
    };
    check(json!({}), json!({}), "12745407319442031341");
    check(json!({}), json!({ "expireAfter": "Never" }), "7428780003907761376");
    check(
        json!({ "labels": { "team": "a" } }),
        json!({
            "taints": [{ "key": "dedicated", "value": "gpu", "effect": "NoSchedule" }],
            "terminationGracePeriod": "5m",
        }),
        "16152558721849112360",
    );
    check(json!({ "labels": {} }), json!({}), "5327702334917744615");
    let twice =
        json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoSchedule" }]);
    check(json!({}), json!({ "taints": twice }), "845502862369909111");
    check(json!({}), json!({ "taints": [] }), "845502862369909111");
    check(
        json!({ "annotations": { "x/y": "z" } }),
        json!({
            "startupTaints": [{ "key": "cilium", "value": "true", "effect": "NoExecute" }],
            "expireAfter": "0s",
        }),
        "4684436680299128607",
    );
    check(json!({}), json!({ "terminationGracePeriod": "0s" }), "16848824146983765585");
}

/// Values that the Go library computes for the same types.
#[test]
fn agrees_with_the_go_library() {
    let timed = json!([{ "key": "a", "value": "v", "effect": "NoSchedule", "timeAdded": "2024-01-02T03:04:05Z" }]);
    assert_eq!(hash(&json!({}), &json!({ "taints": timed })), "1058852824598311634");
    let two =
        json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "b", "effect": "NoExecute" }]);
    assert_eq!(hash(&json!({}), &json!({ "taints": two })), "463741391837728268");
    let labels = json!({ "labels": { "a": "1", "b": "" } });
    assert_eq!(hash(&labels, &json!({})), "8140285455357940316");
}
