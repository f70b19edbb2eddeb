//! Zones, subnets with their free addresses, and security groups.

use std::collections::BTreeMap;

use kerf_aws_wire::ec2;

use crate::chance;
use crate::cloud::{Answer, Cloud};
use crate::filters::{Tags, one, select, tag_list, untagged};
use crate::paging::{PageSize, page};
use crate::refused::Refused;
use crate::settings::Settings;

#[derive(Clone, Debug)]
pub(crate) struct Zone {
    pub(crate) name: String,
    pub(crate) id: String,
}

/// A subnet of a VPC.
#[derive(Clone, Debug)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    pub(crate) vpc: String,
    pub(crate) zone: String,
    pub(crate) free_addresses: u32,
    pub(crate) tags: BTreeMap<String, String>,
    /// The second and third byte of its addresses: `10.0.32.0/19` has (0, 32).
    pub(crate) start: (u8, u8),
    pub(crate) addresses_given: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct SecurityGroup {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) vpc: String,
    pub(crate) tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) vpc: String,
    pub(crate) zones: Vec<Zone>,
    pub(crate) subnets: BTreeMap<String, Subnet>,
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
}

/// Subnets and groups that belong to a cluster have this tag.
const DISCOVERY: &str = "karpenter.sh/discovery";

impl Network {
    /// One private subnet per zone and two security groups, all with the tag of the cluster.
    pub(crate) fn new(settings: &Settings, zone_names: &[String]) -> Self {
        let vpc = chance::id("vpc", settings.seed, &[&settings.cluster]);
        let tags = |name: String| {
            Tags::from([
                (DISCOVERY.to_owned(), settings.cluster.clone()),
                ("Name".to_owned(), name),
            ])
        };
        let zones: Vec<_> = zone_names
            .iter()
            .zip(1..)
            .map(|(name, number)| Zone {
                name: name.clone(),
                id: format!("{}-az{number}", short_region(&settings.region)),
            })
            .collect();
        let mut network = Self { vpc, zones, subnets: BTreeMap::new(), groups: BTreeMap::new() };
        for zone in zone_names.iter().take(settings.zones.max(1)) {
            let name = format!("{}-private-{zone}", settings.cluster);
            network.add_subnet(
                settings,
                zone,
                &name,
                settings.subnet_addresses,
                tags(name.clone()),
            );
        }
        for name in ["cluster", "node"] {
            let name = format!("{}-{name}", settings.cluster);
            network.add_group(settings, &name, tags(name.clone()));
        }
        network
    }

    pub(crate) fn add_group(&mut self, settings: &Settings, name: &str, tags: Tags) -> String {
        let id = chance::id("sg", settings.seed, &[name]);
        let (vpc, name) = (self.vpc.clone(), name.to_owned());
        self.groups.insert(id.clone(), SecurityGroup { id: id.clone(), name, vpc, tags });
        id
    }

    pub(crate) fn add_subnet(
        &mut self,
        settings: &Settings,
        zone: &str,
        name: &str,
        free_addresses: u32,
        tags: Tags,
    ) -> String {
        let id = chance::id("subnet", settings.seed, &[name, zone]);
        let [.., high, low] = (u32::try_from(self.subnets.len()).unwrap_or(0) * 32).to_be_bytes();
        let subnet = Subnet {
            id: id.clone(),
            vpc: self.vpc.clone(),
            zone: zone.to_owned(),
            free_addresses,
            tags,
            start: (high, low),
            addresses_given: 0,
        };
        self.subnets.insert(id.clone(), subnet);
        id
    }

    pub(crate) fn zone_id(&self, name: &str) -> Option<String> {
        self.zones.iter().find(|zone| zone.name == name).map(|zone| zone.id.clone())
    }
}

impl Subnet {
    /// The next address; the first four of a subnet are AWS's own.
    pub(crate) fn next_address(&mut self) -> String {
        self.addresses_given += 1;
        let number = self.addresses_given + 3;
        let (high, low) = self.start;
        let [.., third, fourth] = number.to_be_bytes();
        format!("10.{high}.{}.{fourth}", low.wrapping_add(third))
    }
}

/// `usw2` of `us-west-2`, `apse1` of `ap-southeast-1`.
fn short_region(region: &str) -> String {
    let short = |part: &str| match part {
        "northeast" => "ne".to_owned(),
        "northwest" => "nw".to_owned(),
        "southeast" => "se".to_owned(),
        "southwest" => "sw".to_owned(),
        "north" | "south" | "east" | "west" | "central" => part[..1].to_owned(),
        other => other.to_owned(),
    };
    region.split('-').map(short).collect()
}

