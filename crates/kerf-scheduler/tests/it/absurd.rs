//! Amounts that no machine has: they are the business of whoever asks for them, and of no other pod.

use std::sync::Arc;

use crate::build::*;
use kerf_model::{Pod, Pool, Snapshot, snapshot::by_name};
use kerf_scheduler::{Plan, Refusal};

/// Pods that differ in size and share nodes, beside a node that takes some of them.
fn ordinary() -> Snapshot {
    let mut pods = replicas(4, &pod("a").requests("cpu=300m memory=700Mi"));
    pods.extend(replicas(3, &pod("b").requests("cpu=1500m memory=100M")));
    pods.extend(replicas(2, &pod("c").requests("fake.com/vendor-a=1")));
    let snapshot = cluster(vec![pool("default")], pods);
    let bound = pod("bound").requests("cpu=1").running().build();
    let taken = kerf_model::Node { pods: vec![bound], ..node("n", "", "cpu=2") };
    with_nodes(snapshot, vec![taken])
}

/// Where the ordinary pods went, down to the last amount.
fn places(plan: &Plan) -> Vec<String> {
    let names =
        |pods: &[Arc<Pod>]| pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>().join(" ");
    let claims = plan.claims.iter().map(|claim| {
        let types: Vec<_> = claim.instance_types.iter().map(|one| one.name()).collect();
        let amounts: Vec<_> = claim
            .requests
            .iter()
            .map(|(name, amount)| format!("{name}={}", amount.nanos()))
            .collect();
        format!("{} on {types:?} {amounts:?} for {}", names(&claim.pods), claim.price)
    });
    let nodes = plan
        .placements
        .iter()
        .map(|placement| format!("{} on {}", names(&placement.pods), placement.node.name));
    claims.chain(nodes).collect()
}

fn check(what: &str, change: impl FnOnce(&mut Snapshot)) -> Plan {
    let mut changed = ordinary();
    change(&mut changed);
    let with = plan(&changed);
    assert_eq!(places(&with), places(&plan(&ordinary())), "{what}");
    with
}

#[test]
fn a_pod_that_asks_for_an_absurd_amount_changes_nothing_for_the_others() {
    for requests in [
        "cpu=1e12",
        "cpu=1e15",
        "cpu=5e16",
        "cpu=1e19",
        "memory=1Pi",
        "memory=8Ei",
        "memory=1e30",
        "memory=1n",
        "cpu=1n memory=3n",
        "fake.com/vendor-a=9E",
        "fake.com/vendor-a=1n",
        "ephemeral-storage=9E",
        "example.com/unheard-of=9E",
    ] {
        // On a node of its own, so that a small one takes nobody's room.
        let hostile = pod("hostile").requests(requests).selector("nowhere=true").build();
        check(requests, |snapshot| snapshot.pods.push(hostile));
    }
}

#[test]
fn a_limit_that_is_never_reached_changes_nothing() {
    for limits in
        ["cpu=1e15", "cpu=1e19", "memory=8Ei", "pods=1e30", "nodes=1e30", "cpu=1e19 memory=1e19"]
    {
        let limited = Pool { limits: amounts(limits), ..pool("default") };
        check(limits, |snapshot| snapshot.pools = by_name([Arc::new(limited)]));
    }
}

#[test]
fn a_limit_far_below_zero_allows_nothing() {
    let limited = Pool { limits: amounts("nodes=-1e30 cpu=-1e30"), ..pool("default") };
    let mut snapshot = cluster(vec![limited], replicas(2, &pod("a").requests("cpu=1")));
    let ours = |name: &str| kerf_model::Node {
        pool: Some("default".to_owned()),
        ..node(name, "", "cpu=100m")
    };
    snapshot = with_nodes(snapshot, vec![ours("x"), ours("y"), ours("z")]);
    assert_eq!(plan(&snapshot).failures.len(), 2);
}

#[test]
fn a_node_with_absurd_amounts_changes_nothing_elsewhere() {
    let tainted = |capacity: &str, bound: &str| kerf_model::Node {
        taints: vec![taint("own:NoSchedule")],
        pods: vec![pod("bound-there").requests(bound).running().build()],
        ..node("z", "", capacity)
    };
    for (capacity, bound) in [
        ("cpu=1e19", "cpu=1"),
        ("cpu=1e19 memory=1e19 pods=1e19", "cpu=1e19"),
        ("cpu=1", "cpu=1e19"),
        ("cpu=1n memory=1n", "cpu=1n memory=3n"),
        ("cpu=-1e19", "memory=1e19"),
    ] {
        let hostile = Arc::new(tainted(capacity, bound));
        check(capacity, |snapshot| snapshot.nodes.push(hostile));
    }
}

#[test]
fn a_daemon_that_no_machine_can_run_takes_no_room() {
    for requests in ["cpu=5e16", "memory=8Ei"] {
        let hostile = pod("hostile").requests(requests).daemon().build();
        check(requests, |snapshot| snapshot.daemons.push(hostile));
    }
}

#[test]
fn an_absurd_amount_has_its_own_reason() {
    for (requests, reason) in [
        (
            "cpu=5e16",
            "it asks for 50e15 of cpu, and no node can have more than 1P: correct the request",
        ),
        (
            "memory=8Ei",
            "it asks for 9223372036854775807 of memory, and no node can have more than 1E: correct the request",
        ),
        (
            "fake.com/vendor-a=2E",
            "it asks for 2E of fake.com/vendor-a, and no node can have more than 1E: correct the request",
        ),
    ] {
        let hostile = pod("hostile").requests(requests).build();
        let plan = check(requests, |snapshot| snapshot.pods.push(hostile));
        assert_eq!(refusal(&plan, "hostile"), reason);
        assert!(matches!(plan.failures[0].refusal, Refusal::AbsurdRequest { .. }));
    }
    let large = pod("hostile").requests("cpu=1e15").build();
    let plan = check("one below", |snapshot| snapshot.pods.push(large));
    assert!(refusal(&plan, "hostile").contains("the cpu request is very high"));
}

#[test]
fn a_resource_that_nothing_has_is_named() {
    let other = pod("hostile").requests("example.com/unheard-of=2").build();
    let plan = check("unknown", |snapshot| snapshot.pods.push(other));
    assert_eq!(
        refusal(&plan, "hostile"),
        "no instance type and no node has example.com/unheard-of, and it asks for 2"
    );
    let daemon = pod("daemon").requests("example.com/unheard-of=2").daemon().build();
    check("a daemon", |snapshot| snapshot.daemons.push(daemon));
}

#[test]
fn too_many_constraints_are_refused_and_change_nothing_for_the_others() {
    let preferring = |count| {
        (0..count).fold(pod("hostile").selector("nowhere=true"), |pod, at| {
            pod.prefers_pods("podAffinity", 1, HOSTNAME, &format!("app=app-{at}"))
        })
    };
    let plan = check("too many", |snapshot| snapshot.pods.push(preferring(129).build()));
    assert_eq!(
        refusal(&plan, "hostile"),
        "it has 129 affinity terms and topology spread constraints, and at most 128 are allowed: remove some"
    );
    let plan = check("just enough", |snapshot| snapshot.pods.push(preferring(128).build()));
    assert!(matches!(plan.failures[0].refusal, Refusal::Pools(_)));
}
