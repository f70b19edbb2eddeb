//! The objects that a scenario puts into the cluster.

use std::collections::BTreeMap;

use kerf_api::{annotations, labels};
use kerf_testbed::actors::RUNS_FOR;
use serde_json::{Map, Value, json};

use crate::{
    cloud::Cloud,
    policy::Policy,
    scenario::{BufferEntry, OverlayEntry, PodTemplate, PoolEntry, Scenario, Workload},
};

/// What pools and workloads need, in an order in which it can be created.
pub(crate) fn foundation(scenario: &Scenario) -> Vec<Value> {
    let cloud = &scenario.cloud;
    let mut references: Vec<Value> = Vec::new();
    for pool in &scenario.all_pools() {
        let template = pool.spec.get("template").unwrap_or(&Value::Null);
        let reference = cloud.node_class_ref(&template["spec"]["nodeClassRef"]);
        if !references.contains(&reference) {
            references.push(reference);
        }
    }
    let class =
        |reference: &Value| cloud.node_class(reference, scenario.initial.node_class(reference));
    let mut objects: Vec<Value> = references.iter().map(class).collect();
    let of_workloads = scenario.workloads.iter().map(|workload| workload.namespace.as_str());
    let of_buffers = scenario.buffers.iter().map(|buffer| buffer.namespace.as_str());
    let all = of_workloads.chain(of_buffers);
    let mut namespaces: Vec<_> = all.filter(|name| *name != "default").collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    objects.extend(
        namespaces.into_iter().map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        ),
    );
    objects
}

/// The objects of a workload, with this many replicas where it has replicas.
pub(crate) fn of_workload(workload: &Workload, replicas: u32) -> Vec<Value> {
    let Workload { name, namespace, .. } = workload;
    let metadata = json!({"name": name, "namespace": namespace});
    let selector = json!({"matchLabels": {WORKLOAD: name}});
    let template = pod_template(workload);
    let main = if let Some(cron) = &workload.cron {
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata,
            "spec": {
                "schedule": cron.schedule, "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
                "jobTemplate": {"spec": {
                    "parallelism": cron.pods, "completions": cron.pods, "template": template,
                }},
            },
        })
    } else if workload.daemon {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
            "spec": {"selector": selector, "template": template},
        })
    } else {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        })
    };
    let budget = workload.budget.as_ref().map(|budget| {
        let mut spec = Value::Object(budget.clone());
        spec["selector"] = selector.clone();
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        })
    });
    budget.into_iter().chain([main]).collect()
}

/// Every pod has it; `app` has the same value unless the scenario gives it another.
pub(crate) const WORKLOAD: &str = "simulation.kerf.sh/workload";

pub(crate) fn node_pool(entry: &PoolEntry, policy: &Policy, cloud: &Cloud) -> Value {
    let mut spec = Value::Object(entry.spec.clone());
    let is_in = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let template = &mut spec["template"]["spec"];
    if template["requirements"].is_null() {
        template["requirements"] =
            json!([is_in(labels::OS, "linux"), is_in(labels::ARCH, labels::ARCH_AMD64)]);
    }
    template["nodeClassRef"] = cloud.node_class_ref(&template["nodeClassRef"]);
    merge(&mut spec["disruption"], &Value::Object(policy.disruption.clone()));
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": entry.name}, "spec": spec,
    })
}

pub(crate) fn node_overlay(entry: &OverlayEntry) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
        "metadata": {"name": entry.name}, "spec": entry.spec,
    })
}

pub(crate) fn capacity_buffer(entry: &BufferEntry) -> Value {
    let mut spec = entry.spec.clone();
    if entry.pod.is_some() {
        spec.insert("podTemplateRef".to_owned(), json!({"name": entry.name}));
    }
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": entry.name, "namespace": entry.namespace}, "spec": spec,
    })
}

/// What the pods of a buffer look like, where the scenario says it.
pub(crate) fn template_of_buffer(entry: &BufferEntry) -> Option<Value> {
    let (labels, annotations, spec) = parts_of_pods(entry.pod.as_ref()?);
    Some(json!({
        "apiVersion": "v1", "kind": "PodTemplate",
        "metadata": {"name": entry.name, "namespace": entry.namespace},
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
    }))
}

/// An edit of a pool while it lives. What the policy says about pools it does not touch.
pub(crate) fn pool_change(name: &str, spec: &Map<String, Value>, policy: &Policy) -> Value {
    let mut spec = spec.clone();
    if let Some(Value::Object(disruption)) = spec.get_mut("disruption") {
        disruption.retain(|field, _| !policy.disruption.contains_key(field));
    }
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec,
    })
}

