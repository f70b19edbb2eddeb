//! Whether what is known of the cluster may be wrong, because nothing is heard about some kind of object.
//!
//! A right that was taken away, or an API server that refuses one kind for a while, leaves the rest working. A node whose
//! pods the operator does not hear of would look empty: such a node would be disrupted, and its drain would be over before it began.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::follow::{Freshness, Timing};

const SAY_AGAIN: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(crate) struct Sight {
    freshness: Freshness,
    timing: Timing,
    said: Mutex<Option<Instant>>,
}

impl Sight {
    pub(crate) fn new(freshness: Freshness, timing: Timing) -> Self {
        Self { freshness, timing, said: Mutex::default() }
    }

    /// Whether no node may go now. That is said once, and again after minutes; the watch says by itself what is wrong with it.
    pub(crate) fn is_lost(&self) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.timing.blind_at_most();
        let Some((kind, silent)) = self.freshness.oldest().filter(|(_, age)| *age > most) else {
            *said = None;
            return false;
        };
        if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            info!(kind, silent_for = ?silent, "no node is disrupted or drained: the API server sends nothing about a kind of object");
            *said = Some(Instant::now());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sight_is_lost_when_nothing_is_heard_about_one_kind_and_comes_back() {
        let freshness = Freshness::default();
        let sight = Sight::new(freshness.clone(), Timing::default());
        assert!(!sight.is_lost(), "nothing was listed yet");
        freshness.heard("Node");
        freshness.heard("Pod");
        let most = Timing::default().blind_at_most();
        tokio::time::sleep(most).await;
        assert!(!sight.is_lost());
        freshness.heard("Node");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(sight.is_lost());
        freshness.heard("Pod");
        assert!(!sight.is_lost());
    }
}
