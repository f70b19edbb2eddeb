//! Registration of metrics.

use std::{fmt, hash::Hash};

use prometheus_client::{
    collector::Collector,
    encoding::{EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::{Metric, Registry},
};

/// Where metrics are registered. It is the registry, and knows whether examples are wanted.
pub struct Registrar<'a> {
    registry: &'a mut Registry,
    examples: bool,
}

impl<'a> Registrar<'a> {
    pub(super) fn new(registry: &'a mut Registry, examples: bool) -> Self {
        Self { registry, examples }
    }

    pub fn sub_registry_with_prefix(&mut self, prefix: &str) -> Registrar<'_> {
        let registry = self.registry.sub_registry_with_prefix(prefix);
        Registrar { registry, examples: self.examples }
    }

    /// Counters are registered without their `_total`.
    pub fn register(&mut self, name: &str, help: &str, metric: impl Metric + Example) {
        if self.examples {
            metric.example();
        }
        self.registry.register(name, help, metric);
    }

    /// For families whose labels no type says.
    pub fn register_with_labels<M>(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        family: Family<Vec<(String, String)>, M>,
    ) where
        Family<Vec<(String, String)>, M>: Metric,
    {
        if self.examples {
            let labels = labels.iter().map(|label| ((*label).to_owned(), String::new()));
            drop(family.get_or_create(&labels.collect()));
        }
        self.registry.register(name, help, family);
    }

    /// What it is given says whether it has to collect examples.
    pub fn register_collector<C: Collector>(&mut self, collector: impl FnOnce(bool) -> C) {
        self.registry.register_collector(Box::new(collector(self.examples)));
    }
}

impl fmt::Debug for Registrar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").field("examples", &self.examples).finish_non_exhaustive()
    }
}

/// A metric that can show what it would look like.
pub trait Example {
    /// Makes a series, if there is none.
    fn example(&self);
}

impl<S, M, C> Example for Family<S, M, C>
where
    S: Clone + Default + Eq + Hash + EncodeLabelSet,
    C: MetricConstructor<M>,
    Self: EncodeMetric,
{
    fn example(&self) {
        if self.is_empty() {
            drop(self.get_or_create(&S::default()));
        }
    }
}

impl<N, A> Example for Counter<N, A> {
    fn example(&self) {}
}

impl<N, A> Example for Gauge<N, A> {
    fn example(&self) {}
}

impl Example for Histogram {
    fn example(&self) {}
}
