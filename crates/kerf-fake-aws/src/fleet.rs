//! `CreateFleet`: which pools are tried, in which order, and what comes of it.

mod launch;
mod order;

use std::sync::Arc;

use kerf_aws_wire::ec2;

use self::launch::Launch;
use self::order::{Candidate, Strategy};
use crate::chance;
use crate::cloud::{Answer, Cloud};
use crate::filters::{Tags, tags_of};
use crate::pools::{Market, PoolKey};
use crate::refused::Refused;
use crate::templates::{Named, Template};

/// What a fleet is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    OnDemand,
    Spot,
    Block,
    /// An interruptible reservation.
    Reserved,
}

impl Capacity {
    fn of(request: &ec2::CreateFleetRequest) -> Result<Self, Refused> {
        let target = request.target_capacity_specification.as_ref();
        let kind = target.and_then(|target| target.default_target_capacity_type.as_deref());
        match kind.unwrap_or("on-demand") {
            "on-demand" => Ok(Self::OnDemand),
            "spot" => Ok(Self::Spot),
            "capacity-block" => Ok(Self::Block),
            "reserved-capacity" => Ok(Self::Reserved),
            other => Err(Refused::invalid_value(format!(
                "DefaultTargetCapacityType '{other}' is not valid"
            ))),
        }
    }

    pub(crate) fn market(self) -> Market {
        match self {
            Self::Spot => Market::Spot,
            Self::OnDemand | Self::Block | Self::Reserved => Market::OnDemand,
        }
    }

    fn lifecycle(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
            Self::Block => "capacity-block",
            Self::Reserved => "interruptible-capacity-reservation",
        }
    }
}

/// A fleet that was made with a token of its caller's.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    request: ec2::CreateFleetRequest,
    response: ec2::CreateFleetResponse,
}

impl Answer for ec2::CreateFleetRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn check(&self, cloud: &Cloud) -> Result<(), Refused> {
        if self.r#type.as_deref() != Some("instant") {
            return Err(Refused::invalid_value("Only fleets of the type instant are made here"));
        }
        if self.target() < 1 {
            return Err(Refused::invalid_value("TotalTargetCapacity must be at least 1"));
        }
        let capacity = Capacity::of(self)?;
        Strategy::of(self, capacity)?;
        if self.launch_template_configs.iter().all(|config| config.overrides.is_empty()) {
            return Err(Refused::missing("LaunchTemplateConfigs"));
        }
        for config in &self.launch_template_configs {
            template(cloud, config)?;
        }
        Ok(())
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        if let Some(made) = self.client_token.as_ref().and_then(|token| cloud.fleets.get(token)) {
            if made.request == *self {
                return Ok(made.response.clone());
            }
            let message = "The request with this client token had other parameters";
            return Err(Refused::new("IdempotentParameterMismatch", message));
        }
        let response = self.fulfil(cloud)?;
        if let Some(token) = &self.client_token {
            let made = Made { request: self.clone(), response: response.clone() };
            cloud.fleets.insert(token.clone(), made);
        }
        Ok(response)
    }
}

fn template(
    cloud: &Cloud,
    config: &ec2::FleetLaunchTemplateConfigRequest,
) -> Result<Arc<Template>, Refused> {
    let named = config.launch_template_specification.as_ref();
    let named = named.ok_or_else(|| Refused::missing("LaunchTemplateSpecification"))?;
    let version = named.version.as_deref().unwrap_or_default();
    if !matches!(version, "$Latest" | "$Default" | "1") {
        let message = format!("Could not find launch template version {version}");
        return Err(Refused::new("InvalidLaunchTemplateId.VersionNotFound", message));
    }
    let named =
        Named::new(named.launch_template_name.as_deref(), named.launch_template_id.as_deref())?;
    cloud.templates.get(named).cloned()
}

trait Fulfil {
    fn target(&self) -> i32;
    fn fulfil(&self, cloud: &mut Cloud) -> Result<ec2::CreateFleetResponse, Refused>;
    fn instance_tags(&self) -> Tags;
}

impl Fulfil for ec2::CreateFleetRequest {
    fn target(&self) -> i32 {
        let target = self.target_capacity_specification.as_ref();
        target.and_then(|target| target.total_target_capacity).unwrap_or(0)
    }

    fn fulfil(&self, cloud: &mut Cloud) -> Result<ec2::CreateFleetResponse, Refused> {
        let capacity = Capacity::of(self)?;
        cloud.fleets_made += 1;
        let number = cloud.fleets_made.to_string();
        let fleet_id = chance::id("fleet", cloud.settings.seed, &[&number]);
        let mut candidates = Vec::new();
        for config in &self.launch_template_configs {
            let template = template(cloud, config)?;
            for wanted in &config.overrides {
                candidates.push(candidate(cloud, &template, wanted, capacity));
            }
        }
        Strategy::of(self, capacity)?.sort(&mut candidates);

        let tags = self.instance_tags();
        let mut left = self.target();
        let mut response =
            ec2::CreateFleetResponse { fleet_id: Some(fleet_id.clone()), ..Default::default() };
        for Candidate { template, wanted, .. } in candidates {
            let launch =
                Launch { template: &template, wanted, capacity, tags: &tags, fleet: &fleet_id };
            let mut ids = Vec::new();
            while left > 0 {
                match launch.one(cloud) {
                    Ok(id) => {
                        ids.push(id);
                        left -= 1;
                    }
                    Err(refused) => {
                        response.errors.push(error(cloud, &launch, &refused));
                        break;
                    }
                }
            }
            if !ids.is_empty() {
                response.instances.push(instances(cloud, &launch, ids));
            }
            if left == 0 {
                break;
            }
        }
        Ok(response)
    }

