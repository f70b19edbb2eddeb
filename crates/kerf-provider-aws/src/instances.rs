//! The instances of the cluster, as EC2 last described them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use kerf_aws_client::{Aws, AwsError, all_pages};
use kerf_aws_model::instance::{Instance, find_request, get_request, list_request};
use kerf_aws_wire::ec2::{DescribeInstancesRequest, TerminateInstancesRequest};
use kerf_provider::ProviderError;
use kerf_runtime::Clock;

use crate::{
    batch::{Answers, Batcher},
    errors::failed,
    metrics::BatchMetrics,
};

/// EC2 takes so many ids in a call.
const IDS_OF_A_CALL: usize = 500;
/// And so many values for one filter.
const VALUES_OF_A_FILTER: usize = 200;
/// An instance that was launched may be unknown to other calls for a while.
const MAY_BE_UNKNOWN: SignedDuration = SignedDuration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Instances {
    reader: Reader,
    clock: Clock,
    cluster: String,
    known: Mutex<BTreeMap<String, Instance>>,
    by_id: Batcher<Instance>,
    by_claim: Batcher<Vec<Instance>>,
    terminations: Batcher<()>,
}

/// The instances of one claim.
pub(crate) struct OfClaim {
    pub(crate) living: Option<Instance>,
    /// Ids of those that shut down or are gone.
    pub(crate) ended: BTreeSet<String>,
}

#[derive(Clone)]
struct Reader {
    aws: Arc<dyn Aws>,
    reserved_capacity: bool,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Instances {
    /// Needs a tokio runtime.
    pub(crate) fn new(
        aws: Arc<dyn Aws>,
        clock: Clock,
        cluster: String,
        reserved_capacity: bool,
        metrics: &BatchMetrics,
    ) -> Self {
        let reader = Reader { aws, reserved_capacity };
        let (of_ids, of_claims, of_terminations) = (reader.clone(), reader.clone(), reader.clone());
        let by_id = move |ids| {
            let reader = of_ids.clone();
            async move { reader.by_id(ids).await }
        };
        let by_claim = move |uids| {
            let reader = of_claims.clone();
            async move { reader.by_claim(uids).await }
        };
        let terminate = move |ids| {
            let reader = of_terminations.clone();
            async move { reader.terminate(ids).await }
        };
        Self {
            reader,
            clock,
            cluster,
            known: Mutex::default(),
            by_id: Batcher::new("describe_instances", IDS_OF_A_CALL, metrics, by_id),
            by_claim: Batcher::new("find_instances", VALUES_OF_A_FILTER, metrics, by_claim),
            terminations: Batcher::new("terminate_instances", IDS_OF_A_CALL, metrics, terminate),
        }
    }

    /// As EC2 last described it.
    pub(crate) fn known(&self, id: &str) -> Option<Instance> {
        self.lock().get(id).cloned()
    }

    /// As EC2 describes it now. `None`: it is gone.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<Instance>, ProviderError> {
        let described = self.by_id.ask(id).await?;
        let now = self.clock.now();
        let mut known = self.lock();
        if let Some(instance) = described {
            known.insert(id.to_owned(), instance.clone());
            return Ok(Some(instance));
        }
        let young = known.get(id).filter(|one| is_young(one, now)).cloned();
        if young.is_none() {
            known.remove(id);
        }
        Ok(young)
    }

    /// What was launched for the claim, whether the launch was answered or not.
    pub(crate) async fn find(&self, claim_uid: &str) -> Result<OfClaim, ProviderError> {
        let known = {
            let known = self.lock();
            known.values().find(|one| one.claim_uid() == Some(claim_uid)).cloned()
        };
        let found = match known {
            Some(known) => self.get(&known.id).await?.into_iter().collect(),
            None => self.by_claim.ask(claim_uid).await?.unwrap_or_default(),
        };
        let (ended, living): (Vec<_>, Vec<_>) =
            found.into_iter().partition(Instance::is_terminating);
        let ended = ended.into_iter().map(|one| one.id).collect();
        Ok(OfClaim { living: living.into_iter().next(), ended })
    }

