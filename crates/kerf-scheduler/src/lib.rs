//! Placing pods: on nodes that exist, on claims in flight, on new claims.
//!
//! [`schedule`] is a pure function of a snapshot and options. The same input gives the same plan, whatever the
//! order of pods, nodes and pools in it.

mod algebra;
mod attempt;
mod bits;
mod claims;
mod class;
mod daemons;
mod engine;
mod existing;
mod lanes;
mod limits;
mod options;
mod plan;
mod probe;
mod queue;
mod refusal;
mod reserved;
mod template;
mod topology;

use kerf_model::Snapshot;

pub use options::{Options, PreferencePolicy, ReservedMode};
pub use plan::{Origin, Placement, Plan, PlannedClaim, PodFailure, Stopped};
pub use probe::{Leaving, Prober, Stop};
pub use refusal::{
    FilterCause, FilterRefusal, PoolRefusal, Reason, Refusal, TopologyKind, TopologyRefusal,
};

/// Places the snapshot's pods, as many as will go.
pub fn schedule(snapshot: &Snapshot, options: &Options) -> Plan {
    engine::Engine::new(snapshot, options).run(&[])
}
