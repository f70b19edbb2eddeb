use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::catalogue::shared;
use crate::instance_types::{CniSettings, PlacementGroup, class_for_tests as class};

/// A market in which everything can be had.
#[derive(Default)]
struct Whole {
    prices: Prices,
    unavailable: Unavailable,
    reservations: ReservationCounts,
    addresses: FreeAddresses,
    shifted_zones: BTreeSet<String>,
    overlay_prices: BTreeMap<String, Price>,
}

impl Whole {
    fn new() -> Self {
        Self { prices: Prices::new(shared().prices("us-east-1").unwrap()), ..Self::default() }
    }

    fn market(&self) -> Market<'_> {
        Market {
            prices: &self.prices,
            unavailable: &self.unavailable,
            reservations: &self.reservations,
            addresses: &self.addresses,
            shifted_zones: &self.shifted_zones,
            overlay_prices: &self.overlay_prices,
            now: now(),
        }
    }

    /// `zone capacity-type price`, with a `!` where it cannot be had.
    fn shown(&self, name: &str, shape: &ClassShape) -> Vec<String> {
        let settings = Settings::default();
        let all = offerings(known(name), &region_zones(), shape, &settings, self.market());
        all.iter()
            .map(|one| {
                let there = if one.available { "" } else { "!" };
                let (zone, terms) = (one.zone().unwrap(), one.capacity_type().unwrap());
                format!(
                    "{there}{} {terms} {}",
                    zone.trim_start_matches("us-east-1"),
                    one.price.exact()
                )
            })
            .collect()
    }
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

/// One more than the class has subnets in.
fn region_zones() -> Vec<String> {
    ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d"].map(str::to_owned).to_vec()
}

fn known(name: &str) -> Known<'static> {
    static OFFERED: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| {
        ["us-east-1a", "us-east-1b", "us-east-1d"].map(str::to_owned).to_vec()
    });
    Known { facts: shared().get(name).unwrap(), network: shared().network(name), zones: &OFFERED }
}

fn shape() -> ClassShape {
    ClassShape::new(&class(&json!({"amiFamily": "AL2023"})), None).unwrap()
}

#[test]
fn a_type_is_offered_in_every_zone_and_had_where_it_can_be() {
    let whole = Whole::new();
    assert_eq!(
        whole.shown("m5.large", &shape()),
        [
            "a on-demand 0.096",
            "a spot 0.096",
            "b on-demand 0.096",
            "b spot 0.096",
            // Not offered there.
            "!c on-demand 0.096",
            "!c spot 0.096",
            // No subnet there.
            "!d on-demand 0.096",
            "!d spot 0.096",
        ]
    );
    let on_demand_only = whole.shown("u-6tb1.56xlarge", &shape());
    assert!(on_demand_only.iter().all(|one| one.contains("on-demand")), "{on_demand_only:?}");
    let settings = Settings::default();
    let all = offerings(known("m5.large"), &region_zones(), &shape(), &settings, whole.market());
    assert_eq!(
        all[1].requirements.to_string(),
        "karpenter.k8s.aws/capacity-reservation-id DoesNotExist, \
         karpenter.k8s.aws/capacity-reservation-interruptible DoesNotExist, \
         karpenter.k8s.aws/capacity-reservation-type DoesNotExist, karpenter.sh/capacity-type In [spot], \
         topology.k8s.aws/zone-id In [use1-az0], topology.kubernetes.io/zone In [us-east-1a]"
    );
    assert!(!all[7].requirements.has(aws::ZONE_ID));
}

