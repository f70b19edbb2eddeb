//! Instance profiles that are made for the role of a class.
//!
//! The name follows from the class and the role, so that making a profile twice makes one: with random names, a status that
//! cannot be written fills the account's quota of 1000 (karpenter-provider-aws issue 8838).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kerf_api::{hashstructure, labels::REGION};
use kerf_aws_api::{Ec2NodeClass, tags};
use kerf_aws_wire::iam::{CreateInstanceProfileRequest, InstanceProfile, Tag};

use crate::digest::digest;

/// How long a profile stays after it was last in use: a launch that has begun may still name it.
const PROTECTED: Duration = Duration::from_hours(1);

/// The profile that the class needs; `None` if it names one itself, or no role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedProfile {
    pub name: String,
    pub path: String,
    /// Without its path: IAM knows roles by their names alone.
    pub role: String,
    pub tags: BTreeMap<String, String>,
}

impl WantedProfile {
    pub fn of(class: &Ec2NodeClass, cluster: &str, region: &str) -> Option<Self> {
        let role = bare_role(class.spec.role.as_deref()?).to_owned();
        let uid = class.metadata.uid.clone().unwrap_or_default();
        let number = digest([region, &uid, &role].map(str::as_bytes));
        let mut tags = class.spec.tags.clone().unwrap_or_default();
        tags.extend([
            (tags::cluster(cluster), tags::OWNED.to_owned()),
            (tags::EKS_CLUSTER_NAME.to_owned(), cluster.to_owned()),
            (tags::NODE_CLASS.to_owned(), class.metadata.name.clone().unwrap_or_default()),
            (REGION.to_owned(), region.to_owned()),
        ]);
        let path = class_path(cluster, region, &uid);
        Some(Self { name: format!("{cluster}_{number}"), path, role, tags })
    }

    pub fn request(&self) -> CreateInstanceProfileRequest {
        let tag = |(key, value): (&String, &String)| Tag {
            key: Some(key.clone()),
            value: Some(value.clone()),
        };
        CreateInstanceProfileRequest {
            instance_profile_name: Some(self.name.clone()),
            path: Some(self.path.clone()),
            tags: self.tags.iter().map(tag).collect(),
        }
    }

    /// What is still to be done to the profile, if it exists.
    pub fn compare(&self, profile: &InstanceProfile) -> ProfileState {
        let role = profile.roles.first().and_then(|role| role.role_name.as_deref());
        match role {
            Some(role) if role == self.role => ProfileState::Right,
            Some(other) => ProfileState::OtherRole(other.to_owned()),
            None => ProfileState::NoRole,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileState {
    Right,
    NoRole,
    /// It has to be removed first: a profile has one role at most.
    OtherRole(String),
}

/// The path of all profiles of a cluster, by which they are listed.
pub fn cluster_path(cluster: &str, region: &str) -> String {
    format!("/karpenter/{region}/{cluster}/")
}

/// The path of all profiles that were made for a class.
pub fn class_path(cluster: &str, region: &str, uid: &str) -> String {
    format!("{}{uid}/", cluster_path(cluster, region))
}

/// What Karpenter called the profile of a class before 1.7. It had no path by which it could be listed.
pub fn legacy_name(cluster: &str, region: &str, class: &str) -> String {
    format!("{cluster}_{}", hashstructure::bytes(format!("{region}{class}").as_bytes()))
}

/// Whether a profile was made for the class of this name in this cluster.
pub fn is_of_class(profile: &InstanceProfile, cluster: &str, class: &str) -> bool {
    let has = |key: &str, value: &str| {
        let is = |tag: &Tag| tag.key.as_deref() == Some(key) && tag.value.as_deref() == Some(value);
        profile.tags.iter().any(is)
    };
    has(&tags::cluster(cluster), tags::OWNED) && has(tags::NODE_CLASS, class)
}

fn bare_role(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

/// Whether a profile of the cluster may be deleted.
///
/// `in_use` are the names in the status of classes, those that classes want, and those in the annotations of NodeClaims.
/// `last_used` is when it was last among them, at the latest the start of this process.
pub fn may_collect(
    profile: &InstanceProfile,
    in_use: &BTreeSet<String>,
    last_used: Timestamp,
    now: Timestamp,
) -> Result<(), Kept> {
    let since = |time: Timestamp| Duration::try_from(now.duration_since(time)).unwrap_or_default();
    let name = profile.instance_profile_name.as_deref().unwrap_or_default();
    if in_use.contains(name) {
        return Err(Kept::InUse);
    }
    let age = since(profile.create_date.map_or(last_used, |created| created.max(last_used)));
    if age < PROTECTED {
        Err(Kept::Protected { left: PROTECTED.saturating_sub(age) })
    } else {
        Ok(())
    }
}

/// Why a profile is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    InUse,
    Protected { left: Duration },
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::iam::Role;
    use serde_json::json;

    use super::*;

    fn wanted(name: &str, uid: &str, role: &str) -> WantedProfile {
        let class: Ec2NodeClass = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": name, "uid": uid},
            "spec": {"role": role, "tags": {"team": "a", "eks:eks-cluster-name": "other"}},
        }))
        .unwrap();
        WantedProfile::of(&class, "demo", "us-west-2").unwrap()
    }

