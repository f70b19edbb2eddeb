//! From which nodes `ReplicaSets` are to take pods first.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kerf_api::{Budget, ConsolidationPolicy, DisruptionReason, DurationOrNever, taints};
use kerf_disruption::deletion_cost::{Group, Kept, LEAVING, MOST_NODES, Ranking, rank};
use kerf_model::{
    Pod, Pool, Snapshot, Taint,
    churn::GracePeriod,
    disruption::{DeletionCost, Obstacle, PodDisruption},
    labels::INSTANCE_TYPE,
    pdb::Pdb,
    pod::Owner,
};

use crate::build::pod;
use crate::places::{Place, ago, budget, now, place, pool, snapshot, static_pool};

const NONE: DeletionCost = DeletionCost::None;

fn owned_by(name: &str, api_version: &str, kind: &str, owner: &str) -> Pod {
    let mut pod = Pod::clone(&pod(name).requests("cpu=100m").running().build());
    pod.owners = vec![Owner {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: owner.to_owned(),
        uid: owner.to_owned(),
        controller: true,
    }];
    pod
}

fn with_cost(deletion_cost: DeletionCost) -> PodDisruption {
    PodDisruption { deletion_cost, ..PodDisruption::movable() }
}

/// Runs a pod of a `ReplicaSet`.
fn replica(place: Place, name: &str, set: &str, cost: DeletionCost) -> Place {
    place.with_pod(&owned_by(name, "apps/v1", "ReplicaSet", set), with_cost(cost))
}

/// A node with one pod of the `ReplicaSet` `web`.
fn with_one(name: &str) -> Place {
    replica(place(name, 4), &format!("{name}-0"), "web", NONE)
}

fn shown(group: &Group) -> String {
    match group {
        Group::Leaving => "leaving".to_owned(),
        Group::Drifted { .. } => "drifted".to_owned(),
        Group::Dispensable { .. } => "dispensable".to_owned(),
        Group::Kept(Kept::Pinned { pod }) => format!("pinned by {pod}"),
        Group::Kept(Kept::Blocked(why)) => why.name().to_owned(),
    }
}

/// The nodes in their order, with their groups.
fn groups(snapshot: &Snapshot) -> Vec<String> {
    let ranking = rank(snapshot);
    ranking.nodes.iter().map(|node| format!("{} {}", node.node, shown(&node.group))).collect()
}

fn of_default(places: Vec<Place>) -> Snapshot {
    snapshot(vec![pool("default")], places)
}

/// What the pods get, by name.
fn wishes(ranking: &Ranking) -> BTreeMap<String, Option<i32>> {
    ranking.due().map(|wish| (wish.name.clone(), wish.cost)).collect()
}

/// The snapshot after everything that is due has been written.
fn written(mut snapshot: Snapshot) -> Snapshot {
    let wishes = wishes(&rank(&snapshot));
    for node in &mut snapshot.nodes {
        for pod in &mut Arc::make_mut(node).pods {
            if let Some(cost) = wishes.get(&pod.name) {
                Arc::make_mut(pod).disruption.deletion_cost =
                    cost.map_or(NONE, DeletionCost::Managed);
            }
        }
    }
    snapshot
}

