use super::*;
use crate::{Memory, Pass, Settings, pass};
use kerf_api::{Budget, ConsolidationPolicy, DurationOrNever};
use kerf_model::{
    InstanceType, Node, Overhead, Pool, Requirements, Resources, Snapshot,
    churn::ChurnControls,
    estate::{Estate, Rules, Tenant},
};
use std::time::Duration;

fn count(active: u64, replacing: u64, leaving: u64, reserved: u64) -> NodeCount {
    NodeCount { active, replacing, leaving, reserved }
}

#[test]
fn a_pool_comes_to_its_number_and_stays_there() {
    let cases = [
        (3, count(0, 0, 0, 0), Resize::Grow),
        (3, count(2, 0, 0, 0), Resize::Grow),
        (3, count(2, 0, 0, 1), Resize::Keep),
        (3, count(3, 0, 0, 0), Resize::Keep),
        (3, count(3, 0, 4, 0), Resize::Keep),
        (3, count(2, 0, 1, 0), Resize::Grow),
        (3, count(5, 0, 0, 0), Resize::Shrink(2)),
        (0, count(1, 0, 0, 0), Resize::Shrink(1)),
        (0, count(0, 0, 0, 0), Resize::Keep),
        // One is being replaced: before its replacement, beside it, and after.
        (3, count(2, 1, 0, 0), Resize::Keep),
        (3, count(2, 1, 0, 1), Resize::Keep),
        (3, count(3, 1, 0, 0), Resize::Keep),
        (3, count(3, 0, 1, 0), Resize::Keep),
        (4, count(2, 1, 0, 0), Resize::Grow),
        // The replacement failed, and its candidate stays.
        (3, count(4, 0, 0, 0), Resize::Shrink(1)),
    ];
    for (replicas, count, expected) in cases {
        assert_eq!(resize(replicas, count), expected, "{replicas} {count:?}");
    }
}

fn standing(pods: &[(bool, f64, bool)]) -> Standing {
    let tenants = pods.iter().map(|(reschedulable, cost, protected)| Tenant {
        reschedulable: *reschedulable,
        #[expect(clippy::cast_possible_truncation, reason = "small test values")]
        eviction_cost: Cost((cost * Cost::ONE.0 as f64) as i64),
        obstacle: protected.then_some(Obstacle::DoNotDisrupt),
        ..Tenant::default()
    });
    Standing { tenants: tenants.collect(), ..Standing::default() }
}

#[test]
fn those_go_first_that_disturb_least() {
    const POD: (bool, f64, bool) = (true, 1.0, false);
    const DAEMON: (bool, f64, bool) = (false, 1.0, false);
    let half_way = |standing: Standing| Standing {
        created: Some(Timestamp::UNIX_EPOCH - Duration::from_hours(1)),
        expire_after: Some(Duration::from_hours(2)),
        ..standing
    };
    let in_order = [
        ("unlaunched-a", None),
        ("unlaunched-b", None),
        ("daemons", Some(standing(&[DAEMON, DAEMON]))),
        ("empty", Some(standing(&[]))),
        ("unimportant", Some(standing(&[(true, -2.0, false), POD]))),
        ("soon-over", Some(half_way(standing(&[POD])))),
        ("one-pod", Some(standing(&[POD]))),
        ("two-pods", Some(standing(&[POD, POD]))),
        ("important", Some(standing(&[(true, 9.0, false)]))),
        ("protected-daemon", Some(standing(&[(false, 1.0, true)]))),
        ("protected", Some(standing(&[(true, 1.0, true), POD]))),
    ];
    let mut members: Vec<_> =
        in_order.iter().map(|(claim, standing)| (*claim, standing.as_ref())).collect();
    members.reverse();
    let members: Vec<_> =
        members.into_iter().map(|(claim, standing)| Member { claim, standing }).collect();
    let expected: Vec<_> = in_order.iter().map(|(claim, _)| *claim).collect();
    for excess in 0..=in_order.len() {
        let gone = victims(&members, excess as u64, Timestamp::UNIX_EPOCH);
        assert_eq!(gone, expected[..excess]);
    }
    assert_eq!(victims(&members, 99, Timestamp::UNIX_EPOCH).len(), in_order.len());
}

#[test]
fn a_replacement_needs_room_beside_what_it_replaces() {
    let five = count(5, 0, 0, 0);
    let cases = [
        (5, five, None, Ok(u64::MAX)),
        (5, five, Some(7), Ok(2)),
        (5, five, Some(5), Err(Held::NoHeadroom { nodes: 5, limit: 5 })),
        (5, five, Some(4), Err(Held::NoHeadroom { nodes: 5, limit: 4 })),
        (7, five, Some(5), Err(Held::NoHeadroom { nodes: 5, limit: 5 })),
        (5, count(5, 0, 1, 0), Some(6), Err(Held::NoHeadroom { nodes: 6, limit: 6 })),
        (4, five, None, Err(Held::ShrinksFirst { active: 5, replicas: 4 })),
        (0, five, None, Err(Held::ShrinksFirst { active: 5, replicas: 0 })),
        (7, five, Some(9), Err(Held::GrowsFirst { active: 5, replicas: 7 })),
        // One is under way already: the next need not wait for it.
        (5, count(5, 1, 0, 0), Some(8), Ok(2)),
        (5, count(5, 0, 1, 0), Some(8), Ok(2)),
    ];
    for (replicas, count, limit, expected) in cases {
        let pool = StaticPool { replicas, count, limit, launches: true };
        assert_eq!(headroom(&pool), expected, "{pool:?}");
        let unready = StaticPool { launches: false, ..pool };
        assert_eq!(headroom(&unready), Err(Held::NotReady));
    }
}

