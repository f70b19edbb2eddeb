//! From pending pods to NodeClaims.

mod batcher;
mod claims;
mod closing;
mod log;
mod promises;
mod snapshot;
mod to_come;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use kerf_api::{
    NodeClaim,
    conditions::{AWAITING_RECONCILIATION, Conditioned, LAUNCHED},
    labels, taints,
};
use kerf_cluster::{
    Change, Cluster, Key, owners::PodOwner, pods, reservations::Wanted, snapshot::Taken,
    validation::InvalidPod,
};
use kerf_runtime::{
    compute,
    events::{Notice, Severity},
};
use kerf_scheduler::{Placement, Plan, PlannedClaim};
use kube::ResourceExt;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{
    buffer,
    claim::creation::Permit,
    context::Context,
    error::{Error, Result},
    overlay::has_new_spec,
};

use batcher::{Batch, Contents};
use log::Told;
use promises::Promised;
use to_come::ToCome;

pub(crate) use batcher::Batcher;
pub(crate) use promises::Promises;
pub use snapshot::snapshot_inputs;
pub(crate) use snapshot::{inputs, pools_with_classes, remember_prices};

/// How often pods that need a place are looked at when nothing happens.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// How long the launch of one claim may hold up planning. Clouds answer in seconds; when they limit the rate of launches, the
/// last of many claims waits for minutes.
const WAIT_FOR_LAUNCH: SignedDuration = SignedDuration::from_secs(10);
/// Requests in flight while claims are created.
const CREATED_AT_ONCE: usize = 16;

