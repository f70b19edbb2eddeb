//! The whole operator under random workloads, users and faults, for hours of virtual time.
//!
//! A seed becomes a [`Plan`]: a list of timed actions. [`run`] plays it on the testbed with two replicas of the unmodified operator.
//! A [`checker`] that shares no code with the operator follows every change of every object and every call of the operators, and notes
//! what must never be. [`shrink`] makes the plan of a run that failed as short as it can be while it still fails.

pub mod checker;
mod coverage;
mod hands;
mod journal;
pub mod plan;
mod replica;
mod run;
mod shrink;

pub use checker::{Invariant, Violation};
pub use coverage::Coverage;
pub use plan::Plan;
pub use run::{Outcome, run};
pub use shrink::shrink;
