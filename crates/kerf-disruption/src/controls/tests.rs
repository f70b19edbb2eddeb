use std::{sync::Arc, time::Duration};

use kerf_model::{
    Pod, Pool, Price, Resources,
    disruption::{Cost, NodeDisruption, PoolDisruption, StaticPool},
    resources::{CPU, MEMORY},
};

use super::*;
use crate::Candidate;

fn price(text: &str) -> Price {
    text.parse().unwrap()
}

fn at(text: &str) -> Timestamp {
    format!("2026-01-10T{text}Z").parse().unwrap()
}

fn node(allocatable: [&str; 2], requests: &[[&str; 2]]) -> Node {
    let resources = |[cpu, memory]: [&str; 2]| {
        Resources::new().with(CPU, cpu.parse().unwrap()).with(MEMORY, memory.parse().unwrap())
    };
    let pods = requests
        .iter()
        .map(|requests| Arc::new(Pod { requests: resources(*requests), ..Pod::default() }))
        .collect();
    Node { allocatable: resources(allocatable), pods, ..Node::default() }
}

/// A node that lives from midnight to ten.
fn mortal() -> NodeDisruption {
    NodeDisruption {
        created: Some(at("00:00:00")),
        expire_after: Some(Duration::from_hours(10)),
        ..NodeDisruption::default()
    }
}

fn with(disruption: NodeDisruption) -> Node {
    Node { pool: Some("p".to_owned()), disruption, ..Node::default() }
}

#[test]
fn well_used_nodes_are_left_alone() {
    let check = |node: &Node, threshold: &str, have: Option<&str>| {
        let controls = ChurnControls {
            utilization_threshold: threshold.parse().unwrap(),
            ..ChurnControls::default()
        };
        let expect = have.map_or(Ok(()), |have| {
            let (have, threshold) = (have.parse().unwrap(), threshold.parse().unwrap());
            Err(Blocked::Utilization { have, threshold })
        });
        let result = utilization(node, &controls, at("01:00:00"));
        assert_eq!(result, expect, "{threshold}, {:?}", node.pods);
    };
    let whole = ["4", "16Gi"];
    // Exactly at the threshold is not above it.
    check(&node(whole, &[["3.2", "11.2Gi"]]), "0.75", None);
    check(&node(whole, &[["1.2", "1.2Gi"], ["2", "10Gi"]]), "0.75", None);
    check(&node(whole, &[["3.3", "11.2Gi"]]), "0.75", Some("0.7625"));
    // One thousandth of a CPU, one byte.
    check(&node(whole, &[["3201m", "11.2Gi"]]), "0.75", Some("0.7502"));
    check(&node(["4", "16"], &[["3", "12"]]), "0.75", None);
    check(&node(["4", "16"], &[["3", "13"]]), "0.75", Some("0.7813"));
    // The node of kubernetes-sigs/karpenter#2319, at 96 percent of both.
    check(&node(whole, &[["3.84", "15.36Gi"]]), "0.75", Some("0.96"));
    check(&node(whole, &[["3.84", "15.36Gi"]]), "1.0", None);
    // 1 is off, though more than everything can be requested.
    check(&node(whole, &[["4.4", "17.6Gi"]]), "1.0", None);
    check(&node(whole, &[["4.4", "17.6Gi"]]), "0.999999999", Some("1"));
    // One resource alone is half of the average at most.
    check(&node(whole, &[["4", "0"]]), "0.75", None);
    check(&node(["4", "0"], &[["4", "0"]]), "0.49", Some("0.5"));
    check(&node(["4", "0"], &[["4", "1Gi"]]), "0.5", None);
    check(&node(["0", "0"], &[["4", "1Gi"]]), "0", None);
    // 0 protects whatever asks for anything, and pods that ask for nothing do not count.
    check(&node(whole, &[["1m", "0"]]), "0", Some("0.0002"));
    check(&node(whole, &[["0", "0"]]), "0", None);
    check(&node(whole, &[]), "0", None);
    // Thirds cannot be written down exactly, and are still compared so: 1/3 and 2/3 are 1/2 on average.
    check(&node(["3", "3"], &[["1", "2"]]), "0.5", None);
    check(&node(["3", "3Gi"], &[["1", "2Gi"], ["0", "1"]]), "0.5", Some("0.5001"));
}

