//! A cloud in which things go wrong: any provider, with faults before and after its calls.

mod faults;

pub use faults::{CloudFault, CloudFaults, Offered};

use crate::actors::NEVER_READY;
use async_trait::async_trait;
use faults::{Call, State};
use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodeClass, NodePool, NodeSelectorRequirement, Operator, labels};
use kerf_model::{InstanceType, KnownLabels, Offering, Price};
use kerf_provider::{
    CloudProvider, ControllerContext, InstanceTypes, Launched, ProviderError, ProviderFacts,
    Registration, Registry, UnavailableOffering,
};
use kerf_provider_kwok::{Choice, choose};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::{sync::watch, time::Instant};

/// How the driver of volumes of this cloud calls the zone of a node.
pub const CSI_ZONE: &str = "topology.csi.example.com/zone";

/// A provider whose calls meet [`CloudFaults`]. Without any it is the provider it wraps.
#[derive(Debug)]
pub struct FaultyCloud {
    cloud: Arc<dyn CloudProvider>,
    facts: ProviderFacts,
    faults: CloudFaults,
    /// What was last offered to each pool: equal offers are the same allocation, because schedulers recognise a
    /// catalogue by that.
    offers: Mutex<BTreeMap<String, Offer>>,
}

#[derive(Debug)]
struct Offer {
    of: InstanceTypes,
    without: Vec<Offered>,
    shown: InstanceTypes,
}

impl FaultyCloud {
    pub fn new(cloud: Arc<dyn CloudProvider>, faults: CloudFaults) -> Self {
        let mut facts = cloud.facts().clone();
        facts.label_rules = facts.label_rules.calling(CSI_ZONE, labels::ZONE);
        Self { cloud, facts, faults, offers: Mutex::default() }
    }

    /// The claim, narrowed to the best that the cloud still has. Comes upon what it has not on the way.
    async fn narrowed(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
    ) -> Result<NodeClaim, ProviderError> {
        let exhausted: Vec<Offered> = self.faults.state().exhausted.iter().cloned().collect();
        if exhausted.is_empty() {
            return Ok(claim.clone());
        }
        let all = self.cloud.instance_types(&pool_of(claim), class).await?;
        let left = without(&all, &exhausted);
        let known = self.known_labels();
        // Whatever would have been the choice, one after the other, until one is there.
        let (mut tried, mut unavailable) = (Vec::new(), Vec::new());
        let mut remaining: InstanceTypes = all;
        while let Ok(Choice { instance_type, offering }) = choose(claim, &remaining, &known) {
            let missing =
                exhausted.iter().filter(|offered| offered.matches(instance_type, offering));
            let missing: Vec<Offered> = missing.cloned().collect();
            if missing.is_empty() {
                break;
            }
            unavailable.push(UnavailableOffering {
                instance_type: instance_type.name().to_owned(),
                zone: offering.zone().unwrap_or_default().to_owned(),
                capacity_type: offering.capacity_type().unwrap_or_default().to_owned(),
                code: "Exhausted".to_owned(),
            });
            tried.extend(missing);
            remaining = without(&remaining, &tried);
        }
        self.faults.state().found_out.extend(tried);
        match choose(claim, &left, &known) {
            Ok(Choice { instance_type, offering }) => Ok(pinned(claim, instance_type, offering)),
            Err(ProviderError::InsufficientCapacity { message, .. }) => {
                Err(ProviderError::InsufficientCapacity { unavailable, message })
            }
            Err(error) => Err(error),
        }
    }

