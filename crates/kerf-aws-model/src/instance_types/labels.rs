//! The labels that nodes of a type will have.

use std::fmt::Display;

use kerf_api::labels::{
    ARCH, CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT,
    INSTANCE_TYPE, OS, REGION, WINDOWS_BUILD, ZONE,
};
use kerf_aws_api::CapacityReservation;
use kerf_aws_api::labels as aws;
use kerf_model::{Requirement, Requirements};

use super::shape::{ClassShape, PlacementStrategy};
use super::{Known, Settings};
use crate::catalogue::{Architecture, Trait, TypeFacts};

/// A label that a type does not have is asked to be absent: pods that want it must not end on the type.
pub(super) fn requirements(
    known: Known<'_>,
    shape: &ClassShape,
    settings: &Settings,
) -> Requirements {
    let facts = known.facts;
    let operating_system = match (shape.family.is_windows(), facts.architecture) {
        (true, Architecture::Amd64) => Some("windows"),
        (true, Architecture::Arm64) => None,
        (false, _) => Some("linux"),
    };
    let mut requirements = vec![
        is(INSTANCE_TYPE, &facts.name),
        is(ARCH, facts.architecture.label()),
        Requirement::is_in(OS, operating_system),
        is(REGION, &settings.region),
        maybe(WINDOWS_BUILD, shape.family.windows_build()),
        is(aws::INSTANCE_CPU, facts.vcpus),
        is(aws::INSTANCE_CPU_MANUFACTURER, kebab(&facts.cpu_manufacturer)),
        is(aws::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ, facts.clock_mhz),
        is(aws::INSTANCE_MEMORY, facts.memory_mib),
        maybe(aws::INSTANCE_EBS_BANDWIDTH, facts.ebs_mbps),
        maybe(aws::INSTANCE_NETWORK_BANDWIDTH, known.network.bandwidth_mbps),
        is(aws::INSTANCE_HYPERVISOR, &facts.hypervisor),
        is(aws::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED, facts.is(Trait::EncryptionInTransit)),
        Requirement::is_in(aws::INSTANCE_TENANCY, [aws::TENANCY_DEFAULT, aws::TENANCY_DEDICATED]),
        maybe(
            aws::INSTANCE_LOCAL_NVME,
            Some(facts.local_gb).filter(|_| facts.is(Trait::LocalNvme)),
        ),
    ];
    requirements.extend(name_parts(facts));
    requirements.extend(devices(facts));
    requirements.extend(places(known, shape));
    let reservations = if settings.reserved_capacity { shape.reservations.as_slice() } else { &[] };
    requirements.extend(terms(facts, reservations));
    if let Some(group) = &shape.placement {
        requirements.push(is(aws::PLACEMENT_GROUP_ID, &group.id));
        if let PlacementStrategy::Partition { count } = group.strategy {
            let partitions = (1..=count).map(|partition| partition.to_string());
            requirements.push(Requirement::is_in(aws::PLACEMENT_GROUP_PARTITION, partitions));
        }
    }
    Requirements::new(requirements)
}

fn is(key: &str, value: impl Display) -> Requirement {
    Requirement::is_in(key, [value.to_string()])
}

fn maybe(key: &str, value: Option<impl Display>) -> Requirement {
    value.map_or_else(|| Requirement::does_not_exist(key), |value| is(key, value))
}

fn kebab(text: &str) -> String {
    text.to_lowercase().replace(' ', "-")
}

fn name_parts(facts: &TypeFacts) -> [Requirement; 5] {
    let parts = facts.size().map(|size| (facts.family(), size));
    let series = parts.and_then(|(family, _)| series(family));
    [
        maybe(aws::INSTANCE_FAMILY, parts.map(|(family, _)| family)),
        maybe(aws::INSTANCE_SIZE, parts.map(|(_, size)| size)),
        maybe(aws::INSTANCE_CATEGORY, series.map(|(category, _)| category)),
        maybe(aws::INSTANCE_GENERATION, series.map(|(_, generation)| generation)),
        is(aws::INSTANCE_CAPABILITY_FLEX, facts.family().contains("-flex")),
    ]
}

/// Category and generation of a family: `m` and `5` of `m5ad`, `u` and `1` of `u-6tb1`.
fn series(family: &str) -> Option<(&str, &str)> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let letters = family.find(|c: char| !c.is_ascii_lowercase())?;
    let (category, rest) = family.split_at(letters);
    // High-memory machines have their terabytes in between.
    let terabytes = rest.strip_prefix('-').and_then(|rest| {
        let end = digits(rest);
        rest[end..].strip_prefix("tb").filter(|_| end > 0)
    });
    let rest = terabytes.unwrap_or(rest);
    let generation = &rest[..digits(rest)];
    (!category.is_empty() && !generation.is_empty()).then_some((category, generation))
}

