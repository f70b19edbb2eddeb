//! Pools of devices, put together from their slices.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::amount::Amount;
use crate::device::CounterName;
use crate::slice::{Content, PoolId, Slice};

/// All pools, in the order in which devices are tried: by driver, then by name.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    pub(crate) pools: BTreeMap<PoolId, Pool>,
}

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Those of the newest generation, by name.
    pub(crate) slices: Vec<Slice>,
    pub(crate) state: Result<BTreeMap<CounterName, Amount>, Unusable>,
}

/// Why nothing can be allocated from a pool. Its driver mends that, mostly within moments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("{found} of its {expected} slices of generation {generation} are there")]
    Incomplete { found: usize, expected: NonZeroU64, generation: i64 },
    #[error("it has two devices named {device}")]
    SameDevice { device: Arc<str> },
    #[error("it has the counter {counter} twice")]
    SameCounter { counter: CounterName },
    #[error("its device {device} consumes the counter {counter}, which it does not have")]
    UnknownCounter { device: Arc<str>, counter: CounterName },
}

impl Pools {
    /// Slices of older generations are left out, wherever their devices can be used.
    pub fn gather(slices: impl IntoIterator<Item = Slice>) -> Self {
        let mut by_pool: BTreeMap<PoolId, Vec<Slice>> = BTreeMap::new();
        for slice in slices {
            let known = by_pool.entry(slice.pool.clone()).or_default();
            match known.first().map(|one| one.generation.cmp(&slice.generation)) {
                Some(std::cmp::Ordering::Greater) => {}
                Some(std::cmp::Ordering::Less) => *known = vec![slice],
                _ => known.push(slice),
            }
        }
        let pools = by_pool.into_iter().map(|(id, mut slices)| {
            slices.sort_by(|left, right| left.name.cmp(&right.name));
            let state = counters(&slices);
            (id, Pool { slices, state })
        });
        Self { pools: pools.collect() }
    }

    /// The pools that nothing can be allocated from, and why.
    pub fn unusable(&self) -> impl Iterator<Item = (&PoolId, &Unusable)> {
        self.pools.iter().filter_map(|(id, pool)| Some((id, pool.state.as_ref().err()?)))
    }
}

/// The counters of a pool, if the pool is complete and consistent.
fn counters(slices: &[Slice]) -> Result<BTreeMap<CounterName, Amount>, Unusable> {
    if let Some(first) = slices.first()
        && slices.len() as u64 != first.slices.get()
    {
        let (expected, generation) = (first.slices, first.generation);
        return Err(Unusable::Incomplete { found: slices.len(), expected, generation });
    }
    let mut counters = BTreeMap::new();
    for slice in slices {
        if let Content::Counters(some) = &slice.content {
            for (counter, amount) in some {
                if counters.insert(counter.clone(), *amount).is_some() {
                    return Err(Unusable::SameCounter { counter: counter.clone() });
                }
            }
        }
    }
    let mut names = BTreeSet::new();
    for (device, _) in slices.iter().flat_map(Slice::devices) {
        if !names.insert(&device.name) {
            return Err(Unusable::SameDevice { device: device.name.clone() });
        }
        if let Some(one) = device.consumes.iter().find(|one| !counters.contains_key(&one.counter)) {
            let (device, counter) = (device.name.clone(), one.counter.clone());
            return Err(Unusable::UnknownCounter { device, counter });
        }
    }
    Ok(counters)
}
