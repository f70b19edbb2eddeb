//! Topology spread constraints. Numbers are pods per domain, most first.

use crate::build::*;
use k8s_openapi::serde_json::json;
use kerf_model::labels::{ARCH, CAPACITY_TYPE, ZONE};
use kerf_model::{Node, Pool, Snapshot};

fn roomy(name: &str) -> Pool {
    Pool { instance_types: many_types(20), ..pool(name) }
}

fn restricted(name: &str, text: &str) -> Pool {
    Pool { requirements: requirements(text), ..roomy(name) }
}

fn web() -> PodSpec {
    pod("web").labels("app=web").requests("cpu=1")
}

fn zonal(max_skew: i32) -> PodSpec {
    web().spread(ZONE, max_skew, "app=web")
}

/// Per zone: how many pods with these labels run on one node there.
fn running(counts: &[(&str, usize)], labels: &str) -> Vec<Node> {
    counts
        .iter()
        .enumerate()
        .map(|(at, (zone, count))| {
            let mut node = node(&format!("node-{at}"), &format!("{ZONE}={zone}"), "cpu=0 pods=100");
            let template = pod(&format!("old-{at}")).labels(labels).running();
            node.pods = replicas(*count, &template);
            node
        })
        .collect()
}

/// New pods per value of the key, most first.
#[track_caller]
fn check(snapshot: &Snapshot, key: &str, expect: &[usize]) {
    let plan = plan(snapshot);
    assert_eq!(spread_of(&plan, key), expect, "{:?}", plan.failures);
}

#[test]
fn zones_are_balanced_over_what_pools_offer() {
    let four = || replicas(4, &zonal(1));
    check(&cluster(vec![roomy("a")], four()), ZONE, &[2, 1, 1]);
    let three = restricted("a", &format!("{ZONE} In test-zone-1 test-zone-2 test-zone-3"));
    check(&cluster(vec![three], four()), ZONE, &[2, 1, 1]);
    let two = restricted("a", &format!("{ZONE} In test-zone-1 test-zone-2"));
    check(&cluster(vec![two], four()), ZONE, &[2, 2]);
    let pinned = Pool { labels: labels(&format!("{ZONE}=test-zone-1")), ..roomy("a") };
    check(&cluster(vec![pinned], four()), ZONE, &[4]);
    let labelled =
        |name: &str, zone: &str| Pool { labels: labels(&format!("{ZONE}={zone}")), ..roomy(name) };
    let pools = vec![labelled("a", "test-zone-1"), labelled("b", "test-zone-2")];
    check(&cluster(pools, four()), ZONE, &[2, 2]);
    let expression = json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}});
    let by_expression = web().spread_with(ZONE, 1, "", &expression);
    check(&cluster(vec![roomy("a")], replicas(4, &by_expression)), ZONE, &[2, 1, 1]);
}

#[test]
fn pods_that_run_already_count() {
    let two = || restricted("a", &format!("{ZONE} In test-zone-1 test-zone-2"));
    let existing = running(&[("test-zone-3", 1)], "app=web");
    check(&with_nodes(cluster(vec![two()], replicas(6, &zonal(1))), existing), ZONE, &[2, 2]);
    let others = || restricted("a", &format!("{ZONE} In test-zone-2 test-zone-3"));
    let existing = running(&[("test-zone-1", 1)], "app=web");
    check(&with_nodes(cluster(vec![others()], replicas(10, &zonal(1))), existing), ZONE, &[2, 2]);
    // The domain exists although nothing in it counts: its zero is the least.
    let existing = running(&[("test-zone-1", 1)], "app=other");
    check(&with_nodes(cluster(vec![others()], replicas(10, &zonal(1))), existing), ZONE, &[1, 1]);
    let existing = running(&[("test-zone-1", 1), ("test-zone-2", 1)], "app=web");
    let last = restricted("a", &format!("{ZONE} In test-zone-3"));
    check(&with_nodes(cluster(vec![last], replicas(10, &zonal(5))), existing), ZONE, &[6]);
}

