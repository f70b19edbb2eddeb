//! What a template says.

use std::{collections::BTreeMap, sync::Arc};

use kerf_api::labels;
use kerf_aws_api::{Ec2NodeClassStatus, HttpTokens, MetadataOptions, Switch};
use kerf_aws_wire::{
    WireRequest,
    ec2::{
        CapacityReservationTarget, LaunchTemplateCapacityReservationSpecificationRequest,
        LaunchTemplateCpuOptionsRequest, LaunchTemplateEnclaveOptionsRequest,
        LaunchTemplateIamInstanceProfileSpecificationRequest,
        LaunchTemplateInstanceMarketOptionsRequest, LaunchTemplateInstanceMetadataOptionsRequest,
        LaunchTemplatePlacementRequest, LaunchTemplateTagSpecificationRequest,
        LaunchTemplatesMonitoringRequest, RequestLaunchTemplateData,
    },
};
use kerf_model::InstanceType;

use super::{
    Key, Launch, LaunchTemplate, NoTemplate, ReservationMarket, block_devices, count,
    create_request, network, wire_tags,
};
use crate::{
    digest::digest,
    unavailable::Placement,
    user_data::{Form, NodeSettings, UserData},
};

const NAME_PREFIX: &str = "karpenter.k8s.aws/";

/// Pods that ask for it run Nitro Enclaves. Its name in Karpenter 1.14 and in what follows.
const ENCLAVES: [&str; 2] = ["eks.amazonaws.com/nip-slots", "eks.amazonaws.com/nitro-sandbox"];

/// EC2 has no metadata by IPv6 there, and refuses the field.
const NO_METADATA_BY_IPV6: [&str; 6] = [
    "us-iso-east-1",
    "us-iso-west-1",
    "us-isob-east-1",
    "us-isob-west-1",
    "us-isof-east-1",
    "us-isof-south-1",
];

