//! What holds for every pool.

use kerf_scheduler::Options;

#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How pods are placed when a disruption is tried out.
    pub scheduling: Options,
    /// May a spot node be replaced by another spot node?
    pub spot_to_spot: bool,
    /// Are pools with `replicas` looked after?
    pub static_capacity: bool,
}
