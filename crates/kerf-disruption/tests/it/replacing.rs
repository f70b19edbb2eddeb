//! What may come in the place of a node, decided by a whole pass.

use std::sync::Arc;

use kerf_disruption::{Blocked, Command, Memory, Pass, Settings, pass, validate};
use kerf_model::MinValuesPolicy;
use kerf_model::disruption::Obstacle;
use kerf_model::labels::{CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE};
use kerf_model::{Pool, Snapshot};
use kerf_scheduler::{Options, PreferencePolicy};

use crate::build::{HOSTNAME, TypeSpec, ZONES, instance_type, pod, requirements};
use crate::places::{Place, ago, budget, decided, first_pass, place, pool, snapshot, told, why};

fn commands(pass: &Pass) -> Vec<String> {
    pass.commands.iter().map(told).collect()
}

fn decided_by(snapshot: &Snapshot, settings: &Settings) -> Vec<String> {
    commands(&pass(snapshot, settings, &mut Memory::default()))
}

#[test]
fn the_choice_stays_as_wide_as_the_pool_asks_whatever_pods_are_granted() {
    let pool = |least: usize| {
        let mut pool = pool("default");
        let wide = format!("node.kubernetes.io/instance-type Exists min {least}");
        pool.requirements = requirements(&wide);
        pool
    };
    let node = || vec![place("a", 8).runs("p", "100m")];
    for min_values in [MinValuesPolicy::Strict, MinValuesPolicy::BestEffort] {
        let settings = Settings {
            scheduling: Options { min_values, ..Options::default() },
            ..Settings::default()
        };
        let narrow = snapshot(vec![pool(16)], node());
        let found = pass(&narrow, &settings, &mut Memory::default());
        assert!(found.commands.is_empty(), "{min_values:?}: {:?}", commands(&found));
        let told = why(&found, "a");
        assert!(told[0].starts_with("Filtering by price: minValues"), "{min_values:?}: {told:?}");
        let wide = snapshot(vec![pool(7)], node());
        assert_eq!(decided_by(&wide, &settings), ["SingleNode a -> fake-it-0"], "{min_values:?}");
    }
}

#[test]
fn spot_needs_a_choice_of_fifteen_alone_and_none_among_several() {
    let spot = |name: &str, cores| {
        place(name, cores).runs(&format!("p-{name}"), "100m").label(CAPACITY_TYPE, SPOT)
    };
    let settings = Settings { spot_to_spot: true, ..Settings::default() };
    let few = snapshot(vec![pool("default")], vec![spot("a", 15)]);
    let found = pass(&few, &settings, &mut Memory::default());
    assert!(found.commands.is_empty());
    let expect = "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to \
                  consolidate, got 14";
    assert_eq!(why(&found, "a"), [expect]);

    let apart = |name: &str| {
        let lonely = pod(name).labels("app=x").anti_affinity(HOSTNAME, "app=x");
        lonely.requests("cpu=100m").running().build()
    };
    // Each pod fits on the other node, so that one can go, and both together could give way to a smaller one.
    let pair = || vec![spot("a", 4), spot("b", 4)];
    let merged = snapshot(vec![pool("default")], pair());
    assert_eq!(decided_by(&merged, &settings), ["MultiNode a b -> fake-it-0"]);
    let shut = Settings::default();
    assert_eq!(decided_by(&merged, &shut), ["SingleNode a"], "removing needs no gate");
    let mut mixed = pair();
    mixed[1] = place("b", 4).runs("p-b", "100m");
    let mixed = snapshot(vec![pool("default")], mixed);
    assert_eq!(decided_by(&mixed, &shut), ["MultiNode a b -> fake-it-0"], "not all of it is spot");
    let held: Vec<_> =
        ["a", "b"].map(|name| place(name, 4).with(&apart(name)).label(CAPACITY_TYPE, SPOT)).into();
    assert!(decided_by(&snapshot(vec![pool("default")], held), &shut).is_empty());
}

#[test]
fn preferences_count_unless_they_are_to_be_ignored() {
    let shy = |name: &str| {
        pod(name)
            .labels("app=x")
            .requests("cpu=1800m")
            .prefers_pods("podAntiAffinity", 1, HOSTNAME, "app=x")
            .running()
            .build()
    };
    let places =
        vec![place("a", 2).with(&shy("p")), place("b", 16).with(&shy("q")).runs("r", "11").stays()];
    let snapshot = snapshot(vec![pool("default")], places);
    let by = |preferences| {
        let scheduling = Options { preferences, ..Options::default() };
        decided_by(&snapshot, &Settings { scheduling, ..Settings::default() })
    };
    // The pod would rather have a node of its own, and no such node is cheaper than the one it has.
    assert!(by(PreferencePolicy::Respect).is_empty());
    assert_eq!(by(PreferencePolicy::Ignore), ["SingleNode a"]);
}

