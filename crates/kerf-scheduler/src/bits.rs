//! A growable set of small numbers.

/// Sets of different lengths go together: what a set does not reach, it does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// All of `0..count`.
    pub(crate) fn full(count: usize) -> Self {
        let mut words = vec![u64::MAX; count / 64];
        if !count.is_multiple_of(64) {
            words.push((1 << (count % 64)) - 1);
        }
        Self(words)
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    pub(crate) fn insert(&mut self, index: usize) {
        if self.0.len() <= index / 64 {
            self.0.resize(index / 64 + 1, 0);
        }
        self.0[index / 64] |= 1 << (index % 64);
    }

    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// All of `bits`, which stand for 64 numbers from `64 * at` on.
    pub(crate) fn insert_word(&mut self, at: usize, bits: u64) {
        if bits != 0 {
            if self.0.len() <= at {
                self.0.resize(at + 1, 0);
            }
            self.0[at] |= bits;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    pub(crate) fn intersect_with(&mut self, other: &Self) {
        self.0.truncate(other.0.len());
        for (own, theirs) in self.0.iter_mut().zip(&other.0) {
            *own &= theirs;
        }
    }

    pub(crate) fn union_with(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, theirs) in self.0.iter_mut().zip(&other.0) {
            *own |= theirs;
        }
    }

    pub(crate) fn remove_all(&mut self, other: &Self) {
        for (own, theirs) in self.0.iter_mut().zip(&other.0) {
            *own &= !theirs;
        }
    }

    /// Becomes the other without a new allocation where that is possible.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.0.clear();
        self.0.extend_from_slice(&other.0);
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    at * 64 + bit
                })
            })
        })
    }

    /// The first of `from..end` that is not in the set.
    pub(crate) fn next_absent(&self, from: usize, end: usize) -> Option<usize> {
        let mut index = from;
        while index < end {
            let word = self.0.get(index / 64).copied().unwrap_or(0) >> (index % 64);
            if word & 1 == 0 {
                return Some(index);
            }
            // Jump over the run of ones that starts here; the shift filled the top with zeros.
            index += (word.trailing_ones() as usize).min(64 - index % 64);
        }
        None
    }
}

impl FromIterator<usize> for Bits {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut bits = Self::default();
        for index in indices {
            bits.insert(index);
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(indices: &[usize]) -> Bits {
        indices.iter().copied().collect()
    }

    #[test]
    fn sets_of_different_lengths_go_together() {
        let (short, long) = (bits(&[1, 3]), bits(&[3, 130]));
        assert!(short.meets(&long) && long.meets(&short));
        let mut both = long.clone();
        both.intersect_with(&short);
        assert_eq!(both.iter().collect::<Vec<_>>(), [3]);
        let mut any = short.clone();
        any.union_with(&long);
        assert_eq!(any.iter().collect::<Vec<_>>(), [1, 3, 130]);
        any.remove_all(&bits(&[3, 500]));
        assert_eq!(any.iter().collect::<Vec<_>>(), [1, 130]);
        assert!(!short.contains(1000));
    }

    #[test]
    fn full_holds_exactly_that_many() {
        for count in [0, 1, 63, 64, 65, 128, 200] {
            assert_eq!(
                Bits::full(count).iter().collect::<Vec<_>>(),
                (0..count).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn finds_the_next_absent_across_words() {
        let set: Bits = (0..130).filter(|index| *index != 64).collect();
        assert_eq!(set.next_absent(0, 200), Some(64));
        assert_eq!(set.next_absent(65, 200), Some(130));
        assert_eq!(set.next_absent(65, 130), None);
        assert_eq!(set.next_absent(64, 200), Some(64));
        assert_eq!(Bits::default().next_absent(7, 8), Some(7));
        assert_eq!(Bits::default().next_absent(8, 8), None);
        assert_eq!(Bits::full(64).next_absent(0, 100), Some(64));
    }
}
