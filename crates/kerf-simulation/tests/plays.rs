//! Whole scenarios, played.

use std::{collections::BTreeMap, time::Duration};

use kerf_simulation::{
    BASELINE, DEFAULTS, Load, Play, Policy, Recording, Scenario, Summary, compare, run,
};
use kerf_testbed::Testbed;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

const GROWS_AND_SHRINKS: &str = "
length: 2h50m
seed: 7
pools:
- name: default
  spec: {template: {spec: {requirements: [
    {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]},
    {key: kubernetes.io/arch, operator: In, values: [amd64]},
    {key: kubernetes.io/os, operator: In, values: [linux]}]}}}
workloads:
- name: web
  replicas: 4
  steps: [{at: 30m, replicas: 12, over: 5m}, {at: 1h, replicas: 0}]
  pod: {cpu: 900m, memory: 1Gi}
  budget: {maxUnavailable: 1}
- {name: agent, daemon: true, pod: {cpu: 50m, memory: 64Mi}}
- name: report
  cron: {schedule: '*/20 * * * *', runsFor: 2m}
  pod: {cpu: 500m, memory: 256Mi}
";

fn policy(name: &str) -> Policy {
    Policy::named(&[name.to_owned()], &[]).expect("it is built in").remove(0)
}

fn play(yaml: &str, policy_name: &str) -> Recording {
    let scenario = Scenario::from_yaml(yaml, "test").expect("the scenario can be read");
    run(&scenario, &policy(policy_name), || {}).expect("the scenario can be played")
}

#[test]
fn pods_get_nodes_and_nodes_get_a_bill() {
    let Recording { summary, samples } = play(GROWS_AND_SHRINKS, BASELINE);
    assert!(summary.launched >= 2, "{summary:?}");
    assert!(summary.pods_started >= 12 + 8, "the replicas and the jobs: {summary:?}");
    assert_eq!(summary.pending_at_end, 0, "{summary:?}");
    assert!(summary.cost > 0.0 && summary.cost < summary.cost_at_peak, "{summary:?}");
    assert!(summary.node_hours > 0.0 && summary.pending_seconds > 40.0, "{summary:?}");
    assert!(samples.is_sorted_by(|a, b| a.evictions <= b.evictions), "{samples:?}");
    assert_eq!(samples.last().unwrap().evictions.to_string(), summary.evictions.to_string());
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let mut scenario = Scenario::from_yaml(GROWS_AND_SHRINKS, "test").unwrap();
    // Long enough for nodes to come and for consolidation to take some away.
    scenario.length = "1h15m".parse().unwrap();
    let policies = [policy("parity"), policy(DEFAULTS)];
    let once = compare(&scenario, &policies, 1, |_| {}).unwrap();
    let again = compare(&scenario, &policies, 1, |_| {}).unwrap();
    assert_eq!(once, again);
}

#[test]
fn a_pool_that_the_api_server_refuses_is_named() {
    let scenario =
        GROWS_AND_SHRINKS.replace("- name: default\n", "- name: default\n  changes: []\n");
    let scenario = Scenario::from_yaml(&scenario, "test").unwrap();
    let mut odd = policy(DEFAULTS);
    odd.disruption.insert("consolidateAfter".into(), "soon".into());
    let told = run(&scenario, &odd, || {}).unwrap_err().to_string();
    assert!(told.contains("refuses NodePool default under policy kerf-defaults"), "{told}");
    assert!(told.contains("consolidateAfter"), "{told}");
}

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulate");

/// How many pods each Deployment wants, and how many of its pods run.
async fn wanted_and_running(testbed: &Testbed) -> BTreeMap<String, (u64, u64)> {
    let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for object in list(testbed, "apps", "v1", "Deployment").await {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        found.entry(name).or_default().0 = object["spec"]["replicas"].as_u64().unwrap_or_default();
    }
    for pod in list(testbed, "", "v1", "Pod").await {
        let runs = pod["status"]["phase"] == "Running";
        let stays = pod["metadata"]["deletionTimestamp"].is_null();
        let workload = pod["metadata"]["labels"]["simulation.kerf.sh/workload"].as_str();
        if let Some(counts) = workload.and_then(|name| found.get_mut(name)) {
            counts.1 += u64::from(runs && stays);
        }
    }
    found
}

