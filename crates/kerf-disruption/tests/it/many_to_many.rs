use std::sync::Arc;

use kerf_disruption::{Command, Memory, Method, Pass, Settings, pass, validate};
use kerf_model::labels::{CAPACITY_TYPE, INSTANCE_TYPE, SPOT};
use kerf_model::{InstanceType, Pool, Price, Snapshot};

use crate::build::{HOSTNAME, TypeSpec, instance_type, pod};
use crate::places::{Place, budget, decided, place, pool, snapshot, told};

/// By name, cores and price. Memory is no matter.
const TYPES: [(&str, usize, f64); 5] =
    [("small", 4, 0.5), ("middle", 8, 1.2), ("odd", 8, 1.5), ("wide", 12, 2.0), ("large", 16, 4.0)];

fn of_type(name: &str) -> Arc<InstanceType> {
    let (name, cores, price) = TYPES.into_iter().find(|one| one.0 == name).expect("a type");
    let capacity = format!("cpu={cores} memory=64Gi pods=110");
    TypeSpec { price: Some(price), ..instance_type(name, &capacity) }.build()
}

fn selling(types: &[&str]) -> Pool {
    Pool { instance_types: types.iter().map(|name| of_type(name)).collect(), ..pool("default") }
}

fn small_or_large() -> Pool {
    selling(&["small", "large"])
}

fn odd_or_wide() -> Pool {
    selling(&["odd", "wide"])
}

/// A node with pods of so many cores each.
fn node(name: &str, of: &str, pods: &[&str]) -> Place {
    let of = of_type(of);
    let place = place(name, 1).label(INSTANCE_TYPE, of.name()).set(|node| {
        (node.capacity, node.allocatable) = (of.capacity().clone(), of.allocatable().clone());
    });
    let add = |place: Place, (at, cpu): (usize, &&str)| place.runs(&format!("{name}-{at}"), cpu);
    pods.iter().enumerate().fold(place, add)
}

/// Three pods that two small nodes hold, and no single node but another large one.
fn one_large() -> Vec<Place> {
    vec![node("a", "large", &["1900m"; 3])]
}

/// A wide one holds five of their pods and not the six of two of them; three wide ones hold all fifteen.
fn five_odd() -> Vec<Place> {
    ["a", "b", "c", "d", "e"].map(|name| node(name, "odd", &["2200m"; 3])).into()
}

fn settings() -> Settings {
    Settings { many_to_many: true, ..Settings::default() }
}

fn pass_over(snapshot: &Snapshot) -> Pass {
    pass(snapshot, &settings(), &mut Memory::default())
}

fn found(pool: Pool, places: Vec<Place>) -> Vec<String> {
    pass_over(&snapshot(vec![pool], places)).commands.iter().map(told).collect()
}

fn command(pool: Pool, places: Vec<Place>) -> Command {
    pass_over(&snapshot(vec![pool], places)).commands.remove(0)
}

fn price(text: &str) -> Price {
    text.parse().expect("a price")
}

#[test]
fn nodes_give_way_to_as_many_as_are_cheapest() {
    assert_eq!(found(small_or_large(), one_large()), ["ManyToMany a -> small -> small"]);
    let command = command(small_or_large(), one_large());
    assert_eq!(command.savings, Some(price("3")));
    assert_eq!(command.evictions(), 3);
    let found = found(odd_or_wide(), five_odd());
    assert_eq!(found, ["ManyToMany a b c d e -> wide -> wide -> wide"]);
}

#[test]
fn it_is_off_by_default_and_asked_last() {
    for (pool, places) in [(small_or_large(), one_large()), (odd_or_wide(), five_odd())] {
        let snapshot = snapshot(vec![pool], places);
        assert!(decided(&snapshot).is_empty());
        let asked = pass(&snapshot, &Settings::default(), &mut Memory::default()).eligible;
        assert!(!asked.contains_key(&Method::ManyToMany), "{asked:?}");
    }
    let with_middle = selling(&["small", "middle", "large"]);
    assert_eq!(found(with_middle, one_large()), ["SingleNode a -> middle"]);
}

