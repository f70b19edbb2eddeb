//! A work queue: keys in, reconciles out, each key by one worker at a time.
//!
//! kube-runtime's `Controller` owns its watches and iterates hash maps; here one watch per kind feeds
//! many controllers, and a run in virtual time must be the same run every time. So the queue is ours:
//! ordered collections only, tokio's clock only, and every future polled by the one task that runs it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::{Debug, Display},
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info_span};

use crate::{
    Bucket, Tokens,
    metrics::work::{Ended, QueueStats, Queued, WorkMetrics, on_behalf_of},
};

/// What a reconcile wants next for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing until the key is added again.
    Done,
    /// Once more after this time, or sooner if the key is added again.
    After(Duration),
    /// Once more, a little later each time: someone else wrote first, or a condition is not met yet.
    Backoff,
}

/// How many reconciles run at once and how fast failing keys come back.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    pub controller: &'static str,
    pub concurrency: usize,
    /// On the largest machine.
    pub most: usize,
    pub backoff: Backoff,
    /// Limits retries over all keys together; without it only the keys' own backoff counts.
    pub bucket: Option<Bucket>,
}

impl Workers {
    pub const fn new(controller: &'static str, concurrency: usize) -> Self {
        Self { controller, concurrency, most: concurrency, backoff: Backoff::DEFAULT, bucket: None }
    }

    pub const fn up_to(self, most: usize) -> Self {
        Self { most, ..self }
    }

    pub const fn backoff(self, first: Duration, most: Duration) -> Self {
        Self { backoff: Backoff { first, most }, ..self }
    }

    pub const fn bucket(self, per_second: u32, burst: u32) -> Self {
        Self { bucket: Some(Bucket { per_second, burst }), ..self }
    }
}

/// Doubles from `first` to `most` with each failure of a key in a row.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

impl Backoff {
    /// What controllers get that ask for nothing else (controller-runtime's default).
    pub const DEFAULT: Self =
        Self { first: Duration::from_millis(5), most: Duration::from_secs(1000) };

    /// The wait after the `failures`-th failure in a row, counted from 0.
    fn wait(&self, failures: u32) -> Duration {
        let factor = 2u32.checked_pow(failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.most)
    }
}

/// A queue of keys; cheap to clone, and every clone is the same queue.
#[derive(Debug)]
pub struct Queue<K>(Arc<Shared<K>>);

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

/// Where a key can be. `ready`, `running` and `due` may hold it at once: it is being worked on, was added
/// again meanwhile, and its last outcome asked for a later look.
#[derive(Debug)]
struct State<K> {
    /// With the time at which each was added.
    ready: VecDeque<(K, Instant)>,
    is_ready: BTreeSet<K>,
    /// With the time at which its reconcile began.
    running: BTreeMap<K, Instant>,
    /// Added while running: goes back to `ready` when the worker is done with it.
    dirty: BTreeSet<K>,
    /// By time, then by arrival, so that equal times keep their order.
    due: BTreeMap<(Instant, u64), K>,
    due_at: BTreeMap<K, (Instant, u64)>,
    failures: BTreeMap<K, u32>,
    arrivals: u64,
    added: u64,
    retried: u64,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                is_ready: BTreeSet::new(),
                running: BTreeMap::new(),
                dirty: BTreeSet::new(),
                due: BTreeMap::new(),
                due_at: BTreeMap::new(),
                failures: BTreeMap::new(),
                arrivals: 0,
                added: 0,
                retried: 0,
            }),
            changed: Notify::new(),
        }))
    }
}

