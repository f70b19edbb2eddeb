//! Disruption of nodes that are empty, drifted, or too expensive for their pods.
//!
//! `kerf-disruption` decides what to disrupt. Here is what surrounds a decision: the loop that asks for it and
//! looks at it a second time before acting, the commands under way, and their recovery after an operator has ended.
//!
//! | file | holds |
//! |---|---|
//! | `start` | from a decision to a command under way |
//! | `execution` | from there to the end, or the rollback |
//! | `commands` | which commands are under way, and what each waits for |
//! | `reboot` | from a decision to a reboot, which stands on the NodeClaim |
//! | `record` | the part of a command that survives the operator |
//! | `recovery` | what to do with commands of an operator that has ended |
//! | `marking` | the taint and the condition on disrupted nodes and claims |
//! | `reports` | events, counters and log lines |

mod commands;
mod execution;
mod marking;
mod reboot;
mod record;
mod recovery;
mod reports;
mod start;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kerf_cluster::snapshot::Inputs;
use kerf_disruption::{Command, Decision, Memory, Pass};
use kerf_model::Snapshot;
use kerf_runtime::{Queue, compute};
use kerf_scheduler::{Options, ReservedMode};
use kube::ResourceExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::{
    context::Context,
    error::Result,
    pod::do_not_disrupt,
    provisioning::{self, Batcher},
    settings::Settings,
};

pub(crate) use commands::Commands;
pub(crate) use execution::Execution;
use reports::Reports;
use start::NotStarted;

/// How often the cluster is looked at while there is nothing to do.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// A claim without an instance is about to have one. Until then its node is unknown.
const UNSYNCED: Duration = Duration::from_secs(1);
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);
/// A decision waits this long and is then looked at again: pods that came meanwhile may need the node.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(15);

/// The loop that decides.
pub(crate) struct Disruption {
    pub(crate) commands: Commands,
    /// Where names of commands go that have been started.
    pub(crate) started: Queue<String>,
    pub(crate) batcher: Batcher,
}

/// What a pass leaves to the next. A new operator begins without it.
#[derive(Default)]
struct State {
    memory: Memory,
    pending: Option<Pending>,
    quiet: Option<Quiet>,
    reports: Reports,
}

/// Commands that wait for their second look.
struct Pending {
    commands: Vec<Command>,
    due: Instant,
}

/// A look that found nothing while no command was under way, and would find nothing again.
struct Quiet {
    /// While there have been no more changes than these.
    changes: u64,
    until: Timestamp,
}

impl Quiet {
    /// Waits until another look may find something.
    async fn passes(&self, context: &Context) {
        let left = self.until.duration_since(context.now());
        tokio::select! {
            biased;
            () = context.index.changed_since(self.changes) => {}
            () = tokio::time::sleep(Duration::try_from(left).unwrap_or_default()) => {}
        }
    }
}

