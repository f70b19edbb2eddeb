//! Instance types, as EC2 would describe what the catalogue knows of them.

use kerf_aws_model::catalogue::{Architecture, Trait, TypeFacts};
use kerf_aws_wire::ec2;

use crate::cloud::{Answer, Cloud};
use crate::filters::{one, select, untagged};
use crate::paging::{PageSize, page};
use crate::refused::Refused;

const TYPES: PageSize = PageSize::new(5, 100, 100);
const OFFERINGS: PageSize = PageSize::new(5, 1000, 1000);

impl Answer for ec2::DescribeInstanceTypesRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        if !self.instance_types.is_empty() && self.max_results.is_some() {
            let message =
                "The parameter InstanceTypes cannot be used with the parameter MaxResults";
            return Err(Refused::new("InvalidParameterCombination", message));
        }
        let unknown: Vec<_> =
            self.instance_types.iter().filter(|name| !cloud.offers(name)).cloned().collect();
        if !unknown.is_empty() {
            let message = format!(
                "The following supplied instance types do not exist: [{}]",
                unknown.join(", ")
            );
            return Err(Refused::new("InvalidInstanceType", message));
        }
        let all = cloud.catalogue.types().filter(|facts| cloud.offers(&facts.name));
        let wanted = all.filter(|facts| {
            self.instance_types.is_empty() || self.instance_types.contains(&facts.name)
        });
        let found = select(
            wanted,
            &self.filters,
            |_| untagged(),
            |facts, name| match name {
                "instance-type" => one(&facts.name),
                "bare-metal" => one(is_metal(facts).to_string()),
                "hypervisor" => one(&facts.hypervisor),
                "processor-info.supported-architecture" => one(architecture(facts)),
                "supported-virtualization-type" => one("hvm"),
                "supported-usage-class" => Some(usage_classes(facts)),
                "current-generation" => one("true"),
                _ => None,
            },
        )?;
        let (found, next_token) = page(
            found,
            |facts| facts.name.clone(),
            &TYPES,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        let instance_types = found.into_iter().map(|facts| facts.described()).collect();
        Ok(ec2::DescribeInstanceTypesResponse { instance_types, next_token })
    }
}

impl Answer for ec2::DescribeInstanceTypeOfferingsRequest {
    fn is_dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let by_id = match self.location_type.as_deref() {
            Some("availability-zone") => false,
            Some("availability-zone-id") => true,
            other => {
                let other = other.unwrap_or("region");
                return Err(Refused::invalid_value(format!(
                    "LocationType '{other}' is not known here"
                )));
            }
        };
        let mut all = Vec::new();
        for facts in cloud.catalogue.types() {
            for zone in cloud.zones_offering(&facts.name) {
                let location = if by_id { cloud.network.zone_id(&zone) } else { Some(zone) };
                all.push((facts.name.clone(), location.unwrap_or_default()));
            }
        }
        let found = select(
            &all,
            &self.filters,
            |_| untagged(),
            |(name, location), filter| match filter {
                "instance-type" => one(name),
                "location" => one(location),
                _ => None,
            },
        )?;
        let mut found: Vec<_> =
            found.into_iter().map(|offering| (key(offering), offering)).collect();
        found.sort_unstable();
        let (found, next_token) = page(
            found,
            |(key, _)| key.clone(),
            &OFFERINGS,
            self.max_results,
            self.next_token.as_deref(),
        )?;
        let describe = |(name, location): &(String, String)| ec2::InstanceTypeOffering {
            instance_type: Some(name.clone()),
            location: Some(location.clone()),
            location_type: self.location_type.clone(),
        };
        let instance_type_offerings =
            found.iter().map(|(_, offering)| describe(offering)).collect();
        Ok(ec2::DescribeInstanceTypeOfferingsResponse { instance_type_offerings, next_token })
    }
}

fn key((name, location): &(String, String)) -> String {
    format!("{name} {location}")
}

fn is_metal(facts: &TypeFacts) -> bool {
    facts.hypervisor.is_empty()
}

pub(crate) fn architecture(facts: &TypeFacts) -> &'static str {
    match facts.architecture {
        Architecture::Amd64 => "x86_64",
        Architecture::Arm64 => "arm64",
    }
}

fn usage_classes(facts: &TypeFacts) -> Vec<String> {
    named(
        facts,
        &[
            (Trait::OnDemand, "on-demand"),
            (Trait::Spot, "spot"),
            (Trait::CapacityBlock, "capacity-block"),
        ],
    )
}

fn named(facts: &TypeFacts, names: &[(Trait, &str)]) -> Vec<String> {
    names.iter().filter(|(one, _)| facts.is(*one)).map(|(_, name)| (*name).to_owned()).collect()
}