#[test]
fn room_that_is_paid_for_comes_first() {
    // One of the pods fits on a node that stays, and two small nodes take the others.
    let places = vec![node("a", "large", &["1900m"; 5]), node("b", "small", &["1900m"]).stays()];
    let command = command(small_or_large(), places);
    assert_eq!(told(&command), "ManyToMany a -> small -> small");
    assert_eq!(command.placements.len(), 1);
    assert_eq!(command.placements[0].node.name, "b");
}

#[test]
fn a_node_more_has_to_save_a_cent() {
    let check = |price_of_middle: f64, expect: &[&str]| {
        let mut pool = small_or_large();
        let middle = TypeSpec {
            price: Some(price_of_middle),
            ..instance_type("middle", "cpu=8 memory=64Gi pods=110")
        };
        pool.instance_types = vec![of_type("small"), middle.build()];
        // It runs on the middle type already: two small ones would cost 1.0.
        assert_eq!(
            found(pool, vec![node("a", "middle", &["1900m"; 3])]),
            expect,
            "{price_of_middle}"
        );
    };
    check(1.02, &["ManyToMany a -> small -> small"]);
    check(1.011, &["ManyToMany a -> small -> small"]);
    check(1.005, &[]);
    check(1.0, &[]);
}

#[test]
fn controls_have_their_say() {
    let check = |change: fn(&mut Pool), expect: &[&str]| {
        let mut pool = small_or_large();
        change(&mut pool);
        let controls = pool.disruption.controls;
        assert_eq!(found(pool, one_large()), expect, "{controls:?}");
    };
    let both: &[&str] = &["ManyToMany a -> small -> small"];
    // It saves 3.0 for three pods, and has to save a cent for the second node.
    check(|pool| pool.disruption.controls.savings_threshold = "0.99".parse().unwrap(), both);
    check(|pool| pool.disruption.controls.savings_threshold = "1".parse().unwrap(), &[]);
    check(|pool| pool.disruption.controls.price_improvement_factor = "0.26".parse().unwrap(), both);
    check(|pool| pool.disruption.controls.price_improvement_factor = "0.25".parse().unwrap(), &[]);
    check(|pool| pool.disruption.controls.price_improvement_factor = "0".parse().unwrap(), &[]);
    check(|pool| pool.disruption.controls.utilization_threshold = "0.2".parse().unwrap(), both);
    check(|pool| pool.disruption.controls.utilization_threshold = "0.1".parse().unwrap(), &[]);
    check(|pool| pool.disruption.budgets = vec![budget("0")], &[]);
    // The large node is still there when others start.
    let two = |pool: &mut Pool| pool.limits.set("nodes", kerf_model::Quantity::from_units(2));
    check(two, &[]);
    let settling = vec![one_large().remove(0).settling()];
    let mut gentle = small_or_large();
    gentle.disruption.controls.grace_period = "30m".parse().unwrap();
    assert!(found(gentle, settling).is_empty());
}

#[test]
fn budgets_bound_how_many_go() {
    let check = |nodes: &str, expect: &[&str]| {
        let mut pool = odd_or_wide();
        pool.disruption.budgets = vec![budget(nodes)];
        assert_eq!(found(pool, five_odd()), expect, "{nodes}");
    };
    check("5", &["ManyToMany a b c d e -> wide -> wide -> wide"]);
    check("4", &["ManyToMany a b c -> wide -> wide"]);
    check("3", &["ManyToMany a b c -> wide -> wide"]);
    check("2", &[]);
}

#[test]
fn what_has_no_place_stands_in_nobodys_way() {
    let stuck = pod("stuck").requests("cpu=6").selector("no=where").running().build();
    let mut places = five_odd();
    places[0] = node("a", "odd", &[]).with(&stuck);
    assert_eq!(found(odd_or_wide(), places), ["ManyToMany b c d -> wide -> wide"]);
}

