//! How pods are placed.

use kerf_model::{MAX_INSTANCE_TYPES, MinValuesPolicy};

/// Work for the search for cheaper machines beyond which hardly anything is found: some 20 ms.
pub const PACKING: u64 = 1_500_000;

#[derive(Clone, Debug)]
pub struct Options {
    pub preferences: PreferencePolicy,
    pub min_values: MinValuesPolicy,
    pub reserved: ReservedMode,
    /// Keep pods that consolidation would move away from nodes that are still settling.
    pub honor_settling: bool,
    /// Instance types kept per claim, the cheapest first.
    pub max_instance_types: usize,
    /// How much work the search for cheaper machines may cost, in looks at sorts of pods. [`PACKING`] is what pays; zero: there is
    /// no search.
    pub packing: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
            reserved: ReservedMode::Fallback,
            honor_settling: false,
            max_instance_types: MAX_INSTANCE_TYPES,
            packing: 0,
        }
    }
}

/// What becomes of preferences: they are hard until they are in the way, or they do not count at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreferencePolicy {
    #[default]
    Respect,
    Ignore,
}

/// What a pod does when the reservations that it could use are taken by claims of the same run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservedMode {
    /// Reservations are not looked at.
    Off,
    /// Buy something else.
    #[default]
    Fallback,
    /// Wait for the next run: claims hold more than they will use, so it is too early to pay.
    Strict,
}