fn pod_template(workload: &Workload) -> Value {
    let (mut labels, mut annotations, mut spec) = parts_of_pods(&workload.pod);
    labels.insert(WORKLOAD.to_owned(), workload.name.clone());
    labels.entry("app".to_owned()).or_insert_with(|| workload.name.clone());
    if let Some(cron) = &workload.cron {
        if spec["restartPolicy"].is_null() {
            spec["restartPolicy"] = "Never".into();
        }
        annotations.insert(RUNS_FOR.to_owned(), cron.runs_for.to_string());
    }
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
}

type Texts = BTreeMap<String, String>;

/// Labels, annotations and spec.
fn parts_of_pods(pod: &PodTemplate) -> (Texts, Texts, Value) {
    let mut requests = Map::new();
    for (resource, amount) in [("cpu", &pod.cpu), ("memory", &pod.memory)] {
        if let Some(amount) = amount {
            requests.insert(resource.to_owned(), amount.0.clone().into());
        }
    }
    let mut spec = json!({
        "containers": [{"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}],
    });
    merge(&mut spec, &Value::Object(pod.spec.clone()));
    let mut annotations = pod.annotations.clone();
    if pod.do_not_disrupt {
        annotations.insert(annotations::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    }
    (pod.labels.clone(), annotations, spec)
}

/// Objects are merged, `null` removes, and everything else replaces what was there.
pub(crate) fn merge(into: &mut Value, changes: &Value) {
    let Value::Object(changes) = changes else {
        *into = changes.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(into) = into else { return };
    for (field, change) in changes {
        if change.is_null() {
            into.remove(field);
        } else {
            merge(into.entry(field).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::BASELINE;

    fn disruption(policy: &Policy) -> Value {
        let written = json!({"disruption": {
            "consolidateAfter": "1m", "consolidationPolicy": "Balanced", "consolidationSavingsThreshold": 0.02,
        }});
        let spec = written.as_object().unwrap().clone();
        let entry = PoolEntry { name: "p".into(), spec, changes: Vec::new() };
        node_pool(&entry, policy, &Cloud::default())["spec"]["disruption"].clone()
    }

    fn policy(name: &str) -> Policy {
        Policy::named(&[name.to_owned()], &[]).unwrap().remove(0)
    }

    #[test]
    fn built_in_policies_overrule_what_pools_say() {
        for (name, kind) in [
            (BASELINE, "WhenEmpty"),
            ("parity", "WhenEmptyOrUnderutilized"),
            ("savings-threshold", "WhenEmptyOrUnderutilized"),
            ("kerf-defaults", "WhenEmptyOrUnderutilized"),
        ] {
            let expected = json!({"consolidateAfter": "1m", "consolidationPolicy": kind});
            assert_eq!(disruption(&policy(name)), expected, "{name}");
        }
    }

    #[test]
    fn own_policies_change_only_what_they_name() {
        let swept = |base: &str, text: &str| policy(base).sweep(text).unwrap().remove(0);
        let own = Policy { name: "own".into(), ..Policy::default() };
        let as_is = json!({
            "consolidateAfter": "1m", "consolidationPolicy": "Balanced", "consolidationSavingsThreshold": 0.02,
        });
        let left_to_the_operator =
            json!({"consolidateAfter": "1m", "consolidationPolicy": "Balanced"});
        for (policy, expected) in [
            (own, as_is.clone()),
            (policy("as-is"), as_is.clone()),
            (swept("as-is", "consolidation-grace-period=1h"), as_is),
            (swept("as-is", "consolidation-savings-threshold=1"), left_to_the_operator),
            (
                swept("parity", "consolidationSavingsThreshold=0.5"),
                json!({
                    "consolidateAfter": "1m", "consolidationPolicy": "WhenEmptyOrUnderutilized",
                    "consolidationSavingsThreshold": 0.5,
                }),
            ),
        ] {
            assert_eq!(disruption(&policy), expected, "{policy:?}");
        }
    }

    #[test]
    fn a_change_of_a_pool_leaves_the_policy_in_force() {
        let spec = json!({
            "disruption": {"consolidationSavingsThreshold": 1, "consolidateAfter": "5m"}, "weight": 3,
        });
        let spec = spec.as_object().unwrap();
        let kept = json!({"disruption": {"consolidateAfter": "5m"}, "weight": 3});
        assert_eq!(pool_change("p", spec, &policy("parity"))["spec"], kept);
        assert_eq!(pool_change("p", spec, &policy("as-is"))["spec"], json!(spec));
    }
}
