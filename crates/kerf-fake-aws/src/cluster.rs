//! The cluster of EKS, and zones that its traffic is shifted away from.

use kerf_aws_wire::{arc_zonal_shift, eks};

use crate::cloud::{Answer, Cloud};
use crate::refused::Refused;

impl Answer for eks::DescribeClusterRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let settings = &cloud.settings;
        if self.name.as_ref() != Some(&settings.cluster) {
            let name = self.name.as_deref().unwrap_or_default();
            let message = format!("No cluster found for name: {name}.");
            return Err(Refused::with_status(404, "ResourceNotFoundException", message));
        }
        let cluster = eks::Cluster {
            arn: Some(cloud.cluster_arn()),
            certificate_authority: Some(eks::Certificate {
                data: Some(settings.ca_bundle.clone()),
            }),
            endpoint: Some(settings.endpoint.clone()),
            kubernetes_network_config: Some(eks::KubernetesNetworkConfigResponse {
                ip_family: Some("ipv4".to_owned()),
                service_ipv4_cidr: Some(settings.service_cidr.clone()),
                service_ipv6_cidr: None,
            }),
            name: Some(settings.cluster.clone()),
            resources_vpc_config: Some(eks::VpcConfigResponse {
                cluster_security_group_id: cloud.network.groups.keys().next().cloned(),
                security_group_ids: Vec::new(),
                subnet_ids: cloud.network.subnets.keys().cloned().collect(),
                vpc_id: Some(cloud.network.vpc.clone()),
            }),
            status: Some("ACTIVE".to_owned()),
            version: Some(settings.kubernetes_version.clone()),
        };
        Ok(eks::DescribeClusterResponse { cluster: Some(cluster) })
    }
}

impl Answer for arc_zonal_shift::GetManagedResourceRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let arn = cloud.cluster_arn();
        if self.resource_identifier.as_ref() != Some(&arn) {
            let message = "The resource is not managed by zonal shift.";
            return Err(Refused::with_status(404, "ResourceNotFoundException", message));
        }
        let shift = |zone_id: &String| arc_zonal_shift::ZonalShiftInResource {
            applied_status: Some("APPLIED".to_owned()),
            away_from: Some(zone_id.clone()),
            expiry_time: None,
            resource_identifier: Some(arn.clone()),
            start_time: None,
            zonal_shift_id: Some(format!("shift-{zone_id}")),
        };
        Ok(arc_zonal_shift::GetManagedResourceResponse {
            arn: Some(arn.clone()),
            autoshifts: Vec::new(),
            name: Some(cloud.settings.cluster.clone()),
            zonal_shifts: cloud.shifted_zones.iter().map(shift).collect(),
        })
    }
}

impl Cloud {
    fn cluster_arn(&self) -> String {
        let settings = &self.settings;
        let (region, account) = (&settings.region, &settings.account);
        format!("arn:aws:eks:{region}:{account}:cluster/{}", settings.cluster)
    }
}
