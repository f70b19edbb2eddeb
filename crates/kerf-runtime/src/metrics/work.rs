//! What controllers do, under the names that controller-runtime made known: `controller_runtime_*` and `workqueue_*`.
//!
//! Gauges of queues are read at each scrape; only durations are recorded as they happen.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::Histogram,
    },
};
use tokio::{task::futures::TaskLocalFuture, time::Instant};

use super::Metrics;
use crate::queue::{Outcome, Workers};

tokio::task_local! {
    static CONTROLLER: &'static str;
}

/// The controller on whose behalf this code runs; empty outside of any.
pub fn current_controller() -> &'static str {
    CONTROLLER.try_with(|controller| *controller).unwrap_or_default()
}

/// Runs something on behalf of a controller.
pub(crate) fn on_behalf_of<F: Future>(
    controller: &'static str,
    work: F,
) -> TaskLocalFuture<&'static str, F> {
    CONTROLLER.scope(controller, work)
}

/// Counts the work of all controllers; every clone counts the same.
#[derive(Clone, Debug, Default)]
pub struct WorkMetrics(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    reconciles: Family<Reconciled, Counter>,
    errors: Family<Controller, Counter>,
    /// Kerf tries everything again and sets no time limit to a reconcile: these two stay at zero, for those who alert on them.
    terminal_errors: Family<Controller, Counter>,
    timeouts: Family<Controller, Counter>,
    panics: Family<Controller, Counter>,
    reconcile_time: Family<Controller, Histogram>,
    queue_time: Family<Named, Histogram>,
    work_time: Family<Named, Histogram>,
    queues: Queues,
}

impl Default for Counted {
    fn default() -> Self {
        let work = || Histogram::new((0..12).map(|power| 1e-8 * 10_f64.powi(power)));
        Self {
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            timeouts: Family::default(),
            panics: Family::default(),
            reconcile_time: Family::new_with_constructor(|| Histogram::new(RECONCILE_TIMES)),
            queue_time: Family::new_with_constructor(work),
            work_time: Family::new_with_constructor(work),
            queues: Arc::default(),
        }
    }
}

/// The queues that are worked on; those whose operator has ended are skipped.
type Queues = Arc<Mutex<Vec<(Workers, Weak<dyn Queued>)>>>;

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    As(Outcome),
    Failed,
    Panicked,
}

/// A queue at the moment of a scrape.
#[derive(Debug, Default)]
pub(crate) struct QueueStats {
    pub(crate) waiting: usize,
    pub(crate) added: u64,
    pub(crate) retried: u64,
    /// When the reconciles that run began.
    pub(crate) running: Vec<Instant>,
}

pub(crate) trait Queued: Send + Sync + fmt::Debug {
    fn stats(&self) -> QueueStats;
}

impl WorkMetrics {
    pub fn register(metrics: &Metrics) -> Self {
        let new = Self::default();
        let counted = &new.0;
        metrics.register(|registry| {
            let mut runtime = registry.sub_registry_with_prefix("controller_runtime");
            for (name, help, counter) in [
                ("reconcile_errors", "Reconciles that failed", &counted.errors),
                (
                    "terminal_reconcile_errors",
                    "Reconciles that failed for good; Kerf tries everything again",
                    &counted.terminal_errors,
                ),
                ("reconcile_panics", "Reconciles that panicked", &counted.panics),
                (
                    "reconcile_timeouts",
                    "Reconciles that took too long; Kerf cuts none off",
                    &counted.timeouts,
                ),
            ] {
                runtime.register(name, help, counter.clone());
            }
            runtime.register("reconcile", "Reconciles by their result", counted.reconciles.clone());
            let help = "Time that reconciles took";
            runtime.register("reconcile_time_seconds", help, counted.reconcile_time.clone());
            let mut queues = registry.sub_registry_with_prefix("workqueue");
            let help = "Time that keys waited for a worker";
            queues.register("queue_duration_seconds", help, counted.queue_time.clone());
            let help = "Time that a worker took for a key";
            queues.register("work_duration_seconds", help, counted.work_time.clone());
            registry.register_collector(|example| QueueCollector {
                queues: Arc::clone(&counted.queues),
                example,
            });
        });
        new
    }

    /// One pass of a controller that has no queue.
    pub async fn pass<T, E>(
        &self,
        controller: &'static str,
        pass: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let begin = Instant::now();
        let result = on_behalf_of(controller, pass).await;
        let ended = if result.is_ok() { Ended::As(Outcome::Done) } else { Ended::Failed };
        self.ended(controller, begin, ended);
        result
    }

