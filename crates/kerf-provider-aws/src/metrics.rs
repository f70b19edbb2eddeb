//! What is counted of launches and terminations, under Karpenter's names, and how old prices are.

use std::{fmt, sync::Arc, time::Duration};

use kerf_runtime::Metrics;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::offers::Offers;

#[derive(Clone, Debug)]
pub(crate) struct CloudMetrics {
    launch_failures: Family<LaunchFailure, Counter>,
    termination_failures: Family<Place, Counter>,
    pub(crate) batches: BatchMetrics,
}

/// Of an offering, not of a claim: one answer can refuse many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LaunchFailure {
    pub(crate) zone: String,
    pub(crate) zone_id: String,
    pub(crate) capacity_type: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Place {
    zone: String,
    zone_id: String,
}

#[derive(Clone, Debug)]
pub(crate) struct BatchMetrics {
    time: Family<Batcher, Histogram>,
    size: Family<Batcher, Histogram>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Batcher {
    batcher: &'static str,
}

impl Default for BatchMetrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.01, 2.0, 9));
        let sizes = || Histogram::new(exponential_buckets(1.0, 2.0, 10));
        Self {
            time: Family::new_with_constructor(seconds),
            size: Family::new_with_constructor(sizes),
        }
    }
}

impl BatchMetrics {
    pub(crate) fn closed(&self, batcher: &'static str, size: usize, after: Duration) {
        let batcher = Batcher { batcher };
        self.time.get_or_create(&batcher).observe(after.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "batches are small")]
        self.size.get_or_create(&batcher).observe(size as f64);
    }
}

impl CloudMetrics {
    pub(crate) fn new() -> Self {
        Self {
            launch_failures: Family::default(),
            termination_failures: Family::default(),
            batches: BatchMetrics::default(),
        }
    }

    /// Once in a process.
    pub(crate) fn register(&self, metrics: &Metrics, offers: &Arc<Offers>) {
        self.register_counts(metrics);
        let ages = Ages(Some(Arc::clone(offers)));
        metrics.register(|registry| registry.register_collector(|_| ages));
    }

    /// All of them without a cloud: to document them, with a registry that shows examples.
    pub(crate) fn register_examples(metrics: &Metrics) {
        Self::new().register_counts(metrics);
        metrics.register(|registry| registry.register_collector(|_| Ages(None)));
    }

    fn register_counts(&self, metrics: &Metrics) {
        metrics.register(|registry| {
            let mut provider = registry.sub_registry_with_prefix("karpenter_cloudprovider");
            let help = "Offerings that an answer to a launch refused";
            let failures = self.launch_failures.clone();
            provider.register("instance_launch_failures", help, failures);
            let help = "Instances that could not be terminated";
            let failures = self.termination_failures.clone();
            provider.register("instance_termination_failures", help, failures);
            let help = "Time that a batch of calls waited for others to join it";
            provider.register("batcher_batch_time_seconds", help, self.batches.time.clone());
            let help = "Calls that were made as one";
            provider.register("batcher_batch_size", help, self.batches.size.clone());
        });
    }

    pub(crate) fn launch_failed(&self, failure: &LaunchFailure) {
        self.launch_failures.get_or_create(failure).inc();
    }

    pub(crate) fn termination_failed(&self, zone: &str, zone_id: Option<&str>) {
        let place =
            Place { zone: zone.to_owned(), zone_id: zone_id.unwrap_or_default().to_owned() };
        self.termination_failures.get_or_create(&place).inc();
    }
}

/// How long ago prices were read, at the moment of a scrape.
#[derive(Debug)]
struct Ages(Option<Arc<Offers>>);

impl Collector for Ages {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let name = "kerf_aws_prices_age_seconds";
        let help = "Time since prices were last read from AWS";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let ages = self.0.as_ref().map_or([("", None); 2], |offers| offers.ages_of_prices());
        for (capacity_type, age) in ages {
            let age = ConstGauge::new(age.map_or(f64::INFINITY, |age| age.as_secs_f64()));
            age.encode(family.encode_family(&[("capacity_type", capacity_type)])?)?;
        }
        Ok(())
    }
}