#[test]
fn every_node_is_in_a_group() {
    let check = |change: fn(Place) -> Place, expected: &str| {
        let got = groups(&of_default(vec![change(with_one("a"))]));
        assert_eq!(got, [format!("a {expected}")]);
    };
    check(|place| place, "dispensable");
    check(|place| place.set(|node| node.deleting = true), "leaving");
    check(|place| Place { in_queue: true, ..place }, "leaving");
    check(|place| place.set(|node| node.taints.push(Taint::from(&taints::disrupted()))), "leaving");
    check(|place| place.set(|node| node.disruption.drifted_since = Some(ago(1))), "drifted");
    check(|place| place.set(|node| node.initialized = false), "not_ready");
    check(|place| place.set(|node| node.exists = false), "not_ready");
    check(|place| place.set(|node| node.disruption.do_not_disrupt = true), "do_not_disrupt");
    check(|place| place.set(|node| node.disruption.unreadable = Some("x".into())), "unreadable");
    check(|place| place.pool("other"), "pool_not_found");
    check(
        |place| Place { nominated_until: Some(now() + Duration::from_secs(9)), ..place },
        "nominated",
    );
    check(|place| place.label(INSTANCE_TYPE, "unknown"), "unknown_price");
    check(|place| place.without_label(INSTANCE_TYPE), "dispensable");
    check(|place| place.obstacle(&Obstacle::DoNotDisrupt), "do_not_disrupt");
    check(|place| place.obstacle(&Obstacle::Budget("default/b".into())), "pdb");
    // Nothing may have happened for how long: what a scale-down removes need not be quiet.
    check(Place::settling, "dispensable");
    // Even the least of reasons to stay counts before drift.
    check(
        |place| {
            let place = place.set(|node| node.disruption.drifted_since = Some(ago(1)));
            place.obstacle(&Obstacle::DoNotDisrupt)
        },
        "do_not_disrupt",
    );
}

#[test]
fn nodes_of_others_are_no_business_of_kerfs() {
    let foreign = with_one("a").set(|node| node.claim = None);
    assert_eq!(groups(&of_default(vec![foreign])), [""; 0]);
    // A cost that Kerf has given a pod there goes all the same.
    let marked = replica(place("a", 4), "p", "web", DeletionCost::Managed(-5));
    let ranking = rank(&of_default(vec![marked.set(|node| node.claim = None)]));
    assert_eq!(wishes(&ranking), BTreeMap::from([("p".to_owned(), None)]));
}

#[test]
fn a_pod_that_no_scale_down_takes_away_pins_its_node() {
    let check = |namespace: &str, api_version: &str, kind: &str, expected: &str| {
        let mut other = owned_by("p", api_version, kind, "owner");
        other.namespace = namespace.to_owned();
        if kind.is_empty() {
            other.owners.clear();
        }
        let got = groups(&of_default(vec![with_one("a").with(&other)]));
        assert_eq!(got, [format!("a {expected}")], "{kind}");
    };
    check("default", "apps/v1", "ReplicaSet", "dispensable");
    check("default", "batch/v1", "Job", "dispensable");
    check("default", "apps/v1", "StatefulSet", "pinned by default/p");
    check("default", "v1", "ReplicationController", "pinned by default/p");
    check("default", "example.com/v1", "ReplicaSet", "pinned by default/p");
    check("default", "", "", "pinned by default/p");
    check("kube-system", "apps/v1", "StatefulSet", "dispensable");
    // A daemon goes with its node.
    let daemon = owned_by("p", "apps/v1", "DaemonSet", "logs");
    let with_daemon = with_one("a")
        .with_pod(&daemon, PodDisruption { reschedulable: false, ..PodDisruption::movable() });
    assert_eq!(groups(&of_default(vec![with_daemon])), ["a dispensable"]);
}

#[test]
fn a_pool_says_whether_its_nodes_may_go() {
    let check = |change: fn(&mut Pool), place: Place, expected: &str| {
        let mut default = pool("default");
        change(&mut default);
        assert_eq!(groups(&snapshot(vec![default], vec![place])), [format!("a {expected}")]);
    };
    let drifted = || with_one("a").set(|node| node.disruption.drifted_since = Some(ago(1)));
    let never = |pool: &mut Pool| pool.disruption.consolidate_after = DurationOrNever::Never;
    check(never, with_one("a"), "consolidation_disabled");
    check(never, drifted(), "drifted");
    let is_static = |pool: &mut Pool| *pool = static_pool("default");
    check(is_static, with_one("a"), "static_pool");
    check(is_static, drifted(), "static_pool");
}

