//! Instances as EC2 describes them, and what a NodeClaim gets of them.

mod ownership;
mod provider_id;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kerf_api::labels;
use kerf_aws_api::{CapacityReservationType, Ec2NodeClass, labels as aws_labels, resources, tags};
use kerf_aws_wire::ec2::{self, DescribeInstancesRequest, Filter};
use kerf_model::{InstanceType, Resources};

use crate::{
    fleet::FleetInstance,
    instance_types::{PlacementGroup, PlacementStrategy},
    launch_template::{Reservation, ReservationMarket},
};

pub use ownership::{has_lost_reservation, is_in_expiring_block};
pub use provider_id::{ParseProviderIdError, ProviderId};

/// An instance. What EC2 has forgotten is not one: `terminated` counts as gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    pub id: String,
    pub instance_type: String,
    pub zone: String,
    pub zone_id: Option<String>,
    pub image: String,
    pub subnet: Option<String>,
    /// Empty while only the answer of the fleet is known.
    pub security_groups: BTreeSet<String>,
    pub launched_at: Option<Timestamp>,
    pub state: State,
    pub capacity_type: &'static str,
    pub reservation: Option<Reservation>,
    pub tenancy: String,
    pub efa_interfaces: usize,
    pub partition: Option<u32>,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    Running,
    Stopping,
    Stopped,
    ShuttingDown,
    Terminated,
}

impl State {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Pending, "pending"),
        (Self::Running, "running"),
        (Self::Stopping, "stopping"),
        (Self::Stopped, "stopped"),
        (Self::ShuttingDown, "shutting-down"),
        (Self::Terminated, "terminated"),
    ];

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(state, _)| *state)
    }
}

