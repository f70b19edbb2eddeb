// Made by `cargo xtask generate` from AWS's service models and shapes.txt; do not edit.

use crate::operation::{Protocol, Service, operations};
use crate::shape::shape;

pub const SERVICE: Service = Service {
    id: "SQS",
    endpoint_prefix: "sqs",
    signing_name: "sqs",
    version: "2012-11-05",
    protocol: Protocol::Json { version: "1.0", target: "AmazonSQS" },
};

operations! {
    GetQueueUrl: GetQueueUrlRequest -> GetQueueUrlResponse,
    ReceiveMessage: ReceiveMessageRequest -> ReceiveMessageResponse,
    DeleteMessage: DeleteMessageRequest -> DeleteMessageResponse,
}

shape!(DeleteMessageRequest {
    queue_url: Option<String> = "QueueUrl",
    receipt_handle: Option<String> = "ReceiptHandle",
});

shape!(DeleteMessageResponse {});

shape!(GetQueueUrlRequest {
    queue_name: Option<String> = "QueueName",
    queue_owner_aws_account_id: Option<String> = "QueueOwnerAWSAccountId",
});

shape!(GetQueueUrlResponse {
    queue_url: Option<String> = "QueueUrl",
});

shape!(Message {
    body: Option<String> = "Body",
    message_id: Option<String> = "MessageId",
    receipt_handle: Option<String> = "ReceiptHandle",
});

shape!(ReceiveMessageRequest {
    max_number_of_messages: Option<i32> = "MaxNumberOfMessages",
    queue_url: Option<String> = "QueueUrl",
    visibility_timeout: Option<i32> = "VisibilityTimeout",
    wait_time_seconds: Option<i32> = "WaitTimeSeconds",
});

shape!(ReceiveMessageResponse {
    messages: Vec<Message> = "Messages",
});
