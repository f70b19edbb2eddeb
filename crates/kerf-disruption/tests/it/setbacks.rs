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
