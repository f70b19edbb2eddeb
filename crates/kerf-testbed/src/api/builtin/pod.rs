//! Pods: admission, defaults, and what may change once they exist.

use super::super::meta;
use super::super::resources::Resource;
use super::super::{ApiError, State};
use super::{default, quantity};
use kerf_admission::Cause;
use serde_json::{Value, json};

pub(super) fn prepare_create(
    state: &State,
    resource: &Resource,
    pod: &mut Value,
) -> Result<(), ApiError> {
    let spec = &pod["spec"];
    let class = meta::text(spec, &["priorityClassName"]);
    let mut priority = 0;
    let mut preemption = Value::from("PreemptLowerPriority");
    if !class.is_empty() {
        let classes = state.resources.find("scheduling.k8s.io", "v1", "priorityclasses");
        let found = classes.and_then(|classes| state.store.get(classes.table, class));
        let found = found.ok_or_else(|| ApiError::Forbidden {
            resource: resource.named(),
            name: meta::name(pod).to_owned(),
            why: format!("no PriorityClass with name {class} was found"),
            causes: Vec::new(),
        })?;
        priority = found.value["value"].as_i64().unwrap_or(0);
        preemption = found.value["preemptionPolicy"].clone();
    }
    meta::object_mut(pod, "spec");
    if let Some(spec) = pod.get_mut("spec") {
        default(spec, "priority", priority);
        default(spec, "preemptionPolicy", preemption);
        default(spec, "serviceAccountName", "default");
        default(spec, "serviceAccount", "default");
        default(spec, "enableServiceLinks", true);
        tolerate_failing_nodes(spec);
    }
    fill_defaults(pod);
    fill_requests(pod);
    let qos = quality_of_service(pod);
    let mut status = json!({ "phase": "Pending", "qosClass": qos });
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": null,
        }]);
    }
    meta::map_mut(pod).insert("status".into(), status);
    Ok(())
}

/// Every pod tolerates a node that is not ready or not reachable for five minutes, unless it says otherwise.
fn tolerate_failing_nodes(spec: &mut Value) {
    let tolerations = meta::map_mut(spec).entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = tolerations.iter().any(|t| {
            let of_key = t["key"] == key
                || (meta::text(t, &["key"]).is_empty() && t["operator"] == "Exists");
            of_key && matches!(meta::text(t, &["effect"]), "" | "NoExecute")
        });
        if !covered {
            tolerations.push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
        }
    }
}

pub(super) fn fill_defaults(pod: &mut Value) {
    if let Some(spec) = pod.get_mut("spec") {
        fill_spec_defaults(spec);
    }
}

/// Defaults of a pod's spec, in a pod or in a template.
pub(super) fn fill_spec_defaults(spec: &mut Value) {
    default(spec, "restartPolicy", "Always");
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "schedulerName", "default-scheduler");
    default(spec, "securityContext", json!({}));
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let image = meta::text(container, &["image"]).to_owned();
            let tag =
                image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
            let latest = tag.is_none_or(|tag| tag == "latest") && !image.contains('@');
            default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
            default(container, "terminationMessagePath", "/dev/termination-log");
            default(container, "terminationMessagePolicy", "File");
            default(container, "resources", json!({}));
            for port in
                container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten()
            {
                default(port, "protocol", "TCP");
                if host_network {
                    let number = port["containerPort"].clone();
                    default(port, "hostPort", number);
                }
            }
        }
    }
    for spread in spec
        .get_mut("topologySpreadConstraints")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        default(spread, "whenUnsatisfiable", "DoNotSchedule");
    }
}

/// A limit without a request asks for that much.
fn fill_requests(pod: &mut Value) {
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
            if limits.is_empty() {
                continue;
            }
            let resources = meta::object_mut(container, "resources");
            let requests = resources.entry("requests").or_insert_with(|| json!({}));
            for (name, limit) in limits {
                default(requests, &name, limit);
            }
        }
    }
}

