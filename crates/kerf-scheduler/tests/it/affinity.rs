//! Pod affinity and anti-affinity.

use crate::build::*;
use k8s_openapi::serde_json::json;
use kerf_model::labels::{ARCH, Labels, ZONE};
use kerf_model::{Node, Pool, Requirement};
use kerf_scheduler::Plan;

fn roomy() -> Pool {
    Pool { instance_types: many_types(20), ..pool("default") }
}

fn claim_of(plan: &Plan, pod: &str) -> Option<usize> {
    plan.claims.iter().position(|claim| claim.pods.iter().any(|placed| placed.name == pod))
}

fn zone_of(plan: &Plan, pod: &str) -> Option<String> {
    let claim = &plan.claims[claim_of(plan, pod)?];
    claim.requirements.get(ZONE).and_then(Requirement::only_value).map(str::to_owned)
}

fn holding(name: &str, zone: &str, pod: PodSpec) -> Node {
    let mut node = node(name, &format!("{ZONE}={zone}"), "cpu=0 pods=100");
    node.pods = vec![pod.running().build()];
    node
}

#[test]
fn empty_terms_do_nothing() {
    let empty = pod("web").set("affinity", json!({"podAffinity": {}, "podAntiAffinity": {}}));
    assert_eq!(plan(&cluster(vec![roomy()], vec![empty.build()])).claims.len(), 1);
}

#[test]
fn affinity_follows_its_target() {
    for key in [HOSTNAME, ARCH, ZONE] {
        let target = pod("target")
            .labels("app=db")
            .requests("cpu=2")
            .selector(&format!("{ARCH}=arm64 {ZONE}=test-zone-2"));
        let follower = pod("follower").affinity(key, "app=db");
        let plan = plan(&cluster(vec![pool("default")], vec![follower.build(), target.build()]));
        assert!(plan.failures.is_empty(), "{key}: {:?}", plan.failures);
        assert_eq!(claim_of(&plan, "follower"), claim_of(&plan, "target"), "{key}");
    }
}

#[test]
fn affinity_to_oneself_starts_somewhere_and_stays() {
    for (key, claims) in [(HOSTNAME, 1), (ZONE, 1)] {
        let template = pod("web").labels("app=web").requests("cpu=1").affinity(key, "app=web");
        let plan = plan(&cluster(vec![roomy()], replicas(10, &template)));
        assert!(plan.failures.is_empty(), "{:?}", plan.failures);
        assert_eq!(plan.claims.len(), claims, "{key}");
    }
    // Too many for one host: the rest has to wait, for a second host would break the rule.
    let template = pod("web").labels("app=web").affinity(HOSTNAME, "app=web");
    let plan = plan(&cluster(vec![pool("default")], replicas(10, &template)));
    assert_eq!((plan.claims.len(), plan.claims[0].pods.len(), plan.failures.len()), (1, 5, 5));
}

#[test]
fn affinity_to_oneself_in_a_zone_spans_claims_of_that_zone() {
    let template = pod("web").labels("app=web").affinity(ZONE, "app=web");
    let plan = plan(&cluster(vec![pool("default")], replicas(10, &template)));
    assert!(plan.failures.is_empty());
    assert_eq!(spread_of(&plan, ZONE), [10]);
    assert_eq!(plan.claims.len(), 2);
    let pinned = pod("web")
        .labels("app=web")
        .affinity(ZONE, "app=web")
        .requires(&format!("{ZONE} In test-zone-3"));
    let plan = crate::build::plan(&cluster(vec![roomy()], replicas(4, &pinned)));
    assert_eq!(zone_of(&plan, "web-000").as_deref(), Some("test-zone-3"));
}

