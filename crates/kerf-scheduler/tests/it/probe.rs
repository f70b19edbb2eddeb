//! What if nodes were gone.

use crate::build::*;
use kerf_model::labels::NODE_POOL;
use kerf_model::{Node, Pool, Price, Snapshot};
use kerf_scheduler::{Leaving, Options, Origin, Plan, Prober, Refusal, Stop, Stopped};

/// A node of a pool with running pods of these sizes.
fn running(name: &str, cpu: &[&str]) -> Node {
    let mut one = node(name, &format!("{NODE_POOL}=default"), "cpu=4 memory=8Gi pods=10");
    one.pool = Some("default".to_owned());
    one.pods = cpu
        .iter()
        .enumerate()
        .map(|(at, cpu)| {
            let mut pod = (*pod(&format!("{name}-{at}"))
                .labels("app=web")
                .requests(&format!("cpu={cpu}"))
                .running()
                .build())
            .clone();
            pod.node_name = Some(name.to_owned());
            pod.into()
        })
        .collect();
    one
}

fn all_leave(snapshot: &Snapshot, nodes: &[usize], stop: Stop) -> Plan {
    let options = Options { honor_settling: true, ..Options::default() };
    let everything: Vec<usize> = (0..100).collect();
    let leaving: Vec<_> = nodes
        .iter()
        .map(|node| Leaving {
            node: *node,
            pods: &everything[..snapshot.nodes[*node].pods.len()],
            frees: None,
        })
        .collect();
    Prober::new(snapshot, &options).probe(&leaving, &stop)
}

fn world(nodes: Vec<Node>) -> Snapshot {
    with_nodes(cluster(vec![pool("default")], vec![]), nodes)
}

#[test]
fn pods_move_to_nodes_with_room_before_new_ones() {
    let check = |other: Node, placements: usize, claims: usize| {
        let snapshot = world(vec![running("a", &["1", "1"]), other]);
        let plan = all_leave(&snapshot, &[0], Stop::default());
        assert_eq!(plan.failures.len(), 0);
        assert_eq!((plan.placements.len(), plan.claims.len()), (placements, claims));
    };
    check(running("b", &["1"]), 1, 0);
    check(running("b", &["3"]), 1, 1);
    check(running("b", &["4"]), 0, 1);
    // Settling nodes take no pods that consolidation moves.
    check(settling(running("b", &["1"])), 0, 1);
    check(Node { deleting: true, ..running("b", &["1"]) }, 0, 1);
}

#[test]
fn pods_that_are_not_named_go_with_their_node() {
    let snapshot = world(vec![running("a", &["1", "2"]), running("b", &["3"])]);
    let prober = Prober::new(&snapshot, &Options::default());
    let plan = prober.probe(&[Leaving { node: 0, pods: &[0], frees: None }], &Stop::default());
    assert_eq!(plan.placements.len(), 1);
    assert_eq!(plan.placements[0].pods[0].name, "a-0");
    assert!(plan.claims.is_empty());
    // Nothing was changed by the question.
    let plan = prober.probe(&[Leaving { node: 0, pods: &[1], frees: None }], &Stop::default());
    assert_eq!((plan.placements.len(), plan.claims.len()), (0, 1));
}

#[test]
fn settling_nodes_take_pods_that_are_pending_or_lose_their_node_anyway() {
    let doomed = Node { deleting: true, ..running("c", &["1"]) };
    let mut snapshot = world(vec![running("a", &["1"]), settling(running("b", &[])), doomed]);
    snapshot.pods = vec![pod("pending").requests("cpu=1").build()];
    snapshot.pods.extend(snapshot.nodes[2].pods.iter().cloned());
    let plan = all_leave(&snapshot, &[0], Stop::default());
    let mut on_settling: Vec<_> =
        plan.placements[0].pods.iter().map(|pod| pod.name.as_str()).collect();
    on_settling.sort_unstable();
    assert_eq!(on_settling, ["c-0", "pending"]);
    assert_eq!(plan.claims.len(), 1);
    assert_eq!(plan.claims[0].pods[0].name, "a-0");
}

#[test]
fn bound_pods_that_have_not_started_may_settle_anywhere() {
    let mut starting = running("a", &["1"]);
    let mut pod = (*starting.pods[0]).clone();
    pod.phase = kerf_model::pod::Phase::Pending;
    starting.pods = vec![pod.into()];
    let snapshot = world(vec![starting, settling(running("b", &[]))]);
    assert_eq!(all_leave(&snapshot, &[0], Stop::default()).placements.len(), 1);
}

