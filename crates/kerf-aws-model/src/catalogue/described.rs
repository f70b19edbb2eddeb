//! Instance types as EC2 describes them on the wire, read and written.

use kerf_aws_wire::ec2;

use super::facts::{Accelerator, Architecture, Gpu, Network, Neuron, Trait, TypeFacts};

/// Why a type that EC2 describes is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableType {
    #[error("EC2 described an instance type without a name")]
    NoName,
    #[error("EC2's description of instance type {name} has no {what}")]
    Missing { name: String, what: &'static str },
    #[error("instance type {name} is neither amd64 nor arm64")]
    OtherArchitecture { name: String },
    #[error("instance type {name} has no hardware virtualization")]
    Paravirtual { name: String },
}

impl TypeFacts {
    pub fn read(info: &ec2::InstanceTypeInfo) -> Result<Self, UnusableType> {
        let name = info.instance_type.clone().ok_or(UnusableType::NoName)?;
        let missing = |what| UnusableType::Missing { name: name.clone(), what };
        let processor = info.processor_info.as_ref().ok_or_else(|| missing("processor"))?;
        let mut architectures = processor.supported_architectures.iter();
        let architecture = architectures.find_map(|name| Architecture::from_ec2(name));
        let architecture =
            architecture.ok_or_else(|| UnusableType::OtherArchitecture { name: name.clone() })?;
        if !has(&info.supported_virtualization_types, "hvm") {
            return Err(UnusableType::Paravirtual { name });
        }
        let vcpus = info.vcpu_info.as_ref().and_then(|info| info.default_vcpus);
        let memory = info.memory_info.as_ref().and_then(|info| info.size_in_mib);
        let network = info.network_info.clone().unwrap_or_default();
        let ebs = info.ebs_info.as_ref();
        let ebs = ebs.filter(|ebs| ebs.ebs_optimized_support.as_deref() == Some("default"));
        let ebs = ebs.and_then(|ebs| ebs.ebs_optimized_info.as_ref());
        let storage = info.instance_storage_info.as_ref();
        Ok(Self {
            architecture,
            vcpus: vcpus.map(count).ok_or_else(|| missing("number of vCPUs"))?,
            memory_mib: memory.map(size).ok_or_else(|| missing("memory"))?,
            cpu_manufacturer: processor.manufacturer.clone().unwrap_or_default(),
            clock_mhz: mega(processor.sustained_clock_speed_in_ghz),
            hypervisor: info.hypervisor.clone().unwrap_or_default(),
            traits: traits(info).into_iter().collect(),
            ebs_mbps: ebs.and_then(|ebs| ebs.maximum_bandwidth_in_mbps).map(count),
            local_gb: storage.and_then(|storage| storage.total_size_in_gb).map_or(0, size),
            addresses_per_interface: network.ipv4_addresses_per_interface.map_or(0, count),
            interfaces_per_card: cards(&network),
            efa_interfaces: network
                .efa_info
                .and_then(|efa| efa.maximum_efa_interfaces)
                .map_or(0, count),
            gpus: info.gpu_info.iter().flat_map(|info| &info.gpus).map(gpu).collect(),
            neurons: info
                .neuron_info
                .iter()
                .flat_map(|info| &info.neuron_devices)
                .map(neuron)
                .collect(),
            accelerators: info
                .inference_accelerator_info
                .iter()
                .flat_map(|info| &info.accelerators)
                .map(accelerator)
                .collect(),
            default_card: network
                .default_network_card_index
                .and_then(|index| usize::try_from(index).ok())
                .unwrap_or(0),
            name,
        })
    }

