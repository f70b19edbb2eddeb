//! From pending pods to NodeClaims.

mod batcher;
mod claims;
mod snapshot;

use std::{sync::Arc, time::Duration};

use kerf_api::{NodeClaim, NodePool, taints};
use kerf_cluster::{Change, pods};
use kerf_runtime::events::{Notice, Severity};
use kerf_scheduler::{Plan, PlannedClaim};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::{
    context::Context,
    error::{Error, Result},
};

pub(crate) use batcher::Batcher;

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
    while context.index.read().claims().values().any(|claim| is_unlaunched(context, claim)) {
        poll.tick().await;
    }
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
    publish(context, &plan);
    for planned in &plan.claims {
        let pool = context.index.read().pools().named(&planned.pool.name).cloned();
        let Some(pool) = pool else { continue };
        // One claim that cannot be created does not keep the others from it.
        if let Err(error) = create(context, &pool, planned).await {
            error!(controller = "provisioner", pool = planned.pool.name, %error, "claim was not created");
        }
    }
    Ok(true)
}

async fn create(context: &Context, pool: &NodePool, planned: &PlannedClaim) -> Result<()> {
    let known = context.known_labels();
    let claim = claims::build(pool, planned, &known, context.provider.label_rules());
    let permit = context
        .permits(pool, 1)
        .pop()
        .ok_or_else(|| Error::NodeLimit { pool: planned.pool.name.clone() })?;
    let name = permit.create(claim, "provisioned").await?.name_any();
    for pod in &planned.pods {
        nominate(context, pod, &format!("nodeclaim/{name}"));
    }
    Ok(())
}

fn publish(context: &Context, plan: &Plan) {
    let until = context.now() + context.settings.batching.nomination_window();
    for placement in &plan.placements {
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
