//! Whether an instance is still what its class would launch.

mod foreseen;
mod rollout;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jiff::Timestamp;
use kerf_api::NodeClaim;
use kerf_aws_api::{Ec2NodeClass, annotations, labels as aws_labels};
use kerf_model::InstanceType;

use crate::{images::Images, instance::Instance};

pub use foreseen::Untold;
pub use rollout::{FirstSeen, Held, ImageAge, Pace, ReadRolloutError, Rollout};

/// What drift is decided from.
#[derive(Clone, Copy, Debug)]
pub struct DriftQuestion<'a> {
    pub claim: &'a NodeClaim,
    pub class: &'a Ec2NodeClass,
    /// The images in the status of the class.
    pub images: &'a Images,
    /// The type of the claim's instance.
    pub instance_type: &'a InstanceType,
    /// What is known of the instance without asking.
    pub instance: &'a Instance,
    /// The placement group of the class.
    pub placement_group: Option<&'a str>,
    pub rollout: &'a RolloutState<'a>,
    pub now: Timestamp,
}

/// How far the rollout of new images is.
#[derive(Clone, Copy, Debug)]
pub struct RolloutState<'a> {
    pub settings: Rollout,
    /// When each image was published, as far as EC2 was asked.
    pub published: &'a BTreeMap<String, Timestamp>,
    pub first_seen: &'a FirstSeen,
    /// Nodes of the pool do register. While they do not, images are not rolled out any further.
    pub registration_healthy: bool,
}

/// How an instance differs from what would be launched. The first in this order is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drift {
    /// A field of the class changed that decides what instances are.
    NodeClass {
        launched_with: String,
        now: String,
    },
    Ami {
        launched_with: String,
        now: Option<String>,
    },
    SecurityGroups {
        of_instance: BTreeSet<String>,
        of_class: BTreeSet<String>,
    },
    Subnet {
        of_instance: String,
    },
    /// To be believed only of an instance that was just asked for: EC2 moves instances out of reservations that end.
    CapacityReservation {
        of_instance: String,
    },
    PlacementGroup {
        of_claim: Option<String>,
        of_class: Option<String>,
    },
}

/// What is known about drift.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub drift: Option<Drift>,
    /// A new image that waits for its turn, and why.
    pub held: Option<(Drift, Held)>,
}

/// Why it cannot be said: the class does not know what it would launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    #[error("the status of the EC2NodeClass has no AMIs")]
    NoImages,
    #[error("the status of the NodeClaim has no image")]
    NoImageOfClaim,
    #[error("the status of the EC2NodeClass has no security groups")]
    NoSecurityGroups,
    #[error("the status of the EC2NodeClass has no subnets")]
    NoSubnets,
}

/// An image that the instance does not have.
struct NewImage {
    drift: Drift,
    turn: Result<(), Held>,
}

impl Drift {
    /// The reason of the claim's Drifted condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NodeClass { .. } => "NodeClassDrift",
            Self::Ami { .. } => "AMIDrift",
            Self::SecurityGroups { .. } => "SecurityGroupDrift",
            Self::Subnet { .. } => "SubnetDrift",
            Self::CapacityReservation { .. } => "CapacityReservationDrift",
            Self::PlacementGroup { .. } => "PlacementGroupDrift",
        }
    }
}