/// A while of each: long enough for nodes to come and for consolidation to set in, and a few minutes after the last change.
#[test]
fn every_shipped_scenario_can_be_played() {
    let mut files: Vec<_> =
        std::fs::read_dir(SHIPPED).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    let shipped = files.iter().map(|file| Scenario::from_file(file));
    for scenario in shipped.chain([Scenario::demo()]) {
        let mut scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
        scenario.length = "24m".parse().unwrap();
        let name = &scenario.name;
        Testbed::in_virtual_time(async {
            let mut play = Play::start(&scenario, &policy(DEFAULTS)).await.unwrap();
            play.until(scenario.length.as_duration()).await.unwrap();
            let summary = Summary::of(&play);
            assert!(summary.launched > 0 && summary.cost > 0.0, "{name}: {summary:?}");
            let counts = wanted_and_running(play.testbed()).await;
            assert!(counts.values().all(|(wanted, _)| *wanted > 0), "{name}: {counts:?}");
            let lost = counts.iter().filter(|(_, (wanted, running))| running < wanted);
            assert_eq!(lost.count(), 0, "{name}: {counts:?}");
            let nodes = list(play.testbed(), "", "v1", "Node").await.len();
            assert_eq!(nodes, play.ledger().nodes().len(), "{name}");
        })
        .unwrap();
    }
}

/// What the product is for, on the first of the pains that it was made for.
#[test]
fn the_defaults_calm_the_cascade_for_little_money() {
    let file = format!("{SHIPPED}/off-peak-cascade.yaml");
    let mut scenario = Scenario::from_file(file.as_ref()).unwrap();
    scenario.length = "30m".parse().unwrap();
    let [parity, defaults] =
        ["parity", DEFAULTS].map(|name| run(&scenario, &policy(name), || {}).unwrap().summary);
    assert!(parity.evictions >= 40, "there is a cascade to calm: {parity:?}");
    assert!(defaults.evictions * 2 <= parity.evictions, "{defaults:?}\n{parity:?}");
    assert!(defaults.launched < parity.launched, "{defaults:?}\n{parity:?}");
    assert!(defaults.cost <= parity.cost * 1.05, "{defaults:?}\n{parity:?}");
    assert_eq!((defaults.pending_at_end, parity.pending_at_end), (0, 0));
}

async fn list(testbed: &Testbed, group: &str, version: &str, kind: &str) -> Vec<Value> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(testbed.client(), &resource);
    let found = api.list(&ListParams::default()).await.expect("it is served");
    let read = |object| {
        let mut object = serde_json::to_value(object).expect("objects are JSON");
        object["apiVersion"] = resource.api_version.clone().into();
        object["kind"] = kind.into();
        object
    };
    found.into_iter().map(read).collect()
}

/// A shop that goes from two pods to six at once, with room kept for four.
const HEADROOM: &str = "
length: 1h
seed: 3
pools:
- name: default
  spec: {template: {spec: {requirements: [
    {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]},
    {key: kubernetes.io/arch, operator: In, values: [amd64]},
    {key: kubernetes.io/os, operator: In, values: [linux]}]}}}
buffers:
- {name: web, namespace: shop, spec: {scalableRef: {kind: Deployment, name: web}, replicas: 4}}
workloads:
- {name: web, namespace: shop, replicas: 2, steps: [{at: 20m, replicas: 6}], pod: {cpu: 900m, memory: 1Gi}}
policies:
- {name: without}
- {name: with, operator: {feature-gates: CapacityBuffer=true}}
";

