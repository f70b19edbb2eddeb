//! Instance types as scheduling sees them: what EC2 says of a type and what a class asks for, put together.

mod capacity;
mod compatibility;
mod labels;
mod memory;
mod overhead;
mod pods;
mod shape;

use kerf_model::{InstanceType, Offering, Overhead, Requirements, Resources};

use crate::catalogue::{Network, TypeFacts};

pub use compatibility::Unsuitable;
pub use memory::{DiscoveredMemory, MemorySource};
pub use pods::CniSettings;
pub use shape::{ClassShape, ClassZone, PlacementGroup, PlacementStrategy, ShapeError};

/// What holds for all classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub region: String,
    /// The share of a machine's memory that is taken to be lost to the virtual machine while its nodes have not said what is:
    /// `--vm-memory-overhead-percent`, 0.075 if not set.
    pub vm_memory_overhead: f64,
    /// Interfaces that give no addresses to pods: `--reserved-enis`.
    pub reserved_enis: u32,
    pub cni: CniSettings,
    /// The feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
}

/// What EC2 and AWS's tables say of a type.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub facts: &'a TypeFacts,
    pub network: Network,
    /// The zones of the region that offer the type, whether the class has a subnet there or not.
    pub zones: &'a [String],
}

/// A type without its offerings: what stays while prices and availability change.
#[derive(Clone, Debug)]
pub struct BareType {
    name: String,
    requirements: Requirements,
    capacity: Resources,
    overhead: Overhead,
}

impl BareType {
    pub fn new(
        known: Known<'_>,
        shape: &ClassShape,
        settings: &Settings,
        memory: &DiscoveredMemory,
    ) -> Self {
        let capacity = capacity::capacity(known, shape, settings, memory);
        Self {
            name: known.facts.name.clone(),
            requirements: labels::requirements(known, shape, settings),
            overhead: overhead::overhead(known.facts, shape, settings, &capacity),
            capacity,
        }
    }

    /// A type that is to have other offerings.
    pub fn of(instance_type: &InstanceType) -> Self {
        Self {
            name: instance_type.name().to_owned(),
            requirements: instance_type.requirements().clone(),
            capacity: instance_type.capacity().clone(),
            overhead: instance_type.overhead().clone(),
        }
    }

    pub fn with_offerings(self, offerings: Vec<Offering>) -> InstanceType {
        let Self { name, requirements, capacity, overhead } = self;
        InstanceType::new(name, requirements, offerings, capacity, overhead)
    }
}

impl Default for Settings {
    /// Those of an operator without flags, in us-east-1.
    fn default() -> Self {
        Self {
            region: crate::catalogue::FALLBACK_REGION.to_owned(),
            vm_memory_overhead: 0.075,
            reserved_enis: 0,
            cni: CniSettings::default(),
            reserved_capacity: true,
        }
    }
}

#[cfg(test)]
pub(crate) use tests::class as class_for_tests;

#[cfg(test)]
mod tests;
