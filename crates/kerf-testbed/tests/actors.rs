//! The actors in virtual time: each test is a small life of a cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "actors/harness.rs"]
mod harness;
#[path = "common/objects.rs"]
mod objects;
#[path = "actors/repeatable.rs"]
mod repeatable;
#[path = "actors/scheduling.rs"]
mod scheduling;
#[path = "actors/upkeep.rs"]
mod upkeep;
#[path = "actors/volumes.rs"]
mod volumes;
#[path = "actors/workloads.rs"]
mod workloads;
