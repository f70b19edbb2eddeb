use kerf_api::{ConsolidationPolicy, DurationOrNever};
use kerf_disruption::{Blocked, Memory, Pass, Settings, pass, validate};
use kerf_model::labels::{CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, SPOT, ZONE};

use crate::build::{HOSTNAME, ZONES, pod};
use crate::places::{
    Place, ago, budget, decided, first_pass, place, pool, snapshot, static_pool, told, why,
};

fn commands(pass: &Pass) -> Vec<String> {
    pass.commands.iter().map(told).collect()
}

/// What runs on a fits on b. The other way round it does not, and one node for all would be another b.
fn roomy() -> Vec<Place> {
    let b = ["q", "r", "s", "t"].iter().fold(place("b", 8), |b, name| b.runs(name, "1700m"));
    vec![place("a", 4).runs("p", "1"), b]
}

#[test]
fn a_node_goes_whose_pods_fit_elsewhere() {
    assert_eq!(decided(&snapshot(vec![pool("default")], roomy())), ["SingleNode a"]);
}

#[test]
fn a_large_node_gives_way_to_a_small_one() {
    let places = vec![place("a", 16).runs("p", "1")];
    let snapshot = snapshot(vec![pool("default")], places);
    let pass = first_pass(&snapshot);
    assert_eq!(commands(&pass), ["SingleNode a -> fake-it-1"]);
    let command = &pass.commands[0];
    let claim = match &command.replacements[0] {
        kerf_disruption::Replacement::Planned(claim) => claim,
        kerf_disruption::Replacement::OfTemplate(_) => panic!("a plan"),
    };
    // Never a type that costs as much; spot only, because the price of spot was compared.
    assert!(!claim.instance_types.iter().any(|one| one.name() == "fake-it-15"));
    assert_eq!(claim.requirements.get(CAPACITY_TYPE).unwrap().only_value(), Some(SPOT));
    assert_eq!(command.savings, Some(command.candidates[0].price - claim.price));
}

#[test]
fn the_right_size_stays() {
    let places = vec![place("a", 2).runs("p", "1800m")];
    let pass = first_pass(&snapshot(vec![pool("default")], places));
    assert!(pass.commands.is_empty());
    assert!(why(&pass, "a")[0].starts_with("Can't replace with a cheaper node"), "{pass:?}");
}

#[test]
fn three_nodes_become_one() {
    let places: Vec<_> = ["a", "b", "c"]
        .map(|name| place(name, 8).runs(&format!("p-{name}"), "1").runs(&format!("q-{name}"), "1"))
        .into();
    let commands = decided(&snapshot(vec![pool("default")], places));
    assert_eq!(commands, ["MultiNode a b c -> fake-it-6"]);

    let places: Vec<_> = ["a", "b", "c"]
        .map(|name| place(name, 8).runs(&format!("p-{name}"), "3").with(&lonely(name)))
        .into();
    // Pods that keep apart need as many nodes, but a small one will do.
    let commands = decided(&snapshot(vec![pool("default")], places));
    assert_eq!(commands, ["SingleNode a -> fake-it-1"]);
}

/// A pod that shares a node with none of its kind.
fn lonely(name: &str) -> std::sync::Arc<kerf_model::Pod> {
    pod(&format!("lonely-{name}"))
        .labels("app=lonely")
        .requests("cpu=1")
        .anti_affinity(HOSTNAME, "app=lonely")
        .running()
        .build()
}

#[test]
fn merging_into_the_type_that_goes_is_no_gain() {
    // Two of four cores each: one of six would do, but none is on offer, and two times four is what there is.
    let places = ["a", "b"].map(|name| place(name, 4).runs(&format!("p-{name}"), "3500m"));
    let mut pool = pool("default");
    let types = vec![pool.instance_types[3].clone()];
    pool.instance_types = types;
    assert!(decided(&snapshot(vec![pool], places.into())).is_empty());
}

