//! The provider as the binary lists it.

use std::sync::Arc;

use kerf_api::crd::Additions;
use kerf_aws_api::{GROUP, KIND, PLURAL, VERSION, additions};
use kerf_aws_client::AwsClient;
use kerf_provider::{
    BoxError, Catalogue, CloudProvider, Connect, Flag, FlagValues, NodeClassKind, Provider,
    rbac::{Rule, Scope},
};
use kerf_runtime::Metrics;

use crate::{
    connection::Connection,
    controllers::interruption,
    metrics::CloudMetrics,
    offline::{OfflineCatalogue, catalogue},
    options::{self, Options},
    start::Start,
};

pub(crate) const NAME: &str = "aws";

pub(crate) fn node_class() -> NodeClassKind {
    NodeClassKind {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        kind: KIND.to_owned(),
        plural: PLURAL.to_owned(),
    }
}

/// The AWS provider before it is connected.
#[derive(Clone, Copy, Debug)]
pub struct Aws;

impl Provider for Aws {
    fn name(&self) -> &'static str {
        NAME
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![node_class()]
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

    fn rules(&self) -> &'static [Rule] {
        const RULES: &[Rule] = &[
            Rule::new(GROUP, &[PLURAL], &["list", "watch", "patch"]),
            Rule::new(GROUP, &["ec2nodeclasses/status"], &["patch"]),
            Rule::new(GROUP, &[PLURAL], &["get"])
                .rarely("a new list does not have an EC2NodeClass that was just written, or the watch has not brought the one of a new NodeClaim"),
            // The address of the cluster's DNS, for the kubelets of new nodes.
            Rule::new("", &["services"], &["get"])
                .only(&["kube-dns"])
                .within(Scope::Namespace("kube-system")),
            // How the network plugin hands out addresses.
            Rule::new("apps", &["daemonsets"], &["get"])
                .only(&["aws-node"])
                .within(Scope::Namespace("kube-system")),
        ];
        RULES
    }

    fn flags(&self) -> &'static [&'static Flag] {
        &options::ALL
    }

    fn check(&self, flags: &FlagValues) -> Result<(), BoxError> {
        catalogue(&Options::read_for_cluster(flags)?)?;
        Ok(())
    }

    fn catalogue(&self, flags: &FlagValues) -> Result<Box<dyn Catalogue>, BoxError> {
        Ok(Box::new(OfflineCatalogue::new(&Options::read(flags)?)?))
    }

    fn register_metrics(&self, metrics: &Metrics) {
        AwsClient::register_metrics(metrics);
        CloudMetrics::register_examples(metrics);
        interruption::register_metrics(metrics);
    }

    fn connect(&self, with: Connect<'_>) -> Result<Arc<dyn CloudProvider>, BoxError> {
        Ok(Arc::new(Connection::new(Start::new(with)?)))
    }
}