    /// The claim, for the dearest type that it could run on.
    async fn overcharged(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
    ) -> Result<NodeClaim, ProviderError> {
        let mut any = claim.clone();
        any.spec.requirements.retain(|one| one.key != labels::INSTANCE_TYPE);
        let types = self.cloud.instance_types(&pool_of(claim), class).await?;
        let known = self.known_labels();
        let mut dearest: Option<(Price, NodeClaim)> = None;
        for one in types.iter() {
            let alone: InstanceTypes = [Arc::clone(one)].into();
            let Ok(Choice { instance_type, offering }) = choose(&any, &alone, &known) else {
                continue;
            };
            if dearest.as_ref().is_none_or(|(price, _)| *price < offering.price) {
                dearest = Some((offering.price, pinned(&any, instance_type, offering)));
            }
        }
        Ok(dearest.map_or_else(|| claim.clone(), |(_, claim)| claim))
    }

    /// An instance that runs, but not so that a node would come of it.
    async fn launch_without_node(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
    ) -> Result<Launched, ProviderError> {
        let types = self.cloud.instance_types(&pool_of(claim), class).await?;
        let Choice { instance_type, offering } = choose(claim, &types, &self.known_labels())?;
        let bought = instance_type.requirements().iter().chain(offering.requirements.iter());
        let bought =
            bought.filter_map(|one| Some((one.key().to_owned(), one.only_value()?.to_owned())));
        let uid = claim.uid().unwrap_or_default();
        let launched = Launched {
            provider_id: format!("nodeless://{uid}"),
            claim_uid: Some(uid),
            labels: bought.collect(),
            capacity: instance_type.capacity().to_api(),
            allocatable: instance_type.allocatable().to_api(),
            ..Launched::default()
        };
        let id = launched.provider_id.clone();
        self.faults.state().nodeless.insert(id, launched.clone());
        Ok(launched)
    }

    fn known_labels(&self) -> KnownLabels {
        KnownLabels::from(&self.facts.label_rules)
    }

    fn readable(&self) -> Result<(), ProviderError> {
        match self.faults.judge(Call::Read) {
            Some(_) => Err(injected("the cloud cannot be read")),
            None => Ok(()),
        }
    }
}

impl FaultyCloud {
    /// Launches as the fault of the moment has it; by these types, if overlays changed them.
    async fn launch(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
        overlaid: Option<InstanceTypes>,
    ) -> Result<Launched, ProviderError> {
        let known = nodeless_of(&self.faults.state(), claim);
        if let Some(known) = known {
            return Ok(known);
        }
        let fault = self.faults.judge(Call::Launch);
        match &fault {
            Some(CloudFault::InsufficientCapacity) => {
                let message = "injected: the cloud has no more of anything".to_owned();
                return Err(ProviderError::insufficient_capacity(message));
            }
            Some(CloudFault::LaunchRefused) => {
                let message = "injected: the launch was refused".to_owned();
                return Err(ProviderError::Create { reason: "LaunchRefused".to_owned(), message });
            }
            Some(CloudFault::Throttled(retry_after)) => {
                let (retry_after, message) = (*retry_after, "injected".to_owned());
                return Err(ProviderError::Throttled { retry_after, message });
            }
            Some(CloudFault::Unauthorized) => {
                let (action, message) = ("RunInstances".to_owned(), "injected".to_owned());
                return Err(ProviderError::Unauthorized { action, message });
            }
            Some(CloudFault::LaunchSlow(delay)) => tokio::time::sleep(*delay).await,
            _ => {}
        }
        let mut claim = match fault {
            Some(CloudFault::LaunchDear) => self.overcharged(claim, class).await?,
            _ => self.narrowed(claim, class).await?,
        };
        match fault {
            Some(CloudFault::NeverRegisters) => {
                return self.launch_without_node(&claim, class).await;
            }
            // Providers hand a claim's annotations on to its node, where the kubelet reads this one.
            Some(CloudFault::NeverReady) => {
                claim.annotations_mut().insert(NEVER_READY.to_owned(), "true".to_owned());
            }
            _ => {}
        }
        let launched = match overlaid {
            Some(types) => self.cloud.create_overlaid(&claim, class, types).await?,
            None => self.cloud.create(&claim, class).await?,
        };
        match fault {
            Some(CloudFault::LaunchAnswerLost) => Err(injected("the answer to the launch is lost")),
            _ => Ok(launched),
        }
    }
}

