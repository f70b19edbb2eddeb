//! Launch templates: what an instance is made of, apart from its type and its subnet.
//!
//! A template's name is a number of its content, so that equal launches share one and no two calls make it twice. Templates are
//! few and stay: they are collected by age (`collection`), and not when a cache forgets them.

mod block_devices;
mod collection;
mod content;
mod network;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::IpAddr,
    sync::Arc,
};

use kerf_api::{NodeClaim, labels};
use kerf_aws_api::{
    CapacityReservationType, Ec2NodeClass, Ec2NodeClassStatus, labels as aws_labels, resources,
    tags,
};
use kerf_aws_wire::ec2::{
    CreateLaunchTemplateRequest, RequestLaunchTemplateData, Tag, TagSpecification,
};
use kerf_model::{InstanceType, KnownLabels, Offering, Requirements, resources::PODS};

use crate::{
    images::Images,
    unavailable::Placement,
    user_data::{ClusterAccess, Refusal, UserData},
};

pub use block_devices::default_block_devices;
pub use collection::{KeptTemplate, may_collect};

/// The cluster that nodes join.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    pub access: ClusterAccess,
    pub region: String,
    /// The address of kube-dns, if it was found. It decides which family of addresses the cluster has.
    pub dns: Option<IpAddr>,
}

impl Cluster {
    fn is_ipv6(&self) -> bool {
        self.dns.is_some_and(|dns| dns.is_ipv6())
    }
}

/// What all templates of one launch have in common.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub class: &'a Ec2NodeClass,
    pub claim: &'a NodeClaim,
    /// What the claim asks for, in normal form.
    pub requirements: &'a Requirements,
    pub cluster: &'a Cluster,
    pub capacity_type: &'a str,
    pub tenancy: &'a str,
    pub placement: Placement<'a>,
    /// The gate `ReservedCapacity`: instances keep out of reservations that they are not meant for.
    pub reserved_capacity: bool,
}

/// A template, and what is launched by it.
#[derive(Clone, Debug)]
pub struct LaunchTemplate {
    pub name: String,
    pub data: RequestLaunchTemplateData,
    /// Of the template and of what comes with its instances.
    pub tags: BTreeMap<String, String>,
    pub image: String,
    pub reservation: Option<Reservation>,
    pub types: Vec<Arc<InstanceType>>,
    pub user_data: UserData,
}

/// A reservation that instances are launched into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reservation {
    pub id: String,
    pub market: ReservationMarket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationMarket {
    Default,
    CapacityBlock,
    /// The owner can have it back.
    Interruptible,
}

/// Why there is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTemplate {
    #[error("the status of the EC2NodeClass has no AMIs")]
    NoImages,
    #[error("no AMI of the EC2NodeClass suits one of the {types} instance types")]
    NoSuitableImage { types: usize },
    #[error("the status of the EC2NodeClass has no security groups")]
    NoSecurityGroups,
    #[error("the status of the EC2NodeClass has no instance profile")]
    NoInstanceProfile,
    #[error(transparent)]
    UserData(#[from] Refusal),
}

/// What makes two types need different templates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    image: String,
    max_pods: i32,
    efa_interfaces: i32,
    reservation: Option<Reservation>,
}