fn devices(facts: &TypeFacts) -> [Requirement; 7] {
    // A mixture has no labels: there is one label for the name of all.
    let gpu = match facts.gpus.as_slice() {
        [gpu] => Some(gpu),
        _ => None,
    };
    // Name, manufacturer, count.
    let accelerator = match (facts.neurons.as_slice(), facts.accelerators.as_slice()) {
        ([neuron], _) => Some((kebab(&neuron.name), "aws".to_owned(), neuron.count)),
        ([], [one]) => Some((kebab(&one.name), kebab(&one.manufacturer), one.count)),
        _ => None,
    };
    let accelerator = accelerator.as_ref();
    [
        maybe(aws::INSTANCE_GPU_NAME, gpu.map(|gpu| kebab(&gpu.name))),
        maybe(aws::INSTANCE_GPU_MANUFACTURER, gpu.map(|gpu| kebab(&gpu.manufacturer))),
        maybe(aws::INSTANCE_GPU_COUNT, gpu.map(|gpu| gpu.count)),
        maybe(aws::INSTANCE_GPU_MEMORY, gpu.map(|gpu| gpu.memory_mib)),
        maybe(aws::INSTANCE_ACCELERATOR_NAME, accelerator.map(|(name, _, _)| name)),
        maybe(aws::INSTANCE_ACCELERATOR_MANUFACTURER, accelerator.map(|(_, maker, _)| maker)),
        maybe(aws::INSTANCE_ACCELERATOR_COUNT, accelerator.map(|(_, _, count)| count)),
    ]
}

/// Zones that offer the type and have a subnet of the class.
fn places(known: Known<'_>, shape: &ClassShape) -> Vec<Requirement> {
    let both = shape.zones.iter().filter(|(name, _)| known.zones.contains(name));
    let ids: Vec<_> = both.clone().filter_map(|(_, zone)| zone.id.as_deref()).collect();
    let mut places = vec![Requirement::is_in(ZONE, both.map(|(name, _)| name))];
    // Statuses that an old release wrote have no ids.
    if !ids.is_empty() {
        places.push(Requirement::is_in(aws::ZONE_ID, ids));
    }
    places
}

/// On what terms the type can be had.
fn terms(facts: &TypeFacts, reservations: &[CapacityReservation]) -> [Requirement; 4] {
    let own: Vec<_> = reservations.iter().filter(|one| one.instance_type == facts.name).collect();
    let capacity_types = [
        (CAPACITY_TYPE_ON_DEMAND, facts.is(Trait::OnDemand)),
        (CAPACITY_TYPE_SPOT, facts.is(Trait::Spot)),
        (CAPACITY_TYPE_RESERVED, !own.is_empty()),
    ];
    let capacity_types = capacity_types.into_iter().filter(|(_, can)| *can).map(|(name, _)| name);
    let of_reservations =
        |key: &str, value: fn(&CapacityReservation) -> String| match own.as_slice() {
            [] => Requirement::does_not_exist(key),
            own => Requirement::is_in(key, own.iter().map(|one| value(one))),
        };
    [
        Requirement::is_in(CAPACITY_TYPE, capacity_types),
        of_reservations(aws::CAPACITY_RESERVATION_ID, |one| one.id.clone()),
        of_reservations(aws::CAPACITY_RESERVATION_TYPE, |one| {
            one.reservation_type.as_str().to_owned()
        }),
        of_reservations(aws::CAPACITY_RESERVATION_INTERRUPTIBLE, |one| {
            one.interruptible.to_string()
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn category_and_generation_are_read_from_the_family() {
        for (family, expected) in [
            ("m5", Some(("m", "5"))),
            ("m5ad", Some(("m", "5"))),
            ("c7i-flex", Some(("c", "7"))),
            ("is4gen", Some(("is", "4"))),
            ("hpc6a", Some(("hpc", "6"))),
            ("u-6tb1", Some(("u", "1"))),
            ("u-24tb1", Some(("u", "1"))),
            ("u7inh-32tb", Some(("u", "7"))),
            ("x12y", Some(("x", "12"))),
            ("m", None),
            ("-6tb1", None),
            ("5m", None),
        ] {
            assert_eq!(series(family), expected, "{family}");
        }
    }
}