#[test]
fn one_bad_candidate_does_not_keep_the_others_from_merging() {
    // The stuck node is the best bargain, so that every prefix of the list has it.
    let stuck =
        place("stuck", 16).with(&pod("p").requests("cpu=1").selector("no=where").running().build());
    let places = vec![
        stuck,
        place("a", 4).runs("pa", "1").runs("qa", "500m"),
        place("b", 4).runs("pb", "1").runs("qb", "500m"),
    ];
    let commands = decided(&snapshot(vec![pool("default")], places));
    assert_eq!(commands, ["MultiNode a b"]);
}

#[test]
fn filters_have_their_reasons() {
    let node = || place("a", 16).runs("p", "1");
    let check = |place: Place, pool: kerf_model::Pool, expect: &str| {
        let pass = first_pass(&snapshot(vec![pool], vec![place]));
        assert!(pass.commands.is_empty(), "{expect}");
        let told = why(&pass, "a");
        assert!(told.iter().any(|why| why.starts_with(expect)), "{expect}: {told:?}");
    };
    let pool = || pool("default");
    check(node().label(INSTANCE_TYPE, "gone"), pool(), "Instance Type \"gone\" not found");
    check(
        node().without_label(CAPACITY_TYPE),
        pool(),
        "Node does not have label \"karpenter.sh/capacity-type\"",
    );
    check(
        node().without_label(ZONE),
        pool(),
        "Node does not have label \"topology.kubernetes.io/zone\"",
    );
    // Nothing is sold there, so nobody knows what the node costs, and whether another costs less.
    check(node().label(ZONE, "elsewhere"), pool(), "its price is unknown");
    let mut never = pool();
    never.disruption.consolidate_after = DurationOrNever::Never;
    check(node(), never, "NodePool \"default\" has consolidation disabled");
    let mut when_empty = pool();
    when_empty.disruption.policy = ConsolidationPolicy::WhenEmpty;
    let message = "NodePool \"default\" has consolidation policy WhenEmpty, but node is not empty";
    check(node(), when_empty, message);
    check(node().stays(), pool(), "its NodeClaim is not Consolidatable");
    let mut well_used = pool();
    well_used.disruption.controls.utilization_threshold = "0.01".parse().unwrap();
    check(node(), well_used, "utilization 0.03");
    let mut gentle = pool();
    gentle.disruption.controls.grace_period = "24h".parse().unwrap();
    check(node(), gentle, "a pod came or went, and the grace period lasts until ");
    let mut thrifty = pool();
    thrifty.disruption.controls.savings_threshold = "100".parse().unwrap();
    check(node(), thrifty, "it would save ");
    let mut closed = pool();
    closed.disruption.budgets = vec![budget("0")];
    check(node(), closed, "no allowed disruptions for disruption reason Underutilized");
}

#[test]
fn static_pools_are_never_consolidated_and_take_pods() {
    let fixed = static_pool("fixed");
    let places = vec![
        place("a", 16).runs("p", "1").pool("fixed"),
        place("b", 2).runs("q", "1").label(NODE_POOL, "default"),
    ];
    let commands = decided(&snapshot(vec![fixed, pool("default")], places));
    assert_eq!(commands, ["SingleNode b"]);
}

#[test]
fn settling_nodes_take_no_pods_but_new_ones_do() {
    let target = place("target", 16).runs("q", "12").settling().stays();
    let places = vec![place("a", 2).runs("p", "1"), target];
    let pass = first_pass(&snapshot(vec![pool("default")], places.clone()));
    assert!(pass.commands.is_empty(), "{:?}", commands(&pass));
    let mut places = places;
    places[1].node.disruption.last_pod_event = None;
    places[1] = places[1].clone().stays();
    assert_eq!(decided(&snapshot(vec![pool("default")], places)), ["SingleNode a"]);
}

