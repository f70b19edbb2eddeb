//! Reading many pods.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{Constraints, Pod, PodError, PodParts};
use crate::default_spread::{DefaultConstraint, Workloads, add_default_spread};
use crate::labels::KnownLabels;

/// Reads the pods of a cluster and keeps equal constraints once: the pods of a workload share them, and they are most
/// of what a pod weighs.
#[derive(Debug)]
pub struct PodReader<'a> {
    labels: &'a KnownLabels,
    default_spread: Vec<DefaultConstraint>,
    workloads: Workloads,
    constraints: FxHashSet<Arc<Constraints>>,
}

impl<'a> PodReader<'a> {
    pub fn new(labels: &'a KnownLabels) -> Self {
        Self {
            labels,
            default_spread: Vec::new(),
            workloads: Workloads::default(),
            constraints: FxHashSet::default(),
        }
    }

    /// Gives these constraints to pods that bring none and belong to one of the workloads.
    pub fn spreading(mut self, by: Vec<DefaultConstraint>, workloads: Workloads) -> Self {
        self.default_spread = by;
        self.workloads = workloads;
        self
    }

    pub fn read<'p>(&mut self, pod: impl Into<PodParts<'p>>) -> Result<Pod, PodError> {
        let mut pod = Pod::from_parts(pod.into(), self.labels)?;
        add_default_spread(&mut pod, &self.default_spread, &self.workloads);
        match self.constraints.get(&pod.constraints) {
            Some(known) => pod.constraints = Arc::clone(known),
            None => {
                self.constraints.insert(Arc::clone(&pod.constraints));
            }
        }
        Ok(pod)
    }
}
