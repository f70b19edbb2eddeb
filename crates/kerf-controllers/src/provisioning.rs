//! From pending pods to NodeClaims.

mod batcher;
mod claims;
mod snapshot;

use std::{sync::Arc, time::Duration};

use kerf_api::{NodeClaim, taints};
use kerf_cluster::{Change, pods};
use kerf_runtime::events::{Notice, Severity};
use kerf_scheduler::{Placement, Plan, PlannedClaim};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::{
    claim_creation::Permit,
    context::Context,
    error::{Error, Result},
    static_capacity,
};

pub(crate) use batcher::Batcher;
pub(crate) use snapshot::all_pools;

/// Pods without a node are looked at again this often: prices, limits and instance types change without an event.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Opens a batch when a pod wants a node or a node is about to lose its pods.
pub(crate) fn notice(batcher: &Batcher, change: &Change) {
    match change {
        Change::Pod(delta) => {
            if let Some(pod) = &delta.after
                && pods::is_provisionable(pod)
            {
                batcher.trigger(pod.uid().unwrap_or_default());
            }
        }
        Change::Node(delta) => {
            if let Some(node) = &delta.after
                && let Some(on_node) = node.spec.as_ref().and_then(|spec| spec.taints.as_ref())
                && on_node.iter().any(|taint| taints::same(taint, &taints::disrupted()))
            {
                batcher.trigger(node.uid().unwrap_or_default());
            }
        }
        _ => {}
    }
}

pub(crate) async fn run(context: Arc<Context>, batcher: Batcher, stop: CancellationToken) {
    let batching = context.settings.batching;
    let mut pending = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = batcher.batch(batching.idle, batching.max) => {}
            () = tokio::time::sleep(TRY_AGAIN), if pending => {}
        }
        // A batch that meets an unsynced index waits for it; it is never dropped.
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = launched(&context) => {}
        }
        pending = match provision(&context).await {
            Ok(pending) => pending,
            Err(error) => {
                error!(controller = "provisioner", %error, "provisioning failed");
                true
            }
        };
    }
}

/// Waits until every claim has its instance: before that its size is unknown, and pods would be planned twice.
async fn launched(context: &Context) {
    let mut poll = tokio::time::interval(Duration::from_millis(100));
    while !is_synced(context) {
        poll.tick().await;
    }
}

/// Whether every claim has its instance.
pub(crate) fn is_synced(context: &Context) -> bool {
    let cluster = context.index.read();
    !cluster
        .claims()
        .values()
        .any(|claim| is_unlaunched(context, claim) && !static_capacity::has_failed(&cluster, claim))
}

fn is_unlaunched(context: &Context, claim: &NodeClaim) -> bool {
    context.manages(&claim.spec.node_class_ref)
        && claim.metadata.deletion_timestamp.is_none()
        && claim.status.as_ref().is_none_or(|status| status.provider_id.is_empty())
}

/// Plans once for all pods that need a place and launches what is missing. Whether there are such pods: they are looked at
/// again even if all of them got a claim, because a claim can come to nothing without another event on a pod.
async fn provision(context: &Context) -> Result<bool> {
    let Some(snapshot) = snapshot::take(context).await? else { return Ok(false) };
    let plan = kerf_scheduler::schedule(&snapshot, &context.settings.scheduling());
    publish_placements(context, &plan.placements);
    publish_failures(context, &plan);
    for planned in &plan.claims {
        // One claim that cannot be created does not keep the others from it.
        if let Err(error) = create(context, planned).await {
            error!(controller = "provisioner", pool = planned.pool.name, %error, "claim was not created");
        }
    }
    Ok(true)
}

async fn create(context: &Context, planned: &PlannedClaim) -> Result<()> {
    let (permit, claim) = prepare(context, planned)?;
    let created = permit.create(claim, "provisioned").await?;
    publish_planned(context, planned, &created.name_any());
    Ok(())
}

/// The claim that was planned, with permission to create it.
pub(crate) fn prepare<'a>(
    context: &'a Context,
    planned: &PlannedClaim,
) -> Result<(Permit<'a>, NodeClaim)> {
    let name = || planned.pool.name.clone();
    let pool =
        context.managed_pool(&planned.pool.name).ok_or_else(|| Error::PoolGone { pool: name() })?;
    let known = context.known_labels();
    let claim = claims::build(&pool, planned, &known, context.provider.label_rules());
    let permit =
        context.permits(&pool, 1).pop().ok_or_else(|| Error::NodeLimit { pool: name() })?;
    Ok((permit, claim))
}

/// Tells pods of the claim that was created for them.
pub(crate) fn publish_planned(context: &Context, planned: &PlannedClaim, claim: &str) {
    for pod in &planned.pods {
        nominate(context, pod, &format!("nodeclaim/{claim}"));
    }
}

/// Keeps places on what is there for the pods that were planned onto it, and tells the pods.
pub(crate) fn publish_placements(context: &Context, placements: &[Placement]) {
    let until = context.now() + context.settings.batching.nomination_window();
    for placement in placements {
        let node = &placement.node;
        if let Some(claim) = &node.claim {
            context.index.nominate(claim, until);
        }
        let target = match (&node.claim, node.exists) {
            (Some(claim), true) => format!("nodeclaim/{claim}, node/{}", node.name),
            (Some(claim), false) => format!("nodeclaim/{claim}"),
            (None, _) => format!("node/{}", node.name),
        };
        for pod in &placement.pods {
            nominate(context, pod, &target);
        }
    }
}

fn publish_failures(context: &Context, plan: &Plan) {
    for failure in &plan.failures {
        let Some(pod) = pod_object(context, &failure.pod) else { continue };
        debug!(pod = failure.pod.key(), reason = %failure.refusal, "pod has no place");
        let message = format!("Failed to schedule pod, {}", failure.refusal);
        let notice = Notice::about(&*pod, Severity::Warning, "FailedScheduling", message);
        context.recorder.record(notice.repeat_after(Duration::from_mins(5)));
    }
}

fn nominate(context: &Context, pod: &kerf_model::Pod, target: &str) {
    let Some(pod) = pod_object(context, pod) else { return };
    let message = format!("Pod should schedule on: {target}");
    context.recorder.record(Notice::about(&*pod, Severity::Normal, "Nominated", message));
}

fn pod_object(
    context: &Context,
    pod: &kerf_model::Pod,
) -> Option<Arc<k8s_openapi::api::core::v1::Pod>> {
    let key = kerf_cluster::Key::namespaced(&pod.namespace, &pod.name);
    context.index.read().pods().get(&key).cloned()
}
