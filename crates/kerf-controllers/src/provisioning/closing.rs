//! When a batch of pods is closed: a rule about times and numbers, apart from who measures and counts them.

use std::{fmt, time::Duration};

use tokio::time::Instant;

use crate::settings::Batching;

/// How often the index is asked again while pods are to come. They may find room on nodes that are there, and then nothing
/// tells the batch of them.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// This part of the quiet time has to pass when all pods are there: those of the next workload may be a moment behind.
const SETTLING: u32 = 10;

/// A batch that is open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) since: Instant,
    /// When something new last came.
    pub(super) last: Instant,
}

/// What is known of the pods that are not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// Nothing, for some of what is in the batch: more may come of it or not.
    Unknown,
    /// So many pods are to come, of so many workloads.
    Coming { pods: u32, workloads: u32 },
    /// All pods of these workloads are there.
    Complete { workloads: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Close(Closed),
    /// Until then, unless something new comes before.
    Wait(Instant),
}

/// Why a batch was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    Quiet { idle: Duration },
    Complete { workloads: u32 },
    Full { max: Duration, outlook: Outlook },
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quiet { idle } => write!(f, "nothing new came for {idle:?}"),
            Self::Complete { workloads } => {
                write!(f, "all pods of {workloads} workload(s) are there")
            }
            Self::Full { max, outlook: Outlook::Coming { pods, workloads } } => {
                write!(f, "{pods} pod(s) of {workloads} workload(s) did not come within {max:?}")
            }
            Self::Full { max, .. } => write!(f, "pods kept coming for {max:?}"),
        }
    }
}

/// Whether to close the batch now, or how long to wait.
pub(super) fn decide(now: Instant, batch: Open, outlook: Outlook, batching: Batching) -> Verdict {
    let Batching { idle, max, .. } = batching;
    let end = batch.since + max;
    if now >= end {
        return Verdict::Close(Closed::Full { max, outlook });
    }
    let (until, closed) = match outlook {
        Outlook::Coming { .. } => return Verdict::Wait(end.min(now + LOOK_AGAIN)),
        Outlook::Unknown => (batch.last + idle, Closed::Quiet { idle }),
        Outlook::Complete { workloads } => {
            (batch.last + idle / SETTLING, Closed::Complete { workloads })
        }
    };
    if now >= until { Verdict::Close(closed) } else { Verdict::Wait(until.min(end)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Outlook = Outlook::Unknown;
    const COMING: Outlook = Outlook::Coming { pods: 40, workloads: 2 };
    const COMPLETE: Outlook = Outlook::Complete { workloads: 3 };

    #[test]
    fn a_batch_waits_for_what_is_to_come_and_for_nothing_else() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        // Now and the last arrival in milliseconds after the batch was opened.
        for (now, last, outlook, expected) in [
            (0, 0, UNKNOWN, "wait until 1000"),
            (999, 500, UNKNOWN, "wait until 1500"),
            (1500, 500, UNKNOWN, "close: nothing new came for 1s"),
            (9500, 9400, UNKNOWN, "wait until 10000"),
            (10_000, 10_000, UNKNOWN, "close: pods kept coming for 10s"),
            (0, 0, COMPLETE, "wait until 100"),
            (99, 0, COMPLETE, "wait until 100"),
            (100, 0, COMPLETE, "close: all pods of 3 workload(s) are there"),
            (2050, 2000, COMPLETE, "wait until 2100"),
            (10_000, 10_000, COMPLETE, "close: pods kept coming for 10s"),
            (0, 0, COMING, "wait until 100"),
            (5000, 0, COMING, "wait until 5100"),
            (9950, 0, COMING, "wait until 10000"),
            (10_000, 0, COMING, "close: 40 pod(s) of 2 workload(s) did not come within 10s"),
        ] {
            let batch = Open { since: start, last: at(last) };
            let shown = match decide(at(now), batch, outlook, Batching::default()) {
                Verdict::Close(closed) => format!("close: {closed}"),
                Verdict::Wait(until) => format!("wait until {}", (until - start).as_millis()),
            };
            assert_eq!(shown, expected, "{now} {last} {outlook:?}");
        }
    }
}
