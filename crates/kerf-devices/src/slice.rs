//! ResourceSlices: what a driver publishes of its devices.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::amount::Amount;
use crate::device::{CounterName, Device};
use crate::reach::Reach;

mod from_api;

pub use from_api::{MalformedSlice, SliceDefect};

/// A part of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub name: Arc<str>,
    pub pool: PoolId,
    /// A driver that changes anything in a pool counts this up in all slices of the pool.
    pub generation: i64,
    /// How many slices the pool has in this generation.
    pub slices: NonZeroU64,
    pub content: Content,
}

/// A pool of devices. Its name is unique among those of its driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
}

impl std::fmt::Display for PoolId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Devices that can all be used from the same nodes.
    Devices { reach: Reach, devices: Vec<Device> },
    /// Devices that say for themselves from which nodes they can be used.
    ScatteredDevices(Vec<Device>),
    /// What devices of the pool share.
    Counters(BTreeMap<CounterName, Amount>),
}

impl Slice {
    /// Its devices, each with its reach. A device without one cannot be used.
    pub fn devices(&self) -> impl Iterator<Item = (&Device, Option<&Reach>)> {
        let (shared, devices) = match &self.content {
            Content::Devices { reach, devices } => (Some(reach), devices.as_slice()),
            Content::ScatteredDevices(devices) => (None, devices.as_slice()),
            Content::Counters(_) => (None, [].as_slice()),
        };
        devices.iter().map(move |device| (device, shared.or(device.reach.as_ref())))
    }
}
