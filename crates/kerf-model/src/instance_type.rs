//! What a cloud provider can launch.

use std::collections::{BTreeMap, BTreeSet};

use crate::Quantity;
use crate::labels::{CAPACITY_TYPE, KnownLabels, ON_DEMAND, RESERVED, SPOT, ZONE};
use crate::price::Price;
use crate::requirements::{Requirements, Undefined};
use crate::resources::{HUGEPAGES_PREFIX, MEMORY, Resources};

/// A machine shape with the places and terms on which it can be bought.
#[derive(Clone, Debug)]
pub struct InstanceType {
    name: String,
    requirements: Requirements,
    offerings: Vec<Offering>,
    capacity: Resources,
    overhead: Overhead,
    groups: Vec<AllocatableGroup>,
    volume_limits: BTreeMap<String, u32>,
    capacity_overlaid: bool,
}

/// One way to buy an instance type: a zone, a capacity type, perhaps a reservation.
#[derive(Clone, Debug, Default)]
pub struct Offering {
    /// Always names the capacity type and the zone.
    pub requirements: Requirements,
    pub price: Price,
    /// What the provider asks, where an overlay says another price.
    pub base_price: Option<Price>,
    /// Healthy and offered. A reservation that is full still is.
    pub available: bool,
    /// For reserved offerings: instances left in the reservation.
    pub reservation_capacity: u32,
    /// Replaces these amounts of the type's capacity.
    pub capacity_override: Option<Resources>,
    /// Its total replaces these amounts of the type's total overhead.
    pub overhead_override: Option<Overhead>,
}

/// What of a machine pods cannot have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overhead {
    pub kube_reserved: Resources,
    pub system_reserved: Resources,
    pub eviction_threshold: Resources,
}

/// The available offerings that leave the same amounts to pods.
#[derive(Clone, Debug)]
pub struct AllocatableGroup {
    pub allocatable: Resources,
    /// Indices into the type's offerings.
    pub offerings: Vec<usize>,
}

impl Overhead {
    pub fn total(&self) -> Resources {
        self.kube_reserved.plus(&self.system_reserved).plus(&self.eviction_threshold)
    }
}

impl InstanceType {
    /// `name` must be the value of the instance-type label in `requirements`.
    pub fn new(
        name: impl Into<String>,
        requirements: Requirements,
        offerings: Vec<Offering>,
        capacity: Resources,
        overhead: Overhead,
    ) -> Self {
        let groups = allocatable_groups(&capacity, &overhead, &offerings);
        Self {
            name: name.into(),
            requirements,
            offerings,
            capacity,
            overhead,
            groups,
            volume_limits: BTreeMap::new(),
            capacity_overlaid: false,
        }
    }

    /// With the number of volumes of each driver that one of its machines can attach. What is not named has no limit.
    pub fn with_volume_limits(mut self, limits: BTreeMap<String, u32>) -> Self {
        self.volume_limits = limits;
        self
    }

    /// With a capacity that the provider does not know.
    pub fn with_overlaid_capacity(mut self, overlaid: bool) -> Self {
        self.capacity_overlaid = overlaid;
        self
    }

    /// Whether an overlay changed its capacity.
    pub fn is_capacity_overlaid(&self) -> bool {
        self.capacity_overlaid
    }

