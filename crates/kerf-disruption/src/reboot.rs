//! Reboots of broken nodes: when a node is replaced instead, and what comes next for a reboot that was decided on.
//!
//! A reboot goes through these steps. What was done before stands on the NodeClaim, so that the next step follows from it
//! whoever did the last one.
//!
//! 1. Pods are kept away, and those on the node are evicted. Nothing is ever forced: what is left when time is up stays on the node.
//! 2. The boot ID of the node is written down, and the cloud is asked to restart the machine, again and again until it accepts.
//! 3. The node comes back with another boot ID and is ready.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kerf_api::GoDuration;
use kerf_model::reboot::{LastReboot, RebootHistory};

#[cfg(test)]
mod tests;

/// So many reboots within so long did not help.
const MOST: usize = 2;
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// kube-scheduler may not have seen the taint yet, and bind one more pod.
const LEAST_DRAIN: SignedDuration = SignedDuration::from_secs(5);
/// Where nobody bounds the drain. When it is over the reboot is given up: nobody said that pods may go down with the machine.
pub const UNBOUNDED_DRAIN: SignedDuration = SignedDuration::from_mins(30);
/// For how long a cloud is asked that does not accept.
const ISSUANCE: SignedDuration = SignedDuration::from_mins(5);
/// How long a node may take to come back.
const RECOVERY: SignedDuration = SignedDuration::from_mins(20);

/// Why a node is replaced for which a reboot is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Escalation {
    #[error("it was rebooted {reboots} times in 24 hours")]
    Often { reboots: usize },
    #[error("its last reboot failed at {at}")]
    Failed { at: Timestamp },
}

/// Whether another reboot is of no use.
pub(crate) fn escalation(history: &RebootHistory, now: Timestamp) -> Option<Escalation> {
    let recent = |at: Timestamp| now.duration_since(at) <= REMEMBERED;
    if let LastReboot::Failed { at } = history.last
        && recent(at)
    {
        return Some(Escalation::Failed { at });
    }
    let reboots = history.asked.iter().filter(|at| recent(**at)).count();
    (reboots >= MOST).then_some(Escalation::Often { reboots })
}

/// A reboot that is under way, as the NodeClaim and its Node have it.
#[derive(Clone, Debug)]
pub struct Reboot<'a> {
    /// When it was decided on.
    pub requested: Timestamp,
    /// How long the drain may take, as it was written down then.
    pub bound: Option<&'a str>,
    /// The boot ID of the node before the cloud was asked.
    pub boot_before: Option<&'a str>,
    /// Since when the cloud is asked.
    pub asked: Option<Timestamp>,
    /// When the cloud accepted.
    pub accepted: Option<Timestamp>,
    /// `None`: it is not there now.
    pub node: Option<Machine<'a>>,
    /// Why it is not to be, if so.
    pub called_off: Option<CalledOff>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine<'a> {
    pub boot_id: &'a str,
    pub ready: bool,
    /// How many pods the drain waits for.
    pub pods: usize,
}

/// Why a reboot is not carried out. After the cloud was asked it is too late for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalledOff {
    #[error("someone forbade the repair of the node")]
    Vetoed,
    #[error("nodes are not repaired any more")]
    SwitchedOff,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Keep pods away and evict those that are there; nothing is evicted any more from this time on.
    Drain {
        until: Timestamp,
    },
    /// Write down the boot ID, and from when on the cloud is asked.
    Note,
    /// Ask the cloud.
    Ask,
    /// Write down that the cloud accepted: the machine has been restarted.
    Accepted,
    /// The node has to come back.
    Wait {
        /// Another boot was seen.
        rebooted: bool,
    },
    Succeeded,
    Failed(Failure),
    CalledOff(CalledOff),
}

/// Why a reboot came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("invalid reboot request: {0}")]
    InvalidRequest(BadBound),
    #[error("pods were still on the node after {} minutes, and nothing bounds the drain", UNBOUNDED_DRAIN.as_mins())]
    Drain,
    #[error("reboot not implemented by the cloud provider")]
    NotImplemented,
    #[error("reboot rejected by the cloud provider: {0}")]
    Rejected(String),
    #[error("reboot was not issued within the issuance timeout")]
    NotIssued,
    #[error("node did not recover within the observation window")]
    NotRecovered,
}

