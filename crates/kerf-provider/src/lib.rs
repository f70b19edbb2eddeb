//! The contract with a cloud, and the KWOK provider, whose instances exist only as Node objects.

mod contract;
pub mod kwok;

pub use contract::{CloudProvider, Launched, NodeClassKind, ProviderError, RepairPolicy};
