//! Placing pods: on nodes that exist, on claims in flight, on new claims.
//!
//! [`schedule`] is a pure function of a snapshot and options. The same input gives the same plan, whatever the
//! order of pods, nodes and pools in it. [`schedule_cheaply`] makes several such plans and keeps the cheapest.
//!
//! Names are Karpenter's where it has one: template, topology group, inverse, strict requirements, volume requirements. These
//! are Kerf's own:
//!
//! | word | means | file |
//! |---|---|---|
//! | class | pods that every rule treats alike | `class.rs` |
//! | attempt | what topology asks of every place, for one class | `attempt.rs` |
//! | place | what can take a pod: a node, an open claim, a template | `engine/constraints.rs` |
//! | witness | sees why a place refuses | `engine/constraints.rs` |
//! | lane | the amount of one resource in a vector of them | `lanes.rs` |
//! | row | an instance type with one of its allocatable groups | `template.rs` |
//! | set, rule | the number of a set of requirements, and of one | `algebra.rs` |
//! | sort, realm | pods that packing treats alike, and the machines that they may go to | `packing.rs` |
//! | guide | the machines that packing proposes for pods | `engine/guide.rs` |

mod algebra;
mod attached;
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
mod packing;
mod plan;
mod probe;
mod queue;
mod refusal;
mod relaxation;
mod reserved;
mod template;
mod topology;

use std::cmp::Ordering;

use claims::Ties;
use kerf_model::Snapshot;

pub use options::{Options, PACKING, PreferencePolicy, ReservedMode};
pub use plan::{BufferRoom, Origin, Placement, Plan, PlannedClaim, PodFailure, Room, Stopped};
pub use probe::{Leaving, Prober, Stop};
pub use refusal::{
    FilterCause, FilterRefusal, LimitReached, Most, PoolRefusal, Reason, Refusal, Shortage,
    TopologyKind, TopologyRefusal, Usage,
};

/// Places the snapshot's pods, as many as will go, and after them the virtual pods of buffers on what is left.
pub fn schedule(snapshot: &Snapshot, options: &Options) -> Plan {
    engine::Engine::new(snapshot, options).run(&[])
}

/// Up to this many pods, making a few more plans takes milliseconds.
const FEW_PODS: usize = 2_000;
/// How many pods to place over all plans, where these are more than three.
const PODS_IN_ALL: usize = 1_600;
/// More plans than this hardly ever find anything cheaper.
const MOST_PLANS: usize = 16;

/// The cheapest of a few plans.
///
/// They differ in which of equal claims gets a pod first. No such choice is the best for all inputs, so they are tried out where
/// that is quick, and the more the fewer pods there are. With [`Options::packing`] the last one is packed machine by machine
/// (`packing.rs`). The result is never dearer than what [`schedule`] finds, because that is the first of them.
pub fn schedule_cheaply(snapshot: &Snapshot, options: &Options) -> Plan {
    let packs = options.packing > 0;
    // Nothing is tried out: the copy that each plan begins with would be a tenth of the time.
    let pods = snapshot.pods.len() + snapshot.virtual_pods.len();
    if pods > FEW_PODS && !packs {
        return schedule(snapshot, options);
    }
    let engine = engine::Engine::new(snapshot, options);
    let run = |ties| {
        let mut engine = engine.with_ties(ties);
        let plan = engine.run(&[]);
        (plan, packs.then_some(engine))
    };
    let mut best = run(Ties::Oldest);
    let rank = |plan: &Plan| {
        let without_room = plan.buffers.failures.len();
        (plan.failures.len(), without_room, plan.price(), plan.claims.len())
    };
    // With one claim there is nothing to choose from.
    if best.0.claims.len() > 1 && pods <= FEW_PODS {
        let others = [Ties::FewestCores, Ties::LeastMemory].into_iter();
        let others = others.chain((0..).map(Ties::Drawn));
        for ties in others.take(plans_for(pods) - 1) {
            let other = run(ties);
            if rank(&other.0) < rank(&best.0) {
                best = other;
            }
        }
    }
    let (plan, Some(mut ran)) = best else { return best.0 };
    let Some(guide) = ran.guide(options.packing) else { return plan };
    let packed = engine.with_guide(guide, ran).run(&[]);
    if is_better(&packed, &plan) { packed } else { plan }
}

/// Whether more pods have a place or it costs less, and not at the price of nodes that hardly save anything.
pub(crate) fn is_better(packed: &Plan, plan: &Plan) -> bool {
    let homeless = |plan: &Plan| (plan.failures.len(), plan.buffers.failures.len());
    let with_nodes =
        |plan: &Plan| plan.price().as_f64() + packing::PER_MACHINE * plan.claims.len() as f64;
    match homeless(packed).cmp(&homeless(plan)) {
        Ordering::Less => true,
        Ordering::Equal => packed.price() < plan.price() && with_nodes(packed) < with_nodes(plan),
        Ordering::Greater => false,
    }
}

/// Luck matters most where there are few claims, and there more plans take no longer than a few do for many.
fn plans_for(pods: usize) -> usize {
    (PODS_IN_ALL / pods.max(1)).clamp(3, MOST_PLANS)
}
