//! Whether a node is still what its pool, and the cloud, would launch today.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{
    NodeClaim, NodePool, annotations,
    conditions::{Conditioned, LAUNCHED},
    labels,
};
use kerf_model::{InstanceType, KnownLabels, Requirement, Requirements, Undefined};
use kerf_provider::ProviderError;
use kube::ResourceExt;

use crate::{
    context::Context,
    error::{Error, Result},
};

/// Instance types come and go in a cloud's lists for reasons of their own; young claims are not judged by them.
const OLD_ENOUGH: SignedDuration = SignedDuration::from_hours(1);
/// For how long a type that was found counts as found.
const CHECKED_FOR: SignedDuration = SignedDuration::from_mins(30);

const POOL_DRIFTED: &str = "NodePoolDrifted";
const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";

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
    let known = context.known_labels();
    if hash_differs(claim, pool) {
        return Ok(Verdict::Drifted(POOL_DRIFTED.into()));
    }
    if !requirements_hold(claim, pool, &known) {
        return Ok(Verdict::Drifted(REQUIREMENTS_DRIFTED.into()));
    }
    let Ok(class) = context.node_class(&pool.spec.template.spec.node_class_ref) else {
        return Ok(Verdict::Unknown);
    };
    if checked.is_due(claim, context.now()) {
        let types = context.provider.instance_types(pool, &class).await.map_err(|source| {
            let what = format!("listing the instance types of NodePool {}", pool.name_any());
            Error::Provider { what, source }
        })?;
        if !type_is_offered(claim, &types, &known) {
            return Ok(Verdict::Drifted(INSTANCE_TYPE_NOT_FOUND.into()));
        }
        checked.found(claim, context.now());
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

/// Hashes of different versions, or a missing one, say nothing: after an upgrade they are stamped anew.
fn hash_differs(claim: &NodeClaim, pool: &NodePool) -> bool {
    let get = |annotations: &BTreeMap<String, String>, key| annotations.get(key).cloned();
    let pair = |annotations: &BTreeMap<String, String>| {
        Some((
            get(annotations, annotations::NODE_POOL_HASH_VERSION)?,
            get(annotations, annotations::NODE_POOL_HASH)?,
        ))
    };
    match (pair(claim.annotations()), pair(pool.annotations())) {
        (Some((of_claim, claim_hash)), Some((of_pool, pool_hash))) => {
            of_claim == of_pool && claim_hash != pool_hash
        }
        _ => false,
    }
}

fn requirements_hold(claim: &NodeClaim, pool: &NodePool, known: &KnownLabels) -> bool {
    let has = Requirements::from_labels(claim.labels());
    let wanted = known.requirements(&pool.spec.template.spec.requirements);
    has.compatible(&wanted, Undefined::Refused).is_ok()
}

/// Whether the provider still has this type with this offering, available or not.
fn type_is_offered(claim: &NodeClaim, types: &[Arc<InstanceType>], known: &KnownLabels) -> bool {
    let Some(name) = claim.labels().get(labels::INSTANCE_TYPE) else { return false };
    let Some(instance_type) = types.iter().find(|one| one.name() == name) else { return false };
    let mut wanted = Requirements::from_labels(claim.labels());
    if claim
        .labels()
        .get(labels::CAPACITY_TYPE)
        .is_some_and(|it| it == labels::CAPACITY_TYPE_RESERVED)
    {
        // A reservation that ran out leaves a node that is paid for on demand; that is not drift.
        wanted.replace(Requirement::is_in(
            labels::CAPACITY_TYPE,
            [labels::CAPACITY_TYPE_RESERVED, labels::CAPACITY_TYPE_ON_DEMAND],
        ));
        if let Some(reservation) = &known.reservation_id {
            wanted.remove(reservation);
        }
    }
    instance_type.offerings().iter().any(|offering| offering.serves(&wanted, known))
}

impl CheckedTypes {
    fn is_due(&self, claim: &NodeClaim, now: Timestamp) -> bool {
        let created = claim.metadata.creation_timestamp.as_ref();
        if created.is_none_or(|created| now.duration_since(created.0) <= OLD_ENOUGH) {
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
    use kerf_api::{NodeSelectorRequirement, Operator};
    use kerf_model::{Offering, Overhead, Resources};

    fn annotated<K: kube::Resource + Default>(pairs: &[(&str, &str)]) -> K {
        let mut object = K::default();
        for (key, value) in pairs {
            object.annotations_mut().insert((*key).into(), (*value).into());
        }
        object
    }

    fn labelled(pairs: &[(&str, &str)]) -> NodeClaim {
        let mut claim = NodeClaim::default();
        for (key, value) in pairs {
            claim.labels_mut().insert((*key).into(), (*value).into());
        }
        claim
    }

    #[test]
    fn hashes_of_the_same_version_tell() {
        use annotations::{NODE_POOL_HASH as HASH, NODE_POOL_HASH_VERSION as VERSION};
        type Pairs = &'static [(&'static str, &'static str)];
        let cases: [(Pairs, Pairs, bool); 7] = [
            (&[(HASH, "1"), (VERSION, "v3")], &[(HASH, "1"), (VERSION, "v3")], false),
            (&[(HASH, "1"), (VERSION, "v3")], &[(HASH, "2"), (VERSION, "v3")], true),
            (&[(HASH, "1"), (VERSION, "v2")], &[(HASH, "2"), (VERSION, "v3")], false),
            (&[(HASH, "1")], &[(HASH, "2"), (VERSION, "v3")], false),
            (&[], &[(HASH, "2"), (VERSION, "v3")], false),
            (&[(HASH, "1"), (VERSION, "v3")], &[(VERSION, "v3")], false),
            (&[(HASH, "1"), (VERSION, "v3")], &[(HASH, "2")], false),
        ];
        for (claim, pool, drifted) in cases {
            assert_eq!(
                hash_differs(&annotated(claim), &annotated(pool)),
                drifted,
                "{claim:?} {pool:?}"
            );
        }
    }

    #[test]
    fn labels_must_meet_the_requirements_that_the_pool_has_now() {
        let check = |labels: &[(&str, &str)], key: &str, operator, values: &[&str], holds| {
            let mut pool = NodePool::default();
            pool.spec.template.spec.requirements = vec![NodeSelectorRequirement {
                key: key.into(),
                operator,
                values: values.iter().map(|value| (*value).to_owned()).collect(),
                min_values: None,
            }];
            let got = requirements_hold(&labelled(labels), &pool, &KnownLabels::default());
            assert_eq!(got, holds, "{labels:?} {key} {operator:?} {values:?}");
        };
        let zone = labels::ZONE;
        check(&[(zone, "a")], zone, Operator::In, &["a"], true);
        check(&[(zone, "a")], zone, Operator::In, &["a", "b"], true);
        check(&[(zone, "a")], zone, Operator::In, &["b"], false);
        check(&[(zone, "a")], zone, Operator::NotIn, &["a"], false);
        check(&[(zone, "a")], zone, Operator::Exists, &[], true);
        check(&[(zone, "a")], zone, Operator::DoesNotExist, &[], false);
        check(&[("cpu", "4")], "cpu", Operator::Gt, &["3"], true);
        check(&[("cpu", "4")], "cpu", Operator::Lt, &["4"], false);
        check(&[], "team", Operator::In, &["x"], false);
        check(&[], "team", Operator::DoesNotExist, &[], true);
    }

    #[test]
    fn a_type_or_offering_that_the_cloud_no_longer_has_is_drift() {
        let offering = |capacity_type: &str| Offering {
            requirements: Requirements::new([
                Requirement::is_in(labels::CAPACITY_TYPE, [capacity_type]),
                Requirement::is_in(labels::ZONE, ["a"]),
            ]),
            available: false,
            ..Offering::default()
        };
        let types = [Arc::new(InstanceType::new(
            "small",
            Requirements::default(),
            vec![offering("on-demand")],
            Resources::new(),
            Overhead::default(),
        ))];
        let check = |name: &str, capacity_type: &str, zone: &str, offered| {
            let claim = labelled(&[
                (labels::INSTANCE_TYPE, name),
                (labels::CAPACITY_TYPE, capacity_type),
                (labels::ZONE, zone),
            ]);
            let got = type_is_offered(&claim, &types, &KnownLabels::default());
            assert_eq!(got, offered, "{name} {capacity_type} {zone}");
        };
        check("small", "on-demand", "a", true);
        check("small", "reserved", "a", true);
        check("small", "spot", "a", false);
        check("small", "on-demand", "b", false);
        check("large", "on-demand", "a", false);
        assert!(!type_is_offered(&labelled(&[]), &types, &KnownLabels::default()), "no label");
    }

    #[test]
    fn a_reservation_may_run_out_without_drift() {
        const RESERVATION: &str = "example.com/reservation";
        let mut known = KnownLabels::default();
        known.well_known.insert(RESERVATION.to_owned());
        known.reservation_id = Some(RESERVATION.to_owned());
        let check = |offered: &[(&str, Option<&str>)], expected: bool| {
            let offerings = offered.iter().map(|(capacity_type, reservation)| {
                let mut requirements = Requirements::new([Requirement::is_in(
                    labels::CAPACITY_TYPE,
                    [*capacity_type],
                )]);
                if let Some(reservation) = reservation {
                    requirements.add(Requirement::is_in(RESERVATION, [*reservation]));
                }
                Offering { requirements, ..Offering::default() }
            });
            let types = [Arc::new(InstanceType::new(
                "small",
                Requirements::default(),
                offerings.collect(),
                Resources::new(),
                Overhead::default(),
            ))];
            let claim = labelled(&[
                (labels::INSTANCE_TYPE, "small"),
                (labels::CAPACITY_TYPE, "reserved"),
                (RESERVATION, "r-1"),
            ]);
            assert_eq!(type_is_offered(&claim, &types, &known), expected, "{offered:?}");
        };
        check(&[("reserved", Some("r-1"))], true);
        check(&[("reserved", Some("r-2"))], true);
        check(&[("on-demand", None)], true);
        check(&[("spot", None), ("on-demand", None)], true);
        check(&[("spot", None)], false);
        check(&[], false);
    }

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
