use std::sync::Arc;

use kerf_model::{
    Node, Pod,
    disruption::{PodDisruption, PoolDisruption},
};

use super::*;

fn price(text: &str) -> Price {
    text.parse().unwrap()
}

fn cost(units: i64) -> Cost {
    Cost(units * Cost::ONE.0)
}

/// A node with this many ordinary pods.
fn candidate(pool: &str, value: &str, pods: i64) -> Candidate {
    Candidate {
        pool: pool.to_owned(),
        price: price(value),
        rescheduling_cost: cost(1 + pods),
        disruption_cost: cost(pods),
        ..Candidate::default()
    }
}

fn pool(policy: ConsolidationPolicy) -> Arc<Pool> {
    let disruption = PoolDisruption { policy, ..PoolDisruption::default() };
    Arc::new(Pool { disruption, ..Pool::default() })
}

/// Pools `a` and `b` are balanced, any other is not.
fn pools() -> BTreeMap<String, Arc<Pool>> {
    let balanced = ["a", "b"].map(|name| (name.to_owned(), pool(ConsolidationPolicy::Balanced)));
    let mut pools = BTreeMap::from(balanced);
    pools.insert("plain".to_owned(), pool(ConsolidationPolicy::WhenEmptyOrUnderutilized));
    pools
}

/// Nodes of pools: `(pool, price, pods, number of such nodes)`.
fn totals(nodes: &[(&str, &str, i64, usize)]) -> NodePoolTotals {
    let mut totals = NodePoolTotals::default();
    for (pool, value, pods, number) in nodes {
        for _ in 0..*number {
            totals.add(pool, price(value), cost(1 + pods));
        }
    }
    totals
}

fn check(
    totals: &NodePoolTotals,
    moved: &[(&str, &str, i64)],
    replacement: &str,
    scores: &[(&str, f64, bool)],
) {
    let candidates: Vec<_> =
        moved.iter().map(|(pool, value, pods)| candidate(pool, value, *pods)).collect();
    let whole: Price = candidates.iter().map(|candidate| candidate.price).sum();
    let savings = whole - price(replacement);
    let verdict = totals.weigh(&candidates.iter().collect::<Vec<_>>(), savings, &pools());
    let got: Vec<_> =
        verdict.scores.iter().map(|one| (one.pool.as_str(), one.value(), one.approved)).collect();
    assert_eq!(got.len(), scores.len(), "{moved:?} {got:?}");
    for (got, expect) in got.iter().zip(scores) {
        assert!((got.1 - expect.1).abs() < 1e-9, "{moved:?} {got:?}");
        assert_eq!((got.0, got.2), (expect.0, expect.2), "{moved:?} {replacement} {got:?}");
    }
    let approved = scores.iter().all(|(_, _, approved)| *approved);
    assert_eq!(verdict.result().is_ok(), approved, "{moved:?} {replacement}");
    assert_eq!(savings >= verdict.required, approved, "{moved:?} {replacement} {verdict:?}");
}

#[test]
fn savings_are_weighed_against_disruption() {
    let uniform = totals(&[("a", "1", 10, 10)]);
    let one = [("a", "1", 10)];
    // In a pool of equals a removal saves as large a part as it disturbs.
    check(&uniform, &one, "0", &[("a", 1.0, true)]);
    // Half price is exactly good enough, and a little more is not.
    check(&uniform, &one, "0.5", &[("a", 0.5, true)]);
    check(&uniform, &one, "0.5000000001", &[("a", 0.499_999_999_9, false)]);
    check(&uniform, &one, "0.95", &[("a", 0.05, false)]);
    check(&uniform, &one, "1", &[("a", 0.0, false)]);
    check(&uniform, &one, "2", &[("a", 0.0, false)]);
    // Several at once.
    check(&uniform, &[one[0], one[0]], "0.9", &[("a", 0.55, true)]);
    check(&uniform, &[one[0], one[0]], "1.1", &[("a", 0.45, false)]);
    // The only node of a pool.
    check(&totals(&[("a", "1", 10, 1)]), &one, "0", &[("a", 1.0, true)]);

    // An oversized node with little on it: 4 of 13 dollars, 3 of 102 units.
    let oversized = totals(&[("a", "1", 10, 9), ("a", "4", 2, 1)]);
    check(&oversized, &[("a", "4", 2)], "1", &[("a", (3.0 / 13.0) / (3.0 / 102.0), true)]);
    // A well packed one: a marginal saving for many pods.
    let packed = totals(&[("a", "1", 5, 9), ("a", "1", 50, 1)]);
    check(&packed, &[("a", "1", 50)], "0.9", &[("a", 0.01 / (51.0 / 105.0), false)]);
    check(&packed, &[("a", "1", 50)], "0", &[("a", 0.1 / (51.0 / 105.0), false)]);
    check(&packed, &[("a", "1", 5)], "0.9", &[("a", 0.01 / (6.0 / 105.0), false)]);
    check(&packed, &[("a", "1", 5)], "0.7", &[("a", 0.03 / (6.0 / 105.0), true)]);
}

#[test]
fn the_score_does_not_depend_on_the_scale() {
    for (value, replacement) in [("0.0001", "0.00005"), ("1", "0.5"), ("1000", "500")] {
        for number in [1, 10, 1000] {
            let uniform = totals(&[("a", value, 10, number)]);
            let score = 0.5;
            check(&uniform, &[("a", value, 10)], replacement, &[("a", score, true)]);
        }
    }
}