    #[test]
    fn the_name_follows_from_the_class_and_the_role() {
        let one = wanted("default", "uid-1", "nodes");
        assert_eq!(one, wanted("default", "uid-1", "nodes"));
        assert_eq!(one.name, wanted("default", "uid-1", "path/to/nodes").name);
        assert_ne!(one.name, wanted("default", "uid-1", "others").name);
        assert_ne!(one.name, wanted("default", "uid-2", "nodes").name);
        assert!(one.name.starts_with("demo_") && one.name.len() <= 128, "{}", one.name);
        assert_eq!(one.path, "/karpenter/us-west-2/demo/uid-1/");
        let tags: Vec<_> = one.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            tags,
            [
                "eks:eks-cluster-name=demo",
                "karpenter.k8s.aws/ec2nodeclass=default",
                "kubernetes.io/cluster/demo=owned",
                "team=a",
                "topology.kubernetes.io/region=us-west-2",
            ]
        );
    }

    #[test]
    fn a_profile_of_an_early_release_is_known_by_its_name_and_its_tags() {
        // FNV-1 of `us-west-2default`.
        assert_eq!(legacy_name("demo", "us-west-2", "default"), "demo_4067990795380418201");
        let wanted = wanted("default", "uid-1", "nodes");
        let tags = wanted.request().tags;
        let profile = InstanceProfile { tags, ..InstanceProfile::default() };
        assert!(is_of_class(&profile, "demo", "default"));
        assert!(!is_of_class(&profile, "demo", "other"));
        assert!(!is_of_class(&profile, "another", "default"));
        assert!(!is_of_class(&InstanceProfile::default(), "demo", "default"));
    }

    #[test]
    fn a_role_with_a_path_is_the_role() {
        let role = |name: &str| Role { role_name: Some(name.to_owned()), ..Role::default() };
        let profile = |roles| InstanceProfile { roles, ..InstanceProfile::default() };
        let wanted = wanted("default", "uid-1", "path/to/nodes");
        assert_eq!(wanted.compare(&profile(vec![role("nodes")])), ProfileState::Right);
        assert_eq!(wanted.compare(&profile(vec![])), ProfileState::NoRole);
        let other = ProfileState::OtherRole("others".to_owned());
        assert_eq!(wanted.compare(&profile(vec![role("others")])), other);
    }

    #[test]
    fn a_profile_is_kept_while_it_is_in_use_and_an_hour_longer() {
        let at = |time: &str| -> Timestamp { format!("2026-11-16T{time}:00Z").parse().unwrap() };
        let profile = InstanceProfile {
            instance_profile_name: Some("demo_1".to_owned()),
            create_date: Some(at("10:00")),
            ..InstanceProfile::default()
        };
        let used = ["demo_1".to_owned()].into();
        let unused = BTreeSet::new();
        let minutes = Duration::from_mins;
        for (in_use, last_used, now, expected) in [
            (&used, "08:00", "23:00", Err(Kept::InUse)),
            (&unused, "08:00", "10:30", Err(Kept::Protected { left: minutes(30) })),
            (&unused, "10:45", "11:00", Err(Kept::Protected { left: minutes(45) })),
            (&unused, "08:00", "11:00", Ok(())),
            // A clock that went back.
            (&unused, "10:45", "09:00", Err(Kept::Protected { left: minutes(60) })),
        ] {
            assert_eq!(may_collect(&profile, in_use, at(last_used), at(now)), expected, "{now}");
        }
    }
}
