//! Reading many pods.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;

use super::{Constraints, Pod, PodError};
use crate::labels::KnownLabels;

/// Reads the pods of a cluster and keeps equal constraints once: the pods of a workload share them, and they are most
/// of what a pod weighs.
#[derive(Debug)]
pub struct PodReader<'a> {
    labels: &'a KnownLabels,
    constraints: HashSet<Arc<Constraints>>,
}

impl<'a> PodReader<'a> {
    pub fn new(labels: &'a KnownLabels) -> Self {
        Self { labels, constraints: HashSet::new() }
    }

    pub fn read(&mut self, pod: &k8s::Pod) -> Result<Pod, PodError> {
        let mut pod = Pod::from_api(pod, self.labels)?;
        match self.constraints.get(&pod.constraints) {
            Some(known) => pod.constraints = Arc::clone(known),
            None => {
                self.constraints.insert(Arc::clone(&pod.constraints));
            }
        }
        Ok(pod)
    }
}
