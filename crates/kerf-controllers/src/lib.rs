//! The reconcilers of the operator.
//!
//! Each reads the index, decides with the pure crates, and writes with optimistic locking. The client, the clock and the
//! provider are handed in, so the controllers that run in tests are the ones that run in production.

mod buffer;
mod claim;
mod context;
mod controller;
pub mod definitions;
mod disruption;
mod error;
mod extension;
mod index;
mod metrics;
mod node;
pub mod operator;
mod overlay;
mod pod;
mod pool;
mod provisioning;
pub mod rbac;
pub mod settings;
mod transitions;
pub mod window;
mod writer;

pub use metrics::register_all as register_all_metrics;
pub use operator::Operator;
pub use provisioning::snapshot_inputs;
pub use settings::Settings;