impl DriftQuestion<'_> {
    pub fn answer(&self) -> Result<Verdict, Undecided> {
        if let Some(drift) = self.node_class() {
            return Ok(Verdict { drift: Some(drift), held: None });
        }
        let held = match self.ami()? {
            None => None,
            Some(NewImage { drift, turn: Ok(()) }) => {
                return Ok(Verdict { drift: Some(drift), held: None });
            }
            Some(NewImage { drift, turn: Err(held) }) => Some((drift, held)),
        };
        // All are looked at, so that an empty status is an error whatever else has changed.
        let (security_groups, subnet) = (self.security_groups()?, self.subnet()?);
        let drift = security_groups
            .or(subnet)
            .or_else(|| self.capacity_reservation())
            .or_else(|| self.placement_group());
        Ok(Verdict { drift, held })
    }

    /// Hashes that were computed in different ways say nothing.
    fn node_class(&self) -> Option<Drift> {
        let of = |annotations: &Option<BTreeMap<String, String>>| {
            let all = annotations.as_ref()?;
            let hash = all.get(annotations::NODE_CLASS_HASH)?.clone();
            Some((hash, all.get(annotations::NODE_CLASS_HASH_VERSION)?.clone()))
        };
        let (now, version) = of(&self.class.metadata.annotations)?;
        let (launched_with, version_then) = of(&self.claim.metadata.annotations)?;
        (version == version_then && now != launched_with)
            .then_some(Drift::NodeClass { launched_with, now })
    }

    fn ami(&self) -> Result<Option<NewImage>, Undecided> {
        if self.images.is_empty() {
            return Err(Undecided::NoImages);
        }
        let launched_with = &self.claim.status.as_ref().ok_or(Undecided::NoImageOfClaim)?.image_id;
        if launched_with.is_empty() {
            return Err(Undecided::NoImageOfClaim);
        }
        let now = self.images.of(self.instance_type);
        if now == Some(launched_with) {
            return Ok(None);
        }
        let turn = now.map_or(Ok(()), |image| self.turn(image));
        let drift =
            Drift::Ami { launched_with: launched_with.clone(), now: now.map(str::to_owned) };
        Ok(Some(NewImage { drift, turn }))
    }

    fn turn(&self, image: &str) -> Result<(), Held> {
        let RolloutState { settings, published, first_seen, registration_healthy } = self.rollout;
        let age = ImageAge {
            published: published.get(image).copied(),
            first_seen: first_seen.get(image).unwrap_or(self.now),
        };
        let uid = self.claim.metadata.uid.as_deref().unwrap_or_default();
        settings.check(uid, image, age, *registration_healthy, self.now)
    }

    fn security_groups(&self) -> Result<Option<Drift>, Undecided> {
        let status = self.class.status.iter();
        let of_class: BTreeSet<_> = status
            .flat_map(|status| &status.security_groups)
            .map(|group| group.id.clone())
            .collect();
        if of_class.is_empty() {
            return Err(Undecided::NoSecurityGroups);
        }
        let of_instance = self.instance.security_groups.clone();
        // Those of an instance that was just launched are not known yet.
        let differ = !of_instance.is_empty() && of_instance != of_class;
        Ok(differ.then_some(Drift::SecurityGroups { of_instance, of_class }))
    }

    fn subnet(&self) -> Result<Option<Drift>, Undecided> {
        let mut of_class = self.class.status.iter().flat_map(|status| &status.subnets).peekable();
        if of_class.peek().is_none() {
            return Err(Undecided::NoSubnets);
        }
        let Some(of_instance) = self.instance.subnet.clone() else { return Ok(None) };
        let is_there = of_class.any(|subnet| subnet.id == of_instance);
        Ok((!is_there).then_some(Drift::Subnet { of_instance }))
    }

    fn capacity_reservation(&self) -> Option<Drift> {
        let of_instance = self.instance.reservation.as_ref()?.id.clone();
        let status = self.class.status.iter();
        let mut of_class = status.flat_map(|status| &status.capacity_reservations);
        let is_there = of_class.any(|reservation| reservation.id == of_instance);
        (!is_there).then_some(Drift::CapacityReservation { of_instance })
    }

    fn placement_group(&self) -> Option<Drift> {
        let labels = self.claim.metadata.labels.as_ref();
        let of_claim =
            labels.and_then(|labels| labels.get(aws_labels::PLACEMENT_GROUP_ID)).cloned();
        let of_claim = of_claim.filter(|group| !group.is_empty());
        let of_class = self.placement_group.map(str::to_owned);
        (of_claim != of_class).then_some(Drift::PlacementGroup { of_claim, of_class })
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |ids: &BTreeSet<String>| ids.iter().cloned().collect::<Vec<_>>().join(", ");
        let or_none = |group: &Option<String>| group.clone().unwrap_or_else(|| "none".to_owned());
        match self {
            Self::NodeClass { launched_with, now } => {
                write!(
                    f,
                    "the EC2NodeClass has the hash {now}, the NodeClaim was launched with {launched_with}"
                )
            }
            Self::Ami { launched_with, now: Some(now) } => {
                write!(f, "the AMI is {now}, the instance was launched with {launched_with}")
            }
            Self::Ami { launched_with, now: None } => write!(
                f,
                "no AMI of the EC2NodeClass suits the instance type, the instance was launched with {launched_with}"
            ),
            Self::SecurityGroups { of_instance, of_class } => write!(
                f,
                "the security groups are {}, the instance has {}",
                listed(of_class),
                listed(of_instance)
            ),
            Self::Subnet { of_instance } => {
                write!(f, "the subnet {of_instance} is not among those of the EC2NodeClass")
            }
            Self::CapacityReservation { of_instance } => {
                write!(
                    f,
                    "the capacity reservation {of_instance} is not among those of the EC2NodeClass"
                )
            }
            Self::PlacementGroup { of_claim, of_class } => write!(
                f,
                "the placement group is {}, the instance was launched into {}",
                or_none(of_class),
                or_none(of_claim)
            ),
        }
    }
}

#[cfg(test)]
mod tests;