/// What Kerf's own controls keep from consolidation is not emptied either.
#[test]
fn nodes_that_the_controls_hold_back_are_kept() {
    let check = |change: fn(&mut Pool), place: fn() -> Place, expected: &str| {
        for (policy, expected) in [
            (ConsolidationPolicy::WhenEmptyOrUnderutilized, expected),
            (ConsolidationPolicy::Balanced, expected),
            // There only empty nodes go, and no control has a say.
            (ConsolidationPolicy::WhenEmpty, "dispensable"),
        ] {
            let mut default = pool("default");
            change(&mut default);
            default.disruption.policy = policy;
            let got = groups(&snapshot(vec![default], vec![place()]));
            assert_eq!(got, [format!("a {expected}")], "{policy:?}");
        }
    };
    let utilization =
        |pool: &mut Pool| pool.disruption.controls.utilization_threshold = "0.01".parse().unwrap();
    check(utilization, || with_one("a"), "utilization");
    let savings =
        |pool: &mut Pool| pool.disruption.controls.savings_threshold = "100".parse().unwrap();
    check(savings, || with_one("a"), "savings_threshold");
    let grace = |pool: &mut Pool| {
        pool.disruption.controls.grace_period = GracePeriod::For(Duration::from_hours(1));
    };
    let busy = || with_one("a").set(|node| node.disruption.last_pod_event = Some(ago(5)));
    check(grace, busy, "grace_period");
    // A factor is about replacements, of which there is none.
    let factor = |pool: &mut Pool| {
        pool.disruption.controls.price_improvement_factor = "0".parse().unwrap();
    };
    check(factor, || with_one("a"), "dispensable");
}

/// A scale-down takes a pod of the node, and the next one should find it again.
#[test]
fn what_holds_for_a_moment_takes_no_cost_away() {
    let mut patient = pool("default");
    patient.disruption.controls.grace_period = GracePeriod::For(Duration::from_hours(1));
    let check = |change: &dyn Fn(Place) -> Place, without: &str| {
        for (cost, expected) in [(NONE, without), (DeletionCost::Managed(-5), "dispensable")] {
            let place = replica(place("a", 4), "p", "web", cost);
            let snapshot = snapshot(vec![patient.clone()], vec![change(place)]);
            assert_eq!(groups(&snapshot), [format!("a {expected}")]);
        }
    };
    let busy = |place: Place| place.set(|node| node.disruption.last_pod_event = Some(ago(5)));
    check(&busy, "grace_period");
    let expected =
        |place: Place| Place { nominated_until: Some(now() + Duration::from_secs(9)), ..place };
    check(&expected, "nominated");
    let used_up = |mut place: Place| {
        place = place.obstacle(&Obstacle::Budget("default/b".into()));
        place.pdbs = place.pdbs.into_iter().map(|pdb| Pdb { never_allows: false, ..pdb }).collect();
        place
    };
    check(&used_up, "pdb");
}

#[test]
fn budgets_bound_how_many_nodes_are_emptied_at_once() {
    let of = |budgets: Vec<Budget>| {
        let mut default = pool("default");
        default.disruption.budgets = budgets;
        default
    };
    let only = |reason, nodes: &str| Budget { reasons: Some(vec![reason]), ..budget(nodes) };
    let drifted =
        |name: &str| with_one(name).set(|node| node.disruption.drifted_since = Some(ago(1)));
    let four = || vec![with_one("a"), with_one("b"), drifted("c"), drifted("d")];
    let check = |pool: Pool, places: Vec<Place>, expected: &[&str]| {
        assert_eq!(groups(&snapshot(vec![pool], places)), expected);
    };
    check(of(vec![budget("1")]), four(), &["c drifted", "a dispensable", "b budget", "d budget"]);
    check(
        of(vec![only(DisruptionReason::Drifted, "0")]),
        four(),
        &["a dispensable", "b dispensable", "c budget", "d budget"],
    );
    check(
        of(vec![only(DisruptionReason::Underutilized, "1")]),
        four(),
        &["c drifted", "d drifted", "a dispensable", "b budget"],
    );
    let mut only_empty = of(vec![only(DisruptionReason::Empty, "1")]);
    only_empty.disruption.policy = ConsolidationPolicy::WhenEmpty;
    check(only_empty, four(), &["c drifted", "d drifted", "a dispensable", "b budget"]);
    // A node that is leaving counts.
    let leaving = with_one("e").set(|node| node.deleting = true);
    check(of(vec![budget("1")]), vec![with_one("a"), leaving], &["e leaving", "a budget"]);
}

