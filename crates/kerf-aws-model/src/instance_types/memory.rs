//! How much of a machine's memory its node has.

use std::collections::{BTreeMap, BTreeSet};

use kerf_aws_api::{Ec2NodeClass, annotations};
use serde::{Deserialize, Serialize};

use crate::{
    catalogue::{Architecture, TypeFacts, family},
    digest::digest,
};

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

/// As it is written on the class: it counts for these images only.
#[derive(Serialize, Deserialize)]
struct Saved<M> {
    images: String,
    types: M,
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
    /// What is written on the class, if its images are still those.
    pub fn of(class: &Ec2NodeClass) -> Self {
        let written = class.metadata.annotations.as_ref();
        let text = written.and_then(|all| all.get(annotations::DISCOVERED_MEMORY));
        let saved: Option<Saved<Self>> = text.and_then(|text| serde_json::from_str(text).ok());
        let saved = saved.filter(|saved| saved.images == images(class));
        saved.map(|saved| saved.types).unwrap_or_default()
    }

    /// What is to be written on the class.
    pub fn write(&self, class: &Ec2NodeClass) -> String {
        let saved = Saved { images: images(class), types: self };
        // Maps of texts and numbers are always JSON.
        serde_json::to_string(&saved).unwrap_or_default()
    }

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

/// A name for the images that the class has now.
fn images(class: &Ec2NodeClass) -> String {
    let amis = class.status.iter().flat_map(|status| &status.amis);
    let ids: BTreeSet<&str> = amis.map(|ami| ami.id.as_str()).collect();
    format!("{:016x}", digest(ids.into_iter().map(str::as_bytes)))
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
    use kerf_aws_api::Ami;

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
    fn what_was_learned_is_written_on_the_class_and_counts_for_its_images() {
        let catalogue = shared();
        let mut memory = DiscoveredMemory::default();
        memory.observe(catalogue.get("m5.large").unwrap(), 8_000_000_000);
        let class = |images: &[&str], written: Option<&str>| {
            let mut class = Ec2NodeClass::default();
            let ami = |id: &&str| Ami { id: (*id).to_owned(), ..Ami::default() };
            class.status.get_or_insert_default().amis = images.iter().map(ami).collect();
            let written =
                written.map(|it| (annotations::DISCOVERED_MEMORY.to_owned(), it.to_owned()));
            class.metadata.annotations = Some(written.into_iter().collect());
            class
        };
        let text = memory.write(&class(&["ami-1", "ami-2"], None));
        assert!(
            text.ends_with(r#""types":{"m5.large":{"machineMib":8192,"bytes":8000000000}}}"#),
            "{text}"
        );
        let nothing = DiscoveredMemory::default();
        for (images, written, expected) in [
            (&["ami-1", "ami-2"][..], Some(&*text), &memory),
            (&["ami-2", "ami-1"], Some(&text), &memory),
            (&["ami-1"], Some(&text), &nothing),
            (&["ami-1", "ami-3"], Some(&text), &nothing),
            (&["ami-1", "ami-2"], None, &nothing),
            (&["ami-1", "ami-2"], Some("nonsense"), &nothing),
        ] {
            let got = DiscoveredMemory::of(&class(images, written));
            assert_eq!(got, *expected, "{images:?} {written:?}");
        }
    }
}
