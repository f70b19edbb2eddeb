//! Numbers that follow from a seed.

/// A splitmix64 sequence.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From `low` up to, and not including, `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }

    /// One of them; there has to be one.
    pub(super) fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.between(0, from.len() as u64);
        &from[usize::try_from(index).unwrap_or_default()]
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.between(0, 100) < percent
    }
}
