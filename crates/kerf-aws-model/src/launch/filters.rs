//! Which types a launch leaves out, and which offerings of those that stay.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kerf_api::labels::{CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT};
use kerf_aws_api::CapacityReservationType;
use kerf_aws_api::labels::{
    CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_RESERVATION_TYPE, INSTANCE_SIZE,
};
use kerf_aws_api::resources::{AMD_GPU, GAUDI, NEURON, NEURON_CORE, NVIDIA_GPU};
use kerf_model::{InstanceType, Offering, Price, Undefined};

use super::Wish;

/// One step of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// What the claim allows, has room for it, and can be had.
    CompatibleAndAvailable,
    /// A fleet takes one kind of reservation: that of the cheapest offering.
    ReservationKind,
    /// A fleet takes one capacity block: the cheapest.
    CapacityBlock,
    /// A fleet takes one reservation for a type and zone: that with most left.
    Reservations,
    /// Bare metal and machines with accelerators are for those who ask for them.
    Exotic,
    /// Spot that is dearer than on demand.
    DearSpot,
}

/// The market that a reservation is used by, the preferred one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationKind {
    Default,
    CapacityBlock,
    Interruptible,
}

type Types = Vec<Arc<InstanceType>>;

impl Filter {
    pub(super) const IN_ORDER: [Self; 6] = [
        Self::CompatibleAndAvailable,
        Self::ReservationKind,
        Self::CapacityBlock,
        Self::Reservations,
        Self::Exotic,
        Self::DearSpot,
    ];

    pub(super) fn keep(self, types: Types, wish: Wish<'_>) -> Types {
        let reserved = wish.allows(CAPACITY_TYPE_RESERVED);
        let flexible = wish.requirements.has_min_values();
        match self {
            Self::CompatibleAndAvailable => compatible_and_available(types, wish),
            Self::ReservationKind if reserved => one_kind(types, wish),
            Self::CapacityBlock if reserved => one_block(types, wish),
            Self::Reservations if reserved => one_per_zone(types, wish),
            // Leaving types out could leave too few values.
            Self::Exotic if !flexible => ordinary(types),
            Self::DearSpot if !flexible => without_dear_spot(types, wish),
            _ => types,
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CompatibleAndAvailable => "compatible and available",
            Self::ReservationKind => "one kind of reservation",
            Self::CapacityBlock => "one capacity block",
            Self::Reservations => "one reservation for each type and zone",
            Self::Exotic => "neither bare metal nor accelerators",
            Self::DearSpot => "spot not dearer than on demand",
        })
    }
}

impl ReservationKind {
    /// `None` for offerings that are not reserved.
    pub(super) fn of(offering: &Offering) -> Option<Self> {
        let value = |key| offering.requirements.get(key).and_then(|one| one.only_value());
        if !offering.is_reserved() {
            return None;
        }
        if value(CAPACITY_RESERVATION_TYPE) == Some(CapacityReservationType::CapacityBlock.as_str())
        {
            return Some(Self::CapacityBlock);
        }
        let interruptible = value(CAPACITY_RESERVATION_INTERRUPTIBLE) == Some("true");
        Some(if interruptible { Self::Interruptible } else { Self::Default })
    }
}

/// The type with those offerings alone. None of them: no type.
fn narrowed(
    one: &Arc<InstanceType>,
    keep: impl Fn(&Offering) -> bool,
) -> Option<Arc<InstanceType>> {
    if one.offerings().iter().all(&keep) {
        return Some(Arc::clone(one)).filter(|one| !one.offerings().is_empty());
    }
    let offerings: Vec<_> =
        one.offerings().iter().filter(|offering| keep(offering)).cloned().collect();
    (!offerings.is_empty()).then(|| {
        Arc::new(InstanceType::new(
            one.name(),
            one.requirements().clone(),
            offerings,
            one.capacity().clone(),
            one.overhead().clone(),
        ))
    })
}

/// The offerings that the claim allows and that can be had.
fn usable<'a>(one: &'a InstanceType, wish: Wish<'a>) -> impl Iterator<Item = &'a Offering> {
    one.launchable_offerings()
        .filter(move |offering| offering.serves(wish.requirements, wish.labels))
}