impl<K: Ord + Clone + Display + Debug + Send + 'static> Queue<K> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reconcile `key` as soon as a worker is free. A key that waits already is not added twice.
    pub fn add(&self, key: K) {
        self.state().add(key);
        self.0.changed.notify_one();
    }

    /// Reconcile `key` after `delay`; of several delays the earliest counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.state().add_after(key, delay);
        self.0.changed.notify_one();
    }

    /// Reconciles keys until `stop`, then lets the running reconciles end.
    pub async fn run<E, F, Fut>(
        &self,
        workers: Workers,
        metrics: &WorkMetrics,
        stop: CancellationToken,
        reconcile: F,
    ) where
        E: Display,
        F: Fn(K) -> Fut,
        Fut: Future<Output = Result<Outcome, E>>,
    {
        let controller = workers.controller;
        let shared: Weak<Shared<K>> = Arc::downgrade(&self.0);
        metrics.follow(workers, shared);
        let mut bucket = workers.bucket.map(Tokens::full);
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < workers.concurrency {
                let Some((key, added)) = self.state().start_next() else { break };
                metrics.started(controller, added);
                let span = info_span!("reconcile", controller, object = %key);
                // A panic costs one reconcile, not the operator: the key is retried like any failure.
                let work = AssertUnwindSafe(reconcile(key.clone())).catch_unwind();
                let work = async move { (key, work.await) };
                running.push(on_behalf_of(controller, work).instrument(span));
            }
            let next_due = self.state().next_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some((key, result)) = running.next() => {
                    let ended = match result {
                        Ok(Ok(outcome)) => Ended::As(outcome),
                        Ok(Err(failure)) => {
                            error!(controller, object = %key, error = %failure, "reconciler error");
                            Ended::Failed
                        }
                        Err(_panic) => {
                            error!(controller, object = %key, "reconciler panicked");
                            Ended::Panicked
                        }
                    };
                    let outcome = match ended {
                        Ended::As(outcome) => outcome,
                        Ended::Failed | Ended::Panicked => Outcome::Backoff,
                    };
                    let begin = self.state().finish(key, outcome, workers.backoff, bucket.as_mut());
                    metrics.finished(controller, begin, ended);
                }
                () = self.0.changed.notified() => {}
                () = sleep_until(next_due.unwrap_or_else(Instant::now)), if next_due.is_some() => {
                    self.state().promote_due();
                }
            }
        }
        debug!(controller, running = running.len(), "stopping");
        while running.next().await.is_some() {}
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Nothing that holds the lock panics half-way through a change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Debug + Send> Queued for Shared<K> {
    fn stats(&self) -> QueueStats {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        QueueStats {
            waiting: state.ready.len(),
            added: state.added,
            retried: state.retried,
            running: state.running.values().copied().collect(),
        }
    }
}

impl<K: Ord + Clone> State<K> {
    fn add(&mut self, key: K) {
        if self.running.contains_key(&key) {
            self.dirty.insert(key);
        } else if self.is_ready.insert(key.clone()) {
            self.added += 1;
            self.ready.push_back((key, Instant::now()));
        }
    }

    fn add_after(&mut self, key: K, delay: Duration) {
        let slot = (Instant::now() + delay, self.arrivals);
        self.arrivals += 1;
        if let Some(earlier) = self.due_at.get(&key) {
            if earlier.0 <= slot.0 {
                return;
            }
            self.due.remove(earlier);
        }
        self.due.insert(slot, key.clone());
        self.due_at.insert(key, slot);
    }

    /// The next key, and when it was added.
    fn start_next(&mut self) -> Option<(K, Instant)> {
        let (key, added) = self.ready.pop_front()?;
        self.is_ready.remove(&key);
        // This look replaces the one that was due later: its own outcome says when the next one is.
        if let Some(slot) = self.due_at.remove(&key) {
            self.due.remove(&slot);
        }
        self.running.insert(key.clone(), Instant::now());
        Some((key, added))
    }

