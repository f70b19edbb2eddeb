//! The churn controls in a whole pass: what they leave of what would be done, and what they say.

use std::{fmt::Debug, str::FromStr, sync::Arc};

use kerf_api::ConsolidationPolicy;
use kerf_disruption::explain::Explainer;
use kerf_disruption::{Memory, Pass, Settings, pass};
use kerf_model::disruption::PodDisruption;
use kerf_model::{Pod, Price};
use kerf_model::{Pool, Snapshot};

use crate::build::{HOSTNAME, many_types, pod};
use crate::places::{Place, ago, decided, first_pass, place, pool, snapshot, told, why};

fn commands(pass: &Pass) -> Vec<String> {
    pass.commands.iter().map(told).collect()
}

/// A pool with these controls: `pool_with("a", &[("factor", "0.5")])`.
fn pool_with(name: &str, controls: &[(&str, &str)]) -> Pool {
    fn read<T: FromStr<Err: Debug>>(value: &str) -> T {
        value.parse().expect("a value")
    }
    let mut pool = pool(name);
    for (control, value) in controls {
        match *control {
            "factor" => pool.disruption.controls.price_improvement_factor = read(value),
            "savings" => pool.disruption.controls.savings_threshold = read(value),
            "utilization" => pool.disruption.controls.utilization_threshold = read(value),
            "grace" => pool.disruption.controls.grace_period = read(value),
            "balanced" => pool.disruption.policy = ConsolidationPolicy::Balanced,
            other => panic!("{other}"),
        }
    }
    pool
}

/// A node of each pool, half used. Neither has room for the large pod of the other; together as well as each by itself they
/// could give way to what costs five eighths.
fn one_of_each_pool() -> Vec<Place> {
    let b = place("b", 8).runs("q", "4300m").runs("r", "100m").runs("s", "100m");
    vec![place("a", 8).runs("p", "4500m").pool("pool-a"), b.pool("pool-b")]
}

#[test]
fn every_pool_has_its_say_about_a_move_of_several() {
    let check = |a: (&str, &str), b: (&str, &str), expect: &str, against: &[(&str, &str)]| {
        let pools = vec![pool_with("pool-a", &[a]), pool_with("pool-b", &[b])];
        let pass = first_pass(&snapshot(pools, one_of_each_pool()));
        assert_eq!(commands(&pass), [expect], "{a:?} {b:?}");
        let unmerged = pass.unmerged.iter().inspect(|one| assert_eq!(one.nodes, ["a", "b"]));
        let got: Vec<_> = unmerged.map(|one| (one.pool.clone(), one.why.name())).collect();
        let against: Vec<_> =
            against.iter().map(|(pool, name)| ((*pool).to_owned(), *name)).collect();
        assert_eq!(got, against, "{a:?} {b:?}");
    };
    let both = "MultiNode a b -> fake-it-9";
    let (only_a, only_b) = ("SingleNode a -> fake-it-4", "SingleNode b -> fake-it-4");
    check(("factor", "1"), ("factor", "1"), both, &[]);
    // The smallest factor counts, and none is a veto.
    check(("factor", "0.63"), ("factor", "1"), both, &[]);
    check(("factor", "0.62"), ("factor", "1"), only_b, &[("pool-a", "price_factor")]);
    check(("factor", "0"), ("factor", "1"), only_b, &[("pool-a", "price_factor")]);
    check(("factor", "1"), ("factor", "0.62"), only_a, &[("pool-b", "price_factor")]);
    // Each pool saves 0.944 of the 1.888 that the move saves, and has one pod and three.
    check(("savings", "0.94"), ("savings", "0"), both, &[]);
    check(("savings", "0.94"), ("savings", "0.31"), both, &[]);
    // What the other saves and need not does not help: together they save twice of what is required of both.
    check(("savings", "0.95"), ("savings", "0"), only_b, &[("pool-a", "savings_threshold")]);
    check(("savings", "0"), ("savings", "0.32"), only_a, &[("pool-b", "savings_threshold")]);
    // One control of each.
    check(("factor", "0.63"), ("savings", "0.31"), both, &[]);
    check(("factor", "0.62"), ("savings", "0.31"), only_b, &[("pool-a", "price_factor")]);
    check(("factor", "0.63"), ("savings", "0.32"), only_a, &[("pool-b", "savings_threshold")]);
}

#[test]
fn a_search_that_came_to_nothing_says_once_what_it_was() {
    let places = || {
        let node =
            |name: &str, pool: &str| place(name, 8).runs(&format!("p-{name}"), "4500m").pool(pool);
        let of_a = ["a", "b", "c"].map(|name| node(name, "pool-a"));
        let of_b = ["d", "e", "f"].map(|name| node(name, "pool-b"));
        of_a.into_iter().chain(of_b).collect::<Vec<_>>()
    };
    let strict = |name| pool_with(name, &[("savings", "5")]);
    let snapshot = snapshot(vec![strict("pool-a"), strict("pool-b")], places());
    let mut memory = Memory::default();
    let mut look = || pass(&snapshot, &Settings::default(), &mut memory).unmerged;
    let first = look();
    // Of several pools the first that objects is named, however many sets it objects to.
    assert!(
        matches!(&first[..], [one] if one.pool == "pool-a" && one.why.name() == "savings_threshold"),
        "{first:?}"
    );
    assert!(look().is_empty(), "nothing was searched again");
}