/// Opens a batch when a pod wants a node, a node is about to lose its pods, or a buffer may have lost room.
pub(crate) fn notice(batcher: &Batcher, change: &Change, cluster: &Cluster) {
    if buffer::may_need_room(change, cluster) {
        batcher.trigger("buffers".to_owned());
    }
    match change {
        Change::Pod(delta) => {
            if let Some(pod) = &delta.after
                && pods::is_provisionable(pod)
            {
                let owner = cluster.keeps_owners().then(|| PodOwner::of(pod)).flatten();
                batcher.trigger_of(pod.uid().to_owned(), owner);
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
        // What was too dear, or had too little of something, may be right now.
        Change::NodeOverlay(delta) if has_new_spec(delta) => batcher.trigger("overlays".to_owned()),
        _ => {}
    }
}

pub(crate) async fn run(context: Arc<Context>, batcher: Batcher, stop: CancellationToken) {
    let batching = context.settings.batching;
    let (mut patience, mut told, mut to_come) = (None, Told::default(), ToCome::default());
    loop {
        // A batch that meets an unsynced index waits for it; it is never dropped.
        let batch = async {
            let outlook = |contents: &Contents, now| {
                to_come.look(&context.index.read(), contents, now, batching.idle)
            };
            let batch = batcher.batch(batching, patience, outlook).await;
            launched(&context).await;
            batch.filter(|_| batching.by_owner)
        };
        let batch = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            batch = batch => batch,
        };
        let pass = provision(&context, &mut told, batch);
        let provisioned = context.metrics.work.pass("provisioner", pass).await;
        let pods_wait = provisioned.unwrap_or_else(|error| {
            error!(controller = "provisioner", %error, "provisioning failed");
            true
        });
        patience = pods_wait.then_some(TRY_AGAIN);
    }
}

/// Waits until every claim has its instance, or is not likely to get it soon: before that its size is unknown.
async fn launched(context: &Context) {
    let mut poll = tokio::time::interval(Duration::from_millis(100));
    while !is_synced(context) {
        poll.tick().await;
    }
}

/// Whether the index is whole and every claim in it has its instance. A claim whose launch has failed or takes long is not waited
/// for, unless an operator before this one created it for pods, and it is not known any more which.
pub(crate) fn is_synced(context: &Context) -> bool {
    let now = context.now();
    let cluster = context.index.read();
    let waits = cluster.claims().values().any(|claim| {
        let is_for_unknown =
            || is_for_pods(&cluster, claim) && !context.promises.knows(&claim.name_any());
        claim.is_unlaunched()
            && (is_about_to_launch(claim, now) || is_for_unknown())
            // One that is left alone is never launched, and others need not wait for that.
            && cluster.is_readable(&claim.name_any())
    });
    cluster.listed() && !waits
}

/// Whether the claim was created by a pool that launches for pods. Users create claims too, and static pools for no pods in
/// particular.
fn is_for_pods(cluster: &Cluster, claim: &NodeClaim) -> bool {
    let by_pool = claim.owner_references().iter().any(|owner| owner.kind == "NodePool");
    let pool = claim.labels().get(labels::NODE_POOL);
    let pool = pool.and_then(|pool| cluster.pools().named(pool));
    by_pool && pool.is_some_and(|pool| !pool.is_static())
}

/// Whether planning waits for the instance. Its pods are promised and its pool's limits count it either way, so that all that is
/// lost by not waiting for longer is what room it may have for others. A reserved place is counted when it is taken: until then
/// another plan would promise it again.
fn is_about_to_launch(claim: &NodeClaim, now: Timestamp) -> bool {
    let has_failed = || {
        let launched = claim.condition(LAUNCHED);
        launched.is_some_and(|launched| launched.reason != AWAITING_RECONCILIATION)
    };
    let created = claim.metadata.creation_timestamp.as_ref();
    let is_new = created.is_none_or(|created| now.duration_since(created.0) < WAIT_FOR_LAUNCH);
    (is_new || takes_reserved_place(claim)) && !has_failed()
}

fn takes_reserved_place(claim: &NodeClaim) -> bool {
    let of_capacity_type =
        claim.spec.requirements.iter().filter(|one| one.key == labels::CAPACITY_TYPE);
    of_capacity_type
        .flat_map(|one| &one.values)
        .any(|value| value == labels::CAPACITY_TYPE_RESERVED)
}

/// Plans once for all pods that need a place and launches what is missing. Whether there are such pods: each is looked at
/// again until it runs, because a launch may fail, and prices, limits and instance types change without an event.
async fn provision(context: &Context, told: &mut Told, batch: Option<Batch>) -> Result<bool> {
    let elsewhere = context.promises.outstanding(context);
    let Taken { snapshot, left_out } = snapshot::take(context, &elsewhere).await?;
    let pods_wait = !elsewhere.pods.is_empty() || !left_out.is_empty() || !snapshot.pods.is_empty();
    let mut refused = publish_invalid(context, &left_out);
    if snapshot.pods.is_empty() && snapshot.virtual_pods.is_empty() {
        told.found(BTreeSet::new(), Duration::ZERO, None);
        told.refused(refused);
        context.window.unplaced(None, &left_out);
        let buffers_wait = buffer::take_in(context, &Plan::default(), &elsewhere.virtual_pods);
        return Ok(pods_wait || buffers_wait);
    }
    let began = context.now();
    context.metrics.scheduling.begins(snapshot.pods.len(), began);
    let settings = context.settings.scheduling();
    let plan = compute(|| kerf_scheduler::schedule_cheaply(&snapshot, &settings));
    let took = context.passed_since(began).unwrap_or_default();
    context.metrics.scheduling.planned(&plan, took);
    told.found(snapshot.pods.iter().map(|pod| key(pod)).collect(), took, batch);
    context.window.unplaced(Some(&plan), &left_out);
    note_decisions(context, &plan);
    publish_placements(context, &plan.placements);
    refused.extend(publish_failures(context, &plan));
    let buffers_wait = buffer::take_in(context, &plan, &elsewhere.virtual_pods);
    told.refused(refused);
    log::planned(&plan);
    let creating: Vec<_> = plan.claims.iter().map(|planned| create(context, planned)).collect();
    let mut created = stream::iter(creating).buffered(CREATED_AT_ONCE);
    let mut planned = plan.claims.iter();
    while let (Some(created), Some(planned)) = (created.next().await, planned.next()) {
        // One claim that cannot be created does not keep the others from it.
        if let Err(error) = created {
            let pool = &planned.pool.name;
            error!(controller = "provisioner", pool, %error, "claim was not created");
        }
    }
    Ok(pods_wait || buffers_wait)
}

fn note_decisions(context: &Context, plan: &Plan) {
    let now = context.now();
    let on_nodes = plan.placements.iter().flat_map(|placement| &placement.pods);
    for pod in on_nodes.chain(plan.claims.iter().flat_map(|planned| &planned.pods)) {
        context.metrics.pods.decided(&key(pod), true, now);
    }
    for failure in &plan.failures {
        context.metrics.pods.decided(&key(&failure.pod), false, now);
    }
}

async fn create(context: &Context, planned: &PlannedClaim) -> Result<()> {
    let (permit, claim) = prepare(context, planned, &[])?;
    let name = permit.create(claim, "provisioned").await?.name_any();
    promise(context, planned, &name);
    Ok(())
}

/// The claim that was planned, with permission to create it if its pool still has room. What it replaces goes after it, and
/// leaves its room to it.
pub(crate) fn prepare<'a>(
    context: &'a Context,
    planned: &PlannedClaim,
    replaces: &[String],
) -> Result<(Permit<'a>, NodeClaim)> {
    let name = &planned.pool.name;
    let pool = context.managed_pool(name).ok_or_else(|| Error::PoolGone { pool: name.clone() })?;
    let known = context.known_labels();
    let requirements = claims::requirements(planned, &known);
    let permit = context.permit(Wanted {
        pool: &pool,
        planned_from: &planned.pool,
        requirements: &requirements,
        replaces,
        labels: &known,
    })?;
    let rules = &context.provider.facts().label_rules;
    let claim = claims::build(permit.name(), &pool, planned, &requirements, rules);
    Ok((permit, claim))
}

