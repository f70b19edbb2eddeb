//! Capacity reservations: which one an offering draws from, which one a node holds, and whether anything else can be had.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    instance_type::{InstanceType, Offering},
    labels::{CAPACITY_TYPE, KnownLabels, Labels, RESERVED},
    requirements::Requirements,
    snapshot::Pool,
};

/// One reservation of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReservationId {
    /// As the provider's label names it; several offerings may share it.
    Named(String),
    /// Without such a label every reserved offering of a type is a reservation of its own.
    Offering { instance_type: String, requirements: Requirements },
}

/// What a pool could launch one more node of its template from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stock {
    /// Something can be bought, or a reservation has room.
    Open,
    /// There are only reservations, and none has room. Those that are offered have room again when a node of theirs goes.
    Full { offered: BTreeSet<ReservationId> },
    /// No instance type of the pool has an offering that meets its template.
    Nothing,
}

impl ReservationId {
    /// The reservation of a reserved offering.
    pub fn of(offering: &Offering, instance_type: &InstanceType, labels: &KnownLabels) -> Self {
        let named = offering.reservation_id(labels);
        named.map_or_else(
            || Self::Offering {
                instance_type: instance_type.name().to_owned(),
                requirements: offering.requirements.clone(),
            },
            |id| Self::Named(id.to_owned()),
        )
    }

    /// The reservation that a node of this type holds a slot of, by its labels.
    pub fn held_by(
        node: &Labels,
        instance_type: &InstanceType,
        labels: &KnownLabels,
    ) -> Option<Self> {
        if node.get(CAPACITY_TYPE).is_none_or(|capacity_type| capacity_type != RESERVED) {
            return None;
        }
        if let Some(id) = labels.reservation_id.as_ref().and_then(|label| node.get(label)) {
            return Some(Self::Named(id.clone()));
        }
        // What has a name gives it to its nodes.
        let nameless = |one: &&Offering| one.is_reserved() && one.reservation_id(labels).is_none();
        let mut nameless = instance_type.offerings().iter().filter(nameless);
        let own = nameless.find(|one| one.requirements.are_met_by(node))?;
        Some(Self::of(own, instance_type, labels))
    }
}

