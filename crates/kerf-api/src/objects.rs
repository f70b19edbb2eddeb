//! Accessors of objects that all crates use.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, jiff};
use kube_core::Resource;

use crate::{NodeClaim, labels};

/// Of any object.
pub trait ObjectExt: Resource {
    /// Deletion was asked for; finalizers may still hold it.
    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// The pool that its label names.
    fn node_pool(&self) -> Option<&str> {
        self.meta().labels.as_ref()?.get(labels::NODE_POOL).map(String::as_str)
    }
}

impl<K: Resource> ObjectExt for K {}

impl NodeClaim {
    /// Empty while it has no instance.
    pub fn provider_id(&self) -> &str {
        self.status.as_ref().map_or("", |status| &status.provider_id)
    }

    /// Whether its instance is still to come. Its size is unknown until then.
    pub fn is_unlaunched(&self) -> bool {
        !self.is_deleting() && self.provider_id().is_empty()
    }

    /// Empty while it has no Node.
    pub fn node_name(&self) -> &str {
        self.status.as_ref().map_or("", |status| &status.node_name)
    }

    /// When a pod last came to its node or left it.
    pub fn last_pod_event(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.last_pod_event_time.as_ref()?.0)
    }
}

/// Of a Node.
pub trait NodeExt {
    /// Empty while no cloud has said which instance it is.
    fn provider_id(&self) -> &str;
}

impl NodeExt for Node {
    fn provider_id(&self) -> &str {
        self.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
    }
}
