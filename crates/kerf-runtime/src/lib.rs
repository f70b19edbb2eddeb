//! What any operator needs and no node knows of: time, queues, leader election, logs, health and metrics endpoints.

mod clock;
mod queue;

pub use clock::Clock;
pub use queue::{Backoff, Bucket, Outcome, Queue, Workers};
