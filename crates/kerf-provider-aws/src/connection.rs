//! AWS as the operator has it.

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodeClass, NodePool, conditions::Status};
use kerf_aws_api::labels::label_rules;
use kerf_model::repair::RepairPolicy;
use kerf_provider::{
    CloudProvider, InstanceTypes, Launched, ProviderError, ProviderFacts, Registration, Registry,
};
use tokio::sync::watch;
use tracing::error;

use crate::{
    cloud::{AwsCloud, Parts},
    controllers, provider,
    start::Start,
};

/// The conditions of the kubelet and of EKS's node monitoring agent. A node goes without a drain: what runs on it is in trouble.
pub(crate) const REPAIR_POLICIES: [RepairPolicy; 7] = [
    RepairPolicy { reason: "", ..bad("Ready", Status::False, 30) },
    bad("Ready", Status::Unknown, 30),
    bad("AcceleratedHardwareReady", Status::False, 10),
    bad("StorageReady", Status::False, 30),
    bad("NetworkingReady", Status::False, 30),
    bad("KernelReady", Status::False, 30),
    bad("ContainerRuntimeReady", Status::False, 30),
];

const fn bad(condition: &'static str, status: Status, minutes: u64) -> RepairPolicy {
    RepairPolicy {
        reason: ".*",
        termination_grace_period: Some(Duration::ZERO),
        ..RepairPolicy::new(condition, status, Duration::from_mins(minutes))
    }
}

/// The way to an account. There is no [`AwsCloud`] to ask before `start` has found out what it needs.
pub struct Connection {
    facts: ProviderFacts,
    start: Option<Start>,
    cloud: OnceLock<Arc<AwsCloud>>,
    /// Why the last attempt to start failed.
    failure: Mutex<Option<String>>,
}

impl Connection {
    /// One that has yet to start.
    pub fn new(start: Start) -> Self {
        let failure = Mutex::default();
        Self { facts: facts(), start: Some(start), cloud: OnceLock::new(), failure }
    }

    /// One that needs no start. Needs a tokio runtime.
    pub fn started(parts: Parts) -> Self {
        let cloud = OnceLock::from(Arc::new(AwsCloud::new(parts)));
        Self { facts: facts(), start: None, cloud, failure: Mutex::default() }
    }

    fn cloud(&self) -> Result<&Arc<AwsCloud>, ProviderError> {
        self.cloud.get().ok_or_else(|| ProviderError::Other(self.why_not()))
    }

    fn why_not(&self) -> String {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failure {
            Some(failure) => format!("the AWS provider has not started: {failure}"),
            None => "the AWS provider has not started yet".to_owned(),
        }
    }
}

fn facts() -> ProviderFacts {
    ProviderFacts {
        name: provider::NAME,
        node_classes: vec![provider::node_class()],
        label_rules: label_rules(),
        repair_policies: REPAIR_POLICIES.to_vec(),
        nodes_register_with_taints: true,
    }
}

#[async_trait]
impl CloudProvider for Connection {
    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
    ) -> Result<Launched, ProviderError> {
        self.cloud()?.launch(claim, class, None).await
    }

    async fn create_overlaid(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        types: InstanceTypes,
    ) -> Result<Launched, ProviderError> {
        self.cloud()?.launch(claim, class, Some(&types)).await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), ProviderError> {
        self.cloud()?.terminate(claim).await
    }

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError> {
        self.cloud()?.get(provider_id).await
    }

    async fn list(&self) -> Result<Vec<Launched>, ProviderError> {
        self.cloud()?.list().await
    }

    async fn instance_types(
        &self,
        _pool: &NodePool,
        class: &NodeClass,
    ) -> Result<InstanceTypes, ProviderError> {
        Ok(self.cloud()?.offers().of(class)?.types)
    }

    async fn drifted(
        &self,
        claim: &NodeClaim,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<Option<String>, ProviderError> {
        self.cloud()?.drifted(claim, pool, class).await
    }

    async fn start(&self) -> Result<(), ProviderError> {
        let Some(start) = self.start.as_ref().filter(|_| self.cloud.get().is_none()) else {
            return Ok(());
        };
        let result = start.run().await;
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = result.as_ref().err().map(ToString::to_string);
        drop(failure);
        self.cloud.get_or_init({
            let cloud = result?;
            || Arc::new(cloud)
        });
        Ok(())
    }

    async fn registering(
        &self,
        claim: &NodeClaim,
        _node: &Node,
    ) -> Result<Registration, ProviderError> {
        self.cloud()?.registering(claim).await
    }

    fn ready(&self) -> Result<(), String> {
        if self.cloud.get().is_some() { Ok(()) } else { Err(self.why_not()) }
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.cloud.get().map(|cloud| cloud.offers().changes())
    }

    fn controllers(self: Arc<Self>, registry: &mut Registry) {
        if let Some(cloud) = self.cloud.get() {
            controllers::register(cloud, registry);
        } else {
            error!("{}: it has no controllers", self.why_not());
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("cloud", &self.cloud).finish_non_exhaustive()
    }
}
