//! What any operator needs and no node knows of: time, queues, leader election, logs, health and metrics endpoints.

mod clock;
pub mod events;
pub mod patch;
mod queue;

pub use clock::Clock;
pub use patch::Lock;
pub use queue::{Backoff, Bucket, Outcome, Queue, Workers};
