//! Claims without an instance, and instances without a claim.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kerf_api::{
    NodeClaim, ObjectExt,
    conditions::{Conditioned, REGISTERED},
};
use kerf_provider::{Launched, ProviderError};
use kube::{ResourceExt, api::ListParams};
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

/// Terminates instances whose claims are gone: they are paid for and used by nobody.
///
/// A claim keeps its instance by a finalizer, so this takes somebody's hand: a finalizer removed by force, or an etcd
/// restored from an old backup. The claims are listed anew before anything is terminated, because the index may be late.
async fn terminate_orphans(context: &Context, instances: &[Launched]) -> Result<()> {
    let without = |claims: &BTreeSet<String>| -> Vec<&Launched> {
        let running = instances.iter().filter(|instance| !instance.terminating);
        running
            .filter(|one| one.claim_uid.as_ref().is_some_and(|uid| !claims.contains(uid)))
            .collect()
    };
    let indexed = context.index.read().claims().values().filter_map(|claim| claim.uid()).collect();
    if without(&indexed).is_empty() {
        return Ok(());
    }
    // Of a claim that cannot be read, the name can: only that it is there counts here.
    let listed = context.claims().list_metadata(&ListParams::default()).await;
    let listed = listed.tried(|| "listing NodeClaims".into())?;
    let listed = listed.items.iter().filter_map(ResourceExt::uid).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

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
}
