//! What an error of AWS means.
//!
//! The code decides. The text is looked at only where one code stands for several things, and those places are marked.

/// What an error code means to whoever made the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A dry run that would have succeeded.
    DryRunPassed,
    /// There is no such thing, or not any more.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// The client token was used before, for a request that was not the same.
    ClientTokenUsed,
    /// The launch template that a fleet names is gone: it has to be made anew.
    LaunchTemplateGone,
    /// An offering cannot be had now.
    NoCapacity(Lack),
    /// The account may not create the service-linked role that spot instances need.
    SpotRoleMissing,
    /// Somebody has to allow the call first.
    Unauthorized,
    /// Too many calls; this one may succeed later.
    Throttled,
    /// AWS failed on its side.
    Internal,
    /// The instance profile is not known to EC2, for seconds after its creation or for good.
    InstanceProfileUnknown,
    UserDataTooLarge,
    Other,
}

/// What is missing where an offering cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The pool of the type in the zone is dry, or the type is not offered there.
    Pool,
    /// The subnet has no free address.
    Subnet,
    /// The reservation is used up.
    Reservation,
    /// A quota of the account is used up.
    Quota,
    /// The spread placement group has its seven instances in the zone: no type can be launched there.
    SpreadGroup,
}

impl Meaning {
    pub fn of(code: &str, message: &str) -> Self {
        match code {
            "DryRunOperation" => Self::DryRunPassed,
            // The text tells the limit of a placement group from an empty pool.
            "InsufficientInstanceCapacity"
                if message.contains("limit of instances in this spread placement group") =>
            {
                Self::NoCapacity(Lack::SpreadGroup)
            }
            "InsufficientInstanceCapacity" | "UnfulfillableCapacity" | "Unsupported" => {
                Self::NoCapacity(Lack::Pool)
            }
            "InsufficientFreeAddressesInSubnet" => Self::NoCapacity(Lack::Subnet),
            "ReservationCapacityExceeded" => Self::NoCapacity(Lack::Reservation),
            "MaxSpotInstanceCountExceeded" | "VcpuLimitExceeded" | "MaxFleetCountExceeded" => {
                Self::NoCapacity(Lack::Quota)
            }
            "IdempotentParameterMismatch" => Self::ClientTokenUsed,
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => Self::SpotRoleMissing,
            "InvalidLaunchTemplateName.NotFoundException" | "InvalidLaunchTemplateId.NotFound" => {
                Self::LaunchTemplateGone
            }
            "InvalidInstanceID.NotFound"
            | "InvalidCapacityReservationId.NotFound"
            | "InvalidPlacementGroup.Unknown"
            | "QueueDoesNotExist"
            | "AWS.SimpleQueueService.NonExistentQueue"
            | "NoSuchEntity"
            | "ParameterNotFound" => Self::NotFound,
            "EntityAlreadyExists" | "InvalidLaunchTemplateName.AlreadyExistsException" => {
                Self::AlreadyExists
            }
            // One code for any parameter; the text names the profile.
            _ if code.starts_with("InvalidParameter")
                && (message.contains("Invalid IAM Instance Profile name")
                    || message.contains("iamInstanceProfile.name is invalid")) =>
            {
                Self::InstanceProfileUnknown
            }
            // Also said of user data that is not base64.
            "InvalidUserData.Malformed" if message.contains("User data is limited to") => {
                Self::UserDataTooLarge
            }
            "InternalError" | "InternalFailure" | "ServiceUnavailable" | "Unavailable" => {
                Self::Internal
            }
            _ if is_unauthorized(code) => Self::Unauthorized,
            _ if is_throttled(code) => Self::Throttled,
            _ => Self::Other,
        }
    }

    /// The thing that the call was about is gone. For a deletion, that is success.
    pub fn is_not_found(self) -> bool {
        matches!(self, Self::NotFound | Self::LaunchTemplateGone)
    }
}

fn is_unauthorized(code: &str) -> bool {
    code.split('.').next() == Some("AuthFailure")
        || matches!(
            code,
            "UnauthorizedOperation"
                | "AccessDenied"
                | "AccessDeniedException"
                | "InvalidClientTokenId"
                | "UnrecognizedClientException"
                | "ExpiredToken"
                | "ExpiredTokenException"
                | "OptInRequired"
        )
}

