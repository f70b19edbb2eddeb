//! Nodes whose replacement has just failed.

use std::time::Duration;

use kerf_api::DisruptionReason::{self, Drifted, Underutilized};
use kerf_disruption::{Memory, Settings, pass, setback::set_back};
use kerf_model::Snapshot;

use crate::drift::drifted;
use crate::places::{Place, decided, first_pass, place, pool, snapshot, told, why};

/// Replacing it failed this moment, for the first time.
fn set_back_now(place: Place, reason: DisruptionReason) -> Place {
    place.set(|node| {
        let setback = set_back(None, reason, "it is gone".to_owned(), crate::places::now());
        node.disruption.setback = Some(setback);
    })
}

#[test]
fn the_next_drifted_node_has_its_turn() {
    let oldest = set_back_now(drifted(place("oldest", 2).runs("p", "1800m"), 20), Drifted);
    let other = drifted(place("other", 2).runs("q", "1800m"), 10);
    let pass = first_pass(&snapshot(vec![pool("default")], vec![oldest, other]));
    assert_eq!(pass.commands.iter().map(told).collect::<Vec<_>>(), ["Drift other -> fake-it-1"]);
    let expect =
        "replacing it failed once, and is not tried again before 2026-03-04T12:01:00Z (it is gone)";
    assert_eq!(why(&pass, "oldest"), [expect]);
}

#[test]
fn what_needs_no_replacement_goes_all_the_same() {
    let empty = set_back_now(drifted(place("a", 2), 20), Drifted);
    assert_eq!(decided(&snapshot(vec![pool("default")], vec![empty])), ["Drift a"]);
    let moves = set_back_now(place("a", 2).runs("p", "1"), Underutilized);
    let full = place("b", 8).runs("q", "6").stays();
    let commands = decided(&snapshot(vec![pool("default")], vec![moves, full]));
    assert_eq!(commands, ["SingleNode a"]);
}

#[test]
fn a_consolidation_waits_and_is_found_again_when_the_time_has_come() {
    let node = set_back_now(place("a", 16).runs("p", "1"), Underutilized);
    let mut snapshot = snapshot(vec![pool("default")], vec![node.clone()]);
    let mut memory = Memory::default();
    let mut look = |snapshot: &Snapshot| {
        let found = pass(snapshot, &Settings::default(), &mut memory);
        found.commands.iter().map(told).collect::<Vec<_>>()
    };
    assert!(look(&snapshot).is_empty());
    assert!(look(&snapshot).is_empty());
    snapshot.now += Duration::from_mins(1);
    assert_eq!(look(&snapshot), ["SingleNode a -> fake-it-1"]);
    // What failed for another reason says nothing about this one.
    let other = set_back_now(node, Drifted);
    let commands = decided(&crate::places::snapshot(vec![pool("default")], vec![other]));
    assert_eq!(commands, ["SingleNode a -> fake-it-1"]);
}

#[test]
fn the_others_merge_without_it() {
    let node = |name: &str| place(name, 8).runs(&format!("p-{name}"), "3");
    // The best bargain, so that every prefix of the list has it.
    let waiting = set_back_now(place("waiting", 16).runs("p", "15"), Underutilized);
    let places = vec![waiting, node("a"), node("b")];
    let commands = decided(&snapshot(vec![pool("default")], places));
    assert_eq!(commands, ["MultiNode a b -> fake-it-6"]);
}

/// Drifted nodes whose replacements failed so many minutes ago, once each.
fn failed(minutes: &[u64]) -> Vec<Place> {
    let failed = minutes.iter().enumerate().map(|(at, minutes)| {
        let place = place(&format!("failed-{at}"), 2).runs(&format!("p{at}"), "1800m");
        drifted(place, 60).set(|node| {
            let then = crate::places::ago(*minutes);
            node.disruption.setback = Some(set_back(None, Drifted, "it is gone".to_owned(), then));
        })
    });
    failed.collect()
}

#[test]
fn a_pool_rests_when_several_of_its_nodes_could_not_be_replaced() {
    for (what, failures, minutes) in [
        ("two", &[0, 0][..], None),
        ("three", &[0, 0, 0], Some(1)),
        ("three, and the rest is over", &[1, 1, 1], None),
        ("four", &[0, 0, 0, 0], Some(2)),
        ("four, one of them an hour ago", &[0, 0, 0, 61], Some(1)),
        ("five, the last three minutes ago", &[50, 40, 30, 20, 3], Some(1)),
        ("many", &[9; 12], Some(1)),
        ("as many as there may be", &[0; 40], Some(10)),
    ] {
        let mut places = failed(failures);
        places.push(drifted(place("other", 2).runs("q", "1800m"), 10));
        let snapshot = snapshot(vec![pool("default")], places);
        let pass = first_pass(&snapshot);
        let until = minutes.map(|it| crate::places::now() + Duration::from_mins(it));
        let rest = pass.drift_rests.get("default").and_then(|rest| rest.until);
        assert_eq!(rest, until, "{what}");
        assert_eq!(pass.commands.is_empty(), until.is_some(), "{what}");
        if let Some(until) = until {
            let why = &why(&pass, "other")[0];
            assert!(
                why.ends_with(&format!("because it is gone; no other is tried before {until}")),
                "{why}"
            );
        }
    }
}

/// Otherwise all would be tried at once whenever a rest is over.
#[test]
fn after_a_rest_one_node_is_tried_at_a_time() {
    let mut places = failed(&[5, 5, 5]);
    let world = |places: &[Place]| snapshot(vec![pool("default")], places.to_vec());
    let tried = first_pass(&world(&places)).commands[0].candidates[0].node.name.clone();
    let at = places.iter().position(|place| place.node.name == tried).expect("one of them");
    places[at].in_queue = true;
    let pass = first_pass(&world(&places));
    assert!(pass.commands.is_empty() && pass.drift_rests["default"].until.is_none());
    let other = places.iter().find(|place| !place.in_queue).expect("another");
    let why = &why(&pass, &other.node.name)[0];
    assert!(why.ends_with("no other is tried while one is being tried"), "{why}");
}

#[test]
fn a_pool_that_launches_again_does_not_rest_and_others_never_did() {
    let mut places = failed(&[1, 1, 1, 1]);
    places.push(drifted(place("other", 2).runs("q", "1800m").pool("other"), 10));
    let pools = || vec![pool("default"), pool("other")];
    let pass = first_pass(&snapshot(pools(), places.clone()));
    assert_eq!(pass.drift_rests.keys().collect::<Vec<_>>(), ["default"]);
    assert_eq!(pass.commands.iter().map(told).collect::<Vec<_>>(), ["Drift other -> fake-it-1"]);
    // What takes no new node goes all the same, and that of another reason says nothing.
    places.truncate(4);
    places.push(drifted(place("empty", 2), 1));
    assert_eq!(decided(&snapshot(pools(), places.clone())), ["Drift empty"]);
    places.truncate(4);
    let new = place("new", 2).stays().set(|node| {
        node.disruption.initialized_at = Some(crate::places::now());
    });
    places.push(new.runs("r", "1800m"));
    let awake = first_pass(&snapshot(pools(), places));
    assert!(awake.drift_rests.is_empty());
    assert_eq!(awake.commands.len(), 1);
}
