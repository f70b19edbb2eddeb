//! What a kubelet writes about its node and its pods.

use super::super::pods::set_condition;
use crate::api::meta;
use serde_json::{Value, json};

pub(super) fn node(status: &mut Value, name: &str, address: &str, ready: bool, now: &str) {
    for (kind, reason, message) in [
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ] {
        let condition = json!({ "type": kind, "status": "False", "reason": reason, "message": message, "lastHeartbeatTime": now });
        set_condition(status, condition, now);
    }
    let condition = if ready {
        json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status", "lastHeartbeatTime": now })
    } else {
        json!({ "type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime network not ready", "lastHeartbeatTime": now })
    };
    set_condition(status, condition, now);
    let status = meta::map_mut(status);
    status.insert("phase".into(), "Running".into());
    let addresses = json!([
        { "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name },
    ]);
    status.entry("addresses").or_insert(addresses);
    let capacity = status.entry("capacity").or_insert_with(
        // What KWOK gives a node that does not say what it has.
        || json!({ "cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti" }),
    );
    let capacity = capacity.clone();
    status.entry("allocatable").or_insert(capacity);
    status.entry("daemonEndpoints").or_insert_with(|| json!({ "kubeletEndpoint": { "Port": 0 } }));
    let system = json!({
        "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "fake", "kubeProxyVersion": "fake",
        "containerRuntimeVersion": "fake", "kernelVersion": "", "osImage": "", "bootID": "", "machineID": "",
        "systemUUID": "",
    });
    let known = status.get("nodeInfo").is_some_and(|info| info["kubeletVersion"] != "");
    if !known {
        status.insert("nodeInfo".into(), system);
    }
}

pub(super) fn running(
    status: &mut Value,
    pod: &Value,
    host: &str,
    address: &str,
    is_ready: bool,
    now: &str,
) {
    let map = meta::map_mut(status);
    map.insert("phase".into(), "Running".into());
    map.insert("startTime".into(), now.into());
    map.insert("hostIP".into(), host.into());
    map.insert("hostIPs".into(), json!([{ "ip": host }]));
    map.insert("podIP".into(), address.into());
    map.insert("podIPs".into(), json!([{ "ip": address }]));
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let containers = containers.map(|container| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "ready": is_ready, "started": true,
            "restartCount": 0, "state": { "running": { "startedAt": now } },
        })
    });
    map.insert("containerStatuses".into(), containers.collect());
    set_condition(status, json!({ "type": "Initialized", "status": "True" }), now);
    ready(status, is_ready, now);
}

pub(super) fn ready(status: &mut Value, is_ready: bool, now: &str) {
    let text = if is_ready { "True" } else { "False" };
    for kind in ["ContainersReady", "Ready"] {
        let mut condition = json!({ "type": kind, "status": text });
        if !is_ready {
            condition["reason"] = "ContainersNotReady".into();
        }
        forget_reason(status, kind);
        set_condition(status, condition, now);
    }
    for container in containers(status) {
        container["ready"] = is_ready.into();
    }
}

/// All containers have exited with this code.
pub(super) fn finished(status: &mut Value, code: i64, now: &str) {
    let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
    meta::map_mut(status).insert("phase".into(), phase.into());
    for kind in ["ContainersReady", "Ready"] {
        let reason = if code == 0 { "PodCompleted" } else { "PodFailed" };
        let condition = json!({ "type": kind, "status": "False", "reason": reason });
        set_condition(status, condition, now);
    }
    for container in containers(status) {
        let started = container["state"]["running"]["startedAt"].clone();
        container["ready"] = false.into();
        container["started"] = false.into();
        container["state"] = json!({ "terminated": {
            "exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now,
        }});
    }
}

fn containers(status: &mut Value) -> impl Iterator<Item = &mut Value> {
    status.get_mut("containerStatuses").and_then(Value::as_array_mut).into_iter().flatten()
}

fn forget_reason(status: &mut Value, kind: &str) {
    let list = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
    for condition in list.filter(|condition| condition["type"] == kind) {
        let condition = meta::map_mut(condition);
        condition.remove("reason");
        condition.remove("message");
    }
}
