use std::time::Duration;

use kerf_disruption::{Memory, Settings, pass};
use kerf_model::disruption::Obstacle;

use crate::build::pod as pod_that_waits;
use crate::places::{
    Place, ago, budget, decided, first_pass, place, pool, snapshot, static_pool, told, why,
};

/// Drifted so many minutes ago, and not to be consolidated.
pub(crate) fn drifted(place: Place, minutes: u64) -> Place {
    place.stays().set(|node| node.disruption.drifted_since = Some(ago(minutes)))
}

#[test]
fn empty_nodes_go_first_and_then_the_oldest() {
    let a = drifted(place("a", 2).runs("p", "1"), 10);
    let b = drifted(place("b", 2).runs("q", "1"), 20);
    let c = drifted(place("c", 2), 5);
    let places = vec![a.clone(), b.clone(), c];
    assert_eq!(decided(&snapshot(vec![pool("default")], places)), ["Drift c"]);
    let places = vec![a, b];
    // The pod fits beside the other one.
    assert_eq!(decided(&snapshot(vec![pool("default")], places)), ["Drift b -> fake-it-1"]);
}

#[test]
fn one_node_may_become_several() {
    let node = place("a", 16).runs("p", "10").runs("q", "5");
    let mut pool = pool("default");
    let types = pool.instance_types[..12].to_vec();
    pool.instance_types = types;
    // The node's own type is gone from the catalogue; drift does not mind.
    let commands = decided(&snapshot(vec![pool], vec![drifted(node, 1)]));
    assert_eq!(commands, ["Drift a -> fake-it-10 -> fake-it-5"]);
}

/// The provisioner plans for them at the same time, and both would launch a node.
#[test]
fn nothing_is_launched_for_pods_that_waited_before() {
    let waits = |cpu: &str| vec![pod_that_waits("waits").requests(&format!("cpu={cpu}")).build()];
    let drifts = |cpu: &str| drifted(place("a", 4).runs("p", cpu), 1);
    let other = || place("b", 4).runs("q", "2").stays();
    for (places, waiting, expected) in [
        // Its pod has room beside the other, and the one that waits has none.
        (vec![drifts("1"), other()], waits("10"), "Drift a"),
        // Both get one node together.
        (vec![drifts("3"), other()], waits("10"), "Drift a -> fake-it-13"),
        (vec![drifts("3"), other()], waits("1"), "Drift a -> fake-it-3"),
    ] {
        let mut snapshot = snapshot(vec![pool("default")], places);
        snapshot.pods = waiting;
        assert_eq!(decided(&snapshot), [expected]);
    }
}

#[test]
fn the_next_one_goes_when_the_first_has_pods_without_a_place() {
    let stuck = drifted(place("stuck", 16).runs("p", "15"), 20);
    let other = drifted(place("other", 2).runs("q", "1"), 10);
    let mut pool = pool("default");
    let types = pool.instance_types[..4].to_vec();
    pool.instance_types = types;
    let snapshot = snapshot(vec![pool], vec![stuck, other]);
    let pass = first_pass(&snapshot);
    assert_eq!(pass.commands.iter().map(told).collect::<Vec<_>>(), ["Drift other -> fake-it-1"]);
    assert!(why(&pass, "stuck")[0].starts_with("Not all pods would schedule, default/p => "));
}

#[test]
fn budgets_hold_drift_back() {
    let places: Vec<_> = ["a", "b"].map(|name| drifted(place(name, 1), 1)).into();
    let mut none = pool("default");
    none.disruption.budgets = vec![budget("0")];
    assert!(decided(&snapshot(vec![none], places.clone())).is_empty());
    let mut one = pool("default");
    one.disruption.budgets = vec![budget("1")];
    let mut places = places;
    places[0].node.deleting = true;
    assert!(decided(&snapshot(vec![one], places)).is_empty());
}

#[test]
fn pods_that_block_need_a_bounded_drain_and_get_no_new_place() {
    for obstacle in [Obstacle::DoNotDisrupt, Obstacle::Budget("default/b".into())] {
        let node = drifted(place("a", 2).runs("p", "1").obstacle(&obstacle), 1);
        assert!(decided(&snapshot(vec![pool("default")], vec![node.clone()])).is_empty());
        let bounded = node.set(|node| {
            node.disruption.termination_grace_period = Some(Duration::from_mins(5));
        });
        let commands = decided(&snapshot(vec![pool("default")], vec![bounded]));
        assert_eq!(commands, ["Drift a"], "{obstacle:?}");
    }
}

#[test]
fn static_pools_and_nodes_that_ask_to_be_left_alone_do_not_drift_here() {
    let fixed = static_pool("default");
    let node = drifted(place("a", 1), 1);
    let commands = decided(&snapshot(vec![fixed], vec![node.clone()]));
    assert!(!commands.iter().any(|command| command.starts_with("Drift")), "{commands:?}");
    let protected = node.set(|node| node.disruption.do_not_disrupt = true);
    assert!(decided(&snapshot(vec![pool("default")], vec![protected])).is_empty());
}

#[test]
fn a_bounded_pass_goes_on_where_the_last_one_stopped() {
    let settings = Settings { looks_per_pass: 1, ..Settings::default() };
    let mut pool = pool("default");
    let types = pool.instance_types[..4].to_vec();
    pool.instance_types = types;
    let mut places: Vec<_> = (0..3)
        .map(|number| {
            let name = format!("stuck-{number}");
            drifted(place(&name, 16).runs(&format!("p{number}"), "15"), 20)
        })
        .collect();
    places.push(drifted(place("other", 2).runs("q", "1"), 10));
    let snapshot = snapshot(vec![pool], places);
    let mut memory = Memory::default();
    for _ in 0..3 {
        let pass = pass(&snapshot, &settings, &mut memory);
        assert!(pass.commands.is_empty() && !pass.complete);
    }
    let pass = pass(&snapshot, &settings, &mut memory);
    assert_eq!(pass.commands.iter().map(told).collect::<Vec<_>>(), ["Drift other -> fake-it-1"]);
}

#[test]
fn empty_nodes_go_as_empty_where_that_is_allowed() {
    let node = || place("a", 2).set(|node| node.disruption.drifted_since = Some(ago(1)));
    assert_eq!(decided(&snapshot(vec![pool("default")], vec![node()])), ["Emptiness a"]);
    let mut never = pool("default");
    never.disruption.consolidate_after = kerf_api::DurationOrNever::Never;
    assert_eq!(decided(&snapshot(vec![never], vec![node()])), ["Drift a"]);
}

#[test]
fn every_pool_has_a_budget_of_its_own() {
    let places = vec![
        drifted(place("a", 2).runs("p", "1800m"), 20),
        drifted(place("b", 2).runs("q", "1800m").pool("other"), 10),
    ];
    let mut shut = pool("default");
    shut.disruption.budgets = vec![budget("0")];
    let commands = decided(&snapshot(vec![shut, pool("other")], places));
    assert_eq!(commands, ["Drift b -> fake-it-1"]);
}
