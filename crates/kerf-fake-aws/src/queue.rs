//! The queue of interruption messages.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kerf_aws_wire::sqs;

use crate::cloud::{Answer, Cloud};
use crate::refused::Refused;

/// Messages by the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    messages: BTreeMap<u64, Message>,
    sent: u64,
}

#[derive(Clone, Debug)]
struct Message {
    body: String,
    sent: Timestamp,
    visible: Timestamp,
    /// How often it was received. Only the receipt of the last time is good for its deletion.
    received: u32,
}

/// The queue forgets what lies there for longer.
const RETENTION: SignedDuration = SignedDuration::from_secs(300);
const MOST: usize = 10;
const DEFAULT_VISIBILITY: i32 = 30;

impl Queue {
    pub(crate) fn send(&mut self, body: String, now: Timestamp) {
        self.sent += 1;
        self.messages.insert(self.sent, Message { body, sent: now, visible: now, received: 0 });
    }

    /// When a message that is hidden now can be received again.
    pub(crate) fn next_visible(&self, now: Timestamp) -> Option<Timestamp> {
        self.messages.values().map(|message| message.visible).filter(|visible| *visible > now).min()
    }

    fn receive(
        &mut self,
        most: usize,
        hidden: SignedDuration,
        now: Timestamp,
    ) -> Vec<sqs::Message> {
        self.messages.retain(|_, message| now.duration_since(message.sent) <= RETENTION);
        let visible = self.messages.iter_mut().filter(|(_, message)| message.visible <= now);
        visible
            .take(most)
            .map(|(number, message)| {
                message.received += 1;
                message.visible = now.checked_add(hidden).unwrap_or(Timestamp::MAX);
                sqs::Message {
                    body: Some(message.body.clone()),
                    message_id: Some(format!("message-{number}")),
                    receipt_handle: Some(format!("{number}/{}", message.received)),
                }
            })
            .collect()
    }

    fn delete(&mut self, receipt: &str) -> bool {
        let parts = receipt.split_once('/').and_then(|(number, received)| {
            Some((number.parse::<u64>().ok()?, received.parse::<u32>().ok()?))
        });
        let Some((number, received)) = parts else { return false };
        if self.messages.get(&number).is_some_and(|message| message.received == received) {
            self.messages.remove(&number);
        }
        true
    }
}

impl Cloud {
    fn queue_url(&self) -> String {
        let settings = &self.settings;
        let (region, account) = (&settings.region, &settings.account);
        format!("https://sqs.{region}.amazonaws.com/{account}/{}", settings.queue)
    }

    fn is_queue(&self, url: Option<&str>) -> Result<(), Refused> {
        if !self.settings.queue.is_empty() && url == Some(self.queue_url().as_str()) {
            return Ok(());
        }
        Err(no_queue())
    }
}

fn no_queue() -> Refused {
    let message = "The specified queue does not exist.";
    Refused::new("AWS.SimpleQueueService.NonExistentQueue", message)
}

impl Answer for sqs::GetQueueUrlRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        let queue = &cloud.settings.queue;
        if queue.is_empty() || self.queue_name.as_ref() != Some(queue) {
            return Err(no_queue());
        }
        Ok(sqs::GetQueueUrlResponse { queue_url: Some(cloud.queue_url()) })
    }
}

impl Answer for sqs::ReceiveMessageRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        cloud.is_queue(self.queue_url.as_deref())?;
        let most = match usize::try_from(self.max_number_of_messages.unwrap_or(1)) {
            Ok(most) if (1..=MOST).contains(&most) => most,
            _ => {
                let message = "MaxNumberOfMessages must be between 1 and 10";
                return Err(Refused::invalid_value(message));
            }
        };
        let hidden = self.visibility_timeout.unwrap_or(DEFAULT_VISIBILITY);
        let hidden = SignedDuration::from_secs(hidden.into());
        let messages = cloud.queue.receive(most, hidden, cloud.now);
        Ok(sqs::ReceiveMessageResponse { messages })
    }

    /// A long poll ends with the first message, or after its time.
    fn patience(&self) -> Duration {
        let seconds = self.wait_time_seconds.unwrap_or(0);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(20))
    }

    fn is_empty(response: &Self::Response) -> bool {
        response.messages.is_empty()
    }
}

impl Answer for sqs::DeleteMessageRequest {
    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused> {
        cloud.is_queue(self.queue_url.as_deref())?;
        if !cloud.queue.delete(self.receipt_handle.as_deref().unwrap_or_default()) {
            let message = "The input receipt handle is invalid.";
            return Err(Refused::new("ReceiptHandleIsInvalid", message));
        }
        Ok(sqs::DeleteMessageResponse {})
    }
}
