//! The reconcilers of the operator.
//!
//! Each reads the index, decides with the pure crates, and writes with optimistic locking. The client, the clock and the
//! provider are handed in, so the controllers that run in tests are the ones that run in production.

mod claim_conditions;
mod claim_creation;
mod claim_writes;
mod consistency;
mod context;
mod controller;
pub mod definitions;
mod disruption;
mod do_not_disrupt;
mod error;
mod expiration;
mod garbage_collection;
mod hydration;
mod index;
mod instance;
mod lifecycle;
mod metrics;
pub mod operator;
mod pod_events;
mod pool;
mod provisioning;
mod repair;
pub mod settings;
mod static_capacity;
mod termination;
mod transitions;

pub use operator::Operator;
pub use settings::Settings;
