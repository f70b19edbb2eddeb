//! What every controller gets: client, index, clock, provider, recorder and metrics.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kerf_api::{NodeClaim, NodeClass, NodeClassReference, NodePool, ObjectExt, annotations};
use kerf_cluster::{Key, pods, snapshot::Inputs};
use kerf_model::KnownLabels;
use kerf_provider::{CloudProvider, InstanceTypes, ProviderError};
use kerf_runtime::{Clock, Fence, Lock, Queue, events::Recorder};
use kube::{Api, Client, ResourceExt, api::DynamicObject};

use crate::{
    buffer::Rooms,
    claim::writes::Turns,
    definitions::Definitions,
    error::{Error, Result},
    index::{Index, sight::Sight},
    metrics::{Cause, ControllerMetrics, state::Prices},
    provisioning::{self, Promises},
    settings::Settings,
    window::Window,
};

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) fence: Fence,
    pub(crate) settings: Settings,
    pub(crate) provider: Arc<dyn CloudProvider>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) index: Index,
    /// Whether the index is what the cluster is.
    pub(crate) sight: Sight,
    pub(crate) prices: Prices,
    pub(crate) promises: Promises,
    /// How the room of buffers stands.
    pub(crate) rooms: Rooms,
    /// Claims that may or may not have been created.
    pub(crate) unsettled: Queue<String>,
    pub(crate) turns: Turns,
    pub(crate) definitions: Definitions,
    /// Where those look who want to know what goes on.
    pub(crate) window: Window,
}

impl Context {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time since then; nothing if it lies ahead.
    pub(crate) fn passed_since(&self, then: Timestamp) -> Option<Duration> {
        Duration::try_from(self.clock.since(then)).ok()
    }

    pub(crate) fn claims(&self) -> Api<NodeClaim> {
        Api::all(self.client.clone())
    }

    pub(crate) fn known_labels(&self) -> KnownLabels {
        kerf_cluster::view::known_labels(&self.provider.facts().label_rules)
    }

    /// The NodeClass that a pool or a claim refers to.
    pub(crate) fn node_class(
        &self,
        reference: &NodeClassReference,
    ) -> Result<Arc<NodeClass>, ProviderError> {
        let class = self.index.read().node_class(reference).cloned();
        class.ok_or_else(|| ProviderError::no_node_class(reference))
    }

    /// The same for who would delete a claim because its class is missing. Watches are not in step with each other: a claim may
    /// be seen before the class that was created before it.
    pub(crate) async fn node_class_for_sure(
        &self,
        reference: &NodeClassReference,
    ) -> Result<Arc<NodeClass>, ProviderError> {
        let missing = match self.node_class(reference) {
            Ok(class) => return Ok(class),
            Err(missing) => missing,
        };
        let classes = self.node_classes(reference).ok_or_else(|| missing.clone())?;
        let found = classes.get_opt(&reference.name).await.map_err(|error| {
            let NodeClassReference { kind, name, .. } = reference;
            ProviderError::Other(format!("reading {kind} {name}: {error}"))
        })?;
        let found = found.ok_or(missing)?;
        Ok(Arc::new(NodeClass::from_object(&reference.group, &reference.kind, found)))
    }

    /// The NodeClasses of the reference's kind, if the provider has such.
    pub(crate) fn node_classes(&self, of: &NodeClassReference) -> Option<Api<DynamicObject>> {
        let mut kinds = self.provider.facts().node_classes.iter();
        let kind = kinds.find(|known| (&known.group, &known.kind) == (&of.group, &of.kind))?;
        Some(Api::all_with(self.client.clone(), &kind.resource()))
    }

    /// What the provider has for the pool, as overlays change it.
    pub(crate) async fn instance_types(
        &self,
        pool: &NodePool,
    ) -> Result<InstanceTypes, ProviderError> {
        let class = self.node_class(&pool.spec.template.spec.node_class_ref)?;
        let of_provider = self.provider.instance_types(pool, &class).await?;
        if !self.index.read().has_overlays() {
            return Ok(of_provider);
        }
        let Inputs { instance_types, label_rules, .. } = provisioning::inputs(self, |_| true).await;
        let mut overlaid = self.index.read().overlaid(instance_types, &label_rules);
        let overlaid = overlaid.types.remove(&pool.name_any()).and_then(Result::ok);
        Ok(overlaid.map_or(of_provider, Into::into))
    }

    /// The instance types by which the claim was planned, if an overlay changed them.
    pub(crate) async fn overlaid_types(
        &self,
        claim: &NodeClaim,
    ) -> Result<Option<InstanceTypes>, ProviderError> {
        let [prices, capacity] =
            [annotations::PRICE_OVERLAY_APPLIED, annotations::CAPACITY_OVERLAY_APPLIED];
        let written = claim.annotations();
        if !written.contains_key(prices) && !written.contains_key(capacity) {
            return Ok(None);
        }
        let Some(pool) = claim.node_pool().and_then(|pool| self.managed_pool(pool)) else {
            return Ok(None);
        };
        self.instance_types(&pool).await.map(Some)
    }

    /// The claim of that name, if it is there and it and its node can be read. The index holds only ours.
    pub(crate) fn managed_claim(&self, name: &str) -> Option<Arc<NodeClaim>> {
        let cluster = self.index.read();
        cluster.claims().named(name).filter(|_| cluster.is_readable(name)).cloned()
    }

    /// The pool of that name, if it is there and can be read. The index holds only ours.
    pub(crate) fn managed_pool(&self, name: &str) -> Option<Arc<NodePool>> {
        let cluster = self.index.read();
        let pool = cluster.pools().named(name)?;
        let is_readable = cluster.pools().unreadable(&Key::cluster(name)).is_none();
        is_readable.then(|| Arc::clone(pool))
    }

    /// Deletes a claim for a reason of our own, and counts it and the pods that lose their place.
    pub(crate) async fn disrupt(&self, claim: &NodeClaim, cause: Cause) -> Result<()> {
        let pods = {
            let cluster = self.index.read();
            let node = claim.node_name();
            cluster.pods_on(node).filter(|pod| pods::is_reschedulable(pod)).count()
        };
        self.delete_claim(claim).await?;
        self.metrics.claim_disrupted(cause, claim, pods);
        Ok(())
    }

    /// Writes the status of a claim if it changed, and lets the index know at once.
    pub(crate) async fn write_status(
        &self,
        claim: &NodeClaim,
        changed: NodeClaim,
    ) -> Result<NodeClaim> {
        let what = || format!("updating the status of NodeClaim {}", claim.name_any());
        self.write_claim(claim, changed, Lock::Optimistic, what).await
    }

    /// Asks for the end of a claim. One that is gone already is as good.
    pub(crate) async fn delete_claim(&self, claim: &NodeClaim) -> Result<()> {
        let name = claim.name_any();
        let _turn = self.turns.take(&name).await;
        if !self.index.read().is_readable(&name) {
            return Err(Error::LeftAlone { claim: name });
        }
        self.delete(claim).await
    }
}