#[test]
fn new_pods_go_to_the_emptiest_zones_first() {
    let existing =
        running(&[("test-zone-1", 3), ("test-zone-2", 0), ("test-zone-3", 1)], "app=web");
    let snapshot = with_nodes(cluster(vec![roomy("a")], replicas(2, &zonal(1))), existing);
    check(&snapshot, ZONE, &[2]);
    let existing =
        running(&[("test-zone-1", 3), ("test-zone-2", 0), ("test-zone-3", 1)], "app=web");
    let snapshot = with_nodes(cluster(vec![roomy("a")], replicas(5, &zonal(1))), existing);
    check(&snapshot, ZONE, &[3, 2]);
}

#[test]
fn only_pods_that_matter_are_counted() {
    let on = |name: &str, zone: Option<&str>, pod: PodSpec| {
        let labels = zone.map(|zone| format!("{ZONE}={zone}")).unwrap_or_default();
        let mut node = node(name, &labels, "cpu=0");
        node.pods = vec![pod.running().build()];
        node
    };
    let mut terminating = on("e", Some("test-zone-1"), pod("e").labels("app=web"));
    let mut dying = (*terminating.pods[0]).clone();
    dying.deleting = true;
    terminating.pods = vec![dying.into()];
    let nodes = vec![
        on("a", Some("test-zone-1"), pod("a").labels("app=web")),
        on("b", Some("test-zone-1"), pod("b").labels("app=web").namespace("other")),
        on("c", Some("test-zone-1"), pod("c").labels("app=other")),
        on("d", None, pod("d").labels("app=web")),
        terminating,
    ];
    // One counts in zone 1, so the others get two each: claims that are open take pods first.
    check(&with_nodes(cluster(vec![roomy("a")], replicas(4, &zonal(1))), nodes), ZONE, &[2, 2]);
}

#[test]
fn selectors_that_select_nothing_new() {
    let none = web().spread_with(ZONE, 1, "", &json!({"labelSelector": null}));
    let nothing = plan(&cluster(vec![roomy("a")], replicas(4, &none)));
    assert_eq!(nothing.claims.len(), 1, "a missing selector counts nothing");
    let invalid =
        json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}});
    let invalid =
        plan(&cluster(vec![roomy("a")], replicas(4, &web().spread_with(ZONE, 1, "", &invalid))));
    assert_eq!(invalid.claims.len(), 1, "an unreadable selector counts nothing");
    let others = plan(&cluster(vec![roomy("a")], replicas(5, &web().spread(ZONE, 1, "app=other"))));
    assert_eq!(others.claims.len(), 1, "pods that do not count need not spread");
}

#[test]
fn an_unknown_key_stops_only_its_pods() {
    let pods = vec![
        pod("odd").labels("app=web").spread("unknown", 1, "app=web").build(),
        pod("plain").build(),
    ];
    let plan = plan(&cluster(vec![roomy("a")], pods));
    assert_eq!(plan.claims.len(), 1);
    assert_eq!(refusal(&plan, "odd"), "pool a: unsatisfiable topology spread over unknown");
}

#[test]
fn too_few_domains_hold_pods_back() {
    let at_least =
        |least: i32| web().spread_with(ZONE, 1, "app=web", &json!({"minDomains": least}));
    let two = || restricted("a", &format!("{ZONE} In test-zone-1 test-zone-2"));
    check(&cluster(vec![two()], replicas(3, &at_least(3))), ZONE, &[1, 1]);
    check(&cluster(vec![roomy("a")], replicas(11, &at_least(3))), ZONE, &[4, 4, 3]);
    check(&cluster(vec![roomy("a")], replicas(11, &at_least(2))), ZONE, &[4, 4, 3]);
    check(&cluster(vec![two()], replicas(3, &at_least(2))), ZONE, &[2, 1]);
}

#[test]
fn hosts_are_balanced_by_opening_new_ones() {
    let host = |max_skew: i32| web().spread(HOSTNAME, max_skew, "app=web");
    check(&cluster(vec![roomy("a")], replicas(4, &host(1))), HOSTNAME, &[1, 1, 1, 1]);
    check(&cluster(vec![roomy("a")], replicas(4, &host(4))), HOSTNAME, &[4]);
    let deployment = |app: &str| {
        let label = format!("app={app}");
        replicas(2, &pod(app).labels(&label).spread(HOSTNAME, 1, &label))
    };
    let both = [deployment("one"), deployment("two")].concat();
    check(&cluster(vec![roomy("a")], both), HOSTNAME, &[2, 2]);
    let on_arch = |app: &str, arch: &str| {
        let label = format!("app={app}");
        let template = pod(app).labels(&label).selector(&format!("{ARCH}={arch}"));
        replicas(2, &template.spread(HOSTNAME, 1, &label))
    };
    let both = [on_arch("one", "amd64"), on_arch("two", "arm64")].concat();
    check(&cluster(vec![pool("default")], both), HOSTNAME, &[1, 1, 1, 1]);
}

