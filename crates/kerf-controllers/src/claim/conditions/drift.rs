//! Whether a node is still what its pool, and the cloud, would launch today.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{
    NodeClaim, NodePool,
    conditions::{Conditioned, LAUNCHED},
};
use kerf_disruption::pool_drift::{PoolDrift, PoolHash, is_judged_by_types};
use kerf_provider::ProviderError;
use kube::ResourceExt;

use crate::{
    context::Context,
    error::{Error, Result},
};

/// For how long a type that was found counts as found.
const CHECKED_FOR: SignedDuration = SignedDuration::from_mins(30);

/// When the instance type of each claim, by UID, was last found in the provider's list.
#[derive(Debug, Default)]
pub(super) struct CheckedTypes(Mutex<BTreeMap<String, Timestamp>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Drifted(String),
    NotDrifted,
    /// There is no NodeClass to compare with.
    Unknown,
}

/// Why the claim has drifted, if it has; the first reason counts.
pub(super) async fn reason(
    context: &Context,
    checked: &CheckedTypes,
    claim: &NodeClaim,
    pool: &NodePool,
) -> Result<Verdict> {
    if !claim.is_true(LAUNCHED) {
        return Ok(Verdict::NotDrifted);
    }
    let (known, now) = (context.known_labels(), context.now());
    let of_pool = PoolDrift::of(claim, pool, PoolHash::written(pool).as_ref(), &known);
    if let Some(drift) = of_pool {
        return Ok(Verdict::Drifted(drift.reason().into()));
    }
    let Ok(class) = context.node_class(&pool.spec.template.spec.node_class_ref) else {
        return Ok(Verdict::Unknown);
    };
    if checked.is_due(claim, now) {
        let types = context.provider.instance_types(pool, &class).await.map_err(|source| {
            let what = format!("listing the instance types of NodePool {}", pool.name_any());
            Error::Provider { what, source }
        })?;
        if let Some(drift) = PoolDrift::of_types(claim, &types, &known, now) {
            return Ok(Verdict::Drifted(drift.reason().into()));
        }
        checked.found(claim, now);
    }
    match context.provider.drifted(claim, pool, &class).await {
        Ok(reason) => Ok(reason.map_or(Verdict::NotDrifted, Verdict::Drifted)),
        // Garbage collection looks after instances that are gone.
        Err(ProviderError::NotFound(_)) => Ok(Verdict::NotDrifted),
        Err(source) => {
            let what = format!("asking whether NodeClaim {} has drifted", claim.name_any());
            Err(Error::Provider { what, source })
        }
    }
}

impl CheckedTypes {
    fn is_due(&self, claim: &NodeClaim, now: Timestamp) -> bool {
        if !is_judged_by_types(claim, now) {
            return false;
        }
        let checked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = checked.get(claim.uid().as_deref().unwrap_or_default());
        last.is_none_or(|last| now.duration_since(*last) >= CHECKED_FOR)
    }

    fn found(&self, claim: &NodeClaim, now: Timestamp) {
        let mut checked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        checked.retain(|_, last| now.duration_since(*last) < CHECKED_FOR);
        checked.insert(claim.uid().unwrap_or_default(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn types_are_looked_for_after_an_hour_and_then_every_half() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let mut claim = NodeClaim::default();
        claim.metadata.uid = Some("u".into());
        let checked = CheckedTypes::default();
        assert!(!checked.is_due(&claim, at(600)), "nobody knows how old it is");
        claim.metadata.creation_timestamp = Some(Time(at(0)));
        assert!(!checked.is_due(&claim, at(60)));
        assert!(checked.is_due(&claim, at(61)));
        checked.found(&claim, at(61));
        assert!(!checked.is_due(&claim, at(90)));
        assert!(checked.is_due(&claim, at(91)));
        claim.metadata.uid = Some("of another claim".into());
        assert!(checked.is_due(&claim, at(62)));
    }
}