#[test]
fn nodes_that_are_not_initialised_are_no_destination() {
    let target = place("target", 16).set(|node| node.initialized = false);
    let places = vec![place("a", 2).runs("p", "1500m"), target];
    let pass = first_pass(&snapshot(vec![pool("default")], places));
    assert!(pass.commands.is_empty(), "{:?}", commands(&pass));
    assert!(why(&pass, "a")[0].contains("not initialised"), "{:?}", why(&pass, "a"));
}

#[test]
fn zonal_spread_is_kept() {
    let app = |name: &str| {
        pod(name).labels("app=x").requests("cpu=1").spread(ZONE, 1, "app=x").running().build()
    };
    let places = vec![
        place("a", 4).with(&app("p1")),
        place("b", 4).with(&app("p2")).label(ZONE, ZONES[1]),
        place("c", 4).with(&app("p3")).label(ZONE, ZONES[2]),
    ];
    // No node can go without leaving its zone empty, but each can be replaced within it.
    let commands = decided(&snapshot(vec![pool("default")], places));
    assert_eq!(commands.len(), 1);
    assert!(commands[0].contains("->"), "{commands:?}");
}

#[test]
fn pods_that_wait_are_no_obstacle() {
    let mut snapshot = snapshot(vec![pool("default")], roomy());
    snapshot.pods = vec![pod("waiting").requests("cpu=1").selector("no=where").build()];
    assert_eq!(decided(&snapshot), ["SingleNode a"]);
}

#[test]
fn spot_needs_the_gate_and_fifteen_cheaper_types() {
    let node = || place("a", 16).runs("p", "100m").label(CAPACITY_TYPE, SPOT);
    let snapshot = snapshot(vec![pool("default")], vec![node()]);
    let pass_with = |spot_to_spot| {
        let settings = Settings { spot_to_spot, ..Settings::default() };
        pass(&snapshot, &settings, &mut Memory::default())
    };
    let closed = pass_with(false);
    assert!(closed.commands.is_empty());
    assert!(why(&closed, "a")[0].starts_with("SpotToSpotConsolidation is disabled"));
    assert_eq!(commands(&pass_with(true)), ["SingleNode a -> fake-it-0"]);
}

#[test]
fn pools_take_turns_when_looks_are_few() {
    let stuck = |name: &str| {
        place(name, 16).with(&pod(name).requests("cpu=1").selector("no=where").running().build())
    };
    let mut places: Vec<_> = (0..10).map(|number| stuck(&format!("big-{number}"))).collect();
    places.push(place("small", 2).runs("p", "100m").pool("other"));
    let snapshot = snapshot(vec![pool("default"), pool("other")], places);
    let settings = Settings { looks_per_pass: 2, ..Settings::default() };
    let pass = pass(&snapshot, &settings, &mut Memory::default());
    // Ten better bargains of the other pool do not starve it.
    assert_eq!(commands(&pass), ["SingleNode small"]);
}

#[test]
fn an_unchanged_cluster_is_not_searched_again_and_a_changed_one_is() {
    let places = vec![place("a", 2).runs("p", "1800m"), place("b", 2).runs("q", "1800m")];
    let mut snapshot = snapshot(vec![pool("default")], places);
    let settings = Settings::default();
    let mut memory = Memory::default();
    let mut refused = |snapshot: &kerf_model::Snapshot| {
        let pass = pass(snapshot, &settings, &mut memory);
        assert!(pass.commands.is_empty());
        pass.refused.len()
    };
    assert_eq!(refused(&snapshot), 2);
    assert_eq!(refused(&snapshot), 0, "known");
    snapshot.now += std::time::Duration::from_mins(5);
    assert_eq!(refused(&snapshot), 2, "after a while everything is looked at again");
    let first = std::sync::Arc::make_mut(&mut snapshot.nodes[0]);
    first.labels.insert("new".into(), "label".into());
    assert_eq!(refused(&snapshot), 2, "changed");
}