#[test]
fn nodes_that_go_soon_are_not_protected_by_their_use() {
    let full = node(["4", "16Gi"], &[["3.3", "11.2Gi"]]);
    let controls = ChurnControls::default();
    let check = |disruption: NodeDisruption, protected: bool| {
        let node = Node { disruption, ..full.clone() };
        let result = utilization(&node, &controls, at("09:00:00"));
        assert_eq!(result.is_err(), protected, "{:?}", node.disruption);
    };
    // Nine of ten hours are over: exactly a tenth is left, which is not more than a tenth.
    check(mortal(), false);
    check(NodeDisruption { created: Some(at("00:00:01")), ..mortal() }, true);
    check(NodeDisruption { expire_after: None, ..mortal() }, true);
    check(NodeDisruption { expire_after: Some(Duration::ZERO), ..mortal() }, false);
    let drifted_since = Some(at("08:00:00"));
    check(NodeDisruption { drifted_since, ..NodeDisruption::default() }, false);
}

/// One pool with the operator's defaults, at `factor` and `threshold`.
fn stakes(pools: &[(&str, Cost, &str, &str)]) -> Stakes {
    let stake =
        |(at, (value, cost, factor, threshold)): (usize, &(&str, Cost, &str, &str))| Stake {
            pool: format!("pool-{at}"),
            price: price(value),
            cost: *cost,
            controls: ChurnControls {
                price_improvement_factor: factor.parse().unwrap(),
                savings_threshold: threshold.parse().unwrap(),
                ..ChurnControls::default()
            },
        };
    Stakes::new(pools.iter().enumerate().map(stake).collect())
}

fn pods(count: i64) -> Cost {
    Cost(Cost::ONE.0 * count)
}

/// The same pods on a node that has this many tenths of its life before it.
fn pods_with_life(count: i64, tenths: u64) -> Cost {
    let now = at("00:00:00") + Duration::from_hours(10 - tenths);
    Lifetime::remaining(&with(mortal()), now).of(pods(count))
}

#[test]
fn replacements_have_to_be_cheaper_by_the_factor() {
    let check = |pools: &[(&str, &str)], launch: &str, reason: Option<&str>| {
        let pools: Vec<_> =
            pools.iter().map(|(price, factor)| (*price, pods(5), *factor, "0")).collect();
        let stakes = stakes(&pools);
        let result = stakes.allow_replacement(price(launch));
        assert_eq!(result.as_ref().err().map(Blocked::name), reason, "{pools:?} {launch}");
        assert_eq!(price(launch) <= stakes.at_most(), reason.is_none(), "{pools:?} {launch}");
    };
    // The examples of the proposal: 5 percent cheaper with and without the factor, 30 percent with it.
    check(&[("1.00", "1.0")], "0.95", None);
    check(&[("1.00", "0.8")], "0.95", Some("price_factor"));
    check(&[("1.00", "0.8")], "0.70", None);
    // "At least 20 percent" in its text is "more than" in its formula; the formula also makes 1.0 today's rule.
    check(&[("1.00", "0.8")], "0.80", Some("price_factor"));
    check(&[("1.00", "0.8")], "0.7999", None);
    check(&[("1.00", "0.8")], "0.7999999999", None);
    check(&[("1.00", "1.0")], "1.00", Some("same_or_more_expensive_replacement"));
    check(&[("1.00", "1.0")], "1.01", Some("same_or_more_expensive_replacement"));
    check(&[("1.00", "1.0")], "0.99", None);
    // Its cascade, 0.95 to 0.90 to 0.85: each step passes at 1.0 and none at 0.9.
    check(&[("0.95", "1.0")], "0.90", None);
    check(&[("0.90", "1.0")], "0.85", None);
    check(&[("0.95", "0.9")], "0.90", Some("price_factor"));
    check(&[("0.90", "0.9")], "0.85", Some("price_factor"));
    // Half price for the data base, any price for batch.
    check(&[("1.00", "0.5")], "0.50", Some("price_factor"));
    check(&[("1.00", "0.5")], "0.4999", None);
    // 0 lets nothing through, not even what is free.
    check(&[("1.00", "0")], "0.01", Some("price_factor"));
    check(&[("1.00", "0")], "0", Some("price_factor"));
    // The strictest pool decides.
    check(&[("0.5", "0.5"), ("0.5", "1.0")], "0.60", Some("price_factor"));
    check(&[("0.5", "0.5"), ("0.5", "1.0")], "0.50", Some("price_factor"));
    check(&[("0.5", "0.5"), ("0.5", "1.0")], "0.49", None);
    check(&[("0.5", "1.0"), ("0.5", "0")], "0.01", Some("price_factor"));
    // Nothing is cheaper than an unknown price.
    check(&[("0", "1.0")], "0", Some("unknown_price"));
    check(&[("0", "1.0")], "0.1", Some("unknown_price"));
    // A product that is no whole number of units: 0.3333333333 times 0.5 is 0.16666666665.
    check(&[("0.3333333333", "0.5")], "0.1666666666", None);
    check(&[("0.3333333333", "0.5")], "0.1666666667", Some("price_factor"));
    // Reserved capacity costs next to nothing, and so passes whatever is more than 0.
    check(&[("1.00", "0.01")], "0.0000001", None);
}

