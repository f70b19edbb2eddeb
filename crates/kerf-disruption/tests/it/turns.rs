//! Commands that come to nothing, and whose turn it is then.

use std::sync::Arc;

use kerf_disruption::{Command, Memory, Method, Settings, pass, pass_with};
use kerf_model::Snapshot;

use crate::build::{HOSTNAME, pod};
use crate::drift::drifted;
use crate::places::{Place, first_pass, place, pool, snapshot, told};

/// A node that is too large for a pod which shares a node with none of its kind: it can be replaced, and not be merged.
fn too_large(name: &str) -> Place {
    let lonely = pod(name).labels("app=x").anti_affinity(HOSTNAME, "app=x");
    place(name, 8).with(&lonely.requests("cpu=100m").running().build())
}

/// The nodes of what so many passes find, when nothing ever comes of it.
fn found(
    snapshot: &Snapshot,
    memory: &mut Memory,
    passes: usize,
    set_aside: fn(&mut Memory, &Command),
) -> Vec<String> {
    let mut look = || {
        let found = pass(snapshot, &Settings::default(), memory);
        found.commands.iter().for_each(|command| set_aside(memory, command));
        found.commands.iter().map(told).collect::<Vec<_>>().join(", ")
    };
    (0..passes).map(|_| look()).collect()
}

#[test]
fn a_node_that_is_wrong_all_the_time_keeps_none_from_its_turn() {
    let snapshot = snapshot(vec![pool("default")], vec![too_large("a"), too_large("b")]);
    let found = found(&snapshot, &mut Memory::default(), 5, Memory::reject);
    // After each of them the methods that follow are asked, and there are none.
    let (a, b) = ("SingleNode a -> fake-it-0", "SingleNode b -> fake-it-0");
    assert_eq!(found, [a, "", b, "", a]);
}

#[test]
fn a_drifted_node_that_cannot_be_replaced_keeps_none_from_its_turn() {
    let places = vec![
        drifted(place("oldest", 16).runs("p", "15850m"), 20),
        drifted(place("other", 16).runs("q", "15850m"), 10),
        too_large("large"),
    ];
    let snapshot = snapshot(vec![pool("default")], places);
    let (oldest, other) = ("Drift oldest -> fake-it-15", "Drift other -> fake-it-15");
    let large = "SingleNode large -> fake-it-0";
    let may_succeed = found(&snapshot, &mut Memory::default(), 7, Memory::reject);
    assert_eq!(may_succeed, [oldest, large, "", other, large, "", oldest]);
    let never = found(&snapshot, &mut Memory::default(), 6, Memory::refuse);
    assert_eq!(never, [oldest, large, "", other, "", ""]);
}

#[test]
fn what_cannot_be_done_is_found_again_when_something_has_changed() {
    let mut snapshot = snapshot(vec![pool("default")], vec![too_large("a"), too_large("b")]);
    let mut memory = Memory::default();
    let (a, b) = ("SingleNode a -> fake-it-0", "SingleNode b -> fake-it-0");
    let mut look =
        |snapshot: &Snapshot, passes| found(snapshot, &mut memory, passes, Memory::refuse);
    assert_eq!(look(&snapshot, 5), [a, "", b, "", ""]);
    let pool = snapshot.pools.get_mut("default").expect("the pool");
    Arc::make_mut(pool).limits = [("cpu", "99".parse().unwrap())].into_iter().collect();
    assert_eq!(look(&snapshot, 3), [a, "", b]);
    snapshot.now += std::time::Duration::from_mins(5);
    assert_eq!(look(&snapshot, 2), ["", a], "the method after it had its turn first");
}

#[test]
fn a_merger_that_cannot_be_done_makes_room_for_single_nodes() {
    let node = |name: &str| place(name, 8).runs(&format!("p-{name}"), "4500m");
    let snapshot = snapshot(vec![pool("default")], vec![node("a"), node("b")]);
    let found = found(&snapshot, &mut Memory::default(), 6, Memory::refuse);
    let merged = "MultiNode a b -> fake-it-9";
    let (a, b) = ("SingleNode a -> fake-it-4", "SingleNode b -> fake-it-4");
    assert_eq!(found, [merged, a, "", b, "", ""]);
}

#[test]
fn whoever_has_a_clock_is_told_when_each_method_has_answered() {
    let told = |places: Vec<Place>, static_capacity, repairs| {
        let settings = Settings { static_capacity, ..Settings::default() };
        let snapshot = if repairs {
            crate::repair::snapshot(vec![pool("default")], places)
        } else {
            snapshot(vec![pool("default")], places)
        };
        let mut told = Vec::new();
        let answered = |method| told.push(method);
        pass_with(&snapshot, &settings, &mut Memory::default(), answered);
        told
    };
    let full = || place("a", 2).runs("p", "1800m");
    // Those that are asked without a word from the user, and repair.
    let all = Method::ALL.into_iter().filter(|method| *method != Method::ManyToMany);
    let all: Vec<_> = all.collect();
    assert_eq!(told(vec![full()], true, true), all);
    assert_eq!(told(vec![full()], true, false), all[1..]);
    assert_eq!(told(vec![full()], false, false), {
        use Method::{Drift, Emptiness, MultiNode, SingleNode};
        [Emptiness, Drift, MultiNode, SingleNode]
    });
    assert_eq!(told(vec![place("a", 2)], true, false), [Method::Emptiness], "it found something");
}

#[test]
fn budgets_that_cannot_be_read_are_named() {
    let mut wrong = pool("default");
    wrong.disruption.budgets[0].nodes = "some".to_owned();
    let pass = first_pass(&snapshot(vec![wrong, pool("other")], vec![place("a", 2)]));
    assert!(pass.commands.is_empty());
    let unreadable: Vec<_> =
        pass.unreadable_budgets.iter().map(|(pool, error)| format!("{pool}: {error}")).collect();
    assert_eq!(unreadable, ["default: \"some\" is neither a number of nodes nor a percentage"]);
}
