//! The status conditions of an EC2NodeClass, and why one of them does not hold.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kerf_api::conditions::{ConditionSet, Conditioned, VALIDATION_SUCCEEDED};

use crate::{Alias, Ec2NodeClass, kubelet_validation::InvalidKubelet};

pub const SUBNETS_READY: &str = "SubnetsReady";
pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
pub const AMIS_READY: &str = "AMIsReady";
pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
/// Exists only while the feature gate `ReservedCapacity` is on.
pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";

/// The reason of a validation that waits for other conditions.
pub const DEPENDENCIES_NOT_READY: &str = "DependenciesNotReady";

impl Conditioned for Ec2NodeClass {
    const DEPENDENTS: &'static [&'static str] = &[
        AMIS_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
        VALIDATION_SUCCEEDED,
        PLACEMENT_GROUP_READY,
    ];

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status.get_or_insert_default().conditions
    }
}

/// Why a class cannot be used. What is written into the condition is the message; the reason is for programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("subnetSelectorTerms select no subnet")]
    SubnetsNotFound,
    #[error("securityGroupSelectorTerms select no security group")]
    SecurityGroupsNotFound,
    #[error("amiSelectorTerms select no AMI")]
    AmiNotFound,
    #[error("AWS publishes no AMI for the alias {alias} and Kubernetes {kubernetes}")]
    UnsupportedAlias { alias: Alias, kubernetes: String },
    #[error("placement group {selector:?} does not exist, or is not available")]
    PlacementGroupNotFound { selector: String },
    #[error("placement group {selector:?} cannot be looked up: {error}")]
    PlacementGroupResolutionFailed { selector: String, error: String },
    #[error("the cluster's service CIDR, which AL2023 needs, cannot be found: {error}")]
    ClusterCidrResolutionFailed { error: String },
    #[error("spec.kubelet.{0}")]
    InvalidKubelet(#[from] InvalidKubelet),
    #[error("waiting for {}", .waiting_for.join(", "))]
    DependenciesNotReady { waiting_for: Vec<&'static str> },
    #[error("spec.tags has tags that Kerf writes: {}", .tags.join(", "))]
    RestrictedTags { tags: Vec<String> },
    #[error("EC2 takes no user data of this size: {error}")]
    UserDataTooLarge { error: String },
    #[error(
        "not allowed to call ec2:{call}: {error}; if only dry runs are refused, set --disable-dry-run"
    )]
    Unauthorized { call: CheckedCall, error: String },
    #[error("instance profile {name:?} does not exist")]
    InstanceProfileNotFound { name: String },
    #[error("spec has neither role nor instanceProfile")]
    NoInstanceProfile,
    #[error("there is no IAM role {role:?}")]
    RoleNotFound { role: String },
    #[error("the account can have no more instance profiles: {error}")]
    InstanceProfileQuota { error: String },
    /// A look-up that somebody has to allow first. The action is written as IAM writes it: `ec2:DescribeSubnets`.
    #[error("not allowed to call {action}: {error}")]
    LookUpDenied { condition: &'static str, action: String, error: String },
    #[error("no launch can be tried: {error}")]
    NothingToLaunch { error: String },
    #[error("{field} cannot be read: {error}")]
    Unreadable { field: String, error: String },
}

/// A call that is tried before a class is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedCall {
    CreateLaunchTemplate,
    CreateFleet,
    RunInstances,
}

impl std::fmt::Display for CheckedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CreateLaunchTemplate => "CreateLaunchTemplate",
            Self::CreateFleet => "CreateFleet",
            Self::RunInstances => "RunInstances",
        })
    }
}

