//! Nodes that go before their replacements come, and those that must not.

use std::sync::Arc;
use std::time::Duration;

use kerf_disruption::terminate_first::{Because, Drain};
use kerf_disruption::{Command, Decision, Memory, Method, Pass, Settings, pass};
use kerf_model::disruption::StaticPool;
use kerf_model::labels::{CAPACITY_TYPE, HOSTNAME, ON_DEMAND, RESERVED, ZONE};
use kerf_model::snapshot::Idle;
use kerf_model::{
    InstanceType, NodeCount, Offering, Pool, Price, Requirement, Requirements, Snapshot,
};

use crate::build::{ZONES, many_types, pod};
use crate::drift::drifted;
use crate::places::{Place, budget, place, pool, snapshot, why};

const ID: &str = "test/reservation";

/// The type of a `place` with two cores, sold as it says: `r=0` is a reservation without room, `r=0!` one that is gone as well,
/// `on-demand` what can be bought.
fn sold(offers: &str) -> Arc<InstanceType> {
    let base = &many_types(16)[1];
    let offering = |offer: &str| {
        let (id, left) = offer.split_once('=').unwrap_or(("", "0"));
        let (left, available) = left.strip_suffix('!').map_or((left, true), |left| (left, false));
        let capacity_type = if id.is_empty() { ON_DEMAND } else { RESERVED };
        let mut terms = Requirements::new([
            Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
            Requirement::is_in(ZONE, [ZONES[0]]),
        ]);
        terms.extend((!id.is_empty()).then(|| Requirement::is_in(ID, [id])));
        Offering {
            requirements: terms,
            price: Price::from_f64(if id.is_empty() { 0.1 } else { 0.001 }),
            available,
            reservation_capacity: left.parse().expect("a number"),
            ..Offering::default()
        }
    };
    let mut requirements = base.requirements().clone();
    requirements.replace(Requirement::is_in(CAPACITY_TYPE, [RESERVED, ON_DEMAND]));
    let ids = offers.split_whitespace().filter_map(|it| Some(it.split_once('=')?.0));
    let ids: Vec<&str> = ids.collect();
    requirements.extend((!ids.is_empty()).then(|| Requirement::is_in(ID, ids)));
    Arc::new(InstanceType::new(
        base.name(),
        requirements,
        offers.split_whitespace().map(offering).collect(),
        base.capacity().clone(),
        base.overhead().clone(),
    ))
}

pub(crate) fn of(name: &str, offers: &str) -> Pool {
    Pool { instance_types: vec![sold(offers)], ..pool(name) }
}

/// A pool of so many nodes, and this limit.
fn fixed(name: &str, offers: &str, nodes: u64, limit: Option<u64>) -> Pool {
    let count = NodeCount { active: nodes, ..NodeCount::default() };
    let static_pool = Some(StaticPool { replicas: nodes, limit, count, launches: true });
    Pool { static_pool, idle: Some(Idle::Static), ..of(name, offers) }
}

/// A drifted node with a pod, whose drain has an end. It holds a slot of the reservation of that name, if there is one.
pub(crate) fn old(name: &str, minutes: u64, id: &str) -> Place {
    let old = drifted(place(name, 2).runs(&format!("p-{name}"), "1800m"), minutes).set(|node| {
        node.disruption.termination_grace_period = Some(Duration::from_mins(5));
    });
    if id.is_empty() { old } else { old.label(CAPACITY_TYPE, RESERVED).label(ID, id) }
}

fn gated() -> Settings {
    Settings { terminate_first_drift: true, ..Settings::default() }
}

fn look(snapshot: &Snapshot, settings: &Settings) -> Pass {
    pass(snapshot, settings, &mut Memory::default())
}