#[test]
fn a_buffer_buys_pods_their_time_for_money() {
    let scenario = Scenario::from_yaml(HEADROOM, "test").unwrap();
    let [without, with] = ["without", "with"].map(|name| {
        let mut own = scenario.own_policies();
        own.retain(|policy| policy.name == name);
        run(&scenario, &own[0], || {}).unwrap().summary
    });
    assert_eq!((without.pods_started, with.pods_started), (6, 6), "{without:?}\n{with:?}");
    assert!(with.cost > without.cost, "{without:?}\n{with:?}");
    // Two pods wait for the first node either way. The four that come later do so only without the buffer.
    assert!(with.pending_seconds < without.pending_seconds / 2.0, "{without:?}\n{with:?}");

    let taken = Testbed::in_virtual_time(async {
        let mut play = Play::start(&scenario, &policy(BASELINE)).await.unwrap();
        play.until(Duration::from_mins(10)).await.unwrap();
        snapshot(play.testbed()).await
    });
    let mut from_snapshot = Scenario::from_yaml(&taken.unwrap().to_string(), "c.json").unwrap();
    from_snapshot.length = "20m".parse().unwrap();
    let mut gated = policy("as-is");
    gated.operator.insert("feature-gates".into(), "CapacityBuffer=true".into());
    let went_on = run(&from_snapshot, &gated, || {}).unwrap().summary;
    assert_eq!(went_on.launched, 1, "room for four more of its pods: {went_on:?}");
}

#[test]
fn a_buffer_that_an_api_server_would_refuse_is_named_with_its_line() {
    for (from, to, expected) in [
        ("replicas: 4}}", "replicas: -4}}", "buffers[0].spec.replicas"),
        ("kind: Deployment, name: web", "kind: Deployment", "scalableRef.name"),
        (
            "spec: {scalableRef: {kind: Deployment, name: web}, replicas: 4}",
            "spec: {replicas: 4}",
            "either PodTemplateRef or ScalableRef",
        ),
        (
            "name: web, namespace: shop, spec",
            "name: web, pod: {cpu: 1}, spec",
            "write only one of pod, spec.podTemplateRef and spec.scalableRef",
        ),
        (
            "name: web, namespace: shop, spec: {scalableRef: {kind: Deployment, name: web},",
            "name: web, pod: {cpu: lots}, spec: {",
            "buffers[0].pod.cpu",
        ),
    ] {
        let text = HEADROOM.replacen(from, to, 1);
        assert_ne!(text, HEADROOM, "{from}");
        let told = Scenario::from_yaml(&text, "test").unwrap_err().to_string();
        assert!(told.contains(expected) && told.starts_with("test:11"), "{expected}\n{told}");
    }
}

/// Everything that `kerf snapshot` would read, and more of each object than it keeps.
async fn snapshot(testbed: &Testbed) -> Value {
    let mut items = Vec::new();
    for (group, version, kind) in [
        ("karpenter.sh", "v1", "NodePool"),
        ("karpenter.sh", "v1", "NodeClaim"),
        ("", "v1", "Node"),
        ("", "v1", "Namespace"),
        ("", "v1", "Pod"),
        ("apps", "v1", "DaemonSet"),
        ("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer"),
        ("policy", "v1", "PodDisruptionBudget"),
    ] {
        items.extend(list(testbed, group, version, kind).await);
    }
    json!({"kind": "List", "items": items})
}

/// By node: when it came, what it costs, and how many pods it has.
fn nodes(play: &Play) -> BTreeMap<String, (String, String, usize)> {
    let nodes = play.ledger().nodes().values();
    nodes
        .map(|node| {
            let seen = (node.launched.to_string(), node.price.to_string(), node.pods);
            (node.name.clone(), seen)
        })
        .collect()
}