#[test]
fn each_reason_makes_an_offering_unavailable() {
    let spot = |whole: &Whole, name: &str, zone: &str, shape: &ClassShape, cni: CniSettings| {
        let settings = Settings { cni, ..Settings::default() };
        why_not(known(name), zone, CAPACITY_TYPE_SPOT, shape, &settings, whole.market())
    };
    let plain = CniSettings::default();
    let check = |whole: &Whole, expected: NotOffered| {
        assert_eq!(spot(whole, "m5.large", "us-east-1a", &shape(), plain), Err(expected));
    };
    let mut whole = Whole::new();
    assert!(spot(&whole, "m5.large", "us-east-1a", &shape(), plain).is_ok());
    let refused = |name: &str, zone: &str| spot(&whole, name, zone, &shape(), plain).unwrap_err();
    assert_eq!(
        refused("a1.large", "us-east-1a"),
        NotOffered::Unsuitable(Unsuitable::ImageDoesNotRun)
    );
    assert_eq!(refused("m5.large", "us-east-1c"), NotOffered::NotInZone);
    assert_eq!(refused("m5.large", "us-east-1d"), NotOffered::NoSubnet);
    whole.prices.take_spot([("m5.large", "us-east-1b", Price::from_f64(0.04))], now()).unwrap();
    check(&whole, NotOffered::NoPrice);
    whole.overlay_prices.insert("m5.large".to_owned(), Price::from_f64(0.5));
    assert_eq!(spot(&whole, "m5.large", "us-east-1a", &shape(), plain), Ok(Price::from_f64(0.5)));
    assert_eq!(spot(&whole, "m5.large", "us-east-1b", &shape(), plain), Ok(Price::from_f64(0.04)));
    let source =
        Source { capacity_type: "spot", zone: "us-east-1a", placement: Placement::Anywhere };
    whole.unavailable.mark(known("m5.large").facts, source, now());
    let until = now() + SignedDuration::from_mins(3);
    check(&whole, NotOffered::Shortage(Shortage::Marked { strikes: 1, until }));
    whole.addresses.read("subnet-0", 10, now());
    let prefixes = CniSettings { prefix_delegation: true, ..plain };
    assert_eq!(
        spot(&whole, "m5.large", "us-east-1a", &shape(), prefixes),
        Err(NotOffered::NoAddresses)
    );
    whole.addresses.read("subnet-0", 0, now());
    check(&whole, NotOffered::NoAddresses);
    whole.shifted_zones.insert("use1-az0".to_owned());
    check(&whole, NotOffered::ZonalShift);
}

#[test]
fn reservations_are_offerings_of_next_to_nothing() {
    let mut class = class(&json!({"amiFamily": "AL2023"}));
    let reservation = |id: &str, zone: &str, state: &str| {
        json!({"id": id, "availabilityZone": zone, "state": state,
        "instanceMatchCriteria": "open", "instanceType": "m5.large", "ownerID": "012345678901"})
    };
    class.status.as_mut().unwrap().capacity_reservations = serde_json::from_value(json!([
        reservation("cr-1", "us-east-1a", "active"),
        reservation("cr-2", "us-east-1a", "active"),
        reservation("cr-3", "us-east-1b", "expiring"),
        reservation("cr-4", "us-east-1c", "active"),
    ]))
    .unwrap();
    let shape = ClassShape::new(&class, None).unwrap();
    let mut whole = Whole::new();
    for id in ["cr-1", "cr-3", "cr-4"] {
        whole.reservations.read(id, 5, now());
    }
    let shown = whole.shown("m5.large", &shape);
    assert_eq!(
        shown[8..],
        [
            "a reserved 0.0000000096",
            // Nothing left, or not read yet.
            "!a reserved 0.0000000096",
            "!b reserved 0.0000000096",
            "!c reserved 0.0000000096",
        ]
    );
    assert_eq!(whole.shown("m5.xlarge", &shape).len(), 8, "of another type");
    let settings = Settings { reserved_capacity: false, ..Settings::default() };
    let all = offerings(known("m5.large"), &region_zones(), &shape, &settings, whole.market());
    assert_eq!(all.len(), 8, "the feature gate is off");
}

#[test]
fn partitions_multiply_offerings() {
    let group = PlacementGroup {
        id: "pg-1".to_owned(),
        strategy: PlacementStrategy::Partition { count: 3 },
    };
    let shape = ClassShape::new(&class(&json!({"amiFamily": "AL2023"})), Some(group)).unwrap();
    let mut whole = Whole::new();
    let source = Source {
        capacity_type: "spot",
        zone: "us-east-1a",
        placement: Placement::Partition("pg-1", 2),
    };
    whole.unavailable.mark(known("m5.large").facts, source, now());
    let shown = whole.shown("m5.large", &shape);
    assert_eq!(shown.len(), 24);
    assert_eq!(shown[3..6], ["a spot 0.096", "!a spot 0.096", "a spot 0.096"]);
}
