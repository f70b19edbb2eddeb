use super::*;
use serde_json::json;

fn load(documents: &[Value]) -> Loaded {
    let mut loader = Loader::default();
    for document in documents {
        loader.add(document.clone()).unwrap();
    }
    loader.finish(&LabelRules::default(), Timestamp::UNIX_EPOCH)
}

fn refusal(document: Value) -> String {
    Loader::default().add(document).unwrap_err().to_string()
}

/// The keys of all pods.
fn pods(loaded: &Loaded) -> Vec<String> {
    loaded.cluster.pods().iter().map(|(key, _)| key.to_string()).collect()
}

fn to_place(loaded: &Loaded) -> usize {
    loaded.cluster.pods_to_place(Timestamp::UNIX_EPOCH).len()
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": []}})
}

fn owned(name: &str, kind: &str, owner: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": true}]);
    pod
}

fn workload(kind: &str, name: &str, spec: &Value) -> Value {
    let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    object["spec"]["template"] =
        json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": []}});
    object
}

#[test]
fn lists_are_read_whether_their_items_say_what_they_are_or_not() {
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b")]});
    assert_eq!(pods(&load(&[dump])), ["default/a", "default/b"]);
    let raw = json!({"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"containers": []}},
    ]});
    assert_eq!(pods(&load(&[raw])), ["ns/c"]);
    let nested = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "List", "items": [pod("d")]},
    ]});
    assert_eq!(pods(&load(&[nested])), ["default/d"]);
}

#[test]
fn the_last_of_a_name_counts() {
    let mut bound = pod("a");
    bound["spec"]["nodeName"] = json!("n");
    bound["metadata"]["resourceVersion"] = json!("7");
    let loaded = load(&[bound, pod("a")]);
    assert_eq!((pods(&loaded).len(), to_place(&loaded)), (1, 1));
    let twice = [
        workload("Deployment", "d", &json!({"replicas": 5})),
        workload("Deployment", "d", &json!({"replicas": 2})),
    ];
    assert_eq!(pods(&load(&twice)).len(), 2);
}

#[test]
fn what_cannot_be_read_is_named() {
    let missing = "it is not a Kubernetes object: apiVersion and kind are missing";
    for (document, expected) in [
        (json!({"a": 1}), missing),
        (json!("text"), missing),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "Pod: metadata.name is missing"),
        (
            workload("Deployment", "d", &json!({"replicas": "three"})),
            "Deployment d: spec.replicas: invalid type: string \"three\", expected i32",
        ),
        (
            workload("Deployment", "d", &json!({"replicas": -5})),
            "Deployment default/d: spec.replicas: Invalid value: -5: must be greater than or equal to 0",
        ),
        (
            workload("Job", "j", &json!({"parallelism": -1})),
            "Job default/j: spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "p"}}),
            "NodePool of karpenter.sh/v1beta1 is not read; convert it to karpenter.sh/v1",
        ),
        (
            json!({"apiVersion": "v1", "kind": "List", "items": [pod("a"), {"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "b", "namespace": "ns"}, "spec": {"nodeName": 7}}]}),
            "item 2: Pod ns/b: spec.nodeName: invalid type: integer `7`, expected a string",
        ),
    ] {
        assert_eq!(refusal(document), expected);
    }
}

#[test]
fn other_kinds_are_counted_and_their_contents_do_not_matter() {
    let other = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "data": 7});
    let loaded = load(&[other("Secret"), other("Secret"), other("ConfigMap")]);
    assert_eq!(loaded.passed_over, [("Secret".into(), 2), ("ConfigMap".into(), 1)].into());
}

#[test]
fn node_classes_of_known_kinds_are_taken_in() {
    let class = |group: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "ExampleNodeClass", "metadata": {"name": "a"}});
    let mut loader = Loader::knowing([("cloud.example".to_owned(), "ExampleNodeClass".to_owned())]);
    for group in ["cloud.example", "other.example"] {
        loader.add(class(group)).unwrap();
    }
    let found = loader.finish(&LabelRules::default(), Timestamp::UNIX_EPOCH);
    let keys = found.cluster.node_classes().iter().map(|(key, _)| key.to_string());
    assert_eq!(keys.collect::<Vec<_>>(), ["cloud.example/ExampleNodeClass/a"]);
    assert_eq!(found.passed_over, [("ExampleNodeClass".into(), 1)].into());
}

#[test]
fn fields_that_decisions_do_not_use_need_not_be_readable() {
    let mut strange = pod("a");
    strange["spec"]["volumes"] = json!([{"name": "v", "configMap": {"defaultMode": "0644"}}]);
    assert_eq!(pods(&load(&[strange])), ["default/a"]);
}

