//! The instance types of a class, kept while nothing changes.

mod sharing;

use std::collections::BTreeMap;
use std::sync::Arc;

use kerf_model::{InstanceType, Offering, Price};

use crate::catalogue::{Region, RegionType};
use crate::instance_types::{BareType, ClassShape, DiscoveredMemory, Known, Settings};
use crate::offerings::{Market, offerings};

pub use sharing::TypesOfClasses;

/// The instance types of a class. Schedulers recognise the list by its allocation, and a type by its own: a change of one
/// type replaces one `Arc` in a new list, and without a change the list stays the same.
#[derive(Clone, Debug, Default)]
pub struct ClassTypes {
    types: Arc<[Arc<InstanceType>]>,
    built: Option<Built>,
}

/// What the types were built from.
#[derive(Clone, Debug)]
struct Built {
    region: Arc<Region>,
    shape: ClassShape,
    settings: Settings,
    memory: DiscoveredMemory,
    market: MarketOfAll,
    /// One for each type.
    parts: Vec<Parts>,
}

/// What of the market is the same for all types.
#[derive(Clone, Debug, PartialEq)]
struct MarketOfAll {
    /// Zones that are shifted or without addresses.
    closed_zones: Vec<String>,
    overlay_prices: BTreeMap<String, Price>,
}

#[derive(Clone, Copy, Debug)]
struct Parts {
    memory: u64,
    versions: Versions,
}

/// What of the market a type depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Versions {
    prices: u64,
    unavailable: u64,
    reservations: u64,
}

/// What a class's types follow from beside the market.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub region: &'a Arc<Region>,
    pub shape: &'a ClassShape,
    pub settings: &'a Settings,
    pub memory: &'a DiscoveredMemory,
}

impl ClassTypes {
    /// The types as they were last made.
    pub fn last(&self) -> &Arc<[Arc<InstanceType>]> {
        &self.types
    }

    /// The types as of now. [`crate::unavailable::Unavailable::expire`] is to be called before.
    pub fn refresh(&mut self, inputs: Inputs<'_>, market: Market<'_>) -> &Arc<[Arc<InstanceType>]> {
        match self.built.take().filter(|built| built.can_be_mended(inputs)) {
            Some(built) => self.mend(built, inputs, market),
            None => self.build(inputs, market),
        }
        &self.types
    }

    fn build(&mut self, inputs: Inputs<'_>, market: Market<'_>) {
        let region = inputs.region;
        let mut parts = Vec::with_capacity(region.types.len());
        let mut types = Vec::with_capacity(region.types.len());
        for one in &region.types {
            types.push(Arc::new(inputs.bare(one).with_offerings(inputs.offerings(one, market))));
            parts.push(Parts {
                memory: inputs.memory_of(one),
                versions: Versions::new(one, inputs.shape, market),
            });
        }
        self.types = types.into();
        self.built = Some(Built {
            region: Arc::clone(region),
            shape: inputs.shape.clone(),
            settings: inputs.settings.clone(),
            memory: inputs.memory.clone(),
            market: MarketOfAll::new(inputs, market),
            parts,
        });
    }

    /// Builds those types again that may have changed, and keeps them if they have not.
    fn mend(&mut self, mut built: Built, inputs: Inputs<'_>, market: Market<'_>) {
        let of_all = MarketOfAll::new(inputs, market);
        let all = of_all != built.market;
        let learned = built.memory != *inputs.memory;
        let mut replaced: Option<Vec<Arc<InstanceType>>> = None;
        for (at, (one, parts)) in inputs.region.types.iter().zip(&mut built.parts).enumerate() {
            let versions = Versions::new(one, inputs.shape, market);
            let memory = if learned { inputs.memory_of(one) } else { parts.memory };
            if !all && versions == parts.versions && memory == parts.memory {
                continue;
            }
            parts.versions = versions;
            let offerings = inputs.offerings(one, market);
            if memory == parts.memory && same_terms(self.types[at].offerings(), &offerings) {
                continue;
            }
            let types = replaced.get_or_insert_with(|| self.types.to_vec());
            let bare = if memory == parts.memory {
                BareType::of(&types[at])
            } else {
                parts.memory = memory;
                inputs.bare(one)
            };
            types[at] = Arc::new(bare.with_offerings(offerings));
        }
        if let Some(types) = replaced {
            self.types = types.into();
        }
        built.market = of_all;
        if learned {
            built.memory = inputs.memory.clone();
        }
        self.built = Some(built);
    }
}

impl Built {
    /// Whether only the market and what is known of memory may have changed.
    fn can_be_mended(&self, inputs: Inputs<'_>) -> bool {
        Arc::ptr_eq(&self.region, inputs.region)
            && self.shape == *inputs.shape
            && self.settings == *inputs.settings
    }
}

impl Inputs<'_> {
    fn bare(&self, one: &RegionType) -> BareType {
        BareType::new(known(one), self.shape, self.settings, self.memory)
    }

    fn offerings(&self, one: &RegionType, market: Market<'_>) -> Vec<Offering> {
        offerings(known(one), &self.region.zones, self.shape, self.settings, market)
    }

    fn memory_of(&self, one: &RegionType) -> u64 {
        self.memory.capacity(&one.facts, self.settings.vm_memory_overhead).0
    }
}

impl MarketOfAll {
    fn new(inputs: Inputs<'_>, market: Market<'_>) -> Self {
        let closed = inputs.shape.zones.iter().filter(|(_, zone)| {
            zone.id.as_ref().is_some_and(|id| market.shifted_zones.contains(id))
                || !market.addresses.suffice(&zone.subnets, inputs.settings.cni)
        });
        Self {
            closed_zones: closed.map(|(name, _)| name.clone()).collect(),
            overlay_prices: market.overlay_prices.clone(),
        }
    }
}

impl Versions {
    fn new(one: &RegionType, shape: &ClassShape, market: Market<'_>) -> Self {
        let name = &one.facts.name;
        let has_reservation = shape.reservations.iter().any(|other| other.instance_type == *name);
        Self {
            prices: market.prices.version(name),
            unavailable: market.unavailable.version(&one.facts),
            reservations: if has_reservation { market.reservations.version() } else { 0 },
        }
    }
}

fn known(one: &RegionType) -> Known<'_> {
    Known { facts: &one.facts, network: one.network, zones: &one.zones }
}

/// Whether offerings of the same places differ in nothing. For the same class and region their order is the same.
fn same_terms(before: &[Offering], after: &[Offering]) -> bool {
    let terms = |one: &Offering| (one.price, one.available, one.reservation_capacity);
    before.len() == after.len()
        && before.iter().zip(after).all(|(before, after)| terms(before) == terms(after))
}

#[cfg(test)]
mod tests;
