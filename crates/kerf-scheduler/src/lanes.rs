//! Resource amounts as short vectors of integers, one lane per resource name.

use indexmap::IndexMap;
use kerf_model::quantity::{Notation, Quantity};
use kerf_model::resources::{CPU, MEMORY, PODS, Resources};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

/// Amounts by lane, in the units of the [`LaneTable`] that made them.
pub(crate) type Lanes = SmallVec<[i64; 6]>;

pub(crate) const CPU_LANE: usize = 0;
pub(crate) const MEMORY_LANE: usize = 1;

/// Which lane holds which resource, and in which unit.
#[derive(Clone, Debug)]
pub(crate) struct LaneTable {
    lanes: IndexMap<String, Unit, FxBuildHasher>,
}

#[derive(Clone, Debug)]
struct Unit {
    /// Billionths per unit of the lane.
    nanos: i128,
    notation: Notation,
}

/// Amounts stay below this, so that sums over many pods cannot overflow in practice and saturate if they do.
const LARGEST: i128 = 1 << 55;

impl LaneTable {
    /// Picks for each resource the coarsest of units, thousandths, millionths and billionths that holds
    /// every amount exactly. Where exact amounts would be too large for a lane, it is coarser, and amounts
    /// round against the pod: requests up, room down.
    pub(crate) fn covering<'a>(amounts: impl Iterator<Item = &'a Resources>) -> Self {
        struct Seen {
            unit: i128,
            largest: i128,
            notation: Notation,
        }
        let mut seen: IndexMap<String, Seen, FxBuildHasher> = IndexMap::default();
        for name in [CPU, MEMORY, PODS] {
            let first = Seen { unit: 1_000_000_000, largest: 0, notation: Notation::Decimal };
            seen.insert(name.to_owned(), first);
        }
        for (name, amount) in amounts.flat_map(Resources::iter) {
            let entry = match seen.get_mut(name) {
                Some(entry) => entry,
                None => seen.entry(name.to_owned()).or_insert(Seen {
                    unit: 1_000_000_000,
                    largest: 0,
                    notation: Notation::Decimal,
                }),
            };
            while entry.unit > 1 && amount.nanos() % entry.unit != 0 {
                entry.unit /= 1000;
            }
            entry.largest = entry.largest.max(amount.nanos().abs());
            if amount.notation() == Notation::Binary {
                entry.notation = Notation::Binary;
            }
        }
        let lanes = seen
            .into_iter()
            .map(|(name, seen)| {
                let mut nanos = seen.unit;
                while seen.largest / nanos > LARGEST {
                    nanos *= 1000;
                }
                (name, Unit { nanos, notation: seen.notation })
            })
            .collect();
        Self { lanes }
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn lane(&self, name: &str) -> Option<usize> {
        self.lanes.get_index_of(name)
    }

    /// What is asked for; rounds up.
    pub(crate) fn request(&self, amounts: &Resources) -> Lanes {
        self.convert(amounts, |nanos, unit| {
            nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0)
        })
    }

    /// What there is; rounds down.
    pub(crate) fn room(&self, amounts: &Resources) -> Lanes {
        self.convert(amounts, i128::div_euclid)
    }

    fn convert(&self, amounts: &Resources, round: impl Fn(i128, i128) -> i128) -> Lanes {
        let mut lanes = self.zero();
        for (name, amount) in amounts.iter() {
            if let Some((lane, _, unit)) = self.lanes.get_full(name) {
                let rounded = round(amount.nanos(), unit.nanos);
                lanes[lane] = i64::try_from(rounded).unwrap_or(i64::MAX);
            }
        }
        lanes
    }

    pub(crate) fn zero(&self) -> Lanes {
        smallvec::smallvec![0; self.len()]
    }

    /// Back to named amounts, without zeros.
    pub(crate) fn resources(&self, lanes: &[i64]) -> Resources {
        self.lanes
            .iter()
            .zip(lanes)
            .filter(|(_, amount)| **amount != 0)
            .map(|((name, unit), amount)| {
                let nanos = i128::from(*amount) * unit.nanos;
                (name.as_str(), Quantity::from_nanos(nanos, unit.notation))
            })
            .collect()
    }
}

pub(crate) fn add(to: &mut [i64], amounts: &[i64]) {
    for (total, amount) in to.iter_mut().zip(amounts) {
        *total = total.saturating_add(*amount);
    }
}

pub(crate) fn subtract(from: &mut [i64], amounts: &[i64]) {
    for (total, amount) in from.iter_mut().zip(amounts) {
        *total = total.saturating_sub(*amount);
    }
}

/// Whether the request fits; nothing fits where anything is overdrawn.
pub(crate) fn fits(request: &[i64], room: &[i64]) -> bool {
    request.iter().zip(room).all(|(asked, left)| *left >= 0 && asked <= left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(list: &[(&str, &str)]) -> Resources {
        list.iter().map(|(name, amount)| (*name, amount.parse().unwrap())).collect()
    }

    #[test]
    fn units_are_as_coarse_as_exactness_allows() {
        let all = [
            amounts(&[("cpu", "2"), ("memory", "4Gi"), ("gpu", "1")]),
            amounts(&[("cpu", "100m"), ("memory", "1")]),
            amounts(&[("cpu", "1500u")]),
        ];
        let table = LaneTable::covering(all.iter());
        assert_eq!(table.request(&all[0]).as_slice(), [2_000_000, 4 << 30, 0, 1]);
        assert_eq!(table.request(&all[2]).as_slice(), [1500, 0, 0, 0]);
        assert_eq!(table.resources(&table.room(&all[0])), all[0]);
    }

    #[test]
    fn amounts_too_large_for_exactness_round_against_the_pod() {
        let all = [amounts(&[("memory", "8Ei")]), amounts(&[("memory", "1n")])];
        let table = LaneTable::covering(all.iter());
        assert_eq!(table.request(&all[1])[MEMORY_LANE], 1);
        assert_eq!(table.room(&all[1])[MEMORY_LANE], 0);
        assert!(table.room(&all[0])[MEMORY_LANE] > 0);
    }

    #[test]
    fn nothing_fits_where_anything_is_overdrawn() {
        assert!(fits(&[1, 0], &[1, 0]));
        assert!(!fits(&[2, 0], &[1, 0]));
        assert!(!fits(&[0, 0], &[1, -1]));
    }
}