#[test]
fn nodes_of_others_take_pods() {
    let foreign = place("foreign", 16).set(|node| node.claim = None);
    let places = vec![place("a", 2).runs("p", "1800m"), foreign];
    assert_eq!(decided(&snapshot(vec![pool("default")], places)), ["SingleNode a"]);
}

#[test]
fn a_pool_without_instance_types_is_no_matter_to_the_others() {
    let mut bare = pool("bare");
    bare.instance_types.clear();
    let places = vec![place("a", 16).runs("p", "1"), place("b", 1).runs("q", "500m").pool("bare")];
    let commands = decided(&snapshot(vec![bare, pool("default")], places));
    assert_eq!(commands, ["SingleNode a -> fake-it-1"]);
}

#[test]
fn a_node_is_replaced_while_those_around_it_settle() {
    let settling = place("target", 16).runs("q", "1").settling().stays();
    let places = vec![place("a", 16).runs("p", "1"), settling];
    let commands = decided(&snapshot(vec![pool("default")], places));
    assert_eq!(commands, ["SingleNode a -> fake-it-1"]);
}

#[test]
fn the_best_bargain_goes_first_however_old_it_is() {
    let old = |place: Place| {
        place.set(|node| {
            node.disruption.created = Some(ago(59));
            node.disruption.expire_after = Some(std::time::Duration::from_hours(1));
        })
    };
    // Both give way to something smaller; two pods are dearer to disturb than one, even a minute before their node expires.
    let keep_apart = |name: &str| {
        let lonely = pod(name).labels("app=x").anti_affinity(HOSTNAME, "app=x");
        lonely.requests("cpu=100m").running().build()
    };
    let two = old(place("a", 8).with(&keep_apart("p")).runs("q", "100m"));
    let one = place("b", 8).with(&keep_apart("r"));
    let snapshot = snapshot(vec![pool("default")], vec![two, one]);
    assert_eq!(decided(&snapshot), ["SingleNode b -> fake-it-0"]);
}

#[test]
fn budgets_bound_what_goes_together() {
    let places = || -> Vec<Place> {
        let small = (0..5).map(|at| place(&format!("a{at}"), 2).runs(&format!("p{at}"), "500m"));
        small.chain([place("big", 16).runs("q", "11").stays()]).collect()
    };
    let with = |nodes: &str| {
        let mut pool = pool("default");
        pool.disruption.budgets = vec![budget(nodes)];
        decided(&snapshot(vec![pool], places()))
    };
    assert_eq!(with("100%"), ["MultiNode a0 a1 a2 a3 a4"]);
    assert_eq!(with("3"), ["MultiNode a0 a1 a2"]);
    assert_eq!(with("50%"), ["MultiNode a0 a1 a2"], "half of six");
    assert_eq!(with("1"), ["SingleNode a0"]);
    assert!(with("0").is_empty());
}

#[test]
fn a_search_that_budgets_cut_short_is_taken_up_when_they_allow_more() {
    let places = vec![place("a", 2).runs("p", "500m"), place("big", 16).runs("q", "11").stays()];
    let snapshot_with = |nodes: &str| {
        let mut pool = pool("default");
        pool.disruption.budgets = vec![budget(nodes)];
        snapshot(vec![pool], places.clone())
    };
    let mut memory = Memory::default();
    let mut look =
        |nodes| commands(&pass(&snapshot_with(nodes), &Settings::default(), &mut memory));
    assert!(look("0").is_empty());
    assert_eq!(look("1"), ["SingleNode a"]);
}

