//! Free addresses, and the subnet that a launch takes in each zone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kerf_aws_api::Subnet;
use kerf_model::labels::{CAPACITY_TYPE, ZONE};
use kerf_model::resources::PODS;
use kerf_model::{InstanceType, KnownLabels, Requirement, Requirements};

use crate::instance_types::CniSettings;

/// Free addresses by subnet: what EC2 said last, without what launches since will take.
#[derive(Clone, Debug, Default)]
pub struct FreeAddresses {
    by_subnet: BTreeMap<String, Addresses>,
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct Addresses {
    free: i64,
    read: Timestamp,
}

/// The subnets that a launch may use, and what it took from each in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// By zone.
    pub subnets: BTreeMap<String, ChosenSubnet>,
    chosen: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenSubnet {
    pub id: String,
    taken: i64,
}

impl FreeAddresses {
    /// EC2 said how many addresses a subnet has. That counts what was launched before.
    pub fn read(&mut self, subnet: &str, free: i64, now: Timestamp) {
        let before = self.by_subnet.insert(subnet.to_owned(), Addresses { free, read: now });
        self.version += u64::from(before.is_none_or(|before| before.free != free));
    }

    /// EC2 had no address for an instance.
    pub fn exhausted(&mut self, subnet: &str, now: Timestamp) {
        self.read(subnet, 0, now);
    }

    /// Changes whenever a count does.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether a node could start in one of the subnets. What was never read is not held against them.
    pub fn suffice(&self, subnets: &[String], cni: CniSettings) -> bool {
        let enough = |subnet| {
            self.by_subnet.get(subnet).is_none_or(|one| one.free >= addresses_to_start(cni))
        };
        subnets.is_empty() || subnets.iter().any(enough)
    }

    /// In each zone the subnet with most free addresses; the first among equals. The pods of the smallest type that may come
    /// are taken from each at once, so that launches side by side spread over subnets.
    pub fn choose(
        &mut self,
        subnets: &[Subnet],
        types: &[impl AsRef<InstanceType>],
        capacity_type: &str,
        labels: &KnownLabels,
        now: Timestamp,
    ) -> Chosen {
        let mut best: BTreeMap<&str, (&Subnet, i64)> = BTreeMap::new();
        for subnet in subnets {
            let free = self.by_subnet.get(&subnet.id).map_or(0, |one| one.free);
            let current = best.entry(&subnet.zone).or_insert((subnet, free));
            if free > current.1 {
                *current = (subnet, free);
            }
        }
        let mut chosen = BTreeMap::new();
        for (zone, (subnet, _)) in best {
            let taken = fewest_pods(types, zone, capacity_type, labels);
            if let Some(addresses) = self.by_subnet.get_mut(&subnet.id) {
                addresses.free -= taken;
                self.version += u64::from(taken != 0);
            }
            chosen.insert(zone.to_owned(), ChosenSubnet { id: subnet.id.clone(), taken });
        }
        Chosen { subnets: chosen, chosen: now }
    }

