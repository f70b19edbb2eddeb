//! The provider as the controllers see it: its calls are measured, and only the leader launches and terminates instances.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodeClass, NodePool, ObjectExt};
use kerf_provider::{
    CloudProvider, ControllerContext, InstanceTypes, Launched, ProviderError, ProviderFacts,
    Registration, Registry,
};
use kerf_runtime::{Fence, Metrics, current_controller};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};
use tokio::{sync::watch, time::Instant};

pub(crate) struct GuardedProvider {
    inner: Arc<dyn CloudProvider>,
    fence: Fence,
    calls: CallMetrics,
}

#[derive(Debug)]
pub(crate) struct CallMetrics {
    duration: Family<Called, Histogram>,
    errors: Family<Failed, Counter>,
}

impl CallMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let new = Self {
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            errors: Family::default(),
        };
        metrics.register(|registry| {
            let mut provider = registry.sub_registry_with_prefix("karpenter_cloudprovider");
            let help = "Time that calls of the cloud provider took";
            provider.register("duration_seconds", help, new.duration.clone());
            let help = "Calls of the cloud provider that failed";
            provider.register("errors", help, new.errors.clone());
        });
        new
    }
}

impl GuardedProvider {
    pub(crate) fn register(metrics: &Metrics, inner: Arc<dyn CloudProvider>, fence: Fence) -> Self {
        Self { inner, fence, calls: CallMetrics::register(metrics) }
    }

    /// Calls only what may be called now.
    async fn as_leader<T, C>(&self, call: impl FnOnce() -> C) -> Result<T, ProviderError>
    where
        C: Future<Output = Result<T, ProviderError>>,
    {
        self.fence.check().map_err(|refused| ProviderError::NotLeading(refused.to_string()))?;
        call().await
    }

    /// A call that is about nothing of one pool.
    async fn measured<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        self.measured_for(None, method, call).await
    }

    async fn measured_for<T>(
        &self,
        pool: Option<&str>,
        method: &'static str,
        call: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let (controller, provider) = (current_controller(), self.inner.facts().name);
        let begin = Instant::now();
        let result = call.await;
        let called = Called { controller, method, provider };
        self.calls.duration.get_or_create(&called).observe(begin.elapsed().as_secs_f64());
        if let Err(error) = &result {
            let nodepool = pool.unwrap_or_default().to_owned();
            let failed = Failed { controller, method, provider, nodepool, error: kind(error) };
            self.calls.errors.get_or_create(&failed).inc();
        }
        result
    }
}

/// The kinds that Karpenter tells apart, and our own.
fn kind(error: &ProviderError) -> &'static str {
    match error {
        ProviderError::NotFound(_) => "NodeClaimNotFoundError",
        ProviderError::InsufficientCapacity { .. } => "InsufficientCapacityError",
        ProviderError::NodeClassNotFound { .. } => "NodeClassNotFoundError",
        ProviderError::Throttled { .. } => "ThrottledError",
        ProviderError::Unauthorized { .. } => "UnauthorizedError",
        ProviderError::NodeClassNotReady(_) => "NodeClassNotReadyError",
        ProviderError::NotLeading(_) => "NotLeadingError",
        ProviderError::RebootNotImplemented => "RebootNotImplementedError",
        ProviderError::RebootRejected(_) => "RebootRejectedError",
        ProviderError::Create { .. } | ProviderError::Other(_) => "unknown",
    }
}

#[async_trait]
impl CloudProvider for GuardedProvider {
    fn facts(&self) -> &ProviderFacts {
        self.inner.facts()
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
    ) -> Result<Launched, ProviderError> {
        let call = self.as_leader(|| self.inner.create(claim, class));
        self.measured_for(claim.node_pool(), "Create", call).await
    }

    async fn create_overlaid(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        types: InstanceTypes,
    ) -> Result<Launched, ProviderError> {
        let call = self.as_leader(|| self.inner.create_overlaid(claim, class, types));
        self.measured_for(claim.node_pool(), "Create", call).await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), ProviderError> {
        let call = self.as_leader(|| self.inner.delete(claim));
        self.measured_for(claim.node_pool(), "Delete", call).await
    }

    async fn reboot(&self, claim: &NodeClaim, operation: &str) -> Result<(), ProviderError> {
        let call = self.as_leader(|| self.inner.reboot(claim, operation));
        self.measured_for(claim.node_pool(), "Reboot", call).await
    }

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError> {
        self.measured("Get", self.inner.get(provider_id)).await
    }

    async fn list(&self) -> Result<Vec<Launched>, ProviderError> {
        self.measured("List", self.inner.list()).await
    }

    async fn instance_types(
        &self,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<InstanceTypes, ProviderError> {
        let call = self.inner.instance_types(pool, class);
        self.measured_for(pool.metadata.name.as_deref(), "GetInstanceTypes", call).await
    }

    async fn drifted(
        &self,
        claim: &NodeClaim,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<Option<String>, ProviderError> {
        let call = self.inner.drifted(claim, pool, class);
        self.measured_for(claim.node_pool(), "IsDrifted", call).await
    }

    async fn start(&self) -> Result<(), ProviderError> {
        self.measured("Start", self.inner.start()).await
    }

    async fn lead(&self, context: &dyn ControllerContext) -> Result<(), ProviderError> {
        self.measured("Lead", self.as_leader(|| self.inner.lead(context))).await
    }

    async fn registering(
        &self,
        claim: &NodeClaim,
        node: &Node,
    ) -> Result<Registration, ProviderError> {
        let call = self.inner.registering(claim, node);
        self.measured_for(claim.node_pool(), "Registering", call).await
    }

    fn ready(&self) -> Result<(), String> {
        self.inner.ready()
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.inner.changes()
    }

    fn controllers(self: Arc<Self>, registry: &mut Registry) {
        Arc::clone(&self.inner).controllers(registry);
    }
}

impl fmt::Debug for GuardedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    controller: &'static str,
    method: &'static str,
    provider: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failed {
    controller: &'static str,
    method: &'static str,
    provider: &'static str,
    nodepool: String,
    error: &'static str,
}

const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_kind() {
        let other = ProviderError::Other("down".into());
        let gone = ProviderError::NotFound("i-1".into());
        assert_eq!([kind(&other), kind(&gone)], ["unknown", "NodeClaimNotFoundError"]);
    }
}
