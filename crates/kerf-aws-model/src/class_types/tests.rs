use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kerf_model::resources::MEMORY;
use serde_json::json;

use super::*;
use crate::catalogue::shared;
use crate::instance_types::class_for_tests as class;
use crate::prices::Prices;
use crate::reservations::ReservationCounts;
use crate::subnets::FreeAddresses;
use crate::unavailable::{Placement, Source, Unavailable};

struct World {
    region: Arc<Region>,
    shape: ClassShape,
    settings: Settings,
    memory: DiscoveredMemory,
    prices: Prices,
    unavailable: Unavailable,
    reservations: ReservationCounts,
    addresses: FreeAddresses,
    shifted: BTreeSet<String>,
    overlay: BTreeMap<String, Price>,
    now: Timestamp,
    types: ClassTypes,
}

impl World {
    fn new() -> Self {
        Self {
            region: Arc::new(shared().region("us-east-1").unwrap()),
            shape: ClassShape::new(&class(&json!({"amiFamily": "AL2023"})), None).unwrap(),
            settings: Settings::default(),
            memory: DiscoveredMemory::default(),
            prices: Prices::new(shared().prices("us-east-1").unwrap()),
            unavailable: Unavailable::default(),
            reservations: ReservationCounts::default(),
            addresses: FreeAddresses::default(),
            shifted: BTreeSet::new(),
            overlay: BTreeMap::new(),
            now: Timestamp::UNIX_EPOCH,
            types: ClassTypes::default(),
        }
    }

    fn market(&self) -> Market<'_> {
        Market {
            prices: &self.prices,
            unavailable: &self.unavailable,
            reservations: &self.reservations,
            addresses: &self.addresses,
            shifted_zones: &self.shifted,
            overlay_prices: &self.overlay,
            now: self.now,
        }
    }

    fn refresh(&mut self) -> Arc<[Arc<InstanceType>]> {
        self.unavailable.expire(self.now);
        let mut types = std::mem::take(&mut self.types);
        let inputs = Inputs {
            region: &self.region,
            shape: &self.shape,
            settings: &self.settings,
            memory: &self.memory,
        };
        let refreshed = Arc::clone(types.refresh(inputs, self.market()));
        self.types = types;
        refreshed
    }
}

/// The names of the types that are not the same allocation any more.
fn replaced(before: &[Arc<InstanceType>], after: &[Arc<InstanceType>]) -> Vec<String> {
    assert_eq!(before.len(), after.len());
    let pairs = before.iter().zip(after);
    pairs.filter(|(a, b)| !Arc::ptr_eq(a, b)).map(|(_, b)| b.name().to_owned()).collect()
}

fn mark(world: &mut World, name: &str) {
    let source =
        Source { capacity_type: "spot", zone: "us-east-1a", placement: Placement::Anywhere };
    world.unavailable.mark(shared().get(name).unwrap(), source, world.now);
}

#[test]
fn the_list_stays_while_nothing_changes_and_a_mark_replaces_what_it_is_about() {
    let mut world = World::new();
    let first = world.refresh();
    assert!(first.len() > 1000, "{}", first.len());
    assert!(Arc::ptr_eq(&first, &world.refresh()));

    // The largest of its family, so that nothing is inferred from it.
    mark(&mut world, "m5.24xlarge");
    let marked = world.refresh();
    assert_eq!(replaced(&first, &marked), ["m5.24xlarge"]);
    assert!(Arc::ptr_eq(&marked, &world.refresh()));
    mark(&mut world, "m5.24xlarge");
    assert!(Arc::ptr_eq(&marked, &world.refresh()), "the same again changes nothing");

    world.now += SignedDuration::from_mins(3);
    let over = world.refresh();
    assert_eq!(replaced(&marked, &over), ["m5.24xlarge"]);
    let of = |types: &[Arc<InstanceType>]| {
        let one = types.iter().find(|one| one.name() == "m5.24xlarge").unwrap();
        one.available_offerings().count()
    };
    assert_eq!((of(&first), of(&marked), of(&over)), (6, 5, 6));
}

