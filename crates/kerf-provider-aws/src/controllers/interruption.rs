//! Messages of the interruption queue: spot instances that EC2 takes back, instances that end, maintenance.

mod metrics;
mod status;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use jiff::SignedDuration;
use kerf_api::{ObjectExt, labels};
use kerf_aws_api::labels as aws_labels;
use kerf_aws_client::AwsError;
use kerf_aws_model::{
    errors::Meaning,
    messages::{Mark, Message, Notice, Response},
    unavailable::{Placement, Source},
};
use kerf_aws_wire::sqs;
use kerf_provider::{BoxError, ControllerContext, Registry};
use kerf_runtime::Metrics;
use kube::ResourceExt;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{affected::Affected, trouble::keep_at};
use crate::cloud::AwsCloud;

use self::{metrics::InterruptionMetrics, status::Status};

/// SQS gives no more at once.
const MESSAGES: i32 = 10;
/// A message that was not acted on is seen again after so many seconds.
const HIDDEN: i32 = 20;
/// A question waits so many seconds for a message.
const WAIT: i32 = 20;
const INDEX_AGAIN: Duration = Duration::from_secs(1);
/// The claim of an instance that was launched in this time may not name it yet.
const MAY_BE_UNNAMED: SignedDuration = SignedDuration::from_mins(1);

/// To document them, with a registry that shows examples.
pub(crate) fn register_metrics(metrics: &Metrics) {
    InterruptionMetrics::register(metrics);
}

pub(crate) fn register(cloud: &Arc<AwsCloud>, registry: &mut Registry) {
    // The two tasks count in one place, which is registered by the first.
    let metrics: Arc<OnceLock<InterruptionMetrics>> = Arc::default();
    let of_status = (Arc::clone(cloud), Arc::clone(&metrics));
    registry.add_lasting("interruption.instancestatus", |context, stop| async move {
        let (cloud, metrics) = of_status;
        let metrics = metrics.get_or_init(|| InterruptionMetrics::register(context.metrics()));
        Status::new(cloud, metrics.clone()).run(context, stop).await;
    });
    let Some(queue) = cloud.options().interruption_queue.clone() else { return };
    let cloud = Arc::clone(cloud);
    registry.add_lasting("interruption", |context, stop| async move {
        let metrics = metrics.get_or_init(|| InterruptionMetrics::register(context.metrics()));
        let metrics = metrics.clone();
        Interruption { cloud, queue, metrics, url: Mutex::default() }.listen(context, stop).await;
    });
}

/// Listens to the queue, and acts on what it says.
struct Interruption {
    cloud: Arc<AwsCloud>,
    queue: String,
    metrics: InterruptionMetrics,
    url: Mutex<Option<String>>,
}

/// The message comes again, and the claim names its instance by then.
#[derive(Debug, thiserror::Error)]
#[error("the instance {instance} was launched a moment ago, and no NodeClaim names it yet")]
struct NotNamedYet {
    instance: String,
}

impl Interruption {
    async fn listen(self, context: Arc<dyn ControllerContext>, stop: CancellationToken) {
        let advice = |error: &BoxError| self.advice(error);
        // The question itself waits for messages. One that is cut off in the middle comes again.
        keep_at("listening to the interruption queue", Duration::ZERO, stop, advice, || {
            self.receive(&*context)
        })
        .await;
    }

    fn advice(&self, error: &BoxError) -> String {
        let queue = &self.queue;
        let meaning = error.downcast_ref().map_or(Meaning::Other, AwsError::meaning);
        match meaning {
            Meaning::NotFound => format!(
                "create the SQS queue {queue} in this region, or correct --interruption-queue: until then nodes are not drained before they are interrupted"
            ),
            Meaning::Unauthorized => format!(
                "allow sqs:GetQueueUrl, sqs:ReceiveMessage and sqs:DeleteMessage on the queue {queue}: until then nodes are not drained before they are interrupted"
            ),
            _ => format!("the queue is {queue}"),
        }
    }

