//! Capacity reservations.

use std::sync::Arc;

use crate::build::*;
use kerf_model::labels::{CAPACITY_TYPE, NODE_POOL, RESERVED, ZONE};
use kerf_model::{
    InstanceType, Node, Offering, Pool, Price, Requirement, Requirements, ReservationId,
};
use kerf_scheduler::{Leaving, Options, Plan, Prober, ReservedMode, Stop, schedule};

const ID: &str = "test/reservation";

/// The default type with reservations beside what can be bought anyway.
fn with_reservations(name: &str, reservations: &[(&str, u32)]) -> Arc<InstanceType> {
    let base = instance_type(name, "").build();
    reserved_beside(&base, base.offerings().to_vec(), reservations)
}

/// The default type, only by reservation.
fn only_reservations(name: &str, reservations: &[(&str, u32)]) -> Arc<InstanceType> {
    reserved_beside(&instance_type(name, "").build(), Vec::new(), reservations)
}

fn reserved_beside(
    base: &InstanceType,
    mut offerings: Vec<Offering>,
    reservations: &[(&str, u32)],
) -> Arc<InstanceType> {
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
    if !ids.contains(&"") {
        requirements.add(Requirement::is_in(ID, ids));
    }
    for (id, left) in reservations {
        let mut terms = Requirements::new([
            Requirement::is_in(CAPACITY_TYPE, [RESERVED]),
            Requirement::is_in(ZONE, [ZONES[0]]),
        ]);
        terms.extend((!id.is_empty()).then(|| Requirement::is_in(ID, [*id])));
        offerings.push(Offering {
            requirements: terms,
            price: Price::from_f64(0.001),
            available: true,
            reservation_capacity: *left,
            ..Offering::default()
        });
    }
    Arc::new(InstanceType::new(
        base.name(),
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

/// How many claims hold a reservation, how many do without, and how many pods wait or are refused.
fn outcome(plan: &Plan) -> (usize, usize, usize, usize) {
    let may = |claim: &&kerf_scheduler::PlannedClaim, capacity_type: &str| {
        let wanted = claim.requirements.get(CAPACITY_TYPE);
        wanted.is_none_or(|wanted| wanted.has(capacity_type))
    };
    let reserved = plan.claims.iter().filter(|claim| may(claim, RESERVED)).count();
    let waiting = plan.failures.iter().filter(|failure| failure.refusal.is_deferral()).count();
    (reserved, plan.claims.len() - reserved, waiting, plan.failures.len() - waiting)
}

#[test]
fn a_reservation_is_shared_by_the_claims_of_a_plan() {
    let reserved_only = || alone().selector(&format!("{CAPACITY_TYPE}={RESERVED}"));
    for id in ["r", ""] {
        let beside = |left| vec![reserving("a", 0, vec![with_reservations("a", &[(id, left)])])];
        let only = |left| vec![reserving("a", 0, vec![only_reservations("a", &[(id, left)])])];
        for (what, pools, pod, in_strict, in_fallback) in [
            ("one place, and more to buy", beside(1), alone(), (1, 0, 2, 0), (1, 2, 0, 0)),
            ("one place, reserved wanted", beside(1), reserved_only(), (1, 0, 2, 0), (1, 0, 0, 2)),
            ("one place, nothing else", only(1), alone(), (1, 0, 2, 0), (1, 0, 0, 2)),
            ("two places", beside(2), reserved_only(), (2, 0, 1, 0), (2, 0, 0, 1)),
            // Full is not promised to others: waiting would be in vain where there is something else.
            ("full, and more to buy", beside(0), alone(), (0, 3, 0, 0), (0, 3, 0, 0)),
            ("full, reserved wanted", beside(0), reserved_only(), (0, 0, 3, 0), (0, 0, 0, 3)),
            ("full, nothing else", only(0), alone(), (0, 0, 3, 0), (0, 0, 0, 3)),
        ] {
            let snapshot = cluster(pools, replicas(3, &pod));
            assert_eq!(
                outcome(&schedule(&snapshot, &strict())),
                in_strict,
                "{what}, strict {id:?}"
            );
            let fallback = schedule(&snapshot, &Options::default());
            assert_eq!(outcome(&fallback), in_fallback, "{what}, fallback {id:?}");
        }
    }
}

#[test]
fn a_full_reservation_falls_through_to_lighter_pools() {
    let pools = vec![
        reserving("heavy", 10, vec![only_reservations("a", &[("r", 0)])]),
        reserving("light", 1, vec![instance_type("plain", "").build()]),
    ];
    let plan = schedule(&cluster(pools, replicas(2, &alone())), &Options::default());
    assert_eq!(plan.claims.len(), 2);
    assert!(plan.claims.iter().all(|claim| claim.pool.name == "light"));
}

#[test]
fn a_claim_that_holds_a_reservation_names_the_types_that_it_is_for() {
    let types = || vec![with_reservations("a", &[("", 1)]), with_reservations("b", &[("", 0)])];
    let plan = schedule(
        &cluster(vec![reserving("default", 0, types())], replicas(1, &alone())),
        &strict(),
    );
    let names: Vec<_> = plan.claims[0].instance_types.iter().map(|one| one.name()).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(plan.claims[0].price, Price::from_f64(0.001));
    let zone = plan.claims[0].requirements.get(ZONE).and_then(Requirement::only_value);
    assert_eq!(zone, Some(ZONES[0]));
}

#[test]
fn a_reservation_that_is_full_has_no_price() {
    let full = cluster(
        vec![reserving("a", 0, vec![with_reservations("a", &[("r", 0)])])],
        replicas(1, &alone()),
    );
    for options in [strict(), Options::default()] {
        let plan = schedule(&full, &options);
        assert!(plan.claims[0].price > Price::from_f64(0.1), "{}", plan.claims[0].price);
    }
}

/// Reservations are in the way where no limit would help, and only they.
#[test]
fn a_full_reservation_is_named_where_it_is_what_is_in_the_way() {
    let full = Pool {
        limits: amounts("nodes=0"),
        ..reserving("a", 0, vec![only_reservations("a", &[("r", 0)])])
    };
    let snapshot = cluster(vec![full], vec![alone().build()]);
    assert_eq!(
        refusal(&plan(&snapshot), "web"),
        "pool a: its reserved capacity is full or taken by other pods of this run, and it has no other offering"
    );
    // There is another offering, of one type where the pool wants two.
    let types = vec![with_reservations("a", &[("r", 0)]), only_reservations("b", &[("s", 0)])];
    let flexible = Pool {
        requirements: requirements("node.kubernetes.io/instance-type Exists min 2"),
        ..reserving("a", 0, types)
    };
    let snapshot = cluster(vec![flexible], vec![alone().build()]);
    let refusal = refusal(&plan(&snapshot), "web");
    assert!(refusal.contains("minValues"), "{refusal}");
}

/// A node that holds a slot of reservation `r`, with so many pods that keep apart on it: as many machines are needed for them.
fn holder(pods: usize) -> Node {
    let labels = format!("{NODE_POOL}=default {CAPACITY_TYPE}={RESERVED} {ID}=r");
    let mut holder = node("old", &labels, "cpu=4 memory=8Gi pods=10");
    holder.pool = Some("default".to_owned());
    holder.pods = replicas(pods, &alone().running());
    holder
}

#[test]
fn a_slot_that_becomes_free_is_one_more_slot_and_no_other() {
    let gone = |mut one: Arc<InstanceType>| {
        let mut offerings = one.offerings().to_vec();
        for offering in offerings.iter_mut().filter(|offering| offering.is_reserved()) {
            offering.available = false;
        }
        one = Arc::new(InstanceType::new(
            one.name(),
            one.requirements().clone(),
            offerings,
            one.capacity().clone(),
            one.overhead().clone(),
        ));
        one
    };
    let named = |id: &str| ReservationId::Named(id.to_owned());
    let only = || only_reservations("a", &[("r", 0)]);
    for (what, pods, machine, freed, homeless) in [
        ("full", 1, only(), None, 1),
        ("its own slot", 1, only(), Some(named("r")), 0),
        ("another slot", 1, only(), Some(named("s")), 1),
        ("more pods than slots", 2, only(), Some(named("r")), 1),
        ("beside a slot that is free", 2, only_reservations("a", &[("r", 1)]), Some(named("r")), 0),
        ("gone, not full", 1, gone(only()), Some(named("r")), 1),
        // Strict: nothing is bought beside a reservation that has room.
        ("on-demand beside it", 2, with_reservations("a", &[("r", 0)]), Some(named("r")), 1),
        ("on-demand beside it, and no credit", 2, with_reservations("a", &[("r", 0)]), None, 0),
    ] {
        let pool = reserving("default", 0, vec![machine]);
        let snapshot = with_nodes(cluster(vec![pool], vec![]), vec![holder(pods)]);
        let prober = Prober::new(&snapshot, &strict());
        let every: Vec<usize> = (0..pods).collect();
        let leaving = [Leaving { node: 0, pods: &every, frees: freed.as_ref() }];
        let probe =
            |leaving: &[Leaving<'_>]| prober.probe(leaving, &Stop::default()).losses().count();
        assert_eq!(probe(&leaving), homeless, "{what}");
        // What one question assumes is forgotten before the next.
        let without = [Leaving { node: 0, pods: &every, frees: None }];
        let before = probe(&without);
        assert_eq!(probe(&leaving), homeless, "{what}, again");
        assert_eq!(probe(&without), before, "{what}, and not again");
    }
}
