use super::*;
use serde_json::{Value, json};

fn resources(amounts: &[(&str, &str)]) -> Resources {
    let add =
        |sum: Resources, (name, amount): &(&str, &str)| sum.with(name, amount.parse().unwrap());
    amounts.iter().fold(Resources::new(), add)
}

#[test]
fn replicas_are_the_larger_wish_within_the_limits() {
    let pod = resources(&[("cpu", "500m"), ("memory", "1Gi"), ("pods", "1")]);
    let check = |replicas, percentage, workload_replicas, limits: &[(&str, &str)], expected| {
        let amounts = resources(limits);
        let limits = (!limits.is_empty()).then_some(&amounts);
        let wish = Wish { replicas, percentage, limits, workload_replicas };
        assert_eq!(desired_replicas(&wish, &pod), expected, "{wish:?}");
    };
    check(None, None, None, &[], 0);
    check(Some(0), None, None, &[], 0);
    check(Some(3), None, None, &[], 3);
    // Percentages of a workload: rounded up, and one at least.
    check(None, Some(20), Some(10), &[], 2);
    check(None, Some(25), Some(10), &[], 3);
    check(None, Some(1), Some(1), &[], 1);
    check(None, Some(0), Some(10), &[], 0);
    check(None, Some(150), Some(10), &[], 15);
    check(None, Some(50), Some(0), &[], 0);
    check(None, Some(50), None, &[], 0);
    check(None, Some(i32::MAX), Some(i32::MAX), &[], i32::MAX);
    // The larger one, whichever that is.
    check(Some(2), Some(50), Some(10), &[], 5);
    check(Some(7), Some(50), Some(10), &[], 7);
    check(Some(2), Some(50), Some(0), &[], 2);
    // Limits bound it: the scarcest resource, rounded down.
    check(Some(10), None, None, &[("cpu", "2")], 4);
    check(Some(10), None, None, &[("cpu", "2400m")], 4);
    check(Some(10), None, None, &[("cpu", "2"), ("memory", "3Gi")], 3);
    check(Some(2), None, None, &[("cpu", "2")], 2);
    check(Some(10), None, None, &[("cpu", "100m")], 0);
    check(Some(10), None, None, &[("cpu", "0")], 0);
    check(None, Some(50), Some(20), &[("cpu", "2")], 4);
    check(Some(10), None, None, &[("pods", "6")], 6);
    // Limits alone decide.
    check(None, None, None, &[("cpu", "3")], 6);
    check(None, Some(50), Some(0), &[("cpu", "3")], 6);
    // What the pod does not request limits nothing.
    check(Some(10), None, None, &[("nvidia.com/gpu", "1")], 10);
    check(Some(10), None, None, &[("nvidia.com/gpu", "1"), ("cpu", "1")], 2);
    check(None, None, None, &[("nvidia.com/gpu", "1")], 0);
}

#[test]
fn a_request_of_zero_is_not_limited() {
    let pod = resources(&[("cpu", "0"), ("memory", "1Gi")]);
    let limits = resources(&[("cpu", "1"), ("memory", "2Gi")]);
    let wish = Wish { replicas: Some(5), limits: Some(&limits), ..Wish::default() };
    assert_eq!(desired_replicas(&wish, &pod), 2);
    let limits = resources(&[("cpu", "1")]);
    let wish = Wish { limits: Some(&limits), ..wish };
    assert_eq!(desired_replicas(&wish, &pod), 5);
}

#[test]
fn a_template_requests_what_its_pods_would() {
    let check = |spec: Value, cpu: &str| {
        let template = serde_json::from_value(json!({"spec": spec})).unwrap();
        let requests = template_requests(&template).unwrap();
        assert_eq!(requests.amount("cpu"), cpu.parse().unwrap(), "{spec}");
    };
    let container =
        |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let mut sidecar = container("s", "1");
    sidecar["restartPolicy"] = json!("Always");
    check(json!({"containers": [container("a", "1"), container("b", "2")]}), "3");
    check(
        json!({"containers": [container("a", "1")], "initContainers": [container("i", "4")]}),
        "4",
    );
    check(json!({"containers": [container("a", "1")], "initContainers": [sidecar]}), "2");
    check(json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "5"}}}]}), "5");
    check(json!({"containers": []}), "0");
}

#[test]
fn virtual_pods_are_those_of_the_template_without_node_and_disks() {
    let buffer: CapacityBuffer = serde_json::from_value(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"podTemplateRef": {"name": "t"}, "replicas": 2},
    }))
    .unwrap();
    let mounts = json!([
        {"name": "data", "mountPath": "/d"}, {"name": "cache", "mountPath": "/c"},
        {"name": "settings", "mountPath": "/s"},
    ]);
    let template = serde_json::from_value(json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}},
        "spec": {
            "nodeName": "n", "priority": 1000, "priorityClassName": "high",
            "containers": [{"name": "c", "volumeMounts": mounts.clone()}],
            "initContainers": [{"name": "i", "volumeMounts": mounts}],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "cache", "ephemeral": {}},
                {"name": "settings", "configMap": {"name": "settings"}},
            ],
        },
    }))
    .unwrap();
    let pods: Vec<_> = virtual_pods(&buffer, &template, 2).collect();
    assert_eq!(pods.len(), 2);
    for (number, pod) in (1..).zip(&pods) {
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(
            pod["metadata"],
            json!({
                "name": format!("capacity-buffer-web-{number}"), "namespace": "shop",
                "uid": format!("u-{number}"), "labels": {"app": "web"},
                "annotations": {
                    "karpenter.sh/capacity-buffer-fake-pod": "true",
                    "karpenter.sh/capacity-buffer-name": "web",
                    "karpenter.sh/capacity-buffer-namespace": "shop",
                },
            })
        );
        assert_eq!(pod["spec"]["priority"], json!(i32::MIN));
        assert_eq!(pod["spec"]["nodeName"], Value::Null);
        let kept = json!([{"name": "settings", "configMap": {"name": "settings"}}]);
        assert_eq!(pod["spec"]["volumes"], kept);
        for containers in ["containers", "initContainers"] {
            let mounts = &pod["spec"][containers][0]["volumeMounts"];
            assert_eq!(mounts, &json!([{"name": "settings", "mountPath": "/s"}]));
        }
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
        assert_eq!(pod["status"], json!({"conditions": [condition]}));
    }
    assert_eq!(virtual_pods(&buffer, &template, 0).count(), 0);
    assert_eq!(virtual_pods(&buffer, &template, -1).count(), 0);
}