#[test]
fn affinity_to_oneself_does_not_start_a_second_domain() {
    let elsewhere = holding("n", "test-zone-1", pod("old").labels("app=web"));
    let template = pod("web").labels("app=web").requests("cpu=1").affinity(ZONE, "app=web");
    let check = |zones: &str, failures: usize| {
        let limited = Pool { requirements: requirements(&format!("{ZONE} In {zones}")), ..roomy() };
        let plan = plan(&with_nodes(
            cluster(vec![limited], replicas(3, &template)),
            vec![elsewhere.clone()],
        ));
        assert_eq!(plan.failures.len(), failures, "{zones}");
    };
    check("test-zone-1", 0);
    check("test-zone-2 test-zone-3", 3);
    // Where the pod itself may not go to the zone of the others, it starts anew.
    let apart = template.requires(&format!("{ZONE} In test-zone-2"));
    let plan = plan(&with_nodes(cluster(vec![roomy()], replicas(3, &apart)), vec![elsewhere]));
    assert!(plan.failures.is_empty());
}

#[test]
fn incompatible_zones_make_two_nodes() {
    let in_zone = |name: &str, zone: &str| {
        pod(name)
            .labels("app=web")
            .affinity(ZONE, "app=web")
            .selector(&format!("{ZONE}={zone}"))
            .build()
    };
    let plan = plan(&cluster(
        vec![roomy()],
        vec![in_zone("a", "test-zone-1"), in_zone("b", "test-zone-2")],
    ));
    assert_eq!((plan.claims.len(), plan.failures.len()), (2, 0));
}

#[test]
fn preferred_terms_may_be_broken() {
    let lonely = pod("lonely").prefers_pods("podAffinity", 10, ZONE, "app=nobody");
    assert_eq!(plan(&cluster(vec![roomy()], vec![lonely.build()])).claims.len(), 1);
    let template =
        pod("web").labels("app=web").prefers_pods("podAntiAffinity", 10, ZONE, "app=web");
    let plan = plan(&cluster(vec![roomy()], replicas(5, &template)));
    assert!(plan.failures.is_empty());
    assert_eq!(plan.claims.iter().map(|claim| claim.pods.len()).sum::<usize>(), 5);
}

#[test]
fn anti_affinity_separates_hosts() {
    let template = pod("web").labels("app=web").anti_affinity(HOSTNAME, "app=web");
    let plan = plan(&cluster(vec![roomy()], replicas(3, &template)));
    assert_eq!(spread_of(&plan, HOSTNAME), [1, 1, 1]);
}

#[test]
fn anti_affinity_to_every_zone_in_use_fails() {
    let pinned = |at: usize| {
        pod(&format!("big-{at}"))
            .labels("app=web")
            .requests("cpu=2")
            .selector(&format!("{ZONE}={}", ZONES[at]))
            .build()
    };
    let apart = pod("apart").anti_affinity(ZONE, "app=web").build();
    let plan = plan(&cluster(vec![roomy()], vec![pinned(0), pinned(1), pinned(2), apart]));
    assert_eq!(plan.failures.len(), 1);
    assert!(
        refusal(&plan, "apart")
            .contains("unsatisfiable pod anti-affinity over topology.kubernetes.io/zone")
    );
}

#[test]
fn carriers_that_are_placed_first_keep_others_away() {
    let carrier = |at: usize| {
        pod(&format!("carrier-{at}"))
            .requests("cpu=2")
            .selector(&format!("{ZONE}={}", ZONES[at]))
            .anti_affinity(ZONE, "app=web")
            .build()
    };
    let target = pod("target").labels("app=web").build();
    let plan_all =
        plan(&cluster(vec![roomy()], vec![carrier(0), carrier(1), carrier(2), target.clone()]));
    assert!(!refusal(&plan_all, "target").is_empty());
    let plan_two = plan(&cluster(vec![roomy()], vec![carrier(0), carrier(1), target]));
    assert_eq!(zone_of(&plan_two, "target").as_deref(), Some("test-zone-3"));
}

