//! What EC2 says about an instance type, as far as decisions need it.

use std::fmt;

use kerf_api::labels;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// One instance type. In a document it is a row: a list of these fields in this order, see [`TypeFacts::COLUMNS`]. Fields
/// at the end that have their default are left out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TypeFacts {
    pub name: String,
    pub architecture: Architecture,
    pub vcpus: u32,
    pub memory_mib: u64,
    /// As EC2 writes it: `Intel`, `AMD`, `AWS`.
    pub cpu_manufacturer: String,
    /// Zero where EC2 does not say.
    pub clock_mhz: u32,
    /// `nitro` or `xen`; empty for bare metal.
    pub hypervisor: String,
    pub traits: Traits,
    /// The most that EBS gets, where the type is optimised for it without being asked.
    pub ebs_mbps: Option<u32>,
    /// Decimal gigabytes of local disks; zero where there are none.
    pub local_gb: u64,
    pub addresses_per_interface: u32,
    /// The interfaces of each network card, by its index.
    pub interfaces_per_card: Vec<u32>,
    #[serde(default)]
    pub efa_interfaces: u32,
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    #[serde(default)]
    pub neurons: Vec<Neuron>,
    /// Accelerators for inference. EC2 lists most Neuron devices here a second time.
    #[serde(default)]
    pub accelerators: Vec<Accelerator>,
    /// The card that has the primary interface.
    #[serde(default)]
    pub default_card: usize,
}

impl TypeFacts {
    /// What the places of a row mean.
    pub const COLUMNS: [&str; 17] = [
        "name",
        "architecture",
        "vcpus",
        "memoryMiB",
        "cpuManufacturer",
        "clockMHz",
        "hypervisor",
        "traits",
        "ebsMbps",
        "localGB",
        "addressesPerInterface",
        "interfacesPerCard",
        "efaInterfaces",
        "gpus",
        "neurons",
        "accelerators",
        "defaultCard",
    ];

    /// `m5` of `m5.large`.
    pub fn family(&self) -> &str {
        family(&self.name)
    }

    /// `large` of `m5.large`.
    pub fn size(&self) -> Option<&str> {
        self.name.split_once('.').map(|(_, size)| size)
    }

    pub fn is(&self, one: Trait) -> bool {
        self.traits.has(one)
    }

    /// Interfaces of the card that pods get their addresses from.
    pub fn default_interfaces(&self) -> u32 {
        self.interfaces_per_card.get(self.default_card).copied().unwrap_or(0)
    }

    pub fn gpu_count(&self, manufacturer: &str) -> u32 {
        self.gpus.iter().filter(|gpu| gpu.manufacturer == manufacturer).map(|gpu| gpu.count).sum()
    }

    /// The row of a document.
    pub fn row(&self) -> Value {
        let gpu = |one: &Gpu| json!([one.name, one.manufacturer, one.count, one.memory_mib]);
        let neuron = |one: &Neuron| json!([one.name, one.count, one.cores]);
        let accelerator = |one: &Accelerator| json!([one.name, one.manufacturer, one.count]);
        let mut row = vec![
            json!(self.name),
            json!(self.architecture),
            json!(self.vcpus),
            json!(self.memory_mib),
            json!(self.cpu_manufacturer),
            json!(self.clock_mhz),
            json!(self.hypervisor),
            json!(self.traits.letters()),
            json!(self.ebs_mbps),
            json!(self.local_gb),
            json!(self.addresses_per_interface),
            json!(self.interfaces_per_card),
            json!(self.efa_interfaces),
            Value::Array(self.gpus.iter().map(gpu).collect()),
            Value::Array(self.neurons.iter().map(neuron).collect()),
            Value::Array(self.accelerators.iter().map(accelerator).collect()),
            json!(self.default_card),
        ];
        let is_default = |value: &Value| *value == json!(0) || *value == json!([]);
        while row.len() > 12 && row.last().is_some_and(is_default) {
            row.pop();
        }
        Value::Array(row)
    }
}

/// `m5` of `m5.large`.
pub(crate) fn family(instance_type: &str) -> &str {
    instance_type.split_once('.').map_or(instance_type, |(family, _)| family)
}

/// Those that Kubernetes nodes run on here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    /// By EC2's name.
    pub fn from_ec2(name: &str) -> Option<Self> {
        [Self::Amd64, Self::Arm64].into_iter().find(|one| one.ec2() == name)
    }

    pub(super) fn ec2(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "arm64",
        }
    }

    /// The value of the label `kubernetes.io/arch`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Amd64 => labels::ARCH_AMD64,
            Self::Arm64 => labels::ARCH_ARM64,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Gpu {
    pub name: String,
    /// `NVIDIA`, `AMD`, `Habana`.
    pub manufacturer: String,
    pub count: u32,
    /// Of one.
    pub memory_mib: u64,
}

/// Devices of AWS for machine learning.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Neuron {
    pub name: String,
    pub count: u32,
    /// Of one.
    pub cores: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Accelerator {
    pub name: String,
    pub manufacturer: String,
    pub count: u32,
}

/// What no description of EC2 has: from tables that AWS publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// `None` where AWS only says "moderate" or "high".
    pub bandwidth_mbps: Option<u32>,
    /// Interfaces for pods with security groups of their own; zero where the type cannot have them.
    pub branch_interfaces: u32,
}

/// What an instance type has or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trait {
    OnDemand,
    Spot,
    CapacityBlock,
    EncryptionInTransit,
    NitroEnclaves,
    /// Its local disks are `NVMe` disks.
    LocalNvme,
    /// Its network is not ENA.
    EnaUnsupported,
    NestedVirtualization,
    ClusterPlacement,
    PartitionPlacement,
    SpreadPlacement,
}

impl Trait {
    /// With the letter that stands for it in a row.
    const ALL: [(Self, char); 11] = [
        (Self::OnDemand, 'o'),
        (Self::Spot, 's'),
        (Self::CapacityBlock, 'b'),
        (Self::EncryptionInTransit, 't'),
        (Self::NitroEnclaves, 'e'),
        (Self::LocalNvme, 'n'),
        (Self::EnaUnsupported, 'u'),
        (Self::NestedVirtualization, 'v'),
        (Self::ClusterPlacement, 'c'),
        (Self::PartitionPlacement, 'p'),
        (Self::SpreadPlacement, 'r'),
    ];
}

/// A set of [`Trait`]s.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Traits(u16);

impl Traits {
    pub fn has(self, one: Trait) -> bool {
        self.0 & (1 << one as u16) != 0
    }

    fn letters(self) -> String {
        Trait::ALL.iter().filter(|(one, _)| self.has(*one)).map(|(_, letter)| *letter).collect()
    }
}

impl FromIterator<Trait> for Traits {
    fn from_iter<I: IntoIterator<Item = Trait>>(traits: I) -> Self {
        Self(traits.into_iter().fold(0, |bits, one| bits | 1 << one as u16))
    }
}

impl fmt::Debug for Traits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.letters())
    }
}

impl<'de> Deserialize<'de> for Traits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let letters = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        letters
            .chars()
            .map(|letter| {
                let known = Trait::ALL.iter().find(|(_, known)| *known == letter);
                known.map(|(one, _)| *one).ok_or_else(|| {
                    serde::de::Error::custom(format_args!("{letter:?} stands for no trait"))
                })
            })
            .collect()
    }
}