#[test]
fn replacements_have_to_save_what_the_disruption_costs() {
    let check = |pools: &[(&str, Cost, &str)], launch: &str, required: Option<&str>| {
        let pools: Vec<_> =
            pools.iter().map(|(price, cost, threshold)| (*price, *cost, "1", *threshold)).collect();
        let stakes = stakes(&pools);
        let result = match stakes.allow_replacement(price(launch)) {
            Err(Blocked::SavingsThreshold { required, .. }) => Some(required.exact().to_string()),
            Err(other) => Some(other.name().to_owned()),
            Ok(()) => None,
        };
        assert_eq!(result.as_deref(), required, "{pools:?} {launch}");
        assert_eq!(price(launch) <= stakes.at_most(), required.is_none(), "{pools:?} {launch}");
    };
    // aws/karpenter-provider-aws#7146: six tenths of a cent for five pods; at 90 percent of its life it passes.
    check(&[("0.086", pods(5), "0.01")], "0.080", Some("0.05"));
    check(&[("0.086", pods_with_life(5, 1), "0.01")], "0.080", None);
    check(&[("0.086", pods(5), "0")], "0.080", None);
    // Two nodes into one, exactly enough: in floats 1.00 - 0.90 is less than 0.10.
    let two = |cost_a, cost_b| vec![("1.00", Cost(pods(cost_a).0 + pods(cost_b).0), "0.01")];
    check(&two(3, 7), "0.90", None);
    check(&two(3, 7), "0.9000000001", Some("0.1"));
    check(&two(3, 8), "0.90", Some("0.11"));
    check(&[("1.00", pods_with_life(10, 5), "0.01")], "0.95", None);
    check(&[("1.00", pods_with_life(10, 5), "0.01")], "0.96", Some("0.05"));
    // Saving 0.10 is enough for 5 pods and not for 50.
    check(&[("1.00", pods(5), "0.01")], "0.90", None);
    check(&[("1.00", pods(50), "0.01")], "0.90", Some("0.5"));
    // The price calibration: m8i to c8i saves 0.0243, r8i to m8i saves 0.0661.
    check(&[("0.2117", pods(5), "0.01")], "0.1874", Some("0.05"));
    check(&[("0.2778", pods(5), "0.01")], "0.2117", None);
    check(&[("0.2117", pods(5), "0.004")], "0.1874", None);
    check(&[("0.2778", pods(5), "0.02")], "0.2117", Some("0.1"));
    // The proposal's spot example lets a node of 0.07 save 0.08 and more, which no node can do that costs 0.07:
    // with 8 pods nothing passes, whatever it costs, instead of the 38 types it counts.
    check(&[("0.07", pods(8), "0.01")], "0.02", Some("0.08"));
    check(&[("0.07", pods(8), "0.01")], "0", Some("0.08"));
    // At half its life 0.04 is required. It says that all 50 pass, but those that save 0.02 or 0.03 do not.
    check(&[("0.07", pods_with_life(8, 5), "0.01")], "0.05", Some("0.04"));
    check(&[("0.07", pods_with_life(8, 5), "0.01")], "0.03", None);
    // The same with numbers that exist.
    check(&[("0.40", pods(8), "0.01")], "0.38", Some("0.08"));
    check(&[("0.40", pods(8), "0.01")], "0.35", Some("0.08"));
    check(&[("0.40", pods(8), "0.01")], "0.32", None);
    check(&[("0.40", pods(8), "0.01")], "0.10", None);
    // A threshold of 0 still wants the replacement to be cheaper, and pods without disruption cost cost nothing.
    check(&[("0.40", pods(8), "0")], "0.40", Some("same_or_more_expensive_replacement"));
    check(&[("0.40", pods(0), "0.01")], "0.3999", None);
    check(&[("0.40", pods(0), "0.01")], "0.40", Some("same_or_more_expensive_replacement"));
    // A free node has nothing to save.
    check(&[("0", pods(8), "0.01")], "0", Some("unknown_price"));
    // The smallest unit of cost is not rounded away.
    check(&[("0.40", Cost(pods(8).0 + 1), "0.01")], "0.32", Some("0.0800000001"));
}

