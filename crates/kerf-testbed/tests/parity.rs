//! The testbed's actors against the suite that they are measured by.
#![allow(clippy::unwrap_used, reason = "a case that panics is a case that fails")]
#![allow(clippy::needless_pass_by_value, reason = "changes are written where they are used")]

#[path = "parity/suite.rs"]
mod suite;

use kerf_testbed::Testbed;
use kerf_testbed::actors::Actors;

#[tokio::test(start_paused = true)]
async fn the_actors_do_as_the_real_ones_do() {
    let testbed = Testbed::builder().seed(7).start().unwrap();
    let _actors = testbed.start_actors(Actors { preemption: true, ..Actors::default() });
    suite::run(testbed.client()).await;
}
