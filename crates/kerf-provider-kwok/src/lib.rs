//! The KWOK provider: instances that exist only as Node objects, run by kwok.
//!
//! There is no cloud behind it that could remember anything, so the Node object is the instance.
//! What follows from that:
//!
//! * The Node's name follows from the claim (its name and UID). A launch that is repeated because the operator was
//!   killed before it could write down the first one finds the Node and launches nothing.
//! * Terminating an instance deletes its Node. A Node that its finalizer still holds counts as an instance until it is
//!   gone, so that a drain takes place on nodes that are not ready, too; but once `delete` was called (which happens
//!   after the drain) the answer is that the instance is gone, or the finalizer would wait for the instance and the
//!   instance for the finalizer.
//! * With a registration delay the instance exists for a while in this process only. [`KwokProvider::resume`] makes
//!   up for a process that ended in that time.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    Decoded, GoDuration, NodeClaim, NodeClass, NodeClassReference, NodePool, ObjectExt,
    conditions::{Conditioned, REGISTERED, Status},
    decode,
    labels::LabelRules,
};
use kerf_model::{
    InstanceType, KnownLabels,
    repair::{RepairAction, RepairPolicy},
};
use kerf_provider::{
    CloudProvider, ControllerContext, InstanceTypes, Launched, ProviderError, ProviderFacts,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams},
    core::Request,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::{info, warn};

use launches::Launches;

mod catalogue;
mod catalogue_file;
mod instance;
pub mod labels;
mod launches;
mod node_class;
mod provider;
mod reservations;

pub use catalogue::{generated, price_by_size};
pub use catalogue_file::{CatalogueError, CatalogueFileError, from_file, from_json};
pub use instance::{Choice, choose};
pub use node_class::{GROUP, KIND, KwokNodeClass, KwokNodeClassSpec, KwokNodeClassStatus, crds};
pub use provider::{INSTANCE_TYPES_FILE_PATH, Kwok};

/// The conditions under which a node is repaired. The last two are KWOK's own: nothing but their author sets or resets them, so
/// that a fault can be played while the kubelet still says that the node is ready. Not even a reboot resets the last one.
pub const REPAIR_POLICIES: [RepairPolicy; 4] = [
    RepairPolicy { termination_grace_period: Some(Duration::ZERO), ..NOT_READY },
    RepairPolicy {
        status: Status::Unknown,
        reason: ANY,
        termination_grace_period: Some(Duration::ZERO),
        ..NOT_READY
    },
    RepairPolicy {
        reason: ANY,
        termination_grace_period: Some(Duration::from_secs(45)),
        ..RepairPolicy::new("KWOKUnhealthy", Status::True, Duration::from_secs(30))
    },
    RepairPolicy {
        reason: ANY,
        termination_grace_period: Some(Duration::from_mins(1)),
        action: RepairAction::Reboot,
        ..RepairPolicy::new("KWOKRebootRequired", Status::True, Duration::from_secs(30))
    },
];
const NOT_READY: RepairPolicy = RepairPolicy::new("Ready", Status::False, Duration::from_mins(10));
const ANY: &str = ".*";

/// Launches simulated nodes.
pub struct KwokProvider {
    client: Client,
    catalogue: RwLock<InstanceTypes>,
    changes: watch::Sender<u64>,
    facts: ProviderFacts,
    known_labels: KnownLabels,
    launches: Launches,
}

impl KwokProvider {
    /// A provider of these instance types: [`generated`] ones, or those of a file.
    pub fn new(client: Client, instance_types: Vec<InstanceType>) -> Self {
        let rules = label_rules(&instance_types);
        Self {
            known_labels: KnownLabels::from(&rules),
            facts: ProviderFacts {
                name: "kwok",
                node_classes: vec![node_class::kind()],
                label_rules: rules,
                repair_policies: REPAIR_POLICIES.to_vec(),
                nodes_register_with_taints: true,
            },
            launches: Launches::default(),
            client,
            catalogue: RwLock::new(instance_types.into_iter().map(Arc::new).collect()),
            changes: watch::Sender::new(0),
        }
    }

    /// Takes up the launches whose Nodes were still to appear when the operator ended; returns
    /// their number.
    ///
    /// Without it such claims would wait for a node that nobody creates until their registration
    /// times out. The claims are listed anew, because the index may not know yet what the last leader wrote.
    pub async fn resume(
        &self,
        class_of: impl Fn(&NodeClassReference) -> Option<Arc<NodeClass>>,
    ) -> Result<usize, ProviderError> {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        let claims = self.read_all("NodeClaim", &claims).await;
        let claims = claims.map_err(|error| failed("listing NodeClaims", &error))?;
        let mut resumed = 0;
        for claim in claims.iter().filter(|claim| is_waiting_for_its_node(claim)) {
            let name = instance::node_name(claim);
            if self.find(&name).await?.is_none() {
                let class = class_of(&claim.spec.node_class_ref).ok_or_else(|| not_found(claim));
                // Its labels say what was launched, whatever the prices were.
                let types = self.offered().await?;
                let designed = class.and_then(|class| self.design(claim, &class, &types));
                match designed {
                    Ok((node, delay)) => {
                        self.launches.start(self.nodes(), node, delay);
                        resumed += 1;
                    }
                    // It will time out; the others need not.
                    Err(error) => {
                        warn!(claim = claim.name_any(), %error, "cannot resume a launch");
                    }
                }
            }
        }
        Ok(resumed)
    }