/// The second example of the price improvement factor: an operator's 0.9, which two of three pools override.
#[test]
fn pools_are_as_strict_as_their_workload() {
    let operator = ChurnControls {
        price_improvement_factor: "0.9".parse().unwrap(),
        savings_threshold: kerf_model::churn::SavingsThreshold::OFF,
        ..ChurnControls::default()
    };
    let at_most = |factor: Option<f64>| {
        let pool = kerf_api::Disruption {
            consolidation_price_improvement_factor: factor,
            ..kerf_api::Disruption::default()
        };
        let controls = operator.resolve(&pool);
        let stake = Stake { pool: String::new(), price: price("1"), cost: pods(5), controls };
        Stakes::new(vec![stake]).at_most()
    };
    for (pool, factor, dearest) in [
        ("database", Some(0.5), "0.4999999999"),
        ("web", None, "0.8999999999"),
        ("batch", Some(1.0), "0.9999999999"),
    ] {
        assert_eq!(at_most(factor), price(dearest), "{pool}");
    }
}

/// The savings threshold's example of two nodes that become one, from the nodes on.
#[test]
fn nodes_put_their_costs_together_within_their_pool() {
    let candidate = |pool: &str, count: i64| Candidate {
        pool: pool.to_owned(),
        price: price("0.50"),
        rescheduling_cost: pods(1 + count),
        disruption_cost: pods(count),
        ..Candidate::default()
    };
    let pools = ["a", "b"].map(|name| (name.to_owned(), Arc::new(pool("", "0s")))).into();
    let at_most = |nodes: [(&str, i64); 2]| {
        let candidates = nodes.map(|(pool, count)| candidate(pool, count));
        Stakes::of(&candidates, &pools).at_most()
    };
    assert_eq!(at_most([("a", 3), ("a", 7)]), price("0.90"));
    assert_eq!(at_most([("a", 3), ("a", 8)]), price("0.89"));
    // Half of the savings for each, and seven cents are required of one.
    assert_eq!(at_most([("a", 3), ("b", 7)]), price("0.86"));
    // A node without disruption cost does not pay for another.
    assert_eq!(at_most([("a", -5), ("a", 7)]), price("0.93"));
}

#[test]
fn the_tuning_table_holds() {
    for (threshold, required) in [
        ("0.005", ["0.025", "0.05", "0.25"]),
        ("0.01", ["0.05", "0.1", "0.5"]),
        ("0.02", ["0.1", "0.2", "1"]),
    ] {
        for (count, required) in [5, 10, 50].into_iter().zip(required) {
            let stakes = stakes(&[("2", pods(count), "1", threshold)]);
            assert_eq!(stakes.at_most(), price("2") - price(required), "{threshold} {count}");
        }
    }
}

