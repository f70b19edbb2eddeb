//! The operator dies between two of its calls to AWS.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use kerf_fake_aws::Gate;
use kerf_testbed::Faults;

/// Ends an operator at one of its moments with AWS. Each call has two: before it reaches its service, and after it was carried
/// out and before its answer is there.
#[derive(Debug)]
pub struct EndsAt {
    moment: Option<u64>,
    passed: AtomicU64,
    faults: Faults,
}

impl EndsAt {
    /// `None`: at none. The faults are those of the operator's client for Kubernetes, which falls silent at the same time.
    pub fn moment(moment: Option<u64>, faults: &Faults) -> Self {
        Self { moment, passed: AtomicU64::new(0), faults: faults.clone() }
    }

    /// How many moments there were so far.
    pub fn moments(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Gate for EndsAt {
    async fn pass(&self, _: &'static str) {
        let moment = self.passed.fetch_add(1, Ordering::Relaxed);
        if self.moment.is_some_and(|last| moment >= last) {
            self.faults.stop();
            std::future::pending::<()>().await;
        }
    }
}
