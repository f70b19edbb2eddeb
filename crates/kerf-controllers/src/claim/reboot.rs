//! Restarting the machine of a node in place: its drain, the call of the cloud, and the wait until it is back.
//!
//! `kerf_disruption::reboot` says what comes next. Everything that it is said from stands on the claim and the Node, so an operator
//! that takes over goes on where the last one ended. The cloud may be asked twice for the same reboot, by the same name.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kerf_api::{
    NodeClaim, NodeExt, ObjectExt, Reboots,
    annotations::{DO_NOT_REPAIR, REBOOT_PRE_BOOT_ID, REBOOT_TERMINATION_GRACE_PERIOD},
    conditions::{
        Conditioned, INITIALIZED, REBOOT_FAILED, REBOOT_ISSUED, REBOOT_SUCCEEDED, REBOOT_WITHDRAWN,
        REBOOTING,
    },
    labels, taints,
};
use kerf_cluster::{Change, Cluster, pods};
use kerf_disruption::reboot::{self, CalledOff, Failure, Machine, Reboot, RebootResult, Step};
use kerf_provider::ProviderError;
use kerf_runtime::{
    Lock, Outcome, Queue, Workers,
    events::{Notice, Severity},
};
use kube::ResourceExt;
use tracing::{info, warn};

use crate::{
    context::Context,
    controller::Reconciler,
    error::{Error, Result},
    node::termination::{
        drain,
        eviction::{Evictions, Limit},
    },
};

/// Changes of the Node and of its claim wake the reboot. This is for the passing of time.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// Pods that leave wake nobody.
const LOOK_AT_PODS_AGAIN: Duration = Duration::from_secs(5);
const OBSERVED_ONCE: Duration = Duration::from_mins(30);

/// Brings reboots that were decided on to their end, also where nodes are not repaired any more.
pub(crate) struct Rebooting {
    pub(crate) evictions: Evictions,
}

impl Reconciler for Rebooting {
    const WORKERS: Workers = Workers::new("nodeclaim.reboot", 10)
        .up_to(1000)
        .backoff(Duration::from_secs(1), LOOK_AGAIN)
        .bucket(10, 100);

    fn concerns(&self, change: &Change, cluster: &Cluster, queue: &Queue<String>) {
        match change {
            Change::NodeClaim(delta) => {
                let concerned =
                    delta.after.as_ref().is_some_and(|it| it.condition(REBOOTING).is_some());
                if concerned {
                    queue.add(delta.key.name.clone());
                }
            }
            Change::Node(delta) => {
                let provider_id = delta.either().map_or("", |node| node.provider_id());
                let claims = cluster.claims_of(provider_id);
                for claim in claims.filter(|claim| claim.is_true(REBOOTING)) {
                    queue.add(claim.name_any());
                }
            }
            _ => {}
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some(claim) = context.managed_claim(name) else { return Ok(Outcome::Done) };
        // What is being deleted is a matter of its termination.
        if claim.is_deleting() {
            return Ok(Outcome::Done);
        }
        let found = context.index.read().node_of(claim.provider_id()).cloned().ok();
        let node = found.as_deref();
        if !claim.is_true(REBOOTING) {
            return clean_up(context, &claim, node).await;
        }
        let now = context.now();
        let step = reboot::next(&reboot(context, &claim, node), now);
        match (step, node) {
            (Step::Drain { until }, Some(node)) => {
                let node = kept_from_pods(context, node).await?;
                let waiting = drain::drain(context, &self.evictions, &node, Limit::Reboot(until));
                let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                let soon = if waiting > 0 { LOOK_AT_PODS_AGAIN } else { Duration::from_secs(1) };
                Ok(Outcome::After(left.min(soon)))
            }
            (Step::Note, Some(node)) => {
                kept_from_pods(context, node).await?;
                note(context, &claim, node).await?;
                Ok(Outcome::After(Duration::ZERO))
            }
            (Step::Ask, node) => ask(context, &claim, node).await,
            (Step::Accepted, node) => {
                accepted(context, &claim, node).await?;
                Ok(Outcome::After(Duration::ZERO))
            }
            (Step::Wait { rebooted }, node) => {
                if let Some(node) = node.filter(|_| is_issued(&claim)) {
                    back(context, &claim, node, rebooted).await?;
                }
                Ok(Outcome::After(LOOK_AGAIN))
            }
            (Step::Succeeded, node) => {
                end(context, &claim, node, Ok(())).await?;
                Ok(Outcome::Done)
            }
            (Step::Failed(failure), node) => {
                end(context, &claim, node, Err(&failure)).await?;
                Ok(Outcome::Done)
            }
            (Step::CalledOff(why), node) => {
                call_off(context, &claim, node, why).await?;
                Ok(Outcome::Done)
            }
            // It has gone between two looks.
            (Step::Drain { .. } | Step::Note, None) => Ok(Outcome::After(LOOK_AGAIN)),
        }
    }
}

/// The reboot as claim and Node have it.
fn reboot<'a>(context: &Context, claim: &'a NodeClaim, node: Option<&'a Node>) -> Reboot<'a> {
    let written = |key: &str| claim.annotations().get(key).map(String::as_str);
    let (requested, reboots) = (requested(claim), Reboots::read(claim));
    let since_issued = || {
        // Another operator has issued it: it wrote no more than the conditions.
        let initialized = claim.condition(INITIALIZED).filter(|_| !claim.is_true(INITIALIZED));
        initialized.map_or(requested, |found| found.last_transition_time.0.max(requested))
    };
    let accepted = reboots.accepted.as_ref().map(|time| time.0);
    Reboot {
        requested,
        bound: written(REBOOT_TERMINATION_GRACE_PERIOD),
        boot_before: written(REBOOT_PRE_BOOT_ID),
        asked: reboots.asked.last().map(|time| time.0).filter(|asked| *asked >= requested),
        accepted: is_issued(claim).then(|| accepted.unwrap_or_else(since_issued)),
        node: node.map(|node| machine(context, node)),
        called_off: called_off(context, claim, node),
    }
}

fn machine<'a>(context: &Context, node: &'a Node) -> Machine<'a> {
    let now = context.now();
    let cluster = context.index.read();
    let on_node = cluster.pods_on(node.metadata.name.as_deref().unwrap_or_default());
    let pods = on_node.filter(|pod| pods::is_waiting_for_eviction(pod, now)).count();
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let boot_id = info.map_or("", |info| info.boot_id.as_str());
    Machine { boot_id, ready: is_ready(node), pods }
}

