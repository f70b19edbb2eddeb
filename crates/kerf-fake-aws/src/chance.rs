//! Chance without a generator: what is drawn follows from the seed and from what it is drawn for, so that one more draw here does
//! not change another there.

/// A number that follows from the seed and the parts.
pub(crate) fn draw(seed: u64, parts: &[&str]) -> u64 {
    // FNV-1a over the parts, each ended by a byte that no text has, and the finish of SplitMix64.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0xff])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// In [0, 1).
pub(crate) fn share(seed: u64, parts: &[&str]) -> f64 {
    (draw(seed, parts) >> 11) as f64 / (1_u64 << 53) as f64
}

/// An id as EC2 makes them: `ami-0123456789abcdef0`.
pub(crate) fn id(prefix: &str, seed: u64, parts: &[&str]) -> String {
    format!("{prefix}-0{:016x}", draw(seed, parts))
}