    /// Waits for messages, and acts on each.
    async fn receive(&self, context: &dyn ControllerContext) -> Result<(), BoxError> {
        // Who receives a message hides it from others.
        context.fence().check()?;
        let url = self.url().await?;
        let request = sqs::ReceiveMessageRequest {
            max_number_of_messages: Some(MESSAGES),
            queue_url: Some(url.clone()),
            visibility_timeout: Some(HIDDEN),
            wait_time_seconds: Some(WAIT),
        };
        let received = self.cloud.aws().receive_message(&request).await;
        if received.as_ref().is_err_and(AwsError::is_not_found) {
            // It may be made anew, under another address.
            *self.lock() = None;
        }
        let messages = received?.messages;
        // Before all is listed, a claim that is missing may only be late.
        while !context.cluster().listed() {
            sleep(INDEX_AGAIN).await;
        }
        let taken = messages.iter().map(|message| self.take(context, &url, message));
        join_all(taken).await.into_iter().collect()
    }

    async fn url(&self) -> Result<String, AwsError> {
        if let Some(known) = self.lock().clone() {
            return Ok(known);
        }
        let request = sqs::GetQueueUrlRequest {
            queue_name: Some(self.queue.clone()),
            ..sqs::GetQueueUrlRequest::default()
        };
        let url = self.cloud.aws().get_queue_url(&request).await?.queue_url.unwrap_or_default();
        *self.lock() = Some(url.clone());
        Ok(url)
    }

    /// Acts on a message and deletes it. One that could not be acted on stays, and comes again.
    async fn take(
        &self,
        context: &dyn ControllerContext,
        url: &str,
        message: &sqs::Message,
    ) -> Result<(), BoxError> {
        match Message::read(message.body.as_deref().unwrap_or_default()) {
            Err(error) => {
                self.metrics.malformed();
                warn!(%error, queue = self.queue, "deleting a message that cannot be read");
            }
            Ok(message) => {
                let kind = message.notice.kind();
                self.metrics.received(kind);
                if let Err(error) = self.act(context, &message.notice).await {
                    warn!(%error, kind, "a message could not be acted on and comes again");
                    return Ok(());
                }
                if let Some(time) = message.time.filter(|_| message.notice != Notice::Other) {
                    self.metrics.lasted(context.clock().since(time));
                }
            }
        }
        context.fence().check()?;
        let request = sqs::DeleteMessageRequest {
            queue_url: Some(url.to_owned()),
            receipt_handle: message.receipt_handle.clone(),
        };
        self.cloud.aws().delete_message(&request).await?;
        self.metrics.deleted();
        Ok(())
    }

    /// Does what the notice calls for, for each of its instances; one that fails does not keep the others.
    async fn act(&self, context: &dyn ControllerContext, notice: &Notice) -> Result<(), BoxError> {
        let Some(response) = notice.response() else { return Ok(()) };
        let mut result = Ok(());
        for instance in notice.instances() {
            let affected = Affected::of_instance(&context.cluster(), instance);
            if affected.is_empty() && response.disrupt && self.may_be_unnamed(context, instance) {
                result = result.and(Err(NotNamedYet { instance: instance.clone() }.into()));
            }
            for one in affected {
                if notice.is_news_of(one.claim.is_deleting()) {
                    one.report(context.recorder(), response.event);
                }
                self.mark(&one, response);
                if response.disrupt {
                    result = result.and(one.disrupt(context, notice.kind()).await);
                }
            }
        }
        result
    }

    fn may_be_unnamed(&self, context: &dyn ControllerContext, instance: &str) -> bool {
        let known = self.cloud.instances().known(instance);
        let launched = known.filter(|one| !one.is_terminating()).and_then(|one| one.launched_at);
        launched.is_some_and(|launched| context.clock().since(launched) < MAY_BE_UNNAMED)
    }

    /// What ends here is not launched again at once.
    fn mark(&self, affected: &Affected, response: Response) {
        let label = |key: &str| affected.claim.labels().get(key).map(String::as_str);
        match response.mark {
            None => {}
            Some(Mark::SpotOffering) => {
                let of_claim = label(labels::INSTANCE_TYPE).zip(label(labels::ZONE));
                let Some((instance_type, zone)) = of_claim else { return };
                let capacity_type = labels::CAPACITY_TYPE_SPOT;
                let source = Source { capacity_type, zone, placement: Placement::Anywhere };
                self.cloud.offers().change(|market, now| {
                    if let Some(facts) = market.facts(instance_type) {
                        market.unavailable.mark(&facts, source, now);
                    }
                });
            }
            Some(Mark::Reservation) => {
                let Some(id) = label(aws_labels::CAPACITY_RESERVATION_ID) else { return };
                self.cloud.offers().change(|market, now| market.reservations.exhausted(id, now));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.url.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
