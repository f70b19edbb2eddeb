//! What binds an instance to its claim, and when the bond is broken.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kerf_api::labels;
use kerf_aws_api::{
    CapacityReservationState, CapacityReservationType, Ec2NodeClassStatus, labels as aws_labels,
    tags,
};

use super::Instance;

/// A claim may not have been told yet of the instance that was just launched for it.
const YOUNG: Duration = Duration::from_secs(30);

/// Whether an instance is somebody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// A claim has its provider id, or it was launched for a claim that exists.
    Claimed,
    Terminating,
    /// It lacks the tags of a pool, a class or this cluster.
    NotOurs,
    Young {
        left: Duration,
    },
    /// It may be terminated.
    Orphan,
}

impl Instance {
    pub fn ownership(&self, cluster: &str, claimed: bool, now: Timestamp) -> Ownership {
        let of_cluster = self.tags.get(tags::EKS_CLUSTER_NAME).is_some_and(|name| name == cluster);
        let managed =
            [tags::NODE_POOL, tags::NODE_CLASS].iter().all(|tag| self.tags.contains_key(*tag));
        let age =
            |launched_at| Duration::try_from(now.duration_since(launched_at)).unwrap_or_default();
        // EC2 always says when it launched an instance. One that it did not say it of is left alone.
        let age = self.launched_at.map_or(Duration::ZERO, age);
        if claimed {
            Ownership::Claimed
        } else if self.is_terminating() {
            Ownership::Terminating
        } else if !of_cluster || !managed {
            Ownership::NotOurs
        } else if age < YOUNG {
            Ownership::Young { left: YOUNG.saturating_sub(age) }
        } else {
            Ownership::Orphan
        }
    }

    /// The tags that are still to be written, for instances that Karpenter launched: it writes them after the launch.
    pub fn missing_tags(&self, cluster: &str, claim: &str, node: &str) -> BTreeMap<String, String> {
        [(tags::NAME, node), (tags::NODE_CLAIM, claim), (tags::EKS_CLUSTER_NAME, cluster)]
            .into_iter()
            .filter(|(key, _)| !self.tags.contains_key(*key))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}

/// Whether a claim counts as reserved while its instance runs on demand: its reservation has ended, and EC2 lets it run.
pub fn has_lost_reservation(of_claim: &BTreeMap<String, String>, instance: &Instance) -> bool {
    let is_reserved = of_claim.get(labels::CAPACITY_TYPE).map(String::as_str)
        == Some(labels::CAPACITY_TYPE_RESERVED);
    is_reserved && instance.capacity_type == labels::CAPACITY_TYPE_ON_DEMAND
}

/// Whether the claim is in a capacity block that is about to end. EC2 terminates what is left in it.
pub fn is_in_expiring_block(
    of_claim: &BTreeMap<String, String>,
    status: &Ec2NodeClassStatus,
) -> bool {
    let Some(id) = of_claim.get(aws_labels::CAPACITY_RESERVATION_ID) else { return false };
    status.capacity_reservations.iter().any(|reservation| {
        reservation.id == *id
            && reservation.reservation_type == CapacityReservationType::CapacityBlock
            && reservation.state == CapacityReservationState::Expiring
    })
}