impl Answer for ec2::DescribeAvailabilityZonesRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let region = cloud.settings.region.clone();
        let zones = select(
            &cloud.network.zones,
            &self.filters,
            |_| untagged(),
            |zone, name| match name {
                "zone-name" => one(&zone.name),
                "zone-id" => one(&zone.id),
                "state" => one("available"),
                "zone-type" => one("availability-zone"),
                "opt-in-status" => one("opt-in-not-required"),
                "region-name" => one(&region),
                _ => None,
            },
        )?;
        let wanted = |zone: &&Zone| {
            (self.zone_names.is_empty() || self.zone_names.contains(&zone.name))
                && (self.zone_ids.is_empty() || self.zone_ids.contains(&zone.id))
        };
        let describe = |zone: &Zone| ec2::AvailabilityZone {
            opt_in_status: Some("opt-in-not-required".to_owned()),
            region_name: Some(region.clone()),
            state: Some("available".to_owned()),
            zone_id: Some(zone.id.clone()),
            zone_name: Some(zone.name.clone()),
            zone_type: Some("availability-zone".to_owned()),
        };
        let availability_zones = zones.into_iter().filter(wanted).map(describe).collect();
        Ok(ec2::DescribeAvailabilityZonesResponse { availability_zones })
    }
}

impl Answer for ec2::DescribeSubnetsRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let network = &cloud.network;
        known(&self.subnet_ids, &network.subnets, "InvalidSubnetID.NotFound", "subnet ID")?;
        let subnets = select(
            network.subnets.values(),
            &self.filters,
            |subnet| &subnet.tags,
            |subnet, name| match name {
                "subnet-id" => one(&subnet.id),
                "vpc-id" => one(&subnet.vpc),
                "availability-zone" => one(&subnet.zone),
                "availability-zone-id" => one(network.zone_id(&subnet.zone)?),
                "state" => one("available"),
                _ => None,
            },
        )?;
        let wanted =
            |subnet: &&Subnet| self.subnet_ids.is_empty() || self.subnet_ids.contains(&subnet.id);
        let describe = |subnet: &Subnet| ec2::Subnet {
            availability_zone: Some(subnet.zone.clone()),
            availability_zone_id: network.zone_id(&subnet.zone),
            available_ip_address_count: Some(
                i32::try_from(subnet.free_addresses).unwrap_or(i32::MAX),
            ),
            cidr_block: Some(format!("10.{}.{}.0/19", subnet.start.0, subnet.start.1)),
            map_public_ip_on_launch: Some(false),
            owner_id: Some(cloud.settings.account.clone()),
            state: Some("available".to_owned()),
            subnet_id: Some(subnet.id.clone()),
            tags: tag_list(&subnet.tags),
            vpc_id: Some(subnet.vpc.clone()),
        };
        let subnets: Vec<_> = subnets.into_iter().filter(wanted).map(describe).collect();
        let (subnets, next_token) = page(
            subnets,
            |subnet| subnet.subnet_id.clone().unwrap_or_default(),
            &PAGE,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        Ok(ec2::DescribeSubnetsResponse { next_token, subnets })
    }
}

const PAGE: PageSize = PageSize::new(5, 1000, 1000);

impl Answer for ec2::DescribeSecurityGroupsRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let network = &cloud.network;
        known(&self.group_ids, &network.groups, "InvalidGroup.NotFound", "security group")?;
        let groups = select(
            network.groups.values(),
            &self.filters,
            |group| &group.tags,
            |group, name| match name {
                "group-id" => one(&group.id),
                "group-name" => one(&group.name),
                "vpc-id" => one(&group.vpc),
                "owner-id" => one(&cloud.settings.account),
                _ => None,
            },
        )?;
        let wanted = |group: &&SecurityGroup| {
            (self.group_ids.is_empty() || self.group_ids.contains(&group.id))
                && (self.group_names.is_empty() || self.group_names.contains(&group.name))
        };
        let describe = |group: &SecurityGroup| ec2::SecurityGroup {
            group_id: Some(group.id.clone()),
            group_name: Some(group.name.clone()),
            owner_id: Some(cloud.settings.account.clone()),
            tags: tag_list(&group.tags),
            vpc_id: Some(group.vpc.clone()),
        };
        let groups: Vec<_> = groups.into_iter().filter(wanted).map(describe).collect();
        let (security_groups, next_token) = page(
            groups,
            |group| group.group_id.clone().unwrap_or_default(),
            &PAGE,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        Ok(ec2::DescribeSecurityGroupsResponse { next_token, security_groups })
    }
}

/// Ids that are named outside of filters have to exist.
pub(crate) fn known<T>(
    ids: &[String],
    all: &BTreeMap<String, T>,
    code: &str,
    what: &str,
) -> Result<(), Refused> {
    match ids.iter().find(|id| !all.contains_key(*id)) {
        Some(id) => Err(Refused::new(code, format!("The {what} '{id}' does not exist"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_have_ids_that_begin_with_the_region() {
        for (region, short) in [
            ("us-west-2", "usw2"),
            ("ap-southeast-1", "apse1"),
            ("eu-central-1", "euc1"),
            ("us-gov-west-1", "usgovw1"),
        ] {
            assert_eq!(short_region(region), short);
        }
    }
}