/// `a first` or `a replaced`.
fn shown(command: &Command) -> String {
    let node = &command.candidates[0].node.name;
    match (command.decision(), command.goes_first) {
        (Decision::TerminateFirst, Some(first)) => {
            assert!(command.replacements.is_empty() && command.savings.is_none());
            format!("{node} first: {}", first.because.as_str())
        }
        (Decision::Replace, None) => format!("{node} replaced"),
        (Decision::Delete, None) => format!("{node} removed"),
        other => panic!("{other:?}"),
    }
}

fn decided(snapshot: &Snapshot) -> Vec<String> {
    look(snapshot, &gated()).commands.iter().map(shown).collect()
}

fn reasons(snapshot: &Snapshot, node: &str) -> Vec<&'static str> {
    let pass = look(snapshot, &gated());
    let drift = [Some(Method::Drift), Some(Method::StaticDrift)];
    let of_node = pass.refused.iter().filter(|refused| refused.node == node);
    of_node.filter(|it| drift.contains(&it.method)).map(|it| it.why.name()).collect()
}

#[test]
fn a_static_pool_at_its_limit_lets_one_go_at_a_time() {
    let nodes = || vec![old("a", 10, ""), old("b", 20, ""), old("c", 5, "")];
    let at_limit = snapshot(vec![fixed("default", "on-demand", 3, Some(3))], nodes());
    assert_eq!(decided(&at_limit), ["b first: static-at-limit"]);
    assert_eq!(reasons(&at_limit, "a"), ["terminate_first_one_at_a_time"]);
    assert!(look(&at_limit, &Settings::default()).commands.is_empty(), "with the gate off");
    assert!(
        why(&look(&at_limit, &Settings::default()), "a")[0]
            .starts_with("static NodePool is at its node limit and cannot stage a replacement")
    );
    // With room for one the replacement comes first, and nothing goes before.
    let with_room = snapshot(vec![fixed("default", "on-demand", 3, Some(4))], nodes());
    assert_eq!(decided(&with_room), ["b replaced"]);
    assert_eq!(reasons(&with_room, "a"), ["static_node_limit"]);
    let unlimited = snapshot(vec![fixed("default", "on-demand", 3, None)], nodes());
    assert_eq!(decided(&unlimited).len(), 3);
}

#[test]
fn a_static_pool_that_is_not_whole_or_may_not_launch_lets_none_go() {
    let check = |change: fn(&mut StaticPool), nodes: Vec<Place>, expected: &str| {
        let mut pool = fixed("default", "on-demand", 2, Some(2));
        change(pool.static_pool.as_mut().expect("it is static"));
        let snapshot = snapshot(vec![pool], nodes);
        assert!(decided(&snapshot).is_empty(), "{expected}");
        assert_eq!(reasons(&snapshot, "a"), [expected]);
    };
    let both = || vec![old("a", 10, ""), place("b", 2)];
    check(|pool| pool.launches = false, both(), "not_ready");
    check(|pool| pool.replicas = 1, both(), "static_replica_excess");
    // One is missing, and the limit has no room for it yet: the last one that went is still there.
    let missing = |pool: &mut StaticPool| {
        pool.count = NodeCount { active: 1, leaving: 1, ..NodeCount::default() };
    };
    check(missing, vec![old("a", 10, "")], "terminate_first_not_whole");
    let coming = place("b", 2).set(|node| node.initialized = false);
    check(|_| {}, vec![old("a", 10, ""), coming], "terminate_first_not_whole");
    let endless = old("a", 10, "").set(|node| node.disruption.termination_grace_period = None);
    check(|_| {}, vec![endless, place("b", 2)], "terminate_first_unbounded_drain");
}