impl Disruption {
    pub(crate) async fn run(self, context: Arc<Context>, stop: CancellationToken) {
        let mut state = State::default();
        loop {
            let pass = self.pass(&context, &mut state);
            let wait = match context.metrics.work.pass("disruption", pass).await {
                Ok(wait) => wait,
                Err(error) => {
                    error!(controller = "disruption", %error, "disruption failed");
                    AFTER_A_FAILURE
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            let Some(quiet) = state.quiet.take() else { continue };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = quiet.passes(&context) => {}
            }
        }
    }

    /// Does what is to be done now; returns when to come back.
    async fn pass(&self, context: &Context, state: &mut State) -> Result<Duration, NotStarted> {
        let changes = context.index.changes();
        recovery::recover(context, &self.commands, &self.started).await?;
        self.find_places_for_displaced_pods(context);
        if !provisioning::is_synced(context) {
            return Ok(UNSYNCED);
        }
        if context.sight.is_lost() {
            return Ok(LOOK_AGAIN);
        }
        if let Some(pending) = state.pending.take() {
            let left = pending.due.duration_since(Instant::now());
            if !left.is_zero() {
                state.pending = Some(pending);
                return Ok(left.min(LOOK_AGAIN));
            }
            return self.look_again(context, state, pending.commands).await;
        }
        let snapshot = self.snapshot(context).await?;
        let pass = decide(context, state, &snapshot);
        state.reports.pass(context, &snapshot, &pass);
        context.window.refused(&snapshot, &pass.refused);
        do_not_disrupt::tell(context);
        let quiet = kerf_disruption::quiet_until(&snapshot, &pass);
        let quiet = quiet.filter(|_| self.commands.names().is_empty());
        state.quiet = quiet.map(|until| Quiet { changes, until });
        let (checked, unchecked): (Vec<_>, Vec<_>) =
            pass.commands.into_iter().partition(|command| command.method.is_validated());
        let (mut acted, mut failure) = (false, None);
        for command in &unchecked {
            // They are independent: one that cannot be started does not keep the others from it.
            match self.start(context, state, command).await {
                Ok(started) => acted |= started,
                Err(error) => failure = Some(error),
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if !checked.is_empty() {
            reports::candidates(context, &checked);
            state.pending =
                Some(Pending { commands: checked, due: Instant::now() + SECOND_LOOK_AFTER });
            return Ok(LOOK_AGAIN);
        }
        Ok(match (acted, pass.complete && unchecked.is_empty()) {
            (true, _) => Duration::ZERO,
            (false, true) => LOOK_AGAIN,
            // The search goes on where it stopped, and others have their turn meanwhile.
            (false, false) => UNSYNCED,
        })
    }

    /// Looks at commands a second time, and starts what is still right.
    async fn look_again(
        &self,
        context: &Context,
        state: &mut State,
        commands: Vec<Command>,
    ) -> Result<Duration, NotStarted> {
        let settings = context.settings.disruption();
        for command in commands {
            let snapshot = self.snapshot(context).await?;
            match compute(|| kerf_disruption::validate(&command, &snapshot, &settings)) {
                Ok(still_right) => {
                    let dropped = still_right.dropped.len();
                    context.metrics.disruption.failed_validation(command.method, dropped);
                    self.start(context, state, &still_right.command).await?;
                }
                Err(invalid) => {
                    info!(
                        controller = "disruption",
                        reason = %invalid.why,
                        "abandoning {}", reports::text(&command)
                    );
                    let message =
                        format!("Abandoning {}: {}", reports::text(&command), invalid.why);
                    reports::write_down(context, "Abandoned", &command, &message);
                    reports::rejected(context, &command, &invalid);
                    state.memory.reject(&command);
                }
            }
        }
        Ok(Duration::ZERO)
    }

    /// Starts the command, unless something stands against it; either way others have their turn before it is found again.
    async fn start(
        &self,
        context: &Context,
        state: &mut State,
        command: &Command,
    ) -> Result<bool, NotStarted> {
        let started = match command.decision() {
            Decision::Reboot => reboot::commit(context, &self.commands, command).await,
            _ => start::start(context, &self.commands, command)
                .await
                .map(|name| self.started.add(name)),
        };
        let Err(failure) = started else { return Ok(true) };
        let Some(why) = failure.blocked() else {
            state.memory.reject(command);
            return Err(failure);
        };
        state.memory.refuse(command);
        state.reports.not_started(context, command, &why);
        Ok(false)
    }

    async fn snapshot(&self, context: &Context) -> Result<Snapshot> {
        let inputs = provisioning::inputs(context, |_| true).await;
        let cluster = context.index.read();
        context.prices.forget_all_but(cluster.pools().values().map(|pool| &**pool));
        let in_queue = self.commands.candidates();
        let taken = cluster.snapshot(Inputs { in_queue, ..inputs })?;
        provisioning::remember_prices(context, &taken.snapshot);
        for invalid in taken.left_out {
            debug!(controller = "disruption", pod = %invalid.pod, reason = %invalid, "pod is left out");
        }
        Ok(taken.snapshot)
    }

    /// What makes room for pods of nodes that go has to look again and again: the room may be taken by others meanwhile.
    fn find_places_for_displaced_pods(&self, context: &Context) {
        let cluster = context.index.read();
        for name in self.commands.candidates() {
            let claim = cluster.claims().named(&name);
            let node = claim.and_then(|claim| cluster.node_of(claim.provider_id()).ok());
            if let Some(node) = node {
                self.batcher.trigger(node.uid().unwrap_or_default());
            }
        }
    }
}

fn decide(context: &Context, state: &mut State, snapshot: &Snapshot) -> Pass {
    let settings = context.settings.disruption();
    let mut begin = Instant::now();
    let answered = |method| {
        context.metrics.disruption.evaluated(method, begin.elapsed());
        begin = Instant::now();
    };
    compute(|| kerf_disruption::pass_with(snapshot, &settings, &mut state.memory, answered))
}

impl Settings {
    /// What disruption is decided by.
    pub fn disruption(&self) -> kerf_disruption::Settings {
        let reserved = match self.scheduling().reserved {
            // Pods that run already are not kept waiting for a reservation.
            ReservedMode::Strict => ReservedMode::Fallback,
            other => other,
        };
        kerf_disruption::Settings {
            scheduling: Options { reserved, ..self.scheduling() },
            many_to_many: self.many_to_many,
            spot_to_spot: self.gates.spot_to_spot_consolidation,
            static_capacity: self.gates.static_capacity,
            terminate_first_drift: self.gates.terminate_first_drift,
            terminate_first_repair: self.gates.terminate_first_repair,
            ..kerf_disruption::Settings::default()
        }
    }
}
