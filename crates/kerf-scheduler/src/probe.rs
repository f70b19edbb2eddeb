//! What if these nodes were gone? Asked about one snapshot many times over.

use std::sync::Arc;

use kerf_model::{Price, Snapshot};

use crate::engine::Engine;
use crate::options::Options;
use crate::plan::Plan;

/// Answers what-if questions about one snapshot. Shared between threads: a question changes nothing.
#[derive(Clone, Debug)]
pub struct Prober<'s> {
    snapshot: &'s Snapshot,
    options: Options,
}

/// A node that would go away.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// Position in the snapshot's nodes. A node that is being deleted already changes nothing.
    pub node: usize,
    /// Positions in the node's pods, of those that must find another place. The node's other pods go with it.
    pub pods: &'a [usize],
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
        Self { snapshot, options: options.clone() }
    }

    /// The plan for a cluster without these nodes: for the pods that leave them and for the snapshot's own.
    ///
    /// Leaving pods that would end up on a node that is not initialised are listed as failures as well: nobody
    /// knows yet whether that node will come to life.
    pub fn probe(&self, leaving: &[Leaving<'_>], stop: &Stop) -> Plan {
        let leaving = || leaving.iter().filter(|one| !self.snapshot.nodes[one.node].deleting);
        let mut snapshot = self.snapshot.clone();
        for one in leaving() {
            let pods = &self.snapshot.nodes[one.node].pods;
            snapshot.pods.extend(one.pods.iter().map(|at| Arc::clone(&pods[*at])));
        }
        let mut at = 0;
        snapshot.nodes.retain(|_| {
            at += 1;
            !leaving().any(|one| one.node == at - 1)
        });
        Engine::new(&snapshot, &self.options).run(stop, self.snapshot.pods.len())
    }
}