/// Two billion pods are two terabytes.
#[test]
fn a_workload_gets_no_more_pods_than_kubernetes_is_built_for() {
    let loaded = load(&[
        workload("Deployment", "a", &json!({"replicas": 2_000_000_000})),
        workload("Deployment", "b", &json!({"replicas": 3})),
    ]);
    let counts: Vec<_> = loaded.expanded.iter().map(|one| (one.asked, one.pods)).collect();
    assert_eq!(counts, [(2_000_000_000, MOST_PODS), (3, 0)]);
}

#[test]
fn workloads_without_pods_get_the_pods_that_they_ask_for() {
    let check = |kind: &str, spec: Value, expected: &[&str]| {
        let loaded = load(&[workload(kind, "w", &spec)]);
        assert_eq!(pods(&loaded), expected, "{kind} {spec}");
        assert_eq!(to_place(&loaded), expected.len(), "{kind} {spec}");
    };
    check("Deployment", json!({}), &["default/w-0"]);
    check("Deployment", json!({"replicas": 2}), &["default/w-0", "default/w-1"]);
    check("Deployment", json!({"replicas": 0}), &[]);
    check("ReplicaSet", json!({"replicas": 1}), &["default/w-0"]);
    check("StatefulSet", json!({"replicas": 1, "ordinals": {"start": 3}}), &["default/w-3"]);
    check("Job", json!({"parallelism": 3}), &["default/w-0", "default/w-1", "default/w-2"]);
    check("Job", json!({"parallelism": 3, "completions": 1}), &["default/w-0"]);
    check("Job", json!({"parallelism": 3, "suspend": true}), &[]);
}

#[test]
fn a_job_that_has_ended_or_is_nearly_done_wants_less() {
    let mut job = workload("Job", "j", &json!({"parallelism": 3, "completions": 5}));
    job["status"] = json!({"succeeded": 4});
    assert_eq!(pods(&load(&[job.clone()])), ["default/j-0"]);
    job["status"] = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    assert!(pods(&load(&[job])).is_empty());
}

#[test]
fn workloads_with_pods_are_taken_as_they_are() {
    let deployment = workload("Deployment", "d", &json!({"replicas": 9}));
    let mut set = workload("ReplicaSet", "d-5f", &json!({"replicas": 9}));
    let mut of_set = owned("d-5f-x", "ReplicaSet", "d-5f");
    of_set["metadata"]["labels"] = json!({"pod-template-hash": "5f"});
    assert_eq!(pods(&load(&[deployment.clone(), of_set.clone()])), ["default/d-5f-x"]);
    set["metadata"]["ownerReferences"] =
        owned("", "Deployment", "d")["metadata"]["ownerReferences"].take();
    assert_eq!(pods(&load(&[deployment.clone(), set.clone(), of_set])), ["default/d-5f-x"]);
    let loaded = load(&[deployment, set]);
    assert_eq!(pods(&loaded).len(), 9);
    assert_eq!(loaded.expanded.len(), 1);
    assert_eq!(loaded.expanded[0].kind, "ReplicaSet");
}

#[test]
fn pods_of_a_stateful_set_come_with_their_claims() {
    let templates = json!([{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}, {"metadata": {"name": "log"}}]);
    let set =
        workload("StatefulSet", "s", &json!({"replicas": 2, "volumeClaimTemplates": templates}));
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p",
        "metadata": {"name": "slow", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    let cluster = load(&[set, class]).cluster;
    let claims: Vec<_> = cluster
        .volume_claims()
        .iter()
        .map(|(key, claim)| {
            let spec = claim.spec.clone().unwrap();
            (key.name.clone(), spec.storage_class_name.unwrap())
        })
        .collect();
    let claim = |name: &str, class: &str| (name.to_owned(), class.to_owned());
    let expected = [
        claim("data-s-0", "fast"),
        claim("data-s-1", "fast"),
        claim("log-s-0", "slow"),
        claim("log-s-1", "slow"),
    ];
    assert_eq!(claims, expected);
    let pod = cluster.pods().values().next().unwrap();
    let volumes = pod.spec().volumes.as_ref().unwrap();
    let mounted = volumes[0].persistent_volume_claim.as_ref().unwrap();
    assert_eq!(mounted.claim_name, "data-s-0");
}

#[test]
fn ephemeral_volumes_get_their_claims() {
    let mut with_volume = pod("a");
    with_volume["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral":
        {"volumeClaimTemplate": {"spec": {"storageClassName": "fast", "accessModes": []}}}}]);
    let cluster = load(&[with_volume]).cluster;
    let claim = cluster.volume_claims().get(&Key::namespaced("default", "a-scratch")).unwrap();
    assert_eq!(claim.spec.as_ref().unwrap().storage_class_name.as_deref(), Some("fast"));
}