fn quality_of_service(pod: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            let (requests, limits) =
                (&container["resources"]["requests"], &container["resources"]["limits"]);
            for name in ["cpu", "memory"] {
                any |= !requests[name].is_null() || !limits[name].is_null();
                guaranteed &= !limits[name].is_null() && requests[name] == limits[name];
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

pub(super) fn validate(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    let Some(old) = old else {
        validate_spec(spec, "spec", causes);
        return;
    };
    let mut allowed = old["spec"].clone();
    for key in
        ["activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"]
    {
        meta::carry(meta::map_mut(&mut allowed), spec, key);
    }
    for list in ["containers", "initContainers"] {
        let wanted = spec[list].as_array().cloned().unwrap_or_default();
        let containers = allowed.get_mut(list).and_then(Value::as_array_mut);
        for (container, wanted) in containers.into_iter().flatten().zip(&wanted) {
            meta::carry(meta::map_mut(container), wanted, "image");
        }
    }
    // A gated pod is not yet placed: where it may go can still be narrowed.
    if old["spec"]["schedulingGates"].is_array() {
        for key in ["nodeSelector", "affinity"] {
            meta::carry(meta::map_mut(&mut allowed), spec, key);
        }
    }
    if &allowed != spec {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,\
                      `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                      existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                      previously negative)";
        causes.push(Cause::forbidden("spec", detail));
    }
    let gates =
        |value: &Value| value["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
    let before = gates(old);
    for (index, gate) in gates(new).iter().enumerate().filter(|(_, gate)| !before.contains(gate)) {
        let name = meta::text(gate, &["name"]);
        let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
        causes.push(Cause::forbidden(format!("spec.schedulingGates[{index}].name"), &detail));
    }
}

pub(super) fn validate_spec(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let containers = spec["containers"].as_array().cloned().unwrap_or_default();
    if containers.is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let at = format!("{path}.containers[{index}]");
        let name = meta::text(container, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if names.contains(&name) {
            causes.push(Cause::duplicate(format!("{at}.name"), &name.into()));
        }
        names.push(name);
        if meta::text(container, &["image"]).is_empty() {
            causes.push(Cause::required(format!("{at}.image"), ""));
        }
        let resources = &container["resources"];
        for (name, request) in resources["requests"].as_object().into_iter().flatten() {
            let limit = &resources["limits"][name];
            if quantity::exceeds(request, limit) {
                let limit = limit.as_str().unwrap_or_default();
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                causes.push(Cause::invalid(format!("{at}.resources.requests"), request, &detail));
            }
        }
    }
    let policy = meta::text(spec, &["restartPolicy"]);
    if !matches!(policy, "Always" | "OnFailure" | "Never") {
        let supported = ["Always", "OnFailure", "Never"].map(Value::from);
        causes.push(Cause::unsupported(
            format!("{path}.restartPolicy"),
            &policy.into(),
            &supported,
        ));
    }
    validate_tolerations(spec, path, causes);
    validate_spread(spec, path, causes);
    validate_node_affinity(spec, path, causes);
}

fn validate_tolerations(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, toleration) in spec["tolerations"].as_array().into_iter().flatten().enumerate() {
        let operator = meta::text(toleration, &["operator"]);
        if !matches!(operator, "" | "Equal" | "Exists") {
            let supported = ["Equal", "Exists"].map(Value::from);
            causes.push(Cause::unsupported(
                format!("{path}.tolerations[{index}].operator"),
                &operator.into(),
                &supported,
            ));
        }
    }
}

fn validate_spread(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, spread) in
        spec["topologySpreadConstraints"].as_array().into_iter().flatten().enumerate()
    {
        let at = |field: &str| format!("{path}.topologySpreadConstraints[{index}].{field}");
        if spread["maxSkew"].as_i64().unwrap_or(0) <= 0 {
            causes.push(Cause::invalid(
                at("maxSkew"),
                &spread["maxSkew"],
                "must be greater than zero",
            ));
        }
        if meta::text(spread, &["topologyKey"]).is_empty() {
            causes.push(Cause::required(at("topologyKey"), "can not be empty"));
        }
        let action = meta::text(spread, &["whenUnsatisfiable"]);
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            let supported = ["DoNotSchedule", "ScheduleAnyway"].map(Value::from);
            causes.push(Cause::unsupported(at("whenUnsatisfiable"), &action.into(), &supported));
        }
    }
}

fn validate_node_affinity(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let steps = [
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    ];
    let terms = meta::at(spec, &steps).as_array().into_iter().flatten().enumerate();
    for (term, selector) in terms {
        for (index, expression) in
            selector["matchExpressions"].as_array().into_iter().flatten().enumerate()
        {
            let in_list = matches!(meta::text(expression, &["operator"]), "In" | "NotIn");
            if in_list && expression["values"].as_array().is_none_or(Vec::is_empty) {
                let at =
                    format!("{path}.{}[{term}].matchExpressions[{index}].values", steps.join("."));
                causes.push(Cause::required(
                    at,
                    "must be specified when `operator` is 'In' or 'NotIn'",
                ));
            }
        }
    }
}
