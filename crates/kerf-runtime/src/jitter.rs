//! Randomness for waiting times, from a seed, so that a run in virtual time can be repeated.

use std::time::Duration;

/// A splitmix64 sequence: reproducible from its seed, and random enough to spread attempts.
#[derive(Debug)]
pub struct Jitter(u64);

impl Jitter {
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Up to 1.2 times as much again, as client-go does it.
    pub fn stretch(&mut self, period: Duration) -> Duration {
        const MOST: f64 = 1.2;
        period + period.mul_f64(MOST * self.next())
    }

    /// Between half of it and all of it.
    pub fn shorten(&mut self, period: Duration) -> Duration {
        period.mul_f64(1.0 - self.next() / 2.0)
    }

    /// Anything up to it: what spreads best when many wait for the same thing.
    pub fn any(&mut self, period: Duration) -> Duration {
        period.mul_f64(self.next())
    }

    /// In [0, 1).
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