    fn instance_tags(&self) -> Tags {
        let own = self.tag_specifications.iter();
        let own = own.filter(|one| one.resource_type.as_deref() == Some("instance"));
        own.flat_map(|one| tags_of(&one.tags)).collect()
    }
}

fn candidate<'a>(
    cloud: &mut Cloud,
    template: &Arc<Template>,
    wanted: &'a ec2::FleetLaunchTemplateOverridesRequest,
    capacity: Capacity,
) -> Candidate<'a> {
    let instance_type = wanted.instance_type.clone().unwrap_or_default();
    let zone = cloud.zone_of(wanted).unwrap_or_default();
    let price = match capacity {
        Capacity::Spot => cloud.spot_price(&instance_type, &zone, cloud.now),
        _ => cloud.on_demand_price(&instance_type),
    };
    let key = PoolKey { instance_type, zone, market: capacity.market() };
    let free = cloud.pools.free(&key, cloud.now);
    Candidate { template: Arc::clone(template), wanted, price, free }
}

impl Cloud {
    /// Where an override would be: its subnet decides.
    pub(crate) fn zone_of(
        &self,
        wanted: &ec2::FleetLaunchTemplateOverridesRequest,
    ) -> Option<String> {
        let subnet = wanted.subnet_id.as_ref().and_then(|id| self.network.subnets.get(id));
        subnet.map(|subnet| subnet.zone.clone()).or_else(|| wanted.availability_zone.clone())
    }
}

/// The override as answers repeat it.
fn repeated(cloud: &Cloud, launch: &Launch<'_>) -> ec2::LaunchTemplateAndOverridesResponse {
    let (template, wanted) = (launch.template, launch.wanted);
    let zone = wanted.availability_zone.clone();
    ec2::LaunchTemplateAndOverridesResponse {
        launch_template_specification: Some(ec2::FleetLaunchTemplateSpecification {
            launch_template_id: Some(template.id.clone()),
            launch_template_name: None,
            version: Some("1".to_owned()),
        }),
        overrides: Some(ec2::FleetLaunchTemplateOverrides {
            availability_zone_id: zone.as_ref().and_then(|zone| cloud.network.zone_id(zone)),
            availability_zone: zone,
            image_id: wanted.image_id.clone(),
            instance_type: wanted.instance_type.clone(),
            priority: wanted.priority,
            subnet_id: wanted.subnet_id.clone(),
        }),
    }
}

fn error(cloud: &Cloud, launch: &Launch<'_>, refused: &Refused) -> ec2::CreateFleetError {
    ec2::CreateFleetError {
        error_code: Some(refused.code.clone()),
        error_message: Some(refused.message.clone()),
        launch_template_and_overrides: Some(repeated(cloud, launch)),
        lifecycle: Some(launch.capacity.lifecycle().to_owned()),
    }
}

fn instances(cloud: &Cloud, launch: &Launch<'_>, ids: Vec<String>) -> ec2::CreateFleetInstance {
    let zone = cloud.zone_of(launch.wanted);
    ec2::CreateFleetInstance {
        availability_zone_id: zone.as_ref().and_then(|zone| cloud.network.zone_id(zone)),
        availability_zone: zone,
        instance_ids: ids,
        instance_type: launch.wanted.instance_type.clone(),
        launch_template_and_overrides: Some(repeated(cloud, launch)),
        lifecycle: Some(launch.capacity.lifecycle().to_owned()),
        subnet_id: launch.wanted.subnet_id.clone(),
    }
}

impl Answer for ec2::RunInstancesRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    /// A dry run looks at everything but capacity.
    fn check(&self, cloud: &Cloud) -> Result<(), Refused> {
        let named = self.launch_template.as_ref();
        let named = named.ok_or_else(|| Refused::missing("LaunchTemplate"))?;
        let named =
            Named::new(named.launch_template_name.as_deref(), named.launch_template_id.as_deref())?;
        let template = cloud.templates.get(named)?;
        let own = &self.network_interfaces;
        let has_interfaces = !own.is_empty() || !template.data.network_interfaces.is_empty();
        if self.subnet_id.is_some() && has_interfaces {
            let message = "Network interfaces and an instance-level subnet ID may not be specified on the same request";
            return Err(Refused::new("InvalidParameterCombination", message));
        }
        let of_interface = own.first().and_then(|interface| interface.subnet_id.clone());
        let wanted = ec2::FleetLaunchTemplateOverridesRequest {
            availability_zone: None,
            image_id: self.image_id.clone(),
            instance_type: self
                .instance_type
                .clone()
                .or_else(|| template.data.instance_type.clone()),
            priority: None,
            subnet_id: self.subnet_id.clone().or(of_interface),
        };
        let tags = Tags::new();
        let launch = Launch {
            template,
            wanted: &wanted,
            capacity: Capacity::OnDemand,
            tags: &tags,
            fleet: "",
        };
        launch.place(cloud).map(|_| ())
    }

    fn answer(&self, _: &mut Cloud) -> Result<Self::Response, Refused> {
        let message = "This stand-in launches instances by CreateFleet alone";
        Err(Refused::new("UnsupportedOperation", message))
    }
}

#[cfg(test)]
mod tests;
