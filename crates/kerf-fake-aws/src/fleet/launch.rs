//! One instance of one override: what must hold for it, and what it takes.

use std::sync::Arc;

use kerf_aws_model::catalogue::{Trait, TypeFacts};
use kerf_aws_wire::ec2;

use super::Capacity;
use crate::chance;
use crate::cloud::Cloud;
use crate::filters::{Tags, tags_of};
use crate::instance_types::architecture;
use crate::instances::{Instance, State};
use crate::pools::{Market, PoolKey};
use crate::profiles;
use crate::refused::Refused;
use crate::reservations::{
    PlacementGroup, ReservationKind, SPREAD_LIMIT, Strategy, placement_group,
};
use crate::templates::Template;

#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'a> {
    pub(super) template: &'a Template,
    pub(super) wanted: &'a ec2::FleetLaunchTemplateOverridesRequest,
    pub(super) capacity: Capacity,
    pub(super) tags: &'a Tags,
    pub(super) fleet: &'a str,
}

/// Where an instance would be and what it would be made of.
pub(super) struct Place {
    facts: Arc<TypeFacts>,
    zone: String,
    subnet: String,
    image: String,
    profile_arn: Option<String>,
    partition: Option<i32>,
    addresses: u32,
}

/// An address with a prefix stands for so many.
const PREFIX: u32 = 16;