#[test]
fn every_pool_has_to_be_satisfied_with_its_share() {
    let check = |pools: &[(&str, i64, &str)], launch: &str, blocked: Option<(&str, &str, i64)>| {
        let pool = pools.iter().position(|(_, count, _)| blocked.is_some_and(|it| it.2 == *count));
        let pools: Vec<_> = pools
            .iter()
            .map(|(price, count, threshold)| (*price, pods(*count), "1", *threshold))
            .collect();
        let expect = blocked.map_or(Ok(()), |(savings, required, cost)| {
            let pool = format!("pool-{}", pool.unwrap());
            let (savings, required, cost) = (price(savings), price(required), pods(cost));
            Err(Blocked::SavingsThreshold { pool, savings, required, cost })
        });
        let stakes = stakes(&pools);
        assert_eq!(stakes.allow_replacement(price(launch)), expect, "{pools:?} {launch}");
        assert_eq!(price(launch) <= stakes.at_most(), expect.is_ok(), "{pools:?} {launch}");
    };
    // Saves 0.40 of 1.00: three quarters of it for the first pool, a quarter for the second.
    check(&[("0.75", 30, "0.01"), ("0.25", 10, "0.01")], "0.60", None);
    check(&[("0.75", 31, "0.01"), ("0.25", 9, "0.01")], "0.60", Some(("0.3", "0.31", 31)));
    check(&[("0.75", 29, "0.01"), ("0.25", 11, "0.01")], "0.60", Some(("0.1", "0.11", 11)));
    // A pool that asks for nothing gets nothing taken into account.
    check(&[("0.75", 99, "0"), ("0.25", 10, "0.01")], "0.60", None);
    check(&[("0.75", 0, "0.01"), ("0.25", 11, "0.01")], "0.60", Some(("0.1", "0.11", 11)));
    // Thirds.
    check(&[("0.1", 1, "0.01"), ("0.2", 2, "0.01")], "0.27", None);
    check(
        &[("0.1", 1, "0.01"), ("0.2", 2, "0.01")],
        "0.2700000001",
        Some(("0.0099999999", "0.01", 1)),
    );
    // A pool whose nodes have no known price gets no share.
    let unknown = stakes(&[("0.75", pods(1), "1", "0.01"), ("0", pods(1), "1", "0.01")]);
    assert_eq!(unknown.allow_replacement(price("0.1")), Err(Blocked::UnknownPrice));
    assert!(unknown.at_most() < Price::ZERO);
    let indifferent = stakes(&[("0.75", pods(1), "1", "0.01"), ("0", pods(1), "1", "0")]);
    assert_eq!(indifferent.allow_replacement(price("0.1")), Ok(()));
}

#[test]
fn removals_have_to_save_what_the_disruption_costs() {
    let check = |pools: &[(&str, Cost, &str)], blocked: Option<Blocked>| {
        let pools: Vec<_> =
            pools.iter().map(|(price, cost, threshold)| (*price, *cost, "0", *threshold)).collect();
        assert_eq!(stakes(&pools).allow_removal().err(), blocked, "{pools:?}");
    };
    let blocked_by = |pool: usize, savings: &str, required: &str, cost| {
        let (pool, savings) = (format!("pool-{pool}"), price(savings));
        Some(Blocked::SavingsThreshold { pool, savings, required: price(required), cost })
    };
    let blocked = |savings: &str, required: &str, cost| blocked_by(0, savings, required, cost);
    // Twenty pods stay on a node of 0.10, until nine tenths of its life are over.
    check(&[("0.10", pods(20), "0.01")], blocked("0.1", "0.2", pods(20)));
    check(&[("0.10", pods_with_life(20, 1), "0.01")], None);
    check(&[("0.10", pods(10), "0.01")], None);
    check(&[("0.10", pods(11), "0.01")], blocked("0.1", "0.11", pods(11)));
    check(&[("0.10", pods(20), "0")], None);
    // 8 pods on a node of 0.07: the spot example of the proposal, where not even the removal saves enough.
    check(&[("0.07", pods(8), "0.01")], blocked("0.07", "0.08", pods(8)));
    // Each pool by itself.
    check(&[("0.10", pods(10), "0.01"), ("0.10", pods(10), "0.01")], None);
    check(
        &[("0.19", pods(1), "0.01"), ("0.10", pods(11), "0.01")],
        blocked_by(1, "0.1", "0.11", pods(11)),
    );
    // An unknown price saves nothing; without cost, or without a threshold, that does not matter.
    check(&[("0", pods(1), "0.01")], Some(Blocked::UnknownPrice));
    check(&[("0", pods(0), "0.01")], None);
    check(&[("0", pods(1), "0")], None);
}

#[test]
fn both_price_controls_apply() {
    let both = stakes(&[("1.00", pods(5), "0.9", "0.01")]);
    assert_eq!(both.at_most(), price("0.8999999999"));
    let savings_rule = stakes(&[("1.00", pods(20), "0.9", "0.01")]);
    assert_eq!(savings_rule.at_most(), price("0.80"));
    let parity = stakes(&[("1.00", pods(20), "1", "0")]);
    assert_eq!(parity.at_most(), price("0.9999999999"));
}

