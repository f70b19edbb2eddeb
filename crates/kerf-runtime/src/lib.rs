//! What any operator needs, whatever it manages: time, queues, leader election, logs, health and metrics endpoints.

pub mod admin;
pub mod client;
mod clock;
mod compute;
pub mod crds;
pub mod election;
pub mod events;
mod fence;
mod jitter;
pub mod journal;
pub mod leadership;
pub mod logging;
mod metrics;
pub mod patch;
mod queue;
pub mod shutdown;
mod tokens;

pub use clock::Clock;
pub use compute::compute;
pub use fence::{Fence, WriteRefused};
pub use jitter::Jitter;
pub use metrics::{
    Example, Metrics, Registrar,
    work::{WorkMetrics, current_controller},
};
pub use patch::Lock;
pub use queue::{Backoff, Outcome, Queue, Workers};
pub use tokens::{Bucket, Tokens};
