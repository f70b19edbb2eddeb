//! What is counted of calls. The names are those of the metrics that Karpenter has of AWS's Go client, so that dashboards go on.

use std::time::Duration;

use kerf_runtime::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    service: &'static str,
    action: &'static str,
    /// Status of the answer; 0 where there was none.
    code: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Action {
    service: &'static str,
    action: &'static str,
}

#[derive(Debug)]
pub(crate) struct CallMetrics {
    requests: Family<Call, Counter>,
    attempts: Family<Call, Counter>,
    duration: Family<Call, Histogram>,
    attempt_duration: Family<Call, Histogram>,
    retries: Family<Call, Histogram>,
    waited: Family<Action, Counter<f64, std::sync::atomic::AtomicU64>>,
}

impl CallMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.01, 1.5, 20));
        let new = Self {
            requests: Family::default(),
            attempts: Family::default(),
            duration: Family::new_with_constructor(seconds),
            attempt_duration: Family::new_with_constructor(seconds),
            retries: Family::new_with_constructor(|| Histogram::new((0..=10).map(f64::from))),
            waited: Family::default(),
        };
        metrics.register(|registry| {
            let mut aws = registry.sub_registry_with_prefix("aws_sdk_go");
            aws.register("request", "Requests to AWS", new.requests.clone());
            aws.register("request_attempt", "Attempts of requests to AWS", new.attempts.clone());
            let help = "Time that requests to AWS took, with all attempts";
            aws.register("request_duration_seconds", help, new.duration.clone());
            let help = "Time that single attempts of requests to AWS took";
            aws.register("request_attempt_duration_seconds", help, new.attempt_duration.clone());
            let help = "Times that a request to AWS was made again";
            aws.register("request_retry_count", help, new.retries.clone());
            let help = "Time that requests waited because AWS takes no more of their kind";
            registry.register("kerf_aws_request_wait_seconds", help, new.waited.clone());
        });
        new
    }

    pub(crate) fn waited(&self, service: &'static str, action: &'static str, time: Duration) {
        self.waited.get_or_create(&Action { service, action }).inc_by(time.as_secs_f64());
    }

    pub(crate) fn attempted(
        &self,
        service: &'static str,
        action: &'static str,
        code: u16,
        took: Duration,
    ) {
        let call = Call { service, action, code };
        self.attempts.get_or_create(&call).inc();
        self.attempt_duration.get_or_create(&call).observe(took.as_secs_f64());
    }

    pub(crate) fn called(
        &self,
        service: &'static str,
        action: &'static str,
        code: u16,
        took: Duration,
        attempts: u32,
    ) {
        let call = Call { service, action, code };
        self.requests.get_or_create(&call).inc();
        self.duration.get_or_create(&call).observe(took.as_secs_f64());
        self.retries.get_or_create(&call).observe(f64::from(attempts.saturating_sub(1)));
    }
}