    /// Gives back what a launch did not use, unless EC2 was asked in between.
    pub fn give_back(&mut self, chosen: &Chosen, used: &BTreeSet<&str>) {
        for subnet in chosen.subnets.values().filter(|subnet| !used.contains(subnet.id.as_str())) {
            let addresses = self.by_subnet.get_mut(&subnet.id);
            if let Some(addresses) = addresses.filter(|one| one.read <= chosen.chosen) {
                addresses.free += subnet.taken;
                self.version += u64::from(subnet.taken != 0);
            }
        }
    }
}

/// Its own, and with prefixes the first block for its pods.
fn addresses_to_start(cni: CniSettings) -> i64 {
    if cni.prefix_delegation { 1 + 16 } else { 1 }
}

fn fewest_pods(
    types: &[impl AsRef<InstanceType>],
    zone: &str,
    capacity_type: &str,
    labels: &KnownLabels,
) -> i64 {
    let requirements = Requirements::new([
        Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
        Requirement::is_in(ZONE, [zone]),
    ]);
    let there = types.iter().map(AsRef::as_ref).filter(|one| one.is_offered(&requirements, labels));
    there.map(|one| one.capacity().amount(PODS).units()).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::SignedDuration;
    use kerf_model::{Offering, Overhead, Price, Quantity, Resources};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn subnet(id: &str, zone: &str) -> Subnet {
        Subnet { id: id.to_owned(), zone: zone.to_owned(), zone_id: None }
    }

    fn offered(pods: i64, zones: &[&str]) -> Arc<InstanceType> {
        let offering = |zone: &&str| Offering {
            requirements: Requirements::new([
                Requirement::is_in(CAPACITY_TYPE, ["spot"]),
                Requirement::is_in(ZONE, [*zone]),
            ]),
            price: Price::from_f64(1.0),
            available: true,
            ..Offering::default()
        };
        let capacity = Resources::new().with(PODS, Quantity::from_units(pods));
        let offerings = zones.iter().map(offering).collect();
        Arc::new(InstanceType::new(
            "t",
            Requirements::default(),
            offerings,
            capacity,
            Overhead::default(),
        ))
    }

    fn choose(free: &mut FreeAddresses, types: &[Arc<InstanceType>], now: i64) -> Chosen {
        let subnets = [subnet("s-1", "a"), subnet("s-2", "a"), subnet("s-3", "b")];
        free.choose(&subnets, types, "spot", &KnownLabels::default(), at(now))
    }

    fn ids(chosen: &Chosen) -> Vec<&str> {
        chosen.subnets.values().map(|subnet| subnet.id.as_str()).collect()
    }

    #[test]
    fn launches_spread_over_subnets() {
        let mut free = FreeAddresses::default();
        for (id, count) in [("s-1", 100), ("s-2", 90), ("s-3", 5)] {
            free.read(id, count, at(0));
        }
        let types = [offered(29, &["a", "b"]), offered(8, &["b"]), offered(2, &["c"])];
        let first = choose(&mut free, &types, 1);
        assert_eq!(ids(&first), ["s-1", "s-3"]);
        assert_eq!(ids(&choose(&mut free, &types, 2)), ["s-2", "s-3"], "s-1 has 71 left");
        assert_eq!(ids(&choose(&mut free, &types, 3)), ["s-1", "s-3"], "s-2 has 61 left");
        // The first launch was in zone b.
        free.give_back(&first, &["s-3"].into());
        assert_eq!(ids(&choose(&mut free, &types, 4)), ["s-1", "s-3"], "71 beside 61");
        free.read("s-1", 10, at(5));
        assert_eq!(ids(&choose(&mut free, &types, 6)), ["s-2", "s-3"]);
    }

    #[test]
    fn nothing_is_given_back_once_ec2_was_asked_again() {
        let mut free = FreeAddresses::default();
        free.read("s-1", 100, at(0));
        let chosen = choose(&mut free, &[offered(29, &["a"])], 1);
        free.read("s-1", 100, at(2));
        free.give_back(&chosen, &BTreeSet::new());
        assert_eq!(free.by_subnet["s-1"].free, 100);
    }

    #[test]
    fn a_zone_without_addresses_cannot_take_a_node() {
        let mut free = FreeAddresses::default();
        let subnets = ["s-1".to_owned(), "s-2".to_owned()];
        let plain = CniSettings::default();
        let prefixes = CniSettings { prefix_delegation: true, ..plain };
        assert!(free.suffice(&subnets, plain), "not read yet");
        free.read("s-1", 0, at(0));
        assert!(free.suffice(&subnets, plain));
        free.read("s-2", 16, at(0));
        assert!(free.suffice(&subnets, plain) && !free.suffice(&subnets, prefixes));
        let version = free.version();
        free.exhausted("s-2", at(1));
        assert!(!free.suffice(&subnets, plain) && free.version() > version);
        assert!(free.suffice(&[], plain), "a zone without subnets has its own reason");
    }
}
