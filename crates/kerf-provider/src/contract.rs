//! What Kerf asks of a cloud.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::{
    api::core::v1::Node, apimachinery::pkg::api::resource::Quantity, jiff::Timestamp,
};
use kerf_api::{NodeClaim, NodeClass, NodePool, labels::LabelRules};
use kerf_model::{InstanceType, repair::RepairPolicy};
use kube::core::{ApiResource, GroupVersionKind};
use tokio::sync::watch;

use crate::{ControllerContext, ProviderError, Registry};

/// What can be launched. Schedulers recognise it by its allocation: a provider returns the same one while nothing changed,
/// and another one when something did.
pub type InstanceTypes = Arc<[Arc<InstanceType>]>;

/// A cloud that launches and terminates instances for NodeClaims.
///
/// The controllers may be stopped between any two calls and started again, so every call may come
/// twice: `create` for a claim that has an instance returns that instance, and `delete` of what is
/// gone says that it was not found.
///
/// NodeClasses come from the operator's index: each kind is watched once, and no provider has to ask for them.
#[async_trait]
pub trait CloudProvider: Debug + Send + Sync {
    /// What never changes about it.
    fn facts(&self) -> &ProviderFacts;

    /// Launches one instance that meets the claim's requirements and has room for its requests.
    async fn create(&self, claim: &NodeClaim, class: &NodeClass)
    -> Result<Launched, ProviderError>;

    /// The same where overlays changed the prices or the capacity of instance types. These are the types of the claim's pool as
    /// it was planned by them. A provider that can choose by other prices than its own buys by these.
    async fn create_overlaid(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        _types: InstanceTypes,
    ) -> Result<Launched, ProviderError> {
        self.create(claim, class).await
    }

    /// Terminates the claim's instance. `Ok` means that termination was asked for and may take a
    /// while: it is asked again until the answer is [`ProviderError::NotFound`].
    async fn delete(&self, claim: &NodeClaim) -> Result<(), ProviderError>;

    /// Restarts the machine of the claim in place. `Ok` means that the cloud has accepted. The same reboot may be asked for again, also
    /// after it was carried out, and goes by the same `operation` then; nothing is to be restarted twice for it. The kubelet has to
    /// report another boot ID (`status.nodeInfo.bootID`) when it comes back.
    ///
    /// A provider whose repair policies ask for reboots has to have this.
    async fn reboot(&self, _claim: &NodeClaim, _operation: &str) -> Result<(), ProviderError> {
        Err(ProviderError::RebootNotImplemented)
    }

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError>;

    /// Every instance that the provider owns.
    async fn list(&self) -> Result<Vec<Launched>, ProviderError>;

    /// All instance types for the pool, those that cannot be had at the moment included.
    async fn instance_types(
        &self,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<InstanceTypes, ProviderError>;

    /// Why the claim's instance is no longer what the provider would launch today, if so.
    async fn drifted(
        &self,
        claim: &NodeClaim,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<Option<String>, ProviderError>;

    /// Finds out what the provider needs before it can answer anything. The operator is not ready before this succeeds, and
    /// goes on trying. Replicas that wait for the lease start as well. Before it only [`Self::facts`] and [`Self::ready`] are
    /// asked for.
    async fn start(&self) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Takes up what the last leader left. Called once, when this process leads and before its controllers begin. What fails
    /// here is logged, and the controllers begin all the same.
    async fn lead(&self, _context: &dyn ControllerContext) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Asked when the claim's Node has appeared and before the claim takes charge of it.
    async fn registering(
        &self,
        _claim: &NodeClaim,
        _node: &Node,
    ) -> Result<Registration, ProviderError> {
        Ok(Registration::default())
    }

    /// Why the provider cannot work now, if so; a check of the operator's readiness.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    /// Counts the changes of its instance types, prices among them: with each the operator looks again at pods that wait and
    /// at nodes that may be too dear. `None`: they do not change.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Adds the provider's own controllers. They run while this process leads.
    fn controllers(self: Arc<Self>, _registry: &mut Registry) {}
}

/// What is true of a provider whatever happens in its cloud.
#[derive(Clone, Debug)]
pub struct ProviderFacts {
    /// As it stands in metrics.
    pub name: &'static str,
    /// The kinds of NodeClass that this provider understands; the first is the default. Pools and claims that refer to other
    /// kinds belong to another operator and are left alone.
    pub node_classes: Vec<NodeClassKind>,
    /// The rules for labels with this provider's own in them: the labels and domains it knows, the label that names a
    /// reservation, other names of labels and of values.
    pub label_rules: LabelRules,
    /// Which conditions of a node call for its repair, after what time, and for which repair. The whole set, which never changes.
    pub repair_policies: Vec<RepairPolicy>,
    /// Whether nodes come with the taints and start-up taints of their claim, as kubelets can be configured to. Start-up taints that
    /// are missing at registration were then removed, and are not put back.
    pub nodes_register_with_taints: bool,
}

/// An instance as the provider describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launched {
    pub provider_id: String,
    pub image_id: String,
    /// The UID of the claim it was launched for, when the provider wrote it down. By it an instance without a claim is found,
    /// and a claim that names the instance of another.
    pub claim_uid: Option<String>,
    /// The name of its Node, when the provider knows it.
    pub node_name: Option<String>,
    /// When it was launched, when the provider knows it. By it an instance that does not name its claim is found to have none:
    /// see [`Self::claim_uid`].
    pub launched_at: Option<Timestamp>,
    /// Labels that hold for the instance: its type, zone, capacity type and so on.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub capacity: BTreeMap<String, Quantity>,
    pub allocatable: BTreeMap<String, Quantity>,
    /// Termination has begun.
    pub terminating: bool,
}

/// Whether a Node may be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// It may. Claim and Node get these labels.
    Go { labels: BTreeMap<String, String> },
    /// Not yet.
    Wait { because: String, look_again: Duration },
}

impl Default for Registration {
    fn default() -> Self {
        Self::Go { labels: BTreeMap::new() }
    }
}

/// A kind of NodeClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClassKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
}

impl NodeClassKind {
    /// The label that carries the name of the NodeClass on claims and nodes.
    pub fn label(&self) -> String {
        kerf_api::labels::node_class(&self.group, &self.kind)
    }

    /// How the API server knows it.
    pub fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&gvk, &self.plural)
    }
}
