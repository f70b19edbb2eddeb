//! How much of a machine's memory its node has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalogue::{Architecture, TypeFacts, family};

const MIB: u64 = 1 << 20;

/// What nodes of a class said that they have, for one set of images: an image decides on the kernel, and the kernel on what it
/// keeps.
///
/// Karpenter takes 7.5 % off while it knows no node of the very type. That is 20 to 40 GiB too much on large types, and it is
/// forgotten at every restart. Here the value can be saved, and a node teaches about the larger types of its family: what is
/// lost is a fixed part and a share, so a larger type loses a smaller share than a smaller one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiscoveredMemory {
    by_type: BTreeMap<String, Observed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    /// Of the machine.
    machine_mib: u64,
    /// Of the node.
    bytes: u64,
}

/// Where the amount of memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// A node of this type.
    Node,
    /// A node of a smaller type of the family, which loses a larger share.
    SmallerNode { instance_type: String },
    /// `--vm-memory-overhead-percent`.
    Estimate,
}

impl DiscoveredMemory {
    /// Notes what a node reported; of several the smallest counts. Says whether that changed anything.
    pub fn observe(&mut self, facts: &TypeFacts, bytes: u64) -> bool {
        let observed = Observed { machine_mib: facts.memory_mib, bytes };
        match self.by_type.get_mut(&facts.name) {
            Some(known) if known.bytes <= bytes => false,
            Some(known) => {
                *known = observed;
                true
            }
            None => {
                self.by_type.insert(facts.name.clone(), observed);
                true
            }
        }
    }

    /// Whether what a node of type `observed` reports may change what `other` is taken to have.
    pub fn concerns(observed: &TypeFacts, other: &TypeFacts) -> bool {
        observed.name == other.name
            || observed.family() == other.family() && observed.memory_mib < other.memory_mib
    }

    /// Bytes of memory.
    pub fn capacity(&self, facts: &TypeFacts, vm_memory_overhead: f64) -> (u64, MemorySource) {
        if let Some(observed) = self.by_type.get(&facts.name) {
            return (observed.bytes, MemorySource::Node);
        }
        let smaller = self.by_type.iter().filter(|(name, observed)| {
            family(name) == facts.family() && observed.machine_mib < facts.memory_mib
        });
        let learned = smaller.map(|(name, observed)| {
            let scaled = u128::from(observed.bytes) * u128::from(facts.memory_mib)
                / u128::from(observed.machine_mib.max(1));
            let bytes = u64::try_from(scaled).unwrap_or(u64::MAX) / MIB * MIB;
            (bytes, MemorySource::SmallerNode { instance_type: name.clone() })
        });
        let estimate = estimate(facts, vm_memory_overhead);
        // Each smaller node is on the safe side, so the one that gives most is nearest.
        learned
            .max_by_key(|(bytes, _)| *bytes)
            .filter(|(bytes, _)| *bytes > estimate)
            .unwrap_or((estimate, MemorySource::Estimate))
    }
}

/// As Karpenter guesses.
fn estimate(facts: &TypeFacts, vm_memory_overhead: f64) -> u64 {
    // The kernel of Arm machines keeps 64 MiB for devices.
    let kept = if facts.architecture == Architecture::Arm64 { 64 } else { 0 };
    let mib = facts.memory_mib.saturating_sub(kept);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate, which is what is wanted"
    )]
    let lost = ((mib * MIB) as f64 * vm_memory_overhead / MIB as f64).ceil() as u64;
    mib.saturating_sub(lost) * MIB
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::shared;

    const SHARE: f64 = 0.075;

    #[test]
    fn a_node_teaches_about_its_type_and_the_larger_ones_of_its_family() {
        let catalogue = shared();
        let facts = |name: &str| catalogue.get(name).unwrap();
        let mib = |memory: &DiscoveredMemory, name: &str| {
            let (bytes, source) = memory.capacity(facts(name), SHARE);
            (bytes / MIB, source)
        };
        let mut memory = DiscoveredMemory::default();
        assert_eq!(mib(&memory, "m5.xlarge"), (15155, MemorySource::Estimate));
        assert_eq!(
            mib(&memory, "m6g.xlarge"),
            (15096, MemorySource::Estimate),
            "64 MiB less on Arm"
        );

        assert!(memory.observe(facts("m5.xlarge"), 15_600 * MIB));
        let learned = || MemorySource::SmallerNode { instance_type: "m5.xlarge".to_owned() };
        assert_eq!(mib(&memory, "m5.xlarge"), (15_600, MemorySource::Node));
        assert_eq!(mib(&memory, "m5.24xlarge"), (374_400, learned()));
        assert_eq!(
            mib(&memory, "m5.large"),
            (7577, MemorySource::Estimate),
            "a smaller one loses more"
        );
        assert_eq!(mib(&memory, "m5d.24xlarge").1, MemorySource::Estimate, "another family");

        assert!(!memory.observe(facts("m5.xlarge"), 15_700 * MIB), "the smallest counts");
        assert!(memory.observe(facts("m5.xlarge"), 15_000 * MIB));
        assert_eq!(mib(&memory, "m5.xlarge"), (15_000, MemorySource::Node));
        assert_eq!(
            mib(&memory, "m5.2xlarge").1,
            MemorySource::Estimate,
            "learning never takes away"
        );

        assert!(DiscoveredMemory::concerns(facts("m5.large"), facts("m5.xlarge")));
        assert!(DiscoveredMemory::concerns(facts("m5.large"), facts("m5.large")));
        assert!(!DiscoveredMemory::concerns(facts("m5.xlarge"), facts("m5.large")));
        assert!(!DiscoveredMemory::concerns(facts("m5.large"), facts("m5d.xlarge")));
    }

    #[test]
    fn what_was_learned_survives_a_restart() {
        let catalogue = shared();
        let mut memory = DiscoveredMemory::default();
        memory.observe(catalogue.get("m5.large").unwrap(), 8_000_000_000);
        let saved = serde_json::to_string(&memory).unwrap();
        assert_eq!(saved, r#"{"m5.large":{"machineMib":8192,"bytes":8000000000}}"#);
        assert_eq!(serde_json::from_str::<DiscoveredMemory>(&saved).unwrap(), memory);
    }
}
