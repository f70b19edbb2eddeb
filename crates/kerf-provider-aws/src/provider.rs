//! The provider as the binary lists it.

use std::sync::Arc;

use kerf_api::crd::Additions;
use kerf_aws_api::{GROUP, KIND, PLURAL, VERSION, additions};
use kerf_provider::{
    BoxError, Catalogue, CloudProvider, Connect, Flag, FlagValues, NodeClassKind, Provider,
};

use crate::{
    offline::OfflineCatalogue,
    options::{self, Options},
};

/// The AWS provider before it is connected.
#[derive(Clone, Copy, Debug)]
pub struct Aws;

impl Provider for Aws {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![NodeClassKind {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            kind: KIND.to_owned(),
            plural: PLURAL.to_owned(),
        }]
    }

    /// All that instance types follow from. User data, role, tags and context have no part in them.
    fn saved_fields(&self) -> &'static [&'static str] {
        &[
            "spec.amiFamily",
            "spec.amiSelectorTerms",
            "spec.blockDeviceMappings",
            "spec.capacityReservationSelectorTerms",
            "spec.connectionTracking",
            "spec.cpuOptions",
            "spec.instanceStorePolicy",
            "spec.kubelet",
            "spec.networkInterfaces",
            "spec.placementGroupSelector",
            "spec.securityGroupSelectorTerms",
            "spec.subnetSelectorTerms",
            "status",
        ]
    }

    fn additions(&self) -> Additions<'static> {
        additions()
    }

    fn flags(&self) -> &'static [&'static Flag] {
        &options::ALL
    }

    fn check(&self, flags: &FlagValues) -> Result<(), BoxError> {
        Options::read_for_cluster(flags).map(drop)
    }

    fn catalogue(&self, flags: &FlagValues) -> Result<Box<dyn Catalogue>, BoxError> {
        Ok(Box::new(OfflineCatalogue::new(&Options::read(flags)?)?))
    }

    fn can_connect(&self) -> bool {
        false
    }

    fn connect(&self, _with: Connect<'_>) -> Result<Arc<dyn CloudProvider>, BoxError> {
        Err("the AWS provider serves plans and cannot launch anything yet".into())
    }
}
