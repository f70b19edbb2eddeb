//! Executing a command that has been started: wait for replacements, delete the candidates, or roll the command back.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kerf_api::{NodeClaim, ObjectExt, Setback, annotations, conditions::INITIALIZED, labels};
use kerf_cluster::{Change, Cluster};
use kerf_disruption::{Blocked, Method, setback};
use kerf_model::Price;
use kerf_runtime::{
    Lock, Outcome, Queue, Workers,
    events::{Notice, Severity},
};
use kube::ResourceExt;
use tracing::{info, warn};

use super::{
    commands::{Commands, Loss, Next, Underway, is_here},
    marking::{self, AT_ONCE},
    record::Repair,
    reports,
};
use crate::{
    context::Context,
    controller::Reconciler,
    error::{Error, Result, is_not_found},
    metrics::Cause,
};

/// Changes of claims wake the execution. This is for what no event reports: the passing of time.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Brings each command under way to its end.
pub(crate) struct Execution {
    pub(crate) commands: Commands,
}

impl Reconciler for Execution {
    const WORKERS: Workers = Workers::new("disruption.queue", 100)
        .up_to(1000)
        .backoff(Duration::from_secs(1), Duration::from_secs(10))
        .bucket(100, 1000);

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        if let Change::NodeClaim(delta) = change
            && let Some(command) = self.commands.of(&delta.key.name)
        {
            queue.add(command);
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some(command) = self.commands.get(name) else { return Ok(Outcome::Done) };
        let limit = self.commands.time_limit();
        let next = command.next(&context.index.read(), context.now(), limit);
        match next {
            Next::Wait => {
                tell_what_it_waits_for(context, &command);
                Ok(Outcome::After(LOOK_AGAIN))
            }
            Next::Compare => {
                let loss = match promise_broken(context, &command).await {
                    // A cloud that does not tell its prices for so long is no reason to hold nodes in between.
                    Err(_) if command.is_older_than(limit, context.now()) => None,
                    compared => compared?,
                };
                self.commands.update(name, |command| {
                    command.promise_kept = loss.is_none();
                    command.lost = loss;
                });
                Ok(Outcome::After(Duration::ZERO))
            }
            Next::End(claims) => match self.end(context, &command, &claims).await {
                Ok(()) => Ok(self.over(&command)),
                Err(error) if command.is_older_than(limit, context.now()) => {
                    warn!(command = name, %error, "candidates were not deleted");
                    let loss = Loss::Undeletable(limit);
                    self.commands.update(name, |command| command.lost = Some(loss));
                    Ok(Outcome::After(Duration::ZERO))
                }
                Err(error) => Err(error),
            },
            Next::Done => Ok(self.over(&command)),
            Next::TakeBack(loss) => {
                self.commands.update(name, |command| command.lost = Some(loss.clone()));
                take_back(context, &command, &loss).await?;
                self.commands.remove(name);
                Ok(Outcome::Done)
            }
        }
    }
}

impl Execution {
    fn over(&self, command: &Underway) -> Outcome {
        info!(command = command.record.command, "command succeeded");
        self.commands.remove(&command.record.command);
        Outcome::Done
    }

    async fn end(&self, context: &Context, command: &Underway, claims: &[String]) -> Result<()> {
        let ends = stream::iter(claims.to_vec()).map(|name| async move {
            let claim = context.index.read().claims().named(&name).cloned();
            if let Some(claim) = claim {
                end_one(context, command, &claim).await?;
            }
            self.commands.update(&command.record.command, |command| {
                command.ended.insert(name);
            });
            Ok(())
        });
        ends.buffered(AT_ONCE).try_collect().await
    }
}

