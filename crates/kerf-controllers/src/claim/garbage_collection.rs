//! Claims without an instance, and instances without a claim.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{
    NodeClaim, ObjectExt,
    conditions::{Conditioned, REGISTERED},
};
use kerf_provider::{Launched, ProviderError};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    context::Context,
    controller::periodically,
    definitions::Step,
    error::{Error, Result, Tried},
    metrics::Cause,
};

pub(crate) const CONTROLLER: &str = "nodeclaim.garbagecollection";
const EVERY: Duration = Duration::from_mins(2);

pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    periodically(CONTROLLER, EVERY, &context, stop, || collect(&context)).await;
}

async fn collect(context: &Context) -> Result<()> {
    if !context.definitions.stay(Step::First).await? {
        return Ok(());
    }
    context.index.listed().await;
    // Claims are read before instances: one that is launched in between is then in the list, not missing from it.
    let before: Vec<Arc<NodeClaim>> = context.index.read().claims().values().cloned().collect();
    let instances = context.provider.list().await.map_err(|source| Error::Provider {
        what: "listing the instances of the provider".into(),
        source,
    })?;
    let running: BTreeSet<&str> = instances
        .iter()
        .filter(|instance| !instance.terminating)
        .map(|instance| instance.provider_id.as_str())
        .collect();
    // One that cannot be taken away does not keep the others.
    let mut result = Ok(());
    for claim in &before {
        if !context.index.read().is_readable(&claim.name_any()) {
            continue;
        }
        if is_without_instance(claim, &running) && !node_is_ready(context, claim) {
            warn!(claim = claim.name_any(), "deleting nodeclaim, its instance is gone");
            result = result.and(context.disrupt(claim, Cause::GarbageCollected).await);
        }
    }
    result.and(terminate_orphans(context, &instances).await)
}

/// Unregistered claims are left alone: they time out by themselves, and an instance may be slow to show in the list.
fn is_without_instance(claim: &NodeClaim, running: &BTreeSet<&str>) -> bool {
    let provider_id = claim.provider_id();
    !claim.is_deleting() && claim.is_true(REGISTERED) && !running.contains(provider_id)
}

/// A kubelet that reports is better evidence than a list.
fn node_is_ready(context: &Context, claim: &NodeClaim) -> bool {
    let provider_id = claim.provider_id();
    let cluster = context.index.read();
    cluster.nodes_of(provider_id).any(|node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
    })
}

/// Terminates instances whose claims are gone: they cost money and are not used.
///
/// A claim keeps its instance by a finalizer, so this happens only after an intervention: a finalizer removed by force, or an etcd
/// restored from an old backup. The claims are listed anew before anything is terminated, because the index may be late.
async fn terminate_orphans(context: &Context, instances: &[Launched]) -> Result<()> {
    let now = context.now();
    let without = |claims: &Claims| -> Vec<&Launched> {
        instances.iter().filter(|instance| claims.lack(instance, now)).collect()
    };
    let indexed = {
        let cluster = context.index.read();
        let claims = cluster.claims().values();
        claims.map(|claim| (claim.uid(), claim.provider_id().to_owned())).collect()
    };
    if without(&indexed).is_empty() {
        return Ok(());
    }
    let listed = list_claims(context).await?;
    let mut result = Ok(());
    for orphan in without(&listed) {
        let provider_id = &orphan.provider_id;
        warn!(provider_id, "terminating instance, its nodeclaim is gone");
        let mut claim = NodeClaim::default();
        claim.status.get_or_insert_default().provider_id.clone_from(provider_id);
        match context.provider.delete(&claim).await {
            Ok(()) | Err(ProviderError::NotFound(_)) => {}
            Err(source) => {
                let what = format!("terminating the instance {provider_id}");
                result = result.and(Err(Error::Provider { what, source }));
            }
        }
    }
    result
}