#[test]
fn the_best_bargain_comes_first_and_drifted_nodes_before_others() {
    let with = |name: &str, cores: usize, pods: usize| {
        (0..pods).fold(place(name, cores), |place, nth| {
            replica(place, &format!("{name}-{nth}"), "web", NONE)
        })
    };
    let drifted = with("drifted", 1, 9).set(|node| node.disruption.drifted_since = Some(ago(1)));
    let places = vec![with("cheap", 2, 1), with("dear", 8, 1), with("full", 8, 15), drifted];
    let snapshot = written(of_default(places));
    let order: Vec<_> = rank(&snapshot).nodes.iter().map(|node| node.node.clone()).collect();
    assert_eq!(order, ["drifted", "dear", "cheap", "full"]);
    let cost = |node: &str| {
        let node = snapshot.nodes.iter().find(|one| one.name == node).expect("it is there");
        match node.pods[0].disruption.deletion_cost {
            DeletionCost::Managed(cost) => cost,
            other => panic!("{other:?}"),
        }
    };
    let costs: Vec<_> = order.iter().map(|node| cost(node)).collect();
    assert!(costs.is_sorted_by(|a, b| a < b), "{costs:?}");
    assert!(costs[0] > LEAVING && costs[3] < 0, "{costs:?}");
}

/// A new node with a lower name is no reason to begin with it.
#[test]
fn of_equal_nodes_those_go_first_that_were_chosen_before() {
    let mut one_at_a_time = pool("default");
    one_at_a_time.disruption.budgets = vec![budget("1")];
    let with = |name: &str, cost: DeletionCost| replica(place(name, 4), name, "web", cost);
    let check = |pool: Pool, costs: [(&str, Option<i32>); 3], expected: &[&str]| {
        let managed = |cost: Option<i32>| cost.map_or(NONE, DeletionCost::Managed);
        let places = costs.map(|(name, cost)| with(name, managed(cost))).to_vec();
        assert_eq!(groups(&snapshot(vec![pool], places)), expected, "{costs:?}");
    };
    let chosen = [("a", None), ("b", Some(-5)), ("c", None)];
    check(one_at_a_time, chosen, &["b dispensable", "a budget", "c budget"]);
    let all = ["c dispensable", "b dispensable", "a dispensable"];
    check(pool("default"), [("a", None), ("b", Some(-5)), ("c", Some(-9))], &all);
    // Where one is the better bargain, that counts.
    let better = place("d", 8);
    let places = vec![with("a", DeletionCost::Managed(-5)), replica(better, "d", "web", NONE)];
    let snapshot = snapshot(vec![pool("default")], places);
    assert_eq!(groups(&snapshot), ["d dispensable", "a dispensable"]);
}

#[test]
fn only_pods_of_replica_sets_get_a_cost() {
    let job = owned_by("job", "batch/v1", "Job", "job");
    let leaving = PodDisruption { active: false, ..PodDisruption::movable() };
    let ended = owned_by("ended", "apps/v1", "ReplicaSet", "web");
    let place = with_one("a").with(&job).with_pod(&ended, leaving);
    let got = wishes(&rank(&of_default(vec![place])));
    assert_eq!(got.keys().collect::<Vec<_>>(), ["a-0"]);
    assert!(got["a-0"].is_some_and(|cost| cost < 0));
}

#[test]
fn a_pod_that_comes_to_a_node_gets_its_cost() {
    let place = replica(with_one("a"), "p", "web", DeletionCost::Managed(-5));
    let place = replica(place, "q", "other", NONE);
    let got = wishes(&rank(&of_default(vec![place])));
    let expected = [("a-0".to_owned(), Some(-5)), ("q".to_owned(), Some(-5))];
    assert_eq!(got, BTreeMap::from(expected));
}