impl Launch<'_> {
    /// Launches it; nothing has changed if it is refused.
    pub(super) fn one(&self, cloud: &mut Cloud) -> Result<String, Refused> {
        let place = self.place(cloud)?;
        let subnet = cloud.network.subnets.get(&place.subnet);
        if subnet.is_none_or(|subnet| subnet.free_addresses < place.addresses) {
            let message = format!(
                "There are not enough free addresses in subnet '{}' to satisfy the requested number of instances.",
                place.subnet
            );
            return Err(Refused::new("InsufficientFreeAddressesInSubnet", message));
        }
        let reservation = self.reservation(cloud, &place)?;
        if let Some(id) = &reservation {
            if let Some(reservation) = cloud.reservations.get_mut(id) {
                reservation.available = reservation.available.saturating_sub(1);
            }
        } else {
            self.take_capacity(cloud, &place)?;
        }
        Ok(self.begin(cloud, place, reservation))
    }

    /// What has to be right, whether there is capacity or not.
    pub(super) fn place(&self, cloud: &Cloud) -> Result<Place, Refused> {
        let data = &self.template.data;
        let name = self.wanted.instance_type.as_deref().unwrap_or_default();
        let Some(facts) = cloud.catalogue.get(name).cloned() else {
            return Err(Refused::invalid_value(format!(
                "Invalid value '{name}' for InstanceType."
            )));
        };
        let subnet = self.subnet(cloud)?;
        let zone = subnet.zone.clone();
        if self.wanted.availability_zone.as_ref().is_some_and(|wanted| *wanted != zone) {
            let message =
                format!("The subnet '{}' is not in the zone that is asked for", subnet.id);
            return Err(Refused::invalid_value(message));
        }
        if !cloud.zones_offering(name).contains(&zone) {
            let message = format!(
                "Your requested instance type ({name}) is not supported in your requested Availability Zone ({zone})."
            );
            return Err(Refused::new("Unsupported", message));
        }
        let market = match self.capacity {
            Capacity::Spot => Trait::Spot,
            Capacity::Block => Trait::CapacityBlock,
            Capacity::OnDemand | Capacity::Reserved => Trait::OnDemand,
        };
        if !facts.is(market) {
            let message = format!("The instance type {name} cannot be bought in this way.");
            return Err(Refused::new("Unsupported", message));
        }
        let image = self.image(cloud, &facts)?;
        self.check_groups(cloud, &subnet.id, &subnet.vpc)?;
        let profile_arn = self.profile(cloud)?;
        let partition = self.check_placement(cloud, &zone)?;
        let interfaces = data.network_interfaces.iter();
        let with_addresses =
            interfaces.filter(|one| one.interface_type.as_deref() != Some("efa-only"));
        let addresses: u32 = with_addresses
            .map(|one| 1 + PREFIX * u32::try_from(one.ipv4_prefix_count.unwrap_or(0)).unwrap_or(0))
            .sum();
        Ok(Place {
            facts,
            zone,
            subnet: subnet.id.clone(),
            image,
            profile_arn,
            partition,
            addresses: addresses.max(1),
        })
    }

    fn subnet<'c>(&self, cloud: &'c Cloud) -> Result<&'c crate::network::Subnet, Refused> {
        let of_interface = || self.template.data.network_interfaces.first()?.subnet_id.as_ref();
        let Some(id) = self.wanted.subnet_id.as_ref().or_else(of_interface) else {
            let message = "No default VPC for this user";
            return Err(Refused::new("VPCIdNotSpecified", message));
        };
        cloud.network.subnets.get(id).ok_or_else(|| {
            let message = format!("The subnet ID '{id}' does not exist");
            Refused::new("InvalidSubnetID.NotFound", message)
        })
    }

    fn image(&self, cloud: &Cloud, facts: &TypeFacts) -> Result<String, Refused> {
        let id = self.wanted.image_id.as_ref().or(self.template.data.image_id.as_ref());
        let id = id.ok_or_else(|| Refused::missing("ImageId"))?;
        if !id.starts_with("ami-") {
            return Err(Refused::new("InvalidAMIID.Malformed", format!("Invalid id: \"{id}\"")));
        }
        let Some(image) = cloud.images.by_id.get(id) else {
            let message = format!("The image id '[{id}]' does not exist");
            return Err(Refused::new("InvalidAMIID.NotFound", message));
        };
        if image.architecture != architecture(facts) {
            let message = format!(
                "The architecture '{}' of the specified instance type does not match the architecture '{}' of the specified AMI.",
                architecture(facts),
                image.architecture
            );
            return Err(Refused::invalid_value(message));
        }
        Ok(id.clone())
    }

    fn check_groups(&self, cloud: &Cloud, subnet: &str, vpc: &str) -> Result<(), Refused> {
        let data = &self.template.data;
        let of_interfaces = data.network_interfaces.iter().flat_map(|one| &one.groups);
        for id in of_interfaces.chain(&data.security_group_ids) {
            let Some(group) = cloud.network.groups.get(id) else {
                let message = format!("The security group '{id}' does not exist");
                return Err(Refused::new("InvalidGroup.NotFound", message));
            };
            if group.vpc != vpc {
                let message = format!(
                    "Security group {id} and subnet {subnet} belong to different networks."
                );
                return Err(Refused::new("InvalidParameter", message));
            }
        }
        Ok(())
    }

    fn profile(&self, cloud: &Cloud) -> Result<Option<String>, Refused> {
        let asked = self.template.data.iam_instance_profile.as_ref();
        let Some(name) = asked.and_then(|asked| asked.name.as_deref()) else { return Ok(None) };
        let found = cloud.profiles.by_name.get(name);
        match found.filter(|_| cloud.profiles.known_to_ec2(name, cloud.now)) {
            Some(profile) => Ok(Some(profiles::arn(&cloud.settings.account, name, profile))),
            None => Err(Refused::invalid_value(format!(
                "Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
            ))),
        }
    }

    /// The partition that it gets, if it gets one.
    fn check_placement(&self, cloud: &Cloud, zone: &str) -> Result<Option<i32>, Refused> {
        let Some(asked) = &self.template.data.placement else { return Ok(None) };
        let Some(group) = placement_group(&cloud.placement_groups, asked)? else { return Ok(None) };
        let inside = || cloud.instances.values().filter(|one| one.is_in(group, zone));
        match group.strategy {
            Strategy::Spread if inside().count() >= SPREAD_LIMIT => {
                let message = format!(
                    "You have reached the limit of instances in this spread placement group for {zone}: {SPREAD_LIMIT}"
                );
                Err(Refused::new("InsufficientInstanceCapacity", message))
            }
            Strategy::Spread | Strategy::Cluster => Ok(None),
            Strategy::Partition { count } => {
                let emptiest = (1..=count).min_by_key(|number| {
                    inside().filter(|one| one.partition == Some(*number)).count()
                });
                Ok(asked.partition_number.or(emptiest))
            }
        }
    }

    /// The reservation that it is launched into.
    fn reservation(&self, cloud: &Cloud, place: &Place) -> Result<Option<String>, Refused> {
        let asked = self.template.data.capacity_reservation_specification.as_ref();
        let preference = asked.and_then(|asked| asked.capacity_reservation_preference.as_deref());
        let target = asked.and_then(|asked| asked.capacity_reservation_target.as_ref());
        let target = target.and_then(|target| target.capacity_reservation_id.as_ref());
        let exceeded = || {
            let message = "The requested reservation does not have sufficient compatible and available capacity for this request.";
            Refused::new("ReservationCapacityExceeded", message)
        };
        let fits = |one: &&crate::reservations::Reservation| {
            one.is_active(cloud.now)
                && one.instance_type == place.facts.name
                && one.zone == place.zone
                && one.available > 0
        };
        let kind = match self.capacity {
            Capacity::Block => ReservationKind::CapacityBlock,
            Capacity::Reserved => ReservationKind::Interruptible,
            Capacity::OnDemand | Capacity::Spot => ReservationKind::Default,
        };
        if let Some(id) = target {
            let Some(reservation) = cloud.reservations.get(id) else {
                let message = format!("The capacity reservation '{id}' does not exist");
                return Err(Refused::new("InvalidCapacityReservationId.NotFound", message));
            };
            if reservation.kind != kind {
                let message =
                    format!("The capacity reservation '{id}' is not of the kind that is asked for");
                return Err(Refused::new("InvalidParameterCombination", message));
            }
            return Some(reservation)
                .filter(fits)
                .map(|one| Some(one.id.clone()))
                .ok_or_else(exceeded);
        }
        if matches!(self.capacity, Capacity::Block | Capacity::Reserved) {
            let message = "The launch template names no capacity reservation";
            return Err(Refused::new("InvalidParameterCombination", message));
        }
        if self.capacity == Capacity::Spot || preference == Some("none") {
            return Ok(None);
        }
        let open = cloud.reservations.values().filter(fits).find(|one| one.open);
        match (open, preference) {
            (Some(open), _) => Ok(Some(open.id.clone())),
            (None, Some("capacity-reservations-only")) => Err(exceeded()),
            (None, _) => Ok(None),
        }
    }

    fn take_capacity(&self, cloud: &mut Cloud, place: &Place) -> Result<(), Refused> {
        let (facts, market) = (&place.facts, self.capacity.market());
        cloud.vcpus.check(&cloud.settings.quotas, market, &facts.name, facts.vcpus)?;
        let pool = PoolKey { instance_type: facts.name.clone(), zone: place.zone.clone(), market };
        if !cloud.pools.take(&pool, cloud.now) {
            let message = match market {
                Market::Spot => {
                    "There is no Spot capacity available that matches your request.".to_owned()
                }
                Market::OnDemand => format!(
                    "We currently do not have sufficient {} capacity in the Availability Zone you requested ({}).",
                    facts.name, place.zone
                ),
            };
            return Err(Refused::new("InsufficientInstanceCapacity", message));
        }
        cloud.vcpus.add(market, &facts.name, facts.vcpus);
        Ok(())
    }

    fn begin(&self, cloud: &mut Cloud, place: Place, reservation: Option<String>) -> String {
        cloud.instances_made += 1;
        let number = cloud.instances_made.to_string();
        let seed = cloud.settings.seed;
        let id = chance::id("i", seed, &[&number]);
        let mut address = String::new();
        if let Some(subnet) = cloud.network.subnets.get_mut(&place.subnet) {
            subnet.free_addresses = subnet.free_addresses.saturating_sub(place.addresses);
            address = subnet.next_address();
        }
        let of_template = self.template.data.tag_specifications.iter();
        let of_template =
            of_template.filter(|one| one.resource_type.as_deref() == Some("instance"));
        let mut tags: Tags = of_template.flat_map(|one| tags_of(&one.tags)).collect();
        tags.extend(self.tags.clone());
        for (key, value) in [
            ("aws:ec2:fleet-id", self.fleet),
            ("aws:ec2launchtemplate:id", &self.template.id),
            ("aws:ec2launchtemplate:version", "1"),
        ] {
            tags.insert(key.to_owned(), value.to_owned());
        }
        let market = self.capacity.market();
        let instance = Instance {
            id: id.clone(),
            facts: place.facts,
            image: place.image,
            template: Arc::clone(&self.template.data),
            market,
            zone: place.zone,
            subnet: place.subnet,
            address,
            addresses: place.addresses,
            profile_arn: place.profile_arn,
            reservation,
            spot_request: (market == Market::Spot)
                .then(|| format!("sir-{:08x}", chance::draw(seed, &["sir", &number]) >> 32)),
            partition: place.partition,
            client_token: format!("{}-{number}", self.fleet),
            tags,
            launched: cloud.now,
            visible: cloud.after(cloud.settings.delays.instance_visible),
            state: State::Pending,
            end: None,
            impaired: None,
            scheduled: Vec::new(),
            console: String::new(),
        };
        cloud.begin(instance);
        id
    }
}

impl Instance {
    fn is_in(&self, group: &PlacementGroup, zone: &str) -> bool {
        let asked = self.template.placement.as_ref();
        let named = asked.and_then(|asked| asked.group_id.as_ref().or(asked.group_name.as_ref()));
        self.state.is_alive()
            && self.zone == zone
            && named.is_some_and(|named| *named == group.id || *named == group.name)
    }
}
