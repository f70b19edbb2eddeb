//! Stories of a cluster with Kerf in it, told once and played on two stages: the testbed, where time is virtual and a
//! story takes milliseconds, and a real control plane.
//!
//! A story is an async function of a [`World`]. It creates objects with small [`build`]ers, waits for what it expects
//! with [`World::until`], and never sleeps to let something happen. [`stories!`] lists them all, with what each needs.

pub mod build;
pub mod chapters;
pub mod clouds;
pub mod contender;
pub mod example_provider;
pub(crate) mod pods;
pub mod rights;
mod scope;
pub mod series;
pub mod stories;
mod witness;
mod world;

pub use contender::{Contender, End};
pub use scope::SharedCluster;
pub use witness::Witness;
pub use world::{Stage, World};
