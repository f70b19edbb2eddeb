//! The provider at work: EC2 instances for NodeClaims.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim, NodeClass, NodePool,
    conditions::{Conditioned, NODE_REGISTRATION_HEALTHY, Status},
};
use kerf_aws_api::{
    GROUP, KIND, PLURAL, VERSION, annotations, hash,
    labels::{self as aws_labels, label_rules},
};
use kerf_aws_client::Aws;
use kerf_aws_model::{
    catalogue::Region,
    drift::{Drift, DriftQuestion, FirstSeen, Rollout, RolloutState},
    images::Images,
    instance::{Instance, ProviderId},
    instance_types::Settings,
    launch_template::Cluster,
    prices::Prices,
};
use kerf_model::KnownLabels;
use kerf_provider::{
    CloudProvider, InstanceTypes, Launched, NodeClassKind, ProviderError, ProviderFacts,
    Registration, Registry, RepairPolicy,
};
use kerf_runtime::Clock;
use kube::ResourceExt;
use tokio::sync::watch;

use crate::{
    controllers,
    instances::Instances,
    launch::Attempts,
    offers::{OfClass, Offers},
    templates::Templates,
};

const ASK_FOR_PARTITION_AGAIN: Duration = Duration::from_secs(5);

/// Condition, status, and for how many minutes.
const REPAIR_POLICIES: [(&str, &str, u64); 7] = [
    ("Ready", "False", 30),
    ("Ready", "Unknown", 30),
    ("AcceleratedHardwareReady", "False", 10),
    ("StorageReady", "False", 30),
    ("NetworkingReady", "False", 30),
    ("KernelReady", "False", 30),
    ("ContainerRuntimeReady", "False", 30),
];

/// What the provider works with.
pub struct Parts {
    pub aws: Arc<dyn Aws>,
    pub clock: Clock,
    pub cluster: Cluster,
    pub settings: Settings,
    pub region: Region,
    pub prices: Prices,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// EC2 in one region, for one cluster.
pub struct AwsCloud {
    aws: Arc<dyn Aws>,
    clock: Clock,
    cluster: Cluster,
    facts: ProviderFacts,
    labels: KnownLabels,
    offers: Arc<Offers>,
    templates: Templates,
    instances: Instances,
    attempts: Attempts,
}

impl AwsCloud {
    /// Needs a tokio runtime.
    pub fn new(parts: Parts) -> Self {
        let Parts { aws, clock, cluster, settings, region, prices } = parts;
        let policy = |(condition, status, minutes): (&'static str, &'static str, u64)| {
            RepairPolicy { condition, status, toleration: Duration::from_mins(minutes) }
        };
        let kind = NodeClassKind {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            kind: KIND.to_owned(),
            plural: PLURAL.to_owned(),
        };
        let rules = label_rules();
        let instances = Instances::new(
            Arc::clone(&aws),
            clock.clone(),
            cluster.access.name.clone(),
            settings.reserved_capacity,
        );
        Self {
            labels: KnownLabels::from(&rules),
            facts: ProviderFacts {
                name: "aws",
                node_classes: vec![kind],
                label_rules: rules,
                repair_policies: REPAIR_POLICIES.map(policy).to_vec(),
                nodes_register_with_taints: true,
            },
            offers: Arc::new(Offers::new(clock.clone(), settings, region, prices)),
            templates: Templates::default(),
            instances,
            attempts: Attempts::default(),
            aws,
            clock,
            cluster,
        }
    }

    pub(crate) fn aws(&self) -> &dyn Aws {
        &*self.aws
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn labels(&self) -> &KnownLabels {
        &self.labels
    }

    pub(crate) fn offers(&self) -> &Arc<Offers> {
        &self.offers
    }

    pub(crate) fn templates(&self) -> &Templates {
        &self.templates
    }

    pub(crate) fn instances(&self) -> &Instances {
        &self.instances
    }

    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// What a claim gets of its instance. Where the class is not at hand, what the instance itself says.
    pub(crate) fn describe(&self, instance: &Instance, of_class: Option<&OfClass>) -> Launched {
        let instance_type = of_class.and_then(|of| of.instance_type(&instance.instance_type));
        let class = of_class.map(|of| &*of.class);
        let group = of_class.and_then(|of| of.placement.as_ref());
        let labels = instance.labels(instance_type.map(|one| &**one), class, group, None);
        let (capacity, allocatable) =
            instance_type.map(|one| instance.resources(one)).unwrap_or_default();
        let annotations = class.map(|class| {
            let ca_bundle = self.cluster.access.ca_bundle.as_deref();
            let profile = class.status.as_ref().and_then(|one| one.instance_profile.clone());
            let own = [
                (annotations::NODE_CLASS_HASH, Some(class.spec.hash(ca_bundle))),
                (annotations::NODE_CLASS_HASH_VERSION, Some(hash::NODE_CLASS.current.to_owned())),
                (annotations::INSTANCE_PROFILE, profile),
            ];
            let own = own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
            own.collect::<BTreeMap<_, _>>()
        });
        Launched {
            provider_id: instance.provider_id().to_string(),
            image_id: instance.image.clone(),
            claim_uid: instance.claim_uid().map(str::to_owned),
            node_name: None,
            launched_at: instance.launched_at,
            labels,
            annotations: annotations.unwrap_or_default(),
            capacity: capacity.to_api(),
            allocatable: allocatable.to_api(),
            terminating: instance.is_terminating(),
        }
    }
}

fn id_of(provider_id: &str) -> Result<String, ProviderError> {
    let parsed = provider_id.parse::<ProviderId>();
    parsed.map(|id| id.instance).map_err(|error| ProviderError::NotFound(error.to_string()))
}

fn gone(id: &str) -> ProviderError {
    ProviderError::NotFound(format!("there is no instance {id}"))
}

#[async_trait]
impl CloudProvider for AwsCloud {
    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        class: &NodeClass,
    ) -> Result<Launched, ProviderError> {
        self.launch(claim, class).await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), ProviderError> {
        let instance = if claim.provider_id().is_empty() {
            // A launch that was not written down left no provider id, but it may have left an instance.
            let uid = claim.uid().unwrap_or_default();
            self.attempts.forget(&uid);
            self.instances.find(&uid).await?.ok_or_else(|| gone("of that NodeClaim"))?
        } else {
            let id = id_of(claim.provider_id())?;
            let known = self.instances.known(&id);
            let Some(instance) = self.instances.get(&id).await? else {
                if let Some(reservation) = known.and_then(|known| known.reservation) {
                    self.offers.change(|market, _| market.reservations.ended(&reservation.id));
                }
                return Err(gone(&id));
            };
            instance
        };
        if !instance.is_terminating() {
            // One that EC2 does not know yet is asked for again.
            self.instances.terminate(&instance.id).await?;
        }
        Ok(())
    }

