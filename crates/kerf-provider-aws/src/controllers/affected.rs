//! A claim whose instance something happens to, and its Node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, ObjectExt};
use kerf_aws_model::{instance::ProviderId, messages::Event};
use kerf_cluster::Cluster;
use kerf_provider::{BoxError, ControllerContext};
use kerf_runtime::events::{Notice, Recorder, Severity};
use kube::ResourceExt;
use tracing::info;

/// A claim with the Node that it has, if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Affected {
    pub(crate) claim: Arc<NodeClaim>,
    pub(crate) node: Option<Arc<Node>>,
}

impl Affected {
    pub(crate) fn of_claim(cluster: &Cluster, claim: &Arc<NodeClaim>) -> Self {
        let node = cluster.node_of(claim.provider_id()).ok().cloned();
        Self { claim: Arc::clone(claim), node }
    }

    /// Those of an instance: one, or none if it is not this cluster's.
    pub(crate) fn of_instance(cluster: &Cluster, instance: &str) -> Vec<Self> {
        let names_it = |claim: &&Arc<NodeClaim>| {
            let provider_id = claim.provider_id().parse::<ProviderId>();
            provider_id.is_ok_and(|id| id.instance == instance)
        };
        let claims = cluster.claims_of_instance(instance).filter(names_it);
        claims.map(|claim| Self::of_claim(cluster, claim)).collect()
    }

    /// Says it on the claim and on its Node.
    pub(crate) fn report(&self, recorder: &Recorder, event: Event) {
        let Event { reason, message, warning } = event;
        let severity = if warning { Severity::Warning } else { Severity::Normal };
        recorder.record(Notice::about(&*self.claim, severity, reason, message.to_owned()));
        if let Some(node) = &self.node {
            recorder.record(Notice::about(&**node, severity, reason, message.to_owned()));
        }
    }

    /// Deletes the claim, unless that has begun.
    pub(crate) async fn disrupt(
        &self,
        context: &dyn ControllerContext,
        cause: &'static str,
    ) -> Result<(), BoxError> {
        if self.claim.is_deleting() {
            return Ok(());
        }
        context.disrupt(&self.claim, cause).await?;
        info!(
            claim = self.claim.name_any(),
            cause, "deleting nodeclaim, its instance is about to end"
        );
        self.report(context.recorder(), TERMINATING);
        Ok(())
    }
}

const TERMINATING: Event = Event {
    reason: "TerminatingOnInterruption",
    message: "Kerf deletes the NodeClaim because its instance is about to end",
    warning: true,
};
