//! Virtual pods: they take what real pods leave, and change nothing for them.

use std::sync::Arc;

use crate::build::*;
use kerf_model::{Node, Pod, Pool, Snapshot};
use kerf_scheduler::{Options, Origin, Plan, Prober, Stop, schedule, schedule_cheaply};

/// So many pods that stand for the room of a buffer.
fn virtual_pods(count: usize, template: &PodSpec) -> Vec<Arc<Pod>> {
    let of_buffer = |pod: Arc<Pod>| Arc::new(Pod { buffer: Some("b".into()), ..(*pod).clone() });
    replicas(count, template).into_iter().map(of_buffer).collect()
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}

/// Where every real pod went: the node, or what its claim could be and with whom.
fn of_real_pods(plan: &Plan) -> Vec<String> {
    let mut places = Vec::new();
    for placement in &plan.placements {
        places.extend(
            placement.pods.iter().map(|pod| format!("{} {}", pod.name, placement.node.name)),
        );
    }
    for claim in plan.claims.iter().filter(|claim| !claim.pods.is_empty()) {
        places.push(format!("{} {:?}", claim.pool.name, names(&claim.pods)));
    }
    places.extend(plan.failures.iter().map(|one| format!("{} {}", one.pod.name, one.refusal)));
    places.sort();
    places
}

#[test]
fn a_small_real_pod_gets_the_room_before_a_large_virtual_one() {
    let mut snapshot =
        cluster(vec![pool("default")], vec![pod("real").requests("cpu=500m").build()]);
    snapshot.nodes = vec![Arc::new(node("n", "", "cpu=4"))];
    snapshot.virtual_pods = virtual_pods(1, &pod("virtual").requests("cpu=4"));
    for plan in
        [schedule(&snapshot, &Options::default()), schedule_cheaply(&snapshot, &Options::default())]
    {
        assert_eq!(names(&plan.placements[0].pods), ["real"]);
        assert!(plan.buffers.placements.is_empty());
        let [claim] = plan.claims.as_slice() else { panic!("{:?}", plan.claims) };
        assert!(claim.pods.is_empty());
        assert_eq!(names(&claim.virtual_pods), ["virtual-000"]);
        assert_eq!(claim.requests.amount("cpu").to_string(), "4", "the machine is large enough");
    }
}

#[test]
fn virtual_pods_share_what_is_there_and_what_comes_for_real_pods() {
    let mut snapshot =
        cluster(vec![pool("default")], vec![pod("real").requests("cpu=2500m").build()]);
    snapshot.nodes = vec![Arc::new(node("n", "", "cpu=1"))];
    snapshot.virtual_pods = virtual_pods(2, &pod("virtual").requests("cpu=1"));
    let plan = plan(&snapshot);
    assert!(plan.placements.is_empty(), "the real pod is too large for the node");
    let [placement] = plan.buffers.placements.as_slice() else { panic!("{:?}", plan.buffers) };
    assert_eq!((placement.node.name.as_str(), names(&placement.pods)), ("n", vec!["virtual-000"]));
    let [claim] = plan.claims.as_slice() else { panic!("{:?}", plan.claims) };
    assert_eq!(
        (names(&claim.pods), names(&claim.virtual_pods)),
        (vec!["real"], vec!["virtual-001"])
    );
}

#[test]
fn a_virtual_pod_without_a_place_is_no_failure_of_a_pod() {
    let limited = Pool { limits: amounts("cpu=4"), ..pool("default") };
    let mut snapshot = cluster(vec![limited], vec![pod("real").requests("cpu=1").build()]);
    snapshot.virtual_pods = virtual_pods(9, &pod("virtual").requests("cpu=3500m"));
    let plan = plan(&snapshot);
    assert!(plan.failures.is_empty());
    assert_eq!(plan.losses().count(), 0);
    assert_eq!(names(&plan.claims[0].pods), ["real"]);
    assert_eq!(plan.buffers.failures.len(), 9);
    let failure = &plan.buffers.failures[0];
    assert_eq!(failure.origin, Origin::Buffer);
    assert!(failure.refusal.to_string().contains("limit"), "{}", failure.refusal);
}

/// Neither topology nor pods that keep apart may make a difference.
#[test]
fn real_pods_are_planned_as_if_there_were_no_buffers() {
    let zone = "topology.kubernetes.io/zone";
    let shapes = [
        pod("plain").requests("cpu=1"),
        pod("spread").labels("app=a").requests("cpu=500m").spread(zone, 1, "app=a"),
        pod("apart").labels("app=b").requests("cpu=1").anti_affinity(HOSTNAME, "app=b"),
        pod("zones").labels("app=c").requests("cpu=1").anti_affinity(zone, "app=c"),
        pod("near").labels("app=d").requests("cpu=1").affinity(zone, "app=d"),
    ];
    let node_in = |name: &str, zone: &str| {
        Arc::new(Node {
            pool: None,
            ..node(name, &format!("topology.kubernetes.io/zone={zone}"), "cpu=4")
        })
    };
    for real in &shapes {
        for of_buffer in &shapes {
            let mut snapshot = cluster(vec![pool("default")], replicas(5, real));
            snapshot.nodes = vec![node_in("n1", ZONES[0]), node_in("n2", ZONES[1])];
            let without = of_real_pods(&plan(&snapshot));
            snapshot.virtual_pods = virtual_pods(7, &of_buffer.clone().named("virtual"));
            assert_eq!(of_real_pods(&plan(&snapshot)), without);
        }
    }
}

fn probed(snapshot: &Snapshot, leaves: usize) -> Plan {
    let pods: Vec<_> = (0..snapshot.nodes[leaves].pods.len()).collect();
    let prober = Prober::new(snapshot, &Options::default());
    prober.probe(
        &[kerf_scheduler::Leaving { node: leaves, pods: &pods, frees: None }],
        &Stop::default(),
    )
}

#[test]
fn pods_that_leave_their_node_go_before_virtual_ones() {
    let mut of_pod = node("a", "", "cpu=4");
    of_pod.pods = vec![pod("leaving").requests("cpu=3").running().build()];
    let mut snapshot = cluster(vec![pool("default")], Vec::new());
    snapshot.nodes = vec![Arc::new(of_pod), Arc::new(node("b", "", "cpu=4"))];
    snapshot.virtual_pods = virtual_pods(1, &pod("virtual").requests("cpu=2"));
    let plan = probed(&snapshot, 0);
    assert_eq!(plan.placements[0].node.name, "b");
    assert_eq!(names(&plan.claims[0].virtual_pods), ["virtual-000"]);
    // Nothing of it stays.
    assert_eq!(probed(&snapshot, 1).claims.len(), 1);
}

#[test]
fn a_node_that_is_still_starting_is_no_refuge_for_a_buffer() {
    let young = Node { initialized: false, ..node("b", "", "cpu=4") };
    let mut snapshot = cluster(vec![pool("default")], Vec::new());
    snapshot.nodes = vec![Arc::new(node("a", "", "cpu=4")), Arc::new(young)];
    snapshot.virtual_pods = virtual_pods(1, &pod("virtual").requests("cpu=2"));
    assert_eq!(probed(&snapshot, 0).buffers.failures.len(), 1);
    assert!(plan(&snapshot).buffers.failures.is_empty());
}