#[test]
fn nothing_is_bought_for_pods_that_wait() {
    let mut waiting = snapshot(vec![small_or_large()], one_large());
    let other = pod("waiting").requests("cpu=3800m").build();
    waiting.pods = vec![other];
    // A third small node would be for the pod that waits alone, and is bought when it is planned for.
    assert!(pass_over(&waiting).commands.is_empty());
    let nowhere = pod("waiting").requests("cpu=1").selector("no=where").build();
    waiting.pods = vec![nowhere];
    let found: Vec<_> = pass_over(&waiting).commands.iter().map(told).collect();
    assert_eq!(found, ["ManyToMany a -> small -> small"]);
}

#[test]
fn a_node_that_adds_nothing_is_left_alone() {
    // It wastes most, and nothing cheaper could hold its pods.
    let lonely = |name: &str| {
        pod(name)
            .labels("app=x")
            .requests("cpu=100m")
            .anti_affinity(HOSTNAME, "app=x")
            .running()
            .build()
    };
    let mut places = one_large();
    places.push(node("b", "small", &[]).with(&lonely("p")));
    places.push(node("c", "small", &[]).with(&lonely("q")));
    let command = command(small_or_large(), places);
    assert!(command.candidates.iter().all(|one| one.node.name == "a"), "{}", told(&command));
}

#[test]
fn whatever_is_launched_keeps_the_promise() {
    let command = command(small_or_large(), one_large());
    let promise = command.promise.expect("a promise");
    // The controls are off: anything below the price of the large node would do.
    assert!(promise.at_most < price("4") && promise.at_most >= price("1"), "{promise:?}");
    assert_eq!(promise.check([Some(price("0.5")), Some(price("1.2"))]), Ok(()));
    assert!(promise.check([Some(price("4")), Some(price("0.5"))]).is_err());
}

#[test]
fn spot_for_spot_needs_the_gate_and_a_choice() {
    let mut places = one_large();
    places[0] = places[0].clone().label(CAPACITY_TYPE, SPOT);
    let with = |spot_to_spot| {
        let settings = Settings { spot_to_spot, ..settings() };
        let snapshot = snapshot(vec![small_or_large()], places.clone());
        pass(&snapshot, &settings, &mut Memory::default()).commands.len()
    };
    assert_eq!(with(false), 0);
    // There are not fifteen types that are cheaper.
    assert_eq!(with(true), 0);
}

#[test]
fn it_is_planned_anew_before_anything_happens() {
    let command = command(small_or_large(), one_large());
    let check = |places: Vec<Place>, pool: Pool, expect: Result<&str, &str>| {
        let now = snapshot(vec![pool], places);
        let got = validate(&command, &now, &settings());
        let got = got.as_ref().map(|valid| told(&valid.command)).map_err(|no| no.why.name());
        assert_eq!(got, expect.map(str::to_owned));
    };
    check(one_large(), small_or_large(), Ok("ManyToMany a -> small -> small"));
    // There is room for all of its pods now.
    let mut roomy = one_large();
    roomy.push(node("b", "middle", &[]).stays());
    check(roomy, small_or_large(), Ok("ManyToMany a"));
    let mut dear = small_or_large();
    dear.disruption.controls.savings_threshold = "1.01".parse().unwrap();
    check(one_large(), dear, Err("validation_churn"));
    let mut closed = small_or_large();
    closed.disruption.budgets = vec![budget("0")];
    check(one_large(), closed, Err("validation_budget"));
    check(vec![one_large().remove(0).stays()], small_or_large(), Err("validation_churn"));
    check(vec![], small_or_large(), Err("validation_churn"));
}

#[test]
fn an_unchanged_cluster_is_not_searched_again() {
    let content = vec![node("a", "small", &["3800m"])];
    let snapshot = snapshot(vec![small_or_large()], content);
    let mut memory = Memory::default();
    assert!(pass(&snapshot, &settings(), &mut memory).commands.is_empty());
    assert!(pass(&snapshot, &settings(), &mut memory).commands.is_empty());
    // Nor is one that cannot be started found again while things are as they are.
    let large = crate::places::snapshot(vec![small_or_large()], one_large());
    let mut memory = Memory::default();
    let first = pass(&large, &settings(), &mut memory).commands.remove(0);
    memory.refuse(&first);
    for _ in 0..3 {
        assert!(pass(&large, &settings(), &mut memory).commands.is_empty());
    }
}