#[test]
fn prices_memory_and_zones_replace_what_they_are_about() {
    let mut world = World::new();
    let first = world.refresh();
    let on_demand =
        |name: &str, price: f64| BTreeMap::from([(name.to_owned(), Price::from_f64(price))]);
    world.prices.take_on_demand(on_demand("m5.large", 0.1), on_demand("m5.metal", 4.608)).unwrap();
    let priced = world.refresh();
    assert_eq!(replaced(&first, &priced), ["m5.large"]);

    world.memory.observe(shared().get("m5.16xlarge").unwrap(), 250 << 30);
    let learned = world.refresh();
    assert_eq!(replaced(&priced, &learned), ["m5.16xlarge", "m5.24xlarge", "m5.metal"]);
    let memory = |name: &str| {
        let one = learned.iter().find(|one| one.name() == name).unwrap();
        one.capacity().amount(MEMORY).to_string()
    };
    assert_eq!(
        (memory("m5.16xlarge").as_str(), memory("m5.24xlarge").as_str()),
        ("250Gi", "375Gi")
    );

    world.addresses.read("subnet-0", 7, world.now);
    assert!(Arc::ptr_eq(&learned, &world.refresh()), "enough addresses");
    world.addresses.read("subnet-0", 0, world.now);
    let dry = world.refresh();
    let in_zone = |one: &&Arc<InstanceType>| {
        one.available_offerings().any(|offering| offering.zone() == Some("us-east-1a"))
    };
    assert!(!dry.iter().any(|one| in_zone(&one)));
    let there = learned.iter().filter(in_zone).count();
    assert_eq!(replaced(&learned, &dry).len(), there, "only types that were there");

    world.settings.reserved_enis = 1;
    let other = world.refresh();
    assert_eq!(replaced(&dry, &other).len(), dry.len());
}

#[test]
fn a_reservation_replaces_its_type() {
    let mut world = World::new();
    let mut class = class(&json!({"amiFamily": "AL2023"}));
    class.status.as_mut().unwrap().capacity_reservations = serde_json::from_value(json!([
        {"id": "cr-1", "availabilityZone": "us-east-1a", "instanceMatchCriteria": "open", "instanceType": "m5.large",
         "ownerID": "012345678901"}]))
    .unwrap();
    world.shape = ClassShape::new(&class, None).unwrap();
    let first = world.refresh();
    world.reservations.read("cr-1", 3, world.now);
    let read = world.refresh();
    assert_eq!(replaced(&first, &read), ["m5.large"]);
    world.reservations.launched("cr-1", world.now);
    assert_eq!(replaced(&read, &world.refresh()), ["m5.large"]);
}

#[test]
fn classes_that_differ_in_nothing_a_type_depends_on_share_their_types() {
    let mut world = World::new();
    let mut all = TypesOfClasses::default();
    let shape = |spec: serde_json::Value| ClassShape::new(&class(&spec), None).unwrap();
    let plain = || shape(json!({"amiFamily": "AL2023"}));
    let tagged = shape(json!({"amiFamily": "AL2023", "tags": {"team": "a"}, "userData": "x"}));
    let large = || {
        let volume = json!([{"rootVolume": true, "ebs": {"volumeSize": "100Gi"}}]);
        shape(json!({"amiFamily": "AL2023", "blockDeviceMappings": volume}))
    };
    all.set("a", plain(), DiscoveredMemory::default());
    all.set("b", tagged, DiscoveredMemory::default());
    all.set("c", large(), DiscoveredMemory::default());
    let of = |all: &mut TypesOfClasses, world: &World, class: &str| {
        let market = world.market();
        Arc::clone(all.refresh(class, &world.region, &world.settings, market).unwrap())
    };
    let (a, b, c) =
        (of(&mut all, &world, "a"), of(&mut all, &world, "b"), of(&mut all, &world, "c"));
    assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &c));
    assert_eq!(all.shapes.len(), 2);

    // A class that learns keeps what it did not learn about, and the other stays as it is.
    world.memory.observe(shared().get("m5.24xlarge").unwrap(), 370 << 30);
    all.set("b", plain(), world.memory.clone());
    assert!(Arc::ptr_eq(&a, &of(&mut all, &world, "a")));
    let learned = of(&mut all, &world, "b");
    assert_eq!(replaced(&a, &learned), ["m5.24xlarge"]);
    all.set("a", plain(), world.memory.clone());
    assert!(Arc::ptr_eq(&learned, &of(&mut all, &world, "a")), "they share again");

    all.set("c", plain(), world.memory.clone());
    assert_eq!(all.shapes.len(), 1);
    for class in ["a", "b", "c", "a"] {
        all.forget(class);
    }
    assert!(all.shapes.is_empty() && all.last("a").is_none());
}
