use super::*;
use jiff::SignedDuration;
use kerf_controllers::window::{PodRefusal, Refusals};
use kerf_disruption::Method;
use kerf_model::{
    InstanceType, Offering, Overhead, Pod, Quantity, Requirement, Requirements, Resources,
    snapshot::{Idle, by_name},
};
use kerf_runtime::journal::Subject;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&</script>";

fn now() -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap()
}

fn amounts(cpu: i64, gibibytes: i64) -> Resources {
    Resources::new()
        .with(CPU, Quantity::from_units(cpu))
        .with(MEMORY, Quantity::from_units(gibibytes << 30))
}

fn pod(name: &str, cpu: i64, gibibytes: i64) -> Arc<Pod> {
    let mut pod = Pod {
        namespace: "shop".into(),
        name: name.into(),
        requests: amounts(cpu, gibibytes),
        ..Pod::default()
    };
    pod.disruption.reschedulable = !name.starts_with("daemon");
    Arc::new(pod)
}

/// A ready node of the pool `p`, with 4 CPUs and 16 GiB.
fn node(name: &str, pods: Vec<Arc<Pod>>) -> Node {
    let labels = [(INSTANCE_TYPE, "m"), (ZONE, "a"), (CAPACITY_TYPE, "spot")];
    let mut node = Node {
        name: name.into(),
        claim: Some(format!("claim-of-{name}")),
        pool: Some("p".into()),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect(),
        allocatable: amounts(4, 16),
        pods,
        initialized: true,
        exists: true,
        ..Node::default()
    };
    node.disruption.ready = true;
    node.disruption.created = Some(now() - SignedDuration::from_mins(5));
    node
}

fn pool(name: &str) -> Arc<Pool> {
    let requirements = Requirements::new([
        Requirement::is_in(ZONE, ["a"]),
        Requirement::is_in(CAPACITY_TYPE, ["spot"]),
    ]);
    let price = "0.125".parse().unwrap();
    let offering = Offering { requirements, price, available: true, ..Offering::default() };
    let m = InstanceType::new(
        "m",
        Requirements::default(),
        vec![offering],
        amounts(4, 16),
        Overhead::default(),
    );
    Arc::new(Pool { name: name.into(), instance_types: vec![Arc::new(m)], ..Pool::default() })
}

fn look(nodes: Vec<Node>) -> Look {
    let snapshot = Snapshot {
        now: now(),
        pools: by_name([pool("p")]),
        nodes: nodes.into_iter().map(Arc::new).collect(),
        ..Snapshot::default()
    };
    Look { snapshot, leads: true, refusals: Refusals::default() }
}

pub(crate) fn hostile() -> Look {
    look(vec![node(HOSTILE, vec![pod(HOSTILE, 1, 1)])])
}

fn shown(look: &Look) -> Value {
    serde_json::to_value(View::of(look, &[], &[], &About::default())).unwrap()
}

#[test]
fn a_node_is_shown_with_its_pods_its_fill_and_its_price() {
    let mut look =
        look(vec![node("n", vec![pod("small", 1, 2), pod("daemon", 0, 1), pod("big", 2, 4)])]);
    let refusal = NodeRefusal {
        at: now(),
        method: Some(Method::SingleNode),
        reason: "UnknownPrice",
        message: "its price is unknown".into(),
    };
    look.refusals.nodes.insert("n".into(), refusal);
    let gib = |number: i64| number << 30;
    assert_eq!(
        shown(&look)["nodes"],
        json!([{
            "name": "n",
            "pool": "p",
            "state": "ready",
            "instanceType": "m",
            "zone": "a",
            "capacityType": "spot",
            "pricePerHour": "0.125",
            "created": "2025-12-31T23:55:00Z",
            "fill": {"cpu": 3000, "cpuOf": 4000, "memory": gib(7), "memoryOf": gib(16)},
            "podCount": 3,
            "pods": [
                {"name": "shop/big", "cpu": 2000, "memory": gib(4)},
                {"name": "shop/small", "cpu": 1000, "memory": gib(2)},
                {"name": "shop/daemon", "cpu": 0, "memory": gib(1), "stays": true},
            ],
            "refusal": {
                "reason": "UnknownPrice",
                "message": "its price is unknown",
                "method": Method::SingleNode.title(),
                "at": "2026-01-01T00:00:00Z",
            },
        }])
    );
}

#[test]
fn the_state_of_a_node_is_one_word() {
    type Change = fn(&mut Node);
    let cases: [(&str, Change); 7] = [
        ("ready", |_| {}),
        ("notManaged", |node| node.claim = None),
        ("going", |node| node.deleting = true),
        ("coming", |node| node.exists = false),
        ("coming", |node| node.initialized = false),
        ("notReady", |node| node.disruption.ready = false),
        ("going", |node| (node.deleting, node.initialized) = (true, false)),
    ];
    for (expected, change) in cases {
        let mut one = node("n", Vec::new());
        change(&mut one);
        assert_eq!(shown(&look(vec![one]))["nodes"][0]["state"], expected);
    }
    let mut in_queue = look(vec![node("n", Vec::new())]);
    in_queue.snapshot.in_memory.in_queue.insert("claim-of-n".into());
    assert_eq!(shown(&in_queue)["nodes"][0]["state"], "going");
}