#[test]
fn without_totals_nothing_is_approved() {
    check(&NodePoolTotals::default(), &[("a", "1", 1)], "0", &[("a", 0.0, false)]);
    check(&totals(&[("a", "0", 1, 3)]), &[("a", "0", 1)], "0", &[("a", 0.0, false)]);
    // Nodes without a price still count as something to disturb.
    let half = totals(&[("a", "1", 10, 1), ("a", "0", 10, 1)]);
    check(&half, &[("a", "1", 10)], "0", &[("a", 2.0, true)]);
}

#[test]
fn other_policies_do_not_weigh() {
    let mixed = totals(&[("a", "1", 10, 10), ("plain", "1", 10, 10)]);
    check(&mixed, &[("plain", "1", 10)], "0.99", &[]);
    check(&mixed, &[("unheard-of", "1", 10)], "0.99", &[]);
    // Where pools are mixed the balanced one alone is asked, about its share.
    check(&mixed, &[("plain", "1", 10), ("a", "1", 10)], "1", &[("a", 0.5, true)]);
    check(&mixed, &[("plain", "1", 10), ("a", "1", 10)], "1.01", &[("a", 0.495, false)]);
}

#[test]
fn every_balanced_pool_has_to_approve() {
    let both = totals(&[("a", "1", 10, 10), ("b", "1", 10, 10)]);
    let moved = [("a", "1", 10), ("b", "1", 10)];
    check(&both, &moved, "1", &[("a", 0.5, true), ("b", 0.5, true)]);
    let uneven = totals(&[("a", "1", 10, 10), ("b", "1", 5, 9), ("b", "1", 10, 1)]);
    // 0.05 of 10 dollars for 11 of 65 units.
    check(&uneven, &moved, "1", &[("a", 0.5, true), ("b", 0.05 / (11.0 / 65.0), false)]);
    // Thirds are shared out without rounding: a pays a third of the price, and exactly half of it is saved.
    let thirds = totals(&[("a", "0.1", 10, 3), ("b", "0.2", 10, 3)]);
    let moved = [("a", "0.1", 10), ("b", "0.2", 10)];
    check(&thirds, &moved, "0.15", &[("a", 0.5, true), ("b", 0.5, true)]);
    check(
        &thirds,
        &moved,
        "0.1500000001",
        &[("a", 0.499_999_999_7, false), ("b", 0.499_999_999_7, false)],
    );
    // A pool whose nodes have no price gets no share.
    let worthless = totals(&[("a", "1", 10, 10), ("b", "0", 10, 5), ("b", "1", 10, 5)]);
    check(
        &worthless,
        &[("a", "1", 10), ("b", "0", 10)],
        "0",
        &[("a", 1.0, true), ("b", 0.0, false)],
    );
}

#[test]
fn nodes_that_no_move_could_be_worth_are_not_tried() {
    let packed = totals(&[("a", "1", 5, 9), ("a", "1", 50, 1), ("plain", "1", 50, 1)]);
    let check = |totals: &NodePoolTotals, pool: &str, pods, passes: bool| {
        let result = totals.may_pass(&candidate(pool, "1", pods), &pools());
        assert_eq!(result.is_ok(), passes, "{pool} {pods} {result:?}");
    };
    check(&packed, "a", 5, true);
    check(&packed, "a", 50, false);
    check(&packed, "plain", 50, true);
    // Where nothing is known nothing is ruled out beforehand.
    check(&NodePoolTotals::default(), "a", 50, true);
    check(&totals(&[("a", "0", 5, 9)]), "a", 50, true);
}

#[test]
fn totals_are_those_of_all_nodes() {
    let offering = kerf_model::Offering {
        requirements: kerf_model::Requirements::new([
            kerf_model::Requirement::is_in(CAPACITY_TYPE, ["spot"]),
            kerf_model::Requirement::is_in(ZONE, ["z"]),
        ]),
        price: price("0.25"),
        // What runs has its price, whether more of it can be bought or not.
        available: false,
        ..kerf_model::Offering::default()
    };
    let instance_type = kerf_model::InstanceType::new(
        "m",
        kerf_model::Requirements::default(),
        vec![offering],
        kerf_model::Resources::new(),
        kerf_model::Overhead::default(),
    );
    let mut balanced = pool(ConsolidationPolicy::Balanced);
    Arc::make_mut(&mut balanced).instance_types = vec![Arc::new(instance_type)];
    let pod = |reschedulable, counted, units| {
        let eviction_cost = cost(units);
        let disruption =
            PodDisruption { reschedulable, counted, eviction_cost, ..PodDisruption::default() };
        Arc::new(Pod { disruption, ..Pod::default() })
    };
    // A pod that is leaving and a daemon, beside an ordinary one and one without disruption cost.
    let pods =
        || vec![pod(true, true, 1), pod(false, true, 2), pod(false, false, 4), pod(true, true, -8)];
    let node = |pool: &str, type_name: &str| {
        let labels = [(INSTANCE_TYPE, type_name), (ZONE, "z"), (CAPACITY_TYPE, "spot")];
        Arc::new(Node {
            pool: Some(pool.to_owned()),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            pods: pods(),
            ..Node::default()
        })
    };
    let snapshot = Snapshot {
        nodes: vec![node("a", "m"), node("a", "m"), node("a", "unknown"), node("plain", "m")],
        pools: BTreeMap::from([
            ("a".to_owned(), balanced),
            ("plain".to_owned(), pool(ConsolidationPolicy::WhenEmptyOrUnderutilized)),
        ]),
        ..Snapshot::default()
    };
    // The first is a candidate and counts as such; the others by what is on them.
    let NodePoolTotals(totals) = NodePoolTotals::of(&snapshot, &[candidate("a", "0.25", 1)]);
    let all: Vec<_> =
        totals.iter().map(|(pool, total)| (pool.as_str(), total.price, total.cost)).collect();
    assert_eq!(all, [("a", price("0.5"), cost(2 + 4 + 4))]);
}
