//! Nodes that keep room for buffers.

use std::sync::Arc;

use kerf_api::ConsolidationPolicy;
use kerf_disruption::{Memory, Settings, explain::Explainer, pass, seated, validate};
use kerf_model::{Pod, Snapshot};

use crate::build::{pod, replicas};
use crate::places::{Place, ago, decided, first_pass, place, pool, snapshot, told, why};

/// The snapshot with a buffer of so many pods of so much.
fn with_buffer(mut snapshot: Snapshot, count: usize, cpu: &str) -> Snapshot {
    let template = pod("virtual").requests(&format!("cpu={cpu}"));
    let pods = replicas(count, &template);
    let of_buffer = |pod: Arc<Pod>| Arc::new(Pod { buffer: Some("b".into()), ..(*pod).clone() });
    snapshot.virtual_pods = pods.into_iter().map(of_buffer).collect();
    snapshot
}

fn of_default(places: Vec<Place>) -> Snapshot {
    snapshot(vec![pool("default")], places)
}

/// A node that nothing is to be done with.
fn staying(name: &str, cores: usize) -> Place {
    place(name, cores).stays()
}

/// A node without pods goes; one that a buffer needs stays, as long as the buffer wants it.
#[test]
fn a_node_that_a_buffer_needs_is_not_empty() {
    let places = || vec![place("a", 2), place("b", 2)];
    for (virtual_pods, expected) in [
        (0, &["Emptiness a b"][..]),
        (1, &["Emptiness b"]),
        (2, &[]),
        // What has no room is no reason to keep anything, nor to launch anything here.
        (5, &[]),
    ] {
        let snapshot = with_buffer(of_default(places()), virtual_pods, "1800m");
        assert_eq!(decided(&snapshot), expected, "{virtual_pods}");
    }
}

#[test]
fn the_room_is_counted_by_node() {
    let snapshot = with_buffer(of_default(vec![place("a", 2), place("b", 4)]), 9, "900m");
    let seated = seated(&snapshot, &Settings::default());
    let seats: Vec<_> = seated.seats.iter().map(|(node, seats)| (node.as_str(), *seats)).collect();
    assert_eq!(seats, [("a", 2), ("b", 4)]);
    assert_eq!(seated.virtual_pods.len(), 6, "the others have no place");
}

#[test]
fn a_node_that_is_starting_keeps_no_room() {
    let starting = place("a", 2).set(|node| node.initialized = false);
    let snapshot = with_buffer(of_default(vec![starting]), 1, "1");
    assert!(seated(&snapshot, &Settings::default()).seats.is_empty());
}

/// Upstream such nodes are stuck.
#[test]
fn nodes_with_nothing_but_room_become_fewer_when_it_fits_elsewhere() {
    // By name `a` comes first and takes the room; there is room for it beside the pods of `b` as well.
    let b = staying("b", 16).runs("p", "8").runs("q", "4");
    let snapshot = with_buffer(of_default(vec![place("a", 4), b]), 2, "1");
    assert_eq!(decided(&snapshot), ["SingleNode a"]);
    // Two half-full ones make one.
    let places = vec![place("a", 8), place("b", 8)];
    let snapshot = with_buffer(of_default(places), 2, "5");
    let commands = decided(&snapshot);
    assert_eq!(commands, ["MultiNode a b -> fake-it-10"]);
}

#[test]
fn a_node_with_nothing_but_room_is_replaced_by_a_cheaper_one() {
    let snapshot = with_buffer(of_default(vec![place("a", 16)]), 1, "1");
    let found = first_pass(&snapshot);
    let [command] = found.commands.as_slice() else { panic!("{found:?}") };
    assert_eq!(told(command), "SingleNode a -> fake-it-1");
    assert_eq!(command.evictions(), 0);
    let kerf_disruption::Replacement::Planned(claim) = &command.replacements[0] else {
        panic!("a plan")
    };
    assert!(claim.pods.is_empty());
    assert_eq!(claim.virtual_pods.len(), 1);
    validate(command, &snapshot, &Settings::default()).expect("it is still right");
    // The buffer went meanwhile: the node is empty then, and this is no longer the command for it.
    let without = with_buffer(snapshot.clone(), 0, "1");
    assert!(validate(command, &without, &Settings::default()).is_err());
}