#[test]
fn carriers_that_run_keep_others_away_unless_they_only_prefer() {
    let target = pod("target").labels("app=web").build();
    let carriers = |carrier: PodSpec| -> Vec<Node> {
        (0..3)
            .map(|at| holding(&format!("n{at}"), ZONES[at], carrier.clone()))
            .enumerate()
            .map(|(at, mut node)| {
                let mut pod = (*node.pods[0]).clone();
                pod.uid = format!("carrier-{at}");
                node.pods = vec![pod.into()];
                node
            })
            .collect()
    };
    let required = carriers(pod("carrier").anti_affinity(ZONE, "app=web"));
    let plan_required = plan(&with_nodes(cluster(vec![roomy()], vec![target.clone()]), required));
    assert_eq!(plan_required.failures.len(), 1);
    let preferred = carriers(pod("carrier").prefers_pods("podAntiAffinity", 10, ZONE, "app=web"));
    let plan_preferred = plan(&with_nodes(cluster(vec![roomy()], vec![target]), preferred));
    assert_eq!(plan_preferred.failures.len(), 0);
}

#[test]
fn a_carrier_that_may_land_anywhere_blocks_its_targets_for_this_run() {
    let carrier = pod("carrier").requests("cpu=2").anti_affinity(ZONE, "app=web").build();
    let target = pod("target").labels("app=web").build();
    let first = plan(&cluster(vec![roomy()], vec![carrier, target.clone()]));
    assert_eq!(first.claims.len(), 1);
    assert_eq!(first.failures.len(), 1);
    // Next run: the carrier runs in a zone, the target goes to another.
    let ran = holding("n", "test-zone-1", pod("carrier").anti_affinity(ZONE, "app=web"));
    let second = plan(&with_nodes(cluster(vec![roomy()], vec![target]), vec![ran]));
    assert!(second.failures.is_empty());
    let zones = second.claims[0].requirements.get(ZONE).expect("a zone requirement");
    assert!(!zones.has("test-zone-1") && zones.has("test-zone-2"));
}

#[test]
fn zonal_anti_affinity_to_oneself_gives_each_its_zone_at_once() {
    let template = pod("web").labels("app=web").anti_affinity(ZONE, "app=web");
    for (replica_count, claims, failures) in [(2, 2, 0), (3, 3, 0), (5, 3, 2)] {
        let plan = plan(&cluster(vec![roomy()], replicas(replica_count, &template)));
        assert_eq!((plan.claims.len(), plan.failures.len()), (claims, failures));
        assert_eq!(spread_of(&plan, ZONE), vec![1; claims]);
    }
    let taken = holding("n", ZONES[1], pod("old").labels("app=web"));
    let plan_beside =
        plan(&with_nodes(cluster(vec![roomy()], replicas(3, &template)), vec![taken]));
    assert_eq!((plan_beside.claims.len(), plan_beside.failures.len()), (2, 1));
    let alone = plan(&cluster(vec![roomy()], replicas(1, &template)));
    let zones = alone.claims[0].requirements.get(ZONE);
    assert!(zones.is_none_or(|zones| ZONES.iter().all(|zone| zones.has(zone))), "{zones:?}");
}

#[test]
fn replicas_that_can_go_anywhere_leave_zones_to_those_that_cannot() {
    let apart =
        |name: &str| pod(name).labels("app=web").requests("cpu=1").anti_affinity(ZONE, "app=web");
    // Larger pods choose first.
    let free = |name: &str| apart(name).requests("cpu=2").build();
    for pinned in ZONES {
        let bound_to_zone = apart("pinned").selector(&format!("{ZONE}={pinned}")).build();
        let pods = vec![free("a"), free("b"), bound_to_zone];
        let plan = plan(&cluster(vec![roomy()], pods));
        assert_eq!((plan.claims.len(), plan.failures.len()), (3, 0), "{pinned}");
        assert_eq!(zone_of(&plan, "pinned").as_deref(), Some(pinned));
    }
}