impl Stock {
    /// What the pool's template can be bought as. Capacity that can be bought counts whether it is available or not: that changes
    /// from minute to minute, and asking for it is what tells.
    pub fn of_template(pool: &Pool, labels: &KnownLabels) -> Self {
        let template = pool.template_requirements();
        // As the scheduler matches types: what only one side names is left open.
        let meets = |one: &&Arc<InstanceType>| template.intersects(one.requirements()).is_ok();
        let of_pool = pool.instance_types.iter().filter(meets);
        let (mut any, mut offered) = (false, BTreeSet::new());
        for instance_type in of_pool {
            let serving = instance_type.offerings().iter();
            for offering in serving.filter(|one| one.serves(&template, labels)) {
                if !offering.is_reserved() || offering.reservation_capacity > 0 {
                    return Self::Open;
                }
                any = true;
                if offering.available {
                    offered.insert(ReservationId::of(offering, instance_type, labels));
                }
            }
        }
        if any { Self::Full { offered } } else { Self::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Overhead, Requirement, Resources,
        labels::{ON_DEMAND, ZONE},
    };

    const LABEL: &str = "test/reservation";

    fn named() -> KnownLabels {
        let mut well_known = KnownLabels::default().well_known;
        well_known.insert(LABEL.to_owned());
        KnownLabels { reservation_id: Some(LABEL.to_owned()), well_known, ..KnownLabels::default() }
    }

    /// `id` is empty for what is not reserved.
    fn offering(zone: &str, id: &str, left: u32, available: bool) -> Offering {
        let capacity_type = if id.is_empty() { ON_DEMAND } else { RESERVED };
        let mut requirements = Requirements::new([
            Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
            Requirement::is_in(ZONE, [zone]),
        ]);
        requirements.extend((!id.is_empty()).then(|| Requirement::is_in(LABEL, [id])));
        Offering { requirements, available, reservation_capacity: left, ..Offering::default() }
    }

    fn sold_as(offerings: Vec<Offering>) -> InstanceType {
        let nothing = Resources::new();
        InstanceType::new("m", Requirements::default(), offerings, nothing, Overhead::default())
    }

    fn pool(wanted: &[(&str, &str)], offerings: Vec<Offering>) -> Pool {
        let wanted = wanted.iter().map(|(key, value)| Requirement::is_in(key, [*value]));
        Pool {
            requirements: Requirements::new(wanted),
            instance_types: vec![Arc::new(sold_as(offerings))],
            ..Pool::default()
        }
    }

    #[test]
    fn only_reservations_without_room_leave_a_pool_nothing_to_launch_beside() {
        let full = |ids: &[&str]| Stock::Full {
            offered: ids.iter().map(|id| ReservationId::Named((*id).to_owned())).collect(),
        };
        let reserved = [(CAPACITY_TYPE, RESERVED)];
        for (what, wanted, offerings, expected) in [
            ("nothing at all", &[][..], vec![], Stock::Nothing),
            ("full", &[], vec![offering("a", "r", 0, true)], full(&["r"])),
            ("room", &[], vec![offering("a", "r", 1, true)], Stock::Open),
            (
                "one of two has room",
                &[],
                vec![offering("a", "r", 0, true), offering("a", "s", 1, true)],
                Stock::Open,
            ),
            (
                "all full",
                &[],
                vec![offering("a", "r", 0, true), offering("b", "s", 0, true)],
                full(&["r", "s"]),
            ),
            (
                "a full one that is gone is not offered",
                &[],
                vec![offering("a", "r", 0, true), offering("a", "s", 0, false)],
                full(&["r"]),
            ),
            ("all gone", &[], vec![offering("a", "r", 0, false)], full(&[])),
            (
                "on-demand beside it, sold out for the moment",
                &[],
                vec![offering("a", "r", 0, true), offering("a", "", 0, false)],
                Stock::Open,
            ),
            (
                "on-demand that the template does not want",
                &reserved,
                vec![offering("a", "r", 0, true), offering("a", "", 0, true)],
                full(&["r"]),
            ),
            (
                "room in a zone that the template does not want",
                &[(ZONE, "a")],
                vec![offering("a", "r", 0, true), offering("b", "s", 3, true)],
                full(&["r"]),
            ),
            (
                "nothing in the zone",
                &[(ZONE, "c")],
                vec![offering("a", "r", 1, true), offering("b", "", 0, true)],
                Stock::Nothing,
            ),
        ] {
            assert_eq!(Stock::of_template(&pool(wanted, offerings), &named()), expected, "{what}");
        }
    }

    #[test]
    fn a_type_outside_the_template_opens_nothing() {
        let mut with_other = pool(&[("size", "small")], vec![offering("a", "r", 0, true)]);
        let large = Requirements::new([Requirement::is_in("size", ["large"])]);
        let large = InstanceType::new(
            "l",
            large,
            vec![offering("a", "", 0, true)],
            Resources::new(),
            Overhead::default(),
        );
        let small = Requirements::new([Requirement::is_in("size", ["small"])]);
        let small = InstanceType::new(
            "m",
            small,
            vec![offering("a", "r", 0, true)],
            Resources::new(),
            Overhead::default(),
        );
        with_other.instance_types = vec![Arc::new(large), Arc::new(small)];
        let offered = BTreeSet::from([ReservationId::Named("r".to_owned())]);
        assert_eq!(Stock::of_template(&with_other, &named()), Stock::Full { offered });
    }

    #[test]
    fn a_node_holds_what_its_labels_say() {
        let labels = |pairs: &[(&str, &str)]| -> Labels {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let with_label = sold_as(vec![offering("a", "r", 0, true)]);
        let held =
            |pairs: &[(&str, &str)]| ReservationId::held_by(&labels(pairs), &with_label, &named());
        let r = || Some(ReservationId::Named("r".to_owned()));
        assert_eq!(held(&[(CAPACITY_TYPE, RESERVED), (LABEL, "r")]), r());
        assert_eq!(held(&[(CAPACITY_TYPE, RESERVED)]), None);
        // A provider that demotes an instance changes its capacity type and may leave the other label.
        assert_eq!(held(&[(CAPACITY_TYPE, ON_DEMAND), (LABEL, "r")]), None);

        // Without a label of the provider's the offering itself is the reservation.
        let mut own = offering("a", "r", 0, true);
        own.requirements.remove(LABEL);
        let without_label = sold_as(vec![own.clone()]);
        let held = |zone: &str| {
            let node = labels(&[(CAPACITY_TYPE, RESERVED), (ZONE, zone)]);
            ReservationId::held_by(&node, &without_label, &KnownLabels::default())
        };
        assert_eq!(
            held("a"),
            Some(ReservationId::of(&own, &without_label, &KnownLabels::default()))
        );
        assert_eq!(held("b"), None);
    }
}
