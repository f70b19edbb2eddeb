//! Controllers of NodePools: their status, and the number of nodes of static pools.

mod drift_blocked;
mod hash;
pub(crate) mod registration_health;
pub(crate) mod static_capacity;
pub(crate) mod status;