fn called_off(context: &Context, claim: &NodeClaim, node: Option<&Node>) -> Option<CalledOff> {
    let settings = &context.settings;
    if !settings.gates.node_repair || settings.repair.legacy {
        return Some(CalledOff::SwitchedOff);
    }
    let annotations = node.map_or_else(|| claim.annotations(), |node| node.annotations());
    let vetoed = annotations.get(DO_NOT_REPAIR).is_some_and(|value| value == "true");
    vetoed.then_some(CalledOff::Vetoed)
}

/// When it was decided on. Kubernetes does not move this while the status stays.
fn requested(claim: &NodeClaim) -> Timestamp {
    let condition = claim.condition(REBOOTING);
    condition.map_or(Timestamp::UNIX_EPOCH, |condition| condition.last_transition_time.0)
}

fn is_issued(claim: &NodeClaim) -> bool {
    claim.condition(REBOOTING).is_some_and(|condition| condition.reason == REBOOT_ISSUED)
}

fn message(claim: &NodeClaim) -> String {
    claim.condition(REBOOTING).map(|condition| condition.message.clone()).unwrap_or_default()
}

/// By this name the cloud knows that it is asked for the same reboot again.
fn operation(claim: &NodeClaim) -> String {
    let before = claim.annotations().get(REBOOT_PRE_BOOT_ID).map_or("", String::as_str);
    let uid = claim.uid().unwrap_or_default();
    format!("{uid}-{}-{before}", requested(claim).as_nanosecond())
}

/// Before the cloud is asked for the first time: it counts from here on, whatever the cloud answers.
async fn note(context: &Context, claim: &NodeClaim, node: &Node) -> Result<()> {
    let mut changed = claim.clone();
    let boot_id = machine(context, node).boot_id.to_owned();
    changed.annotations_mut().insert(REBOOT_PRE_BOOT_ID.to_owned(), boot_id);
    Reboots::read(claim).and(whole_seconds(context.now())).write(&mut changed);
    write(context, claim, changed, "noting the boot of NodeClaim").await
}

async fn ask(context: &Context, claim: &NodeClaim, node: Option<&Node>) -> Result<Outcome> {
    let failure = match context.provider.reboot(claim, &operation(claim)).await {
        Ok(()) => {
            accepted(context, claim, node).await?;
            return Ok(Outcome::After(Duration::ZERO));
        }
        Err(ProviderError::RebootNotImplemented) => Failure::NotImplemented,
        Err(error @ (ProviderError::RebootRejected(_) | ProviderError::NotFound(_))) => {
            Failure::Rejected(error.to_string())
        }
        Err(source) => {
            let what = format!("rebooting the instance of NodeClaim {}", claim.name_any());
            return Err(Error::Provider { what, source });
        }
    };
    end(context, claim, node, Err(&failure)).await?;
    Ok(Outcome::Done)
}

async fn accepted(context: &Context, claim: &NodeClaim, node: Option<&Node>) -> Result<()> {
    let mut changed = claim.clone();
    let now = context.now();
    let mut reboots = Reboots::read(claim);
    reboots.accepted.get_or_insert_with(|| whole_seconds(now));
    reboots.write(&mut changed);
    let message = message(claim);
    let mut conditions = changed.condition_set(now);
    conditions.set_true_because(REBOOTING, REBOOT_ISSUED, &message);
    conditions.set_unknown_because(INITIALIZED, "Rebooting", "node is rebooting");
    write(context, claim, changed, "noting the reboot of NodeClaim").await?;
    if let Some(node) = node {
        uninitialized(context, node).await?;
    }
    info!(claim = claim.name_any(), "the cloud reboots the node");
    Ok(())
}