/// Of a claim that cannot be read, these two can: that it is there and which instance it names is all that counts here.
async fn list_claims(context: &Context) -> Result<Claims> {
    let kind = ApiResource::erase::<NodeClaim>(&());
    let claims: Api<DynamicObject> = Api::all_with(context.client.clone(), &kind);
    let listed = claims.list(&ListParams::default()).await;
    let listed = listed.tried(|| "listing NodeClaims".into())?;
    let provider_id = |claim: &DynamicObject| {
        let text = claim.data.pointer("/status/providerID").and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    Ok(listed.items.iter().map(|claim| (claim.uid(), provider_id(claim))).collect())
}

/// Which claims there are, and which instances they name.
#[derive(Default)]
struct Claims {
    uids: BTreeSet<String>,
    provider_ids: BTreeSet<String>,
}

impl FromIterator<(Option<String>, String)> for Claims {
    fn from_iter<I: IntoIterator<Item = (Option<String>, String)>>(claims: I) -> Self {
        let mut all = Self::default();
        for (uid, provider_id) in claims {
            all.uids.extend(uid);
            all.provider_ids.insert(provider_id);
        }
        all
    }
}

/// An instance that does not say for which claim it was launched may be one that its claim does not name yet. Karpenter, whose
/// instances are like that, gives them this time.
const UNNAMED: SignedDuration = SignedDuration::from_secs(30);

impl Claims {
    /// Whether the instance has no claim among these. One of which neither its claim nor its age is known is left alone.
    fn lack(&self, instance: &Launched, now: Timestamp) -> bool {
        let is_old = |launched_at| now.duration_since(launched_at) >= UNNAMED;
        !instance.terminating
            && match &instance.claim_uid {
                Some(uid) => !self.uids.contains(uid),
                None => {
                    !self.provider_ids.contains(&instance.provider_id)
                        && instance.launched_at.is_some_and(is_old)
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn only_registered_claims_that_stay_can_have_lost_their_instance() {
        let running = BTreeSet::from(["p"]);
        let cases = [
            ("p", true, false, false),
            ("q", true, false, true),
            ("q", false, false, false),
            ("q", true, true, false),
        ];
        for (provider_id, registered, deleting, expected) in cases {
            let mut claim = NodeClaim::default();
            claim.status.get_or_insert_default().provider_id = provider_id.into();
            if registered {
                claim.condition_set(Timestamp::UNIX_EPOCH).set_true(REGISTERED);
            }
            claim.metadata.deletion_timestamp = deleting.then_some(Time(Timestamp::UNIX_EPOCH));
            let got = is_without_instance(&claim, &running);
            assert_eq!(got, expected, "{provider_id} {registered} {deleting}");
        }
    }

    #[test]
    fn an_instance_is_without_a_claim_by_what_it_says_of_its_claim() {
        let claims: Claims = [(Some("u".to_owned()), "p".to_owned())].into_iter().collect();
        let start = Timestamp::UNIX_EPOCH;
        let (young, old) = (start + SignedDuration::from_secs(29), start + UNNAMED);
        // By its claim's UID, its own id, when it was launched, whether it goes; and what holds then and 30 s later.
        for (uid, id, launched_at, terminating, expected) in [
            (Some("u"), "p", None, false, [false, false]),
            (Some("u"), "q", None, false, [false, false]),
            (Some("v"), "q", None, false, [true, true]),
            (Some("v"), "q", None, true, [false, false]),
            (None, "p", Some(start), false, [false, false]),
            (None, "q", Some(start), false, [false, true]),
            (None, "q", Some(start), true, [false, false]),
            (None, "q", None, false, [false, false]),
        ] {
            let instance = Launched {
                provider_id: id.to_owned(),
                claim_uid: uid.map(str::to_owned),
                launched_at,
                terminating,
                ..Launched::default()
            };
            let got = [young, old].map(|now| claims.lack(&instance, now));
            assert_eq!(got, expected, "{uid:?} {id} {launched_at:?} {terminating}");
        }
    }
}