    pub(crate) async fn list(&self) -> Result<Vec<Instance>, ProviderError> {
        let listed = self.reader.describe(list_request(&self.cluster)).await;
        let listed = listed.map_err(|error| failed(&error))?;
        let mut all: BTreeMap<_, _> =
            listed.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
        let now = self.clock.now();
        let mut known = self.lock();
        for (id, instance) in known.iter().filter(|(_, one)| is_young(one, now)) {
            all.entry(id.clone()).or_insert_with(|| instance.clone());
        }
        known.clone_from(&all);
        Ok(all.into_values().collect())
    }

    pub(crate) fn launched(&self, instance: Instance) {
        self.lock().insert(instance.id.clone(), instance);
    }

    /// Whether EC2 knew the instance.
    pub(crate) async fn terminate(&self, id: &str) -> Result<bool, ProviderError> {
        Ok(self.terminations.ask(id).await?.is_some())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instance>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_young(instance: &Instance, now: Timestamp) -> bool {
    let age = instance.launched_at.map(|launched_at| now.duration_since(launched_at));
    age.is_some_and(|age| age < MAY_BE_UNKNOWN)
}

impl Reader {
    async fn describe(&self, request: DescribeInstancesRequest) -> Result<Vec<Instance>, AwsError> {
        let reservations = all_pages(&*self.aws, request).await?;
        let described = reservations.iter().flat_map(|reservation| &reservation.instances);
        Ok(described.filter_map(|one| Instance::read(one, self.reserved_capacity)).collect())
    }

    /// EC2 refuses a list of ids as a whole if one of them is unknown. Halving it finds that one with few calls.
    async fn by_id(&self, ids: Vec<String>) -> Answers<Instance> {
        let mut known = BTreeMap::new();
        let mut rest = vec![ids];
        while let Some(ids) = rest.pop() {
            match self.describe(get_request(ids.clone())).await {
                Ok(described) => {
                    known.extend(described.into_iter().map(|one| (one.id.clone(), one)));
                }
                Err(error) if error.is_not_found() => rest.extend(halves(ids)),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(known)
    }

    async fn by_claim(&self, uids: Vec<String>) -> Answers<Vec<Instance>> {
        let found = self.describe(find_request(uids)).await.map_err(|error| failed(&error))?;
        let mut by_claim: BTreeMap<String, Vec<Instance>> = BTreeMap::new();
        for instance in found {
            if let Some(uid) = instance.claim_uid() {
                by_claim.entry(uid.to_owned()).or_default().push(instance);
            }
        }
        Ok(by_claim)
    }

    async fn terminate(&self, ids: Vec<String>) -> Answers<()> {
        #[expect(
            clippy::zero_sized_map_values,
            reason = "a batch answers by key, and here that is all"
        )]
        let mut terminated = BTreeMap::new();
        let mut rest = vec![ids];
        while let Some(ids) = rest.pop() {
            let request =
                TerminateInstancesRequest { instance_ids: ids.clone(), ..Default::default() };
            match self.aws.terminate_instances(&request).await {
                Ok(_) => terminated.extend(ids.into_iter().map(|id| (id, ()))),
                Err(error) if error.is_not_found() => rest.extend(halves(ids)),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(terminated)
    }
}

/// None of a single one.
fn halves(mut ids: Vec<String>) -> Vec<Vec<String>> {
    if ids.len() < 2 {
        return Vec::new();
    }
    let second = ids.split_off(ids.len() / 2);
    vec![ids, second]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_halved_down_to_one() {
        let ids = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        assert_eq!(halves(ids("abc")), [ids("a"), ids("bc")]);
        assert_eq!(halves(ids("ab")), [ids("a"), ids("b")]);
        assert!(halves(ids("a")).is_empty() && halves(Vec::new()).is_empty());
    }
}
