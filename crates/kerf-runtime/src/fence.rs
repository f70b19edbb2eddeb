//! The right to write, and its end.
//!
//! A leader that was stopped for a while (SIGSTOP, a suspended machine, a starved container) does not know it when it goes
//! on: another process may lead by then. So the right to write does not end when this process notices something. It ends at a
//! time: when the last successful renewal was *sent*, plus the duration of the lease. The others wait that long after they
//! have *seen* that renewal, which is later. The time comes from a clock that runs through pauses ([`Clock::uptime`]), and
//! every write is checked against it at the last possible moment.
//!
//! What is left: a write that was handed to the kernel before the end arrives as late as the network is slow, and a process
//! that is stopped between the look at the clock and the call of the kernel right after it sends one write late. Both are
//! writes that were right when they were sent; objects that others may have changed meanwhile are protected by their
//! resource version.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::Clock;

/// Says whether this process may write now. Clones share the answer.
#[derive(Clone, Debug)]
pub struct Fence(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    right: Mutex<Right>,
    crossed: watch::Sender<Option<WriteRefused>>,
}

#[derive(Clone, Copy, Debug)]
enum Right {
    /// There is no other process.
    Unlimited,
    /// Never had, or given back.
    None,
    /// By [`Clock::uptime`].
    Until(Duration),
}

/// A write that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefused {
    #[error("this process does not hold the lease and may not write")]
    NotLeading,
    #[error(
        "the lease ran out {ago:?} ago and may be held by another process now; \
         this process was probably stopped or suspended for a while"
    )]
    LeaseExpired { ago: Duration },
}

impl Fence {
    /// For a process that is alone: it may always write.
    pub fn open(clock: Clock) -> Self {
        Self::new(clock, Right::Unlimited)
    }

    /// For one of several: it may not write before an election gives it the right to.
    pub fn closed(clock: Clock) -> Self {
        Self::new(clock, Right::None)
    }

    fn new(clock: Clock, right: Right) -> Self {
        let right = Mutex::new(right);
        Self(Arc::new(Shared { clock, right, crossed: watch::Sender::new(None) }))
    }

    /// Right before anything is changed, in the cluster or in the cloud.
    pub fn check(&self) -> Result<(), WriteRefused> {
        match self.right() {
            Right::Unlimited => Ok(()),
            Right::None => Err(WriteRefused::NotLeading),
            Right::Until(end) => {
                let now = self.0.clock.uptime();
                if now < end {
                    return Ok(());
                }
                let refused = WriteRefused::LeaseExpired { ago: now.saturating_sub(end) };
                self.0.crossed.send_if_modified(|first| {
                    let new = first.is_none();
                    first.get_or_insert(refused);
                    new
                });
                Err(refused)
            }
        }
    }

    /// Waits for the first write that was refused because the lease had run out.
    pub async fn crossed(&self) -> WriteRefused {
        let mut crossed = self.0.crossed.subscribe();
        loop {
            if let Some(refused) = *crossed.borrow_and_update() {
                return refused;
            }
            // The sender lives as long as this fence does.
            if crossed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// How long writes are still allowed.
    pub(crate) fn left(&self) -> Duration {
        match self.right() {
            Right::Unlimited => Duration::MAX,
            Right::None => Duration::ZERO,
            Right::Until(end) => end.saturating_sub(self.0.clock.uptime()),
        }
    }

    /// The time by which [`Fence::extend`] counts; to be read before a renewal is sent.
    pub(crate) fn now(&self) -> Duration {
        self.0.clock.uptime()
    }

    /// A renewal that was sent at this time was granted for `lease`.
    pub(crate) fn extend(&self, sent: Duration, lease: Duration) {
        self.set(Right::Until(sent.saturating_add(lease)));
    }

    /// From here on nothing is written.
    pub(crate) fn close(&self) {
        self.set(Right::None);
    }

    fn right(&self) -> Right {
        *self.0.right.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, right: Right) {
        *self.0.right.lock().unwrap_or_else(PoisonError::into_inner) = right;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    const LEASE: Duration = Duration::from_secs(15);

    fn clock() -> Clock {
        Clock::starting_at(Timestamp::UNIX_EPOCH)
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_to_write_ends_when_the_lease_does_however_the_time_passed() {
        // How long the process ran, how long its machine was suspended, and how long the lease was over then.
        for (ran, suspended, over) in [
            (0, 0, None),
            (14_999, 0, None),
            (15_000, 0, Some(0)),
            (0, 14_999, None),
            (0, 40_000, Some(25_000)),
            (8_000, 8_000, Some(1_000)),
        ] {
            let clock = clock();
            let fence = Fence::closed(clock.clone());
            assert_eq!(fence.check(), Err(WriteRefused::NotLeading));
            fence.extend(fence.now(), LEASE);
            tokio::time::advance(Duration::from_millis(ran)).await;
            clock.suspend(Duration::from_millis(suspended));
            let ago = over.map(Duration::from_millis);
            let expected = ago.map_or(Ok(()), |ago| Err(WriteRefused::LeaseExpired { ago }));
            assert_eq!(fence.check(), expected, "{ran} ms and {suspended} ms");
            assert_eq!(fence.left().is_zero(), expected.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_to_a_renewal_does_not_stretch_the_right() {
        let fence = Fence::closed(clock());
        let sent = fence.now();
        tokio::time::advance(Duration::from_secs(5)).await;
        fence.extend(sent, LEASE);
        assert_eq!(fence.left(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_refusal_is_reported_and_a_fence_that_was_closed_reports_none() {
        let clock = clock();
        let fence = Fence::closed(clock.clone());
        let watching = tokio::spawn({
            let fence = fence.clone();
            async move { fence.crossed().await }
        });
        assert!(fence.check().is_err());
        tokio::task::yield_now().await;
        assert!(!watching.is_finished(), "who never led has nothing to step down from");
        fence.extend(fence.now(), LEASE);
        clock.suspend(Duration::from_secs(16));
        assert!(fence.check().is_err() && fence.check().is_err());
        let ago = Duration::from_secs(1);
        assert_eq!(watching.await.unwrap(), WriteRefused::LeaseExpired { ago });
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_alone_may_always_write() {
        let clock = clock();
        let fence = Fence::open(clock.clone());
        clock.suspend(Duration::from_hours(1));
        assert_eq!((fence.check(), fence.left()), (Ok(()), Duration::MAX));
    }
}
