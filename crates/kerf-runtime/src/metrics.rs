//! The registry of metrics and its text form.

use std::{
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{encoding::text, registry::Registry};

mod process;
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
        let mut open_metrics = String::new();
        // Writing into a string cannot fail; only a collector's own error could end up here.
        let encoded = self.register(|registry| text::encode(&mut open_metrics, registry));
        if encoded.is_err() {
            tracing::error!("a metric could not be encoded; this scrape is cut short");
        }
        prometheus_text(&open_metrics)
    }
}

/// Turns the `OpenMetrics` text that prometheus-client writes into the Prometheus text format 0.0.4.
///
/// The two differ where it hurts: `OpenMetrics` names a counter's family without `_total`, so that a
/// scraper of the older format would see `x_total` as a metric without type and help.
fn prometheus_text(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let is_counter = lines
                .peek()
                .and_then(|next| next.strip_prefix("# TYPE "))
                .is_some_and(|next| next.ends_with(" counter"));
            let (name, text) = help.split_once(' ').unwrap_or((help, ""));
            let suffix = if is_counter { "_total" } else { "" };
            let _ = writeln!(out, "# HELP {name}{suffix} {text}");
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.rsplit_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let _ = writeln!(out, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
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
