//! Nodes that have reached `expireAfter` are deleted.
//!
//! Forceful on purpose: `expireAfter` is how operators promise that no node is older than a patch cycle, so budgets and
//! annotations do not hold it back. The drain that follows still honours them for as long as its own deadline allows.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kerf_api::{NodeClaim, ObjectExt};
use kerf_cluster::{Change, Cluster};
use kerf_runtime::{Outcome, Queue, Workers};
use kube::ResourceExt;
use tracing::info;

use crate::{context::Context, controller::Reconciler, error::Result, metrics::Cause};

pub(crate) struct Expiration;

impl Reconciler for Expiration {
    const WORKERS: Workers = Workers::new("nodeclaim.expiration", 1);

    fn concerns(&self, change: &Change, _: &Cluster, queue: &Queue<String>) {
        if let Change::NodeClaim(delta) = change {
            queue.add(delta.key.name.clone());
        }
    }

    async fn reconcile(&self, context: &Context, name: &str) -> Result<Outcome> {
        let Some(claim) = context.managed_claim(name) else { return Ok(Outcome::Done) };
        if claim.is_deleting() {
            return Ok(Outcome::Done);
        }
        let Some(expiry) = expiry(&claim) else { return Ok(Outcome::Done) };
        match Duration::try_from(expiry.duration_since(context.now())) {
            Ok(left) if !left.is_zero() => Ok(Outcome::After(left)),
            _ => {
                info!(claim = claim.name_any(), "deleting expired nodeclaim");
                context.disrupt(&claim, Cause::Expired).await?;
                Ok(Outcome::Done)
            }
        }
    }
}

fn expiry(claim: &NodeClaim) -> Option<Timestamp> {
    let created = claim.metadata.creation_timestamp.as_ref()?.0;
    let age = SignedDuration::try_from(claim.spec.expire_after.as_duration()?).ok()?;
    created.checked_add(age).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kerf_api::DurationOrNever;

    #[test]
    fn a_claim_expires_by_its_own_age_or_never() {
        let mut claim = NodeClaim::default();
        claim.metadata.creation_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
        let mut check = |after: &str, expected: Option<&str>| {
            claim.spec.expire_after = after.parse::<DurationOrNever>().unwrap();
            assert_eq!(expiry(&claim), expected.map(|time| time.parse().unwrap()), "{after}");
        };
        check("720h", Some("2026-01-31T00:00:00Z"));
        check("90s", Some("2026-01-01T00:01:30Z"));
        check("0s", Some("2026-01-01T00:00:00Z"));
        check("Never", None);
    }
}
