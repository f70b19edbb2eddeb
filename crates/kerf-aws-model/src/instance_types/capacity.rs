//! What a node has.

use kerf_aws_api::resources::{
    AMD_GPU, EFA, GAUDI, NEURON, NEURON_CORE, NVIDIA_GPU, POD_ENI, PRIVATE_IPV4_ADDRESS,
};
use kerf_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use kerf_model::{Quantity, Resources};

use super::memory::DiscoveredMemory;
use super::pods::pods;
use super::shape::ClassShape;
use super::{Known, Settings};
use crate::catalogue::Architecture;

/// Without resources of which there are none. Karpenter lists those with zero, to the same effect.
pub(super) fn capacity(
    known: Known<'_>,
    shape: &ClassShape,
    settings: &Settings,
    memory: &DiscoveredMemory,
) -> Resources {
    let facts = known.facts;
    let storage = match facts.local_gb {
        local_gb if shape.local_disks && local_gb > 0 => {
            Quantity::from_units(whole(local_gb.saturating_mul(1_000_000_000)))
        }
        _ => shape.storage,
    };
    let neurons: u32 = facts.neurons.iter().map(|neuron| neuron.count).sum();
    let cores = facts.neurons.first().map_or(0, |neuron| neuron.count * neuron.cores);
    let efa = match shape.interfaces {
        Some(_) => shape.efa_only(None),
        None => facts.efa_interfaces,
    };
    let on_windows = shape.family.is_windows() && facts.architecture == Architecture::Amd64;
    let addresses = if on_windows { facts.addresses_per_interface.saturating_sub(1) } else { 0 };
    let (memory, _) = memory.capacity(facts, settings.vm_memory_overhead);
    let mut capacity = Resources::new()
        .with(CPU, Quantity::from_units(facts.vcpus.into()))
        .with(MEMORY, Quantity::from_bytes(whole(memory)))
        .with(EPHEMERAL_STORAGE, storage)
        .with(PODS, Quantity::from_units(pods(facts, shape, settings).into()));
    for (name, count) in [
        (NVIDIA_GPU, facts.gpu_count("NVIDIA")),
        (AMD_GPU, facts.gpu_count("AMD")),
        (GAUDI, facts.gpu_count("Habana")),
        (NEURON, neurons),
        (NEURON_CORE, cores),
        (POD_ENI, known.network.branch_interfaces),
        (EFA, efa),
        (PRIVATE_IPV4_ADDRESS, addresses),
    ] {
        if count > 0 {
            capacity.set(name, Quantity::from_units(count.into()));
        }
    }
    capacity
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
