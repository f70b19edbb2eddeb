//! Static pools in storms. Each seed is a storm of its own; in a debug build a dozen are what
//! a test run can afford. `cargo run --release -p kerf-stories --example static_storm` plays a thousand.

use kerf_stories::chapters::static_capacity::storm::storm;

const SEEDS: u64 = 12;

/// The claim of a node was gone a moment before the watch said so, and the node kept its finalizer for ever.
const CLAIM_GONE_FIRST: u64 = 558;

#[test]
fn a_pool_never_exceeds_its_limit_and_settles_at_its_replicas() {
    let mut at_their_limit = 0;
    for seed in (0..SEEDS).chain([CLAIM_GONE_FIRST]) {
        let storm = storm(seed);
        at_their_limit += usize::from(storm.peak == storm.limit);
    }
    // Storms that stay far from the limit would show nothing.
    assert!(at_their_limit > 6, "only {at_their_limit} storms came to their limit");
}