#[test]
fn existing_hosts_count_too() {
    let mut nodes = vec![node("a", "", "cpu=10 pods=100"), node("b", "", "cpu=10 pods=100")];
    nodes[0].pods = replicas(1, &pod("old").labels("app=web").running());
    let pods = replicas(3, &web().spread(HOSTNAME, 1, "app=web"));
    let plan = plan(&with_nodes(cluster(vec![roomy("a")], pods), nodes));
    assert_eq!(plan.placements.len(), 1);
    assert_eq!((plan.placements[0].node.name.as_str(), plan.placements[0].pods.len()), ("b", 1));
    assert_eq!(plan.claims.len(), 2);
}

#[test]
fn capacity_types_and_architectures_are_domains_too() {
    let by = |key: &str| web().spread(key, 1, "app=web");
    check(&cluster(vec![roomy("a")], replicas(4, &by(CAPACITY_TYPE))), CAPACITY_TYPE, &[2, 2]);
    let on_demand = || restricted("a", &format!("{CAPACITY_TYPE} In on-demand"));
    let mut spot = node("spot", &format!("{CAPACITY_TYPE}=spot"), "cpu=0");
    spot.pods = replicas(1, &pod("old").labels("app=web").running());
    let snapshot =
        with_nodes(cluster(vec![on_demand()], replicas(5, &by(CAPACITY_TYPE))), vec![spot.clone()]);
    check(&snapshot, CAPACITY_TYPE, &[2]);
    let anyway = web().spread_with(
        CAPACITY_TYPE,
        1,
        "app=web",
        &json!({"whenUnsatisfiable": "ScheduleAnyway"}),
    );
    let snapshot = with_nodes(cluster(vec![on_demand()], replicas(5, &anyway)), vec![spot.clone()]);
    check(&snapshot, CAPACITY_TYPE, &[5]);
    // Pods that can only be on-demand do not wait for spot.
    let only = by(CAPACITY_TYPE).requires(&format!("{CAPACITY_TYPE} In on-demand"));
    let snapshot = with_nodes(cluster(vec![roomy("a")], replicas(5, &only)), vec![spot]);
    check(&snapshot, CAPACITY_TYPE, &[5]);
    check(&cluster(vec![pool("default")], replicas(3, &by(ARCH))), ARCH, &[2, 1]);
}

#[test]
fn constraints_on_zone_and_host_hold_together() {
    let both = || web().spread(ZONE, 1, "app=web").spread(HOSTNAME, 3, "app=web");
    for (count, zones) in [
        (2, vec![1, 1]),
        (3, vec![1, 1, 1]),
        (5, vec![2, 2, 1]),
        (11, vec![4, 4, 3]),
        (21, vec![7, 7, 7]),
    ] {
        let plan = plan(&cluster(vec![roomy("a")], replicas(count, &both())));
        assert_eq!(spread_of(&plan, ZONE), zones);
        assert!(spread_of(&plan, HOSTNAME)[0] <= 3);
    }
}

#[test]
fn three_keys_hold_together() {
    let all = web()
        .spread(ZONE, 1, "app=web")
        .spread(CAPACITY_TYPE, 1, "app=web")
        .spread(HOSTNAME, 2, "app=web");
    for count in 1..=12 {
        let plan = plan(&cluster(vec![roomy("a")], replicas(count, &all)));
        for (key, skew) in [(ZONE, 1), (CAPACITY_TYPE, 1)] {
            let counts = spread_of(&plan, key);
            let domains = if key == ZONE { 3 } else { 2 };
            let least = if counts.len() < domains { 0 } else { counts[counts.len() - 1] };
            assert!(
                counts.first().is_none_or(|most| most - least <= skew),
                "{count} pods by {key}: {counts:?}"
            );
        }
        assert!(spread_of(&plan, HOSTNAME).first().is_none_or(|most| *most <= 2));
    }
}

