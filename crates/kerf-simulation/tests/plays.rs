//! Whole scenarios, played.

use kerf_simulation::{BASELINE, DEFAULTS, Policy, Recording, Scenario, compare, run};

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
    assert!(samples.is_sorted_by_key(|sample| sample.evictions), "{samples:?}");
    assert_eq!(samples.last().unwrap().evictions, summary.evictions);
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let mut scenario = Scenario::from_yaml(GROWS_AND_SHRINKS, "test").unwrap();
    // Long enough for nodes to come and for consolidation to take some away.
    scenario.length = "1h15m".parse().unwrap();
    let policies = [policy("parity"), policy(DEFAULTS)];
    let once = compare(&scenario, &policies, |_| {}).unwrap();
    let again = compare(&scenario, &policies, |_| {}).unwrap();
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

#[test]
fn every_shipped_scenario_can_be_read() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/simulate");
    let files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap()).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        Scenario::from_file(&file.path()).unwrap_or_else(|error| panic!("{error}"));
    }
    Scenario::demo().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_snapshot_becomes_workloads_that_run() {
    let snapshot = serde_json::json!({"kind": "List", "items": [
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