#[test]
fn namespaces_carry_their_name() {
    let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": {"a": "b"}}});
    let labels = load(&[named, pod("p")]).cluster.namespace_labels();
    assert_eq!(labels["ns"]["a"], "b");
    assert_eq!(labels["ns"]["kubernetes.io/metadata.name"], "ns");
    assert_eq!(labels["default"]["kubernetes.io/metadata.name"], "default");
}

#[test]
fn a_pool_that_nobody_judged_is_judged_here() {
    let pool = |status: Value, key: &str| {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "status": status,
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
                "requirements": [{"key": key, "operator": "Exists"}]}}}})
    };
    let idle = |document| {
        let cluster = load(&[document]).cluster;
        kerf_model::snapshot::Idle::of(cluster.pools().values().next().unwrap())
            .map(|why| why.to_string())
    };
    let said = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": "no",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    assert_eq!(idle(pool(json!({}), "kubernetes.io/arch")), None);
    assert_eq!(idle(pool(said, "kubernetes.io/arch")).unwrap(), "it is not ready: no");
    let invalid = idle(pool(json!({}), "karpenter.sh/mine")).unwrap();
    assert!(
        invalid.starts_with("it is not ready: invalid value: using label karpenter.sh/mine"),
        "{invalid}"
    );
}

/// A claim that was launched from the pool as it was, or that had drifted before.
#[test]
fn pools_that_were_changed_since_drift() {
    use kerf_api::{
        NodePool,
        conditions::{Conditioned, DRIFTED},
    };
    use kerf_cluster::snapshot::Inputs;
    let pool = |zone: &str, label: &str| {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {"template": {
            "metadata": {"labels": {"team": label}, "annotations": {"example.com/note": "kept"}},
            "spec": {
                "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
                "requirements": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}}}})
    };
    let first: NodePool = serde_json::from_value(pool("a", "x")).unwrap();
    let claim = |drifted: Option<&str>, hash: Option<&str>| {
        let mut kinds = vec![("Launched", "Launched")];
        kinds.extend(drifted.map(|reason| ("Drifted", reason)));
        let conditions: Vec<_> = kinds
            .iter()
            .map(|(kind, reason)| {
                json!({"type": kind, "status": "True", "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let annotations = hash.map(|hash| {
            json!({"karpenter.sh/nodepool-hash": hash,
                "karpenter.sh/nodepool-hash-version": kerf_api::hash::HASH_VERSION})
        });
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "annotations": annotations, "labels": {
                "karpenter.sh/nodepool": "p", "topology.kubernetes.io/zone": "a"}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": "i", "conditions": conditions}})
    };
    let hash = first.hash();
    let found = |pool: Value, claim: Value| {
        let seen = load(&[pool, claim]).seen_with(Inputs::at(Timestamp::UNIX_EPOCH));
        let claim = seen.loaded.cluster.claims().named("c").unwrap();
        let written = claim.condition(DRIFTED).map(|it| it.reason.clone());
        let is_new = seen.drift.get("c").map(|drift| drift.reason().to_owned());
        assert!(is_new.is_none() || is_new == written, "{is_new:?} {written:?}");
        (is_new.is_some(), written.unwrap_or_default())
    };
    let check = |pool: Value, claim: Value, is_new: bool, reason: &str| {
        assert_eq!(
            found(pool.clone(), claim.clone()),
            (is_new, reason.to_owned()),
            "{pool} {claim}"
        );
    };
    let same = Some(hash.as_str());
    check(pool("a", "x"), claim(None, same), false, "");
    check(pool("a", "y"), claim(None, same), true, "NodePoolDrifted");
    check(pool("b", "x"), claim(None, same), true, "RequirementsDrifted");
    check(pool("b", "x"), claim(None, None), true, "RequirementsDrifted");
    check(pool("a", "y"), claim(None, None), false, "");
    // What the cloud said stays, and so does what cannot be judged; a change that was taken back is no drift.
    check(pool("a", "x"), claim(Some("AMIDrift"), same), false, "AMIDrift");
    check(pool("a", "x"), claim(Some("NodePoolDrifted"), None), false, "NodePoolDrifted");
    check(pool("a", "x"), claim(Some("NodePoolDrifted"), same), false, "");
    check(pool("a", "x"), claim(Some("InstanceTypeNotFound"), same), false, "InstanceTypeNotFound");
}