#[test]
fn a_replica_set_with_a_cost_of_somebody_else_is_left_alone() {
    let a = replica(place("a", 4), "web-0", "web", DeletionCost::Managed(-5));
    let a = replica(a, "other-0", "other", NONE);
    let b = replica(place("b", 4), "web-1", "web", DeletionCost::Foreign);
    let ranking = rank(&of_default(vec![a, b]));
    let got = wishes(&ranking);
    // The user's stays, and what Kerf has written beside it goes.
    assert_eq!(got.get("web-0"), Some(&None));
    assert_eq!(got.get("web-1"), None);
    assert_eq!(got.get("other-0"), Some(&Some(-5)));
}

#[test]
fn a_node_that_is_kept_loses_its_costs_unless_it_cannot_be_read() {
    let place = || replica(place("a", 4), "p", "web", DeletionCost::Managed(-5));
    let kept = place().set(|node| node.disruption.do_not_disrupt = true);
    let got = wishes(&rank(&of_default(vec![kept])));
    assert_eq!(got, BTreeMap::from([("p".to_owned(), None)]));
    let unreadable = place().set(|node| node.disruption.unreadable = Some("x".into()));
    assert!(wishes(&rank(&of_default(vec![unreadable]))).is_empty());
}

#[test]
fn an_order_that_stays_is_not_written_again() {
    let many: Vec<_> = (0..9).map(|nth| with_one(&format!("n{nth}"))).collect();
    let settled = written(of_default(many));
    assert!(wishes(&rank(&settled)).is_empty());
    // A node goes, and nothing changes for the others.
    let mut fewer = settled.clone();
    fewer.nodes.remove(4);
    assert!(wishes(&rank(&fewer)).is_empty());
    // A node comes between the others: its own pods are all that is written.
    let mut more = settled.clone();
    let between = of_default(vec![with_one("n44")]);
    more.nodes.extend(between.nodes);
    let got = wishes(&rank(&more));
    assert_eq!(got.keys().collect::<Vec<_>>(), ["n44-0"]);
    // A node leaves.
    let mut leaving = settled;
    Arc::make_mut(&mut leaving.nodes[2]).deleting = true;
    let got = wishes(&rank(&leaving));
    assert_eq!(got, BTreeMap::from([("n2-0".to_owned(), Some(LEAVING))]));
    let settled = written(leaving);
    // It stays after all.
    let mut back = settled;
    Arc::make_mut(&mut back.nodes[2]).deleting = false;
    let got = wishes(&rank(&back));
    assert_eq!(got.keys().collect::<Vec<_>>(), ["n2-0"]);
    assert!(got["n2-0"].is_some_and(|cost| cost > LEAVING));
}

#[test]
fn one_round_changes_fifty_nodes_beside_those_that_are_leaving() {
    let name = |nth: usize| format!("n{nth:03}");
    let places = (0..60).map(|nth| with_one(&name(nth)));
    let leaving = (60..120).map(|nth| with_one(&name(nth)).set(|node| node.deleting = true));
    let first = of_default(places.chain(leaving).collect());
    let ranking = rank(&first);
    assert_eq!(ranking.waiting(), BTreeMap::from([("default", 120)]));
    let got = wishes(&ranking);
    let least = got.values().filter(|cost| **cost == Some(LEAVING)).count();
    assert_eq!((least, got.len()), (60, 60 + MOST_NODES));
    // The best come first, and the rest in the next round.
    assert!(got.contains_key("n000-0") && !got.contains_key("n059-0"));
    let second = written(first);
    let ranking = rank(&second);
    assert_eq!(ranking.waiting(), BTreeMap::from([("default", 10)]));
    assert_eq!(wishes(&ranking).len(), 10);
    let third = rank(&written(second));
    assert!(wishes(&third).is_empty());
    assert_eq!(third.waiting(), BTreeMap::from([("default", 0)]));
}
