//! Settings that hold for every pool.

use std::{num::NonZero, thread};

use kerf_scheduler::Options;

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, with a name")]
pub struct Settings {
    /// How pods are placed when a disruption is tried out.
    pub scheduling: Options,
    /// May a spot node be replaced by another spot node?
    pub spot_to_spot: bool,
    /// May nodes give way to several others that cost less together?
    pub many_to_many: bool,
    /// Are pools with `replicas` looked after?
    pub static_capacity: bool,
    /// May a drifted node go first where nothing can be launched beside it?
    pub terminate_first_drift: bool,
    /// May a broken one?
    pub terminate_first_repair: bool,
    /// On how many threads disruptions are tried out. What is decided does not depend on it.
    pub threads: NonZero<usize>,
    /// How many nodes one pass looks at before it leaves the rest to the next. Counted and not timed, so that the same
    /// pass decides the same on every machine.
    pub looks_per_pass: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduling: Options::default(),
            spot_to_spot: false,
            many_to_many: false,
            static_capacity: true,
            terminate_first_drift: false,
            terminate_first_repair: false,
            threads: thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN),
            looks_per_pass: 2_000,
        }
    }
}