fn compatible_and_available(mut types: Types, wish: Wish<'_>) -> Types {
    types.retain(|one| {
        let labels = Undefined::WellKnown(wish.labels);
        wish.requirements.compatible(one.requirements(), labels).is_ok()
            && one.groups().iter().any(|group| {
                wish.requests.fits_in(&group.allocatable)
                    && group.offerings.iter().map(|at| &one.offerings()[*at]).any(|offering| {
                        offering.is_launchable() && offering.serves(wish.requirements, wish.labels)
                    })
            })
    });
    types
}

fn one_kind(types: Types, wish: Wish<'_>) -> Types {
    let kinds = |one: &Arc<InstanceType>| -> Vec<(Price, ReservationKind)> {
        usable(one, wish)
            .filter_map(|offering| Some((offering.price, ReservationKind::of(offering)?)))
            .collect()
    };
    let Some((_, kind)) = types.iter().flat_map(kinds).min() else { return types };
    let of_kind = |one: &&Arc<InstanceType>| kinds(one).iter().any(|(_, other)| *other == kind);
    types
        .iter()
        .filter(of_kind)
        .filter_map(|one| narrowed(one, |offering| ReservationKind::of(offering) == Some(kind)))
        .collect()
}

fn one_block(types: Types, wish: Wish<'_>) -> Types {
    let blocks = types.iter().flat_map(|one| {
        let blocks = usable(one, wish).filter(|offering| {
            ReservationKind::of(offering) == Some(ReservationKind::CapacityBlock)
        });
        blocks.map(move |offering| (offering.price, one.name(), one, offering))
    });
    let cheapest = blocks.min_by_key(|(price, name, _, _)| (*price, *name));
    match cheapest {
        Some((_, _, one, block)) => {
            narrowed(one, |offering| offering.requirements == block.requirements)
                .into_iter()
                .collect()
        }
        None => types,
    }
}

fn one_per_zone(types: Types, wish: Wish<'_>) -> Types {
    let mut kept = Vec::new();
    for one in &types {
        let mut best: BTreeMap<Option<&str>, &Offering> = BTreeMap::new();
        for offering in usable(one, wish).filter(|offering| offering.is_reserved()) {
            let current = best.entry(offering.zone()).or_insert(offering);
            if offering.reservation_capacity > current.reservation_capacity {
                *current = offering;
            }
        }
        let is_best = |offering: &Offering| {
            best.get(&offering.zone())
                .is_some_and(|best| best.requirements == offering.requirements)
        };
        kept.extend(narrowed(one, is_best));
    }
    if kept.is_empty() { types } else { kept }
}

fn ordinary(types: Types) -> Types {
    let is_exotic = |one: &InstanceType| {
        let size = one.requirements().get(INSTANCE_SIZE).and_then(|size| size.only_value());
        size.is_some_and(|size| size.contains("metal"))
            || [NEURON, NEURON_CORE, AMD_GPU, NVIDIA_GPU, GAUDI]
                .iter()
                .any(|name| !one.capacity().amount(name).is_zero())
    };
    if types.iter().all(|one| is_exotic(one)) {
        return types;
    }
    types.into_iter().filter(|one| !is_exotic(one)).collect()
}

fn without_dear_spot(types: Types, wish: Wish<'_>) -> Types {
    if !wish.allows(CAPACITY_TYPE_ON_DEMAND) || !wish.allows(CAPACITY_TYPE_SPOT) {
        return types;
    }
    let of = |capacity_type: &'static str| {
        let offerings = types.iter().flat_map(|one| usable(one, wish));
        offerings.filter(move |offering| offering.capacity_type() == Some(capacity_type))
    };
    let on_demand = of(CAPACITY_TYPE_ON_DEMAND).map(|offering| offering.price).min();
    let Some(limit) = on_demand.filter(|_| of(CAPACITY_TYPE_SPOT).next().is_some()) else {
        return types;
    };
    let is_dear =
        |one: &Offering| one.capacity_type() == Some(CAPACITY_TYPE_SPOT) && one.price > limit;
    types.iter().filter_map(|one| narrowed(one, |offering| !is_dear(offering))).collect()
}