/// The node is on its way back.
async fn back(context: &Context, claim: &NodeClaim, node: &Node, rebooted: bool) -> Result<()> {
    let node = uninitialized(context, node).await?;
    if !rebooted {
        return Ok(());
    }
    let_pods_come(context, &node).await?;
    let message = "New boot observed (bootID changed); awaiting node readiness".to_owned();
    let notice = Notice::about(claim, Severity::Normal, "RebootObserved", message);
    let episode = vec![claim.uid().unwrap_or_default(), requested(claim).to_string()];
    context.recorder.record(notice.same_if(episode).repeat_after(OBSERVED_ONCE));
    Ok(())
}

/// The condition says last that it is over: until then the next look comes here again.
async fn end(
    context: &Context,
    claim: &NodeClaim,
    node: Option<&Node>,
    outcome: Result<(), &Failure>,
) -> Result<()> {
    if let Some(node) = node {
        let_pods_come(context, node).await?;
    }
    let (reason, message) = match outcome {
        Ok(()) => (REBOOT_SUCCEEDED, "node rebooted and rejoined the cluster".to_owned()),
        Err(failure) => (REBOOT_FAILED, failure.to_string()),
    };
    over(context, claim, reason, &message).await?;
    let since = |then: Timestamp| context.passed_since(then).unwrap_or_default();
    let result = outcome.map_or_else(Failure::result, |()| RebootResult::Succeeded);
    context.metrics.reboots.ended(result, since(requested(claim)));
    let accepted = Reboots::read(claim).accepted;
    if let (Ok(()), Some(accepted)) = (outcome, accepted) {
        context.metrics.reboots.recovered(since(accepted.0));
    }
    let node = node.map(ResourceExt::name_any);
    match outcome {
        Ok(()) => info!(claim = claim.name_any(), node, "rebooted node"),
        Err(failure) => {
            warn!(claim = claim.name_any(), node, reason = %failure, "reboot failed");
            let notice = Notice::about(claim, Severity::Warning, "RebootFailed", message);
            context.recorder.record(notice);
        }
    }
    Ok(())
}

/// As if it had never been decided on: the cloud knows nothing of it.
async fn call_off(
    context: &Context,
    claim: &NodeClaim,
    node: Option<&Node>,
    why: CalledOff,
) -> Result<()> {
    if let Some(node) = node {
        let_pods_come(context, node).await?;
    }
    over(context, claim, REBOOT_WITHDRAWN, &why.to_string()).await?;
    info!(claim = claim.name_any(), reason = %why, "reboot is called off");
    Ok(())
}

async fn over(context: &Context, claim: &NodeClaim, reason: &str, message: &str) -> Result<()> {
    let mut changed = claim.clone();
    changed.condition_set(context.now()).set_false(REBOOTING, reason, message);
    write(context, claim, changed, "noting the end of the reboot of NodeClaim").await
}

/// What an operator left that ended after the condition said that it is over.
async fn clean_up(context: &Context, claim: &NodeClaim, node: Option<&Node>) -> Result<Outcome> {
    // How long the drain may take stays: it may be that of the next reboot, whose condition is still to be written.
    if claim.annotations().contains_key(REBOOT_PRE_BOOT_ID) {
        let mut changed = claim.clone();
        changed.annotations_mut().remove(REBOOT_PRE_BOOT_ID);
        write(context, claim, changed, "clearing the reboot of NodeClaim").await?;
    }
    if let Some(node) = node {
        let_pods_come(context, node).await?;
    }
    Ok(Outcome::Done)
}

async fn write(context: &Context, claim: &NodeClaim, changed: NodeClaim, what: &str) -> Result<()> {
    let what = || format!("{what} {}", claim.name_any());
    context.write_claim(claim, changed, Lock::Optimistic, what).await.map(drop)
}

async fn kept_from_pods(context: &Context, node: &Node) -> Result<Node> {
    let mut changed = node.clone();
    let taints = changed.spec.get_or_insert_default().taints.get_or_insert_default();
    if !taints.iter().any(|taint| taints::same(taint, &taints::rebooting())) {
        taints.push(taints::rebooting());
    }
    let what = || format!("tainting Node {}", node.name_any());
    context.write(node, changed, Lock::Optimistic, what).await
}

async fn let_pods_come(context: &Context, node: &Node) -> Result<()> {
    if node.is_deleting() || !is_kept_from_pods(node) {
        return Ok(());
    }
    let mut changed = node.clone();
    if let Some(taints) = changed.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|taint| taint.key != taints::REBOOTING);
    }
    let what = || format!("removing a taint of Node {}", node.name_any());
    context.write(node, changed, Lock::Optimistic, what).await.map(drop)
}

fn is_kept_from_pods(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == taints::REBOOTING)
}

/// Its initialisation runs anew when the reboot is over.
async fn uninitialized(context: &Context, node: &Node) -> Result<Node> {
    let mut changed = node.clone();
    changed.labels_mut().remove(labels::INITIALIZED);
    let what = || format!("labelling Node {} as not initialised", node.name_any());
    context.write(node, changed, Lock::None, what).await
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// As conditions have it, so that the two can be compared.
fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