async fn end_one(context: &Context, command: &Underway, claim: &NodeClaim) -> Result<()> {
    let reason = command.record.method.reason();
    let pool = claim.node_pool().and_then(|name| context.managed_pool(name));
    let policy = pool.map(|pool| pool.spec.disruption.consolidation_policy);
    let policy = policy.filter(|_| !command.record.method.is_eventual());
    let bound = command.goes_first.and_then(|first| first.drain.supplied());
    let bounded = match bound {
        Some(bound) => Some(context.bound_drain(claim, bound).await?),
        None => None,
    };
    let claim = bounded.as_ref().unwrap_or(claim);
    let repair = command.record.repair.as_ref();
    if let Some(drain) = repair.and_then(Repair::drain) {
        bound_repair(context, command, claim, drain).await?;
    }
    context.disrupt(claim, Cause::Disruption { reason, policy }).await?;
    if let Some(repair) = repair {
        context.metrics.unhealthy_disrupted(&repair.condition, claim, repair.drain());
    }
    let tell = |notice: Notice, uid: Option<String>| {
        let same_if = vec![uid.unwrap_or_default(), reason.as_str().to_owned()];
        context.recorder.record(notice.same_if(same_if));
    };
    let (kind, name) = ("DisruptionTerminating", reason.as_str());
    let message = format!("Disrupting NodeClaim: {name}");
    tell(Notice::about(claim, Severity::Normal, kind, message), claim.uid());
    if let Some(node) = reports::node_of(context, claim) {
        let message = format!("Disrupting Node: {name}");
        tell(Notice::about(&*node, Severity::Normal, kind, message), node.uid());
    }
    Ok(())
}

/// Counts from now, when everything that comes is there. A node that has recovered meanwhile still goes, but its pods have all
/// the time that its claim gives them. Not so where it goes first: a drain without an end would wait for what comes after it.
async fn bound_repair(
    context: &Context,
    command: &Underway,
    claim: &NodeClaim,
    drain: Duration,
) -> Result<()> {
    let is_unhealthy = {
        let cluster = context.index.read();
        cluster.node_of(claim.provider_id()).is_ok_and(|node| cluster.is_unhealthy(node))
    };
    if !is_unhealthy && command.goes_first.is_none() {
        return Ok(());
    }
    let end = context.now().checked_add(drain).unwrap_or(Timestamp::MAX);
    context.drain_until(claim, end).await
}

fn tell_what_it_waits_for(context: &Context, command: &Underway) {
    let waiting: Vec<Arc<NodeClaim>> = {
        let cluster = context.index.read();
        let names = command.without(&cluster, INITIALIZED);
        names.filter_map(|name| cluster.claims().named(name).cloned()).collect()
    };
    let reason = command.record.method.reason().as_str();
    for claim in waiting {
        let uid = claim.uid().unwrap_or_default();
        let message = format!("Launching NodeClaim: {reason}");
        let notice = Notice::about(&*claim, Severity::Normal, "DisruptionLaunching", message);
        context.recorder.record(notice.same_if(vec![uid, reason.to_owned()]));
        let message = "Waiting on readiness to continue disruption".to_owned();
        let kind = "DisruptionWaitingReadiness";
        context.recorder.record(Notice::about(&*claim, Severity::Normal, kind, message));
    }
}

/// Compares what the replacements really cost with what the move was worth.
async fn promise_broken(context: &Context, command: &Underway) -> Result<Option<Loss>> {
    let Some(promise) = command.record.promise else { return Ok(None) };
    let mut prices = Vec::new();
    for name in &command.replacements {
        let claim = context.index.read().claims().named(name).cloned();
        prices.push(match claim {
            Some(claim) => launched_price(context, &claim).await?,
            None => None,
        });
    }
    Ok(match promise.check(prices) {
        Err(Blocked::PromisedSavingsLost { price, at_most }) => {
            Some(Loss::PromisedSavingsLost { price, at_most })
        }
        _ => None,
    })
}

