//! What Kerf asks of a cloud, and the ways in which it may fail.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use kerf_api::{NodeClaim, NodePool};
use kerf_model::InstanceType;

/// A cloud that launches and terminates instances for NodeClaims.
///
/// The controllers may be stopped between any two calls and started again, so every call may come
/// twice: `create` for a claim that has an instance returns that instance, and `delete` of what is
/// gone says that it was not found.
#[async_trait]
pub trait CloudProvider: Debug + Send + Sync {
    /// The provider's name, as it stands in metrics.
    fn name(&self) -> &'static str;

    /// The kinds of NodeClass that this provider understands; the first is the default. Pools and
    /// claims that refer to other kinds belong to somebody else and are left alone.
    fn node_classes(&self) -> &[NodeClassKind];

    /// The label rules with this provider's own labels and domains in them, and the names that its volume drivers have for
    /// well-known labels ([`LabelRules::calling`](kerf_api::labels::LabelRules::calling)).
    fn label_rules(&self) -> &kerf_api::labels::LabelRules;

    /// Which conditions of a node call for its replacement, and after what time.
    fn repair_policies(&self) -> &[RepairPolicy];

    /// Whether nodes come with the taints and start-up taints of their claim, as kubelets can be told to. Start-up taints that
    /// are missing at registration were then removed, and are not put back.
    fn nodes_register_with_taints(&self) -> bool;

    /// Launches one instance that meets the claim's requirements and has room for its requests.
    async fn create(&self, claim: &NodeClaim) -> Result<Launched, ProviderError>;

    /// Terminates the claim's instance. `Ok` means that termination was asked for and may take a
    /// while: it is asked again until the answer is [`ProviderError::NotFound`].
    async fn delete(&self, claim: &NodeClaim) -> Result<(), ProviderError>;

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError>;

    /// Every instance that the provider owns.
    async fn list(&self) -> Result<Vec<Launched>, ProviderError>;

    /// All instance types for the pool, those that cannot be had at the moment included.
    async fn instance_types(
        &self,
        pool: &NodePool,
    ) -> Result<Arc<[Arc<InstanceType>]>, ProviderError>;

    /// Why the claim's instance is no longer what the provider would launch today, if so.
    async fn drifted(&self, claim: &NodeClaim) -> Result<Option<String>, ProviderError>;
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
    /// Labels that hold for the instance: its type, zone, capacity type and so on.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub capacity: BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    pub allocatable: BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    /// Termination has begun.
    pub terminating: bool,
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
}

/// Replace a node when one of its conditions has had this status for this long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPolicy {
    pub condition: &'static str,
    pub status: &'static str,
    pub toleration: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The instance is gone.
    #[error("nodeclaim not found, {0}")]
    NotFound(String),
    /// None of the wanted offerings can be had now; others may be. The claim is given up and its
    /// pods are planned anew.
    #[error("insufficient capacity, {0}")]
    InsufficientCapacity(String),
    /// The provider's own settings cannot be used yet. The claim is given up.
    #[error("NodeClassRef not ready, {0}")]
    NodeClassNotReady(String),
    /// The launch failed in a way that has a name; it is tried again.
    #[error("creating nodeclaim, {message}")]
    Create { reason: String, message: String },
    /// The cloud was not asked, because this process may not change anything now.
    #[error("not asking the cloud, {0}")]
    NotLeading(String),
    /// Anything else; tried again.
    #[error("{0}")]
    Other(String),
}
