//! From a command that was decided to one that is under way.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt, stream};
use kerf_api::NodeClaim;
use kerf_disruption::{Blocked, Command, Replacement};
use kube::ResourceExt;
use tracing::{error, info};

use super::{
    commands::{Commands, Underway},
    marking::{self, AT_ONCE},
    record::Record,
    reports,
};
use crate::{
    claim::creation::Permit,
    context::Context,
    error::{Error, Result},
    pool::static_capacity,
    provisioning,
};

/// Why a command was not started. What was written before is taken back by [`super::recovery`].
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStarted {
    #[error("candidate is being disrupted")]
    AlreadyUnderWay,
    #[error(transparent)]
    Failed(#[from] Error),
}

impl NotStarted {
    /// What will stand against it again as long as nothing changes; `None` where the next attempt may succeed.
    pub(super) fn blocked(&self) -> Option<Blocked> {
        match self {
            Self::Failed(Error::NoRoom(why)) => Some(Blocked::Limit { detail: why.to_string() }),
            Self::AlreadyUnderWay | Self::Failed(_) => None,
        }
    }
}

/// Marks the candidates, launches what takes their place, and hands the command over. Returns its name.
pub(super) async fn start(
    context: &Context,
    commands: &Commands,
    command: &Command,
) -> Result<String, NotStarted> {
    let now = context.now();
    let mut record = Record::of(command, now);
    if record.candidates.iter().any(|claim| commands.of(claim).is_some()) {
        return Err(NotStarted::AlreadyUnderWay);
    }
    // Before anything is written: without room for all that comes, nothing goes.
    let prepared = prepare(context, command, &record.candidates)?;
    record.candidates = mark_candidates(context, &record, command).await?;
    let replacements = launch(context, &record, command, prepared).await?;
    // Not earlier: the provisioner would see pods without a place, and launch for them too.
    for claim in &record.candidates {
        context.index.alter(|cluster| cluster.mark_for_deletion(claim));
    }
    provisioning::publish_placements(context, &command.placements);
    let name = record.command.clone();
    info!(command = name, "disrupting node(s): {}", reports::text(command));
    reports::repair(command);
    reports::write_down(context, "Disrupting", command, &reports::text(command));
    let nodes = command.candidates.iter().map(|candidate| candidate.node.name.as_str());
    context.window.goes(nodes);
    let underway = Underway::new(record, replacements, now);
    commands.insert(Underway { goes_first: command.goes_first, ..underway });
    let pools: BTreeSet<&str> =
        command.candidates.iter().map(|candidate| candidate.pool.as_str()).collect();
    if let Some(first) = command.goes_first {
        for pool in &pools {
            context.metrics.disruption.went_first(pool, command.method, first.because);
        }
    }
    context.metrics.disruption.decided(command.method, command.decision(), pools);
    Ok(name)
}

/// The candidates that were marked. Of a command that only deletes, some may be left out: each stands for itself.
async fn mark_candidates(
    context: &Context,
    record: &Record,
    command: &Command,
) -> Result<Vec<String>> {
    let reason = command.reason();
    let marks = stream::iter(record.candidates.clone()).map(|claim| async move {
        let result = marking::mark(context, &claim, reason).await;
        (claim, result)
    });
    let (mut marked, mut failure) = (Vec::new(), None);
    for (claim, result) in marks.buffered(AT_ONCE).collect::<Vec<_>>().await {
        match result {
            Ok(()) => marked.push(claim),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(failure) if marked.is_empty() || !command.replacements.is_empty() => Err(failure),
        Some(failure) => {
            error!(controller = "disruption", error = %failure, "some candidates were left out");
            Ok(marked)
        }
        None => Ok(marked),
    }
}

/// What comes, with the permission for it.
fn prepare<'a>(
    context: &'a Context,
    command: &Command,
    replaces: &[String],
) -> Result<Vec<(Permit<'a>, NodeClaim)>> {
    let replacements = command.replacements.iter();
    replacements
        .map(|replacement| match replacement {
            Replacement::Planned(planned) => provisioning::prepare(context, planned, replaces),
            Replacement::OfTemplate(pool) => {
                let planned = static_capacity::of_template(Arc::clone(pool));
                provisioning::prepare(context, &planned, replaces)
            }
        })
        .collect()
}

/// Creates the replacements, each with the record of what it is for.
async fn launch(
    context: &Context,
    record: &Record,
    command: &Command,
    prepared: Vec<(Permit<'_>, NodeClaim)>,
) -> Result<Vec<String>> {
    let reason = command.reason().as_str().to_lowercase();
    let mut created = Vec::new();
    for (replacement, (permit, mut claim)) in command.replacements.iter().zip(prepared) {
        record.write(&mut claim);
        let name = permit.create(claim, &reason).await?.name_any();
        if let Replacement::Planned(planned) = replacement {
            provisioning::promise(context, planned, &name);
        }
        created.push(name);
    }
    Ok(created)
}
