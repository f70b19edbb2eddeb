//! What binds an instance to its claim, and when the bond is broken.

use std::collections::BTreeMap;

use kerf_api::labels;
use kerf_aws_api::{
    CapacityReservationState, CapacityReservationType, Ec2NodeClassStatus, labels as aws_labels,
    tags,
};

use super::Instance;

impl Instance {
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
