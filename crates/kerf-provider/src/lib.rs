//! The contract with a cloud.

mod contract;

pub use contract::{CloudProvider, Launched, NodeClassKind, ProviderError, RepairPolicy};