    /// Whether an overlay changed the price of an offering.
    pub fn is_price_overlaid(&self) -> bool {
        self.offerings.iter().any(|offering| offering.base_price.is_some())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn requirements(&self) -> &Requirements {
        &self.requirements
    }

    pub fn offerings(&self) -> &[Offering] {
        &self.offerings
    }

    pub fn capacity(&self) -> &Resources {
        &self.capacity
    }

    pub fn overhead(&self) -> &Overhead {
        &self.overhead
    }

    pub fn volume_limits(&self) -> &BTreeMap<String, u32> {
        &self.volume_limits
    }

    /// What is left to pods, without overrides. May be negative: then nothing ever fits.
    pub fn allocatable(&self) -> &Resources {
        &self.groups[0].allocatable
    }

    /// The base group first, even when it has no offering.
    pub fn groups(&self) -> &[AllocatableGroup] {
        &self.groups
    }

    pub fn available_offerings(&self) -> impl Iterator<Item = &Offering> {
        self.offerings.iter().filter(|offering| offering.available)
    }

    /// Offerings that an instance can be bought by now.
    pub fn launchable_offerings(&self) -> impl Iterator<Item = &Offering> {
        self.offerings.iter().filter(|offering| offering.is_launchable())
    }

    /// Whether it is offered under these requirements, be it by a reservation that is full at the moment.
    pub fn is_offered(&self, requirements: &Requirements, labels: &KnownLabels) -> bool {
        self.available_offerings().any(|offering| offering.serves(requirements, labels))
    }

    /// The cheapest offering that can be bought under these requirements; the first among equals.
    pub fn cheapest(&self, requirements: &Requirements, labels: &KnownLabels) -> Option<&Offering> {
        self.launchable_offerings()
            .filter(|offering| offering.serves(requirements, labels))
            .min_by_key(|offering| offering.price)
    }

    /// The lowest price under these requirements, or [`Price::MAX`] when it cannot be bought.
    pub fn cheapest_price(&self, requirements: &Requirements, labels: &KnownLabels) -> Price {
        self.cheapest(requirements, labels).map_or(Price::MAX, |offering| offering.price)
    }

    /// The most one would pay if the provider took the worst offering of the capacity type that it
    /// will prefer: reserved, then spot, then on-demand. [`Price::MAX`] when it cannot be bought.
    pub fn worst_launch_price(&self, requirements: &Requirements, labels: &KnownLabels) -> Price {
        let serving =
            || self.launchable_offerings().filter(|offering| offering.serves(requirements, labels));
        [RESERVED, SPOT, ON_DEMAND]
            .into_iter()
            .find_map(|capacity_type| {
                serving()
                    .filter(|offering| offering.capacity_type() == Some(capacity_type))
                    .map(|offering| offering.price)
                    .max()
            })
            .unwrap_or(Price::MAX)
    }

    /// The price of the first offering in this zone and of this capacity type, available or not.
    pub fn offering_price(&self, zone: &str, capacity_type: &str) -> Option<Price> {
        self.offerings
            .iter()
            .find(|offering| {
                offering.zone() == Some(zone) && offering.capacity_type() == Some(capacity_type)
            })
            .map(|offering| offering.price)
    }
}

impl Offering {
    pub fn capacity_type(&self) -> Option<&str> {
        self.value(CAPACITY_TYPE)
    }

    pub fn is_reserved(&self) -> bool {
        self.capacity_type() == Some(RESERVED)
    }

    /// Whether an instance can be bought by it now. A reservation that is used up still stands there, with its price of
    /// next to nothing.
    pub fn is_launchable(&self) -> bool {
        self.available && !(self.is_reserved() && self.reservation_capacity == 0)
    }

    pub fn zone(&self) -> Option<&str> {
        self.value(ZONE)
    }

    pub fn reservation_id(&self, labels: &KnownLabels) -> Option<&str> {
        self.value(labels.reservation_id.as_deref()?)
    }

    /// Whether a node with these requirements could be this offering.
    pub fn serves(&self, requirements: &Requirements, labels: &KnownLabels) -> bool {
        requirements.compatible(&self.requirements, Undefined::WellKnown(labels)).is_ok()
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.requirements.get(key)?.listed()?.first().map(String::as_str)
    }
}

fn allocatable_groups(
    capacity: &Resources,
    overhead: &Overhead,
    offerings: &[Offering],
) -> Vec<AllocatableGroup> {
    type Override<'a> = (Option<&'a Resources>, Option<&'a Overhead>);
    let base_overhead = overhead.total();
    let mut overrides: Vec<Override<'_>> = vec![(None, None)];
    let mut groups = vec![AllocatableGroup {
        allocatable: allocatable(capacity, &base_overhead),
        offerings: Vec::new(),
    }];
    for (index, offering) in offerings.iter().enumerate().filter(|(_, offering)| offering.available)
    {
        let key = (offering.capacity_override.as_ref(), offering.overhead_override.as_ref());
        let group = overrides.iter().position(|other| *other == key).unwrap_or_else(|| {
            let capacity =
                key.0.map_or_else(|| capacity.clone(), |over| capacity.overridden_by(over));
            let overhead = key.1.map_or_else(
                || base_overhead.clone(),
                |over| base_overhead.overridden_by(&over.total()),
            );
            overrides.push(key);
            groups.push(AllocatableGroup {
                allocatable: allocatable(&capacity, &overhead),
                offerings: Vec::new(),
            });
            groups.len() - 1
        });
        groups[group].offerings.push(index);
    }
    groups
}

/// Huge pages are carved out of memory, so memory shrinks by them, but not below zero.
fn allocatable(capacity: &Resources, overhead: &Resources) -> Resources {
    let mut left = capacity.minus(overhead);
    let huge_pages: Quantity = capacity
        .iter()
        .filter(|(name, _)| name.starts_with(HUGEPAGES_PREFIX))
        .map(|(_, amount)| amount)
        .sum();
    if let Some(memory) = left.get(MEMORY).filter(|_| !huge_pages.is_zero()) {
        left.set(MEMORY, (memory - huge_pages).max(Quantity::ZERO));
    }
    left
}

/// All values that any of these types lists for a key.
pub fn listed_values<'a>(
    types: impl IntoIterator<Item = &'a InstanceType>,
    key: &str,
) -> BTreeSet<&'a str> {
    types
        .into_iter()
        .filter_map(|instance_type| instance_type.requirements.get(key)?.listed())
        .flatten()
        .map(String::as_str)
        .collect()
}

#[cfg(test)]
mod tests;
