//! Collecting pods for a moment, so that a rollout of a hundred pods is planned once and not a hundred times.

use std::{
    collections::BTreeSet,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kerf_cluster::owners::PodOwner;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};

use super::closing::{Closed, LOOK_AGAIN, Open, Outlook, Verdict, decide};
use crate::settings::Batching;

/// Closes a batch when nothing new is to be expected, or when it has been open for long enough. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batcher(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    /// What the open batch holds: only something new keeps it open for longer.
    ids: BTreeSet<String>,
    contents: Contents,
}

/// Where a batch comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Of its pods.
    pub(super) owners: BTreeSet<PodOwner>,
    /// Whether there is something in it that no owner tells of: a pod without one, a node that goes.
    pub(super) elsewhere: bool,
}

/// A batch that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) closed: Closed,
    pub(super) lasted: Duration,
}

impl Batcher {
    pub(crate) fn trigger(&self, id: String) {
        self.trigger_of(id, None);
    }

    /// The same for a pod with an owner.
    pub(super) fn trigger_of(&self, id: String, owner: Option<PodOwner>) {
        let mut seen = self.seen();
        if seen.ids.insert(id) {
            match owner {
                Some(owner) => drop(seen.contents.owners.insert(owner)),
                None => seen.contents.elsewhere = true,
            }
            self.0.arrived.notify_one();
        }
    }

    /// Waits for a first trigger, then for as long as [`decide`] says. Without any trigger it ends after `patience`, if there is
    /// one, and there is no batch.
    pub(super) async fn batch(
        &self,
        batching: Batching,
        patience: Option<Duration>,
        mut outlook: impl FnMut(&Contents, Instant) -> Outlook,
    ) -> Option<Batch> {
        let out_of_patience = async {
            match patience {
                Some(patience) => sleep(patience).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.0.arrived.notified() => {}
            () = out_of_patience => return None,
        }
        let begin = Instant::now();
        let mut open = Open { since: begin, last: begin };
        let mut look = |now| {
            // Copied, so that the lock is free: the index is read next, and who writes to that triggers.
            let contents = self.seen().contents.clone();
            (now, outlook(&contents, now))
        };
        let (mut looked_at, mut known) = look(begin);
        let closed = loop {
            let now = Instant::now();
            let mut verdict = decide(now, open, known, batching);
            // Thousands of pods may come in a second. Not for each of them all owners are gone through.
            let is_over = matches!(verdict, Verdict::Close(_));
            if now >= looked_at + LOOK_AGAIN || (is_over && now > looked_at) {
                (looked_at, known) = look(now);
                verdict = decide(now, open, known, batching);
            }
            let until = match verdict {
                Verdict::Close(closed) => break closed,
                Verdict::Wait(until) => until,
            };
            tokio::select! {
                biased;
                () = self.0.arrived.notified() => open.last = Instant::now(),
                () = sleep_until(until) => {}
            }
        };
        // From here on everything is news again, also what this batch is about.
        *self.seen() = Seen::default();
        Some(Batch { closed, lasted: open.since.elapsed() })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_cluster::{Key, owners::OwnerKind};

    const IDLE: Duration = Duration::from_secs(1);

    /// One that nothing is known of.
    async fn batch(batcher: &Batcher, patience: Option<Duration>) {
        batcher.batch(Batching::default(), patience, |_, _| Outlook::Unknown).await;
    }

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
            batch(&batcher, None).await;
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
        batch(&batcher, Some(IDLE / 2)).await;
        assert_eq!(start.elapsed(), IDLE / 2);
        batcher.trigger("a".into());
        batch(&batcher, Some(IDLE / 2)).await;
        assert_eq!(start.elapsed(), IDLE / 2 + IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_between_two_batches_opens_the_next() {
        let batcher = Batcher::default();
        batcher.trigger("a".into());
        batch(&batcher, None).await;
        batcher.trigger("a".into());
        let start = Instant::now();
        batch(&batcher, None).await;
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_closed_when_all_that_is_to_come_is_there() {
        let batcher = Batcher::default();
        let start = Instant::now();
        let owner = |name: &str| PodOwner {
            kind: OwnerKind::Job,
            key: Key::namespaced("d", name),
            uid: name.into(),
        };
        batcher.trigger_of("1".into(), Some(owner("a")));
        let send = async {
            sleep(IDLE * 3).await;
            batcher.trigger_of("2".into(), Some(owner("b")));
        };
        // The second workload is complete with its first pod.
        let outlook = |contents: &Contents, _| match contents.owners.len() {
            2 => Outlook::Complete { workloads: 2 },
            _ => Outlook::Coming { pods: 1, workloads: 1 },
        };
        let (batch, ()) = tokio::join!(batcher.batch(Batching::default(), None, outlook), send);
        let batch = batch.unwrap();
        assert_eq!(batch.closed, Closed::Complete { workloads: 2 });
        assert_eq!(batch.lasted, IDLE * 3 + IDLE / 10);
        assert_eq!(batch.lasted, start.elapsed());
        assert_eq!(batcher.seen().contents, Contents::default());
    }
}