    /// Returns when the reconcile that is finished began.
    fn finish(
        &mut self,
        key: K,
        outcome: Outcome,
        backoff: Backoff,
        bucket: Option<&mut Tokens>,
    ) -> Instant {
        let begin = self.running.remove(&key).unwrap_or_else(Instant::now);
        match outcome {
            Outcome::Done => {
                self.failures.remove(&key);
            }
            Outcome::After(delay) => {
                self.failures.remove(&key);
                self.add_after(key.clone(), delay);
            }
            Outcome::Backoff => {
                let failures = self.failures.entry(key.clone()).or_default();
                let own = backoff.wait(*failures);
                *failures += 1;
                self.retried += 1;
                let shared = bucket.map_or(Duration::ZERO, Tokens::take);
                self.add_after(key.clone(), own.max(shared));
            }
        }
        if self.dirty.remove(&key) {
            self.add(key);
        }
        begin
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.first_key_value().map(|(slot, _)| slot.0)
    }

    fn promote_due(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.due_at.remove(&key);
            self.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const WORKERS: Workers = Workers::new("test", 2);

    /// Runs the queue on a paused clock and notes, for each reconcile, the key and the milliseconds passed.
    /// `script` says what the n-th reconcile returns; the queue stops when the script is over.
    async fn run(
        queue: Queue<&'static str>,
        workers: Workers,
        script: Vec<Result<Outcome, &'static str>>,
    ) -> Vec<(&'static str, u128)> {
        let start = Instant::now();
        let stop = CancellationToken::new();
        let seen = RefCell::new(Vec::new());
        let script = RefCell::new(VecDeque::from(script));
        queue
            .run(workers, &WorkMetrics::default(), stop.clone(), |key| {
                seen.borrow_mut().push((key, start.elapsed().as_millis()));
                let result = script.borrow_mut().pop_front().unwrap();
                if script.borrow().is_empty() {
                    stop.cancel();
                }
                async move { result }
            })
            .await;
        seen.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_run_in_the_order_they_came_and_once_however_often_added() {
        let queue = Queue::new();
        for key in ["b", "a", "b", "c", "a"] {
            queue.add(key);
        }
        let seen = run(queue, WORKERS, vec![Ok(Outcome::Done); 3]).await;
        assert_eq!(seen, [("b", 0), ("a", 0), ("c", 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_twice_as_long_each_time_and_success_forgets_them() {
        let queue = Queue::new();
        queue.add("a");
        let workers = WORKERS.backoff(Duration::from_millis(100), Duration::from_millis(300));
        let script = vec![
            Err("no"),
            Err("no"),
            Ok(Outcome::Backoff),
            Ok(Outcome::After(Duration::from_secs(1))),
            Err("no"),
            Ok(Outcome::Done),
        ];
        let times: Vec<_> = run(queue, workers, script).await.into_iter().map(|s| s.1).collect();
        assert_eq!(times, [0, 100, 300, 600, 1600, 1700]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_delays_the_earlier_counts_and_an_add_runs_at_once() {
        let queue = Queue::new();
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(2));
        queue.add_after("a", Duration::from_secs(9));
        queue.add_after("b", Duration::from_secs(3));
        queue.add("b");
        let seen = run(queue, WORKERS, vec![Ok(Outcome::Done); 2]).await;
        assert_eq!(seen, [("b", 0), ("a", 2000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_spreads_failures_of_many_keys() {
        let queue = Queue::new();
        for key in ["a", "b", "c"] {
            queue.add(key);
        }
        let script = vec![
            Err("no"),
            Err("no"),
            Err("no"),
            Ok(Outcome::Done),
            Ok(Outcome::Done),
            Ok(Outcome::Done),
        ];
        let workers = Workers::new("test", 3).backoff(Duration::ZERO, Duration::ZERO).bucket(1, 1);
        let times: Vec<_> = run(queue, workers, script).await.into_iter().map(|s| s.1).collect();
        assert_eq!(times, [0, 0, 0, 0, 1000, 2000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_runs_runs_again_and_never_twice_at_once() {
        let queue = Queue::new();
        queue.add("a");
        let stop = CancellationToken::new();
        let (now, most, runs) = (RefCell::new(0), RefCell::new(0), RefCell::new(0));
        let (again, stop_from_within, now, most, runs) =
            (queue.clone(), stop.clone(), &now, &most, &runs);
        queue
            .run(WORKERS, &WorkMetrics::default(), stop, |key| {
                let (again, stop) = (again.clone(), stop_from_within.clone());
                async move {
                    *now.borrow_mut() += 1;
                    *runs.borrow_mut() += 1;
                    most.replace_with(|most| (*most).max(*now.borrow()));
                    if *runs.borrow() < 3 {
                        again.add(key);
                    } else {
                        stop.cancel();
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    *now.borrow_mut() -= 1;
                    Ok::<_, String>(Outcome::Done)
                }
            })
            .await;
        assert_eq!((*runs.borrow(), *most.borrow()), (3, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_like_any_other() {
        let queue = Queue::new();
        queue.add("a");
        let stop = CancellationToken::new();
        let (runs, stop_from_within) = (RefCell::new(0), stop.clone());
        queue
            .run(WORKERS, &WorkMetrics::default(), stop, |_| {
                let run = runs.replace_with(|n| *n + 1);
                if run == 1 {
                    stop_from_within.cancel();
                }
                async move {
                    assert!(run > 0, "the first run fails");
                    Ok::<_, String>(Outcome::Done)
                }
            })
            .await;
        assert_eq!(*runs.borrow(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_counted_under_the_names_of_controller_runtime() {
        let metrics = crate::Metrics::default();
        let work = WorkMetrics::register(&metrics);
        let queue = Queue::new();
        let stop = CancellationToken::new();
        for key in ["done", "later", "fails", "panics"] {
            queue.add(key);
        }
        let (runs, stop_from_within) = (RefCell::new(0), stop.clone());
        let workers =
            Workers::new("test", 1).backoff(Duration::from_secs(9), Duration::from_secs(9));
        let text = RefCell::new(String::new());
        let (runs, text, metrics) = (&runs, &text, &metrics);
        queue
            .run(workers, &work, stop, |key| {
                *runs.borrow_mut() += 1;
                let last = *runs.borrow() == 5;
                let stop = stop_from_within.clone();
                async move {
                    assert_eq!(crate::current_controller(), "test");
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    if last {
                        *text.borrow_mut() = metrics.text();
                        stop.cancel();
                        return Ok(Outcome::Done);
                    }
                    match key {
                        "done" => Ok(Outcome::Done),
                        "later" => Ok(Outcome::After(Duration::from_mins(1))),
                        "fails" => Err("no"),
                        other => panic!("{other}"),
                    }
                }
            })
            .await;
        let text = text.borrow();
        let named = "{name=\"test\",controller=\"test\"}";
        for line in [
            "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"test\",result=\"requeue_after\"} 1",
            "controller_runtime_reconcile_total{controller=\"test\",result=\"error\"} 2",
            "controller_runtime_reconcile_errors_total{controller=\"test\"} 2",
            "controller_runtime_reconcile_panics_total{controller=\"test\"} 1",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"test\"} 0",
            "controller_runtime_reconcile_timeouts_total{controller=\"test\"} 0",
            "controller_runtime_reconcile_time_seconds_sum{controller=\"test\"} 8.0",
            "controller_runtime_max_concurrent_reconciles{controller=\"test\"} 1.0",
            "controller_runtime_active_workers{controller=\"test\"} 1.0",
            &format!("workqueue_depth{named} 0.0"),
            &format!("workqueue_adds_total{named} 5"),
            &format!("workqueue_retries_total{named} 2"),
            &format!("workqueue_unfinished_work_seconds{named} 2.0"),
            &format!("workqueue_longest_running_processor_seconds{named} 2.0"),
            &format!("workqueue_work_duration_seconds_count{named} 4"),
            // Nothing, then two, four and six seconds behind the others; the fifth came when it was due.
            &format!("workqueue_queue_duration_seconds_sum{named} 12.0"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
