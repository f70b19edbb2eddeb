//! Resource amounts as short vectors of integers, one lane per resource name.

use indexmap::IndexMap;
use kerf_model::quantity::{Notation, Quantity};
use kerf_model::resources::{CPU, MEMORY, PODS, Resources};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use crate::refusal::Refusal;

/// Amounts by lane, in the units of the [`LaneTable`] that made them.
pub(crate) type Lanes = SmallVec<[i64; 6]>;

pub(crate) const CPU_LANE: usize = 0;
pub(crate) const MEMORY_LANE: usize = 1;

/// Which lane holds which resource.
///
/// Every lane has its unit from the start, as the Kubernetes scheduler counts: thousandths of a CPU, and whole units
/// of everything else. Were it chosen by the amounts that turn up, one pod that asks for too much or for too little
/// would change what all others seem to ask for.
#[derive(Clone, Debug)]
pub(crate) struct LaneTable {
    lanes: IndexMap<String, Notation, FxBuildHasher>,
}

/// More than any machine has: 10^15 CPUs, an exabyte. What is larger counts as this much, each amount by itself; nine
/// of them can be added up, and then sums saturate.
const LARGEST: i128 = 1_000_000_000_000_000_000;

/// Billionths per unit of a lane.
fn unit(lane: usize) -> i128 {
    if lane == CPU_LANE { 1_000_000 } else { 1_000_000_000 }
}

impl LaneTable {
    /// A lane for each resource that nodes and instance types have or limits name. What only pods name gets none: no
    /// node has it, and every name would cost a number per node.
    pub(crate) fn covering<'a>(amounts: impl Iterator<Item = &'a Resources>) -> Self {
        let mut lanes: IndexMap<String, Notation, FxBuildHasher> = IndexMap::default();
        for name in [CPU, MEMORY, PODS] {
            lanes.insert(name.to_owned(), Notation::Decimal);
        }
        for (name, amount) in amounts.flat_map(Resources::iter) {
            let notation = match lanes.get_mut(name) {
                Some(notation) => notation,
                None => lanes.entry(name.to_owned()).or_insert(Notation::Decimal),
            };
            if amount.notation() == Notation::Binary {
                *notation = Notation::Binary;
            }
        }
        Self { lanes }
    }

    /// Whether some node could have these amounts; the first one that none can is named.
    pub(crate) fn check(&self, requests: &Resources) -> Result<(), Refusal> {
        for (name, amount) in requests.iter().filter(|(_, amount)| *amount > Quantity::ZERO) {
            let resource = || name.to_owned();
            let Some(lane) = self.lane(name) else {
                return Err(Refusal::UnknownResource { resource: resource(), amount });
            };
            let most = Quantity::from_nanos(LARGEST * unit(lane), Notation::Decimal);
            if amount > most {
                return Err(Refusal::AbsurdRequest { resource: resource(), amount, most });
            }
        }
        Ok(())
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
            if let Some(lane) = self.lane(name) {
                let rounded = round(amount.nanos(), unit(lane)).clamp(-LARGEST, LARGEST);
                lanes[lane] = i64::try_from(rounded).unwrap_or(i64::MAX);
            }
        }
        lanes
    }

    pub(crate) fn zero(&self) -> Lanes {
        smallvec::smallvec![0; self.len()]
    }

    /// One amount of a lane, zero or not.
    pub(crate) fn named(&self, lane: usize, amount: i64) -> Option<(&str, Quantity)> {
        let (name, notation) = self.lanes.get_index(lane)?;
        Some((name, Quantity::from_nanos(i128::from(amount) * unit(lane), *notation)))
    }

    /// Back to named amounts, without zeros.
    pub(crate) fn resources(&self, lanes: &[i64]) -> Resources {
        self.lanes
            .iter()
            .enumerate()
            .zip(lanes)
            .filter(|(_, amount)| **amount != 0)
            .map(|((lane, (name, notation)), amount)| {
                let nanos = i128::from(*amount) * unit(lane);
                (name.as_str(), Quantity::from_nanos(nanos, *notation))
            })
            .collect()
    }
}

pub(crate) fn add(to: &mut [i64], amounts: &[i64]) {
    for (total, amount) in to.iter_mut().zip(amounts) {
        *total = total.saturating_add(*amount);
    }
}

/// Lifts each lane to what the other has, where that is more.
pub(crate) fn raise(most: &mut Lanes, amounts: &[i64]) {
    for (most, amount) in most.iter_mut().zip(amounts) {
        *most = (*most).max(*amount);
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
    fn the_unit_of_a_lane_does_not_depend_on_the_amounts() {
        let ordinary = amounts(&[("cpu", "1500m"), ("memory", "4Gi"), ("gpu", "1")]);
        for other in [
            amounts(&[("cpu", "2"), ("gpu", "3")]),
            amounts(&[("cpu", "1n"), ("memory", "1n"), ("gpu", "1n")]),
            amounts(&[("cpu", "100E"), ("memory", "8Ei"), ("gpu", "1e30")]),
            amounts(&[("cpu", "-100E"), ("memory", "-8Ei"), ("gpu", "-1e30")]),
        ] {
            let table = LaneTable::covering([&ordinary, &other].into_iter());
            assert_eq!(table.request(&ordinary).as_slice(), [1500, 4 << 30, 0, 1], "{other}");
            assert_eq!(table.resources(&table.room(&ordinary)), ordinary, "{other}");
        }
    }

    #[test]
    fn each_amount_rounds_and_saturates_by_itself() {
        const MOST: i64 = 1_000_000_000_000_000_000;
        for (amount, request, room) in [
            (("cpu", "1n"), 1, 0),
            (("cpu", "1500u"), 2, 1),
            (("cpu", "-1500u"), -1, -2),
            (("memory", "100m"), 1, 0),
            (("cpu", "1P"), MOST, MOST),
            (("cpu", "5e16"), MOST, MOST),
            (("memory", "1E"), MOST, MOST),
            (("memory", "1e30"), MOST, MOST),
            (("memory", "-1e30"), -MOST, -MOST),
        ] {
            let amounts = amounts(&[amount]);
            let table = LaneTable::covering([&amounts].into_iter());
            let lane = table.lane(amount.0).unwrap();
            assert_eq!(table.request(&amounts)[lane], request, "{amount:?}");
            assert_eq!(table.room(&amounts)[lane], room, "{amount:?}");
        }
    }

    #[test]
    fn more_than_any_machine_has_is_absurd_and_what_none_has_is_unknown() {
        let table = LaneTable::covering([&amounts(&[("gpu", "1")])].into_iter());
        for (amount, refusal) in [
            (("cpu", "1P"), ""),
            (("cpu", "1000000000000000001m"), "AbsurdRequest"),
            (("memory", "1E"), ""),
            (("memory", "1Ei"), "AbsurdRequest"),
            (("gpu", "9E"), "AbsurdRequest"),
            (("gpu", "-9E"), ""),
            (("other", "1"), "UnknownResource"),
            (("other", "9E"), "UnknownResource"),
            (("other", "0"), ""),
        ] {
            let found = table.check(&amounts(&[amount])).err();
            assert_eq!(found.as_ref().map_or("", Refusal::name), refusal, "{amount:?}");
        }
    }

    #[test]
    fn nothing_fits_where_anything_is_overdrawn() {
        assert!(fits(&[1, 0], &[1, 0]));
        assert!(!fits(&[2, 0], &[1, 0]));
        assert!(!fits(&[0, 0], &[1, -1]));
    }
}