#[test]
fn a_run_from_a_snapshot_goes_on_where_the_cluster_was() {
    let original = Scenario::from_yaml(GROWS_AND_SHRINKS, "test").unwrap();
    let (before, taken) = Testbed::in_virtual_time(async {
        let mut play = Play::start(&original, &policy(BASELINE)).await.unwrap();
        play.until(Duration::from_mins(48)).await.unwrap();
        (nodes(&play), snapshot(play.testbed()).await)
    })
    .unwrap();
    assert!(before.len() >= 2 && before.values().any(|(_, _, pods)| *pods > 0), "{before:?}");

    let mut scenario = Scenario::from_yaml(&taken.to_string(), "cluster.json").unwrap();
    scenario.length = "1h".parse().unwrap();
    Testbed::in_virtual_time(async {
        let mut play = Play::start(&scenario, &policy(BASELINE)).await.unwrap();
        assert_eq!(nodes(&play), before, "the nodes, their ages and their pods are there");
        play.until(Duration::from_mins(30)).await.unwrap();
        assert_eq!(nodes(&play), before, "nothing has happened to them");
        let summary = Summary::of(&play);
        assert_eq!((summary.launched, summary.pods_started, summary.evictions), (0, 0, 0));
        assert_eq!((summary.pending_at_end, summary.peak_nodes), (0, before.len()));
        assert!(summary.cost > 0.0, "{summary:?}");
    })
    .unwrap();

    // And the operator has them in hand: with its defaults it makes them fewer, or none of them was worth it.
    let summary = run(&scenario, &policy("parity"), || {}).unwrap().summary;
    assert_eq!(summary.pending_at_end, 0, "{summary:?}");
    assert!(
        summary.blocked.contains_key("no_feasible_schedule") || summary.terminated > 0,
        "{summary:?}"
    );
}

#[test]
fn a_node_of_an_unknown_type_is_refused_by_name() {
    let snapshot = json!({"kind": "List", "items": [
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {}},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c", "labels": {
            "karpenter.sh/nodepool": "p", "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": "us-east-1a", "karpenter.sh/capacity-type": "spot"}},
            "spec": {}, "status": {"nodeName": "n"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}, "status": {}},
    ]});
    let scenario = Scenario::from_yaml(&snapshot.to_string(), "cluster.json").unwrap();
    let told = run(&scenario, &policy(DEFAULTS), || {}).unwrap_err().to_string();
    assert_eq!(
        told,
        "node n is a spot m5.large in us-east-1a, which is not among the instance types, and its Node does not show what \
         it has; give your instance types and prices with --instance-types"
    );
}

#[test]
fn pods_of_a_snapshot_without_their_nodes_get_new_ones() {
    let snapshot = json!({"kind": "List", "items": [
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p", "uid": "1"}, "spec": {
            "template": {"spec": {"requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}}}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}]},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"}},
    ]});
    let mut scenario = Scenario::from_yaml(&snapshot.to_string(), "cluster.json").unwrap();
    scenario.length = "10m".parse().unwrap();
    let summary = run(&scenario, &policy(DEFAULTS), || {}).unwrap().summary;
    assert_eq!(
        (summary.pods_started, summary.launched, summary.pending_at_end),
        (1, 1, 0),
        "{summary:?}"
    );
}

/// Two nodes of a cloud that no provider here knows, each with a pod of another Deployment.
fn foreign_cluster() -> Scenario {
    let class =
        json!({"group": "karpenter.cloud.example", "kind": "ExampleNodeClass", "name": "a"});
    let mut items = vec![
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {
            "disruption": {"consolidateAfter": "0s"},
            "template": {"spec": {"nodeClassRef": class, "requirements": [
                {"key": "karpenter.cloud.example/family", "operator": "In", "values": ["n2"]}]}}}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
    ];
    for (name, price) in [("one", Some("0.2")), ("two", None)] {
        let mut labels = json!({
            "karpenter.sh/nodepool": "p", "node.kubernetes.io/instance-type": format!("n2-{name}"),
            "topology.kubernetes.io/zone": "east-a", "karpenter.sh/capacity-type": "on-demand",
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            "karpenter.cloud.example/family": "n2",
        });
        if let Some(price) = price {
            labels["eks-node-viewer/instance-price"] = price.into();
        }
        let conditions: Vec<_> = ["Launched", "Registered", "Initialized", "Ready"]
            .map(|kind| {
                json!({"type": kind, "status": "True", "reason": kind, "message": "",
                               "lastTransitionTime": "2026-01-05T00:00:00Z"})
            })
            .into();
        let amounts = json!({"cpu": "4", "memory": "16Gi", "pods": "58"});
        items.push(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "labels": labels},
            "spec": {"nodeClassRef": class, "requirements": []},
            "status": {"nodeName": name, "providerID": name, "capacity": amounts, "allocatable": amounts,
                       "conditions": conditions},
        }));
        items.push(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": name}, "status": {"capacity": amounts, "allocatable": amounts},
        }));
        for number in 0..10 {
            items.push(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": format!("{name}-h-{number}"), "namespace": "shop",
                    "labels": {"app": name, "pod-template-hash": "h"},
                    "ownerReferences": [{"kind": "ReplicaSet", "name": format!("{name}-h"), "controller": true}],
                },
                "spec": {"nodeName": name, "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}]},
                "status": {"phase": "Running"},
            }));
        }
    }
    let list = json!({"kind": "List", "takenAt": "2026-01-05T14:00:00Z", "items": items});
    Scenario::from_yaml(&list.to_string(), "cluster.json").expect("it can be read")
}

