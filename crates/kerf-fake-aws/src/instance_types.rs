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
        let instance_types = found.into_iter().map(|facts| describe(facts)).collect();
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

#[expect(clippy::unnecessary_wraps, reason = "members of answers are optional")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn count(number: u32) -> Option<i32> {
    i32::try_from(number).ok()
}

fn whole<N: TryInto<i64>>(number: N) -> Option<i64> {
    number.try_into().ok()
}

fn describe(facts: &TypeFacts) -> ec2::InstanceTypeInfo {
    let supported = |is: bool| text(if is { "supported" } else { "unsupported" });
    let placement = [
        (Trait::ClusterPlacement, "cluster"),
        (Trait::PartitionPlacement, "partition"),
        (Trait::SpreadPlacement, "spread"),
    ];
    ec2::InstanceTypeInfo {
        bare_metal: Some(is_metal(facts)),
        current_generation: Some(true),
        ebs_info: Some(ec2::EbsInfo {
            ebs_optimized_support: text(if facts.ebs_mbps.is_some() {
                "default"
            } else {
                "unsupported"
            }),
            ebs_optimized_info: facts.ebs_mbps.map(|most| ec2::EbsOptimizedInfo {
                maximum_bandwidth_in_mbps: count(most),
                baseline_bandwidth_in_mbps: count(most),
            }),
        }),
        gpu_info: (!facts.gpus.is_empty()).then(|| ec2::GpuInfo {
            gpus: facts
                .gpus
                .iter()
                .map(|gpu| ec2::GpuDeviceInfo {
                    count: count(gpu.count),
                    manufacturer: text(&gpu.manufacturer),
                    memory_info: Some(ec2::GpuDeviceMemoryInfo {
                        size_in_mib: i32::try_from(gpu.memory_mib).ok(),
                    }),
                    name: text(&gpu.name),
                })
                .collect(),
        }),
        hypervisor: (!is_metal(facts)).then(|| facts.hypervisor.clone()),
        inference_accelerator_info: (!facts.accelerators.is_empty()).then(|| {
            ec2::InferenceAcceleratorInfo {
                accelerators: facts
                    .accelerators
                    .iter()
                    .map(|one| ec2::InferenceDeviceInfo {
                        count: count(one.count),
                        manufacturer: text(&one.manufacturer),
                        name: text(&one.name),
                    })
                    .collect(),
            }
        }),
        instance_storage_info: (facts.local_gb > 0).then(|| ec2::InstanceStorageInfo {
            disks: Vec::new(),
            nvme_support: text(if facts.is(Trait::LocalNvme) { "required" } else { "unsupported" }),
            total_size_in_gb: whole(facts.local_gb),
        }),
        instance_storage_supported: Some(facts.local_gb > 0),
        instance_type: text(&facts.name),
        memory_info: Some(ec2::MemoryInfo { size_in_mib: whole(facts.memory_mib) }),
        network_info: Some(network(facts)),
        neuron_info: (!facts.neurons.is_empty()).then(|| ec2::NeuronInfo {
            neuron_devices: facts
                .neurons
                .iter()
                .map(|one| ec2::NeuronDeviceInfo {
                    core_info: Some(ec2::NeuronDeviceCoreInfo {
                        count: count(one.cores),
                        version: None,
                    }),
                    count: count(one.count),
                    memory_info: None,
                    name: text(&one.name),
                })
                .collect(),
        }),
        nitro_enclaves_support: supported(facts.is(Trait::NitroEnclaves)),
        placement_group_info: Some(ec2::PlacementGroupInfo {
            supported_strategies: named(facts, &placement),
        }),
        processor_info: Some(ec2::ProcessorInfo {
            manufacturer: text(&facts.cpu_manufacturer),
            supported_architectures: vec![architecture(facts).to_owned()],
            supported_features: named(
                facts,
                &[(Trait::NestedVirtualization, "nested-virtualization")],
            ),
            sustained_clock_speed_in_ghz: (facts.clock_mhz > 0)
                .then(|| f64::from(facts.clock_mhz) / 1000.0),
        }),
        supported_usage_classes: usage_classes(facts),
        supported_virtualization_types: vec!["hvm".to_owned()],
        vcpu_info: Some(ec2::VCpuInfo {
            default_cores: None,
            default_threads_per_core: None,
            default_vcpus: count(facts.vcpus),
        }),
    }
}

fn network(facts: &TypeFacts) -> ec2::NetworkInfo {
    let cards =
        facts.interfaces_per_card.iter().zip(0..).map(|(interfaces, index)| ec2::NetworkCardInfo {
            maximum_network_interfaces: count(*interfaces),
            network_card_index: Some(index),
            ..Default::default()
        });
    ec2::NetworkInfo {
        default_network_card_index: i32::try_from(facts.default_card).ok(),
        efa_info: (facts.efa_interfaces > 0)
            .then(|| ec2::EfaInfo { maximum_efa_interfaces: count(facts.efa_interfaces) }),
        efa_supported: Some(facts.efa_interfaces > 0),
        encryption_in_transit_supported: Some(facts.is(Trait::EncryptionInTransit)),
        ena_support: text(if facts.is(Trait::EnaUnsupported) { "unsupported" } else { "required" }),
        ipv4_addresses_per_interface: count(facts.addresses_per_interface),
        ipv6_addresses_per_interface: count(facts.addresses_per_interface),
        ipv6_supported: Some(true),
        maximum_network_cards: i32::try_from(facts.interfaces_per_card.len()).ok(),
        maximum_network_interfaces: count(facts.interfaces_per_card.iter().sum()),
        network_cards: cards.collect(),
        ..Default::default()
    }
}
