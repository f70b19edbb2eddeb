//! The one place where the operator reads wall-clock time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// Tells wall-clock time, and how long the machine has been up.
///
/// Everything that compares with a timestamp of the API (lease renewals, `consolidateAfter`, expiry)
/// asks a `Clock`, so that the same code runs in real time and in virtual time. Waiting is tokio's
/// business: `tokio::time` already follows the paused clock of a test.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The machine's clock, read anew each time: it is corrected by NTP while a process runs for months.
    System,
    /// `epoch` plus the time tokio's clock has passed since `start`, so that it stands still and jumps with it.
    Tokio { epoch: Timestamp, start: Instant, suspended: Arc<AtomicU64>, set_by: Arc<AtomicI64> },
}

/// The clock of this machine that goes on while it is suspended and cannot be set. `Instant` stands still in a
/// suspended virtual machine on Linux, and other machines do not.
#[cfg(target_os = "linux")]
const THROUGH_PAUSES: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const THROUGH_PAUSES: ClockId = ClockId::Monotonic;

impl Clock {
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that reads `epoch` now and follows tokio's clock from here on. Needs a tokio runtime.
    pub fn starting_at(epoch: Timestamp) -> Self {
        let (suspended, set_by) = (Arc::default(), Arc::default());
        Self(Source::Tokio { epoch, start: Instant::now(), suspended, set_by })
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Tokio { epoch, start, set_by, .. } => {
                let set_by = SignedDuration::from_millis(set_by.load(Ordering::Relaxed));
                let elapsed = SignedDuration::try_from(start.elapsed()).ok();
                let elapsed = elapsed.and_then(|elapsed| elapsed.checked_add(set_by));
                // Past year 9999 there is no timestamp to give; the last one is the least wrong.
                elapsed.and_then(|e| epoch.checked_add(e).ok()).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// The time since some moment in the past, which runs through pauses of the process and of the machine. Only the
    /// difference of two such times means something, and only in one process.
    pub fn uptime(&self) -> Duration {
        match &self.0 {
            Source::System => {
                let time = clock_gettime(THROUGH_PAUSES);
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
            }
            Source::Tokio { start, suspended, .. } => {
                start.elapsed() + Duration::from_millis(suspended.load(Ordering::Relaxed))
            }
        }
    }

    /// Makes `uptime` jump, as it does for a machine that was suspended: no timer of tokio knows of it. A clock of the
    /// system cannot do that.
    pub fn suspend(&self, pause: Duration) {
        if let Source::Tokio { suspended, .. } = &self.0 {
            let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            suspended.fetch_add(pause, Ordering::Relaxed);
        }
    }

    /// Makes `now` jump forward or back, as somebody who sets the clock of a machine does: `uptime` does not know of it. A
    /// clock of the system cannot do that.
    pub fn set_by(&self, jump: SignedDuration) {
        if let Source::Tokio { set_by, .. } = &self.0 {
            let jump = i64::try_from(jump.as_millis()).unwrap_or_default();
            set_by.fetch_add(jump, Ordering::Relaxed);
        }
    }

    /// How long ago `then` was; negative when it lies ahead.
    pub fn since(&self, then: Timestamp) -> SignedDuration {
        self.now().duration_since(then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_the_paused_clock() {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(epoch);
        assert_eq!(clock.now(), epoch);
        tokio::time::advance(Duration::from_hours(24)).await;
        assert_eq!(clock.now(), "2026-01-02T00:00:00Z".parse::<Timestamp>().unwrap());
        assert_eq!(clock.since(epoch), SignedDuration::from_hours(24));
    }

    #[tokio::test(start_paused = true)]
    async fn uptime_runs_through_a_suspension() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let (before, of_tokio) = (clock.uptime(), Instant::now());
        clock.clone().suspend(Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(clock.uptime().saturating_sub(before), Duration::from_secs(32));
        assert_eq!(of_tokio.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn uptime_does_not_know_who_sets_the_clock() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let before = clock.uptime();
        for (jump, reads) in [(600, 600), (-900, -300), (300, 0)] {
            clock.clone().set_by(SignedDuration::from_secs(jump));
            assert_eq!(clock.now().as_second(), reads);
        }
        assert_eq!(clock.uptime(), before);
    }

    #[test]
    fn the_uptime_of_the_system_goes_forward() {
        let clock = Clock::system();
        let before = clock.uptime();
        assert!(before > Duration::ZERO && clock.uptime() >= before);
    }
}
