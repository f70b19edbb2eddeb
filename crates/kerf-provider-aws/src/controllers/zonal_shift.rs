//! Zones that traffic is shifted away from (Amazon Application Recovery Controller): nothing is launched there.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kerf_api::NodePool;
use kerf_aws_api::Ec2NodeClass;
use kerf_aws_client::AwsError;
use kerf_aws_model::{errors::Meaning, zonal_shift::shifted_zones};
use kerf_aws_wire::{arc_zonal_shift::GetManagedResourceRequest, eks::DescribeClusterRequest};
use kerf_cluster::Cluster;
use kerf_provider::{BoxError, ControllerContext, Registry};
use kerf_runtime::events::{Notice, Severity};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::trouble::keep_at;
use crate::cloud::AwsCloud;

const EVERY: Duration = Duration::from_secs(30);

pub(crate) fn register(cloud: &Arc<AwsCloud>, registry: &mut Registry) {
    if cloud.options().zonal_shift {
        let shift = ZonalShift { cloud: Arc::clone(cloud), arn: Mutex::default() };
        registry.add_lasting("zonalshift", |context, stop| shift.run(context, stop));
    }
}

/// Asks for shifts of the cluster.
struct ZonalShift {
    cloud: Arc<AwsCloud>,
    arn: Mutex<Option<String>>,
}

impl ZonalShift {
    async fn run(self, context: Arc<dyn ControllerContext>, stop: CancellationToken) {
        let pass = || self.pass(&*context);
        keep_at("asking for zonal shifts", EVERY, stop, advice, pass).await;
    }

    async fn pass(&self, context: &dyn ControllerContext) -> Result<(), BoxError> {
        let request = GetManagedResourceRequest { resource_identifier: Some(self.arn().await?) };
        let resource = self.cloud.aws().get_managed_resource(&request).await?;
        let zones = shifted_zones(&resource, context.clock().now());
        let before = self.cloud.offers().note(|market, _| market.shifted_zones.clone());
        if zones == before {
            return Ok(());
        }
        self.cloud.offers().change(|market, _| market.shifted_zones.clone_from(&zones));
        report(context, "ZonalShiftActive", zones.difference(&before));
        report(context, "ZonalShiftCleared", before.difference(&zones));
        Ok(())
    }

    /// The cluster's own, by which the controller of shifts knows it.
    async fn arn(&self) -> Result<String, AwsError> {
        if let Some(known) = self.arn.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Ok(known);
        }
        let name = Some(self.cloud.cluster().access.name.clone());
        let request = DescribeClusterRequest { name };
        let described = self.cloud.aws().describe_cluster(&request).await?;
        let arn = described.cluster.and_then(|cluster| cluster.arn).unwrap_or_default();
        *self.arn.lock().unwrap_or_else(PoisonError::into_inner) = Some(arn.clone());
        Ok(arn)
    }
}

fn advice(error: &BoxError) -> String {
    match error.downcast_ref().map_or(Meaning::Other, AwsError::meaning) {
        Meaning::Unauthorized => {
            "allow arc-zonal-shift:GetManagedResource and eks:DescribeCluster".to_owned()
        }
        _ => "enable zonal shift for the cluster, or set --enable-zonal-shift=false".to_owned(),
    }
}

/// Says it on the pools that have subnets in the zones.
fn report<'a>(
    context: &dyn ControllerContext,
    reason: &'static str,
    zones: impl Iterator<Item = &'a String>,
) {
    for zone in zones {
        info!(zone, reason, "a zonal shift of the cluster has begun or ended");
        let pools = pools_in(&context.cluster(), zone);
        for pool in pools {
            let message = match reason {
                "ZonalShiftActive" => format!(
                    "Traffic is shifted away from zone {zone}: nothing is launched there for the NodePool"
                ),
                _ => format!("Traffic is no longer shifted away from zone {zone}"),
            };
            let notice = Notice::about(&*pool, Severity::Normal, reason, message);
            let uid = pool.metadata.uid.clone().unwrap_or_default();
            context.recorder().record(notice.same_if(vec![uid, zone.clone()]));
        }
    }
}

fn pools_in(cluster: &Cluster, zone_id: &str) -> Vec<Arc<NodePool>> {
    let classes = cluster.node_classes().values();
    let has_subnet = |class: &Ec2NodeClass| {
        let subnets = class.status.iter().flat_map(|status| &status.subnets);
        subnets.filter_map(|subnet| subnet.zone_id.as_deref()).any(|id| id == zone_id)
    };
    let concerned: BTreeSet<String> = classes
        .filter(|class| Ec2NodeClass::read(class).is_ok_and(|class| has_subnet(&class)))
        .map(|class| class.reference.name.clone())
        .collect();
    let pools = cluster.pools().values();
    let of_class =
        |pool: &&Arc<NodePool>| concerned.contains(&pool.spec.template.spec.node_class_ref.name);
    pools.filter(of_class).cloned().collect()
}
