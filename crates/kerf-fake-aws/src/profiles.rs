//! Instance profiles of IAM.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kerf_aws_wire::iam;

use crate::chance;
use crate::cloud::{Answer, Cloud};
use crate::paging::{PageSize, page};
use crate::refused::Refused;

#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) role: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) created: Timestamp,
    /// From then on EC2 knows of it, with its role.
    pub(crate) visible: Timestamp,
}

impl Profile {
    /// With this role, and known to EC2.
    pub(crate) fn known_since(since: Timestamp, name: &str, role: &str) -> Self {
        Self {
            id: format!("AIPA{:016X}", chance::draw(0, &[name])),
            path: "/".to_owned(),
            role: Some(role.to_owned()),
            tags: BTreeMap::new(),
            created: since,
            visible: since,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Profiles {
    pub(crate) by_name: BTreeMap<String, Profile>,
    pub(crate) roles: BTreeSet<String>,
}

impl Profiles {
    /// Whether an instance can be launched with it.
    pub(crate) fn known_to_ec2(&self, name: &str, now: Timestamp) -> bool {
        let usable = |profile: &Profile| profile.role.is_some() && profile.visible <= now;
        self.by_name.get(name).is_some_and(usable)
    }

    fn get(&self, name: Option<&str>) -> Result<(&str, &Profile), Refused> {
        let name = name.ok_or_else(|| Refused::missing("InstanceProfileName"))?;
        let found = self.by_name.get_key_value(name);
        found.map(|(name, profile)| (name.as_str(), profile)).ok_or_else(|| no_profile(name))
    }

    fn get_mut(&mut self, name: Option<&str>) -> Result<&mut Profile, Refused> {
        let name = name.ok_or_else(|| Refused::missing("InstanceProfileName"))?;
        self.by_name.get_mut(name).ok_or_else(|| no_profile(name))
    }
}

fn no_profile(name: &str) -> Refused {
    let message = format!("Instance Profile {name} cannot be found.");
    Refused::with_status(404, "NoSuchEntity", message)
}

fn conflict(code: &str, message: impl Into<String>) -> Refused {
    Refused::with_status(409, code, message)
}

fn describe(cloud: &Cloud, name: &str, profile: &Profile) -> iam::InstanceProfile {
    let account = &cloud.settings.account;
    let role = |role: &String| iam::Role {
        arn: Some(format!("arn:aws:iam::{account}:role/{role}")),
        path: Some("/".to_owned()),
        role_id: Some(format!("AROA{:016X}", chance::draw(0, &[role]))),
        role_name: Some(role.clone()),
    };
    iam::InstanceProfile {
        arn: Some(arn(account, name, profile)),
        create_date: Some(profile.created),
        instance_profile_id: Some(profile.id.clone()),
        instance_profile_name: Some(name.to_owned()),
        path: Some(profile.path.clone()),
        roles: profile.role.iter().map(role).collect(),
        tags: profile
            .tags
            .iter()
            .map(|(key, value)| iam::Tag { key: Some(key.clone()), value: Some(value.clone()) })
            .collect(),
    }
}

pub(crate) fn arn(account: &str, name: &str, profile: &Profile) -> String {
    format!("arn:aws:iam::{account}:instance-profile{}{name}", profile.path)
}

pub(crate) fn tags(list: &[iam::Tag]) -> BTreeMap<String, String> {
    list.iter()
        .map(|tag| (tag.key.clone().unwrap_or_default(), tag.value.clone().unwrap_or_default()))
        .collect()
}

impl Answer for iam::GetInstanceProfileRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let (name, profile) = cloud.profiles.get(self.instance_profile_name.as_deref())?;
        let instance_profile = Some(describe(cloud, name, profile));
        Ok(iam::GetInstanceProfileResponse { instance_profile })
    }
}

impl Answer for iam::CreateInstanceProfileRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let Some(name) = self.instance_profile_name.as_deref() else {
            return Err(Refused::missing("InstanceProfileName"));
        };
        let is_legal = |name: &str| {
            let legal = |character: char| {
                character.is_ascii_alphanumeric() || "+=,.@_-".contains(character)
            };
            (1..=128).contains(&name.len()) && name.chars().all(legal)
        };
        if !is_legal(name) {
            return Err(Refused::new("ValidationError", "The name of the profile is not valid"));
        }
        if cloud.profiles.by_name.contains_key(name) {
            let message = format!("Instance Profile {name} already exists.");
            return Err(conflict("EntityAlreadyExists", message));
        }
        let quota = cloud.settings.quotas.instance_profiles;
        if cloud.profiles.by_name.len() >= quota {
            let message = format!("Cannot exceed quota for InstanceProfilesPerAccount: {quota}");
            return Err(conflict("LimitExceeded", message));
        }
        let profile = Profile {
            id: format!("AIPA{:016X}", chance::draw(cloud.settings.seed, &[name])),
            path: self.path.clone().unwrap_or_else(|| "/".to_owned()),
            role: None,
            tags: tags(&self.tags),
            created: cloud.now,
            visible: cloud.after(cloud.settings.delays.profile_visible),
        };
        let instance_profile = Some(describe(cloud, name, &profile));
        cloud.profiles.by_name.insert(name.to_owned(), profile);
        Ok(iam::CreateInstanceProfileResponse { instance_profile })
    }
}

