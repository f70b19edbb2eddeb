//! From the decision that a node is rebooted to a reboot that is under way. It is no command: it stands on the NodeClaim, and
//! `claim/reboot.rs` carries it out.

use kerf_api::{
    ObjectExt, Reboots,
    annotations::{REBOOT_PRE_BOOT_ID, REBOOT_TERMINATION_GRACE_PERIOD},
    conditions::{Conditioned, DISRUPTION_REASON, REBOOT_REQUESTED, REBOOTING},
};
use kerf_disruption::Command;
use kerf_runtime::Lock;
use kube::ResourceExt;
use tracing::info;

use super::{commands::Commands, reports, start::NotStarted};
use crate::{context::Context, metrics::Cause};

/// Writes the reboot onto the claim of the node. Until the condition stands there, nothing has happened.
pub(super) async fn commit(
    context: &Context,
    commands: &Commands,
    command: &Command,
) -> Result<(), NotStarted> {
    let (Some(candidate), Some(remedy)) = (command.candidates.first(), &command.remedy) else {
        return Ok(());
    };
    let name = candidate.node.claim.as_deref().unwrap_or_default();
    let claim = context.managed_claim(name).filter(|_| commands.of(name).is_none());
    let claim = claim.filter(|claim| !claim.is_deleting() && !claim.is_true(REBOOTING));
    let Some(claim) = claim else { return Err(NotStarted::AlreadyUnderWay) };
    let reason = command.reason().as_str();
    let mut changed = claim.as_ref().clone();
    let annotations = changed.annotations_mut();
    // Of an earlier one, whose operator ended before it could clear up.
    annotations.remove(REBOOT_PRE_BOOT_ID);
    match remedy.drain {
        Some(drain) => {
            let bound = format!("{}s", drain.as_secs());
            annotations.insert(REBOOT_TERMINATION_GRACE_PERIOD.to_owned(), bound);
        }
        None => drop(annotations.remove(REBOOT_TERMINATION_GRACE_PERIOD)),
    }
    let mut reboots = Reboots::read(&claim);
    if reboots.accepted.take().is_some() {
        reboots.write(&mut changed);
    }
    let because = format!("rebooting for {}/{}", remedy.condition, remedy.reason);
    let mut conditions = changed.condition_set(context.now());
    conditions.set_true_because(DISRUPTION_REASON, reason, reason);
    conditions.set_true_because(REBOOTING, REBOOT_REQUESTED, &because);
    let what = || format!("requesting the reboot of NodeClaim {name}");
    let claim = context.write_claim(&claim, changed, Lock::Optimistic, what).await?;
    info!(claim = name, node = candidate.node.name, reason = because, "committed node reboot");
    reports::repair(command);
    reports::write_down(context, "Disrupting", command, &reports::text(command));
    let pool = claim.node_pool().and_then(|name| context.managed_pool(name));
    let policy = pool.map(|pool| pool.spec.disruption.consolidation_policy);
    let cause = Cause::Disruption { reason: command.reason(), policy };
    context.metrics.claim_disrupted(cause, &claim, candidate.pods.len());
    context.metrics.unhealthy_disrupted(&remedy.condition, &claim, remedy.drain);
    let pools = [candidate.pool.as_str()];
    context.metrics.disruption.decided(command.method, command.decision(), pools);
    Ok(())
}