fn pool(grace_period: &str, consolidate_after: &str) -> Pool {
    let grace_period = grace_period.parse().unwrap();
    let disruption = PoolDisruption {
        consolidate_after: consolidate_after.parse().unwrap(),
        controls: ChurnControls { grace_period, ..ChurnControls::default() },
        ..PoolDisruption::default()
    };
    Pool { name: "p".to_owned(), disruption, ..Pool::default() }
}

/// Whether the node is in its grace period, and whether it is settling.
fn rests(node: &Node, pool: Pool, now: &str) -> (Result<(), Blocked>, bool) {
    let pools = [(pool.name.clone(), Arc::new(pool))].into();
    let snapshot = Snapshot { now: at(now), pools, ..Snapshot::default() };
    (grace_period(&snapshot, node), snapshot.is_settling(node))
}

/// A node that is ready since one, where a pod came or went at that time.
fn quiet_since(event: Option<&str>) -> NodeDisruption {
    NodeDisruption {
        initialized_at: Some(at("01:00:00")),
        last_pod_event: event.map(at),
        ..NodeDisruption::default()
    }
}

#[test]
fn nodes_are_left_alone_for_a_while_after_a_pod_event() {
    let check = |period: &str, event: Option<&str>, now: &str, until: Option<&str>| {
        let node = with(quiet_since(event));
        let expect = until.map_or(Ok(()), |until| Err(Blocked::GracePeriod { until: at(until) }));
        let (grace, settles) = rests(&node, pool(period, "0s"), now);
        assert_eq!(grace, expect, "{event:?} {now}");
        assert_eq!(settles, until.is_some(), "{event:?} {now}");
    };
    check("30m", Some("02:00:00"), "02:00:10", Some("02:30:00"));
    check("30m", Some("02:00:00"), "02:29:59", Some("02:30:00"));
    check("30m", Some("02:00:00"), "02:30:00", None);
    check("30m", Some("02:00:00"), "02:30:10", None);
    // Another event starts it anew.
    check("30m", Some("02:29:00"), "02:30:10", Some("02:59:00"));
    check("30m", Some("02:29:00"), "02:59:00", None);
    // Without an event the clock starts when the node is ready.
    check("30m", None, "01:29:59", Some("01:30:00"));
    check("30m", None, "01:30:00", None);
    // Off, in all its spellings.
    check("", Some("02:00:00"), "02:00:10", None);
    check("Never", Some("02:00:00"), "02:00:10", None);
    check("0s", Some("02:00:00"), "02:00:10", None);
    // A clock that is ahead of ours does not set the node free; without a period it does not bind it either.
    check("30m", Some("03:00:00"), "02:00:00", Some("03:30:00"));
    check("0s", Some("03:00:00"), "02:00:00", None);
}

#[test]
fn neither_unready_nodes_nor_static_pools_have_a_grace_period() {
    let recent = quiet_since(Some("02:00:00"));
    let unready = with(NodeDisruption { initialized_at: None, ..recent.clone() });
    let recent = with(recent);
    let dynamic = pool("30m", "30m");
    let fixed = Pool { static_pool: Some(StaticPool::default()), ..dynamic.clone() };
    for (node, pool, bound) in
        [(&recent, &dynamic, true), (&unready, &dynamic, false), (&recent, &fixed, false)]
    {
        let (grace, settles) = rests(node, pool.clone(), "02:10:00");
        assert_eq!((grace.is_err(), settles), (bound, bound));
    }
}

#[test]
fn destinations_rest_for_the_longer_of_both_times() {
    let node = with(quiet_since(Some("02:00:00")));
    for (period, after, now, settles) in [
        ("30m", "10m", "02:29:59", true),
        ("30m", "10m", "02:30:00", false),
        ("10m", "30m", "02:29:59", true),
        ("10m", "30m", "02:30:00", false),
        ("", "30s", "02:00:29", true),
        ("", "30s", "02:00:30", false),
        // Never consolidated, hence never resting by that rule.
        ("", "Never", "02:00:01", false),
        ("30m", "Never", "02:00:01", true),
    ] {
        let (_, result) = rests(&node, pool(period, after), now);
        assert_eq!(result, settles, "{period:?} {after} {now}");
    }
}
