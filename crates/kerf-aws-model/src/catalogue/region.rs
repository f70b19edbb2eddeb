//! What a region offers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kerf_aws_wire::ec2;

use super::{Catalogue, Network, TypeFacts, UnusableType};

/// The instance types of a region and where they are. It does not change; another one takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub name: String,
    /// The names of all zones.
    pub zones: Vec<String>,
    pub types: Vec<RegionType>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionType {
    pub facts: Arc<TypeFacts>,
    pub network: Network,
    /// The names of the zones that offer it.
    pub zones: Vec<String>,
}

impl Region {
    /// What EC2 says of an account's region: its types, and its zones by type. What it does not say comes from the catalogue.
    /// Types that cannot be used are handed back beside it.
    pub fn read(
        name: &str,
        described: &[ec2::InstanceTypeInfo],
        offered: &[ec2::InstanceTypeOffering],
        catalogue: &Catalogue,
    ) -> (Self, Vec<UnusableType>) {
        let mut by_type: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for one in offered {
            if let (Some(instance_type), Some(zone)) = (&one.instance_type, &one.location) {
                by_type.entry(instance_type).or_default().insert(zone);
            }
        }
        let zones: BTreeSet<&str> = by_type.values().flatten().copied().collect();
        let (mut types, mut unusable) = (Vec::new(), Vec::new());
        for info in described {
            match TypeFacts::read(info) {
                Ok(facts) => types.push(RegionType {
                    network: catalogue.network_of(info),
                    zones: owned(by_type.get(facts.name.as_str()).into_iter().flatten()),
                    facts: Arc::new(facts),
                }),
                Err(error) => unusable.push(error),
            }
        }
        types.sort_unstable_by(|a, b| a.facts.name.cmp(&b.facts.name));
        (Self { name: name.to_owned(), zones: owned(&zones), types }, unusable)
    }
}

fn owned<'a>(names: impl IntoIterator<Item = &'a &'a str>) -> Vec<String> {
    names.into_iter().map(|name| (*name).to_owned()).collect()
}

impl Catalogue {
    fn network_of(&self, info: &ec2::InstanceTypeInfo) -> Network {
        let name = info.instance_type.as_deref().unwrap_or_default();
        let is_known = self.types.contains_key(name) || self.network.contains_key(name);
        if is_known { self.network(name) } else { Network::read(info) }
    }

    /// What is known of a region without an account; `None` if nothing is.
    pub fn region(&self, name: &str) -> Option<Region> {
        let zones = self.zones(name)?;
        let types = self.types().filter_map(|facts| {
            let offering = zones.offering(name, &facts.name);
            (!offering.is_empty()).then(|| RegionType {
                facts: Arc::clone(facts),
                network: self.network(&facts.name),
                zones: offering,
            })
        });
        Some(Region { name: name.to_owned(), zones: zones.names(name), types: types.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::shared;

    #[test]
    fn what_an_account_says_of_its_region_is_completed() {
        let offering = |instance_type: &str, zone: &str| ec2::InstanceTypeOffering {
            instance_type: Some(instance_type.to_owned()),
            location: Some(zone.to_owned()),
            ..Default::default()
        };
        let known = shared().get("m5.large").unwrap().described();
        let mut new =
            ec2::InstanceTypeInfo { instance_type: Some("m99.large".to_owned()), ..known.clone() };
        for card in new.network_info.iter_mut().flat_map(|network| &mut network.network_cards) {
            card.baseline_bandwidth_in_gbps = Some(0.781);
        }
        let offered = [
            offering("m99.large", "x-1b"),
            offering("m5.large", "x-1c"),
            offering("m99.large", "x-1a"),
        ];
        let nameless = ec2::InstanceTypeInfo::default();
        let (region, unusable) = Region::read("x-1", &[new, known, nameless], &offered, shared());
        assert_eq!(unusable, [UnusableType::NoName]);
        assert_eq!(region.zones, ["x-1a", "x-1b", "x-1c"]);
        let types: Vec<_> = region
            .types
            .iter()
            .map(|one| (one.facts.name.as_str(), one.zones.join(" "), one.network))
            .collect();
        let network =
            |mbps, branch_interfaces| Network { bandwidth_mbps: Some(mbps), branch_interfaces };
        assert_eq!(
            types,
            [
                ("m5.large", "x-1c".to_owned(), network(750, 9)),
                ("m99.large", "x-1a x-1b".to_owned(), network(781, 0)),
            ]
        );
    }
}
