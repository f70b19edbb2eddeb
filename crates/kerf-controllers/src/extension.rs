//! What the operator shares with the controllers of its provider.

use std::sync::RwLockReadGuard;

use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodeClass};
use kerf_cluster::Cluster;
use kerf_provider::{BoxError, ControllerContext};
use kerf_runtime::{Clock, Fence, Lock, Metrics, events::Recorder, patch};
use kube::{Client, ResourceExt, api::DynamicObject};

use crate::{context::Context, error::Error, metrics::Cause};

#[async_trait::async_trait]
impl ControllerContext for Context {
    fn client(&self) -> &Client {
        &self.client
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn fence(&self) -> &Fence {
        &self.fence
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics.all
    }

    fn cluster(&self) -> RwLockReadGuard<'_, Cluster> {
        self.index.read()
    }

    async fn disrupt(&self, claim: &NodeClaim, cause: &'static str) -> Result<(), BoxError> {
        Ok(Context::disrupt(self, claim, Cause::Provider(cause)).await.map_err(unwrapped)?)
    }

    async fn end_patience(&self, claim: &NodeClaim) -> Result<(), BoxError> {
        Ok(Context::end_patience(self, claim).await.map_err(unwrapped)?)
    }

    async fn write_claim(&self, before: &NodeClaim, after: NodeClaim) -> Result<(), BoxError> {
        let what = || format!("writing NodeClaim {}", before.name_any());
        let written = Context::write_claim(self, before, after, Lock::Optimistic, what).await;
        written.map(drop).map_err(unwrapped)
    }

    async fn write_node(&self, before: &Node, after: Node) -> Result<(), BoxError> {
        let what = || format!("writing Node {}", before.name_any());
        self.write(before, after, Lock::Optimistic, what).await.map(drop).map_err(unwrapped)
    }

    async fn write_node_class(
        &self,
        class: &NodeClass,
        changed: DynamicObject,
    ) -> Result<(), BoxError> {
        let (group, kind) = (&class.reference.group, &class.reference.kind);
        let api = self.node_classes(&class.reference);
        let api = api.ok_or_else(|| format!("{kind} is no NodeClass of this provider"))?;
        let written = patch::patch_both(&api, class.object(), &changed, Lock::Optimistic).await?;
        if let Some(written) = written {
            self.index.anticipate(NodeClass::from_object(group, kind, written));
        }
        Ok(())
    }
}

/// The API server's own error where there is one: conflicts are recognised by it.
fn unwrapped(error: Error) -> BoxError {
    match error {
        Error::Api { source, .. } => source.into(),
        other => other.into(),
    }
}