/// Of a label that neither a node nor an instance type has: a pod names the value, and its node gets it.
#[test]
fn a_domain_that_only_a_pod_names_counts() {
    let any_room = Pool { requirements: requirements("room Exists"), ..roomy() };
    let first = pod("first").labels("app=web").selector("room=green").requests("cpu=2");
    let beside = pod("beside").affinity("room", "app=web").requests("cpu=1");
    let plan = plan(&cluster(vec![any_room], vec![first.build(), beside.build()]));
    assert!(plan.failures.is_empty(), "{}", refusal(&plan, "beside"));
    assert_eq!(claim_of(&plan, "beside"), claim_of(&plan, "first"));
}

#[test]
fn affinity_to_nothing_waits() {
    let plan = plan(&cluster(vec![roomy()], replicas(3, &pod("web").affinity(ZONE, "app=nobody"))));
    assert_eq!((plan.claims.len(), plan.failures.len()), (0, 3));
}

#[test]
fn followers_wait_until_the_zone_is_certain() {
    let followers = || replicas(10, &pod("follower").affinity(ZONE, "app=db"));
    let open = pod("target").labels("app=db").requests("cpu=1").build();
    let plan_open = plan(&cluster(vec![roomy()], [followers(), vec![open]].concat()));
    assert_eq!(plan_open.failures.len(), 10);
    let certain = pod("target")
        .labels("app=db")
        .requests("cpu=1")
        .selector(&format!("{ZONE}=test-zone-2"))
        .build();
    let plan_certain = plan(&cluster(vec![roomy()], [followers(), vec![certain]].concat()));
    assert!(plan_certain.failures.is_empty());
    assert_eq!(spread_of(&plan_certain, ZONE), [11]);
}

#[test]
fn chains_of_affinity_resolve_in_any_order() {
    let link = |name: &str, to: &str| {
        let own = pod(name).labels(&format!("name={name}"));
        if to.is_empty() {
            own.build()
        } else {
            own.affinity(HOSTNAME, &format!("name={to}")).build()
        }
    };
    let names = [("a", ""), ("b", "a"), ("c", "b"), ("d", "c")];
    for rotation in 0..4 {
        let mut pods: Vec<_> = names.iter().map(|(name, to)| link(name, to)).collect();
        pods.rotate_left(rotation);
        let plan = plan(&cluster(vec![roomy()], pods));
        assert_eq!((plan.claims.len(), plan.failures.len()), (1, 0));
    }
    let broken = plan(&cluster(vec![roomy()], vec![link("b", "a"), link("c", "b")]));
    assert_eq!(broken.failures.len(), 2, "and it ends");
}

#[test]
fn namespaces_bound_the_search() {
    let target = || {
        pod("target")
            .namespace("other")
            .labels("app=db")
            .requests("cpu=1")
            .selector(&format!("{ZONE}=test-zone-1"))
            .build()
    };
    let follower = |more: k8s_openapi::serde_json::Value| {
        let mut term = pod_term(HOSTNAME, "app=db");
        let fields = term.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        pod("follower").required_term("podAffinity", term).build()
    };
    let failures = |more, namespaces: &[(&str, &str)]| {
        let mut snapshot = cluster(vec![roomy()], vec![target(), follower(more)]);
        let named = namespaces.iter().map(|(name, text)| ((*name).to_owned(), labels(text)));
        snapshot.namespaces =
            std::sync::Arc::new(named.collect::<std::collections::BTreeMap<String, Labels>>());
        plan(&snapshot).failures.len()
    };
    assert_eq!(failures(json!({}), &[]), 1, "its own namespace alone");
    assert_eq!(failures(json!({"namespaces": ["other"]}), &[]), 0);
    assert_eq!(failures(json!({"namespaceSelector": {}}), &[]), 0, "an empty selector selects all");
    let selector = || json!({"namespaceSelector": {"matchLabels": {"team": "x"}}});
    assert_eq!(failures(selector(), &[("other", "team=x")]), 0);
    assert_eq!(failures(selector(), &[("other", "team=y")]), 1);
}

