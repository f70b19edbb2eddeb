//! Which types cannot be launched for a class, whatever is free.

use super::shape::{ClassShape, PlacementStrategy};
use crate::catalogue::{Trait, TypeFacts};
use kerf_aws_api::AmiFamily;

/// Why no instance of a type can be launched for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    #[error("AL2023 does not run on a1")]
    ImageDoesNotRun,
    #[error("its network is not ENA, which networkInterfaces need")]
    NoEna,
    #[error("it has no device {device} on network card {card}")]
    NoSuchInterface { card: i32, device: i32 },
    #[error("it has {has} EFA interfaces, and networkInterfaces has {wanted}")]
    TooFewEfaInterfaces { wanted: u32, has: u32 },
    #[error("it has no nested virtualization")]
    NoNestedVirtualization,
    #[error("it cannot be in the class's placement group")]
    NotInPlacementGroup,
    #[error("connectionTracking needs a Nitro machine")]
    NoConnectionTracking,
}

impl ClassShape {
    pub fn suits(&self, facts: &TypeFacts) -> Result<(), Unsuitable> {
        if self.family == AmiFamily::Al2023 && facts.family() == "a1" {
            return Err(Unsuitable::ImageDoesNotRun);
        }
        self.interfaces_fit(facts)?;
        if self.nested_virtualization && !facts.is(Trait::NestedVirtualization) {
            return Err(Unsuitable::NoNestedVirtualization);
        }
        let placement = self.placement.as_ref().map(|group| match group.strategy {
            PlacementStrategy::Cluster => Trait::ClusterPlacement,
            PlacementStrategy::Partition { .. } => Trait::PartitionPlacement,
            PlacementStrategy::Spread => Trait::SpreadPlacement,
        });
        if placement.is_some_and(|strategy| !facts.is(strategy)) {
            return Err(Unsuitable::NotInPlacementGroup);
        }
        if self.connection_tracking && facts.hypervisor != "nitro" {
            return Err(Unsuitable::NoConnectionTracking);
        }
        Ok(())
    }

    fn interfaces_fit(&self, facts: &TypeFacts) -> Result<(), Unsuitable> {
        let Some(interfaces) = &self.interfaces else { return Ok(()) };
        if facts.is(Trait::EnaUnsupported) {
            return Err(Unsuitable::NoEna);
        }
        for one in interfaces {
            let (card, device) = (one.network_card_index, one.device_index);
            let devices =
                usize::try_from(card).ok().and_then(|card| facts.interfaces_per_card.get(card));
            let there = devices
                .is_some_and(|devices| u32::try_from(device).is_ok_and(|device| device < *devices));
            if !there {
                return Err(Unsuitable::NoSuchInterface { card, device });
            }
        }
        let (wanted, has) = (self.efa_only(None), facts.efa_interfaces);
        if wanted > has { Err(Unsuitable::TooFewEfaInterfaces { wanted, has }) } else { Ok(()) }
    }
}