#[test]
fn the_bound_of_the_drain_is_part_of_the_command() {
    let drain = |node: Place, of_pool: Option<Duration>| {
        let pool =
            Pool { termination_grace_period: of_pool, ..fixed("default", "on-demand", 1, Some(1)) };
        let pass = look(&snapshot(vec![pool], vec![node]), &gated());
        pass.commands[0].goes_first.map(|first| (first.because, first.drain))
    };
    let (own, of_pool) = (Duration::from_mins(5), Duration::from_mins(3));
    let because = Because::StaticAtLimit;
    assert_eq!(drain(old("a", 1, ""), Some(of_pool)), Some((because, Drain::Bounded(own))));
    let endless = old("a", 1, "").set(|node| node.disruption.termination_grace_period = None);
    assert_eq!(drain(endless, Some(of_pool)), Some((because, Drain::Supplied(of_pool))));
    let empty = drifted(place("a", 2), 1);
    assert_eq!(drain(empty, None), Some((because, Drain::Nothing)));
}

#[test]
fn a_static_pool_with_full_reservations_lets_those_go_that_hold_a_slot() {
    for (what, offers, of_a, of_b, expected, of_other) in [
        (
            "both hold it",
            "r=0",
            "r",
            "r",
            &["b first: no-reserved-capacity"][..],
            "terminate_first_one_at_a_time",
        ),
        // The younger drift goes first: the other gives nothing back.
        (
            "one holds it",
            "r=0",
            "r",
            "",
            &["a first: no-reserved-capacity"],
            "static_reservations_full",
        ),
        ("none holds it", "r=0", "", "", &[], "static_reservations_full"),
        ("a stale label", "r=0", "s", "s", &[], "static_reservations_full"),
        ("it is gone", "r=0!", "r", "r", &[], "static_reservations_full"),
        (
            "another is offered",
            "r=0! s=0",
            "r",
            "s",
            &["b first: no-reserved-capacity"],
            "static_reservations_full",
        ),
        ("there is room", "r=1", "r", "r", &["b replaced", "a replaced"], ""),
        (
            "on-demand, sold out or not",
            "r=0 on-demand",
            "r",
            "r",
            &["b replaced", "a replaced"],
            "",
        ),
        ("nothing is offered", "", "r", "r", &[], "static_no_offering"),
    ] {
        let nodes = vec![old("a", 10, of_a), old("b", 20, of_b)];
        let snapshot = snapshot(vec![fixed("default", offers, 2, None)], nodes);
        assert_eq!(decided(&snapshot), expected, "{what}");
        let left: Vec<_> = ["a", "b"]
            .into_iter()
            .filter(|name| !expected.iter().any(|it| it.starts_with(name)))
            .flat_map(|name| reasons(&snapshot, name))
            .collect();
        assert!(left.iter().all(|reason| *reason == of_other), "{what}: {left:?}");
        // Without the gate reservations are not looked at.
        assert_eq!(look(&snapshot, &Settings::default()).commands.len(), 2, "{what}");
    }
}

#[test]
fn pools_that_are_not_full_go_on() {
    let full = fixed("default", "r=0", 1, None);
    let other = fixed("other", "on-demand", 1, None);
    let nodes = vec![old("a", 10, ""), old("b", 20, "").pool("other")];
    let snapshot = snapshot(vec![full, other], nodes);
    assert_eq!(decided(&snapshot), ["b replaced"]);
    assert_eq!(reasons(&snapshot, "a"), ["static_reservations_full"]);
}

#[test]
fn budgets_hold_back_what_goes_first_as_well() {
    let mut shut = fixed("default", "on-demand", 1, Some(1));
    shut.disruption.budgets = vec![budget("0")];
    let snapshot = snapshot(vec![shut], vec![old("a", 1, "")]);
    assert!(decided(&snapshot).is_empty());
    assert_eq!(reasons(&snapshot, "a"), ["budget"]);
}

