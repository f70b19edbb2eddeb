//! The registry of metrics and its text form.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{encoding::text::encode, registry::Registry};
use tracing::debug;

use text::PrometheusText;

pub use registrar::{Example, Registrar};

mod process;
mod registrar;
mod text;
pub(crate) mod work;

/// The metrics of this process; every clone is the same registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    /// Whether a family without a series is shown by an example of one.
    examples: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Metrics {
    /// The media type of [`Metrics::text`].
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// For documentation: every family that is registered is shown with its labels, whether it counted something or not.
    pub fn with_examples() -> Self {
        Self::new(true)
    }

    /// A registry that holds the standard `process_*` metrics already.
    fn new(examples: bool) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process::Process));
        Self { registry: Arc::new(Mutex::new(registry)), examples }
    }

    /// Adds metrics. Counters are registered without their `_total`: encoding adds it.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registrar<'_>) -> T) -> T {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut Registrar::new(&mut registry, self.examples))
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
        let encoded = {
            let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
            encode(&mut text, &registry)
        };
        if encoded.and_then(|()| text.finish()).is_err() {
            debug!("a scrape was cut short");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::{
        encoding::EncodeLabelSet,
        metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    };

    #[test]
    fn counters_carry_their_suffix_in_help_and_type_too() {
        let metrics = Metrics { registry: Arc::default(), examples: false };
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

    #[test]
    fn a_family_without_a_series_is_shown_by_an_example_where_that_is_asked_for() {
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct Place {
            zone: String,
            code: u16,
        }
        let text = |examples| {
            let metrics = Metrics { registry: Arc::default(), examples };
            metrics.register(|registry| {
                let mut nodes = registry.sub_registry_with_prefix("nodes");
                nodes.register("lost", "Nodes lost", Family::<Place, Counter>::default());
                let conditions = Family::<Vec<(String, String)>, Gauge>::default();
                nodes.register_with_labels("conditions", "Conditions", &["type"], conditions);
            });
            metrics.text()
        };
        assert_eq!(text(false), "");
        assert_eq!(
            text(true),
            "# HELP nodes_lost_total Nodes lost.\n\
             # TYPE nodes_lost_total counter\n\
             nodes_lost_total{zone=\"\",code=\"0\"} 0\n\
             # HELP nodes_conditions Conditions.\n\
             # TYPE nodes_conditions gauge\n\
             nodes_conditions{type=\"\"} 0\n"
        );
    }
}
