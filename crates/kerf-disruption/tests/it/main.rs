//! What a pass decides, told with small clusters.

#[expect(dead_code, reason = "the builders of the scheduler's tests, of which these need some")]
#[path = "../../../kerf-scheduler/tests/it/build.rs"]
mod build;
#[path = "../../../kerf-scheduler/tests/it/checker.rs"]
mod checker;
#[expect(dead_code, reason = "as with the builders")]
#[path = "../../../kerf-scheduler/tests/it/random.rs"]
mod random;

mod buffers;
mod candidates;
mod consolidation;
mod controls;
mod deletion_cost;
mod drift;
mod emptiness;
mod many_to_many;
mod places;
mod properties;
mod quiet;
mod reboot;
mod repair;
mod replacing;
mod setbacks;
mod terminate_first;
mod turns;
