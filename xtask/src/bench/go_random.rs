//! The numbers that Go's `math/rand` gives for a seed: upstream's benchmark draws its pods with them, and ours are
//! to be the same pods.

use std::iter;

const LENGTH: usize = 607;
const TAP: usize = 273;

/// An additive lagged Fibonacci generator: each number is the sum of those 607 and 273 draws before.
pub(crate) struct GoRandom {
    state: [u64; LENGTH],
    draws: usize,
}

impl GoRandom {
    pub(crate) fn seeded(seed: u32) -> Self {
        let mut state = scrambled();
        for (slot, noise) in state.iter_mut().zip(seed_noise(seed, 20)) {
            *slot ^= noise;
        }
        Self { state, draws: 0 }
    }

    /// One of these, as `list[r.Intn(len(list))]` draws it.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn below(&mut self, bound: usize) -> usize {
        // Numbers past the last multiple of the bound would make the first values more likely.
        let unbiased = (1 << 31) - (1 << 31) % bound;
        loop {
            let number = self.bits_31();
            if number < unbiased {
                return number % bound;
            }
        }
    }

    fn bits_31(&mut self) -> usize {
        self.draws += 1;
        let feed = slot_of(self.draws);
        let tap = slot_of(self.draws + LENGTH - TAP);
        self.state[feed] = self.state[feed].wrapping_add(self.state[tap]);
        usize::try_from(self.state[feed] << 1 >> 33).unwrap_or_default()
    }
}

/// Where the number of this draw is kept: Go walks its ring downwards.
fn slot_of(draw: usize) -> usize {
    (2 * LENGTH - TAP - draw % LENGTH) % LENGTH
}

/// What Go mixes into every seed: the generator's state, started from 1, after 7.8 * 10^12 draws. Go keeps it as
/// a table of 607 numbers. Here it is computed by skipping those draws: draw n is the combination of the first 607
/// whose coefficients are those of x^n modulo x^607 - x^334 - 1.
fn scrambled() -> [u64; LENGTH] {
    const SKIPPED: u64 = 7_800_000_000_000;
    let start: Vec<_> = seed_noise(1, 10).take(LENGTH).collect();
    // Draws -606 to 0 are the seed itself.
    let first: Vec<_> = (1..=LENGTH).map(|draw| start[slot_of(draw)]).collect();
    let mut power = power_of_x(SKIPPED);
    let mut state = [0; LENGTH];
    for draw in 1..=LENGTH {
        let number = power
            .iter()
            .zip(&first)
            .fold(0_u64, |sum, (factor, number)| sum.wrapping_add(factor.wrapping_mul(*number)));
        let skipped = usize::try_from(SKIPPED % LENGTH as u64).unwrap_or_default();
        state[slot_of(draw + skipped)] = number;
        times_x(&mut power);
    }
    state
}

/// Go's seeds are drawn from a generator of Lehmer's kind, three numbers to each slot.
fn seed_noise(seed: u32, shift: u32) -> impl Iterator<Item = u64> {
    let mut numbers =
        iter::successors(Some(u64::from(seed)), |number| Some(number * 48_271 % 0x7fff_ffff))
            .skip(21);
    iter::from_fn(move || {
        let mut next = || numbers.next();
        Some(next()? << (2 * shift) ^ next()? << shift ^ next()?)
    })
}

fn power_of_x(exponent: u64) -> Vec<u64> {
    let mut power = vec![0; LENGTH];
    power[0] = 1;
    for bit in (0..u64::BITS - exponent.leading_zeros()).rev() {
        power = squared(&power);
        if exponent >> bit & 1 == 1 {
            times_x(&mut power);
        }
    }
    power
}

fn times_x(power: &mut [u64]) {
    power.rotate_right(1);
    power[LENGTH - TAP] = power[LENGTH - TAP].wrapping_add(power[0]);
}

fn squared(power: &[u64]) -> Vec<u64> {
    let mut product = vec![0_u64; 2 * LENGTH - 1];
    for (i, a) in power.iter().enumerate() {
        for (slot, b) in product[i..].iter_mut().zip(power) {
            *slot = slot.wrapping_add(a.wrapping_mul(*b));
        }
    }
    for high in (LENGTH..product.len()).rev() {
        let factor = product[high];
        for low in [high - LENGTH, high - TAP] {
            product[low] = product[low].wrapping_add(factor);
        }
    }
    product.truncate(LENGTH);
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_what_go_draws() {
        // rand.New(rand.NewSource(42)), then Intn of 7, 5 and 6 in turn.
        let mut random = GoRandom::seeded(42);
        let drawn: Vec<_> =
            [7, 5, 6].into_iter().cycle().take(12).map(|bound| random.below(bound)).collect();
        assert_eq!(drawn, [5, 2, 2, 1, 3, 1, 6, 1, 2, 3, 4, 5]);
        for _ in 0..100_000 {
            random.below(7);
        }
        assert_eq!(random.below(1_000_003), 691_734);
    }
}
