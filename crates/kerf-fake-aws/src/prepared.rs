//! What stands in an account before a story begins, and what a class finds there.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use kerf_api::labels;
use kerf_aws_api::{Ami, Ec2NodeClassStatus, SecurityGroup, Subnet};
use kerf_aws_model::launch_template::Cluster;
use kerf_aws_model::user_data::ClusterAccess;

use crate::fake::FakeAws;
use crate::images::{ARM, X86};
use crate::profiles::Profile;

/// The tenth address of the services is that of kube-dns.
const DNS: &str = "10.100.0.10";

impl FakeAws {
    /// An instance profile that EC2 has known for long.
    pub fn add_instance_profile(&self, name: &str, role: &str) {
        self.with(|cloud| {
            let profile = Profile::known_since(cloud.now, name, role);
            cloud.profiles.by_name.insert(name.to_owned(), profile);
        });
    }

    /// The cluster as its nodes reach it.
    pub fn cluster(&self) -> Cluster {
        self.with(|cloud| {
            let settings = &cloud.settings;
            Cluster {
                access: ClusterAccess {
                    name: settings.cluster.clone(),
                    endpoint: settings.endpoint.clone(),
                    ca_bundle: Some(settings.ca_bundle.clone()),
                    service_cidr: Some(settings.service_cidr.clone()),
                },
                region: settings.region.clone(),
                dns: DNS.parse::<IpAddr>().ok(),
            }
        })
    }

    /// The newest image of AL2023. The architecture is `x86_64` or `arm64`.
    pub fn al2023_image(&self, architecture: &str) -> Option<String> {
        self.with(|cloud| {
            let version = &cloud.settings.kubernetes_version;
            let name = format!(
                "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/standard/recommended/image_id"
            );
            cloud.images.parameters.get(&name).map(|(id, _)| id.clone())
        })
    }

    /// What a class finds that selects all subnets and security groups of the cluster, the newest images of AL2023, and this
    /// instance profile. It says nothing of conditions.
    pub fn class_status(&self, instance_profile: &str) -> Ec2NodeClassStatus {
        let image = |architecture: &str, label: &str| {
            let only = NodeSelectorRequirement {
                key: labels::ARCH.to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![label.to_owned()]),
            };
            let id = self.al2023_image(architecture)?;
            Some(Ami { id, requirements: vec![only], ..Ami::default() })
        };
        let images = [image(X86, labels::ARCH_AMD64), image(ARM, labels::ARCH_ARM64)];
        self.with(|cloud| {
            let network = &cloud.network;
            let subnets = network.subnets.values().map(|subnet| Subnet {
                id: subnet.id.clone(),
                zone: subnet.zone.clone(),
                zone_id: network.zone_id(&subnet.zone),
            });
            let groups = network.groups.values().map(|group| SecurityGroup {
                id: group.id.clone(),
                name: Some(group.name.clone()),
            });
            Ec2NodeClassStatus {
                subnets: subnets.collect(),
                security_groups: groups.collect(),
                amis: images.into_iter().flatten().collect(),
                instance_profile: Some(instance_profile.to_owned()),
                ..Ec2NodeClassStatus::default()
            }
        })
    }
}
