//! Controllers of NodeClaims: creation, launch, registration, initialization, conditions, reboots, expiration, garbage collection.

pub(crate) mod conditions;
pub(crate) mod consistency;
pub(crate) mod creation;
pub(crate) mod expiration;
pub(crate) mod garbage_collection;
pub(crate) mod hydration;
pub(crate) mod instance;
pub(crate) mod lifecycle;
mod patience;
pub(crate) mod reboot;
pub(crate) mod writes;
