//! Whether an instance is still what would be launched today.

use kerf_api::{
    NodeClaim, NodeClass, NodePool,
    conditions::{Conditioned, NODE_REGISTRATION_HEALTHY, Status},
};
use kerf_aws_model::{
    drift::{Drift, DriftQuestion, FirstSeen, Rollout, RolloutState},
    images::Images,
    instance::Instance,
};
use kerf_provider::ProviderError;

use crate::cloud::{AwsCloud, gone, id_of};

impl AwsCloud {
    pub(crate) async fn drifted(
        &self,
        claim: &NodeClaim,
        pool: &NodePool,
        class: &NodeClass,
    ) -> Result<Option<String>, ProviderError> {
        let id = id_of(claim.provider_id())?;
        let mut instance = match self.instances().known(&id) {
            Some(instance) => instance,
            None => self.instances().get(&id).await?.ok_or_else(|| gone(&id))?,
        };
        let of_class = self.offers().of(class)?;
        // The core finds out by itself that a type is no longer sold.
        let Some(instance_type) = of_class.instance_type(&instance.instance_type) else {
            return Ok(None);
        };
        let published = self.offers().note(|market, _| market.published.clone());
        let written = of_class.class.metadata.annotations.as_ref();
        let rollout = RolloutState {
            settings: Rollout::read(written)
                .map_err(|error| ProviderError::NodeClassNotReady(error.to_string()))?,
            published: &published,
            first_seen: &FirstSeen::read(written),
            registration_healthy: pool.condition_status(NODE_REGISTRATION_HEALTHY) != Status::False,
        };
        let amis = of_class.class.status.as_ref().map(|status| status.amis.as_slice());
        let images = Images::new(amis.unwrap_or_default(), self.labels());
        let ask = |instance: &Instance| {
            let question = DriftQuestion {
                claim,
                class: &of_class.class,
                images: &images,
                instance_type,
                instance,
                placement_group: of_class.placement.as_ref().map(|group| group.id.as_str()),
                rollout: &rollout,
                now: self.clock().now(),
            };
            let verdict = question.answer();
            verdict.map_err(|error| ProviderError::Other(error.to_string()))
        };
        let mut verdict = ask(&instance)?;
        // EC2 moves instances out of reservations that end.
        if matches!(verdict.drift, Some(Drift::CapacityReservation { .. })) {
            instance = self.instances().get(&id).await?.ok_or_else(|| gone(&id))?;
            verdict = ask(&instance)?;
        }
        Ok(verdict.drift.map(|drift| drift.reason().to_owned()))
    }
}
