//! What is done about NodePools: their status is written, and static ones keep their number of nodes.

mod drift_blocked;
mod hash;
pub(crate) mod registration_health;
pub(crate) mod static_capacity;
pub(crate) mod status;
