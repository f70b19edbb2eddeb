//! The stories of two operators and one lease, in virtual time.

use std::time::Duration;

use kerf_stories::chapters::leases;
use kerf_testbed::{Fault, Testbed};

macro_rules! stories {
    ($($story:ident),+ $(,)?) => {
        $(#[tokio::test(start_paused = true)]
        async fn $story() {
            leases::$story().await;
        })+
    };
}

stories! {
    a_lease_that_cannot_be_renewed_ends_its_holder_before_the_next_begins,
    a_lease_that_is_taken_ends_its_holder_at_once,
    a_lease_that_is_given_back_is_taken_at_once,
}

#[test]
fn a_leader_that_was_suspended_at_any_moment_writes_nothing_afterwards() {
    // From a pod that is new to a node that is ready.
    for after in (0..40).map(|tenth| Duration::from_millis(tenth * 100)) {
        println!("suspended after {after:?}");
        let life = leases::a_leader_that_was_suspended_writes_nothing_afterwards(after);
        Testbed::in_virtual_time(life).expect("a runtime can be made");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_minutes_ahead_is_neither_robbed_nor_a_robber() {
    leases::clocks_that_are_minutes_apart_do_not_matter(4, -4).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_minutes_behind_is_neither_robbed_nor_a_robber() {
    leases::clocks_that_are_minutes_apart_do_not_matter(-4, 4).await;
}

/// After this long a call is given up.
const SILENCE: Duration = Duration::from_secs(5);

#[test]
fn a_leader_that_is_cut_off_at_any_call_does_nothing_that_is_done_again() {
    let play = |from, cut| {
        let life = leases::a_life_in_which_the_leader_is_cut_off(from, cut);
        Testbed::in_virtual_time(life).expect("a runtime can be made")
    };
    let calls = play(None, Fault::TimeoutBefore(SILENCE));
    assert!(calls > 40, "a whole life takes more calls than {calls}");
    for call in 1..=calls {
        // Its calls are lost, or arrive and only their answers are lost.
        for cut in [Fault::TimeoutBefore(SILENCE), Fault::TimeoutAfter(SILENCE)] {
            println!("cut off at call {call} of {calls}: {cut:?}");
            play(Some(call), cut);
        }
    }
}
