//! What is left of the reservations in a catalogue. A cloud would know; here the instances are counted.

use std::sync::Arc;

use kerf_api::labels;
use kerf_model::{InstanceType, Offering};
use kerf_provider::Launched;

/// The instance types with what their reservations have left beside these instances.
pub(super) fn left(
    catalogue: &[Arc<InstanceType>],
    instances: &[Launched],
) -> Arc<[Arc<InstanceType>]> {
    catalogue.iter().map(|instance_type| left_of(instance_type, instances)).collect()
}

pub(super) fn are_in(catalogue: &[Arc<InstanceType>]) -> bool {
    catalogue.iter().any(|instance_type| has_any(instance_type))
}

fn has_any(instance_type: &InstanceType) -> bool {
    instance_type.offerings().iter().any(Offering::is_reserved)
}

fn left_of(instance_type: &Arc<InstanceType>, instances: &[Launched]) -> Arc<InstanceType> {
    if !has_any(instance_type) {
        return Arc::clone(instance_type);
    }
    let mut offerings = instance_type.offerings().to_vec();
    for offering in offerings.iter_mut().filter(|offering| offering.is_reserved()) {
        let is_from_it = |instance: &&Launched| {
            instance.labels.get(labels::INSTANCE_TYPE).map(String::as_str)
                == Some(instance_type.name())
                && offering.requirements.are_met_by(&instance.labels)
        };
        let taken = instances.iter().filter(is_from_it).count();
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        offering.reservation_capacity = offering.reservation_capacity.saturating_sub(taken);
    }
    let with_less = InstanceType::new(
        instance_type.name(),
        instance_type.requirements().clone(),
        offerings,
        instance_type.capacity().clone(),
        instance_type.overhead().clone(),
    );
    Arc::new(with_less.with_volume_limits(instance_type.volume_limits().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::{Overhead, Requirement, Requirements, Resources};

    #[test]
    fn instances_take_from_the_reservation_that_they_were_bought_by() {
        let offering = |capacity_type: &str, zone: &str, reservation_capacity| Offering {
            requirements: Requirements::new([
                Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]),
                Requirement::is_in(labels::ZONE, [zone]),
            ]),
            available: true,
            reservation_capacity,
            ..Offering::default()
        };
        let offerings = vec![
            offering("reserved", "a", 2),
            offering("reserved", "b", 1),
            offering("spot", "a", 0),
        ];
        let (requirements, nothing) = (Requirements::default(), Resources::new());
        let large =
            InstanceType::new("large", requirements, offerings, nothing, Overhead::default());
        let catalogue = [Arc::new(large)];
        assert!(are_in(&catalogue));
        let instance = |(instance_type, capacity_type, zone): (&str, &str, &str)| Launched {
            labels: [
                (labels::INSTANCE_TYPE, instance_type),
                (labels::CAPACITY_TYPE, capacity_type),
                (labels::ZONE, zone),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            ..Launched::default()
        };
        for (instances, expected) in [
            (&[][..], [2, 1]),
            (&[("large", "reserved", "a")], [1, 1]),
            (&[("large", "reserved", "a"), ("large", "reserved", "b")], [1, 0]),
            (&[("large", "reserved", "b"), ("large", "reserved", "b")], [2, 0]),
            (&[("large", "spot", "a"), ("small", "reserved", "a")], [2, 1]),
        ] {
            let instances: Vec<_> = instances.iter().copied().map(instance).collect();
            let left = left(&catalogue, &instances);
            let left: Vec<_> =
                left[0].offerings().iter().map(|one| one.reservation_capacity).collect();
            assert_eq!(left[..2], expected);
        }
    }
}