    async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError> {
        let id = id_of(provider_id)?;
        let instance = self.instances.get(&id).await?.ok_or_else(|| gone(&id))?;
        Ok(self.describe(&instance, None))
    }

    async fn list(&self) -> Result<Vec<Launched>, ProviderError> {
        let instances = self.instances.list().await?;
        Ok(instances.iter().map(|instance| self.describe(instance, None)).collect())
    }

    async fn instance_types(
        &self,
        _pool: &NodePool,
        class: &NodeClass,
    ) -> Result<InstanceTypes, ProviderError> {
        Ok(self.offers.of(class)?.types)
    }

    async fn drifted(
        &self,
        claim: &NodeClaim,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<Option<String>, ProviderError> {
        let id = id_of(claim.provider_id())?;
        let mut instance = match self.instances.known(&id) {
            Some(instance) => instance,
            None => self.instances.get(&id).await?.ok_or_else(|| gone(&id))?,
        };
        let of_class = self.offers.of(class)?;
        // The core finds out by itself that a type is no longer sold.
        let Some(instance_type) = of_class.instance_type(&instance.instance_type) else {
            return Ok(None);
        };
        let written = of_class.class.metadata.annotations.as_ref();
        let rollout = RolloutState {
            settings: Rollout::read(written)
                .map_err(|error| ProviderError::NodeClassNotReady(error.to_string()))?,
            published: &BTreeMap::new(),
            first_seen: &FirstSeen::read(written),
            registration_healthy: pool.condition_status(NODE_REGISTRATION_HEALTHY) != Status::False,
        };
        let amis = of_class.class.status.as_ref().map(|status| status.amis.as_slice());
        let images = Images::new(amis.unwrap_or_default(), &self.labels);
        let ask = |instance: &Instance| {
            let question = DriftQuestion {
                claim,
                class: &of_class.class,
                images: &images,
                instance_type,
                instance,
                placement_group: of_class.placement.as_ref().map(|group| group.id.as_str()),
                rollout: &rollout,
                now: self.clock.now(),
            };
            let verdict = question.answer();
            verdict.map_err(|error| ProviderError::Other(error.to_string()))
        };
        let mut verdict = ask(&instance)?;
        // EC2 moves instances out of reservations that end.
        if matches!(verdict.drift, Some(Drift::CapacityReservation { .. })) {
            instance = self.instances.get(&id).await?.ok_or_else(|| gone(&id))?;
            verdict = ask(&instance)?;
        }
        Ok(verdict.drift.map(|drift| drift.reason().to_owned()))
    }

    /// EC2 says which partition of a group it chose only after the launch.
    async fn registering(
        &self,
        claim: &NodeClaim,
        _node: &Node,
    ) -> Result<Registration, ProviderError> {
        let label = claim.labels().get(aws_labels::PLACEMENT_GROUP_PARTITION);
        if label.is_none_or(|partition| !partition.is_empty()) {
            return Ok(Registration::default());
        }
        let id = id_of(claim.provider_id())?;
        let instance = self.instances.get(&id).await?.ok_or_else(|| gone(&id))?;
        Ok(match instance.partition {
            Some(partition) => {
                let label = aws_labels::PLACEMENT_GROUP_PARTITION.to_owned();
                Registration::Go { labels: BTreeMap::from([(label, partition.to_string())]) }
            }
            None => Registration::Wait {
                because: "EC2 has not said yet in which partition the instance is".to_owned(),
                look_again: ASK_FOR_PARTITION_AGAIN,
            },
        })
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.offers.changes())
    }

    fn controllers(self: Arc<Self>, registry: &mut Registry) {
        controllers::register(&self, registry);
    }
}

impl fmt::Debug for AwsCloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsCloud").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