#[test]
fn totals_count_what_is_known_and_say_what_is_not() {
    let mut unknown = node("b", vec![pod("y", 1, 1)]);
    unknown.labels = kerf_model::Labels::default();
    let mut foreign = unknown.clone();
    (foreign.name, foreign.claim, foreign.pool) = ("c".into(), None, None);
    let mut look = look(vec![node("a", vec![pod("x", 2, 4)]), unknown, foreign]);
    look.snapshot.pods = vec![pod("waits", 1, 1)];
    let shown = shown(&look);
    assert_eq!(
        shown["totals"],
        json!({
            "nodes": 3,
            "pods": 3,
            "podsToPlace": 1,
            "pricePerHour": "0.125",
            "unpriced": 1,
            "fill": {"cpu": 4000, "cpuOf": 12000, "memory": 6_i64 << 30, "memoryOf": 48_i64 << 30},
        })
    );
    assert_eq!(
        (&shown["pools"][0]["nodes"], &shown["pools"][0]["pricePerHour"]),
        (&json!(2), &json!("0.125"))
    );
}

#[test]
fn a_pool_is_shown_with_its_controls_and_budgets() {
    let mut look = look(Vec::new());
    let mut changed = (*pool("p")).clone();
    changed.idle = Some(Idle::NoInstanceTypes);
    changed.limits = Resources::new().with(CPU, Quantity::from_units(100));
    let budget = |value: Value| serde_json::from_value(value).unwrap();
    changed.disruption.budgets = vec![
        budget(json!({"nodes": "10%"})),
        budget(
            json!({"nodes": "0", "reasons": ["Drifted"], "schedule": "0 9 * * *", "duration": "8h"}),
        ),
    ];
    look.snapshot.pools = by_name([Arc::new(changed)]);
    let shown = shown(&look);
    let pool = &shown["pools"][0];
    assert_eq!(
        pool["budgets"],
        json!([
            {"nodes": "10%", "active": true},
            {"nodes": "0", "reasons": ["Drifted"], "schedule": "0 9 * * *", "duration": "8h", "active": false},
        ])
    );
    assert_eq!(pool["limits"], json!({"cpu": "100"}));
    assert_eq!(pool["idle"], "its NodeClass offers no instance types");
    assert_eq!(pool["utilizationThreshold"], "0.75");
    assert_eq!(pool["gracePeriod"], "off");
}

#[test]
fn a_large_cluster_shows_what_moves_and_then_the_emptiest() {
    let count = MOST_NODES + 100;
    let mut nodes: Vec<_> =
        (0..count).map(|number| node(&format!("n{number:04}"), vec![pod("x", 3, 1)])).collect();
    nodes[count - 1].deleting = true;
    nodes[count - 2].exists = false;
    nodes[count - 3].pods.clear();
    let view = View::of(&look(nodes), &[], &[], &About::default());
    assert_eq!((view.totals.nodes, view.nodes.len()), (count, MOST_NODES));
    let first: Vec<_> =
        view.nodes[..4].iter().map(|node| (node.name.as_str(), node.state)).collect();
    assert_eq!(
        first,
        [
            ("n0499", State::Going),
            ("n0498", State::Coming),
            ("n0497", State::Ready),
            ("n0000", State::Ready)
        ]
    );
}

#[test]
fn of_very_many_pods_only_the_largest_are_named() {
    let nodes = (0..100).map(|number| {
        let pods = (0..100).map(|pod_number| pod(&format!("x{pod_number}"), pod_number, 0));
        node(&format!("n{number}"), pods.collect())
    });
    let view = View::of(&look(nodes.collect()), &[], &[], &About::default());
    assert_eq!(view.nodes.iter().map(|node| node.pods.len()).sum::<usize>(), MOST_PODS);
    assert_eq!((view.nodes[0].pod_count, view.nodes[0].pods[0].name.as_str()), (100, "shop/x99"));
}

#[test]
fn refusals_are_counted_by_reason() {
    let mut look = look(Vec::new());
    for number in 0..7 {
        let reason = if number == 0 { "Budget" } else { "NotConsolidatable" };
        let refusal =
            NodeRefusal { at: now(), method: None, reason, message: format!("m{number}") };
        look.refusals.nodes.insert(format!("n{number}"), refusal);
    }
    look.refusals.pods =
        vec![PodRefusal { pod: "a/b".into(), reason: "Limits", message: "over".into() }];
    let shown = shown(&look);
    assert_eq!(
        shown["refusals"],
        json!([
            {"of": "nodes", "reason": "NotConsolidatable", "count": 6, "names": ["n1", "n2", "n3", "n4", "n5"], "message": "m1"},
            {"of": "nodes", "reason": "Budget", "count": 1, "names": ["n0"], "message": "m0"},
            {"of": "pods", "reason": "Limits", "count": 1, "names": ["a/b"], "message": "over"},
        ])
    );
}

#[test]
fn the_log_says_what_happened_to_what() {
    let entry = Entry {
        first: now(),
        severity: Severity::Warning,
        reason: "FailedScheduling".into(),
        about: Subject { kind: "Pod".into(), namespace: "shop".into(), name: HOSTILE.into() },
        message: HOSTILE.into(),
        count: 3,
    };
    let view = View::of(&look(Vec::new()), &[entry], &[], &About::default());
    assert_eq!(
        serde_json::to_value(view.log).unwrap(),
        json!([{
            "at": "2026-01-01T00:00:00Z",
            "warning": true,
            "reason": "FailedScheduling",
            "kind": "Pod",
            "namespace": "shop",
            "name": HOSTILE,
            "message": HOSTILE,
            "count": 3,
        }])
    );
}
