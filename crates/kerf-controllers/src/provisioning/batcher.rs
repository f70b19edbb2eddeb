//! Collecting pods for a moment, so that a rollout of a hundred pods is planned once and not a hundred times.

use std::{
    collections::BTreeSet,
    future::pending,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

/// Closes a batch when nothing new came for a while, or when it has been open for long enough. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batcher(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// What the open batch holds: only something new keeps it open for longer.
    seen: Mutex<BTreeSet<String>>,
    arrived: Notify,
}

impl Batcher {
    pub(crate) fn trigger(&self, id: String) {
        if self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id) {
            self.0.arrived.notify_one();
        }
    }

    /// Waits for a first trigger, then until none came for `idle`, or `max` in all. Without any trigger it ends after
    /// `patience`, if there is one.
    pub(crate) async fn batch(&self, idle: Duration, max: Duration, patience: Option<Duration>) {
        let out_of_patience = async {
            match patience {
                Some(patience) => sleep(patience).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.0.arrived.notified() => {}
            () = out_of_patience => return,
        }
        let end = Instant::now() + max;
        loop {
            let quiet = (Instant::now() + idle).min(end);
            tokio::select! {
                biased;
                () = self.0.arrived.notified() => {
                    if Instant::now() >= end {
                        break;
                    }
                }
                () = sleep_until(quiet) => break,
            }
        }
        // From here on everything is news again, also what this batch is about.
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(10);

    /// When a batch closes, in milliseconds, with triggers at these times.
    async fn closes_at(triggers: &[(u64, &str)]) -> u128 {
        let batcher = Batcher::default();
        let start = Instant::now();
        let send = async {
            for (at, id) in triggers {
                sleep_until(start + Duration::from_millis(*at)).await;
                batcher.trigger((*id).to_owned());
            }
        };
        let close = async {
            batcher.batch(IDLE, MAX, None).await;
            start.elapsed().as_millis()
        };
        tokio::join!(send, close).1
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_closes_when_it_is_quiet() {
        assert_eq!(closes_at(&[(300, "a")]).await, 1300);
        assert_eq!(closes_at(&[(0, "a"), (900, "b"), (1800, "c")]).await, 2800);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_pod_does_not_keep_it_open() {
        assert_eq!(closes_at(&[(0, "a"), (900, "a"), (950, "a")]).await, 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_closes_in_any_case_after_the_longest_time() {
        let names: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let triggers: Vec<_> =
            names.iter().enumerate().map(|(n, id)| (n as u64 * 500, id.as_str())).collect();
        assert_eq!(closes_at(&triggers).await, 10_000);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_only_while_nothing_comes() {
        let batcher = Batcher::default();
        let start = Instant::now();
        batcher.batch(IDLE, MAX, Some(IDLE / 2)).await;
        assert_eq!(start.elapsed(), IDLE / 2);
        batcher.trigger("a".into());
        batcher.batch(IDLE, MAX, Some(IDLE / 2)).await;
        assert_eq!(start.elapsed(), IDLE / 2 + IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_between_two_batches_opens_the_next() {
        let batcher = Batcher::default();
        batcher.trigger("a".into());
        batcher.batch(IDLE, MAX, None).await;
        batcher.trigger("a".into());
        let start = Instant::now();
        batcher.batch(IDLE, MAX, None).await;
        assert_eq!(start.elapsed(), IDLE);
    }
}