impl Launch<'_> {
    pub(super) fn template(
        &self,
        key: Key,
        types: Vec<Arc<InstanceType>>,
        status: &Ec2NodeClassStatus,
        profile: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<LaunchTemplate, NoTemplate> {
        let dns = self.cluster.dns.map(|dns| dns.to_string());
        let settings = NodeSettings::of_claim(
            self.class,
            self.claim,
            &self.cluster.access,
            dns.as_deref(),
            self.capacity_type,
            key.max_pods,
        );
        let spec = &self.class.spec;
        let user_data =
            UserData::render(Form::of(self.class), &settings, spec.user_data.as_deref())?;
        let nested_virtualization =
            spec.cpu_options.as_ref().and_then(|options| options.nested_virtualization);
        let security_groups: Vec<_> =
            status.security_groups.iter().map(|group| group.id.clone()).collect();
        let data = RequestLaunchTemplateData {
            block_device_mappings: block_devices::requests(spec),
            capacity_reservation_specification: self.reservation_specification(&key),
            cpu_options: nested_virtualization.map(|switch| LaunchTemplateCpuOptionsRequest {
                nested_virtualization: Some(switch.as_str().to_owned()),
            }),
            enclave_options: Some(LaunchTemplateEnclaveOptionsRequest {
                enabled: Some(ENCLAVES.iter().any(|resource| self.asks_for(resource))),
            }),
            iam_instance_profile: Some(LaunchTemplateIamInstanceProfileSpecificationRequest {
                name: Some(profile.to_owned()),
                arn: None,
            }),
            image_id: Some(key.image.clone()),
            instance_market_options: self.market_options(&key),
            metadata_options: Some(self.metadata_options()),
            monitoring: Some(LaunchTemplatesMonitoringRequest {
                enabled: Some(spec.detailed_monitoring.unwrap_or_default()),
            }),
            network_interfaces: network::interfaces(
                spec,
                &security_groups,
                key.efa_interfaces,
                self.cluster.is_ipv6(),
            ),
            placement: Some(self.placement()),
            tag_specifications: self.tag_specifications(tags),
            user_data: Some(user_data.base64()),
            ..RequestLaunchTemplateData::default()
        };
        Ok(LaunchTemplate {
            name: name_of(&data, tags),
            data,
            tags: tags.clone(),
            image: key.image,
            reservation: key.reservation,
            types,
            user_data,
        })
    }

    /// EC2 chooses the partition where none is given.
    fn placement(&self) -> LaunchTemplatePlacementRequest {
        let (group, partition) = match self.placement {
            Placement::Anywhere => (None, None),
            Placement::Group(group) => (Some(group), None),
            Placement::Partition(group, partition) => (Some(group), Some(count(partition.into()))),
        };
        LaunchTemplatePlacementRequest {
            tenancy: Some(self.tenancy.to_owned()),
            group_id: group.map(str::to_owned),
            partition_number: partition,
            ..LaunchTemplatePlacementRequest::default()
        }
    }

    /// Without the gate nothing is said, and EC2 puts instances into open reservations as it likes.
    fn reservation_specification(
        &self,
        key: &Key,
    ) -> Option<LaunchTemplateCapacityReservationSpecificationRequest> {
        self.reserved_capacity.then(|| {
            let preference =
                if key.reservation.is_some() { "capacity-reservations-only" } else { "none" };
            LaunchTemplateCapacityReservationSpecificationRequest {
                capacity_reservation_preference: Some(preference.to_owned()),
                capacity_reservation_target: key.reservation.as_ref().map(|reservation| {
                    CapacityReservationTarget {
                        capacity_reservation_id: Some(reservation.id.clone()),
                    }
                }),
            }
        })
    }

    fn market_options(&self, key: &Key) -> Option<LaunchTemplateInstanceMarketOptionsRequest> {
        let market_type = match key.reservation.as_ref().filter(|_| self.reserved_capacity)?.market
        {
            ReservationMarket::Default => return None,
            ReservationMarket::CapacityBlock => "capacity-block",
            ReservationMarket::Interruptible => "interruptible-capacity-reservation",
        };
        Some(LaunchTemplateInstanceMarketOptionsRequest {
            market_type: Some(market_type.to_owned()),
        })
    }

    /// The API server fills the class's options in; what is left out all the same has its defaults.
    fn metadata_options(&self) -> LaunchTemplateInstanceMetadataOptionsRequest {
        let options = self.class.spec.metadata_options.clone().unwrap_or(MetadataOptions {
            http_endpoint: Some(Switch::Enabled),
            http_protocol_ipv6: Some(Switch::Disabled),
            http_put_response_hop_limit: Some(1),
            http_tokens: Some(HttpTokens::Required),
        });
        let ipv6 = options
            .http_protocol_ipv6
            .filter(|_| !NO_METADATA_BY_IPV6.contains(&self.cluster.region.as_str()));
        LaunchTemplateInstanceMetadataOptionsRequest {
            http_endpoint: options.http_endpoint.map(|switch| switch.as_str().to_owned()),
            http_protocol_ipv6: ipv6.map(|switch| switch.as_str().to_owned()),
            http_put_response_hop_limit: options.http_put_response_hop_limit.map(count),
            http_tokens: options.http_tokens.map(|tokens| tokens.as_str().to_owned()),
            // Tags whose keys have a slash cannot be read there, and EC2 refuses the launch where an account switches them on.
            instance_metadata_tags: Some("disabled".to_owned()),
        }
    }

    fn tag_specifications(
        &self,
        tags: &BTreeMap<String, String>,
    ) -> Vec<LaunchTemplateTagSpecificationRequest> {
        let is_spot = self.capacity_type == labels::CAPACITY_TYPE_SPOT;
        let kinds =
            ["network-interface"].into_iter().chain(is_spot.then_some("spot-instances-request"));
        kinds
            .map(|kind| LaunchTemplateTagSpecificationRequest {
                resource_type: Some(kind.to_owned()),
                tags: wire_tags(tags),
            })
            .collect()
    }
}

fn name_of(data: &RequestLaunchTemplateData, tags: &BTreeMap<String, String>) -> String {
    let content = WireRequest::encode(&create_request(data, tags, None)).body;
    format!("{NAME_PREFIX}{}", digest([content.as_bytes()]))
}
