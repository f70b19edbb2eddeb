//! The cloud of a simulated cluster: what a provider says without being connected, and machines that are only pretended.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kerf_api::{NodeClaim, NodeClass, NodePool, ObjectExt, crd, labels::LabelRules};
use kerf_model::KnownLabels;
use kerf_provider::{
    Catalogue, CloudProvider, InstanceTypes, Launched, NodeClassKind, Provider, ProviderError,
    ProviderFacts,
};
use kerf_provider_kwok::{Kwok, KwokProvider};
use serde_json::{Value, json};
use tokio::sync::watch;

/// A provider that is not connected, and its catalogue.
#[derive(Clone)]
pub struct Cloud {
    provider: &'static dyn Provider,
    catalogue: Arc<dyn Catalogue>,
}

/// The name of the NodeClass of pools that name none.
const NODE_CLASS: &str = "default";

impl Cloud {
    pub fn new(provider: &'static dyn Provider, catalogue: Box<dyn Catalogue>) -> Self {
        Self { provider, catalogue: catalogue.into() }
    }

    pub fn name(&self) -> &'static str {
        self.provider.name()
    }

    pub(crate) fn catalogue(&self) -> &dyn Catalogue {
        &*self.catalogue
    }

    /// The reference of a pool or claim as it is in the simulated cluster: its own where the provider knows the kind, else one to
    /// a NodeClass of the provider.
    pub(crate) fn node_class_ref(&self, written: &Value) -> Value {
        let text = |field: &str| written[field].as_str().unwrap_or_default();
        let knows = |kind: &NodeClassKind| kind.group == text("group") && kind.kind == text("kind");
        let kinds = self.provider.node_classes();
        if !text("name").is_empty() && kinds.iter().any(knows) {
            return written.clone();
        }
        let (group, kind) = kinds.into_iter().next().map(|it| (it.group, it.kind)).unzip();
        json!({"group": group, "kind": kind, "name": NODE_CLASS})
    }

    /// The object that such a reference leads to. Whatever it was waiting for in its cloud, here it is ready.
    pub(crate) fn node_class(&self, reference: &Value, written: Option<&Value>) -> Value {
        let kinds = self.provider.node_classes();
        let of_kind = kinds.into_iter().find(|it| reference["kind"] == *it.kind);
        let api_version = of_kind.map(|it| format!("{}/{}", it.group, it.version));
        let mut class = json!({
            "apiVersion": api_version, "kind": reference["kind"], "metadata": {"name": reference["name"]},
            // One that says nothing may have none.
            "spec": written.and_then(|class| class.get("spec")).cloned().unwrap_or_else(|| json!({})),
        });
        let mut status = written.map_or(Value::Null, |class| class["status"].clone());
        status["conditions"] = json!([{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        class["status"] = status;
        class
    }

    /// The custom resources of the cluster. Of its NodeClasses any part may be missing: a snapshot keeps what instance types
    /// follow from, and leaves out what may be a secret.
    pub(crate) fn crds(&self) -> Vec<CustomResourceDefinition> {
        let classes = self.provider.node_classes();
        let mut crds = crd::crds(&[self.provider.additions()]);
        for crd in &mut crds {
            let is_class = classes.iter().any(|class| class.kind == crd.spec.names.kind);
            if let Some(root) = crd::root(crd).filter(|_| is_class) {
                let anything = || JSONSchemaProps {
                    type_: Some("object".to_owned()),
                    x_kubernetes_preserve_unknown_fields: Some(true),
                    ..JSONSchemaProps::default()
                };
                let parts = ["spec", "status"].map(|part| (part.to_owned(), anything()));
                *root = JSONSchemaProps {
                    type_: Some("object".to_owned()),
                    properties: Some(parts.into()),
                    ..JSONSchemaProps::default()
                };
            }
        }
        crds
    }

    /// Connects an operator to it.
    pub(crate) fn connect(
        &self,
        machines: Arc<KwokProvider>,
        label_rules: LabelRules,
        offers: Arc<Offers>,
    ) -> SimulatedCloud {
        SimulatedCloud {
            known_labels: KnownLabels::from(&label_rules),
            facts: ProviderFacts {
                name: self.provider.name(),
                node_classes: self.provider.node_classes(),
                label_rules,
                ..machines.facts().clone()
            },
            machines,
            offers,
        }
    }
}

impl Default for Cloud {
    /// The one that needs no account: its catalogue is made up.
    fn default() -> Self {
        let flags = kerf_provider::FlagValues::default();
        let catalogue = Kwok.catalogue(&flags);
        let catalogue = catalogue.unwrap_or_else(|error| unreachable!("no file is named: {error}"));
        Self::new(&Kwok, catalogue)
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cloud of {:?}", self.provider)
    }
}

/// What each pool can launch now.
#[derive(Debug)]
pub(crate) struct Offers {
    of_pools: RwLock<BTreeMap<String, InstanceTypes>>,
    changes: watch::Sender<u64>,
}

impl Offers {
    pub(crate) fn new(of_pools: BTreeMap<String, InstanceTypes>) -> Self {
        Self { of_pools: RwLock::new(of_pools), changes: watch::Sender::new(0) }
    }

    pub(crate) fn change(&self, of_pools: BTreeMap<String, InstanceTypes>) {
        *self.of_pools.write().unwrap_or_else(PoisonError::into_inner) = of_pools;
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn of(&self, pool: &str) -> InstanceTypes {
        let of_pools = self.of_pools.read().unwrap_or_else(PoisonError::into_inner);
        of_pools.get(pool).cloned().unwrap_or_default()
    }
}

/// The provider of a simulated cluster. Its instance types are those of the catalogue, its machines are Nodes and nothing else.
#[derive(Debug)]
pub(crate) struct SimulatedCloud {
    machines: Arc<KwokProvider>,
    facts: ProviderFacts,
    known_labels: KnownLabels,
    offers: Arc<Offers>,
}

#[async_trait]
impl CloudProvider for SimulatedCloud {
    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }

    async fn create(&self, claim: &NodeClaim, _: &NodeClass) -> Result<Launched, ProviderError> {
        let types = self.offers.of(claim.node_pool().unwrap_or_default());
        self.machines.launch_of(types, claim, &self.known_labels).await
    }

    async fn create_overlaid(
        &self,
        claim: &NodeClaim,
        _: &NodeClass,
        types: InstanceTypes,
    ) -> Result<Launched, ProviderError> {
        self.machines.launch_of(types, claim, &self.known_labels).await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), ProviderError> {
        self.machines.delete(claim).await
    }

    async fn reboot(&self, claim: &NodeClaim, operation: &str) -> Result<(), ProviderError> {
        self.machines.reboot(claim, operation).await
    }

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError> {
        self.machines.get(provider_id).await
    }

    async fn list(&self) -> Result<Vec<Launched>, ProviderError> {
        self.machines.list().await
    }

    async fn instance_types(
        &self,
        pool: &NodePool,
        _: &NodeClass,
    ) -> Result<InstanceTypes, ProviderError> {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        self.machines.left(self.offers.of(name)).await
    }

    /// NodeClasses do not change in a simulation.
    async fn drifted(
        &self,
        _: &NodeClaim,
        _: &NodePool,
        _: &NodeClass,
    ) -> Result<Option<String>, ProviderError> {
        Ok(None)
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.offers.changes.subscribe())
    }
}