#[test]
fn anti_affinity_holds_over_every_key() {
    let plan_of = |key: &str, pods: &[(&str, &str)]| {
        let pods = pods.iter().map(|(name, selector)| {
            pod(name).labels("app=web").selector(selector).anti_affinity(key, "app=web").build()
        });
        let plan = plan(&cluster(vec![pool("default")], pods.collect()));
        (plan.claims.len(), plan.failures.len())
    };
    let (amd, arm) = (format!("{ARCH}=amd64"), format!("{ARCH}=arm64"));
    let zone = |at: usize| format!("{ZONE}={}", ZONES[at]);
    assert_eq!(plan_of(ARCH, &[("a", &amd), ("b", &arm)]), (2, 0));
    assert_eq!(plan_of(ARCH, &[("a", &amd), ("b", &arm), ("c", &amd)]), (2, 1));
    assert_eq!(plan_of(ZONE, &[("a", &zone(0)), ("b", &zone(1)), ("c", &zone(2))]), (3, 0));
    assert_eq!(plan_of(ZONE, &[("a", &zone(0)), ("b", &zone(0))]), (1, 1));
    assert_eq!(plan_of(HOSTNAME, &[("a", &amd), ("b", &amd), ("c", &arm)]), (3, 0));
}

#[test]
fn who_comes_first_decides_whom_anti_affinity_turns_away() {
    let pinned = |at: usize, cpu: &str| {
        let zone = format!("{ZONE}={}", ZONES[at]);
        pod(&format!("pinned-{at}"))
            .labels("app=web")
            .requests(&format!("cpu={cpu}"))
            .selector(&zone)
            .build()
    };
    let apart = |cpu: &str| {
        pod("apart").requests(&format!("cpu={cpu}")).anti_affinity(ZONE, "app=web").build()
    };
    let failed = |apart_cpu: &str, pinned_cpu: &str| {
        let mut pods: Vec<_> = (0..3).map(|at| pinned(at, pinned_cpu)).collect();
        pods.push(apart(apart_cpu));
        let plan = plan(&cluster(vec![roomy()], pods));
        plan.failures.iter().map(|failure| failure.pod.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(failed("1", "2"), ["apart"]);
    // It may land in any zone, and keeps all of them free until it is known where.
    assert_eq!(failed("2", "1"), ["pinned-0", "pinned-1", "pinned-2"]);
}

#[test]
fn a_requirement_wins_over_a_preferred_term() {
    let target = || holding("n", "test-zone-1", pod("db").labels("app=db"));
    for (kind, zone) in [("podAffinity", "test-zone-2"), ("podAntiAffinity", "test-zone-1")] {
        let torn = pod("web")
            .requests("cpu=1")
            .prefers_pods(kind, 50, ZONE, "app=db")
            .requires(&format!("{ZONE} In {zone}"));
        let plan = plan(&with_nodes(cluster(vec![roomy()], vec![torn.build()]), vec![target()]));
        assert_eq!(zone_of(&plan, "web").as_deref(), Some(zone), "{kind}");
    }
    for (kind, same) in [("podAffinity", true), ("podAntiAffinity", false)] {
        let free = pod("web").requests("cpu=1").prefers_pods(kind, 50, ZONE, "app=db");
        let plan = plan(&with_nodes(cluster(vec![roomy()], vec![free.build()]), vec![target()]));
        let zones = plan.claims[0].requirements.get(ZONE).expect("zones");
        assert_eq!(zones.has("test-zone-1"), same, "{kind}");
    }
}

#[test]
fn the_heaviest_preferred_term_is_dropped_first() {
    let there = |zone: &str, app: &str| holding(app, zone, pod(app).labels(&format!("app={app}")));
    let torn = pod("web")
        .requests("cpu=1")
        .prefers_pods("podAffinity", 1, ZONE, "app=light")
        .prefers_pods("podAffinity", 2, ZONE, "app=heavy");
    let nodes = vec![there("test-zone-1", "light"), there("test-zone-2", "heavy")];
    let plan = plan(&with_nodes(cluster(vec![roomy()], vec![torn.build()]), nodes));
    assert_eq!(zone_of(&plan, "web").as_deref(), Some("test-zone-1"));
}