#[test]
fn explanations_have_numbers_that_a_pass_has_no_use_for() {
    let price = |cores: usize| -> Price { many_types(16)[cores - 1].offerings()[0].price };
    let check = |place: Place, in_pass: &str, explained: &str| {
        let snapshot = snapshot(vec![pool("default")], vec![place]);
        let pass = first_pass(&snapshot);
        assert_eq!(why(&pass, "a"), [in_pass]);
        let settings = Settings::default();
        let node = Explainer::new(&snapshot, &settings).node("a").expect("the node");
        let verdict = node.methods.last().expect("a method").verdict.as_ref();
        assert_eq!(verdict.unwrap_err().to_string(), explained);
    };
    // After the first pod it is clear that nothing is cheaper; what both need costs twice as much.
    let small = place("a", 1).runs("p", "900m").runs("q", "900m");
    let text = "Can't replace with a cheaper node";
    let (own, other) = (price(1), price(2));
    check(
        small,
        &format!("{text} (price={own})"),
        &format!("{text} (price={own}, cheapest={other})"),
    );
    let crowded = ["p", "q", "r"].iter().fold(place("a", 16), |a, name| a.with(&lonely(name, "1")));
    let text = |count| format!("Can't remove without creating {count} candidates or more");
    check(crowded, &text(2), &text(3));
}

#[test]
fn everything_on_a_node_is_use_of_it() {
    let strict = pool_with("default", &[("utilization", "0.3")]);
    let base = || place("a", 8).runs("p", "1");
    let big = || pod("big").requests("cpu=1 memory=8Gi").running();
    let daemon = big().daemon().build();
    let mut leaving = Pod::clone(&big().build());
    leaving.deleting = true;
    let check = |node: Place, expect: &[&str]| {
        let pass = first_pass(&snapshot(vec![strict.clone()], vec![node]));
        let names: Vec<_> = pass.refused.iter().map(|refused| refused.why.name()).collect();
        assert_eq!(names, expect);
    };
    check(base(), &[]);
    check(base().with_pod(&daemon, PodDisruption::default()), &["utilization"]);
    check(base().with_pod(&leaving, PodDisruption::default()), &["utilization"]);
}

/// A node that is too large and one that is of the right size. Their pods share a node with none of their kind.
fn large_and_full() -> Vec<Place> {
    vec![place("a", 16).with(&lonely("p", "1")), place("b", 8).with(&lonely("q", "7500m"))]
}

fn lonely(name: &str, cpu: &str) -> Arc<Pod> {
    let lonely = pod(name).labels("app=x").anti_affinity(HOSTNAME, "app=x");
    lonely.requests(&format!("cpu={cpu}")).running().build()
}

#[test]
fn balanced_pools_heed_the_other_controls_as_well() {
    let check = |controls: &[(&str, &str)], expect: Result<&str, &str>| {
        let pool = pool_with("default", &[&[("balanced", "")], controls].concat());
        let pass = first_pass(&snapshot(vec![pool], large_and_full()));
        let of_a = || pass.refused.iter().find(|refused| refused.node == "a");
        let found = pass.commands.first().map(told);
        let got = found.ok_or_else(|| of_a().expect("a reason").why.name());
        assert_eq!(got, expect.map(str::to_owned), "{controls:?}");
    };
    check(&[], Ok("SingleNode a -> fake-it-1"));
    // Saves 4.4 of 5.04 for one pod.
    check(&[("savings", "4.4")], Ok("SingleNode a -> fake-it-1"));
    check(&[("savings", "4.5")], Err("savings_threshold"));
    check(&[("factor", "0.13")], Ok("SingleNode a -> fake-it-1"));
    check(&[("factor", "0.125")], Err("price_factor"));
    check(&[("utilization", "0.04")], Ok("SingleNode a -> fake-it-1"));
    check(&[("utilization", "0.03")], Err("utilization"));
    check(&[("grace", "9h")], Ok("SingleNode a -> fake-it-1"));
    check(&[("grace", "10h")], Err("grace_period"));
    let mild = [("savings", "4.4"), ("factor", "0.13"), ("utilization", "0.04"), ("grace", "9h")];
    check(&mild, Ok("SingleNode a -> fake-it-1"));
}