#[test]
fn a_custom_label_sets_a_ratio_of_capacity_types() {
    let ratio = |name: &str, capacity_type: &str, values: &str| {
        restricted(name, &format!("{CAPACITY_TYPE} In {capacity_type}; ratio In {values}"))
    };
    let pools = vec![ratio("spot", "spot", "2 3 4 5"), ratio("on-demand", "on-demand", "1")];
    let plan = plan(&cluster(pools, replicas(20, &web().spread("ratio", 1, "app=web"))));
    assert_eq!(spread_of(&plan, "ratio"), [4, 4, 4, 4, 4]);
    assert_eq!(spread_of(&plan, CAPACITY_TYPE), [16, 4]);
}

#[test]
fn a_zone_that_cannot_be_launched_still_counts() {
    let two = restricted("a", &format!("{ZONE} In test-zone-1 test-zone-2"));
    let closed =
        Pool { limits: amounts("cpu=0"), ..restricted("b", &format!("{ZONE} In test-zone-3")) };
    check(&cluster(vec![two, closed], replicas(10, &zonal(1))), ZONE, &[1, 1]);
}

#[test]
fn match_label_keys_separate_revisions() {
    let keys = |keys: &[&str]| json!({"matchLabelKeys": keys});
    let revision = |revision: &str| {
        let template = pod(&format!("web-{revision}")).labels(&format!("app=web rev={revision}"));
        replicas(2, &template.spread_with(HOSTNAME, 1, "app=web", &keys(&["rev"])))
    };
    check(&cluster(vec![roomy("a")], [revision("1"), revision("2")].concat()), HOSTNAME, &[2, 2]);
    let unknown = web().spread_with(HOSTNAME, 1, "app=web", &keys(&["missing"]));
    check(&cluster(vec![roomy("a")], replicas(4, &unknown)), HOSTNAME, &[1, 1, 1, 1]);
}

/// A key whose domains are two nodes and what the pool offers.
fn two_rooms(taints: &str) -> Vec<Node> {
    ["red", "blue"]
        .iter()
        .map(|room| {
            let mut node = node(room, &format!("room={room} side=left"), "cpu=0");
            node.taints = taints.split_whitespace().map(taint).collect();
            node
        })
        .collect()
}

#[test]
fn tainted_nodes_take_part_unless_taints_are_honoured() {
    let by = |policy: &str| {
        web().spread_with("room", 1, "app=web", &json!({"nodeTaintsPolicy": policy}))
    };
    let green = || restricted("a", "room In green");
    let snapshot = |policy| {
        with_nodes(cluster(vec![green()], replicas(5, &by(policy))), two_rooms("t:NoSchedule"))
    };
    check(&snapshot("Ignore"), "room", &[1]);
    check(&snapshot("Honor"), "room", &[5]);
}

#[test]
fn tainted_pools_take_part_unless_taints_are_honoured() {
    let by = |policy: &str| {
        web().spread_with("room", 1, "app=web", &json!({"nodeTaintsPolicy": policy}))
    };
    let tainted =
        || Pool { taints: vec![taint("t:NoSchedule")], ..restricted("b", "room In blue") };
    let snapshot = |policy| {
        cluster(vec![restricted("a", "room In green"), tainted()], replicas(2, &by(policy)))
    };
    check(&snapshot("Ignore"), "room", &[1]);
    check(&snapshot("Honor"), "room", &[2]);
}

#[test]
fn nodes_outside_of_the_selector_take_part_only_when_affinity_is_ignored() {
    let by = |policy: &str| {
        web().selector("side=right").spread_with(
            "room",
            1,
            "app=web",
            &json!({"nodeAffinityPolicy": policy}),
        )
    };
    let green = || restricted("a", "room In green; side In right");
    let snapshot =
        |policy| with_nodes(cluster(vec![green()], replicas(5, &by(policy))), two_rooms(""));
    check(&snapshot("Ignore"), "room", &[1]);
    check(&snapshot("Honor"), "room", &[5]);
}

