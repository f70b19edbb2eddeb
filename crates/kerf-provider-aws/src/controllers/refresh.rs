//! What AWS and the cluster said at the start is asked for again: instance types, prices, the version of the cluster.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kerf_provider::{BoxError, ControllerContext, Registry};
use tracing::info;

use crate::{cloud::AwsCloud, cluster, market};

/// Types and on-demand prices change a few times a year.
const DAILY: SignedDuration = SignedDuration::from_hours(12);
/// A pass that finds them young enough does nothing, and one that fails is made again after this time.
const LOOK_AT_AGE: Duration = Duration::from_hours(1);
/// Spot prices move within the hour, and consolidation goes by them.
const SPOT: Duration = Duration::from_mins(12);
const SPOT_IS_YOUNG: SignedDuration = SignedDuration::from_mins(10);
const VERSION: Duration = Duration::from_mins(5);

pub(crate) fn register(cloud: &Arc<AwsCloud>, registry: &mut Registry) {
    let add = |registry: &mut Registry, name, every, pass: Pass| {
        let cloud = Arc::clone(cloud);
        registry.add_periodic(name, every, move |context| {
            let cloud = Arc::clone(&cloud);
            async move { pass.make(&cloud, &*context).await }
        });
    };
    add(registry, "aws.instancetype", LOOK_AT_AGE, Pass::Types);
    add(registry, "aws.pricing", LOOK_AT_AGE, Pass::OnDemandPrices);
    add(registry, "aws.pricing.spot", SPOT, Pass::SpotPrices);
    add(registry, "aws.version", VERSION, Pass::Cluster);
}

#[derive(Clone, Copy)]
enum Pass {
    Types,
    OnDemandPrices,
    SpotPrices,
    Cluster,
}

impl Pass {
    async fn make(self, cloud: &AwsCloud, context: &dyn ControllerContext) -> Result<(), BoxError> {
        match self {
            Self::Types => types(cloud).await,
            Self::OnDemandPrices => on_demand_prices(cloud).await,
            Self::SpotPrices => spot_prices(cloud).await,
            Self::Cluster => cluster_facts(cloud, context).await,
        }
    }
}

async fn types(cloud: &AwsCloud) -> Result<(), BoxError> {
    if is_young(cloud, cloud.offers().read_at().types, DAILY) {
        return Ok(());
    }
    let name = cloud.cluster().region.clone();
    let region = market::region(cloud.aws(), &name, cloud.catalogue()).await?;
    if region.types.is_empty() {
        return Err(format!("EC2 lists no instance types in {name}; those from before stay").into());
    }
    let (types, zones) = (region.types.len(), region.zones.join(","));
    if cloud.offers().take_region(region) {
        info!(types, zones, "instance types or their zones have changed");
    }
    Ok(())
}

async fn on_demand_prices(cloud: &AwsCloud) -> Result<(), BoxError> {
    if cloud.options().isolated_vpc || is_young(cloud, cloud.offers().read_at().on_demand, DAILY) {
        return Ok(());
    }
    let read = market::on_demand(cloud.aws(), &cloud.cluster().region).await;
    let changed = cloud.offers().take_on_demand(read)?;
    if changed > 0 {
        info!(types = changed, "on-demand prices have changed");
    }
    Ok(())
}

/// Of all types in the zones that nodes can be launched in: each of them may be what a node is replaced with.
async fn spot_prices(cloud: &AwsCloud) -> Result<(), BoxError> {
    if is_young(cloud, cloud.offers().read_at().spot, SPOT_IS_YOUNG) {
        return Ok(());
    }
    let zones = cloud.offers().zones_in_use();
    if zones.is_empty() {
        return Ok(());
    }
    let named = zones.join(",");
    let read = market::spot(cloud.aws(), zones, cloud.clock().now()).await;
    let changed = cloud.offers().take_spot(read)?;
    if changed > 0 {
        info!(types = changed, zones = named, "spot prices have changed");
    }
    Ok(())
}

/// The version, which images are chosen by; and what was not known at the start.
async fn cluster_facts(cloud: &AwsCloud, context: &dyn ControllerContext) -> Result<(), BoxError> {
    let known = cloud.cluster();
    let eks_knows = cloud.options().eks_control_plane || known.access.service_cidr.is_none();
    let described = if eks_knows {
        Some(cluster::describe(cloud.aws(), &known.access.name).await)
    } else {
        None
    };
    let mut learned = (*known).clone();
    if let Some(Ok(described)) = &described {
        let service_cidr = &mut learned.access.service_cidr;
        *service_cidr = service_cidr.take().or_else(|| cluster::service_cidr(described));
    }
    if learned.dns.is_none() {
        learned.dns = cluster::dns_address(context.client()).await;
    }
    cloud.learn_cluster(learned);

    let version = if cloud.options().eks_control_plane {
        match described.transpose()?.and_then(|described| described.version) {
            Some(version) => version,
            None => return Err("EKS does not say the version of the cluster".into()),
        }
    } else {
        cluster::version_of_api_server(context.client()).await?
    };
    let before = cloud.kubernetes_version();
    if *before != *version {
        info!(before = &*before, version, "the cluster has another version of Kubernetes");
        cluster::look_at_version(&version);
        cloud.learn_version(&version);
    }
    Ok(())
}

fn is_young(cloud: &AwsCloud, read: Option<Timestamp>, most: SignedDuration) -> bool {
    read.is_some_and(|read| cloud.clock().now().duration_since(read) < most)
}

#[cfg(test)]
mod tests;