#[test]
fn what_was_found_is_stable() {
    // As small as it can be.
    let places = vec![place("a", 2)];
    let snapshot = with_buffer(of_default(places), 1, "1800m");
    let mut memory = Memory::default();
    for _ in 0..3 {
        assert!(pass(&snapshot, &Settings::default(), &mut memory).commands.is_empty());
    }
}

#[test]
fn churn_controls_hold_for_nodes_with_nothing_but_room() {
    let check = |change: fn(&mut kerf_model::Pool), reason: &str| {
        let mut default = pool("default");
        change(&mut default);
        let place = place("a", 2).set(|node| node.disruption.last_pod_event = Some(ago(5)));
        // A core is needed where there are two.
        let snapshot = with_buffer(snapshot(vec![default], vec![place]), 1, "500m");
        let found = first_pass(&snapshot);
        let names: Vec<_> = found.refused.iter().map(|one| one.why.name()).collect();
        let commands = found.commands.iter().map(told).collect::<Vec<_>>();
        if reason.is_empty() {
            assert_eq!(commands, ["SingleNode a -> fake-it-0"]);
        } else {
            assert!(commands.is_empty() && names.contains(&reason), "{commands:?} {names:?}");
        }
    };
    check(|_| {}, "");
    check(
        |pool| {
            let factor = "0.1".parse().expect("a fraction");
            pool.disruption.controls.price_improvement_factor = factor;
        },
        "price_factor",
    );
    check(
        |pool| {
            use kerf_model::churn::GracePeriod;
            let hour = std::time::Duration::from_hours(1);
            pool.disruption.controls.grace_period = GracePeriod::For(hour);
        },
        "grace_period",
    );
    check(|pool| pool.disruption.budgets = vec![crate::places::budget("0")], "budget");
    check(|pool| pool.disruption.policy = ConsolidationPolicy::WhenEmpty, "buffer_pods");
}

/// A move of real pods may not cost a buffer its room without another, and a buffer that has none is no obstacle.
#[test]
fn real_pods_move_unless_that_would_take_the_room_of_a_buffer() {
    let places = || vec![place("a", 4).runs("p", "1"), staying("b", 8).runs("q", "5")];
    assert_eq!(decided(&of_default(places())), ["SingleNode a"]);
    // On `b` there is room for the pod of `a`, or for the buffer; one of two cores does for both.
    let commands = decided(&with_buffer(of_default(places()), 1, "2"));
    assert_ne!(commands, ["SingleNode a"]);
    // It had no room before.
    assert_eq!(decided(&with_buffer(of_default(places()), 1, "60")), ["SingleNode a"]);
}

#[test]
fn drift_goes_ahead_and_takes_the_room_along() {
    let drifted = place("a", 2).set(|node| node.disruption.drifted_since = Some(ago(5)));
    let busy = drifted.stays();
    let snapshot = with_buffer(of_default(vec![busy.clone()]), 1, "1");
    let found = first_pass(&snapshot);
    assert_eq!(told(&found.commands[0]), "Drift a -> fake-it-1");
    // Where nothing can be launched for it the node goes all the same.
    let mut full = pool("default");
    full.limits = crate::build::amounts("nodes=0");
    let snapshot = with_buffer(crate::places::snapshot(vec![full], vec![busy]), 1, "1");
    assert_eq!(decided(&snapshot), ["Drift a"]);
}

#[test]
fn it_is_explained_why_a_node_stays() {
    let settings = Settings::default();
    let snapshot = with_buffer(of_default(vec![place("a", 2)]), 1, "1800m");
    let seated = seated(&snapshot, &settings);
    let explained = Explainer::new(&seated, &settings).node("a").expect("the node");
    let checks = explained.methods.iter().flat_map(|method| &method.checks);
    let refused: Vec<_> =
        checks.filter_map(|check| check.outcome.as_ref().err()).map(ToString::to_string).collect();
    assert!(refused.contains(&"Node \"a\" has buffer pods".to_owned()), "{refused:?}");
    let found = first_pass(&snapshot);
    assert!(why(&found, "a").iter().all(|why| !why.contains("buffer pods")), "said once");
}