#[test]
fn node_affinity_limits_the_zones_that_are_balanced() {
    let in_zone = |zone: &str, count| {
        let template = pod(zone).labels("app=web").selector(&format!("{ZONE}={zone}"));
        replicas(count, &template.spread(ZONE, 1, "app=web"))
    };
    let pods = [in_zone("test-zone-1", 5), in_zone("test-zone-2", 10)].concat();
    check(&cluster(vec![roomy("a")], pods), ZONE, &[10, 5]);
    let two = zonal(1).requires(&format!("{ZONE} In test-zone-1 test-zone-2"));
    check(&cluster(vec![roomy("a")], replicas(10, &two)), ZONE, &[5, 5]);
    let existing = || running(&[("test-zone-1", 3), ("test-zone-2", 3)], "app=web");
    let snapshot = with_nodes(cluster(vec![roomy("a")], replicas(1, &zonal(1))), existing());
    check(&snapshot, ZONE, &[1]);
    let preferring = zonal(1).prefers(1, &format!("{ZONE} In test-zone-1 test-zone-2"));
    check(&cluster(vec![roomy("a")], replicas(6, &preferring)), ZONE, &[2, 2, 2]);
}

#[test]
fn a_refusal_tells_the_counts() {
    let existing = running(&[("test-zone-1", 2), ("test-zone-2", 0)], "app=web");
    let first = restricted("a", &format!("{ZONE} In test-zone-1"));
    let plan = plan(&with_nodes(cluster(vec![first], replicas(1, &zonal(1))), existing));
    assert_eq!(
        refusal(&plan, "web-000"),
        "pool a: unsatisfiable topology spread over topology.kubernetes.io/zone, pods by domain \
         {test-zone-1: 2, test-zone-2: 0}, the node allows topology.kubernetes.io/zone In [test-zone-1]"
    );
}

#[test]
fn later_pods_even_out_what_was_held_back() {
    let zones = |counts: [usize; 3]| {
        let counts: Vec<_> = ZONES.into_iter().zip(counts).collect();
        running(&counts, "app=web")
    };
    for (there, pods, expect) in [
        ([3, 3, 0], 1, &[1][..]),
        ([3, 3, 1], 5, &[3, 1, 1]),
        ([1, 1, 1], 3, &[1, 1, 1]),
        ([5, 0, 0], 4, &[2, 2]),
        ([0, 0, 0], 7, &[3, 2, 2]),
        ([4, 1, 4], 3, &[3]),
    ] {
        let snapshot =
            with_nodes(cluster(vec![roomy("a")], replicas(pods, &zonal(1))), zones(there));
        let plan = plan(&snapshot);
        assert!(plan.failures.is_empty(), "{there:?}: {:?}", plan.failures);
        assert_eq!(spread_of(&plan, ZONE), expect, "{pods} pods beside {there:?}");
    }
}

#[test]
fn a_pinned_pool_is_one_domain_however_it_is_pinned() {
    let label = || labels(&format!("{ZONE}=test-zone-1"));
    let requirement = || requirements(&format!("{ZONE} In test-zone-1"));
    for pool in [
        Pool { labels: label(), ..roomy("a") },
        Pool { requirements: requirement(), ..roomy("a") },
        Pool { labels: label(), requirements: requirement(), ..roomy("a") },
        Pool {
            labels: label(),
            requirements: requirements(&format!("{ZONE} Exists")),
            ..roomy("a")
        },
    ] {
        check(&cluster(vec![pool], replicas(4, &zonal(1))), ZONE, &[4]);
    }
}

