//! The testbed against the suite of API semantics.
#![allow(clippy::unwrap_used, reason = "a case that panics is a case that fails")]
#![allow(clippy::needless_pass_by_value, reason = "bodies are written where they are sent")]
#![allow(clippy::similar_names, reason = "a patch goes to a path")]

#[path = "conformance/suite.rs"]
mod suite;

use kerf_testbed::Testbed;

#[test]
fn the_suite_is_large_enough() {
    assert!(suite::all().len() >= 80, "{} cases", suite::all().len());
}

#[test]
fn testbed_conforms() {
    Testbed::in_virtual_time(async {
        let testbed = Testbed::builder().start().unwrap();
        suite::harness::run(testbed.client(), suite::all()).await;
    })
    .unwrap();
}