    /// From now on these are the instance types, at these prices. Their labels are to be those of the ones before, from
    /// which the label rules were made.
    pub fn offer(&self, instance_types: impl IntoIterator<Item = InstanceType>) {
        let catalogue = instance_types.into_iter().map(Arc::new).collect();
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = catalogue;
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn catalogue(&self) -> InstanceTypes {
        Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn offered(&self) -> Result<InstanceTypes, ProviderError> {
        self.left(self.catalogue()).await
    }

    /// These instance types with what their reservations have left; instances are counted only where there are any.
    pub async fn left(&self, types: InstanceTypes) -> Result<InstanceTypes, ProviderError> {
        if !reservations::are_in(&types) {
            return Ok(types);
        }
        Ok(reservations::left(&types, &self.list().await?))
    }

    /// Launches the cheapest of these instance types that suits the claim, for a cloud that only pretends its machines.
    pub async fn launch_of(
        &self,
        types: InstanceTypes,
        claim: &NodeClaim,
        known_labels: &KnownLabels,
    ) -> Result<Launched, ProviderError> {
        if let Some(node) = self.find(&instance::node_name(claim)).await? {
            return Ok(instance::launched(&node));
        }
        let types = self.left(types).await?;
        let choice = instance::choose(claim, &types, known_labels)?;
        self.bring_up(instance::node(claim, choice)).await
    }

    async fn bring_up(&self, node: Node) -> Result<Launched, ProviderError> {
        match self.nodes().create(&PostParams::default(), &node).await {
            Ok(node) => Ok(instance::launched(&node)),
            Err(error) => Err(failed(format!("creating Node {}", node.name_any()), &error)),
        }
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// The instance of that name, whether its Node has appeared or not.
    async fn find(&self, name: &str) -> Result<Option<Node>, ProviderError> {
        // In this order: a Node may appear, and stop being a launch, between the two questions.
        let launching = self.launches.get(name);
        let node = self.read("Node", &self.nodes(), name).await;
        let node = node.map_err(|error| failed(format!("reading Node {name}"), &error))?;
        Ok(node.or(launching))
    }

    /// All objects of a kind, one by one: an instance whose Node cannot be read is there all the same.
    async fn read_all<K: DeserializeOwned + kube::Resource>(
        &self,
        kind: &str,
        api: &Api<K>,
    ) -> kube::Result<Vec<K>> {
        let request = Request::new(api.resource_url()).list(&ListParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        let text = self.client.request_text(request).await?;
        let (all, _) = decode::decode_list(kind, &text).map_err(kube::Error::SerdeError)?;
        Ok(all.into_iter().filter_map(Decoded::object).collect())
    }

    async fn read<K: DeserializeOwned + kube::Resource>(
        &self,
        kind: &str,
        api: &Api<K>,
        name: &str,
    ) -> kube::Result<Option<K>> {
        let request = Request::new(api.resource_url()).get(name, &GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        let value = match self.client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
            answer => answer?,
        };
        Ok(decode::decode(kind, value).object())
    }

    /// Launches one of these instance types, or of the catalogue.
    async fn launch(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        overlaid: Option<InstanceTypes>,
    ) -> Result<Launched, ProviderError> {
        let name = instance::node_name(claim);
        if let Some(node) = self.find(&name).await? {
            return Ok(instance::launched(&node));
        }
        let types = match overlaid {
            Some(types) => types,
            None => self.offered().await?,
        };
        let (node, delay) = self.design(claim, class, &types)?;
        if !delay.is_zero() {
            let launched = instance::launched(&node);
            self.launches.start(self.nodes(), node, delay);
            return Ok(launched);
        }
        self.bring_up(node).await
    }

    /// The Node that suits the claim best, and how long it takes to appear.
    fn design(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        catalogue: &[Arc<InstanceType>],
    ) -> Result<(Node, Duration), ProviderError> {
        let class: KwokNodeClass = class.read().map_err(|error| {
            ProviderError::NodeClassNotReady(format!("{KIND} {}: {error}", class.reference.name))
        })?;
        let choice = instance::choose(claim, catalogue, &self.known_labels)?;
        let delay = class.spec.node_registration_delay.as_ref();
        Ok((instance::node(claim, choice), delay.map(GoDuration::as_duration).unwrap_or_default()))
    }
}

#[async_trait]
impl CloudProvider for KwokProvider {
    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }

    /// Without a registration delay the Node exists when this returns, and what keeps it from
    /// existing is an error of the launch. With one it appears later.
    async fn create(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
    ) -> Result<Launched, ProviderError> {
        self.launch(claim, class, None).await
    }

    async fn create_overlaid(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        types: InstanceTypes,
    ) -> Result<Launched, ProviderError> {
        self.launch(claim, class, Some(types)).await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), ProviderError> {
        let recorded =
            claim.status.as_ref().and_then(|status| instance::name_in(&status.provider_id));
        // A launch that was not written down left no provider id, but it may have left an instance.
        let name = recorded.map_or_else(|| instance::node_name(claim), str::to_owned);
        self.launches.stop(&name).await;
        match self.nodes().delete(&name, &DeleteParams::default()).await {
            Ok(_) => {
                info!(node = name, "terminated instance");
                Err(ProviderError::NotFound("instance terminated".to_owned()))
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Err(no_instance(&name)),
            Err(error) => Err(failed(format!("deleting Node {name}"), &error)),
        }
    }

    /// There is no machine: its node says at once that it has been booted again. No kubelet goes away for it.
    async fn reboot(&self, claim: &NodeClaim, operation: &str) -> Result<(), ProviderError> {
        let name = claim.status.as_ref().map_or("", |status| status.node_name.as_str());
        if name.is_empty() {
            let problem = "rebooting nodeclaim, node is not registered";
            return Err(ProviderError::Other(problem.to_owned()));
        }
        let boot = json!({"status": {"nodeInfo": {"bootID": format!("kwok-{operation}")}}});
        let patch = Patch::Merge(boot);
        match self.nodes().patch_status(name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Err(no_instance(name)),
            Err(error) => Err(failed(format!("rebooting Node {name}"), &error)),
        }
    }

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError> {
        let name = instance::name_in(provider_id).ok_or_else(|| no_instance(provider_id))?;
        let node = self.find(name).await?.ok_or_else(|| no_instance(name))?;
        Ok(instance::launched(&node))
    }

    async fn list(&self) -> Result<Vec<Launched>, ProviderError> {
        let mut instances = self.launches.all();
        let nodes = self.read_all("Node", &self.nodes()).await;
        let nodes = nodes.map_err(|error| failed("listing Nodes", &error))?;
        instances.retain(|launch| nodes.iter().all(|node| node.name_any() != launch.name_any()));
        instances.extend(nodes.into_iter().filter(instance::is_ours));
        Ok(instances.iter().map(instance::launched).collect())
    }

    async fn instance_types(
        &self,
        _pool: &NodePool,
        _class: &NodeClass,
    ) -> Result<InstanceTypes, ProviderError> {
        self.offered().await
    }

    async fn drifted(
        &self,
        _claim: &NodeClaim,
        _pool: &NodePool,
        _class: &NodeClass,
    ) -> Result<Option<String>, ProviderError> {
        Ok(None)
    }

    async fn lead(&self, context: &dyn ControllerContext) -> Result<(), ProviderError> {
        let class_of =
            |reference: &NodeClassReference| context.cluster().node_class(reference).cloned();
        let launches = self.resume(class_of).await?;
        if launches > 0 {
            info!(launches, "resumed launches that were under way");
        }
        Ok(())
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }
}

/// The rules for labels where these are the instance types.
pub fn label_rules(instance_types: &[InstanceType]) -> LabelRules {
    let offered = instance_types.iter().flat_map(InstanceType::offerings);
    let offered = offered.flat_map(|offering| offering.requirements.keys());
    LabelRules::default()
        .restricting(labels::DOMAIN)
        .knowing([
            labels::INSTANCE_CPU,
            labels::INSTANCE_MEMORY,
            labels::INSTANCE_FAMILY,
            labels::INSTANCE_SIZE,
        ])
        .knowing(offered)
}

impl fmt::Debug for KwokProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KwokProvider").field("launches", &self.launches).finish_non_exhaustive()
    }
}

fn is_waiting_for_its_node(claim: &NodeClaim) -> bool {
    let provider_id = claim.status.as_ref().map(|status| status.provider_id.as_str());
    // Any provider id can be written into a claim by hand.
    provider_id.and_then(instance::name_in) == Some(&instance::node_name(claim))
        && !claim.is_deleting()
        && !claim.is_true(REGISTERED)
}

fn not_found(claim: &NodeClaim) -> ProviderError {
    let NodeClassReference { kind, name, .. } = claim.spec.node_class_ref.clone();
    ProviderError::NodeClassNotFound { kind, name }
}

fn no_instance(name: &str) -> ProviderError {
    ProviderError::NotFound(format!("there is no instance {name}"))
}

fn failed(what: impl fmt::Display, error: &kube::Error) -> ProviderError {
    ProviderError::Other(format!("{what}: {error}"))
}
