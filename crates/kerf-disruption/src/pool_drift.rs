//! Whether a node is still what its pool would launch today. What a cloud itself says about drift is not decided here.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{
    NodeClaim, NodePool, annotations,
    conditions::{Conditioned, LAUNCHED},
    hash::HASH_VERSION,
    labels,
};
use kerf_model::{InstanceType, KnownLabels, Requirement, Requirements, Undefined};

/// Instance types come and go in a cloud's lists for reasons of their own; young claims are not judged by them.
const OLD_ENOUGH: SignedDuration = SignedDuration::from_hours(1);

/// Why a claim has drifted from its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolDrift {
    /// The template has changed.
    NodePool,
    /// The labels of the claim do not meet the requirements that the pool has now.
    Requirements,
    /// The provider no longer has the instance type, or not in that zone or capacity type.
    InstanceType,
}

/// A pool's hash of its template, with the version of how it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolHash {
    version: String,
    hash: String,
}

impl PoolDrift {
    /// The reason of the condition `Drifted`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NodePool => "NodePoolDrifted",
            Self::Requirements => "RequirementsDrifted",
            Self::InstanceType => "InstanceTypeNotFound",
        }
    }

    /// Whether the claim has drifted from what the pool asks for; the first reason counts. Only launched claims drift.
    pub fn of(
        claim: &NodeClaim,
        pool: &NodePool,
        hash: Option<&PoolHash>,
        known: &KnownLabels,
    ) -> Option<Self> {
        if !claim.is_true(LAUNCHED) {
            return None;
        }
        if hash.is_some_and(|hash| hash.differs(claim)) {
            return Some(Self::NodePool);
        }
        (!requirements_hold(claim, pool, known)).then_some(Self::Requirements)
    }

    /// Whether the claim has drifted from what the provider has for its pool.
    pub fn of_types(
        claim: &NodeClaim,
        types: &[Arc<InstanceType>],
        known: &KnownLabels,
        now: Timestamp,
    ) -> Option<Self> {
        let judged = is_judged_by_types(claim, now) && claim.is_true(LAUNCHED);
        (judged && !type_is_offered(claim, types, known)).then_some(Self::InstanceType)
    }
}

impl PoolHash {
    /// As it stands on the pool. A cluster's operator writes it there.
    pub fn written(pool: &NodePool) -> Option<Self> {
        Self::read(pool.metadata.annotations.as_ref()?)
    }

    /// Of the pool as it is, whatever was written on it before.
    pub fn of(pool: &NodePool) -> Self {
        Self { version: HASH_VERSION.to_owned(), hash: pool.hash() }
    }

    fn read(annotations: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            version: annotations.get(annotations::NODE_POOL_HASH_VERSION)?.clone(),
            hash: annotations.get(annotations::NODE_POOL_HASH)?.clone(),
        })
    }

    /// Whether the claim was launched from just this.
    pub fn is_of(&self, claim: &NodeClaim) -> bool {
        claim.metadata.annotations.as_ref().and_then(Self::read).as_ref() == Some(self)
    }

    /// Hashes of different versions, or a missing one, say nothing: after an upgrade they are stamped anew.
    fn differs(&self, claim: &NodeClaim) -> bool {
        let of_claim = claim.metadata.annotations.as_ref().and_then(Self::read);
        of_claim.is_some_and(|it| it.version == self.version && it.hash != self.hash)
    }
}

/// Whether the claim is so old that it may be judged by the list of instance types.
pub fn is_judged_by_types(claim: &NodeClaim, now: Timestamp) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref();
    created.is_some_and(|created| now.duration_since(created.0) > OLD_ENOUGH)
}

fn requirements_hold(claim: &NodeClaim, pool: &NodePool, known: &KnownLabels) -> bool {
    let has = Requirements::from_labels(&labels_of(claim));
    let wanted = known.requirements(&pool.spec.template.spec.requirements);
    has.compatible(&wanted, Undefined::Refused).is_ok()
}

/// Whether the provider still has this type with this offering, available or not.
fn type_is_offered(claim: &NodeClaim, types: &[Arc<InstanceType>], known: &KnownLabels) -> bool {
    let carried = labels_of(claim);
    let Some(name) = carried.get(labels::INSTANCE_TYPE) else { return false };
    let Some(instance_type) = types.iter().find(|one| one.name() == name) else { return false };
    let mut wanted = Requirements::from_labels(&carried);
    let capacity_type = carried.get(labels::CAPACITY_TYPE);
    if capacity_type.is_some_and(|it| it == labels::CAPACITY_TYPE_RESERVED) {
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

fn labels_of(claim: &NodeClaim) -> BTreeMap<String, String> {
    claim.metadata.labels.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_api::{NodeSelectorRequirement, Operator};
    use kerf_model::{Offering, Overhead, Resources};

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    fn labelled(pairs: &[(&str, &str)]) -> NodeClaim {
        let mut claim = NodeClaim::default();
        claim.metadata.labels = Some(self::pairs(pairs));
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
        for (of_claim, of_pool, drifted) in cases {
            let (mut claim, mut pool) = (NodeClaim::default(), NodePool::default());
            claim.metadata.annotations = Some(pairs(of_claim));
            pool.metadata.annotations = Some(pairs(of_pool));
            let hash = PoolHash::written(&pool);
            let differs = hash.is_some_and(|hash| hash.differs(&claim));
            assert_eq!(differs, drifted, "{of_claim:?} {of_pool:?}");
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
    fn only_launched_claims_drift_and_only_old_ones_by_their_type() {
        let (pool, known) = (NodePool::default(), KnownLabels::default());
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let stale = PoolHash { hash: "of yesterday".to_owned(), ..PoolHash::of(&pool) };
        let mut claim = NodeClaim::default();
        claim.metadata.annotations = Some(pairs(&[
            (annotations::NODE_POOL_HASH, &stale.hash),
            (annotations::NODE_POOL_HASH_VERSION, HASH_VERSION),
        ]));
        claim.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
        let hash = PoolHash::of(&pool);
        let drift = |claim: &NodeClaim, minute| {
            let by_pool = PoolDrift::of(claim, &pool, Some(&hash), &known);
            (by_pool, PoolDrift::of_types(claim, &[], &known, at(minute)))
        };
        assert_eq!(drift(&claim, 61), (None, None), "it is not launched");
        claim.condition_set(at(0)).set_true(LAUNCHED);
        assert_eq!(drift(&claim, 60), (Some(PoolDrift::NodePool), None));
        assert_eq!(drift(&claim, 61), (Some(PoolDrift::NodePool), Some(PoolDrift::InstanceType)));
        assert_eq!(PoolDrift::of(&claim, &pool, Some(&stale), &known), None);
        assert_eq!(PoolDrift::of(&claim, &pool, None, &known), None);
    }
}
