//! The objects that a scenario puts into the cluster.

use kerf_api::{annotations, labels};
use kerf_testbed::actors::RUNS_FOR;
use serde_json::{Map, Value, json};

use crate::{
    policy::Policy,
    scenario::{PoolEntry, Scenario, Workload},
};

/// What pools and workloads need, in an order in which it can be created.
pub(crate) fn foundation(scenario: &Scenario) -> Vec<Value> {
    let mut objects = vec![json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": NODE_CLASS}, "spec": {},
    })];
    let namespaces = scenario.workloads.iter().map(|workload| workload.namespace.as_str());
    let mut namespaces: Vec<_> = namespaces.filter(|name| *name != "default").collect();
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
const NODE_CLASS: &str = "default";

pub(crate) fn node_pool(entry: &PoolEntry, policy: &Policy) -> Value {
    let mut spec = Value::Object(entry.spec.clone());
    let is_in = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let template = &mut spec["template"]["spec"];
    if template["requirements"].is_null() {
        template["requirements"] =
            json!([is_in(labels::OS, "linux"), is_in(labels::ARCH, labels::ARCH_AMD64)]);
    }
    // Whatever cloud the pool was written for, here its machines are KWOK's.
    template["nodeClassRef"] = node_class_ref();
    merge(&mut spec["disruption"], &Value::Object(policy.disruption.clone()));
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": entry.name}, "spec": spec,
    })
}

pub(crate) fn node_class_ref() -> Value {
    json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": NODE_CLASS})
}

fn pod_template(workload: &Workload) -> Value {
    let pod = &workload.pod;
    let mut requests = Map::new();
    for (resource, amount) in [("cpu", &pod.cpu), ("memory", &pod.memory)] {
        if let Some(amount) = amount {
            requests.insert(resource.to_owned(), amount.0.clone().into());
        }
    }
    let mut spec = json!({
        "containers": [{"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}],
    });
    let mut labels = pod.labels.clone();
    labels.insert(WORKLOAD.to_owned(), workload.name.clone());
    labels.entry("app".to_owned()).or_insert_with(|| workload.name.clone());
    let mut annotations = pod.annotations.clone();
    if pod.do_not_disrupt {
        annotations.insert(annotations::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    }
    if let Some(cron) = &workload.cron {
        spec["restartPolicy"] = "Never".into();
        annotations.insert(RUNS_FOR.to_owned(), cron.runs_for.to_string());
    }
    merge(&mut spec, &Value::Object(pod.spec.clone()));
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
}

/// Objects are merged, everything else is replaced.
pub(crate) fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (field, change) in changes {
                merge(into.entry(field).or_insert(Value::Null), change);
            }
        }
        (into, change) => *into = change.clone(),
    }
}
