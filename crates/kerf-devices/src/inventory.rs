//! The devices that one node can use, or that a node of some type would have.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::amount::Amount;
use crate::device::{Device, DeviceId, Kind};
use crate::pool::{Pools, Unusable};
use crate::reach::Reach;
use crate::slice::{Content, PoolId};

/// Devices in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct Inventory {
    pub(crate) devices: Vec<Seen>,
    pub(crate) pools: Vec<Counters>,
    pub(crate) unusable: Vec<(PoolId, Unusable)>,
}

/// A device as one node sees it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: DeviceId,
    pub(crate) device: Arc<Device>,
    pub(crate) reach: Reach,
    pub(crate) kind: KindId,
    /// Its pool among those of the inventory.
    pub(crate) pool: usize,
    pub(crate) consumes: Consumption,
}

/// Counters by their place in the pool, and what is consumed of them.
pub(crate) type Consumption = Vec<(usize, Amount)>;

/// The counters of a pool, and what can consume them, on this node or on others.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) totals: Vec<Amount>,
    pub(crate) consumers: Vec<(DeviceId, Consumption)>,
}

/// Stands for all devices of which selectors, constraints and requests see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindId(usize);

impl KindId {
    /// They are counted from zero.
    pub(crate) fn place(self) -> usize {
        self.0
    }
}

/// The kinds that are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds {
    ids: BTreeMap<Arc<Kind>, KindId>,
}

impl Kinds {
    fn id(&mut self, kind: &Arc<Kind>) -> KindId {
        if let Some(id) = self.ids.get(kind) {
            return *id;
        }
        let id = KindId(self.ids.len());
        self.ids.insert(kind.clone(), id);
        id
    }
}

impl Inventory {
    /// The devices whose reach includes the node in question.
    pub(crate) fn new(pools: &Pools, reaches: impl Fn(&Reach) -> bool, kinds: &mut Kinds) -> Self {
        let mut inventory = Self { devices: Vec::new(), pools: Vec::new(), unusable: Vec::new() };
        let mut tried_last = Vec::new();
        for (id, pool) in &pools.pools {
            let seen = pool.slices.iter().any(|slice| match &slice.content {
                Content::Devices { reach, .. } => reaches(reach),
                Content::ScatteredDevices(devices) => {
                    devices.iter().any(|device| device.reach.as_ref().is_some_and(&reaches))
                }
                Content::Counters(_) => false,
            });
            let totals = match &pool.state {
                _ if !seen => continue,
                Ok(counters) => counters,
                Err(unusable) => {
                    inventory.unusable.push((id.clone(), unusable.clone()));
                    continue;
                }
            };
            let places: BTreeMap<_, _> = totals.keys().zip(0..).collect();
            let mut counters =
                Counters { totals: totals.values().copied().collect(), consumers: Vec::new() };
            let mut devices = Vec::new();
            for (device, reach) in pool.slices.iter().flat_map(crate::slice::Slice::devices) {
                let consumes = device.consumes.iter();
                let consumes: Consumption = consumes
                    .filter_map(|one| Some((*places.get(&one.counter)?, one.amount)))
                    .collect();
                let (driver, pool) = (id.driver.clone(), id.pool.clone());
                let id = DeviceId { driver, pool, device: device.name.clone() };
                if !consumes.is_empty() {
                    counters.consumers.push((id.clone(), consumes.clone()));
                }
                let Some(reach) = reach.filter(|reach| reaches(reach)) else { continue };
                devices.push(Seen {
                    id,
                    kind: kinds.id(&device.kind),
                    device: Arc::new(device.clone()),
                    reach: reach.clone(),
                    pool: inventory.pools.len(),
                    consumes,
                });
            }
            inventory.pools.push(counters);
            if devices.iter().any(|seen| seen.device.has_binding_conditions) {
                tried_last.extend(devices);
            } else {
                inventory.devices.extend(devices);
            }
        }
        inventory.devices.extend(tried_last);
        inventory
    }

    /// Its devices, in the order in which they are tried.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.devices.iter().map(|seen| &seen.id)
    }
}
