//! What was found in the account for a class.

use k8s_openapi::{
    api::core::v1::NodeSelectorRequirement,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::{SignedDuration, Timestamp},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selectors::InstanceMatchCriteria;
use crate::schema;

/// What was found in the account for a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Ec2NodeClassStatus {
    /// Subnets that the class selects, the one with most free addresses first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,

    /// Security groups that the class selects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,

    /// Capacity reservations that the class selects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,

    /// Images that the class selects, the newest first. An instance gets the first that suits its type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,

    /// Instance profile that instances are launched with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,

    /// Whether the class can be used, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kerf_api::schema::plain_conditions")]
    pub conditions: Vec<Condition>,
}

/// A subnet that instances can be in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subnet {
    /// Id of the subnet.
    pub id: String,

    /// Name of its zone.
    pub zone: String,

    /// Id of its zone, which is the same in all accounts.
    #[serde(default, rename = "zoneID", skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// A security group of the instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecurityGroup {
    /// Id of the security group.
    pub id: String,

    /// Name of the security group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image that instances can be launched from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ami {
    /// Id of the image.
    pub id: String,

    /// Whether its owner has deprecated it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,

    /// Name of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// What the labels of an instance type must be for the image to suit it.
    #[schemars(schema_with = "schema::requirements")]
    pub requirements: Vec<NodeSelectorRequirement>,
}

/// A capacity reservation that instances can be launched into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Zone of the reserved capacity.
    pub availability_zone: String,

    /// When the reservation ends; never if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub end_time: Option<Time>,

    /// Id of the reservation.
    #[schemars(regex(pattern = "^cr-[0-9a-z]+$"))]
    pub id: String,

    /// Which launches it takes.
    pub instance_match_criteria: InstanceMatchCriteria,

    /// Instance type of the reserved capacity.
    pub instance_type: String,

    /// Account that owns it.
    #[serde(rename = "ownerID")]
    #[schemars(regex(pattern = schema::ACCOUNT_ID))]
    pub owner_id: String,

    /// Whether it is an ordinary reservation or a capacity block.
    #[serde(default)]
    pub reservation_type: CapacityReservationType,

    /// Whether EC2 may take the capacity back.
    #[serde(default)]
    #[schemars(transform = schema::without_default)]
    pub interruptible: bool,

    /// Whether it is about to end. Only capacity blocks are ever expiring: EC2 takes their instances back before the end.
    #[serde(default)]
    pub state: CapacityReservationState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityReservationType {
    #[default]
    Default,
    CapacityBlock,
}

impl CapacityReservationType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::CapacityBlock => "capacity-block",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CapacityReservationState {
    #[default]
    Active,
    Expiring,
}

/// EC2 begins to take the instances of a capacity block back 30 minutes before its end; ten more are for the draining.
const TAKEN_BACK_BEFORE_END: SignedDuration = SignedDuration::from_mins(40);

impl CapacityReservationState {
    /// That of a reservation which has not ended.
    pub fn at(now: Timestamp, of: CapacityReservationType, end: Option<Timestamp>) -> Self {
        let is_close = |end: Timestamp| end.duration_since(now) <= TAKEN_BACK_BEFORE_END;
        match of {
            CapacityReservationType::CapacityBlock if end.is_some_and(is_close) => Self::Expiring,
            _ => Self::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_capacity_block_is_expiring_in_its_last_forty_minutes() {
        use CapacityReservationState::{Active, Expiring};
        use CapacityReservationType::{CapacityBlock, Default as Ordinary};
        let now = Timestamp::UNIX_EPOCH;
        for (of, minutes_left, expected) in [
            (CapacityBlock, Some(41), Active),
            (CapacityBlock, Some(40), Expiring),
            (CapacityBlock, Some(-1), Expiring),
            (CapacityBlock, None, Active),
            (Ordinary, Some(1), Active),
            (Ordinary, None, Active),
        ] {
            let end = minutes_left.map(|minutes| now + SignedDuration::from_mins(minutes));
            let found = CapacityReservationState::at(now, of, end);
            assert_eq!(found, expected, "{of:?} {minutes_left:?}");
        }
    }
}
