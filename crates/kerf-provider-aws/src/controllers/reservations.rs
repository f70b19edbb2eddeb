//! Reservations that end: instances that go on without theirs, and capacity blocks that take their instances with them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kerf_api::{NodeClaim, ObjectExt, labels};
use kerf_aws_api::{Ec2NodeClass, labels as aws_labels};
use kerf_aws_model::{
    instance::{ProviderId, has_lost_reservation, is_in_expiring_block},
    messages::Event,
};
use kerf_provider::{BoxError, ControllerContext, Registry};
use kube::{Resource, ResourceExt};
use tracing::info;

use super::affected::Affected;
use crate::cloud::AwsCloud;

const EVERY: Duration = Duration::from_mins(1);

const EXPIRING: Event = Event {
    reason: "CapacityBlockExpiring",
    message: "The capacity block ends soon, and EC2 takes its instances 30 minutes before",
    warning: true,
};
/// Its cause, in metrics.
const CAUSE: &str = "capacity_block_expiring";

pub(crate) fn register(cloud: &Arc<AwsCloud>, registry: &mut Registry) {
    let cloud = Arc::clone(cloud);
    registry.add_periodic("capacityreservation.capacitytype", EVERY, move |context| {
        let cloud = Arc::clone(&cloud);
        async move { sync_capacity_type(&cloud, &*context).await }
    });
    registry.add_periodic("capacityreservation.expiration", EVERY, |context| async move {
        leave_expiring_blocks(&*context).await
    });
}

/// A claim counts as reserved while its instance is in its reservation.
async fn sync_capacity_type(
    cloud: &AwsCloud,
    context: &dyn ControllerContext,
) -> Result<(), BoxError> {
    let reserved = claims(context, |claim| {
        let capacity_type = claim.labels().get(labels::CAPACITY_TYPE);
        capacity_type.is_some_and(|it| it == labels::CAPACITY_TYPE_RESERVED)
    });
    // Asked for together: many of them are one call.
    let synced = reserved.iter().map(|affected| sync(cloud, context, affected));
    join_all(synced).await.into_iter().collect()
}

async fn sync(
    cloud: &AwsCloud,
    context: &dyn ControllerContext,
    affected: &Affected,
) -> Result<(), BoxError> {
    let claim = &affected.claim;
    let Ok(id) = claim.provider_id().parse::<ProviderId>() else { return Ok(()) };
    let Some(instance) = cloud.instances().get(&id.instance).await? else { return Ok(()) };
    if !has_lost_reservation(claim.labels(), &instance) {
        return Ok(());
    }
    let mut changed = NodeClaim::clone(claim);
    leave_reservation(changed.meta_mut());
    context.write_claim(claim, changed).await?;
    info!(claim = claim.name_any(), "the reservation of the instance has ended, it runs on demand");
    if let Some(node) = &affected.node {
        let mut changed = Node::clone(node);
        leave_reservation(changed.meta_mut());
        context.write_node(node, changed).await?;
    }
    Ok(())
}

fn leave_reservation(metadata: &mut ObjectMeta) {
    let all = metadata.labels.get_or_insert_default();
    all.insert(labels::CAPACITY_TYPE.to_owned(), labels::CAPACITY_TYPE_ON_DEMAND.to_owned());
    for label in [
        aws_labels::CAPACITY_RESERVATION_ID,
        aws_labels::CAPACITY_RESERVATION_TYPE,
        aws_labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ] {
        all.remove(label);
    }
}

/// Gives up the claims of capacity blocks that are about to end, while there is time to drain them.
async fn leave_expiring_blocks(context: &dyn ControllerContext) -> Result<(), BoxError> {
    let reserved =
        claims(context, |claim| claim.labels().contains_key(aws_labels::CAPACITY_RESERVATION_ID));
    let mut classes = BTreeMap::new();
    let mut result = Ok(());
    for one in reserved {
        let reference = &one.claim.spec.node_class_ref;
        let status = classes.entry(reference.name.clone()).or_insert_with(|| {
            let class = context.cluster().node_class(reference).cloned()?;
            // One that cannot be read is reported where it is used.
            Ec2NodeClass::read(&class).ok()?.status
        });
        if status.as_ref().is_some_and(|status| is_in_expiring_block(one.claim.labels(), status)) {
            one.report(context.recorder(), EXPIRING);
            result = result.and(one.disrupt(context, CAUSE).await);
        }
    }
    result
}

fn claims(context: &dyn ControllerContext, wanted: impl Fn(&NodeClaim) -> bool) -> Vec<Affected> {
    let cluster = context.cluster();
    let claims = cluster.claims().values();
    let claims = claims.filter(|claim| !claim.is_deleting() && wanted(claim));
    claims.map(|claim| Affected::of_claim(&cluster, claim)).collect()
}
