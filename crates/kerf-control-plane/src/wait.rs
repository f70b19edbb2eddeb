//! Waiting for something outside of the process, with an end to it.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// How many times as slow as usual this machine is known to be. Every wait for a control plane is that much longer.
pub const SLOWNESS: &str = "KERF_TEST_SLOWNESS";

/// Far more than anything takes on an idle machine: a loaded one is slow, not broken.
pub(crate) fn patience() -> Duration {
    patient(Duration::from_mins(2))
}

/// For how long to wait for something that takes less than `usual` on a machine of the usual speed.
pub fn patient(usual: Duration) -> Duration {
    let slowness = env::var(SLOWNESS).ok().and_then(|times| times.parse::<u32>().ok());
    usual * slowness.unwrap_or(1).clamp(1, 100)
}

/// Asks until the answer is yes; `false` when patience has run out.
pub(crate) fn poll_blocking(mut ask: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience();
    while !ask() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(INTERVAL);
    }
    true
}
