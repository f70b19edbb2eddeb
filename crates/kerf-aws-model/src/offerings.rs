//! On what terms a type can be had, where, and for how much.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kerf_api::labels::{
    CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT, ZONE,
};
use kerf_aws_api::{CapacityReservation, CapacityReservationState, labels as aws};
use kerf_model::{Offering, Price, Requirement, Requirements};

use crate::catalogue::{Trait, TypeFacts};
use crate::instance_types::{
    ClassShape, ClassZone, Known, PlacementStrategy, Settings, Unsuitable,
};
use crate::prices::Prices;
use crate::reservations::ReservationCounts;
use crate::subnets::FreeAddresses;
use crate::unavailable::{Placement, Shortage, Source, Unavailable};

/// What offerings follow from and what changes by the minute.
#[derive(Clone, Copy, Debug)]
pub struct Market<'a> {
    pub prices: &'a Prices,
    pub unavailable: &'a Unavailable,
    pub reservations: &'a ReservationCounts,
    pub addresses: &'a FreeAddresses,
    /// Ids of zones that traffic was shifted away from.
    pub shifted_zones: &'a BTreeSet<String>,
    /// Prices that a `NodeOverlay` gives to a type by its name. They hold where there is no other.
    pub overlay_prices: &'a BTreeMap<String, Price>,
    pub now: Timestamp,
}

/// Why an offering cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOffered {
    #[error("{0}")]
    Unsuitable(#[from] Unsuitable),
    #[error("the zone does not offer the type")]
    NotInZone,
    #[error("the class has no subnet in the zone")]
    NoSubnet,
    #[error("traffic is shifted away from the zone")]
    ZonalShift,
    #[error("no subnet of the zone has free addresses")]
    NoAddresses,
    #[error("its price is not known")]
    NoPrice,
    #[error("{0}")]
    Shortage(Shortage),
}

/// Reserved capacity is paid for already. A price of nearly nothing keeps the order of types.
const RESERVED_SHARE: i64 = 10_000_000;

/// All offerings of a type in the zones of the region: by zone and capacity type, then the reservations. `zones` are those of
/// the region, so that nodes in a zone without a subnet of the class still have a price.
pub fn offerings(
    known: Known<'_>,
    zones: &[String],
    shape: &ClassShape,
    settings: &Settings,
    market: Market<'_>,
) -> Vec<Offering> {
    let terms = Terms { known, shape, settings, market, suits: shape.suits(known.facts) };
    let mut offerings = Vec::with_capacity(2 * zones.len());
    let partitions = match shape.placement.as_ref().map(|group| group.strategy) {
        Some(PlacementStrategy::Partition { count }) if count > 0 => {
            (1..=count).map(Some).collect()
        }
        _ => vec![None],
    };
    for zone in zones {
        for (capacity_type, sold) in
            [(CAPACITY_TYPE_ON_DEMAND, Trait::OnDemand), (CAPACITY_TYPE_SPOT, Trait::Spot)]
        {
            if known.facts.is(sold) {
                let parts = partitions.iter();
                offerings
                    .extend(parts.map(|partition| terms.sold(zone, capacity_type, *partition)));
            }
        }
    }
    let reservations = if settings.reserved_capacity { shape.reservations.as_slice() } else { &[] };
    for reservation in reservations.iter().filter(|one| one.instance_type == known.facts.name) {
        let parts = partitions.iter();
        offerings.extend(parts.map(|partition| terms.reserved(reservation, *partition)));
    }
    offerings
}

/// Why the type cannot be had on demand or on spot in the zone, if so.
pub fn why_not(
    known: Known<'_>,
    zone: &str,
    capacity_type: &str,
    shape: &ClassShape,
    settings: &Settings,
    market: Market<'_>,
) -> Result<Price, NotOffered> {
    let terms = Terms { known, shape, settings, market, suits: shape.suits(known.facts) };
    terms.price(zone, capacity_type, None)
}

struct Terms<'a> {
    known: Known<'a>,
    shape: &'a ClassShape,
    settings: &'a Settings,
    market: Market<'a>,
    suits: Result<(), Unsuitable>,
}