#[test]
fn a_method_that_was_wrong_lets_the_others_have_a_try() {
    let places =
        vec![place("empty", 1), place("a", 16).runs("p", "12"), place("b", 2).runs("q", "1")];
    let snapshot = snapshot(vec![pool("default")], places);
    let settings = Settings::default();
    let mut memory = Memory::default();
    let first = pass(&snapshot, &settings, &mut memory);
    assert_eq!(commands(&first), ["Emptiness empty"]);
    memory.reject(&first.commands[0]);
    let second = pass(&snapshot, &settings, &mut memory);
    assert_eq!(commands(&second), ["MultiNode a b -> fake-it-13"]);
    assert_eq!(commands(&pass(&snapshot, &settings, &mut memory)), ["Emptiness empty"]);
}

#[test]
fn commands_are_looked_at_again() {
    let settings = Settings::default();
    let places = roomy;
    let before = snapshot(vec![pool("default")], places());
    let command = first_pass(&before).commands.remove(0);
    assert_eq!(told(&command), "SingleNode a");
    let check = |places: Vec<Place>, pool, expect: Result<&str, &str>| {
        let now = snapshot(vec![pool], places);
        let got = validate(&command, &now, &settings);
        let got = got.as_ref().map(|valid| told(&valid.command)).map_err(|no| no.why.name());
        assert_eq!(got, expect.map(str::to_owned));
    };
    let pool = || pool("default");
    check(places(), pool(), Ok("SingleNode a"));
    let changed = |change: fn(&mut Place)| {
        let mut places = places();
        change(&mut places[0]);
        places
    };
    let churn = Err("validation_churn");
    check(changed(|place| *place = place.clone().stays()), pool(), churn);
    check(changed(|place| place.node.disruption.do_not_disrupt = true), pool(), churn);
    check(changed(|place| place.node.deleting = true), pool(), churn);
    check(vec![], pool(), churn);
    let budget_error = Err("validation_budget");
    let soon = |place: &mut Place| {
        place.nominated_until = Some("2027-01-01T00:00:00Z".parse().unwrap());
    };
    check(changed(soon), pool(), budget_error);
    let mut closed = pool();
    closed.disruption.budgets = vec![budget("0")];
    check(places(), closed, budget_error);
    // The place that the pod was to have is gone: it would take a new node now.
    let mut full = places();
    full[1] = full[1].clone().runs("u", "500m");
    check(full, pool(), Err("validation_churn"));
}

#[test]
fn the_controls_are_looked_at_again() {
    let mut pool = pool("default");
    pool.disruption.controls.utilization_threshold = "0.2".parse().unwrap();
    pool.disruption.controls.grace_period = "30m".parse().unwrap();
    let command = first_pass(&snapshot(vec![pool.clone()], roomy())).commands.remove(0);
    assert_eq!(told(&command), "SingleNode a");
    let check = |places: Vec<Place>, expect: Option<Blocked>| {
        let now = snapshot(vec![pool.clone()], places);
        let got = validate(&command, &now, &Settings::default()).err().map(|no| no.why);
        assert_eq!(got, expect);
    };
    let changed = |at: usize, change: fn(Place) -> Place| {
        let mut places = roomy();
        places[at] = change(places[at].clone());
        places
    };
    check(roomy(), None);
    let busy = |place: Place| place.set(|node| node.disruption.last_pod_event = Some(ago(0)));
    check(changed(0, busy), Some(Blocked::ValidationChurn));
    // A pod has come: three eighths of the memory, which the other node has to spare.
    let used =
        |place: Place| place.with(&pod("late").requests("cpu=10m memory=3Gi").running().build());
    check(changed(0, used), Some(Blocked::ValidationChurn));
    // The other node settles and takes none of its pods, which would need a new one.
    check(changed(1, Place::settling), Some(Blocked::ValidationSchedule));
    // That it is used well is no reason against what it is to take.
    let full =
        |place: Place| place.with(&pod("late").requests("cpu=10m memory=9Gi").running().build());
    check(changed(1, full), None);
}