    /// As EC2 would describe it, as far as it is known: for a stand-in of EC2.
    pub fn described(&self) -> ec2::InstanceTypeInfo {
        let all = |list: &[(Trait, &str)]| -> Vec<String> {
            let held = list.iter().filter(|(one, _)| self.is(*one));
            held.map(|(_, name)| (*name).to_owned()).collect()
        };
        let support =
            |one, yes: &str, no: &str| Some(if self.is(one) { yes } else { no }.to_owned());
        ec2::InstanceTypeInfo {
            instance_type: Some(self.name.clone()),
            hypervisor: Some(self.hypervisor.clone()).filter(|text| !text.is_empty()),
            bare_metal: Some(self.size().is_some_and(|size| size.contains("metal"))),
            supported_usage_classes: all(&USAGE),
            supported_virtualization_types: vec!["hvm".to_owned()],
            nitro_enclaves_support: support(Trait::NitroEnclaves, "supported", "unsupported"),
            vcpu_info: Some(ec2::VCpuInfo {
                default_vcpus: number(self.vcpus),
                ..Default::default()
            }),
            memory_info: Some(ec2::MemoryInfo { size_in_mib: i64::try_from(self.memory_mib).ok() }),
            processor_info: Some(ec2::ProcessorInfo {
                manufacturer: Some(self.cpu_manufacturer.clone()),
                supported_architectures: vec![self.architecture.ec2().to_owned()],
                supported_features: all(&[(Trait::NestedVirtualization, NESTED)]),
                sustained_clock_speed_in_ghz: (self.clock_mhz > 0)
                    .then(|| f64::from(self.clock_mhz) / 1000.0),
            }),
            ebs_info: Some(ec2::EbsInfo {
                ebs_optimized_support: Some(
                    if self.ebs_mbps.is_some() { "default" } else { "unsupported" }.to_owned(),
                ),
                ebs_optimized_info: self.ebs_mbps.map(|mbps| ec2::EbsOptimizedInfo {
                    maximum_bandwidth_in_mbps: number(mbps),
                    ..Default::default()
                }),
            }),
            instance_storage_supported: Some(self.local_gb > 0),
            instance_storage_info: (self.local_gb > 0).then(|| ec2::InstanceStorageInfo {
                nvme_support: support(Trait::LocalNvme, "required", "unsupported"),
                total_size_in_gb: i64::try_from(self.local_gb).ok(),
                ..Default::default()
            }),
            placement_group_info: Some(ec2::PlacementGroupInfo {
                supported_strategies: all(&PLACEMENT),
            }),
            network_info: Some(ec2::NetworkInfo {
                default_network_card_index: i32::try_from(self.default_card).ok(),
                efa_supported: Some(self.efa_interfaces > 0),
                efa_info: (self.efa_interfaces > 0)
                    .then(|| ec2::EfaInfo { maximum_efa_interfaces: number(self.efa_interfaces) }),
                ena_support: support(Trait::EnaUnsupported, "unsupported", "required"),
                encryption_in_transit_supported: Some(self.is(Trait::EncryptionInTransit)),
                ipv4_addresses_per_interface: number(self.addresses_per_interface),
                maximum_network_cards: i32::try_from(self.interfaces_per_card.len()).ok(),
                network_cards: (0..)
                    .zip(&self.interfaces_per_card)
                    .map(|(index, interfaces)| ec2::NetworkCardInfo {
                        network_card_index: Some(index),
                        maximum_network_interfaces: number(*interfaces),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }),
            gpu_info: some(&self.gpus, |gpus| ec2::GpuInfo {
                gpus: gpus
                    .iter()
                    .map(|gpu| ec2::GpuDeviceInfo {
                        name: Some(gpu.name.clone()),
                        manufacturer: Some(gpu.manufacturer.clone()),
                        count: number(gpu.count),
                        memory_info: Some(ec2::GpuDeviceMemoryInfo {
                            size_in_mib: i32::try_from(gpu.memory_mib).ok(),
                        }),
                    })
                    .collect(),
            }),
            neuron_info: some(&self.neurons, |neurons| ec2::NeuronInfo {
                neuron_devices: neurons
                    .iter()
                    .map(|neuron| ec2::NeuronDeviceInfo {
                        name: Some(neuron.name.clone()),
                        count: number(neuron.count),
                        core_info: Some(ec2::NeuronDeviceCoreInfo {
                            count: number(neuron.cores),
                            ..Default::default()
                        }),
                        ..Default::default()
                    })
                    .collect(),
            }),
            inference_accelerator_info: some(&self.accelerators, |accelerators| {
                ec2::InferenceAcceleratorInfo {
                    accelerators: accelerators
                        .iter()
                        .map(|one| ec2::InferenceDeviceInfo {
                            name: Some(one.name.clone()),
                            manufacturer: Some(one.manufacturer.clone()),
                            count: number(one.count),
                        })
                        .collect(),
                }
            }),
            ..Default::default()
        }
    }
}

impl Network {
    /// For types that are newer than the tables. The baseline of the cards is what the tables have for 1315 of 1326 types.
    pub(super) fn read(info: &ec2::InstanceTypeInfo) -> Self {
        let cards = info.network_info.iter().flat_map(|network| &network.network_cards);
        let mbps = cards.map(|card| mega(card.baseline_bandwidth_in_gbps)).sum();
        Self { bandwidth_mbps: Some(mbps).filter(|mbps| *mbps > 0), branch_interfaces: 0 }
    }
}

const USAGE: [(Trait, &str); 3] = [
    (Trait::OnDemand, "on-demand"),
    (Trait::Spot, "spot"),
    (Trait::CapacityBlock, "capacity-block"),
];
const PLACEMENT: [(Trait, &str); 3] = [
    (Trait::ClusterPlacement, "cluster"),
    (Trait::PartitionPlacement, "partition"),
    (Trait::SpreadPlacement, "spread"),
];
const NESTED: &str = "nested-virtualization";

fn traits(info: &ec2::InstanceTypeInfo) -> Vec<Trait> {
    let network = info.network_info.as_ref();
    let storage = info.instance_storage_info.as_ref();
    let features = info.processor_info.iter().flat_map(|info| &info.supported_features);
    let strategies = info.placement_group_info.iter().flat_map(|info| &info.supported_strategies);
    let strategies: Vec<String> = strategies.cloned().collect();
    let listed = |list: &[String], names: [(Trait, &str); 3]| {
        names.map(|(one, name)| (one, has(list, name)))
    };
    let encrypted = network.and_then(|network| network.encryption_in_transit_supported);
    let ena = network.and_then(|network| network.ena_support.as_deref());
    let has_nvme = |storage: &ec2::InstanceStorageInfo| {
        storage.total_size_in_gb.is_some() && storage.nvme_support.as_deref() != Some("unsupported")
    };
    [
        (Trait::EncryptionInTransit, encrypted == Some(true)),
        (Trait::NitroEnclaves, info.nitro_enclaves_support.as_deref() == Some("supported")),
        (Trait::LocalNvme, storage.is_some_and(has_nvme)),
        (Trait::EnaUnsupported, ena == Some("unsupported")),
        (Trait::NestedVirtualization, features.into_iter().any(|feature| feature == NESTED)),
    ]
    .into_iter()
    .chain(listed(&info.supported_usage_classes, USAGE))
    .chain(listed(&strategies, PLACEMENT))
    .filter_map(|(one, holds)| holds.then_some(one))
    .collect()
}

/// Interfaces by the index of the card, which need not be its place in the list.
fn cards(network: &ec2::NetworkInfo) -> Vec<u32> {
    let mut cards = vec![0; network.network_cards.len()];
    for (place, card) in network.network_cards.iter().enumerate() {
        let index = card.network_card_index.and_then(|index| usize::try_from(index).ok());
        if let Some(slot) = cards.get_mut(index.unwrap_or(place)) {
            *slot = card.maximum_network_interfaces.map_or(0, count);
        }
    }
    cards
}

fn gpu(gpu: &ec2::GpuDeviceInfo) -> Gpu {
    let memory = gpu.memory_info.as_ref().and_then(|memory| memory.size_in_mib);
    Gpu {
        name: gpu.name.clone().unwrap_or_default(),
        manufacturer: gpu.manufacturer.clone().unwrap_or_default(),
        count: gpu.count.map_or(0, count),
        memory_mib: memory.map_or(0, |mib| size(mib.into())),
    }
}

fn neuron(neuron: &ec2::NeuronDeviceInfo) -> Neuron {
    let cores = neuron.core_info.as_ref().and_then(|cores| cores.count);
    Neuron {
        name: neuron.name.clone().unwrap_or_default(),
        count: neuron.count.map_or(0, count),
        cores: cores.map_or(0, count),
    }
}

fn accelerator(one: &ec2::InferenceDeviceInfo) -> Accelerator {
    Accelerator {
        name: one.name.clone().unwrap_or_default(),
        manufacturer: one.manufacturer.clone().unwrap_or_default(),
        count: one.count.map_or(0, count),
    }
}

fn has(list: &[String], name: &str) -> bool {
    list.iter().any(|one| one == name)
}

fn some<T, I>(list: &[T], info: impl FnOnce(&[T]) -> I) -> Option<I> {
    (!list.is_empty()).then(|| info(list))
}

/// Nothing is counted in negative numbers.
fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn size(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn number(count: u32) -> Option<i32> {
    i32::try_from(count).ok()
}

/// Thousands of what EC2 counts in billions.
fn mega(giga: Option<f64>) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate, which is what is wanted"
    )]
    let mega = (giga.unwrap_or(0.0) * 1000.0).round() as u32;
    mega
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::shared;