impl Launch<'_> {
    /// The tags of all that is launched for the class and the pool. They say nothing of the claim, so that templates are shared.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let of_claim = self.claim.metadata.labels.as_ref();
        let pool = of_claim.and_then(|labels| labels.get(labels::NODE_POOL));
        let cluster = &self.cluster.access.name;
        let mut all = self.class.spec.tags.clone().unwrap_or_default();
        all.extend([
            (tags::cluster(cluster), tags::OWNED.to_owned()),
            (tags::NODE_POOL.to_owned(), pool.cloned().unwrap_or_default()),
            (tags::EKS_CLUSTER_NAME.to_owned(), cluster.clone()),
            (tags::NODE_CLASS.to_owned(), self.class.metadata.name.clone().unwrap_or_default()),
        ]);
        all
    }

    /// The templates that these types need. Types that no image suits are left out.
    pub fn templates(
        &self,
        types: &[Arc<InstanceType>],
        labels: &KnownLabels,
    ) -> Result<Vec<LaunchTemplate>, NoTemplate> {
        let none = Ec2NodeClassStatus::default();
        let status = self.class.status.as_ref().unwrap_or(&none);
        let images = Images::new(&status.amis, labels);
        if images.is_empty() {
            return Err(NoTemplate::NoImages);
        }
        if status.security_groups.is_empty() {
            return Err(NoTemplate::NoSecurityGroups);
        }
        let profile = status.instance_profile.as_deref().ok_or(NoTemplate::NoInstanceProfile)?;
        let groups = self.groups(types, &images, labels);
        if groups.is_empty() {
            return Err(NoTemplate::NoSuitableImage { types: types.len() });
        }
        let tags = self.tags();
        groups
            .into_iter()
            .map(|(key, types)| self.template(key, types, status, profile, &tags))
            .collect()
    }

    fn groups(
        &self,
        types: &[Arc<InstanceType>],
        images: &Images,
        labels: &KnownLabels,
    ) -> BTreeMap<Key, Vec<Arc<InstanceType>>> {
        let of_class = self.class.spec.kubelet.as_ref().and_then(|kubelet| kubelet.max_pods);
        let mut groups: BTreeMap<Key, Vec<Arc<InstanceType>>> = BTreeMap::new();
        for instance_type in types {
            let Some(image) = images.of(instance_type) else { continue };
            let capacity = |name| count(instance_type.capacity().amount(name).units());
            let efa_interfaces =
                if self.asks_for(resources::EFA) { capacity(resources::EFA) } else { 0 };
            for reservation in self.reservations(instance_type, labels) {
                let key = Key {
                    image: image.to_owned(),
                    max_pods: of_class.unwrap_or_else(|| capacity(PODS)),
                    efa_interfaces,
                    reservation,
                };
                match groups.entry(key) {
                    Entry::Vacant(group) => {
                        group.insert(vec![Arc::clone(instance_type)]);
                    }
                    Entry::Occupied(mut group) => group.get_mut().push(Arc::clone(instance_type)),
                }
            }
        }
        groups
    }

    /// One template per reservation, or one without.
    fn reservations(
        &self,
        instance_type: &InstanceType,
        labels: &KnownLabels,
    ) -> Vec<Option<Reservation>> {
        if self.capacity_type != labels::CAPACITY_TYPE_RESERVED {
            return vec![None];
        }
        let reserved = instance_type.launchable_offerings().filter(|offering| {
            offering.is_reserved() && offering.serves(self.requirements, labels)
        });
        let mut all: Vec<_> = reserved.map(|offering| Reservation::of(offering, labels)).collect();
        all.sort();
        all.dedup();
        all.retain(Option::is_some);
        all
    }

    fn asks_for(&self, resource: &str) -> bool {
        self.claim.spec.resources.requests.contains_key(resource)
    }
}

impl LaunchTemplate {
    pub fn create_request(&self) -> CreateLaunchTemplateRequest {
        create_request(&self.data, &self.tags, Some(self.name.clone()))
    }

    /// How many interfaces of its instances are for EFA, because pods ask for them or because the class lists them.
    pub fn efa_interfaces(&self) -> usize {
        let kinds = self.data.network_interfaces.iter().map(|one| one.interface_type.as_deref());
        kinds.filter(|kind| matches!(kind, Some("efa" | "efa-only"))).count()
    }
}

impl Reservation {
    fn of(offering: &Offering, labels: &KnownLabels) -> Option<Self> {
        let is = |key: &str, value: &str| {
            offering.requirements.get(key).and_then(|one| one.only_value()) == Some(value)
        };
        let block = CapacityReservationType::CapacityBlock.as_str();
        let market = if is(aws_labels::CAPACITY_RESERVATION_TYPE, block) {
            ReservationMarket::CapacityBlock
        } else if is(aws_labels::CAPACITY_RESERVATION_INTERRUPTIBLE, "true") {
            ReservationMarket::Interruptible
        } else {
            ReservationMarket::Default
        };
        Some(Self { id: offering.reservation_id(labels)?.to_owned(), market })
    }
}

fn create_request(
    data: &RequestLaunchTemplateData,
    tags: &BTreeMap<String, String>,
    name: Option<String>,
) -> CreateLaunchTemplateRequest {
    CreateLaunchTemplateRequest {
        launch_template_name: name,
        launch_template_data: Some(data.clone()),
        tag_specifications: vec![TagSpecification {
            resource_type: Some("launch-template".to_owned()),
            tags: wire_tags(tags),
        }],
        ..CreateLaunchTemplateRequest::default()
    }
}

pub(crate) fn wire_tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    let tag = |(key, value): (&String, &String)| Tag {
        key: Some(key.clone()),
        value: Some(value.clone()),
    };
    tags.iter().map(tag).collect()
}

fn count(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
