//! The operator is killed between any two of its calls and started again, and nothing is lost.

use kerf_controllers::Settings;
use kerf_scenarios::{World, scenarios::life_of_a_node::from_pending_pod_to_nothing};
use kerf_testbed::{EventLog, Faults, Testbed, Write};

/// Plays the life of one node with an operator that dies after `calls` calls; returns what was written and how many
/// calls the mortal operator made.
fn play(seed: u64, calls: Option<u64>) -> (EventLog, u64) {
    let played = Testbed::in_virtual_time(async {
        let faults = Faults::seeded(seed);
        if let Some(calls) = calls {
            faults.stop_after(calls);
        }
        let world = World::with_mortal_operator(seed, Settings::default(), &faults);
        from_pending_pod_to_nothing(&world).await;
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
    let (log, calls) = play(7, None);
    assert_eq!((created(&log, "nodeclaims.karpenter.sh"), created(&log, "nodes")), (1, 1), "{log}");
    assert!(calls > 30, "a whole life takes more calls than {calls}");
    for call in 0..calls {
        // The story ends only when no claim and no node is left, so a stuck finalizer fails it.
        let (log, _) = play(7, Some(call));
        let (claims, nodes) = (created(&log, "nodeclaims.karpenter.sh"), created(&log, "nodes"));
        assert_eq!((claims, nodes), (1, 1), "killed after call {call} of {calls}:\n{log}");
    }
}

#[test]
fn the_same_seed_is_the_same_run_to_the_last_write() {
    let (one, other) = (play(11, None).0, play(11, None).0);
    assert_eq!(one.to_string(), other.to_string());
}
