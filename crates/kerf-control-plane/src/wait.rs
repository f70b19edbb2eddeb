//! Waiting for something outside of the process, with an end to it.

use std::thread;
use std::time::{Duration, Instant};

pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// Far more than anything takes on an idle machine: a loaded one is slow, not broken.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Asks until the answer is yes; `false` when patience has run out.
pub(crate) fn poll_blocking(mut ask: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !ask() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(INTERVAL);
    }
    true
}
