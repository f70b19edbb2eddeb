use super::*;
use crate::{Memory, Pass, Settings, pass};
use kerf_api::{Budget, DurationOrNever};
use kerf_model::{
    InstanceType, Overhead, Pod, Pool, Requirements, Resources,
    disruption::{DoNotDisrupt, PodDisruption, PoolDisruption},
    snapshot::Idle,
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

fn node(pods: &[(bool, f64, bool)]) -> Node {
    let pods = pods.iter().map(|(reschedulable, cost, protected)| {
        let disruption = PodDisruption {
            reschedulable: *reschedulable,
            active: true,
            #[expect(clippy::cast_possible_truncation, reason = "small test values")]
            eviction_cost: Cost((cost * Cost::ONE.0 as f64) as i64),
            do_not_disrupt: if *protected { DoNotDisrupt::Always } else { DoNotDisrupt::No },
            ..PodDisruption::default()
        };
        Arc::new(Pod { disruption, ..Pod::default() })
    });
    Node { pods: pods.collect(), ..Node::default() }
}

#[test]
fn those_go_first_that_disturb_least() {
    const POD: (bool, f64, bool) = (true, 1.0, false);
    const DAEMON: (bool, f64, bool) = (false, 1.0, false);
    let half_way = |mut node: Node| {
        node.disruption.created = Some(Timestamp::UNIX_EPOCH - Duration::from_hours(1));
        node.disruption.expire_after = Some(Duration::from_hours(2));
        node
    };
    let in_order = [
        ("unlaunched-a", None),
        ("unlaunched-b", None),
        ("daemons", Some(node(&[DAEMON, DAEMON]))),
        ("empty", Some(node(&[]))),
        ("unimportant", Some(node(&[(true, -2.0, false), POD]))),
        ("soon-over", Some(half_way(node(&[POD])))),
        ("one-pod", Some(node(&[POD]))),
        ("two-pods", Some(node(&[POD, POD]))),
        ("important", Some(node(&[(true, 9.0, false)]))),
        ("protected-daemon", Some(node(&[(false, 1.0, true)]))),
        ("protected", Some(node(&[(true, 1.0, true), POD]))),
    ];
    let mut members: Vec<_> =
        in_order.iter().map(|(claim, node)| (*claim, node.as_ref())).collect();
    members.reverse();
    let members: Vec<_> = members.into_iter().map(|(claim, node)| Member { claim, node }).collect();
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
fn snapshot(pools: &[(&str, StaticPool, &str)]) -> Snapshot {
    let now = Timestamp::UNIX_EPOCH + Duration::from_hours(1);
    let mut snapshot = Snapshot { now, ..Snapshot::default() };
    for (name, fixed, budget) in pools {
        let nothing = Resources::new();
        let overhead = Overhead::default();
        let small =
            InstanceType::new("small", Requirements::default(), Vec::new(), nothing, overhead);
        let budget =
            Budget { nodes: (*budget).to_owned(), schedule: None, duration: None, reasons: None };
        let pool = Pool {
            name: (*name).to_owned(),
            instance_types: vec![Arc::new(small)],
            idle: Some(Idle::Static),
            static_pool: Some(*fixed),
            disruption: PoolDisruption {
                consolidate_after: DurationOrNever::Never,
                budgets: vec![budget],
                ..PoolDisruption::default()
            },
            ..Pool::default()
        };
        snapshot.pools.insert((*name).to_owned(), Arc::new(pool));
        for number in 0..fixed.count.active {
            let mut node = Node {
                name: format!("{name}-{number}"),
                claim: Some(format!("{name}-{number}")),
                pool: Some((*name).to_owned()),
                exists: true,
                initialized: true,
                ..Node::default()
            };
            node.disruption.ready = true;
            node.disruption.drifted_since =
                Some(Timestamp::UNIX_EPOCH + Duration::from_secs(100 - number));
            snapshot.nodes.push(Arc::new(node));
        }
    }
    snapshot
}

fn look_at(snapshot: &Snapshot) -> Pass {
    pass(snapshot, &Settings::default(), &mut Memory::default())
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
        let snapshot = snapshot(&[("p", of_size(4, limit), budget)]);
        let found = look_at(&snapshot);
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
    assert_eq!(chosen(&look_at(&snapshot(&pools))), ["p-1", "r-0"]);
}

#[test]
fn nodes_that_ask_to_be_left_alone_stay() {
    let mut snapshot = snapshot(&[("p", of_size(2, None), "100%")]);
    Arc::make_mut(&mut snapshot.nodes[1]).disruption.do_not_disrupt = true;
    assert_eq!(chosen(&look_at(&snapshot)), ["p-0"]);
}

#[test]
fn nothing_is_replaced_while_the_gate_is_off() {
    let snapshot = snapshot(&[("p", of_size(2, None), "100%")]);
    let off = Settings { static_capacity: false, ..Settings::default() };
    assert!(pass(&snapshot, &off, &mut Memory::default()).commands.is_empty());
}