#[test]
fn drift_is_blocked_where_the_limit_leaves_no_room_ever() {
    let keeps = Kept::Replicas;
    assert_eq!(drift_blocked(keeps(5), None, 1), None);
    assert_eq!(drift_blocked(keeps(5), Some(6), 1), None);
    assert_eq!(drift_blocked(keeps(5), Some(5), 0), None);
    assert_eq!(drift_blocked(Kept::Nodes(5), Some(6), 1), None);
    let dynamic = drift_blocked(Kept::Nodes(7), Some(5), 1).unwrap().to_string();
    assert!(dynamic.contains("with 7 nodes; set limits.nodes to 8 or more"), "{dynamic}");
    let blocked = drift_blocked(keeps(12), Some(12), 3).unwrap();
    assert_eq!(
        blocked.to_string(),
        "3 drifted nodes cannot be replaced: a replacement comes before the old node goes, and limits.nodes is 12 with 12 \
         replicas; set limits.nodes to 13 or more"
    );
}

/// Ready nodes, named by their pool and number, that drifted one second after another, the highest number first.
fn estate(pools: &[(&str, StaticPool, &str)]) -> Estate {
    let mut estate = Estate {
        snapshot: Snapshot::default(),
        standings: Vec::new(),
        pools: BTreeMap::new(),
        static_pools: BTreeMap::new(),
        now: Timestamp::UNIX_EPOCH + Duration::from_hours(1),
    };
    for (name, fixed, budget) in pools {
        let nothing = Resources::new();
        let overhead = Overhead::default();
        let small =
            InstanceType::new("small", Requirements::default(), Vec::new(), nothing, overhead);
        let pool = Pool {
            name: (*name).to_owned(),
            instance_types: vec![Arc::new(small)],
            ..Pool::default()
        };
        let budget =
            Budget { nodes: (*budget).to_owned(), schedule: None, duration: None, reasons: None };
        let rules = Rules {
            replicas: i64::try_from(fixed.replicas).ok(),
            node_limit: fixed.limit,
            pool: Arc::new(pool),
            policy: ConsolidationPolicy::default(),
            consolidate_after: DurationOrNever::Never,
            budgets: vec![budget],
            controls: ChurnControls::default(),
        };
        estate.pools.insert((*name).to_owned(), rules);
        estate.static_pools.insert((*name).to_owned(), *fixed);
        for number in 0..fixed.count.active {
            let node = Node {
                name: format!("{name}-{number}"),
                claim: Some(format!("{name}-{number}")),
                pool: Some((*name).to_owned()),
                exists: true,
                initialized: true,
                ..Node::default()
            };
            estate.snapshot.nodes.push(Arc::new(node));
            let drifted = Timestamp::UNIX_EPOCH + Duration::from_secs(100 - number);
            let standing =
                Standing { ready: true, drifted_since: Some(drifted), ..Standing::default() };
            estate.standings.push(standing);
        }
    }
    estate
}

fn look_at(estate: &Estate) -> Pass {
    pass(estate, &Settings::default(), &mut Memory::default())
}

fn chosen(found: &Pass) -> Vec<&str> {
    let candidates = found.commands.iter().map(|command| {
        assert_eq!((command.method, command.candidates.len()), (METHOD, 1));
        assert!(matches!(&command.replacements[..], [Replacement::OfTemplate(_)]));
        command.candidates[0].node.name.as_str()
    });
    candidates.collect()
}

fn of_size(nodes: u64, limit: Option<u64>) -> StaticPool {
    StaticPool { replicas: nodes, limit, count: count(nodes, 0, 0, 0), launches: true }
}

#[test]
fn drifted_nodes_are_replaced_as_far_as_budget_and_limit_allow() {
    let check = |limit: Option<u64>, budget: &str, expected: &[&str], why: &str| {
        let estate = estate(&[("p", of_size(4, limit), budget)]);
        let found = look_at(&estate);
        assert_eq!(chosen(&found), expected, "{limit:?} {budget}");
        let left = found.refused.iter().filter(|refused| refused.method == Some(METHOD));
        let reasons: Vec<_> = left.map(|refused| refused.why.name()).collect();
        assert_eq!(reasons, vec![why; 4 - expected.len()], "{limit:?} {budget}");
    };
    check(None, "100%", &["p-3", "p-2", "p-1", "p-0"], "");
    check(None, "2", &["p-3", "p-2"], "budget");
    check(None, "30%", &["p-3", "p-2"], "budget");
    check(Some(5), "100%", &["p-3"], "static_node_limit");
    check(Some(9), "3", &["p-3", "p-2", "p-1"], "budget");
    check(Some(4), "100%", &[], "static_node_limit");
    check(None, "0", &[], "budget");
}

#[test]
fn pools_are_replaced_side_by_side() {
    let pools = [
        ("p", of_size(2, Some(3)), "1"),
        ("q", of_size(2, Some(2)), "1"),
        ("r", of_size(1, None), "1"),
    ];
    assert_eq!(chosen(&look_at(&estate(&pools))), ["p-1", "r-0"]);
}

#[test]
fn nodes_that_ask_to_be_left_alone_stay() {
    let mut estate = estate(&[("p", of_size(2, None), "100%")]);
    estate.standings[1].do_not_disrupt = true;
    assert_eq!(chosen(&look_at(&estate)), ["p-0"]);
}

#[test]
fn nothing_is_replaced_while_the_gate_is_off() {
    let estate = estate(&[("p", of_size(2, None), "100%")]);
    let off = Settings { static_capacity: false, ..Settings::default() };
    assert!(pass(&estate, &off, &mut Memory::default()).commands.is_empty());
}