impl Answer for iam::DeleteInstanceProfileRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let (name, profile) = cloud.profiles.get(self.instance_profile_name.as_deref())?;
        if profile.role.is_some() {
            let message = "Cannot delete entity, must remove roles from instance profile first.";
            return Err(conflict("DeleteConflict", message));
        }
        let name = name.to_owned();
        cloud.profiles.by_name.remove(&name);
        Ok(iam::DeleteInstanceProfileResponse {})
    }
}

impl Answer for iam::AddRoleToInstanceProfileRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let visible = cloud.after(cloud.settings.delays.profile_visible);
        let role = self.role_name.as_deref().unwrap_or_default();
        cloud.profiles.get(self.instance_profile_name.as_deref())?;
        if !cloud.profiles.roles.contains(role) {
            let message = format!("The role with name {role} cannot be found.");
            return Err(Refused::with_status(404, "NoSuchEntity", message));
        }
        let profile = cloud.profiles.get_mut(self.instance_profile_name.as_deref())?;
        if profile.role.is_some() {
            let message = "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1";
            return Err(conflict("LimitExceeded", message));
        }
        profile.role = Some(role.to_owned());
        profile.visible = visible;
        Ok(iam::AddRoleToInstanceProfileResponse {})
    }
}

impl Answer for iam::RemoveRoleFromInstanceProfileRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let profile = cloud.profiles.get_mut(self.instance_profile_name.as_deref())?;
        if profile.role.is_none() || profile.role != self.role_name {
            let role = self.role_name.as_deref().unwrap_or_default();
            let message = format!("The role with name {role} cannot be found.");
            return Err(Refused::with_status(404, "NoSuchEntity", message));
        }
        profile.role = None;
        Ok(iam::RemoveRoleFromInstanceProfileResponse {})
    }
}

impl Answer for iam::TagInstanceProfileRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let profile = cloud.profiles.get_mut(self.instance_profile_name.as_deref())?;
        profile.tags.extend(tags(&self.tags));
        Ok(iam::TagInstanceProfileResponse {})
    }
}

const PAGE: PageSize = PageSize::new(1, 1000, 100);

impl Answer for iam::ListInstanceProfilesRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let prefix = self.path_prefix.as_deref().unwrap_or("/");
        let found = cloud.profiles.by_name.iter();
        let found = found.filter(|(_, profile)| profile.path.starts_with(prefix)).collect();
        let (found, marker) = page(
            found,
            |(name, _): &(&String, &Profile)| (*name).clone(),
            &PAGE,
            self.max_items,
            self.marker.as_deref(),
        )?;
        // The list leaves the tags out, as IAM does.
        let described = found.into_iter().map(|(name, profile)| iam::InstanceProfile {
            tags: Vec::new(),
            ..describe(cloud, name, profile)
        });
        Ok(iam::ListInstanceProfilesResponse {
            instance_profiles: described.collect(),
            is_truncated: Some(marker.is_some()),
            marker,
        })
    }
}
