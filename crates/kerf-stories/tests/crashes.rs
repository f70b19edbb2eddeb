//! The operator is killed between any two of its calls and started again, and nothing is lost.

use kerf_controllers::Settings;
use kerf_stories::{
    World,
    chapters::{
        buffers::from_room_to_nothing,
        crashes::from_one_node_to_another,
        deletion_costs::{from_three_nodes_to_two, marked_pods, only_foreign_costs_are_left},
        life_of_a_node::from_pending_pod_to_nothing,
    },
    stories::settings::{buffering, costing},
};
use kerf_testbed::{EventLog, Faults, Testbed, Write};

/// Plays a story with an operator that dies after `calls` calls; returns what was written and how many calls the mortal
/// operator made.
fn play(seed: u64, calls: Option<u64>, story: impl AsyncFnOnce(&World)) -> (EventLog, u64) {
    play_with(Settings::default(), seed, calls, story)
}

fn play_with(
    settings: Settings,
    seed: u64,
    calls: Option<u64>,
    story: impl AsyncFnOnce(&World),
) -> (EventLog, u64) {
    let played = Testbed::in_virtual_time(async {
        let faults = Faults::seeded(seed);
        if let Some(calls) = calls {
            faults.stop_after(calls);
        }
        let world = World::with_mortal_operator(seed, settings, &faults);
        story(&world).await;
        (world.event_log(), faults.calls())
    });
    played.expect("a runtime can be made")
}

fn created(log: &EventLog, resource: &str) -> usize {
    let writes = log.entries().iter().filter(|entry| &*entry.resource == resource);
    writes.filter(|entry| entry.what == Write::Created).count()
}

#[test]
fn an_operator_killed_after_any_call_leaks_nothing_and_launches_nothing_twice() {
    let (log, calls) = play(7, None, from_pending_pod_to_nothing);
    assert_eq!((created(&log, "nodeclaims.karpenter.sh"), created(&log, "nodes")), (1, 1), "{log}");
    assert!(calls > 30, "a whole life takes more calls than {calls}");
    for call in 0..calls {
        // The story ends only when no claim and no node is left, so a stuck finalizer fails it.
        let (log, _) = play(7, Some(call), from_pending_pod_to_nothing);
        let (claims, nodes) = (created(&log, "nodeclaims.karpenter.sh"), created(&log, "nodes"));
        assert_eq!((claims, nodes), (1, 1), "killed after call {call} of {calls}:\n{log}");
    }
}

#[test]
fn an_operator_killed_during_a_drain_loses_no_pod_and_evicts_none_twice() {
    let count = |log: &EventLog| {
        ["nodeclaims.karpenter.sh", "nodes", "pods"].map(|resource| created(log, resource))
    };
    let (log, calls) = play(7, None, from_one_node_to_another);
    // Two nodes, and each of the two pods once on either.
    assert_eq!(count(&log), [2, 2, 4], "{log}");
    for call in 0..calls {
        let (log, _) = play(7, Some(call), from_one_node_to_another);
        assert_eq!(count(&log), [2, 2, 4], "killed after call {call} of {calls}:\n{log}");
    }
}

#[test]
fn an_operator_killed_after_any_call_launches_the_room_of_a_buffer_once() {
    let (log, calls) = play_with(buffering(), 7, None, from_room_to_nothing);
    assert_eq!((created(&log, "nodeclaims.karpenter.sh"), created(&log, "nodes")), (1, 1), "{log}");
    for call in 0..calls {
        let (log, _) = play_with(buffering(), 7, Some(call), from_room_to_nothing);
        let (claims, nodes) = (created(&log, "nodeclaims.karpenter.sh"), created(&log, "nodes"));
        assert_eq!((claims, nodes), (1, 1), "killed after call {call} of {calls}:\n{log}");
    }
}

#[test]
fn an_operator_killed_after_any_call_empties_a_node_without_an_eviction() {
    let count = |log: &EventLog| {
        ["nodeclaims.karpenter.sh", "nodes", "pods"].map(|resource| created(log, resource))
    };
    let shrinks = async |world: &World| {
        from_three_nodes_to_two(world).await;
    };
    let (log, calls) = play_with(costing(), 7, None, shrinks);
    assert_eq!(count(&log), [3, 3, 9], "{log}");
    // How nodes come up is another test's business; a story of nine pods has more calls than need be tried.
    for call in (calls / 3..calls).step_by(3) {
        let (log, _) = play_with(costing(), 7, Some(call), shrinks);
        assert_eq!(count(&log), [3, 3, 9], "killed after call {call} of {calls}:\n{log}");
    }
}

/// The gate is off again. Until all is taken back the marks say what is left to do.
#[test]
fn an_operator_killed_while_it_takes_costs_back_leaves_none() {
    let play = |calls: Option<u64>| {
        let played = Testbed::in_virtual_time(async {
            let faults = Faults::seeded(7);
            if let Some(calls) = calls {
                faults.stop_after(calls);
            }
            let world = World::without_operators(7, Settings::default());
            marked_pods(&world).await;
            let world = world.of_a_mortal_operator(&faults);
            only_foreign_costs_are_left(&world).await;
            faults.calls()
        });
        played.expect("a runtime can be made")
    };
    let calls = play(None);
    assert!(calls > 10, "{calls}");
    for call in 0..calls {
        play(Some(call));
    }
}

#[test]
fn the_same_seed_is_the_same_run_to_the_last_write() {
    let (one, other) = (
        play(11, None, from_pending_pod_to_nothing).0,
        play(11, None, from_pending_pod_to_nothing).0,
    );
    assert_eq!(one.to_string(), other.to_string());
}
