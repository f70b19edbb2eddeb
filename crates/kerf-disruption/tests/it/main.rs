//! What a pass decides, told with small estates.

#[expect(dead_code, reason = "the builders of the scheduler's tests, of which these need some")]
#[path = "../../../kerf-scheduler/tests/it/build.rs"]
mod build;
mod estate;

mod candidates;
mod consolidation;
mod drift;
mod emptiness;
