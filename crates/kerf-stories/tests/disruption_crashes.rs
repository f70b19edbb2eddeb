//! The operator is killed between any two of its calls while it disrupts nodes, or meets an API server that fails, and
//! the story ends as it should: the stories themselves see to it that no node goes before its replacement is ready and
//! that nothing stays marked.

use std::time::Duration;

use kerf_controllers::Settings;
use kerf_stories::{
    World,
    chapters::{
        disruption::{
            consolidation::{from_large_to_small, from_several_to_one, from_two_nodes_to_one},
            drift::{from_drifted_to_replaced, from_given_up_to_replaced},
            emptiness::from_empty_to_nothing,
            many_to_many::from_one_to_two,
        },
        repair::{from_unwell_to_replaced, reboot::from_broken_to_rebooted},
        static_capacity::terminate_first::from_drifted_to_drifted_through,
    },
    stories::{
        self,
        settings::{many_to_many, repairing},
    },
};
use kerf_testbed::{EventLog, Fault, Faults, Matching, Testbed, Write};

macro_rules! play {
    ($story:ident, $calls:expr) => {
        play!($story, $calls, Settings::default())
    };
    ($story:ident, $calls:expr, $settings:expr) => {{
        let played = Testbed::in_virtual_time(async {
            let faults = Faults::seeded(7);
            if let Some(calls) = $calls {
                faults.stop_after(calls);
            }
            let world = World::with_mortal_operator(7, $settings, &faults);
            let _ = $story(&world).await;
            (world.event_log(), faults.calls())
        });
        played.expect("a runtime can be made")
    }};
}

/// Kills the operator after each call of a story, and compares how many claims and nodes there ever were.
macro_rules! killed_after_any_call {
    ($($name:ident: $story:ident launches $launches:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            let (log, calls) = play!($story, None::<u64>);
            assert_eq!(created(&log), ($launches, $launches), "{log}");
            for call in 0..calls {
                let (log, _) = play!($story, Some(call));
                assert_eq!(created(&log), ($launches, $launches), "killed after call {call} of {calls}:\n{log}");
            }
        })+
    };
}

killed_after_any_call! {
    emptiness_survives_a_crash: from_empty_to_nothing launches 1,
    drift_survives_a_crash: from_drifted_to_replaced launches 2,
    a_removal_survives_a_crash: from_two_nodes_to_one launches 2,
    a_replacement_survives_a_crash: from_large_to_small launches 2,
}

/// What came for the broken node is used by the next operator, and the node goes once.
#[test]
fn repair_survives_a_crash() {
    let (log, calls) = play!(from_unwell_to_replaced, None::<u64>, repairing());
    assert_eq!(created(&log), (2, 2), "{log}");
    for call in 0..calls {
        let (log, _) = play!(from_unwell_to_replaced, Some(call), repairing());
        assert_eq!(created(&log), (2, 2), "killed after call {call} of {calls}:\n{log}");
    }
}

/// A command with two replacements. One that is there alone is an ordinary node for the next operator, which may use it or not.
#[test]
fn a_command_with_several_replacements_survives_a_crash() {
    let (log, calls) = play!(from_one_to_two, None::<u64>, many_to_many());
    assert_eq!(created(&log), (3, 3), "{log}");
    // Until then there is nothing to replace.
    for call in calls / 3..calls {
        let (log, _) = play!(from_one_to_two, Some(call), many_to_many());
        let (claims, nodes) = created(&log);
        assert!(nodes <= claims && claims <= 4, "killed after call {call} of {calls}:\n{log}");
    }
}

/// Between any two of its writes, and before and after the cloud is asked: the cloud is asked for one reboot, by one name.
#[test]
fn a_reboot_survives_a_crash() {
    let (log, calls) = play!(from_broken_to_rebooted, None::<u64>, repairing());
    assert_eq!(created(&log), (1, 1), "{log}");
    for call in 0..calls {
        let (log, _) = play!(from_broken_to_rebooted, Some(call), repairing());
        assert_eq!(created(&log), (1, 1), "killed after call {call} of {calls}:\n{log}");
    }
}

