//! The testbed's only source of chance.

/// A seeded generator (`SplitMix64`): small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// True once in a while: with probability `rate`, where 1.0 is always.
    pub fn chance(&mut self, rate: f64) -> bool {
        // 53 bits fill a double's mantissa exactly.
        ((self.next_u64() >> 11) as f64) < rate * 9_007_199_254_740_992.0
    }

    /// A stream of its own, so that one consumer drawing more does not shift another.
    pub fn fork(&mut self) -> Self {
        Self(self.next_u64())
    }

    /// The stream as it is after so many draws.
    pub(crate) fn after(&self, draws: u64) -> Self {
        Self(self.0.wrapping_add(draws.wrapping_mul(STEP)))
    }

    pub(crate) fn uuid(&mut self) -> String {
        let (a, b) = (self.next_u64(), self.next_u64());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | (b >> 48 & 0x3fff),
            b & 0xffff_ffff_ffff
        )
    }

    /// The five characters the API server appends to `generateName`: no vowels, so no words by accident.
    pub(crate) fn name_suffix(&mut self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5)
            .map(|_| {
                let at = usize::try_from(self.below(27)).unwrap_or_default();
                char::from(LETTERS[at])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_draws() {
        let draw = |seed| {
            let mut random = Random::seeded(seed);
            (random.uuid(), random.name_suffix(), random.chance(0.5))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7).0, draw(8).0);
    }

    #[test]
    fn draws_can_be_passed_over() {
        let mut random = Random::seeded(7);
        let later = random.after(2).uuid();
        random.uuid();
        assert_eq!(random.uuid(), later);
    }

    #[test]
    fn uuids_are_version_4() {
        let uid = Random::seeded(1).uuid();
        let parts: Vec<_> = uid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&uid[14..15], "4");
    }

    #[test]
    fn chance_keeps_its_rate() {
        let mut random = Random::seeded(3);
        let hits = (0..10_000).filter(|_| random.chance(0.1)).count();
        assert!((900..1_100).contains(&hits), "{hits} of 10000 at rate 0.1");
        assert!((0..100).all(|_| random.chance(1.0) && !random.chance(0.0)));
    }
}