#[test]
fn nodes_that_a_control_holds_back_count_in_what_others_are_weighed_by() {
    let score = |snapshot: &Snapshot| {
        let pass = first_pass(snapshot);
        assert_eq!(commands(&pass), ["SingleNode a -> fake-it-1"]);
        let [score] = &pass.commands[0].scores[..] else { panic!("{:?}", pass.commands) };
        let held: Vec<_> = pass.refused.iter().filter(|refused| refused.node == "b").collect();
        let held = held.first().map(|refused| refused.why.name());
        ((score.savings_fraction, score.disruption_fraction), held)
    };
    let with = |control, b: fn(Place) -> Place| {
        let mut places = large_and_full();
        places[1] = b(places[1].clone());
        snapshot(vec![pool_with("default", &[("balanced", ""), control])], places)
    };
    let (alone, _) = score(&with(("utilization", "1"), |b| b));
    let (by_use, held) = score(&with(("utilization", "0.4"), |b| b));
    assert_eq!((by_use, held), (alone, Some("utilization")));
    let busy = |b: Place| b.set(|node| node.disruption.last_pod_event = Some(ago(1)));
    let (by_rest, held) = score(&with(("grace", "5m"), busy));
    assert_eq!((by_rest, held), (alone, Some("grace_period")));
    // It would be another number without the node.
    let without = snapshot(
        vec![pool_with("default", &[("balanced", "")])],
        vec![place("a", 16).runs("p", "1")],
    );
    assert!(score(&without).0 != alone);
}

#[test]
fn balanced_says_what_it_has_against_a_merger() {
    // Merging saves three eighths of each for all pods of both.
    let places = ["a", "b"].map(|name| place(name, 8).runs(&format!("p-{name}"), "4500m"));
    let snapshot = snapshot(vec![pool_with("default", &[("balanced", "")])], places.into());
    assert!(decided(&snapshot).is_empty());
    let unmerged: Vec<_> = first_pass(&snapshot).unmerged;
    assert!(
        matches!(&unmerged[..], [one] if one.pool == "default" && one.why.name() == "score"),
        "{unmerged:?}"
    );
}

#[test]
fn the_grace_period_of_the_other_node_is_named_where_it_is_the_reason() {
    // The pod of `a` fits on `b` and on nothing that is cheaper than `a`.
    let with = |grace: &str, b: Place| {
        let places = vec![place("a", 1).runs("p", "900m"), b.settling().stays()];
        snapshot(vec![pool_with("default", &[("grace", grace)])], places)
    };
    let check = |snapshot: &Snapshot, expect: &str| {
        let pass = first_pass(snapshot);
        let of_a = pass.refused.iter().find(|refused| refused.node == "a").expect("a reason");
        assert_eq!(of_a.why.name(), expect);
        let settings = Settings::default();
        let explained = Explainer::new(snapshot, &settings).node("a").expect("the node");
        let verdict = explained.methods.last().expect("a method").verdict.as_ref();
        assert_eq!(verdict.unwrap_err().name(), expect);
        of_a.why.to_string()
    };
    let roomy = || place("b", 8).runs("q", "4");
    let told = check(&with("5m", roomy()), "destination_grace_period");
    assert!(told.starts_with("its pods would go to node b, where a pod came or went"), "{told}");
    let full = place("b", 8).runs("q", "7500m");
    check(&with("5m", full), "same_or_more_expensive_replacement");
    // It is `consolidateAfter` that keeps `b` from taking pods.
    check(&with("Never", roomy()), "same_or_more_expensive_replacement");
}

#[test]
fn explain_never_prints_a_bound_that_its_decision_contradicts() {
    let check = |controls: &[(&str, &str)], refused: Option<&str>| {
        let snapshot = snapshot(vec![pool_with("default", controls)], large_and_full());
        let settings = Settings::default();
        let node = Explainer::new(&snapshot, &settings).node("a").expect("the node");
        let method = node.methods.last().expect("a method");
        let replacement = method.simulation.as_ref().expect("one").new_nodes[0].price;
        let bound = method.prices.as_ref().expect("prices").bound.highest();
        let got = method.verdict.as_ref().err().map(kerf_disruption::Blocked::name);
        assert_eq!(got, refused, "{controls:?}");
        assert_eq!(replacement <= bound, refused.is_none(), "{controls:?}: {replacement} {bound}");
    };
    check(&[], None);
    check(&[("savings", "4.4")], None);
    check(&[("savings", "4.5")], Some("savings_threshold"));
    check(&[("factor", "0.125")], Some("price_factor"));
    check(&[("balanced", "")], None);
    check(&[("balanced", ""), ("factor", "0")], Some("price_factor"));
}

/// Balanced asks for more than any other control does here: half of what the pool costs.
#[test]
fn the_bound_of_a_balanced_pool_is_what_its_score_asks_for() {
    let places = vec![place("a", 8).runs("p", "4500m")];
    let snapshot = snapshot(vec![pool_with("default", &[("balanced", "")])], places);
    let settings = Settings::default();
    let node = Explainer::new(&snapshot, &settings).node("a").expect("the node");
    let method = node.methods.last().expect("a method");
    let replacement = method.simulation.as_ref().expect("one").new_nodes[0].price;
    let prices = method.prices.as_ref().expect("prices");
    assert_eq!(method.verdict.as_ref().unwrap_err().name(), "score");
    assert!(replacement < prices.node && replacement > prices.bound.highest(), "{prices:?}");
}
