//! The registry of metrics and its text form.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{encoding::text::encode, registry::Registry};
use tracing::debug;

use text::PrometheusText;

mod process;
mod text;
pub(crate) mod work;

/// The metrics of this process; every clone is the same registry.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Default for Metrics {
    /// A registry that holds the standard `process_*` metrics already.
    fn default() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process::Process));
        Self(Arc::new(Mutex::new(registry)))
    }
}

impl Metrics {
    /// The media type of [`Metrics::text`].
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Adds metrics. Counters are registered without their `_total`: encoding adds it.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All metrics in the Prometheus text format, which every scraper reads whatever it asks for.
    pub fn text(&self) -> String {
        let mut all = String::new();
        self.write(|piece| {
            all.push_str(&piece);
            Ok(())
        });
        all
    }

    /// The same, in pieces: in a large cluster the whole is many megabytes, and no client needs them at once. An error of `send`
    /// ends it.
    pub fn write(&self, send: impl FnMut(String) -> fmt::Result) {
        let mut text = PrometheusText::new(send);
        let encoded = self.register(|registry| encode(&mut text, registry));
        if encoded.and_then(|()| text.finish()).is_err() {
            debug!("a scrape was cut short");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

    #[test]
    fn counters_carry_their_suffix_in_help_and_type_too() {
        let metrics = Metrics(Arc::default());
        metrics.register(|registry| {
            let pods = Counter::<u64>::default();
            pods.inc_by(3);
            registry.register("pods_drained", "Pods drained", pods);
            let cost = Gauge::<i64>::default();
            cost.set(7);
            // A gauge may end in _total without being a counter.
            registry.register("pool_cost_total", "Price of the pool", cost);
            let seconds = Histogram::new([0.5]);
            seconds.observe(0.1);
            registry.register("solve_seconds", "Time to solve", seconds);
        });
        assert_eq!(
            metrics.text(),
            "# HELP pods_drained_total Pods drained.\n\
             # TYPE pods_drained_total counter\n\
             pods_drained_total 3\n\
             # HELP pool_cost_total Price of the pool.\n\
             # TYPE pool_cost_total gauge\n\
             pool_cost_total 7\n\
             # HELP solve_seconds Time to solve.\n\
             # TYPE solve_seconds histogram\n\
             solve_seconds_sum 0.1\n\
             solve_seconds_count 1\n\
             solve_seconds_bucket{le=\"0.5\"} 1\n\
             solve_seconds_bucket{le=\"+Inf\"} 1\n"
        );
    }
}
