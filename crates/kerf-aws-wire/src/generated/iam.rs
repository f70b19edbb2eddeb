// Made by `cargo xtask generate` from AWS's service models and shapes.txt; do not edit.

use jiff::Timestamp;

use crate::operation::{Protocol, Service, operations};
use crate::shape::shape;

pub const SERVICE: Service = Service {
    id: "IAM",
    endpoint_prefix: "iam",
    signing_name: "iam",
    version: "2010-05-08",
    protocol: Protocol::Query { namespace: "https://iam.amazonaws.com/doc/2010-05-08/" },
};

operations! {
    GetInstanceProfile: GetInstanceProfileRequest -> GetInstanceProfileResponse,
    CreateInstanceProfile: CreateInstanceProfileRequest -> CreateInstanceProfileResponse,
    DeleteInstanceProfile: DeleteInstanceProfileRequest -> DeleteInstanceProfileResponse,
    ListInstanceProfiles: ListInstanceProfilesRequest -> ListInstanceProfilesResponse,
    TagInstanceProfile: TagInstanceProfileRequest -> TagInstanceProfileResponse,
    AddRoleToInstanceProfile: AddRoleToInstanceProfileRequest -> AddRoleToInstanceProfileResponse,
    RemoveRoleFromInstanceProfile: RemoveRoleFromInstanceProfileRequest -> RemoveRoleFromInstanceProfileResponse,
}

shape!(AddRoleToInstanceProfileRequest {
    instance_profile_name: Option<String> = "InstanceProfileName",
    role_name: Option<String> = "RoleName",
});

shape!(AddRoleToInstanceProfileResponse {});

shape!(CreateInstanceProfileRequest {
    instance_profile_name: Option<String> = "InstanceProfileName",
    path: Option<String> = "Path",
    tags: Vec<Tag> = "Tags",
});

shape!(CreateInstanceProfileResponse {
    instance_profile: Option<InstanceProfile> = "InstanceProfile",
});

shape!(DeleteInstanceProfileRequest {
    instance_profile_name: Option<String> = "InstanceProfileName",
});

shape!(DeleteInstanceProfileResponse {});

shape!(GetInstanceProfileRequest {
    instance_profile_name: Option<String> = "InstanceProfileName",
});

shape!(GetInstanceProfileResponse {
    instance_profile: Option<InstanceProfile> = "InstanceProfile",
});

shape!(InstanceProfile {
    arn: Option<String> = "Arn",
    create_date: Option<Timestamp> = "CreateDate",
    instance_profile_id: Option<String> = "InstanceProfileId",
    instance_profile_name: Option<String> = "InstanceProfileName",
    path: Option<String> = "Path",
    roles: Vec<Role> = "Roles",
    tags: Vec<Tag> = "Tags",
});

shape!(ListInstanceProfilesRequest {
    marker: Option<String> = "Marker",
    max_items: Option<i32> = "MaxItems",
    path_prefix: Option<String> = "PathPrefix",
});

shape!(ListInstanceProfilesResponse {
    instance_profiles: Vec<InstanceProfile> = "InstanceProfiles",
    is_truncated: Option<bool> = "IsTruncated",
    marker: Option<String> = "Marker",
});

shape!(RemoveRoleFromInstanceProfileRequest {
    instance_profile_name: Option<String> = "InstanceProfileName",
    role_name: Option<String> = "RoleName",
});

shape!(RemoveRoleFromInstanceProfileResponse {});

shape!(Role {
    arn: Option<String> = "Arn",
    path: Option<String> = "Path",
    role_id: Option<String> = "RoleId",
    role_name: Option<String> = "RoleName",
});

shape!(Tag {
    key: Option<String> = "Key",
    value: Option<String> = "Value",
});

shape!(TagInstanceProfileRequest {
    instance_profile_name: Option<String> = "InstanceProfileName",
    tags: Vec<Tag> = "Tags",
});

shape!(TagInstanceProfileResponse {});
