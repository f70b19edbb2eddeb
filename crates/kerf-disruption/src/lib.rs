//! Choosing nodes to disrupt, and saying why the others are left alone.
//!
//! Everything here is a function of an [`Estate`](kerf_model::estate::Estate) and [`Settings`]: no client, no clock,
//! no randomness. The live loop, its validation, `kerf plan`, `kerf explain` and simulations all come through here.

pub mod balanced;
mod blocked;
mod command;
pub mod controls;
mod exact;
mod promise;
mod replacement;
mod settings;

pub use blocked::{Blocked, PodBlock};
pub use command::{Candidate, Command, Decision, Method, Promise, Replacement};
pub use promise::Launched;
pub use replacement::{Purchase, purchase};
pub use settings::Settings;
