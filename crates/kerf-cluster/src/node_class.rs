//! NodeClasses in the index.

use std::sync::Arc;

use kerf_api::{NodeClass, NodeClassReference};

use crate::{Cluster, Key};

/// NodeClasses of several kinds share one index: group and kind stand where a namespace would.
pub(crate) fn key(reference: &NodeClassReference) -> Key {
    Key::namespaced(format!("{}/{}", reference.group, reference.kind), &reference.name)
}

impl Cluster {
    /// The NodeClass that a pool or a claim refers to.
    pub fn node_class(&self, reference: &NodeClassReference) -> Option<&Arc<NodeClass>> {
        self.node_classes.get(&key(reference))
    }
}