#[test]
fn capacity_types_are_balanced_like_zones() {
    let by = |more| web().spread_with(CAPACITY_TYPE, 1, "app=web", &more);
    let only = |value: &str| by(json!({})).selector(&format!("{CAPACITY_TYPE}={value}"));
    let at = |capacity_type: &str, count: usize| {
        let mut node =
            node(capacity_type, &format!("{CAPACITY_TYPE}={capacity_type}"), "cpu=0 pods=100");
        node.pods = replicas(count, &pod(capacity_type).labels("app=web").running());
        node
    };
    let subset = restricted("a", &format!("{CAPACITY_TYPE} In spot on-demand"));
    let any = || vec![roomy("a")];
    check(&cluster(vec![subset], replicas(4, &by(json!({})))), CAPACITY_TYPE, &[2, 2]);
    check(
        &with_nodes(cluster(any(), replicas(5, &by(json!({})))), vec![at("spot", 3)]),
        CAPACITY_TYPE,
        &[4, 1],
    );
    check(
        &with_nodes(cluster(any(), replicas(1, &only("spot"))), vec![at("spot", 3)]),
        CAPACITY_TYPE,
        &[1],
    );
    let both = [replicas(5, &only("spot")), replicas(5, &only("on-demand").named("other"))];
    check(&cluster(any(), both.concat()), CAPACITY_TYPE, &[5, 5]);
    let unselective = by(json!({"labelSelector": null}));
    assert_eq!(plan(&cluster(any(), replicas(3, &unselective))).claims.len(), 1);
    let least = by(json!({"minDomains": 3}));
    check(&cluster(any(), replicas(4, &least)), CAPACITY_TYPE, &[1, 1]);
}

#[test]
fn constraints_on_capacity_type_and_host_hold_together() {
    let both = || web().spread(CAPACITY_TYPE, 1, "app=web").spread(HOSTNAME, 3, "app=web");
    for (count, expect) in [(2, [1, 1]), (5, [3, 2]), (10, [5, 5]), (21, [11, 10])] {
        let plan = plan(&cluster(vec![roomy("a")], replicas(count, &both())));
        assert_eq!(spread_of(&plan, CAPACITY_TYPE), expect);
        assert!(spread_of(&plan, HOSTNAME)[0] <= 3);
    }
    let zonal_too = || web().spread(CAPACITY_TYPE, 1, "app=web").spread(ZONE, 1, "app=web");
    // Spot is to be had in two of the three zones.
    for count in 1..=10 {
        let plan = plan(&cluster(vec![roomy("a")], replicas(count, &zonal_too())));
        let counts = spread_of(&plan, CAPACITY_TYPE);
        assert!(counts[0] - counts.get(1).unwrap_or(&0) <= 1, "{count}: {counts:?}");
    }
}

#[test]
fn two_constraints_over_other_pods_depend_on_each_other() {
    let one = |app: &str, other: &str| {
        let labels = format!("app={app}");
        replicas(
            3,
            &pod(app).labels(&labels).requests("cpu=1").spread(ZONE, 1, &labels).spread(
                ZONE,
                1,
                &format!("app={other}"),
            ),
        )
    };
    let plan = plan(&cluster(vec![roomy("a")], [one("a", "b"), one("b", "a")].concat()));
    assert!(plan.failures.is_empty(), "{:?}", plan.failures);
    assert_eq!(spread_of(&plan, ZONE), [2, 2, 2]);
}

#[test]
fn pools_with_taints_of_their_own_share_domains() {
    let of = |name: &str, zones: &str| {
        let taints = vec![taint(&format!("{name}:NoSchedule"))];
        Pool { taints, ..restricted(name, &format!("{ZONE} In {zones}")) }
    };
    let pools =
        || vec![of("red", "test-zone-1 test-zone-2"), of("blue", "test-zone-2 test-zone-3")];
    for (tolerated, policy, count, expect) in [
        (&["red"][..], "Honor", 4, &[2, 2][..]),
        (&["blue"], "Honor", 4, &[2, 2]),
        (&["red", "blue"], "Honor", 6, &[2, 2, 2]),
        // Zone 3 is out of reach and holds its zero against the others.
        (&["red"], "Ignore", 4, &[1, 1]),
        (&["blue"], "Ignore", 4, &[1, 1]),
        (&[], "Honor", 2, &[]),
    ] {
        let template = tolerated.iter().fold(web(), |pod, key| pod.tolerates(key));
        let template =
            template.spread_with(ZONE, 1, "app=web", &json!({"nodeTaintsPolicy": policy}));
        check(&cluster(pools(), replicas(count, &template)), ZONE, expect);
    }
}

#[test]
fn a_lone_pod_needs_no_company() {
    for more in [
        json!({"labelSelector": null}),
        json!({"labelSelector": {}}),
        json!({}),
        json!({"minDomains": 1}),
    ] {
        let one = web().spread_with(ZONE, 1, "app=web", &more).build();
        assert_eq!(plan(&cluster(vec![roomy("a")], vec![one])).claims.len(), 1, "{more}");
    }
}
