//! Objects of any content, as a watch would bring them: they are read or named, and leave the others as they are.
//!
//! `PROPTEST_CASES` says how many cases are tried; 256 without it.

#[path = "support/damage.rs"]
mod damage;

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kerf_api::{NodeClaim, NodePool, decode::decode};
use kerf_cluster::{Cluster, Kind, snapshot::Inputs};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use damage::{damage, damages, in_time, is_a_sentence};

/// What stops a snapshot as a whole when it stands in a Pod, Node, DaemonSet or PersistentVolume.
const LEFT_TO_THE_API_SERVER: [&str; 2] = ["is not a quantity", "is not an operator"];

const NOW: &str = "2026-01-01T12:00:00Z";

/// A machine with its claim, its pod and a budget for that, and a pool; `name` is in all names.
fn machine(name: &str) -> [Value; 6] {
    let meta = |version: &str| json!({"name": name, "uid": format!("uid-{name}"), "resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z"});
    let mut node = json!({
        "metadata": meta("1"),
        "spec": {"providerID": format!("cloud://{name}"), "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    });
    node["metadata"]["labels"] = json!({
        "karpenter.sh/nodepool": name, "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a",
    });
    let class = json!({"group": "cloud.example", "kind": "ExampleClass", "name": "default"});
    let wants = json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"], "minValues": 1}]);
    let mut claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": meta("1"),
        "spec": {"requirements": wants, "nodeClassRef": class, "expireAfter": "720h", "terminationGracePeriod": "30m"},
        "status": {
            "providerID": format!("cloud://{name}"), "nodeName": name,
            "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}, "lastPodEventTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    });
    claim["metadata"]["labels"] = json!({"karpenter.sh/nodepool": name});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta("1"),
        "spec": {
            "weight": 10, "limits": {"cpu": "100"},
            "disruption": {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "budgets": [{"nodes": "10%", "schedule": "0 9 * * mon-fri", "duration": "8h", "reasons": ["Drifted"]}]},
            "template": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {"requirements": wants, "nodeClassRef": class, "expireAfter": "720h"}},
        },
    });
    let template = json!({
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
            "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}]}],
        "overhead": {"cpu": "10m"}, "priority": 7, "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}]}]}},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "podAffinityTerm": {
                "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}}]},
        },
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}}],
    });
    let mut pod = json!({"metadata": meta("1"), "spec": template, "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    pod["metadata"]["namespace"] = json!("ns");
    pod["metadata"]["labels"] = json!({"app": "a"});
    pod["metadata"]["annotations"] = json!({
        "karpenter.sh/do-not-disrupt": "1h", "controller.kubernetes.io/pod-deletion-cost": "5",
        "karpenter.sh/disruption-cost": "5",
    });
    pod["spec"]["nodeName"] = json!(name);
    let mut budget = json!({"metadata": meta("1"), "spec": {"maxUnavailable": "30%", "selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}});
    budget["metadata"]["namespace"] = json!("ns");
    let set = json!({"metadata": {"name": name, "namespace": "ns", "resourceVersion": "1"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": template}}});
    [node, claim, pool, pod, budget, set]
}

/// Takes all of them in; what could not be read.
fn take_in(
    cluster: &mut Cluster,
    [node, claim, pool, pod, budget, set]: [Value; 6],
) -> Vec<String> {
    fn one<K: Kind + DeserializeOwned>(
        cluster: &mut Cluster,
        kind: &str,
        object: Value,
    ) -> Option<String> {
        let taken = cluster.take_in::<K>(decode(kind, object));
        taken.unreadable.map(|unreadable| unreadable.to_string())
    }
    let said = [
        one::<Node>(cluster, "Node", node),
        one::<NodeClaim>(cluster, "NodeClaim", claim),
        one::<NodePool>(cluster, "NodePool", pool),
        one::<Pod>(cluster, "Pod", pod),
        one::<PodDisruptionBudget>(cluster, "PodDisruptionBudget", budget),
        one::<DaemonSet>(cluster, "DaemonSet", set),
    ];
    said.into_iter().flatten().collect()
}

/// What decisions see of the machine and the pool of this name.
fn seen(cluster: &Cluster, name: &str) -> Result<(String, bool), String> {
    let now: Timestamp = NOW.parse().expect("a time");
    let taken = cluster.snapshot(Inputs::at(now)).map_err(|error| error.to_string())?;
    for invalid in &taken.left_out {
        assert!(is_a_sentence(&format!("{invalid:?}")), "{invalid:?}");
    }
    let node = taken.snapshot.nodes.iter().find(|node| node.name == name);
    let node = node.ok_or_else(|| format!("{name} is not there"))?;
    let pods: Vec<_> = node.pods.iter().map(|pod| &pod.name).filter(|pod| *pod == name).collect();
    let shown = format!(
        "{} of {:?}, {:?}, pods {pods:?}, ready {}, allocatable {}",
        node.name, node.pool, node.labels, node.disruption.ready, node.allocatable
    );
    Ok((shown, taken.snapshot.pools.contains_key(name)))
}

/// An object may call itself what it likes, but the API server takes no name that is longer, and none that another one has.
fn name_as_the_api_server_allows(object: &mut Value) {
    const LONGEST: usize = 253;
    for field in ["/metadata/name", "/metadata/namespace"] {
        if let Some(Value::String(name)) = object.pointer_mut(field) {
            *name = name.chars().take(LONGEST).collect();
            if name == "ordinary" {
                "hostile".clone_into(name);
            }
        }
    }
}

proptest! {
    #[test]
    fn damaged_objects_leave_the_others_as_they_are(damages in damages()) {
        let mut alone = Cluster::default();
        prop_assert_eq!(take_in(&mut alone, machine("ordinary")), Vec::<String>::new());
        let expected = seen(&alone, "ordinary").expect("it can be read");

        let mut cluster = Cluster::default();
        let mut hostile = machine("hostile");
        damage(&mut hostile, damages);
        hostile.iter_mut().for_each(name_as_the_api_server_allows);
        let said = in_time(|| take_in(&mut cluster, hostile));
        for complaint in &said {
            // It names the field, which may be a key of 70 kB in the limits of a pool.
            prop_assert!(complaint.len() > 8);
        }
        take_in(&mut cluster, machine("ordinary"));
        let found = in_time(|| seen(&cluster, "ordinary"));
        // A known gap. The API server lets none of these through in its own kinds; of NodeClaims and NodePools, where it does, they
        // are left out.
        if let Err(said) = &found
            && LEFT_TO_THE_API_SERVER.iter().any(|problem| said.contains(problem))
            && !["NodeClaim", "nodeclaim", "NodePool"].iter().any(|kind| said.contains(kind))
        {
            return Ok(());
        }
        prop_assert_eq!(found, Ok(expected), "{:?}", said);
    }

    #[test]
    fn an_object_of_any_shape_is_read_or_named(object in damage::anything()) {
        let mut cluster = Cluster::default();
        let all = std::array::from_fn(|_| object.clone());
        for complaint in in_time(|| take_in(&mut cluster, all)) {
            prop_assert!(is_a_sentence(&complaint), "{}", complaint);
        }
        take_in(&mut cluster, machine("ordinary"));
        prop_assert!(in_time(|| seen(&cluster, "ordinary")).is_ok());
    }
}
