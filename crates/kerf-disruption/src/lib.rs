//! Choosing nodes to disrupt, and saying why the others are left alone.
//!
//! Everything here is a function of a [`Snapshot`](kerf_model::Snapshot) and [`Settings`]: no client, no clock,
//! no randomness. The live loop, its validation, `kerf plan`, `kerf explain` and simulations all come through here.

pub mod balanced;
mod blocked;
pub mod budgets;
mod candidates;
mod command;
mod consolidation;
pub mod controls;
mod costs;
pub mod deletion_cost;
mod drift;
mod emptiness;
mod exact;
pub mod explain;
mod fingerprint;
mod many_to_many;
mod memory;
mod methods;
mod multi_node;
mod pass;
pub mod pool_drift;
mod promise;
mod quiet;
pub mod reboot;
pub mod repair;
mod replacement;
mod search;
mod seats;
pub mod setback;
mod settings;
mod simulation;
mod single_node;
pub mod static_capacity;
pub mod terminate_first;
mod trials;
mod validation;

pub use blocked::{Blocked, Homeless, Removed, TooManyUnhealthy};
pub use budgets::Allowance;
pub use candidates::candidate;
pub use command::{Candidate, Command, Decision, Method, Promise, Replacement};
pub use memory::Memory;
pub use pass::{Pass, Refused, Unmerged, pass, pass_with};
pub use quiet::quiet_until;
pub use replacement::{Purchase, purchase};
pub use seats::seated;
pub use settings::Settings;
pub use validation::{Invalid, Validated, validate};