/// What was written down as the bound of the drain is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBound {
    #[error("parsing reboot termination grace period {written:?}: {problem}")]
    Unreadable { written: String, problem: String },
    #[error("reboot termination grace period must be non-negative, got {written:?}")]
    Negative { written: String },
}

/// How a reboot ended, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootResult {
    Succeeded,
    InvalidRequest,
    DrainTimeout,
    ProviderError,
    RecoveryTimeout,
}

impl RebootResult {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::InvalidRequest => "invalid_request",
            Self::DrainTimeout => "drain_timeout",
            Self::ProviderError => "provider_error",
            Self::RecoveryTimeout => "recovery_timeout",
        }
    }
}

impl Failure {
    pub fn result(&self) -> RebootResult {
        match self {
            Self::InvalidRequest(_) => RebootResult::InvalidRequest,
            Self::Drain => RebootResult::DrainTimeout,
            Self::NotImplemented | Self::Rejected(_) | Self::NotIssued => {
                RebootResult::ProviderError
            }
            Self::NotRecovered => RebootResult::RecoveryTimeout,
        }
    }
}

/// What comes next for the reboot.
pub fn next(reboot: &Reboot<'_>, now: Timestamp) -> Step {
    match (reboot.accepted, reboot.boot_before) {
        (Some(accepted), before) => recovery(reboot, before, accepted, now),
        (None, Some(before)) => issuance(reboot, before, now),
        (None, None) => drain(reboot, now),
    }
}

fn drain(reboot: &Reboot<'_>, now: Timestamp) -> Step {
    if let Some(why) = reboot.called_off {
        return Step::CalledOff(why);
    }
    let bound = match reboot.bound.map(read).transpose() {
        Ok(bound) => bound,
        Err(bad) => return Step::Failed(Failure::InvalidRequest(bad)),
    };
    let Some(node) = reboot.node else {
        return within(reboot.requested, ISSUANCE, now, Failure::NotIssued);
    };
    if bound == Some(Duration::ZERO) {
        return Step::Note;
    }
    let given = bound.map(|bound| SignedDuration::try_from(bound).unwrap_or(SignedDuration::MAX));
    let until = after(reboot.requested, given.unwrap_or(UNBOUNDED_DRAIN).max(LEAST_DRAIN));
    let begun = after(reboot.requested, LEAST_DRAIN);
    if now < until && (node.pods > 0 || now < begun) {
        return Step::Drain { until };
    }
    if node.pods > 0 && bound.is_none() {
        return Step::Failed(Failure::Drain);
    }
    Step::Note
}

fn issuance(reboot: &Reboot<'_>, before: &str, now: Timestamp) -> Step {
    // The answer of the cloud was lost, or whoever heard it has ended.
    if reboot.node.is_some_and(|node| node.boot_id != before) {
        return Step::Accepted;
    }
    let asked = reboot.asked.unwrap_or(reboot.requested);
    match within(asked, ISSUANCE, now, Failure::NotIssued) {
        Step::Wait { .. } if reboot.node.is_some() => Step::Ask,
        other => other,
    }
}

fn recovery(
    reboot: &Reboot<'_>,
    before: Option<&str>,
    accepted: Timestamp,
    now: Timestamp,
) -> Step {
    // Without a note of the boot before there is nothing to compare with, and time decides.
    let rebooted = reboot.node.zip(before).is_some_and(|(node, before)| node.boot_id != before);
    if rebooted && reboot.node.is_some_and(|node| node.ready) {
        return Step::Succeeded;
    }
    match within(accepted, RECOVERY, now, Failure::NotRecovered) {
        Step::Wait { .. } => Step::Wait { rebooted },
        other => other,
    }
}

fn within(since: Timestamp, long: SignedDuration, now: Timestamp, otherwise: Failure) -> Step {
    if now <= after(since, long) { Step::Wait { rebooted: false } } else { Step::Failed(otherwise) }
}

fn read(written: &str) -> Result<Duration, BadBound> {
    let text = written.to_owned();
    if written.starts_with('-') {
        return Err(BadBound::Negative { written: text });
    }
    match written.parse::<GoDuration>() {
        Ok(read) => Ok(read.as_duration()),
        Err(bad) => Err(BadBound::Unreadable { written: text, problem: bad.to_string() }),
    }
}

fn after(since: Timestamp, long: SignedDuration) -> Timestamp {
    since.saturating_add(long).unwrap_or(Timestamp::MAX)
}