    /// A queue begins to be worked on.
    pub(crate) fn follow(&self, workers: Workers, queue: Weak<dyn Queued>) {
        self.begin(workers.controller);
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).push((workers, queue));
    }

    /// A key leaves a queue for a worker.
    pub(crate) fn started(&self, controller: &'static str, added: Instant) {
        let waited = added.elapsed().as_secs_f64();
        self.0.queue_time.get_or_create(&Named::of(controller)).observe(waited);
    }

    pub(crate) fn finished(&self, controller: &'static str, begin: Instant, ended: Ended) {
        let took = begin.elapsed().as_secs_f64();
        self.0.work_time.get_or_create(&Named::of(controller)).observe(took);
        self.ended(controller, begin, ended);
    }

    fn ended(&self, controller: &'static str, begin: Instant, ended: Ended) {
        let by = Controller { controller };
        let result = match ended {
            Ended::As(Outcome::Done) => "success",
            Ended::As(Outcome::After(_)) => "requeue_after",
            Ended::As(Outcome::Backoff) => "requeue",
            Ended::Failed | Ended::Panicked => "error",
        };
        self.begin(controller);
        self.0.reconciles.get_or_create(&Reconciled { controller, result }).inc();
        self.0.reconcile_time.get_or_create(&by).observe(begin.elapsed().as_secs_f64());
        if ended == Ended::Panicked {
            self.0.panics.get_or_create(&by).inc();
        }
        if matches!(ended, Ended::Failed | Ended::Panicked) {
            self.0.errors.get_or_create(&by).inc();
        }
    }

    /// Counters begin at zero, so that the first failure is a change that an alert can see.
    fn begin(&self, controller: &'static str) {
        let by = Controller { controller };
        let counted = &self.0;
        for family in
            [&counted.errors, &counted.terminal_errors, &counted.timeouts, &counted.panics]
        {
            family.get_or_create(&by).inc_by(0);
        }
    }
}

/// Asks the queues how they stand.
#[derive(Debug)]
struct QueueCollector {
    queues: Queues,
    /// Whether a queue without a name is shown as well.
    example: bool,
}

impl Collector for QueueCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let queues = queues.iter().filter_map(|(workers, queue)| {
            Some((workers.controller, workers.concurrency, queue.upgrade()?.stats()))
        });
        let example = self.example.then(|| ("", 0, QueueStats::default()));
        let queues_now: Vec<_> = queues.chain(example).collect();
        let mut gauge = |name: &str, help: &str, value: fn(usize, &QueueStats) -> f64| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (controller, workers, stats) in &queues_now {
                let value = ConstGauge::new(value(*workers, stats));
                if name.starts_with("workqueue") {
                    let labels = Named::of(controller);
                    value.encode(family.encode_family(&labels)?)?;
                } else {
                    let labels = Controller { controller };
                    value.encode(family.encode_family(&labels)?)?;
                }
            }
            Ok::<(), fmt::Error>(())
        };
        gauge("controller_runtime_max_concurrent_reconciles", "Workers", |workers, _| {
            count(workers)
        })?;
        gauge("controller_runtime_active_workers", "Workers that are reconciling", |_, it| {
            count(it.running.len())
        })?;
        gauge("workqueue_depth", "Keys that wait for a worker", |_, it| count(it.waiting))?;
        let help = "Time that the reconciles under way have taken, all together";
        gauge("workqueue_unfinished_work_seconds", help, |_, it| {
            it.running.iter().map(|begin| begin.elapsed().as_secs_f64()).sum()
        })?;
        let help = "Time that the longest reconcile under way has taken";
        gauge("workqueue_longest_running_processor_seconds", help, |_, it| {
            it.running.iter().map(|begin| begin.elapsed().as_secs_f64()).fold(0.0, f64::max)
        })?;
        let mut counter = |name: &str, help: &str, value: fn(&QueueStats) -> u64| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (controller, _, stats) in &queues_now {
                let labels = Named::of(controller);
                ConstCounter::new(value(stats)).encode(family.encode_family(&labels)?)?;
            }
            Ok::<(), fmt::Error>(())
        };
        counter("workqueue_adds", "Keys added", |it| it.added)?;
        counter("workqueue_retries", "Keys that were queued again after a failure", |it| it.retried)
    }
}

#[allow(clippy::cast_precision_loss, reason = "queues are shorter than 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciled {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    name: &'static str,
    controller: &'static str,
}

impl Named {
    fn of(controller: &'static str) -> Self {
        Self { name: controller, controller }
    }
}

const RECONCILE_TIMES: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];