/// What an instance costs, by what its provider said it is.
async fn launched_price(context: &Context, claim: &NodeClaim) -> Result<Option<Price>> {
    let label = |key: &str| claim.labels().get(key).map(String::as_str);
    let Some(pool) = label(labels::NODE_POOL).and_then(|name| context.managed_pool(name)) else {
        return Ok(None);
    };
    let types = context.instance_types(&pool).await.map_err(|source| Error::Provider {
        what: format!("asking for the instance types of NodePool {}", pool.name_any()),
        source,
    })?;
    let found = types.iter().find(|one| label(labels::INSTANCE_TYPE) == Some(one.name()));
    let (zone, capacity_type) = (label(labels::ZONE), label(labels::CAPACITY_TYPE));
    Ok(found
        .zip(zone.zip(capacity_type))
        .and_then(|(found, (zone, capacity_type))| found.offering_price(zone, capacity_type)))
}

/// Undoes a command: the candidates stay from now on, then what says that it exists, then what it did to its candidates.
async fn take_back(context: &Context, command: &Underway, loss: &Loss) -> Result<()> {
    let record = &command.record;
    let (unready, here) = {
        let cluster = context.index.read();
        let here = command.replacements.iter().filter(|name| is_here(&cluster, name));
        (command.without(&cluster, INITIALIZED).count(), here.cloned().collect::<Vec<_>>())
    };
    let staying = record.candidates.iter().filter(|name| !command.ended.contains(*name));
    let staying: Vec<String> = staying.cloned().collect();
    // Pods of a node that counts as going get a place elsewhere. Without the replacement that would be a new node.
    for name in &staying {
        context.index.alter(|cluster| cluster.unmark_for_deletion(name));
    }
    for name in &here {
        let claim = context.index.read().claims().named(name).cloned();
        let Some(claim) = claim else { continue };
        match loss {
            Loss::PromisedSavingsLost { .. } => context.delete_claim(&claim).await?,
            _ => strike(context, &claim).await?,
        }
    }
    marking::unmark_all(context, &staying).await?;
    for name in &staying {
        if loss.is_of_replacement() {
            set_back(context, name, record.method, loss).await?;
        }
    }
    context.metrics.disruption.queue_failed(record.method, command.decision(), unready);
    warn!(command = record.command, reason = %loss, "disruption command was rolled back");
    if let Loss::PromisedSavingsLost { price, at_most } = loss {
        let why = Blocked::PromisedSavingsLost { price: *price, at_most: *at_most };
        for name in &staying {
            reports::unconsolidatable(context, name, &why);
        }
    }
    Ok(())
}

/// Writes on a candidate that replacing it failed, so that no operator tries it again at once.
async fn set_back(context: &Context, name: &str, method: Method, loss: &Loss) -> Result<()> {
    let claim = context.index.read().claims().named(name).cloned();
    let Some(claim) = claim else { return Ok(()) };
    let (before, reason, now) = (Setback::read(&claim), method.reason(), context.now());
    // One that is in force would have kept the command from being started: this is the second try to write it.
    if before.as_ref().is_some_and(|before| before.reason == reason && before.until.0 > now) {
        return Ok(());
    }
    let setback = setback::set_back(before.as_ref(), reason, loss.to_string(), now);
    let mut changed = NodeClaim::clone(&claim);
    setback.write(&mut changed);
    write(context, &claim, changed).await
}

/// Removes the record from a replacement, which is a node like any other from then on.
pub(super) async fn strike(context: &Context, claim: &NodeClaim) -> Result<()> {
    let mut changed = claim.clone();
    changed.annotations_mut().remove(annotations::REPLACES);
    write(context, claim, changed).await
}

async fn write(context: &Context, claim: &NodeClaim, changed: NodeClaim) -> Result<()> {
    let what = || format!("recording the result of a command on {}", claim.name_any());
    match context.write_claim(claim, changed, Lock::None, what).await {
        Err(Error::Api { source, .. }) if is_not_found(&source) => Ok(()),
        written => written.map(drop),
    }
}
