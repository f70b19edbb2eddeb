//! The instance profile of a class that has a role.

use std::time::Duration;

use kerf_aws_api::conditions::NotReady;
use kerf_aws_client::{Aws, AwsError};
use kerf_aws_model::{
    errors::Meaning,
    instance_profile::{ProfileState, WantedProfile},
};
use kerf_aws_wire::iam::{
    AddRoleToInstanceProfileRequest, DeleteInstanceProfileRequest, GetInstanceProfileRequest,
    InstanceProfile, RemoveRoleFromInstanceProfileRequest,
};
use kerf_provider::BoxError;
use kerf_runtime::Fence;
use tracing::info;

use super::lookup::{Look, Obstacle};
use crate::errors;

/// IAM is asked so often whether the profile is still as it should be.
const HOLDS: Duration = Duration::from_mins(15);
/// IAM's word for a quota that is used up.
const LIMIT_EXCEEDED: &str = "LimitExceeded";

impl Look<'_> {
    /// The name of the profile that instances are launched with.
    pub(super) async fn profile(&self) -> Result<String, Obstacle> {
        if let Some(name) = &self.class.spec.instance_profile {
            return Ok(name.clone());
        }
        let cluster = self.cloud.cluster();
        let wanted = WantedProfile::of(self.class, &cluster.access.name, &cluster.region);
        let wanted = wanted.ok_or(NotReady::NoInstanceProfile)?;
        if let Some(known) = self.memory.profile.get(self.now, HOLDS) {
            return Ok(known);
        }
        // One that Karpenter made has another name, and is as good.
        let named = self.class.status.as_ref().and_then(|status| status.instance_profile.clone());
        let name = match named.filter(|name| *name != wanted.name) {
            Some(name) if self.has_role(&name, &wanted).await? => name,
            _ => {
                self.ensure(&wanted).await?;
                wanted.name
            }
        };
        self.memory.profile.keep(self.now, &name);
        Ok(name)
    }

    async fn has_role(&self, name: &str, wanted: &WantedProfile) -> Result<bool, Obstacle> {
        let found = get(self.aws(), name).await.map_err(Obstacle::of_profile)?;
        Ok(found.is_some_and(|profile| wanted.compare(&profile) == ProfileState::Right))
    }

    /// Each step may be the last one of this process: the next one finds how far it came.
    async fn ensure(&self, wanted: &WantedProfile) -> Result<(), Obstacle> {
        let found = get(self.aws(), &wanted.name).await.map_err(Obstacle::of_profile)?;
        let profile = match found {
            Some(profile) => profile,
            None => self.create(wanted).await?,
        };
        match wanted.compare(&profile) {
            ProfileState::Right => return Ok(()),
            ProfileState::NoRole => {}
            ProfileState::OtherRole(role) => {
                self.fence.check()?;
                let removed = remove_role(self.aws(), &wanted.name, &role).await;
                removed.map_err(Obstacle::of_profile)?;
            }
        }
        self.fence.check()?;
        let request = AddRoleToInstanceProfileRequest {
            instance_profile_name: Some(wanted.name.clone()),
            role_name: Some(wanted.role.clone()),
        };
        match self.aws().add_role_to_instance_profile(&request).await {
            Ok(_) => {
                info!(profile = wanted.name, role = wanted.role, "instance profile has its role");
                Ok(())
            }
            // A profile that was just made may be unknown for a moment, with the same code.
            Err(error) if error.is_not_found() && errors::told(&error).contains("role") => {
                Err(NotReady::RoleNotFound { role: wanted.role.clone() }.into())
            }
            Err(error) => Err(Obstacle::of_profile(error)),
        }
    }

    async fn create(&self, wanted: &WantedProfile) -> Result<InstanceProfile, Obstacle> {
        self.fence.check()?;
        match self.aws().create_instance_profile(&wanted.request()).await {
            Ok(response) => {
                info!(profile = wanted.name, "created instance profile");
                Ok(response.instance_profile.unwrap_or_default())
            }
            Err(error) if error.meaning() == Meaning::AlreadyExists => {
                let found = get(self.aws(), &wanted.name).await.map_err(Obstacle::of_profile)?;
                Ok(found.unwrap_or_default())
            }
            Err(error) if error.code() == Some(LIMIT_EXCEEDED) => {
                Err(NotReady::InstanceProfileQuota { error: errors::told(&error) }.into())
            }
            Err(error) => Err(Obstacle::of_profile(error)),
        }
    }
}

/// `None`: there is no such profile.
pub(super) async fn get(aws: &dyn Aws, name: &str) -> Result<Option<InstanceProfile>, AwsError> {
    let request = GetInstanceProfileRequest { instance_profile_name: Some(name.to_owned()) };
    match aws.get_instance_profile(&request).await {
        Ok(response) => Ok(response.instance_profile),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Success if the profile has no such role.
async fn remove_role(aws: &dyn Aws, profile: &str, role: &str) -> Result<(), AwsError> {
    let request = RemoveRoleFromInstanceProfileRequest {
        instance_profile_name: Some(profile.to_owned()),
        role_name: Some(role.to_owned()),
    };
    match aws.remove_role_from_instance_profile(&request).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Deletes a profile; IAM wants its roles to be removed first. Success if there is none.
pub(crate) async fn delete(
    aws: &dyn Aws,
    fence: &Fence,
    profile: &InstanceProfile,
) -> Result<(), BoxError> {
    let name = profile.instance_profile_name.clone().unwrap_or_default();
    for role in profile.roles.iter().filter_map(|role| role.role_name.as_deref()) {
        fence.check()?;
        remove_role(aws, &name, role).await?;
    }
    fence.check()?;
    let request = DeleteInstanceProfileRequest { instance_profile_name: Some(name.clone()) };
    match aws.delete_instance_profile(&request).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => {
            info!(profile = name, "deleted instance profile");
            Ok(())
        }
    }
}