fn is_throttled(code: &str) -> bool {
    matches!(
        code,
        "RequestLimitExceeded"
            | "Throttling"
            | "ThrottlingException"
            | "ThrottledException"
            | "RequestThrottled"
            | "RequestThrottledException"
            | "TooManyRequestsException"
            | "EC2ThrottledException"
            | "SlowDown"
    )
}

/// The reason of a launch that failed, for the Launched condition and for metrics. Of several, the first in this order is
/// named: what somebody has to mend comes before what passes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaunchReason {
    SpotSlrCreationFailed,
    Unauthorized,
    AmiAuthorizationFailure,
    SecurityGroupSubnetVpcMismatch,
    InstanceProfileNameInvalid,
    LaunchTemplateNotFound,
    UserDataSizeLimitExceeded,
    InvalidAmiId,
    AmiNotFound,
    RequestLimitExceeded,
    InternalError,
    FreeTierIneligible,
    FleetQuotaExceeded,
    AccountPendingVerification,
    SpotQuotaExceeded,
    VcpuLimitExceeded,
    InsufficientFreeAddressesInSubnet,
    SubnetResolutionFailed,
    InstanceTypeResolutionFailed,
    NodeClassReadinessUnknown,
    LaunchFailed,
}

impl LaunchReason {
    pub fn of(code: &str, message: &str) -> Self {
        // These say it in their text, whatever the code.
        if message.contains("not eligible for Free Tier") {
            return Self::FreeTierIneligible;
        }
        match (code, Meaning::of(code, message)) {
            (_, Meaning::SpotRoleMissing) => Self::SpotSlrCreationFailed,
            (_, Meaning::Unauthorized) if message.contains("Not authorized for images") => {
                Self::AmiAuthorizationFailure
            }
            (_, Meaning::Unauthorized) => Self::Unauthorized,
            (_, Meaning::InstanceProfileUnknown) => Self::InstanceProfileNameInvalid,
            (_, Meaning::LaunchTemplateGone) => Self::LaunchTemplateNotFound,
            (_, Meaning::UserDataTooLarge) => Self::UserDataSizeLimitExceeded,
            (_, Meaning::Throttled) => Self::RequestLimitExceeded,
            (_, Meaning::Internal) => Self::InternalError,
            (_, Meaning::NoCapacity(Lack::Subnet)) => Self::InsufficientFreeAddressesInSubnet,
            _ if code.starts_with("InvalidParameter")
                && message.contains("belong to different networks") =>
            {
                Self::SecurityGroupSubnetVpcMismatch
            }
            ("InvalidAMIID.Malformed", _) => Self::InvalidAmiId,
            ("InvalidAMIID.NotFound", _) => Self::AmiNotFound,
            ("MaxFleetCountExceeded", _) => Self::FleetQuotaExceeded,
            ("PendingVerification", _) => Self::AccountPendingVerification,
            ("MaxSpotInstanceCountExceeded", _) => Self::SpotQuotaExceeded,
            ("VcpuLimitExceeded", _) => Self::VcpuLimitExceeded,
            _ => Self::LaunchFailed,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpotSlrCreationFailed => "SpotSLRCreationFailed",
            Self::Unauthorized => "Unauthorized",
            Self::AmiAuthorizationFailure => "AMIAuthorizationFailure",
            Self::SecurityGroupSubnetVpcMismatch => "SecurityGroupSubnetVPCMismatch",
            Self::InstanceProfileNameInvalid => "InstanceProfileNameInvalid",
            Self::LaunchTemplateNotFound => "LaunchTemplateNotFound",
            Self::UserDataSizeLimitExceeded => "UserDataSizeLimitExceeded",
            Self::InvalidAmiId => "InvalidAMIID",
            Self::AmiNotFound => "AMINotFound",
            Self::RequestLimitExceeded => "RequestLimitExceeded",
            Self::InternalError => "InternalError",
            Self::FreeTierIneligible => "FreeTierIneligible",
            Self::FleetQuotaExceeded => "FleetQuotaExceeded",
            Self::AccountPendingVerification => "AccountPendingVerification",
            Self::SpotQuotaExceeded => "SpotQuotaExceeded",
            Self::VcpuLimitExceeded => "VCPULimitExceeded",
            Self::InsufficientFreeAddressesInSubnet => "InsufficientFreeAddressesInSubnet",
            Self::SubnetResolutionFailed => "SubnetResolutionFailed",
            Self::InstanceTypeResolutionFailed => "InstanceTypeResolutionFailed",
            Self::NodeClassReadinessUnknown => "NodeClassReadinessUnknown",
            Self::LaunchFailed => "LaunchFailed",
        }
    }

