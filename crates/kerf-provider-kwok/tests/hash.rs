//! The drift hash of NodePools that refer to a KWOKNodeClass: the values that Karpenter computes for them.
#![allow(clippy::unwrap_used, reason = "tests")]

use kerf_api::NodePool;
use serde_json::{Value, json};

fn check(metadata: &Value, spec: &Value, expected: &str) {
    let shown = format!("{metadata} {spec}");
    let class = json!({"kind": "KWOKNodeClass", "name": "default", "group": "karpenter.kwok.sh"});
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
        "spec": {"template": {
            "metadata": metadata,
            "spec": {"nodeClassRef": class, "requirements": [], "expireAfter": "720h"},
        }},
    });
    let template = pool.pointer_mut("/spec/template/spec").unwrap().as_object_mut().unwrap();
    template.extend(spec.as_object().unwrap().clone());
    let pool: NodePool = serde_json::from_value(pool).unwrap();
    assert_eq!(pool.hash(), expected, "{shown}");
}

/// Values that Karpenter v1.14 computes.
#[test]
fn agrees_with_karpenter() {
    check(&json!({}), &json!({}), "12745407319442031341");
    check(&json!({}), &json!({"expireAfter": "Never"}), "7428780003907761376");
    let gpu = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    let spec = json!({"taints": gpu, "terminationGracePeriod": "5m"});
    check(&json!({"labels": {"team": "a"}}), &spec, "16152558721849112360");
    check(&json!({"labels": {}}), &json!({}), "5327702334917744615");
    let a = json!({"key": "a", "effect": "NoSchedule"});
    check(&json!({}), &json!({"taints": [a, a]}), "845502862369909111");
    check(&json!({}), &json!({"taints": []}), "845502862369909111");
    let cilium = json!([{"key": "cilium", "value": "true", "effect": "NoExecute"}]);
    let spec = json!({"startupTaints": cilium, "expireAfter": "0s"});
    check(&json!({"annotations": {"x/y": "z"}}), &spec, "4684436680299128607");
    check(&json!({}), &json!({"terminationGracePeriod": "0s"}), "16848824146983765585");
}

/// Values that the Go library computes for the same types.
#[test]
fn agrees_with_the_go_library() {
    let timed = json!([{"key": "a", "value": "v", "effect": "NoSchedule", "timeAdded": "2024-01-02T03:04:05Z"}]);
    check(&json!({}), &json!({"taints": timed}), "1058852824598311634");
    let two = json!([{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]);
    check(&json!({}), &json!({"taints": two}), "463741391837728268");
    check(&json!({"labels": {"a": "1", "b": ""}}), &json!({}), "8140285455357940316");
}
