//! Status checks and scheduled events: instances that have failed, or that AWS is about to stop.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kerf_aws_client::{AwsError, all_pages};
use kerf_aws_model::{
    errors::Meaning,
    health::{Ailment, ailments, requests},
};
use kerf_provider::{BoxError, ControllerContext};
use tokio_util::sync::CancellationToken;

use super::metrics::InterruptionMetrics;
use crate::{
    cloud::AwsCloud,
    controllers::{affected::Affected, trouble::keep_at},
};

const EVERY: Duration = Duration::from_mins(1);

/// Deletes the claims of instances that ail.
pub(super) struct Status {
    cloud: Arc<AwsCloud>,
    metrics: InterruptionMetrics,
    /// Each is counted once while it lasts.
    counted: Mutex<BTreeSet<(String, Ailment)>>,
}

impl Status {
    pub(super) fn new(cloud: Arc<AwsCloud>, metrics: InterruptionMetrics) -> Self {
        Self { cloud, metrics, counted: Mutex::default() }
    }

    pub(super) async fn run(self, context: Arc<dyn ControllerContext>, stop: CancellationToken) {
        let pass = || self.pass(&*context);
        keep_at("looking at status checks of instances", EVERY, stop, advice, pass).await;
    }

    async fn pass(&self, context: &dyn ControllerContext) -> Result<(), BoxError> {
        let ill = self.ask(context.clock().now()).await?;
        let mut result = Ok(());
        let mut lasting = BTreeSet::new();
        for (instance, ailments) in ill {
            let affected = Affected::of_instance(&context.cluster(), &instance);
            if affected.is_empty() {
                continue;
            }
            for ailment in &ailments {
                let key = (instance.clone(), *ailment);
                if !self.lock().contains(&key) {
                    self.metrics.unhealthy(*ailment);
                }
                lasting.insert(key);
            }
            for one in affected {
                result = result.and(give_up(context, &one, &ailments).await);
            }
        }
        *self.lock() = lasting;
        result
    }

    /// What ails which instance of the account.
    async fn ask(&self, now: Timestamp) -> Result<BTreeMap<String, BTreeSet<Ailment>>, AwsError> {
        let mut all: BTreeMap<String, BTreeSet<Ailment>> = BTreeMap::new();
        for request in requests() {
            for status in all_pages(self.cloud.aws(), request).await? {
                let ailments = ailments(&status, now);
                if let Some(instance) = status.instance_id.filter(|_| !ailments.is_empty()) {
                    all.entry(instance).or_default().extend(ailments);
                }
            }
        }
        Ok(all)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(String, Ailment)>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn advice(error: &BoxError) -> String {
    match error.downcast_ref().map_or(Meaning::Other, AwsError::meaning) {
        Meaning::Unauthorized => "allow ec2:DescribeInstanceStatus".to_owned(),
        _ => "instances that fail are found by their nodes meanwhile".to_owned(),
    }
}

async fn give_up(
    context: &dyn ControllerContext,
    affected: &Affected,
    ailments: &BTreeSet<Ailment>,
) -> Result<(), BoxError> {
    // In their order: what is broken comes before what is announced.
    let Some(worst) = ailments.first() else { return Ok(()) };
    affected.report(context.recorder(), worst.event());
    if worst.ends_patience() {
        // Also where the drain has begun: on a machine that does not answer it does not end.
        context.end_patience(&affected.claim).await?;
    }
    affected.disrupt(context, worst.cause()).await
}
