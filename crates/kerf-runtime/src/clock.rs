//! The one place where the operator reads wall-clock time.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells wall-clock time.
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
    Tokio { epoch: Timestamp, start: Instant },
}

impl Clock {
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that reads `epoch` now and follows tokio's clock from here on. Needs a tokio runtime.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self(Source::Tokio { epoch, start: Instant::now() })
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Tokio { epoch, start } => {
                let elapsed = SignedDuration::try_from(start.elapsed());
                // Past year 9999 there is no timestamp to give; the last one is the least wrong.
                elapsed.ok().and_then(|e| epoch.checked_add(e).ok()).unwrap_or(Timestamp::MAX)
            }
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
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn follows_the_paused_clock() {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(epoch);
        assert_eq!(clock.now(), epoch);
        tokio::time::advance(Duration::from_hours(24)).await;
        assert_eq!(clock.now(), "2026-01-02T00:00:00Z".parse::<Timestamp>().unwrap());
        assert_eq!(clock.since(epoch), SignedDuration::from_hours(24));
    }
}