/// Remembers for which pods a claim was created, and nominates them by events.
pub(crate) fn promise(context: &Context, planned: &PlannedClaim, claim: &str) {
    let pods = planned.pods.iter().map(|pod| key(pod)).collect();
    let promised = Promised { pods, virtual_pods: planned.virtual_pods.clone() };
    context.promises.make(claim.to_owned(), promised);
    for pod in &planned.pods {
        nominate(context, pod, &format!("nodeclaim/{claim}"));
    }
}

/// Keeps places on existing nodes and claims for the pods that were planned onto them, and nominates them by events.
pub(crate) fn publish_placements(context: &Context, placements: &[Placement]) {
    let until = context.now() + context.settings.batching.nomination_window();
    for placement in placements {
        let node = &placement.node;
        if let Some(claim) = &node.claim {
            context.index.nominate(claim, placement.pods.iter().map(|pod| key(pod)), until);
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

/// The pods that have no place, with the reason.
fn publish_failures(context: &Context, plan: &Plan) -> BTreeMap<Key, String> {
    // Those that wait for a reservation get their answer in the next plan.
    let failures = plan.failures.iter().filter(|failure| !failure.refusal.is_deferral());
    failures
        .map(|failure| {
            let (key, reason) = (key(&failure.pod), failure.refusal.to_string());
            tell_failed(context, &key, &reason);
            (key, reason)
        })
        .collect()
}

/// Pods that no plan is made for. Those that want none are left out of the answer.
fn publish_invalid(context: &Context, left_out: &[InvalidPod]) -> BTreeMap<Key, String> {
    let mut refused = BTreeMap::new();
    context.metrics.scheduling.ignored(left_out.len());
    let now = context.now();
    for invalid in left_out {
        context.metrics.pods.decided(&invalid.pod, false, now);
        if !invalid.wants_no_pool() {
            tell_failed(context, &invalid.pod, invalid);
            refused.insert(invalid.pod.clone(), invalid.to_string());
        }
    }
    refused
}

fn tell_failed(context: &Context, key: &Key, reason: &dyn Display) {
    let Some(pod) = pod_object(context, key) else { return };
    let message = format!("Failed to schedule pod, {reason}");
    let notice = Notice::of(pod.object_ref(), Severity::Warning, "FailedScheduling", message);
    context.recorder.record(notice.repeat_after(Duration::from_mins(5)));
}

fn nominate(context: &Context, pod: &kerf_model::Pod, target: &str) {
    let Some(pod) = pod_object(context, &key(pod)) else { return };
    let message = format!("Pod should schedule on: {target}");
    let notice = Notice::of(pod.object_ref(), Severity::Normal, "Nominated", message);
    context.recorder.record(notice.sparingly());
}

fn pod_object(context: &Context, key: &Key) -> Option<Arc<kerf_cluster::Pod>> {
    context.index.read().pods().get(key).cloned()
}

fn key(pod: &kerf_model::Pod) -> Key {
    Key::namespaced(&pod.namespace, &pod.name)
}
