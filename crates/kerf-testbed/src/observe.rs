//! What a bystander in the same process sees of the cluster: every change, as it happens, without a request.

use crate::api::{Feed, Seen, Wanted};
use crate::testbed::Testbed;
use serde_json::Value;
use std::future::poll_fn;

/// Watches several resources in the order in which things happen.
#[derive(Debug)]
pub struct Observer(Feed);

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Observation(Seen);

impl Observer {
    /// All changes since the last time; what is there at the first time counts as new. Waits until there are any.
    pub async fn changes(&mut self) -> Vec<Observation> {
        let changes = poll_fn(|context| self.0.poll_changes(context)).await;
        changes.into_iter().map(Observation).collect()
    }
}

impl Observation {
    /// The resource's name in the plural.
    pub fn resource(&self) -> &str {
        &self.0.resource.plural
    }

    /// `namespace/name`, or `name`.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The object now, or the last that was known of it.
    pub fn object(&self) -> &Value {
        &self.0.object.value
    }

    pub fn is_gone(&self) -> bool {
        self.0.gone
    }
}

impl Testbed {
    /// Observes these resources, each by its group and its name in the plural.
    pub fn observe(&self, resources: &'static [(&'static str, &'static str)]) -> Observer {
        Observer(Feed::new(self.api().clone(), Wanted::These(resources)))
    }
}
