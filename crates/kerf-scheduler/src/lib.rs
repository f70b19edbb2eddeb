//! Placing pods: on nodes that exist, on claims in flight, on new claims.
//!
//! [`schedule`] is a pure function of a snapshot and options. The same input gives the same plan, whatever the
//! order of pods, nodes and pools in it. [`schedule_cheaply`] makes several such plans and keeps the cheapest.

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

use claims::Ties;
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

/// Up to this many pods, making a few more plans takes milliseconds.
const FEW_PODS: usize = 2_000;

/// The cheapest of a few plans that differ in which of equal claims gets a pod first.
///
/// No such choice is the best for all inputs, so they are tried out where that is quick. Beyond [`FEW_PODS`] it is
/// [`schedule`].
pub fn schedule_cheaply(snapshot: &Snapshot, options: &Options) -> Plan {
    if snapshot.pods.len() > FEW_PODS {
        return schedule(snapshot, options);
    }
    let engine = engine::Engine::new(snapshot, options);
    let plan = |ties| engine.with_ties(ties).run(&[]);
    let first = plan(Ties::Oldest);
    // With one claim there is nothing to choose from.
    if first.claims.len() < 2 {
        return first;
    }
    let rank = |plan: &Plan| (plan.failures.len(), plan.price(), plan.claims.len());
    let others = [Ties::FewestCores, Ties::LeastMemory].map(plan);
    others.into_iter().fold(first, |best, plan| if rank(&plan) < rank(&best) { plan } else { best })
}