/// Asks for all instances of the cluster that Kerf or Karpenter launched.
pub fn list_request(cluster: &str) -> DescribeInstancesRequest {
    let filter = |name: &str, values: &[&str]| Filter {
        name: Some(name.to_owned()),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    let filters = vec![
        filter("tag-key", &[tags::NODE_POOL]),
        filter("tag-key", &[tags::NODE_CLASS]),
        filter(&format!("tag:{}", tags::EKS_CLUSTER_NAME), &[cluster]),
        states(),
    ];
    DescribeInstancesRequest { filters, max_results: Some(1000), ..Default::default() }
}

/// Asks for instances by their ids.
pub fn get_request(ids: Vec<String>) -> DescribeInstancesRequest {
    DescribeInstancesRequest { instance_ids: ids, filters: vec![states()], ..Default::default() }
}

/// Asks for what was launched for these claims, at most 200, whether their launches were answered or not. Those that have ended are
/// among them: by them it is seen that an answer is an old one.
pub fn find_request(claim_uids: Vec<String>) -> DescribeInstancesRequest {
    let by_claim =
        Filter { name: Some(format!("tag:{}", tags::NODE_CLAIM_UID)), values: claim_uids };
    DescribeInstancesRequest { filters: vec![by_claim], ..Default::default() }
}

/// All but `terminated`, which EC2 goes on to list for an hour.
fn states() -> Filter {
    let living = State::ALL.iter().filter(|(state, _)| *state != State::Terminated);
    Filter {
        name: Some("instance-state-name".to_owned()),
        values: living.map(|(_, name)| (*name).to_owned()).collect(),
    }
}

impl Instance {
    /// `None` for what has no id or no known state. Without the gate `ReservedCapacity`, an instance that EC2 put into an open
    /// reservation is one on demand.
    pub fn read(instance: &ec2::Instance, reserved_capacity: bool) -> Option<Self> {
        let placement = instance.placement.clone().unwrap_or_default();
        let reservation = reservation(instance).filter(|_| reserved_capacity);
        let capacity_type = if instance.spot_instance_request_id.is_some() {
            labels::CAPACITY_TYPE_SPOT
        } else if reservation.is_some() {
            labels::CAPACITY_TYPE_RESERVED
        } else {
            labels::CAPACITY_TYPE_ON_DEMAND
        };
        let is_efa = |one: &&ec2::InstanceNetworkInterface| {
            matches!(one.interface_type.as_deref(), Some("efa" | "efa-only"))
        };
        let tag = |tag: &ec2::Tag| Some((tag.key.clone()?, tag.value.clone().unwrap_or_default()));
        Some(Self {
            id: instance.instance_id.clone()?,
            instance_type: instance.instance_type.clone().unwrap_or_default(),
            zone: placement.availability_zone.unwrap_or_default(),
            zone_id: placement.availability_zone_id,
            image: instance.image_id.clone().unwrap_or_default(),
            subnet: instance.subnet_id.clone(),
            security_groups: instance
                .security_groups
                .iter()
                .filter_map(|group| group.group_id.clone())
                .collect(),
            launched_at: instance.launch_time,
            state: State::parse(instance.state.as_ref()?.name.as_deref()?)?,
            capacity_type,
            reservation: reservation.filter(|_| capacity_type == labels::CAPACITY_TYPE_RESERVED),
            tenancy: placement
                .tenancy
                .filter(|tenancy| !tenancy.is_empty())
                .unwrap_or_else(|| aws_labels::TENANCY_DEFAULT.to_owned()),
            efa_interfaces: instance.network_interfaces.iter().filter(is_efa).count(),
            partition: placement
                .partition_number
                .and_then(|number| u32::try_from(number).ok())
                .filter(|number| *number != 0),
            tags: instance.tags.iter().filter_map(tag).collect(),
        })
    }

    /// An instance of which only the answer of the fleet is known.
    pub fn launched(
        fleet: &FleetInstance,
        capacity_type: &'static str,
        tenancy: &str,
        reservation: Option<Reservation>,
        efa_interfaces: usize,
        tags: BTreeMap<String, String>,
        now: Timestamp,
    ) -> Self {
        Self {
            id: fleet.id.clone(),
            instance_type: fleet.instance_type.clone(),
            zone: fleet.zone.clone(),
            zone_id: None,
            image: fleet.image.clone(),
            subnet: fleet.subnet.clone(),
            security_groups: BTreeSet::new(),
            launched_at: Some(now),
            state: State::Pending,
            capacity_type,
            reservation,
            tenancy: tenancy.to_owned(),
            efa_interfaces,
            partition: None,
            tags,
        }
    }

    pub fn provider_id(&self) -> ProviderId {
        ProviderId { zone: self.zone.clone(), instance: self.id.clone() }
    }

    pub fn is_terminating(&self) -> bool {
        matches!(self.state, State::ShuttingDown | State::Terminated)
    }

    /// Of the claim that it was launched for; Karpenter does not write it.
    pub fn claim_uid(&self) -> Option<&str> {
        self.tags.get(tags::NODE_CLAIM_UID).map(String::as_str)
    }

    /// The labels of its NodeClaim and Node.
    ///
    /// A label follows from the type where that allows one value only. `group` is the placement group of the class and
    /// `partition` the one that the claim asked for; it stays an empty text until EC2 says which one it chose.
    pub fn labels(
        &self,
        instance_type: Option<&InstanceType>,
        class: Option<&Ec2NodeClass>,
        group: Option<&PlacementGroup>,
        partition: Option<u32>,
    ) -> BTreeMap<String, String> {
        let of_type = instance_type.into_iter().flat_map(|one| one.requirements().iter());
        let mut all: BTreeMap<_, _> = of_type
            .filter(|requirement| !OF_RESERVATIONS.contains(&requirement.key()))
            .filter_map(|one| Some((one.key().to_owned(), one.only_value()?.to_owned())))
            .collect();
        let mut set = |label: &str, value: &str| all.insert(label.to_owned(), value.to_owned());
        set(labels::ZONE, &self.zone);
        let status = class.and_then(|class| class.status.as_ref());
        let subnets = status.iter().flat_map(|status| &status.subnets);
        let of_zone = subnets.filter(|subnet| subnet.zone == self.zone);
        let zone_id =
            of_zone.filter_map(|subnet| subnet.zone_id.as_deref()).find(|id| !id.is_empty());
        if let Some(zone_id) = zone_id {
            set(aws_labels::ZONE_ID, zone_id);
        }
        set(labels::CAPACITY_TYPE, self.capacity_type);
        set(aws_labels::INSTANCE_TENANCY, &self.tenancy);
        if let Some(Reservation { id, market }) = &self.reservation {
            let kind = match market {
                ReservationMarket::CapacityBlock => CapacityReservationType::CapacityBlock,
                ReservationMarket::Default | ReservationMarket::Interruptible => {
                    CapacityReservationType::Default
                }
            };
            let interruptible = *market == ReservationMarket::Interruptible;
            set(aws_labels::CAPACITY_RESERVATION_ID, id);
            set(aws_labels::CAPACITY_RESERVATION_TYPE, kind.as_str());
            set(aws_labels::CAPACITY_RESERVATION_INTERRUPTIBLE, &interruptible.to_string());
        }
        if let Some(PlacementGroup { id, strategy }) = group {
            set(aws_labels::PLACEMENT_GROUP_ID, id);
            if let PlacementStrategy::Partition { .. } = strategy {
                let known = self.partition.or(partition);
                let known = known.map(|partition| partition.to_string()).unwrap_or_default();
                set(aws_labels::PLACEMENT_GROUP_PARTITION, &known);
            }
        }
        if let Some(pool) = self.tags.get(tags::NODE_POOL) {
            set(labels::NODE_POOL, pool);
        }
        all
    }

    /// Capacity and allocatable for the status of its NodeClaim. EFA counts only where the instance has such interfaces.
    pub fn resources(&self, instance_type: &InstanceType) -> (Resources, Resources) {
        let kept = |all: &Resources| {
            let mut kept = Resources::new();
            for (name, amount) in all.iter() {
                let is_there = name != resources::EFA || self.efa_interfaces > 0;
                if is_there && !amount.is_zero() {
                    kept.set(name, amount);
                }
            }
            kept
        };
        (kept(instance_type.capacity()), kept(instance_type.allocatable()))
    }
}

/// A type has them for its reserved offerings, whatever the instance was bought by.
const OF_RESERVATIONS: [&str; 3] = [
    aws_labels::CAPACITY_RESERVATION_ID,
    aws_labels::CAPACITY_RESERVATION_TYPE,
    aws_labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
];

/// The reservation that the instance was launched into on purpose.
fn reservation(instance: &ec2::Instance) -> Option<Reservation> {
    let specification = instance.capacity_reservation_specification.as_ref()?;
    let preference = specification.capacity_reservation_preference.as_deref();
    let market = match instance.instance_lifecycle.as_deref() {
        Some("capacity-block") => ReservationMarket::CapacityBlock,
        Some("interruptible-capacity-reservation") => ReservationMarket::Interruptible,
        _ => ReservationMarket::Default,
    };
    let id = instance.capacity_reservation_id.clone()?;
    (preference == Some("capacity-reservations-only")).then_some(Reservation { id, market })
}

#[cfg(test)]
mod tests;