#[async_trait]
impl CloudProvider for FaultyCloud {
    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }

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
        let id = claim.provider_id().to_owned();
        // Instances that were never written down are known by their claim.
        let key = if id.is_empty() { claim.uid().unwrap_or_default() } else { id.clone() };
        match self.faults.judge(Call::Termination) {
            Some(CloudFault::TerminationRefused) => {
                return Err(injected("the termination was refused"));
            }
            Some(CloudFault::TerminationSlow(delay)) => {
                self.faults.state().going.entry(key.clone()).or_insert(Instant::now() + delay);
            }
            _ => {}
        }
        if self.faults.state().going.get(&key).is_some_and(|gone| *gone > Instant::now()) {
            return Ok(());
        }
        let gone = {
            let mut state = self.faults.state();
            let nodeless = nodeless_of(&state, claim).map(|launched| launched.provider_id);
            nodeless.and_then(|id| state.nodeless.remove(&id)).is_some()
        };
        if gone {
            return Err(ProviderError::NotFound("instance terminated".to_owned()));
        }
        let answer = self.cloud.delete(claim).await;
        let has_vanished = self.faults.state().vanished.contains(&id);
        match answer {
            Ok(()) if has_vanished => Err(ProviderError::NotFound("instance vanished".to_owned())),
            answer => answer,
        }
    }

    async fn reboot(&self, claim: &NodeClaim, operation: &str) -> Result<(), ProviderError> {
        let fault = self.faults.judge(Call::Reboot);
        match fault {
            Some(CloudFault::RebootFailed) => return Err(injected("the reboot was not heard of")),
            Some(CloudFault::RebootRejected) => {
                let message = "injected: the machine cannot be restarted".to_owned();
                return Err(ProviderError::RebootRejected(message));
            }
            Some(CloudFault::RebootUndone) => return Ok(()),
            _ => {}
        }
        self.cloud.reboot(claim, operation).await?;
        match fault {
            Some(CloudFault::RebootAnswerLost) => Err(injected("the answer to the reboot is lost")),
            _ => Ok(()),
        }
    }

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError> {
        self.readable()?;
        let (nodeless, has_vanished) = {
            let state = self.faults.state();
            (state.nodeless.get(provider_id).cloned(), state.vanished.contains(provider_id))
        };
        match nodeless {
            Some(launched) => Ok(self.with_ending(launched)),
            None if has_vanished => {
                Err(ProviderError::NotFound(format!("instance {provider_id} vanished")))
            }
            None => self.cloud.get(provider_id).await.map(|launched| self.with_ending(launched)),
        }
    }

    async fn list(&self) -> Result<Vec<Launched>, ProviderError> {
        self.readable()?;
        let mut instances = self.cloud.list().await?;
        let state = self.faults.state();
        instances.retain(|instance| !state.vanished.contains(&instance.provider_id));
        instances.extend(state.nodeless.values().cloned());
        drop(state);
        Ok(instances.into_iter().map(|instance| self.with_ending(instance)).collect())
    }

    async fn instance_types(
        &self,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<InstanceTypes, ProviderError> {
        if self.faults.judge(Call::Catalogue).is_some() {
            return Err(injected("the instance types cannot be read"));
        }
        let of = self.cloud.instance_types(pool, class).await?;
        let found_out: Vec<Offered> = self.faults.state().found_out.iter().cloned().collect();
        if found_out.is_empty() {
            return Ok(of);
        }
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let name = pool.name_any();
        if let Some(known) = offers.get(&name)
            && Arc::ptr_eq(&known.of, &of)
            && known.without == found_out
        {
            return Ok(Arc::clone(&known.shown));
        }
        let shown = without(&of, &found_out);
        offers.insert(name, Offer { of, without: found_out, shown: Arc::clone(&shown) });
        Ok(shown)
    }

    async fn drifted(
        &self,
        claim: &NodeClaim,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<Option<String>, ProviderError> {
        let provider_id = claim.provider_id();
        let reason = self.faults.state().drifted.get(provider_id).cloned();
        match reason {
            Some(reason) => Ok(Some(reason)),
            None => self.cloud.drifted(claim, pool, class).await,
        }
    }

    async fn start(&self) -> Result<(), ProviderError> {
        match self.faults.judge(Call::Start) {
            Some(_) => Err(injected("the cloud is away")),
            None => self.cloud.start().await,
        }
    }

    async fn lead(&self, context: &dyn ControllerContext) -> Result<(), ProviderError> {
        self.cloud.lead(context).await
    }

    async fn registering(
        &self,
        claim: &NodeClaim,
        node: &Node,
    ) -> Result<Registration, ProviderError> {
        self.cloud.registering(claim, node).await
    }

    fn ready(&self) -> Result<(), String> {
        self.cloud.ready()
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.cloud.changes()
    }

    fn controllers(self: Arc<Self>, registry: &mut Registry) {
        Arc::clone(&self.cloud).controllers(registry);
    }
}

impl FaultyCloud {
    fn with_ending(&self, launched: Launched) -> Launched {
        let state = self.faults.state();
        let uid = launched.claim_uid.as_ref();
        // When its time is over, it goes as soon as somebody asks for that again.
        let goes = |key: &String| state.going.get(key).is_some_and(|gone| *gone > Instant::now());
        let asked = goes(&launched.provider_id) || uid.is_some_and(goes);
        Launched { terminating: launched.terminating || asked, ..launched }
    }
}

fn injected(what: &str) -> ProviderError {
    ProviderError::Other(format!("injected: {what}"))
}

/// The instance without a node that was launched for this claim, or that it names.
fn nodeless_of(state: &State, claim: &NodeClaim) -> Option<Launched> {
    let (uid, status) = (claim.uid(), claim.status.as_ref());
    let mut all = state.nodeless.values();
    let found = all.find(|one| {
        (uid.is_some() && one.claim_uid == uid)
            || status.is_some_and(|status| status.provider_id == one.provider_id)
    });
    found.cloned()
}

/// Providers look at a pool's name at most; a claim does not hold more of its pool.
fn pool_of(claim: &NodeClaim) -> NodePool {
    let mut pool = NodePool::default();
    pool.metadata.name = claim.labels().get(labels::NODE_POOL).cloned();
    pool
}

/// The types with these offerings marked as unavailable.
fn without(types: &InstanceTypes, missing: &[Offered]) -> InstanceTypes {
    let marked = |one: &Arc<InstanceType>| {
        let is_missing =
            |offering: &Offering| missing.iter().any(|offered| offered.matches(one, offering));
        if !one.available_offerings().any(is_missing) {
            return Arc::clone(one);
        }
        let mut offerings = one.offerings().to_vec();
        for offering in &mut offerings {
            offering.available &= !is_missing(offering);
        }
        Arc::new(InstanceType::new(
            one.name(),
            one.requirements().clone(),
            offerings,
            one.capacity().clone(),
            one.overhead().clone(),
        ))
    };
    types.iter().map(marked).collect()
}

/// The claim, with nothing but this offering left to choose.
fn pinned(claim: &NodeClaim, instance_type: &InstanceType, offering: &Offering) -> NodeClaim {
    let mut claim = claim.clone();
    let choice = [
        (labels::INSTANCE_TYPE, Some(instance_type.name())),
        (labels::ZONE, offering.zone()),
        (labels::CAPACITY_TYPE, offering.capacity_type()),
    ];
    for (key, value) in choice {
        if let Some(value) = value {
            claim.spec.requirements.push(NodeSelectorRequirement {
                key: key.to_owned(),
                operator: Operator::In,
                values: vec![value.to_owned()],
                ..NodeSelectorRequirement::default()
            });
        }
    }
    claim
}