#[test]
fn a_dynamic_node_goes_first_where_only_its_own_slot_takes_its_pods() {
    let reserved_only = |offers: &str| vec![of("default", offers)];
    for (what, pools, expected) in [
        ("full", reserved_only("r=0"), "a first: no-reserved-capacity"),
        ("a spare slot", reserved_only("r=1"), "a replaced"),
        ("gone, not full", reserved_only("r=0!"), ""),
        ("another one is full", reserved_only("s=0"), ""),
        ("something to buy", reserved_only("r=0 on-demand"), "a replaced"),
        (
            "a lighter pool sells it",
            vec![
                Pool { weight: 10, ..of("default", "r=0") },
                Pool { weight: 1, ..of("light", "on-demand") },
            ],
            "a replaced",
        ),
    ] {
        let snapshot = snapshot(pools, vec![old("a", 10, "r")]);
        assert_eq!(decided(&snapshot).join(", "), expected, "{what}");
        let without = look(&snapshot, &Settings::default());
        assert!(without.commands.iter().all(|it| it.goes_first.is_none()), "{what}");
        let first_result = expected.is_empty() || expected.contains("first");
        assert_eq!(without.commands.is_empty(), first_result, "{what}");
        if expected.is_empty() {
            assert_eq!(reasons(&snapshot, "a"), ["no_feasible_schedule"], "{what}");
        }
    }
    let not_reserved = snapshot(reserved_only("r=0"), vec![old("a", 10, "")]);
    assert_eq!(reasons(&not_reserved, "a"), ["no_feasible_schedule"]);
}

#[test]
fn pods_that_need_more_than_the_slot_keep_their_node() {
    // They came together when the rule that keeps them apart did not hold.
    let apart = |name: &str| {
        let apart = pod(name).labels("app=web").requests("cpu=500m");
        apart.anti_affinity(HOSTNAME, "app=web").running().build()
    };
    let node = old("a", 10, "r").set(|node| node.pods.clear());
    let two = node.with(&apart("p")).with(&apart("q"));
    let full = snapshot(vec![of("default", "r=0")], vec![two.clone()]);
    assert!(decided(&full).is_empty());
    assert_eq!(reasons(&full, "a"), ["no_feasible_schedule"]);
    let beside = snapshot(vec![of("default", "r=1")], vec![two]);
    assert_eq!(decided(&beside), ["a first: no-reserved-capacity"], "one slot more is enough");
}

#[test]
fn a_dynamic_pool_is_refilled_before_the_next_node_goes() {
    let others = |other: Place| {
        let nodes = vec![old("a", 10, "r"), other];
        snapshot(vec![of("default", "r=0")], nodes)
    };
    assert_eq!(decided(&others(old("b", 20, "r"))), ["b first: no-reserved-capacity"]);
    let going = old("b", 20, "r").set(|node| node.deleting = true);
    assert_eq!(reasons(&others(going), "a"), ["terminate_first_not_whole"]);
    let coming = place("b", 2).stays().set(|node| {
        node.initialized = false;
        node.allocatable = kerf_model::Resources::new();
    });
    assert_eq!(reasons(&others(coming), "a"), ["terminate_first_not_whole"]);
    // A pod that lost its slot to another consumer would take this one.
    let mut stolen = snapshot(vec![of("default", "r=0")], vec![old("a", 10, "r")]);
    stolen.pods = vec![pod("larger").requests("cpu=1900m").build()];
    assert!(decided(&stolen).is_empty());
    stolen.pods = vec![pod("smaller").requests("cpu=1").build()];
    assert_eq!(reasons(&stolen, "a"), ["terminate_first_pods_wait"]);
    // The provider says that there is a slot, and the launch in it has just failed: the pod still waits.
    let mut in_vain = snapshot(vec![of("default", "r=1")], vec![old("a", 10, "r")]);
    in_vain.pods = vec![pod("other").requests("cpu=1900m").build()];
    assert_eq!(reasons(&in_vain, "a"), ["terminate_first_pods_wait"]);
    let endless = old("a", 10, "r").set(|node| node.disruption.termination_grace_period = None);
    let endless = snapshot(vec![of("default", "r=0")], vec![endless]);
    assert_eq!(reasons(&endless, "a"), ["terminate_first_unbounded_drain"]);
}
