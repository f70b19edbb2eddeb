//! Pods that ask for what only some pools have, or for what nothing has, so that each reason to refuse a pod is given.
//!
//! They come from a stream of their own, as features do. All are gone when all is well again.

use kerf_testbed::Random;
use serde_json::{Value, json};

use super::{Action, MINUTE, choose};

const ZONE: &str = "topology.kubernetes.io/zone";

/// What happens between two calms, each with its time.
pub(super) fn storm(random: &mut Random, from: u64, until: u64) -> Vec<(u64, Action)> {
    let (mut now, mut all) = (from + random.below(60 * MINUTE), Vec::new());
    while now < until {
        let objects = objects(random);
        let later = MINUTE + random.below(60 * MINUTE);
        let end = (now + later).min(until - 1);
        for object in objects {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            all.push((now, Action::Create(object)));
            all.push((end, Action::Delete { kind, name }));
        }
        now += 1 + random.below(90 * MINUTE);
    }
    all
}

fn objects(random: &mut Random) -> Vec<Value> {
    let name = format!("picky-{}", random.below(100_000));
    let pool = *choose(random, &["p0", "p1", "p2", "s0"]);
    let to_itself = json!({"matchLabels": {"app": name}});
    let required = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    match random.below(9) {
        // More than limits let a pool have; or its taints and its requirements keep them away.
        0..3 => {
            let cpu = *choose(random, &["1", "3", "12", "40"]);
            let requests = json!({"requests": {"cpu": cpu}});
            let spec = json!({
                "nodeSelector": {"karpenter.sh/nodepool": pool},
                "containers": [{"name": "main", "image": "main", "resources": requests}],
            });
            vec![deployment(&name, 1 + random.below(12), spec)]
        }
        3 => {
            let nobody = json!({"matchLabels": {"app": "nobody"}});
            let term = json!({"topologyKey": ZONE, "labelSelector": nobody});
            vec![deployment(&name, 1, json!({"affinity": {"podAffinity": required(term)}}))]
        }
        4 => {
            // All nodes are in the same domain: there is a place for one.
            let term = json!({"topologyKey": "kubernetes.io/os", "labelSelector": to_itself});
            vec![deployment(&name, 3, json!({"affinity": {"podAntiAffinity": required(term)}}))]
        }
        5 => {
            let spread = json!({
                "topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": to_itself, "nodeAffinityPolicy": "Ignore",
            });
            let spec = json!({
                "nodeSelector": {ZONE: "test-zone-a"}, "topologySpreadConstraints": [spread],
            });
            vec![deployment(&name, 3, spec)]
        }
        6 => {
            // Volumes that can be made in no zone that there is.
            let class = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                "metadata": {"name": name}, "provisioner": "disks.kerf.sh",
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": [
                    {"matchLabelExpressions": [{"key": ZONE, "values": ["nowhere"]}]},
                ],
            });
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": name,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            });
            let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": name}});
            vec![class, claim, deployment(&name, 1, json!({"volumes": [volume]}))]
        }
        7 => {
            let spec = json!({"nodeSelector": {"karpenter.sh/capacity-type": "gold"}});
            vec![deployment(&name, 2, spec)]
        }
        _ => {
            // A time that there is not: the API server takes it, and nothing of the pool may be disrupted.
            let mut pool = super::pools::bare(&name);
            let budget = json!({"nodes": "1", "schedule": "61 25 * * *", "duration": "1h"});
            pool["spec"]["disruption"] = json!({"budgets": [budget]});
            pool["spec"]["weight"] = json!(100);
            vec![pool]
        }
    }
}

fn deployment(name: &str, replicas: u64, changes: Value) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{
            "name": "main", "image": "main", "resources": {"requests": {"cpu": "100m"}},
        }],
    });
    if let (Some(spec), Value::Object(changes)) = (spec.as_object_mut(), changes) {
        spec.extend(changes);
    }
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    })
}