#[test]
fn types_that_no_catalogue_knows_are_what_their_nodes_show() {
    let mut scenario = foreign_cluster();
    scenario.length = "30m".parse().unwrap();
    let compared = compare(&scenario, &[policy(BASELINE), policy("parity")], 1, |_| {}).unwrap();
    let [kept, moved] = &compared.policies[..] else { panic!("{compared:?}") };
    // 4 CPUs and 17.18 GB at the assumed prices, beside the price that the other node tells.
    let kept_as = (kept.peak_price_per_hour, kept.evictions, kept.peak_nodes);
    assert_eq!(kept_as, (0.3172, 0, 2), "{kept:?}");
    // The load of both fits on the cheaper one.
    assert!(moved.terminated > 0 && moved.cost < kept.cost, "{moved:?}");
    assert_eq!(
        compared.notes,
        [
            "the instance types of pool p are not known (ExampleNodeClass is not a NodeClass of provider kwok); nodes of the \
             types that are there can be launched, and kerf simulate --print-instance-types prints these for --instance-types",
            "the price of n2-two is not known; $0.025 per CPU and $0.001 per GB of memory and hour are assumed, 70% of it on \
             spot",
            "the load is constant, so policies differ only in what they make of the cluster as it is at the start; \
             --load=daily:0.4..1.0 lets it rise and fall with the day",
        ]
    );
}

#[test]
fn a_snapshot_follows_the_load_that_is_asked_for() {
    let directory = std::env::temp_dir().join(format!("kerf-trace-{}", std::process::id()));
    std::fs::write(&directory, "time,workload,replicas\n0s,shop/one,10\n1h,shop/one,3\n").unwrap();
    let trace = format!("trace:{}", directory.display());
    // From 14:00 on, when a day is at its height; six hours later it is half-way down.
    for (load, hours, expected) in [("daily:0.4..1.0", 6, 14), (&*trace, 2, 13)] {
        let mut scenario = foreign_cluster();
        scenario.load = Load::read(load).unwrap();
        let running = Testbed::in_virtual_time(async {
            let mut play = Play::start(&scenario, &policy(BASELINE)).await.unwrap();
            play.until(Duration::from_hours(hours) + Duration::from_mins(1)).await.unwrap();
            let pods = list(play.testbed(), "", "v1", "Pod").await;
            pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count()
        })
        .unwrap();
        assert_eq!(running, expected, "{load}");
    }
    std::fs::write(&directory, "time,workload,replicas\n0s,shop/none,10\n").unwrap();
    let mut scenario = foreign_cluster();
    scenario.load = Load::read(&trace).unwrap();
    let told = compare(&scenario, &[policy(BASELINE)], 1, |_| {}).unwrap_err().to_string();
    let expected =
        "the trace names shop/none, which does not scale here; there are shop/one, shop/two";
    assert_eq!(told, expected);
    std::fs::remove_file(&directory).unwrap();
}