/// How three nodes become one depends on when the operator looks: merging them takes a new one, removing two of them none.
#[test]
fn a_merger_survives_a_crash() {
    let (log, calls) = play!(from_several_to_one, None::<u64>);
    assert_eq!(created(&log), (4, 4), "{log}");
    // Until then there is nothing to merge.
    for call in (calls * 2 / 3..calls).step_by(2) {
        let (log, _) = play!(from_several_to_one, Some(call));
        let (claims, nodes) = created(&log);
        assert!(claims == nodes && claims <= 4, "killed after call {call} of {calls}:\n{log}");
    }
}

/// The first replacement never becomes a node. It takes long until that is clear, so not every call is tried.
#[test]
fn taking_back_survives_a_crash() {
    let (log, calls) = play!(from_given_up_to_replaced, None::<u64>);
    assert_eq!(created(&log), (3, 2), "{log}");
    for call in (calls / 3..calls).step_by(7) {
        let (log, _) = play!(from_given_up_to_replaced, Some(call));
        assert_eq!(created(&log), (3, 2), "killed after call {call} of {calls}:\n{log}");
    }
}

/// Claims and nodes.
fn created(log: &EventLog) -> (usize, usize) {
    let count = |resource: &str| {
        let writes = log.entries().iter().filter(|entry| &*entry.resource == resource);
        writes.filter(|entry| entry.what == Write::Created).count()
    };
    (count("nodeclaims.karpenter.sh"), count("nodes"))
}

macro_rules! on_a_bad_day {
    ($($name:ident: $story:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            for seed in 1..=8 {
                let played = Testbed::in_virtual_time(async {
                    let world = World::on_testbed(seed, Settings::default()).await;
                    let faults = world.faults();
                    faults.at_rate(0.08, Matching::writes(), Fault::Conflict);
                    faults.at_rate(0.05, Matching::any(), Fault::InternalError);
                    let lost = Fault::TimeoutAfter(Duration::from_secs(5));
                    faults.at_rate(0.03, Matching::writes(), lost);
                    let _ = $story(&world).await;
                });
                played.expect("a runtime can be made");
            }
        })+
    };
}

on_a_bad_day! {
    emptiness_survives_a_bad_day: from_empty_to_nothing,
    drift_survives_a_bad_day: from_drifted_to_replaced,
    a_removal_survives_a_bad_day: from_two_nodes_to_one,
    a_replacement_survives_a_bad_day: from_large_to_small,
    a_merger_survives_a_bad_day: from_several_to_one,
}

macro_rules! play_first {
    ($faults:expr) => {{
        let faults: &Faults = $faults;
        let played = Testbed::in_virtual_time(async {
            let settings = stories::settings::terminating_first();
            let world = World::with_mortal_operator(7, settings, faults);
            from_drifted_to_drifted_through(&world).await;
            faults.calls()
        });
        played.expect("a runtime can be made")
    }};
}

/// Between the deadline of a drain and the deletion, for instance. The limit holds at every instant; the story sees to it.
#[test]
fn going_first_survives_a_crash() {
    let calls = play_first!(&Faults::seeded(7));
    for call in (calls / 3..calls).step_by(3) {
        let faults = Faults::seeded(7);
        faults.stop_after(call);
        play_first!(&faults);
    }
}

#[test]
fn going_first_keeps_the_limit_on_twenty_bad_days() {
    for seed in 1..=20 {
        let played = Testbed::in_virtual_time(async {
            let settings = stories::settings::terminating_first();
            let world = World::on_testbed(seed, settings).await;
            let faults = world.faults();
            faults.at_rate(0.08, Matching::writes(), Fault::Conflict);
            faults.at_rate(0.05, Matching::any(), Fault::InternalError);
            let lost = Fault::TimeoutAfter(Duration::from_secs(5));
            faults.at_rate(0.03, Matching::writes(), lost);
            from_drifted_to_drifted_through(&world).await;
        });
        played.expect("a runtime can be made");
    }
}
