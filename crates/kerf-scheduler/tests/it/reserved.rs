//! Capacity reservations.

use std::sync::Arc;

use crate::build::*;
use kerf_model::labels::{CAPACITY_TYPE, RESERVED, ZONE};
use kerf_model::{InstanceType, Offering, Pool, Price, Requirement, Requirements};
use kerf_scheduler::{Options, Plan, ReservedMode, schedule};

const ID: &str = "test/reservation";

/// The default type with reservations beside what can be bought anyway.
fn with_reservations(name: &str, reservations: &[(&str, u32)]) -> Arc<InstanceType> {
    let base = instance_type(name, "").build();
    let mut offerings = base.offerings().to_vec();
    let mut requirements = base.requirements().clone();
    let ids: Vec<_> = reservations.iter().map(|(id, _)| *id).collect();
    let mut types: Vec<_> = requirements
        .get(CAPACITY_TYPE)
        .and_then(|one| one.listed())
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    types.push(RESERVED.to_owned());
    requirements.replace(Requirement::is_in(CAPACITY_TYPE, types));
    requirements.add(Requirement::is_in(ID, ids));
    for (id, left) in reservations {
        offerings.push(Offering {
            requirements: Requirements::new([
                Requirement::is_in(CAPACITY_TYPE, [RESERVED]),
                Requirement::is_in(ZONE, [ZONES[0]]),
                Requirement::is_in(ID, [*id]),
            ]),
            price: Price::from_f64(0.001),
            available: true,
            reservation_capacity: *left,
            ..Offering::default()
        });
    }
    Arc::new(InstanceType::new(
        name,
        requirements,
        offerings,
        base.capacity().clone(),
        base.overhead().clone(),
    ))
}

fn strict() -> Options {
    Options { reserved: ReservedMode::Strict, ..Options::default() }
}

fn reserving(name: &str, weight: i32, types: Vec<Arc<InstanceType>>) -> Pool {
    Pool { weight, instance_types: types, ..pool(name) }
}

fn alone() -> PodSpec {
    pod("web").labels("app=web").requests("cpu=1").anti_affinity(HOSTNAME, "app=web")
}

fn held(plan: &Plan) -> Vec<String> {
    plan.claims
        .iter()
        .map(|claim| claim.requirements.get(ID).map(ToString::to_string).unwrap_or_default())
        .collect()
}

#[test]
fn a_claim_holds_every_reservation_it_might_use() {
    let types = vec![with_reservations("a", &[("r-1", 1)]), with_reservations("b", &[("r-2", 1)])];
    let snapshot = cluster(vec![reserving("default", 0, types)], replicas(3, &alone()));
    let first = schedule(&snapshot, &strict());
    assert_eq!(held(&first), ["test/reservation In [r-1 r-2]"]);
    assert_eq!(
        first.claims[0].requirements.get(CAPACITY_TYPE).and_then(Requirement::only_value),
        Some(RESERVED)
    );
    assert_eq!(first.claims[0].price, Price::from_f64(0.001));
    assert!(first.failures.iter().all(|failure| failure.refusal.is_deferral()));
    assert_eq!(first.failures.len(), 2);
    let fallback = schedule(&snapshot, &Options::default());
    assert_eq!(fallback.claims.len(), 3);
    assert_eq!(held(&fallback), ["test/reservation In [r-1 r-2]", "", ""]);
}

#[test]
fn reservations_are_shared_by_pools_and_believed_at_their_least() {
    let pools = vec![
        reserving("a", 1, vec![with_reservations("a", &[("r", 2)])]),
        reserving("b", 0, vec![with_reservations("a", &[("r", 1)])]),
    ];
    let plan = schedule(&cluster(pools, replicas(2, &alone())), &strict());
    assert_eq!((plan.claims.len(), plan.failures.len()), (1, 1));
}

#[test]
fn several_instances_of_one_reservation() {
    let pools = vec![reserving("a", 0, vec![with_reservations("a", &[("r", 2)])])];
    let plan = schedule(&cluster(pools, replicas(3, &alone())), &strict());
    assert_eq!((plan.claims.len(), plan.failures.len()), (2, 1));
}

#[test]
fn waiting_pods_do_not_fall_back_to_lighter_pools_or_lose_preferences() {
    let pools = || {
        vec![
            reserving("heavy", 10, vec![with_reservations("a", &[("r", 1)])]),
            reserving("light", 1, vec![instance_type("plain", "").build()]),
        ]
    };
    let plan_pools = schedule(&cluster(pools(), replicas(2, &alone())), &strict());
    assert_eq!((plan_pools.claims.len(), plan_pools.failures.len()), (1, 1));
    let preferring = alone().prefers(1, "karpenter.sh/nodepool In heavy");
    let plan_preferring = schedule(&cluster(pools(), replicas(2, &preferring)), &strict());
    assert_eq!(plan_preferring.failures.len(), 1);
    assert!(plan_preferring.failures[0].refusal.is_deferral());
}

#[test]
fn many_pods_share_a_reserved_node() {
    let pools = vec![reserving("a", 0, vec![with_reservations("a", &[("r", 1)])])];
    let plan = schedule(&cluster(pools, replicas(3, &pod("web").requests("cpu=1"))), &strict());
    assert_eq!((plan.claims.len(), plan.failures.len()), (1, 0));
}

#[test]
fn exhausted_reservations_fall_back_only_without_strictness() {
    let snapshot = cluster(
        vec![reserving("a", 0, vec![with_reservations("a", &[("r", 0)])])],
        replicas(1, &alone()),
    );
    assert_eq!(schedule(&snapshot, &strict()).failures.len(), 1);
    let fallback = schedule(&snapshot, &Options::default());
    assert_eq!(held(&fallback), [""]);
    let off = schedule(&snapshot, &Options { reserved: ReservedMode::Off, ..Options::default() });
    assert_eq!(off.claims.len(), 1);
}
