use jiff::SignedDuration;
use kerf_api::{ConsolidationPolicy, DurationOrNever};
use kerf_model::disruption::{Cost, PodDisruption};

use crate::build::pod;
use crate::places::{budget, decided, first_pass, now, place, pool, snapshot, static_pool, why};

#[test]
fn all_empty_nodes_go_in_one_command() {
    let full = place("full", 4).runs("p", "1");
    let places = vec![place("a", 1), place("b", 2), full];
    assert_eq!(decided(&snapshot(vec![pool("default")], places)), ["Emptiness b a"]);
}

#[test]
fn daemons_and_pods_that_nobody_would_miss_leave_a_node_empty() {
    let daemon = PodDisruption { eviction_cost: Cost::ONE, ..PodDisruption::default() };
    let unloved = PodDisruption { reschedulable: true, counted: true, ..PodDisruption::default() };
    let places = vec![
        place("a", 1).with_pod(&pod("d").daemon().running().build(), daemon),
        // A priority of -2^25 makes a pod's cost nothing.
        place("b", 1).with_pod(&pod("p").running().build(), unloved),
    ];
    assert_eq!(decided(&snapshot(vec![pool("default")], places)), ["Emptiness a b"]);
}

#[test]
fn policies_do_not_matter_but_never_does() {
    use ConsolidationPolicy::{Balanced, WhenEmpty, WhenEmptyOrUnderutilized};
    for policy in [WhenEmpty, WhenEmptyOrUnderutilized, Balanced] {
        let mut default = pool("default");
        default.disruption.policy = policy;
        let snapshot = snapshot(vec![default], vec![place("a", 1)]);
        assert_eq!(decided(&snapshot), ["Emptiness a"], "{policy:?}");
    }
    let mut default = pool("default");
    default.disruption.consolidate_after = DurationOrNever::Never;
    let pass = first_pass(&snapshot(vec![default], vec![place("a", 1)]));
    assert!(pass.commands.is_empty());
    assert!(
        why(&pass, "a").contains(&"NodePool \"default\" has consolidation disabled".to_owned())
    );
}

#[test]
fn nodes_that_are_not_consolidatable_stay() {
    let places = vec![place("a", 1).stays()];
    let pass = first_pass(&snapshot(vec![pool("default")], places));
    assert!(pass.commands.is_empty());
    assert!(why(&pass, "a")[0].contains("not Consolidatable"));
}

/// A moment later the condition of its claim says so as well. In that moment it would be the best place for the pods of another.
#[test]
fn a_node_whose_time_has_just_come_goes_and_takes_no_pods() {
    let check = |seconds: i64, expected: &[&str]| {
        let empty = place("empty", 4).set(|node| {
            node.disruption.consolidatable = false;
            node.disruption.last_pod_event = Some(now() - SignedDuration::from_secs(seconds));
        });
        let places = vec![empty, place("full", 4).runs("p", "3500m")];
        assert_eq!(decided(&snapshot(vec![pool("default")], places)), expected, "{seconds}");
    };
    check(59, &[]);
    check(60, &["Emptiness empty"]);
    check(61, &["Emptiness empty"]);
}

#[test]
fn static_pools_keep_their_empty_nodes() {
    assert!(decided(&snapshot(vec![static_pool("default")], vec![place("a", 1)])).is_empty());
}

#[test]
fn budgets_count_per_pool() {
    let cases = [("3", "3", 6), ("100%", "0", 4), ("0", "0%", 0), ("10%", "2", 3)];
    for (first, second, taken) in cases {
        let (mut a, mut b) = (pool("a"), pool("b"));
        a.disruption.budgets = vec![budget(first)];
        b.disruption.budgets = vec![budget(second)];
        let places = (0..4).flat_map(|number| {
            ["a", "b"].map(|pool| place(&format!("{pool}{number}"), 1).pool(pool))
        });
        let pass = first_pass(&snapshot(vec![a, b], places.collect()));
        let nodes: usize = pass.commands.iter().map(|command| command.candidates.len()).sum();
        assert_eq!(nodes, taken, "{first} {second}");
        let refused = pass.refused.iter().filter(|one| one.why.name() == "budget").count();
        assert_eq!(refused, 8 - taken, "{first} {second}");
    }
}

#[test]
fn nodes_on_their_way_out_and_not_ready_ones_use_the_budget_up() {
    let mut default = pool("default");
    default.disruption.budgets = vec![budget("2")];
    let places = vec![
        place("a", 1),
        place("b", 1),
        place("gone", 1).set(|node| node.disruption.instance_terminating = true),
        place("leaving", 1).set(|node| node.deleting = true),
        place("starting", 1).set(|node| node.initialized = false),
        place("foreign", 1).set(|node| {
            node.claim = None;
            node.disruption.ready = false;
        }),
    ];
    assert_eq!(decided(&snapshot(vec![default.clone()], places.clone())), ["Emptiness a"]);
    let mut places = places;
    places[1].node.disruption.ready = false;
    assert!(decided(&snapshot(vec![default], places)).is_empty());
}