    #[test]
    fn every_type_of_the_catalogue_survives_ec2s_description() {
        for facts in shared().types() {
            assert_eq!(TypeFacts::read(&facts.described()).as_ref(), Ok(&**facts));
        }
    }

    #[test]
    fn types_that_cannot_run_nodes_are_left_out() {
        let described = shared().get("m5.large").unwrap().described();
        let check = |info: ec2::InstanceTypeInfo, expected: &str| {
            assert_eq!(TypeFacts::read(&info).unwrap_err().to_string(), expected);
        };
        let processor = |architecture: &str| {
            let supported_architectures = vec![architecture.to_owned()];
            Some(ec2::ProcessorInfo { supported_architectures, ..Default::default() })
        };
        let info = || described.clone();
        check(
            ec2::InstanceTypeInfo { instance_type: None, ..info() },
            "EC2 described an instance type without a name",
        );
        check(
            ec2::InstanceTypeInfo { processor_info: processor("x86_64_mac"), ..info() },
            "instance type m5.large is neither amd64 nor arm64",
        );
        check(
            ec2::InstanceTypeInfo {
                supported_virtualization_types: vec!["paravirtual".to_owned()],
                ..info()
            },
            "instance type m5.large has no hardware virtualization",
        );
        check(
            ec2::InstanceTypeInfo { vcpu_info: None, ..info() },
            "EC2's description of instance type m5.large has no number of vCPUs",
        );
    }
}