/// A replacement is found, and what is different fifteen seconds later.
#[test]
fn replacements_are_looked_at_again() {
    let places = || vec![place("a", 16).runs("p", "1")];
    let before = snapshot(vec![pool("default")], places());
    let command = first_pass(&before).commands.remove(0);
    assert_eq!(told(&command), "SingleNode a -> fake-it-1");
    let check = |places: Vec<Place>, pool: Pool, expect: Result<&str, &str>| {
        let now = snapshot(vec![pool], places);
        let got = validate(&command, &now, &Settings::default());
        let got = got.as_ref().map(|valid| told(&valid.command)).map_err(|no| no.why.name());
        assert_eq!(got, expect.map(str::to_owned));
    };
    let types = |change: fn(&mut Vec<Arc<kerf_model::InstanceType>>)| {
        let mut pool = pool("default");
        change(&mut pool.instance_types);
        pool
    };
    let same = Ok("SingleNode a -> fake-it-1");
    check(places(), pool("default"), same);
    // What was to be bought must still be there; what has come since is no matter.
    check(places(), types(|all| drop(all.remove(3))), Err("validation_churn"));
    check(places(), types(|all| drop(all.remove(15))), Err("validation_churn"));
    let smaller = |cpu: &str| vec![place("a", 16).runs("p", cpu)];
    check(smaller("500m"), pool("default"), same);
    check(smaller("3"), pool("default"), Err("validation_churn"));
    // It could do without a replacement now: that is another move.
    let roomy = vec![place("a", 16).runs("p", "1"), place("b", 16).runs("q", "1")];
    check(roomy, pool("default"), Err("validation_churn"));
    for obstacle in [Obstacle::DoNotDisrupt, Obstacle::Budget("default/b".into())] {
        let held = vec![place("a", 16).runs("p", "1").obstacle(&obstacle)];
        check(held, pool("default"), Err("validation_churn"));
    }
}

/// Between two looks pods have come and gone, and the replacement would have to be in another zone than the one chosen.
#[test]
fn what_both_looks_want_must_be_for_sale() {
    let app = |name: &str| {
        pod(name).labels("app=x").requests("cpu=1").spread(ZONE, 1, "app=x").running().build()
    };
    let in_zone = |name: &str, zone: usize| place(name, 2).label(ZONE, ZONES[zone]).stays();
    let taken = |name: &str, zone: usize| {
        in_zone(name, zone).with(&app(name)).runs(&format!("f-{name}"), "500m")
    };
    let large = || place("a", 16).with(&app("p"));
    // The pod that is spread over zones has yet to come.
    let before = || vec![place("a", 16).runs("p", "1")];
    let command = |places: Vec<Place>, pool: &Pool| {
        let found = first_pass(&snapshot(vec![pool.clone()], places));
        let [command] = found.commands.try_into().expect("one command");
        command
    };
    let validated = |command: &Command, places: Vec<Place>, pool: &Pool| {
        let valid = validate(command, &snapshot(vec![pool.clone()], places), &Settings::default());
        valid.map(|valid| told(&valid.command)).map_err(|no| no.why)
    };
    let pool = pool("default");
    let first = vec![large(), taken("b", 1), taken("c", 2)];
    let in_first_zone = command(first.clone(), &pool);
    assert_eq!(told(&in_first_zone), "SingleNode a -> fake-it-1");
    assert_eq!(validated(&in_first_zone, first, &pool), Ok("SingleNode a -> fake-it-1".into()));
    let moved = vec![large(), taken("b", 0), taken("c", 2)];
    assert_eq!(validated(&in_first_zone, moved, &pool), Err(Blocked::ValidationSchedule));

    // Where the first look left the zone open it asked for spot, which is not sold in the third.
    let anywhere = command(before(), &pool);
    assert_eq!(told(&anywhere), "SingleNode a -> fake-it-1");
    let third = vec![large(), taken("b", 0), taken("c", 1)];
    assert_eq!(validated(&anywhere, third, &pool), Err(Blocked::ValidationSchedule));

    // Of two types the one that is sold there as spot is left, unless the pool wants both.
    let sold = |name: &str, spot_zone: usize| {
        let offerings =
            vec![(SPOT, ZONES[spot_zone]), (ON_DEMAND, ZONES[0]), (ON_DEMAND, ZONES[1])];
        TypeSpec { offerings, ..instance_type(name, "cpu=2 memory=2Gi") }.build()
    };
    let mut pool = crate::places::pool("default");
    let types = &mut pool.instance_types;
    types.retain(|one| one.name() == "fake-it-15");
    types.extend([sold("here", 0), sold("there", 1)]);
    let anywhere = command(before(), &pool);
    assert_eq!(told(&anywhere), "SingleNode a -> here");
    let second = || vec![large(), taken("b", 0), taken("c", 2)];
    assert_eq!(validated(&anywhere, second(), &pool), Ok("SingleNode a -> there".into()));
    let both = "node.kubernetes.io/instance-type Exists min 2";
    pool.requirements = requirements(both);
    let anywhere = command(before(), &pool);
    assert_eq!(validated(&anywhere, second(), &pool), Err(Blocked::ValidationSchedule));
}
