//! `CreateFleet`: one instance, by any of the offerings that suit a claim.

mod answer;

use std::collections::{BTreeMap, BTreeSet};

use kerf_api::{annotations, labels};
use kerf_aws_api::tags;
use kerf_aws_wire::ec2::{
    CreateFleetRequest, FleetLaunchTemplateConfigRequest, FleetLaunchTemplateOverridesRequest,
    FleetLaunchTemplateSpecificationRequest, OnDemandOptionsRequest,
    ReservedCapacityOptionsRequest, SpotOptionsRequest, TagSpecification,
    TargetCapacitySpecificationRequest,
};
use kerf_model::{KnownLabels, Requirement, Requirements};

use crate::launch_template::{Launch, LaunchTemplate, ReservationMarket, wire_tags};

pub use answer::{FleetAnswer, FleetFailure, FleetInstance, Mark, Shortfall};

/// A call of `CreateFleet`.
#[derive(Clone, Copy, Debug)]
pub struct Fleet<'a> {
    pub launch: Launch<'a>,
    pub templates: &'a [LaunchTemplate],
    /// By zone, the subnet that an instance would be in.
    pub subnets: &'a BTreeMap<String, String>,
    /// Which try for the claim it is. EC2 answers a try that it has seen with what it did then, instead of launching again.
    pub attempt: u32,
    /// Prices were changed by an overlay, so that EC2 has to follow our order instead of its own prices.
    pub prioritized: bool,
}

/// No offering is left to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("none of the instance types has an offering in a zone with a subnet")]
pub struct NoOffering;

impl Fleet<'_> {
    pub fn request(&self, labels: &KnownLabels) -> Result<CreateFleetRequest, NoOffering> {
        let configs = self.configs(labels);
        if configs.is_empty() {
            return Err(NoOffering);
        }
        let market = Market::of(self.launch.capacity_type, self.templates);
        let strategy = |own: &str, ordered: &str| {
            Some(if self.prioritized { ordered } else { own }.to_owned())
        };
        Ok(CreateFleetRequest {
            client_token: Some(self.client_token()),
            context: self.context(),
            launch_template_configs: configs,
            on_demand_options: (market == Market::OnDemand).then(|| OnDemandOptionsRequest {
                allocation_strategy: strategy("lowest-price", "prioritized"),
                ..OnDemandOptionsRequest::default()
            }),
            reserved_capacity_options: (market == Market::Interruptible).then(|| {
                let reservation_types = vec!["interruptible-capacity-reservation".to_owned()];
                ReservedCapacityOptionsRequest { reservation_types }
            }),
            spot_options: (market == Market::Spot).then(|| SpotOptionsRequest {
                allocation_strategy: strategy(
                    "price-capacity-optimized",
                    "capacity-optimized-prioritized",
                ),
            }),
            tag_specifications: self.tag_specifications(),
            target_capacity_specification: Some(TargetCapacitySpecificationRequest {
                default_target_capacity_type: Some(market.as_str().to_owned()),
                total_target_capacity: Some(1),
            }),
            r#type: Some("instant".to_owned()),
            ..CreateFleetRequest::default()
        })
    }

    /// At most 64 characters, of which a UID takes 36.
    fn client_token(&self) -> String {
        let uid = self.launch.claim.metadata.uid.as_deref().unwrap_or_default();
        format!("{uid}-{}", self.attempt)
    }

    fn context(&self) -> Option<String> {
        let annotations = self.launch.claim.metadata.annotations.as_ref();
        let relaxed = annotations.and_then(|all| all.get(annotations::MIN_VALUES_RELAXED));
        let is_relaxed = relaxed.is_some_and(|relaxed| relaxed == "true");
        self.launch.class.spec.context.clone().filter(|_| !is_relaxed)
    }

    fn configs(&self, labels: &KnownLabels) -> Vec<FleetLaunchTemplateConfigRequest> {
        let mut requirements = self.launch.requirements.clone();
        requirements
            .replace(Requirement::is_in(labels::CAPACITY_TYPE, [self.launch.capacity_type]));
        let config = |template: &LaunchTemplate| FleetLaunchTemplateConfigRequest {
            overrides: self.overrides(template, &requirements, labels),
            launch_template_specification: Some(FleetLaunchTemplateSpecificationRequest {
                launch_template_name: Some(template.name.clone()),
                version: Some("$Latest".to_owned()),
                launch_template_id: None,
            }),
        };
        let configs = self.templates.iter().map(config);
        configs.filter(|config| !config.overrides.is_empty()).collect()
    }

    /// Each type in each zone once. Offerings that differ by the partition of a placement group alone look the same here.
    fn overrides(
        &self,
        template: &LaunchTemplate,
        requirements: &Requirements,
        labels: &KnownLabels,
    ) -> Vec<FleetLaunchTemplateOverridesRequest> {
        let mut overrides = Vec::new();
        for instance_type in &template.types {
            let mut seen = BTreeSet::new();
            for offering in instance_type.launchable_offerings() {
                let Some(zone) = offering.zone() else { continue };
                let is_of_template = template
                    .reservation
                    .as_ref()
                    .is_none_or(|one| offering.reservation_id(labels) == Some(&one.id));
                let Some(subnet) = self.subnets.get(zone) else { continue };
                if !is_of_template || !offering.serves(requirements, labels) || !seen.insert(zone) {
                    continue;
                }
                overrides.push(FleetLaunchTemplateOverridesRequest {
                    instance_type: Some(instance_type.name().to_owned()),
                    subnet_id: Some(subnet.clone()),
                    image_id: Some(template.image.clone()),
                    // The subnet says it too, but errors name the zone only if the request did.
                    availability_zone: Some(zone.to_owned()),
                    priority: Some(offering.price.as_f64()),
                });
            }
        }
        overrides
    }

    /// The instance knows its claim from the start, so that nothing has to be tagged later, and a leader that takes over finds
    /// what the last one launched.
    fn tag_specifications(&self) -> Vec<TagSpecification> {
        let metadata = &self.launch.claim.metadata;
        let mut tags = self.launch.tags();
        let name = metadata.name.clone().unwrap_or_default();
        tags.entry(tags::NAME.to_owned()).or_insert_with(|| name.clone());
        tags.extend([
            (tags::NODE_CLAIM.to_owned(), name),
            (tags::NODE_CLAIM_UID.to_owned(), metadata.uid.clone().unwrap_or_default()),
        ]);
        let of = |kind: &str| TagSpecification {
            resource_type: Some(kind.to_owned()),
            tags: wire_tags(&tags),
        };
        ["instance", "volume", "fleet"].map(of).into()
    }
}

/// How the instance is paid for, in the words of EC2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Market {
    OnDemand,
    Spot,
    CapacityBlock,
    Interruptible,
}

impl Market {
    /// The filters of a launch leave one kind of reservation.
    fn of(capacity_type: &str, templates: &[LaunchTemplate]) -> Self {
        let reservation = templates.iter().find_map(|template| template.reservation.as_ref());
        match (capacity_type, reservation.map(|reservation| reservation.market)) {
            (labels::CAPACITY_TYPE_SPOT, _) => Self::Spot,
            (_, Some(ReservationMarket::CapacityBlock)) => Self::CapacityBlock,
            (_, Some(ReservationMarket::Interruptible)) => Self::Interruptible,
            _ => Self::OnDemand,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::CapacityBlock => "capacity-block",
            Self::Interruptible => "reserved-capacity",
        }
    }
}

#[cfg(test)]
mod tests;