    /// What a reader can do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::SpotSlrCreationFailed => {
                "create the service-linked role AWSServiceRoleForEC2Spot, or allow iam:CreateServiceLinkedRole"
            }
            Self::Unauthorized => "allow the call in the IAM policy of the controller's role",
            Self::AmiAuthorizationFailure => "share the AMI with this account",
            Self::SecurityGroupSubnetVpcMismatch => {
                "select security groups and subnets of the same VPC in the EC2NodeClass"
            }
            Self::InstanceProfileNameInvalid => {
                "check that the instance profile in the status of the EC2NodeClass exists"
            }
            Self::LaunchTemplateNotFound => {
                "the launch template is made anew with the next attempt"
            }
            Self::UserDataSizeLimitExceeded => "shorten spec.userData of the EC2NodeClass",
            Self::InvalidAmiId | Self::AmiNotFound => {
                "check spec.amiSelectorTerms of the EC2NodeClass"
            }
            Self::RequestLimitExceeded => "the launch is tried again later",
            Self::InternalError => "EC2 failed; the launch is tried again",
            Self::FreeTierIneligible => {
                "allow instance types of the Free Tier in the NodePool, or upgrade the account"
            }
            Self::FleetQuotaExceeded => "ask AWS to raise the quota of fleets",
            Self::AccountPendingVerification => "AWS still verifies the account for this region",
            Self::SpotQuotaExceeded => "ask AWS to raise the quota of spot instances",
            Self::VcpuLimitExceeded => "ask AWS to raise the quota of vCPUs",
            Self::InsufficientFreeAddressesInSubnet => {
                "free addresses in the subnet or add subnets"
            }
            Self::SubnetResolutionFailed => "check spec.subnetSelectorTerms of the EC2NodeClass",
            Self::InstanceTypeResolutionFailed => {
                "the instance types could not be read; the launch is tried again"
            }
            Self::NodeClassReadinessUnknown => "the EC2NodeClass has not been reconciled yet",
            Self::LaunchFailed => "see the error of EC2",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_one_meaning() {
        use Meaning::{
            AlreadyExists, ClientTokenUsed, DryRunPassed, InstanceProfileUnknown, Internal,
            LaunchTemplateGone, NoCapacity, NotFound, Other, SpotRoleMissing, Throttled,
            Unauthorized, UserDataTooLarge,
        };
        for (code, message, meaning) in [
            ("DryRunOperation", "", DryRunPassed),
            ("InsufficientInstanceCapacity", "", NoCapacity(Lack::Pool)),
            (
                "InsufficientInstanceCapacity",
                "You've reached the limit of instances in this spread placement group.",
                NoCapacity(Lack::SpreadGroup),
            ),
            ("UnfulfillableCapacity", "", NoCapacity(Lack::Pool)),
            ("Unsupported", "", NoCapacity(Lack::Pool)),
            ("InsufficientFreeAddressesInSubnet", "", NoCapacity(Lack::Subnet)),
            ("ReservationCapacityExceeded", "", NoCapacity(Lack::Reservation)),
            ("MaxSpotInstanceCountExceeded", "", NoCapacity(Lack::Quota)),
            ("VcpuLimitExceeded", "", NoCapacity(Lack::Quota)),
            ("MaxFleetCountExceeded", "", NoCapacity(Lack::Quota)),
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", SpotRoleMissing),
            ("AuthFailure", "", Unauthorized),
            ("UnauthorizedOperation", "", Unauthorized),
            ("AccessDenied", "", Unauthorized),
            ("AccessDeniedException", "", Unauthorized),
            ("InvalidLaunchTemplateName.NotFoundException", "", LaunchTemplateGone),
            ("InvalidLaunchTemplateId.NotFound", "", LaunchTemplateGone),
            ("InvalidInstanceID.NotFound", "", NotFound),
            ("InvalidCapacityReservationId.NotFound", "", NotFound),
            ("InvalidPlacementGroup.Unknown", "", NotFound),
            ("QueueDoesNotExist", "", NotFound),
            ("AWS.SimpleQueueService.NonExistentQueue", "", NotFound),
            ("NoSuchEntity", "", NotFound),
            ("ParameterNotFound", "", NotFound),
            ("EntityAlreadyExists", "", AlreadyExists),
            ("InvalidLaunchTemplateName.AlreadyExistsException", "", AlreadyExists),
            ("IdempotentParameterMismatch", "", ClientTokenUsed),
            ("RequestLimitExceeded", "", Throttled),
            ("ThrottlingException", "", Throttled),
            ("InternalError", "", Internal),
            (
                "InvalidParameterValue",
                "Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
                InstanceProfileUnknown,
            ),
            ("InvalidParameterValue", "Value (x) for parameter groupId is invalid.", Other),
            ("InvalidUserData.Malformed", "User data is limited to 16384 bytes", UserDataTooLarge),
            ("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.", Other),
            ("SomethingNew", "InsufficientInstanceCapacity, perhaps", Other),
        ] {
            assert_eq!(Meaning::of(code, message), meaning, "{code}: {message}");
        }
    }

    #[test]
    fn a_failed_launch_has_the_reason_that_karpenter_gives() {
        for (code, message, reason) in [
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", "SpotSLRCreationFailed"),
            ("UnauthorizedOperation", "You are not authorized", "Unauthorized"),
            ("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
            (
                "InvalidParameter",
                "Security group sg-1 and subnet subnet-1 belong to different networks.",
                "SecurityGroupSubnetVPCMismatch",
            ),
            (
                "InvalidParameterValue",
                "Value (p) for parameter iamInstanceProfile.name is invalid.",
                "InstanceProfileNameInvalid",
            ),
            ("InvalidLaunchTemplateId.NotFound", "", "LaunchTemplateNotFound"),
            (
                "InvalidUserData.Malformed",
                "User data is limited to 16384 bytes",
                "UserDataSizeLimitExceeded",
            ),
            ("InvalidAMIID.Malformed", "", "InvalidAMIID"),
            ("InvalidAMIID.NotFound", "", "AMINotFound"),
            ("RequestLimitExceeded", "", "RequestLimitExceeded"),
            ("InternalError", "", "InternalError"),
            (
                "InvalidParameterCombination",
                "The specified instance type is not eligible for Free Tier.",
                "FreeTierIneligible",
            ),
            ("MaxFleetCountExceeded", "", "FleetQuotaExceeded"),
            ("PendingVerification", "", "AccountPendingVerification"),
            ("MaxSpotInstanceCountExceeded", "", "SpotQuotaExceeded"),
            ("VcpuLimitExceeded", "", "VCPULimitExceeded"),
            ("InsufficientFreeAddressesInSubnet", "", "InsufficientFreeAddressesInSubnet"),
            ("InsufficientInstanceCapacity", "", "LaunchFailed"),
            ("SomethingNew", "", "LaunchFailed"),
        ] {
            assert_eq!(LaunchReason::of(code, message).as_str(), reason, "{code}: {message}");
        }
    }

    #[test]
    fn of_several_reasons_the_one_that_somebody_has_to_mend_is_named() {
        let reasons =
            [("VcpuLimitExceeded", ""), ("UnauthorizedOperation", ""), ("SomethingNew", "")];
        let first = reasons.iter().map(|(code, message)| LaunchReason::of(code, message)).min();
        assert_eq!(first, Some(LaunchReason::Unauthorized));
    }
}