#[test]
fn failures_say_where_the_pod_comes_from() {
    let doomed = Node { deleting: true, ..running("c", &["100"]) };
    let mut snapshot = world(vec![running("a", &["200"]), doomed]);
    snapshot.pods = vec![pod("pending").requests("cpu=300").build()];
    snapshot.pods.extend(snapshot.nodes[1].pods.iter().cloned());
    let plan = all_leave(&snapshot, &[0], Stop::default());
    let origins: Vec<_> =
        plan.failures.iter().map(|failure| (failure.pod.name.as_str(), failure.origin)).collect();
    assert_eq!(
        origins,
        [("pending", Origin::Pending), ("c-0", Origin::Deleting), ("a-0", Origin::Leaving)]
    );
    assert_eq!(plan.losses().count(), 2);
}

#[test]
fn uninitialized_nodes_are_no_refuge() {
    let young = Node { initialized: false, ..running("b", &[]) };
    let doomed = Node { deleting: true, ..running("c", &["1"]) };
    let mut snapshot = world(vec![running("a", &["1"]), young, doomed]);
    snapshot.pods = vec![pod("pending").requests("cpu=1").build()];
    snapshot.pods.extend(snapshot.nodes[2].pods.iter().cloned());
    let plan = all_leave(&snapshot, &[0], Stop::default());
    assert_eq!(plan.placements[0].pods.len(), 3);
    let [failure] = plan.failures.as_slice() else { panic!("{:?}", plan.failures) };
    assert_eq!((failure.pod.name.as_str(), failure.origin), ("a-0", Origin::Leaving));
    assert_eq!(failure.refusal, Refusal::UninitializedNode { node: "b".to_owned() });
}

#[test]
fn what_leaves_gives_its_resources_back_but_stays_a_node_until_it_is_gone() {
    let check = |limits: &str, claims: usize| {
        let limited = Pool { limits: amounts(limits), ..pool("default") };
        let snapshot = with_nodes(cluster(vec![limited], vec![]), vec![running("a", &["1"])]);
        let plan = all_leave(&snapshot, &[0], Stop::default());
        assert_eq!((plan.claims.len(), plan.failures.len()), (claims, 1 - claims));
    };
    check("cpu=4", 1);
    check("cpu=1", 0);
    check("nodes=2", 1);
    check("nodes=1", 0);
}

#[test]
fn a_probe_stops_when_it_cannot_succeed_any_more() {
    let apart = pod("web").labels("app=web").anti_affinity(HOSTNAME, "app=web");
    let mut crowded = running("a", &[]);
    crowded.pods = replicas(3, &apart.running());
    let snapshot = world(vec![crowded]);
    let free = all_leave(&snapshot, &[0], Stop::default());
    assert_eq!((free.claims.len(), free.stopped), (3, None));
    let check = |max_new_claims, price_below, expect: Option<Stopped>| {
        let plan = all_leave(&snapshot, &[0], Stop { max_new_claims, price_below });
        assert_eq!(plan.stopped, expect);
        assert_eq!(plan.claims.len(), if expect.is_some() { 0 } else { 3 });
    };
    let price = free.price();
    let more = price + Price::from_ten_billionths(1);
    check(Some(3), Some(more), None);
    check(Some(2), None, Some(Stopped::NewClaims { most: 2 }));
    check(Some(0), None, Some(Stopped::NewClaims { most: 0 }));
    check(None, Some(price), Some(Stopped::Price { at_least: price, below: price }));
    let zero = Price::ZERO;
    check(None, Some(zero), Some(Stopped::Price { at_least: free.claims[0].price, below: zero }));
}

#[test]
fn a_wish_is_given_up_before_a_new_claim_is_counted() {
    let mut leaving = running("a", &[]);
    leaving.pods = vec![pod("web").prefers(1, "kubernetes.io/arch In unknown").running().build()];
    let snapshot = world(vec![leaving, running("b", &[])]);
    let stop = Stop { max_new_claims: Some(0), price_below: None };
    let plan = all_leave(&snapshot, &[0], stop);
    assert_eq!((plan.stopped, plan.placements.len()), (None, 1));
}
