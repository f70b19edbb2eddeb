//! Which devices are taken.

use rustc_hash::FxHashMap;

use crate::amount::Amount;
use crate::capacity::Amounts;
use crate::claim::standing::AllocatedDevice;
use crate::device::DeviceId;

/// What allocations have taken of devices. The counters that devices consume follow from it.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    devices: FxHashMap<DeviceId, Use>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Use {
    /// How many have the whole device. More than one only if allocations contradict each other.
    whole: u32,
    shares: u32,
    capacity: Amounts,
}

impl Usage {
    pub fn take(&mut self, device: &AllocatedDevice) {
        if device.admin_access {
            return;
        }
        let usage = self.devices.entry(device.device.clone()).or_default();
        match &device.share {
            None => usage.whole += 1,
            Some(amounts) => {
                usage.shares += 1;
                for (name, amount) in amounts {
                    let used = usage.capacity.entry(name.clone()).or_default();
                    *used = used.plus(*amount);
                }
            }
        }
    }

    /// Undoes [`take`](Self::take).
    pub fn release(&mut self, device: &AllocatedDevice) {
        let Some(usage) = self.devices.get_mut(&device.device) else { return };
        if device.admin_access {
            return;
        }
        match &device.share {
            None => usage.whole = usage.whole.saturating_sub(1),
            Some(amounts) => {
                usage.shares = usage.shares.saturating_sub(1);
                for (name, amount) in amounts {
                    if let Some(used) = usage.capacity.get_mut(name) {
                        *used = used.minus(*amount);
                    }
                }
            }
        }
        if usage.whole == 0 && usage.shares == 0 {
            self.devices.remove(&device.device);
        }
    }

    pub(crate) fn is_whole(&self, device: &DeviceId) -> bool {
        self.devices.get(device).is_some_and(|usage| usage.whole > 0)
    }

    pub(crate) fn is_used(&self, device: &DeviceId) -> bool {
        self.devices.contains_key(device)
    }

    pub(crate) fn of_capacity(&self, device: &DeviceId, capacity: &str) -> Amount {
        let usage = self.devices.get(device);
        usage.and_then(|usage| usage.capacity.get(capacity).copied()).unwrap_or_default()
    }
}
