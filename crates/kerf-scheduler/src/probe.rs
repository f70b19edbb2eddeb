//! Where would pods go if these nodes were gone? A prober answers this many times for one snapshot.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kerf_model::{Price, ReservationId, Snapshot};

use crate::engine::Engine;
use crate::options::Options;
use crate::plan::Plan;

/// Answers what-if questions about one snapshot. Shared between threads: a question changes nothing.
///
/// The snapshot is read once. A question takes nodes out of a copy that lies ready, places pods, and puts everything
/// back, so that it costs as much as it moves and not as much as the cluster is large.
#[derive(Debug)]
pub struct Prober<'s> {
    base: Engine<'s>,
    /// Copies that no thread uses at the moment.
    idle: Mutex<Vec<Engine<'s>>>,
}

/// A node that would go away.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// Position in the snapshot's nodes. A node that is being deleted already changes nothing.
    pub node: usize,
    /// Positions in the node's pods, of those that must find another place. The node's other pods go with it.
    pub pods: &'a [usize],
    /// The reservation that has one more slot without it: where it goes before anything comes in its place.
    pub frees: Option<&'a ReservationId>,
}

/// When there is no point in going on. The default is to find out everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// More new claims than this are of no use.
    pub max_new_claims: Option<usize>,
    /// New claims that together cost this or more, each bought as cheaply as it can be, are of no use.
    pub price_below: Option<Price>,
}

impl<'s> Prober<'s> {
    pub fn new(snapshot: &'s Snapshot, options: &Options) -> Self {
        Self { base: Engine::new(snapshot, options), idle: Mutex::default() }
    }

    /// The plan for a cluster without these nodes: for the pods that leave them and for the snapshot's own.
    ///
    /// It is the plan that [`crate::schedule`] makes for such a snapshot, with two differences. Leaving pods that
    /// would end up on a node that is not initialised are listed as failures as well: it is not known whether that
    /// node will come to life. And pods that were pending before and stay so get no reason.
    pub fn probe(&self, leaving: &[Leaving<'_>], stop: &Stop) -> Plan {
        self.ask(leaving, |engine, leaving| engine.run_without(leaving, stop))
    }

    /// The same with a search for cheaper machines that costs so much work, as [`crate::schedule_cheaply`] makes it: the plan is
    /// never dearer than that of [`Self::probe`].
    pub fn probe_packed(&self, leaving: &[Leaving<'_>], budget: u64) -> Plan {
        self.ask(leaving, |engine, leaving| engine.run_without_packed(leaving, budget))
    }

    fn ask(
        &self,
        leaving: &[Leaving<'_>],
        question: impl FnOnce(&mut Engine<'s>, &[Leaving<'_>]) -> Plan,
    ) -> Plan {
        let nodes = &self.base.snapshot.nodes;
        let leaving: Vec<_> =
            leaving.iter().filter(|one| !nodes[one.node].deleting).copied().collect();
        let idle = self.idle().pop();
        let mut engine = idle.unwrap_or_else(|| self.base.clone());
        let plan = question(&mut engine, &leaving);
        self.idle().push(engine);
        plan
    }

    /// A thread that panicked took its copy with it, so what is left here is whole.
    fn idle(&self) -> MutexGuard<'_, Vec<Engine<'s>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
