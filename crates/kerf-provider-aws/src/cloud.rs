//! The provider at work: EC2 instances for NodeClaims.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use kerf_api::NodeClaim;
use kerf_aws_api::{
    annotations, hash,
    labels::{self as aws_labels, label_rules},
    tags,
};
use kerf_aws_client::Aws;
use kerf_aws_model::{
    catalogue::{Catalogue, Region},
    instance::{Instance, ProviderId},
    instance_types::Settings,
    launch_template::Cluster,
    prices::Prices,
};
use kerf_model::KnownLabels;
use kerf_provider::{Launched, ProviderError, Registration};
use kerf_runtime::Clock;
use kube::ResourceExt;

use crate::{
    instances::Instances,
    launch::Attempts,
    metrics::CloudMetrics,
    offers::{OfClass, Offers},
    options::Options,
    templates::Templates,
};

const ASK_FOR_PARTITION_AGAIN: Duration = Duration::from_secs(5);

/// What the provider works with.
pub struct Parts {
    pub aws: Arc<dyn Aws>,
    pub clock: Clock,
    pub options: Options,
    pub cluster: Cluster,
    /// Such as `1.34`.
    pub kubernetes_version: String,
    pub settings: Settings,
    /// What EC2 does not say of its types.
    pub catalogue: Arc<Catalogue>,
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
    options: Options,
    cluster: RwLock<Arc<Cluster>>,
    kubernetes_version: RwLock<Arc<str>>,
    labels: KnownLabels,
    catalogue: Arc<Catalogue>,
    offers: Arc<Offers>,
    templates: Templates,
    instances: Instances,
    attempts: Attempts,
    metrics: CloudMetrics,
}

impl AwsCloud {
    /// Needs a tokio runtime.
    pub fn new(parts: Parts) -> Self {
        let Parts { aws, clock, options, cluster, kubernetes_version, .. } = parts;
        let Parts { settings, catalogue, region, prices, .. } = parts;
        let metrics = CloudMetrics::new();
        let instances = Instances::new(
            Arc::clone(&aws),
            clock.clone(),
            cluster.access.name.clone(),
            settings.reserved_capacity,
            &metrics.batches,
        );
        Self {
            metrics,
            labels: KnownLabels::from(&label_rules()),
            offers: Arc::new(Offers::new(clock.clone(), settings, region, prices)),
            templates: Templates::default(),
            instances,
            attempts: Attempts::default(),
            cluster: RwLock::new(Arc::new(cluster)),
            kubernetes_version: RwLock::new(kubernetes_version.into()),
            aws,
            clock,
            options,
            catalogue,
        }
    }

    pub(crate) fn aws(&self) -> &dyn Aws {
        &*self.aws
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// As last seen: parts of it may be learned after the start.
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As last seen, such as `1.34`.
    pub(crate) fn kubernetes_version(&self) -> Arc<str> {
        Arc::clone(&self.kubernetes_version.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn learn_cluster(&self, cluster: Cluster) {
        *self.cluster.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(cluster);
    }

    pub(crate) fn learn_version(&self, version: &str) {
        let mut known = self.kubernetes_version.write().unwrap_or_else(PoisonError::into_inner);
        *known = version.into();
    }

    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
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

    pub(crate) fn metrics(&self) -> &CloudMetrics {
        &self.metrics
    }

    /// What a claim gets of its instance. Where the class is not known, what the instance itself says. `partition` is the one that
    /// the claim asked for.
    pub(crate) fn describe(
        &self,
        instance: &Instance,
        of_class: Option<&OfClass>,
        partition: Option<u32>,
    ) -> Launched {
        let instance_type = of_class.and_then(|of| of.instance_type(&instance.instance_type));
        let class = of_class.map(|of| &*of.class);
        let group = of_class.and_then(|of| of.placement.as_ref());
        let labels = instance.labels(instance_type.map(|one| &**one), class, group, partition);
        let (capacity, allocatable) =
            instance_type.map(|one| instance.resources(one)).unwrap_or_default();
        let annotations = class.map(|class| {
            let cluster = self.cluster();
            let ca_bundle = cluster.access.ca_bundle.as_deref();
            let profile = class.status.as_ref().and_then(|one| one.instance_profile.clone());
            let own = [
                (annotations::NODE_CLASS_HASH, Some(class.spec.hash(ca_bundle))),
                (annotations::NODE_CLASS_HASH_VERSION, Some(hash::NODE_CLASS.current.to_owned())),
                (annotations::INSTANCE_PROFILE, profile),
                // Its tags came with the launch.
                (annotations::INSTANCE_TAGGED, Some("true".to_owned())),
                (annotations::CLUSTER_NAME_TAGGED, Some("true".to_owned())),
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

    pub(crate) async fn terminate(&self, claim: &NodeClaim) -> Result<(), ProviderError> {
        let instance = if claim.provider_id().is_empty() {
            // A launch that was not written down left no provider id, but it may have left an instance.
            let uid = claim.uid().unwrap_or_default();
            self.attempts.forget(&uid);
            let found = self.instances.find(&uid).await?.living;
            found.ok_or_else(|| gone("of that NodeClaim"))?
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
            let asked = self.instances.terminate(&instance.id).await;
            asked.inspect_err(|_| {
                self.metrics.termination_failed(&instance.zone, instance.zone_id.as_deref());
            })?;
        }
        Ok(())
    }

    pub(crate) async fn get(&self, provider_id: &str) -> Result<Launched, ProviderError> {
        let id = id_of(provider_id)?;
        let instance = self.instances.get(&id).await?.ok_or_else(|| gone(&id))?;
        Ok(self.describe_known(&instance))
    }

    pub(crate) async fn list(&self) -> Result<Vec<Launched>, ProviderError> {
        let instances = self.instances.list().await?;
        Ok(instances.iter().map(|instance| self.describe_known(instance)).collect())
    }

    /// By the class that the instance was launched with, as it was last seen.
    fn describe_known(&self, instance: &Instance) -> Launched {
        let class = instance.tags.get(tags::NODE_CLASS);
        let of_class = class.and_then(|class| self.offers.last(class));
        self.describe(instance, of_class.as_ref(), None)
    }

    /// EC2 says which partition of a group it chose only after the launch.
    pub(crate) async fn registering(
        &self,
        claim: &NodeClaim,
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
}

pub(crate) fn id_of(provider_id: &str) -> Result<String, ProviderError> {
    let parsed = provider_id.parse::<ProviderId>();
    parsed.map(|id| id.instance).map_err(|error| ProviderError::NotFound(error.to_string()))
}

pub(crate) fn gone(id: &str) -> ProviderError {
    ProviderError::NotFound(format!("there is no instance {id}"))
}

impl fmt::Debug for AwsCloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsCloud").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