impl NotReady {
    /// The condition that is not met.
    pub fn condition(&self) -> &'static str {
        match self {
            Self::SubnetsNotFound => SUBNETS_READY,
            Self::SecurityGroupsNotFound => SECURITY_GROUPS_READY,
            Self::AmiNotFound | Self::UnsupportedAlias { .. } => AMIS_READY,
            Self::PlacementGroupNotFound { .. } | Self::PlacementGroupResolutionFailed { .. } => {
                PLACEMENT_GROUP_READY
            }
            Self::ClusterCidrResolutionFailed { .. }
            | Self::InvalidKubelet(_)
            | Self::DependenciesNotReady { .. }
            | Self::RestrictedTags { .. }
            | Self::UserDataTooLarge { .. }
            | Self::Unauthorized { .. }
            | Self::InstanceProfileNotFound { .. }
            | Self::NothingToLaunch { .. }
            | Self::Unreadable { .. } => VALIDATION_SUCCEEDED,
            Self::NoInstanceProfile
            | Self::RoleNotFound { .. }
            | Self::InstanceProfileQuota { .. } => INSTANCE_PROFILE_READY,
            Self::LookUpDenied { condition, .. } => condition,
        }
    }

    /// The reason as Karpenter writes it, where it has one.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::SubnetsNotFound => "SubnetsNotFound",
            Self::SecurityGroupsNotFound => "SecurityGroupsNotFound",
            Self::AmiNotFound => "AMINotFound",
            Self::UnsupportedAlias { .. } => "UnsupportedAlias",
            Self::PlacementGroupNotFound { .. } => "PlacementGroupNotFound",
            Self::PlacementGroupResolutionFailed { .. } => "PlacementGroupResolutionFailed",
            Self::ClusterCidrResolutionFailed { .. } => "ClusterCIDRResolutionFailed",
            Self::InvalidKubelet(_) => "InvalidKubeletConfiguration",
            Self::DependenciesNotReady { .. } => DEPENDENCIES_NOT_READY,
            Self::RestrictedTags { .. } => "TagValidationFailed",
            Self::UserDataTooLarge { .. } => "UserDataSizeLimitExceeded",
            Self::Unauthorized { call, .. } => match call {
                CheckedCall::CreateLaunchTemplate => "CreateLaunchTemplateAuthCheckFailed",
                CheckedCall::CreateFleet => "CreateFleetAuthCheckFailed",
                CheckedCall::RunInstances => "RunInstancesAuthCheckFailed",
            },
            Self::InstanceProfileNotFound { .. } | Self::NoInstanceProfile => {
                "InstanceProfileNotFound"
            }
            // Karpenter has no reasons for these: it leaves the condition as it was.
            Self::RoleNotFound { .. } => "RoleNotFound",
            Self::InstanceProfileQuota { .. } => "InstanceProfileQuotaExceeded",
            Self::LookUpDenied { .. } => "Unauthorized",
            Self::NothingToLaunch { .. } => "NothingToLaunch",
            Self::Unreadable { .. } => "InvalidSpec",
        }
    }

    /// Writes it down.
    pub fn set(&self, conditions: &mut ConditionSet<'_>) -> bool {
        conditions.set_false(self.condition(), self.reason(), &self.to_string())
    }
}

/// The conditions that a class depends on.
pub fn dependents(reserved_capacity: bool) -> &'static [&'static str] {
    static WITH_RESERVATIONS: [&str; 7] = [
        AMIS_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
        VALIDATION_SUCCEEDED,
        PLACEMENT_GROUP_READY,
        CAPACITY_RESERVATIONS_READY,
    ];
    if reserved_capacity { &WITH_RESERVATIONS } else { Ec2NodeClass::DEPENDENTS }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use kerf_api::conditions::{READY, Status};

    use super::*;

    #[test]
    fn a_class_is_ready_when_all_that_it_depends_on_is() {
        for reserved_capacity in [false, true] {
            let mut class = Ec2NodeClass::default();
            let all = dependents(reserved_capacity);
            for (met, kind) in all.iter().enumerate() {
                assert_eq!(class.condition_status(READY), Status::Unknown, "{met} are met");
                class.condition_set_of(all, Timestamp::UNIX_EPOCH).set_true(kind);
            }
            assert_eq!(class.condition_status(READY), Status::True);
            let reservations = class.condition(CAPACITY_RESERVATIONS_READY);
            assert_eq!(reservations.is_some(), reserved_capacity);
            let mut set = class.condition_set_of(all, Timestamp::UNIX_EPOCH);
            assert!(NotReady::SubnetsNotFound.set(&mut set));
            let ready = class.condition(READY).unwrap();
            assert_eq!((&*ready.status, &*ready.message), ("False", "SubnetsReady=False"));
        }
    }

    #[test]
    fn each_refusal_has_its_condition_its_reason_and_a_sentence() {
        let check = |refusal: NotReady, condition: &str, reason: &str, message: &str| {
            assert_eq!((refusal.condition(), refusal.reason()), (condition, reason));
            assert_eq!(refusal.to_string(), message);
        };
        check(
            NotReady::UnsupportedAlias {
                alias: "al2@latest".parse().unwrap(),
                kubernetes: "1.33".to_owned(),
            },
            "AMIsReady",
            "UnsupportedAlias",
            "AWS publishes no AMI for the alias al2@latest and Kubernetes 1.33",
        );
        check(
            NotReady::RestrictedTags { tags: vec!["karpenter.sh/nodepool".to_owned()] },
            "ValidationSucceeded",
            "TagValidationFailed",
            "spec.tags has tags that Kerf writes: karpenter.sh/nodepool",
        );
        check(
            NotReady::Unauthorized { call: CheckedCall::CreateFleet, error: "denied".to_owned() },
            "ValidationSucceeded",
            "CreateFleetAuthCheckFailed",
            "not allowed to call ec2:CreateFleet: denied; if only dry runs are refused, set --disable-dry-run",
        );
        check(
            NotReady::LookUpDenied {
                condition: SUBNETS_READY,
                action: "ec2:DescribeSubnets".to_owned(),
                error: "denied".to_owned(),
            },
            "SubnetsReady",
            "Unauthorized",
            "not allowed to call ec2:DescribeSubnets: denied",
        );
        check(
            NotReady::DependenciesNotReady { waiting_for: vec![AMIS_READY, SUBNETS_READY] },
            "ValidationSucceeded",
            "DependenciesNotReady",
            "waiting for AMIsReady, SubnetsReady",
        );
    }
}