impl Terms<'_> {
    fn facts(&self) -> &TypeFacts {
        self.known.facts
    }

    fn sold(&self, zone: &str, capacity_type: &str, partition: Option<u32>) -> Offering {
        let price = self.price(zone, capacity_type, partition);
        let mut requirements = self.place(zone, capacity_type, partition);
        requirements.extend([
            Requirement::does_not_exist(aws::CAPACITY_RESERVATION_ID),
            Requirement::does_not_exist(aws::CAPACITY_RESERVATION_TYPE),
            Requirement::does_not_exist(aws::CAPACITY_RESERVATION_INTERRUPTIBLE),
        ]);
        Offering {
            requirements: Requirements::new(requirements),
            available: price.is_ok(),
            // A node that is there costs something, whether another could be had or not.
            price: price
                .ok()
                .or_else(|| self.listed_price(zone, capacity_type))
                .unwrap_or_default(),
            ..Offering::default()
        }
    }

    /// What an instance would cost, or why there is none.
    fn price(
        &self,
        zone: &str,
        capacity_type: &str,
        partition: Option<u32>,
    ) -> Result<Price, NotOffered> {
        let here = self.zone(zone)?;
        let price = self.listed_price(zone, capacity_type).ok_or(NotOffered::NoPrice)?;
        let placement = match (&self.shape.placement, partition) {
            (None, _) => Placement::Anywhere,
            (Some(group), None) => Placement::Group(&group.id),
            (Some(group), Some(partition)) => Placement::Partition(&group.id, partition),
        };
        let source = Source { capacity_type, zone, placement };
        let shortage =
            self.market.unavailable.shortage(self.facts(), source, &here.subnets, self.market.now);
        shortage.map_or(Ok(price), |shortage| Err(NotOffered::Shortage(shortage)))
    }

    /// The class's side of a zone that a node could start in.
    fn zone(&self, zone: &str) -> Result<&ClassZone, NotOffered> {
        self.suits?;
        if !self.known.zones.iter().any(|offered| offered == zone) {
            return Err(NotOffered::NotInZone);
        }
        let here = self.shape.zones.get(zone).ok_or(NotOffered::NoSubnet)?;
        if here.id.as_ref().is_some_and(|id| self.market.shifted_zones.contains(id)) {
            return Err(NotOffered::ZonalShift);
        }
        if !self.market.addresses.suffice(&here.subnets, self.settings.cni) {
            return Err(NotOffered::NoAddresses);
        }
        Ok(here)
    }

    fn listed_price(&self, zone: &str, capacity_type: &str) -> Option<Price> {
        let name = &self.facts().name;
        let price = match capacity_type {
            CAPACITY_TYPE_SPOT => self.market.prices.spot(name, zone),
            _ => self.market.prices.on_demand(name),
        };
        price.or_else(|| self.market.overlay_prices.get(name).copied())
    }

    fn reserved(&self, reservation: &CapacityReservation, partition: Option<u32>) -> Offering {
        let zone = &reservation.availability_zone;
        let left = self.market.reservations.left(&reservation.id);
        let available = self.zone(zone).is_ok()
            && left > 0
            && reservation.state != CapacityReservationState::Expiring;
        let on_demand = self.market.prices.on_demand(&self.facts().name).unwrap_or_default();
        let mut requirements = self.place(zone, CAPACITY_TYPE_RESERVED, partition);
        requirements.extend([
            Requirement::is_in(aws::CAPACITY_RESERVATION_ID, [&reservation.id]),
            Requirement::is_in(
                aws::CAPACITY_RESERVATION_TYPE,
                [reservation.reservation_type.as_str()],
            ),
            Requirement::is_in(
                aws::CAPACITY_RESERVATION_INTERRUPTIBLE,
                [reservation.interruptible.to_string()],
            ),
        ]);
        Offering {
            requirements: Requirements::new(requirements),
            price: on_demand.times(1, RESERVED_SHARE),
            available,
            reservation_capacity: left,
            ..Offering::default()
        }
    }

    fn place(&self, zone: &str, capacity_type: &str, partition: Option<u32>) -> Vec<Requirement> {
        let mut place = vec![
            Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
            Requirement::is_in(ZONE, [zone]),
        ];
        let id = self.shape.zones.get(zone).and_then(|zone| zone.id.as_deref());
        place.extend(id.map(|id| Requirement::is_in(aws::ZONE_ID, [id])));
        place.extend(partition.map(|partition| {
            Requirement::is_in(aws::PLACEMENT_GROUP_PARTITION, [partition.to_string()])
        }));
        place
    }
}

#[cfg(test)]
mod tests;
