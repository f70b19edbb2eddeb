//! Spread constraints that the cluster gives to pods without any. Numbers are pods per domain, most first.

use std::sync::Arc;

use crate::build::*;
use k8s_openapi::serde_json::json;
use kerf_model::default_spread::{
    ControllerSelector, DefaultConstraint, Workloads, add_default_spread,
};
use kerf_model::labels::ZONE;
use kerf_model::pod::{NodePolicy, Owner, WhenUnsatisfiable};
use kerf_model::{Pod, Pool, Selector};

fn by(topology_key: &str) -> DefaultConstraint {
    DefaultConstraint {
        topology_key: topology_key.to_owned(),
        max_skew: 1,
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        min_domains: None,
        node_affinity_policy: NodePolicy::Honor,
        node_taints_policy: NodePolicy::Ignore,
    }
}

/// Pods of a set that selects by the label `app`.
fn of_set(app: &str, count: usize, template: PodSpec) -> Vec<Pod> {
    let owner = Owner {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name: app.to_owned(),
        uid: app.to_owned(),
        controller: true,
    };
    let template = template.named(app).labels(&format!("app={app}")).requests("cpu=1");
    let pods = replicas(count, &template);
    pods.iter().map(|pod| Pod { owners: vec![owner.clone()], ..(**pod).clone() }).collect()
}

fn sets(apps: &[&str]) -> Workloads {
    let set = |app: &&str| {
        let selector = Selector::from_labels(&labels(&format!("app={app}")));
        ((*app).to_owned(), ControllerSelector::Set(selector))
    };
    Workloads { controllers: apps.iter().map(set).collect(), ..Workloads::default() }
}

fn roomy(zones: &str) -> Pool {
    let requirements = requirements(&format!("{ZONE} In {zones}"));
    Pool { instance_types: many_types(20), requirements, ..pool("default") }
}

const ALL: &str = "test-zone-1 test-zone-2 test-zone-3";
const TWO: &str = "test-zone-1 test-zone-2";

struct Case<'a> {
    what: &'a str,
    defaults: Vec<DefaultConstraint>,
    pods: Vec<Pod>,
    zones: &'a str,
    key: &'a str,
    expect: &'a [usize],
}

#[test]
fn defaults_spread_the_pods_of_each_workload() {
    let web = || pod("web");
    let anyway =
        || DefaultConstraint { when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway, ..by(ZONE) };
    let case = |what, defaults, pods, zones, key, expect| Case {
        what,
        defaults,
        pods,
        zones,
        key,
        expect,
    };
    let two_sets = || [of_set("a", 2, web()), of_set("b", 2, web())].concat();
    let mut strangers = of_set("a", 4, web());
    for pod in &mut strangers {
        pod.owners.clear();
    }
    let own = || web().spread(ZONE, 4, "app=a");
    let soft_own =
        web().spread_with(HOSTNAME, 9, "app=a", &json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    for case in [
        case("zones", vec![by(ZONE)], of_set("a", 6, web()), ALL, ZONE, &[2, 2, 2][..]),
        case("hosts", vec![by(HOSTNAME)], of_set("a", 3, web()), ALL, HOSTNAME, &[1, 1, 1]),
        case(
            "both",
            vec![by(ZONE), by(HOSTNAME)],
            of_set("a", 3, web()),
            ALL,
            HOSTNAME,
            &[1, 1, 1],
        ),
        case("no defaults", vec![], of_set("a", 4, web()), ALL, HOSTNAME, &[4]),
        case("nobody's pods", vec![by(HOSTNAME)], strangers, ALL, HOSTNAME, &[4]),
        case("own constraints win", vec![by(HOSTNAME)], of_set("a", 4, own()), ALL, HOSTNAME, &[4]),
        case("soft ones too", vec![by(HOSTNAME)], of_set("a", 4, soft_own), ALL, HOSTNAME, &[4]),
        case(
            "a wider skew",
            vec![DefaultConstraint { max_skew: 4, ..by(HOSTNAME) }],
            of_set("a", 4, web()),
            ALL,
            HOSTNAME,
            &[4],
        ),
        case(
            "too few domains",
            vec![DefaultConstraint { min_domains: Some(3), ..by(ZONE) }],
            of_set("a", 4, web()),
            TWO,
            ZONE,
            &[1, 1],
        ),
        case(
            "enough of them",
            vec![DefaultConstraint { min_domains: Some(2), ..by(ZONE) }],
            of_set("a", 4, web()),
            TWO,
            ZONE,
            &[2, 2],
        ),
        case(
            "what yields",
            vec![DefaultConstraint { min_domains: Some(3), ..anyway() }],
            of_set("a", 4, web()),
            TWO,
            ZONE,
            &[2, 2],
        ),
        case("workloads by themselves", vec![by(HOSTNAME)], two_sets(), ALL, HOSTNAME, &[2, 2]),
    ] {
        let workloads = sets(&["a", "b"]);
        let pods = case.pods.into_iter().map(|mut pod| {
            add_default_spread(&mut pod, &case.defaults, &workloads);
            Arc::new(pod)
        });
        let plan = plan(&cluster(vec![roomy(case.zones)], pods.collect()));
        assert_eq!(spread_of(&plan, case.key), case.expect, "{}: {:?}", case.what, plan.failures);
    }
}

#[test]
fn pods_that_run_already_count_for_the_defaults() {
    let there = ["test-zone-1", "test-zone-2"].map(|zone| {
        let mut node = node(zone, &format!("{ZONE}={zone}"), "cpu=0");
        node.pods = of_set("a", 1, pod("old").running())
            .into_iter()
            .map(|pod| Arc::new(Pod { uid: format!("{zone}-old"), ..pod }))
            .collect();
        node
    });
    let mut new = of_set("a", 1, pod("web")).remove(0);
    add_default_spread(&mut new, &[by(ZONE)], &sets(&["a"]));
    let plan = plan(&with_nodes(cluster(vec![roomy(ALL)], vec![Arc::new(new)]), there.into()));
    let zone = plan.claims[0].requirements.get(ZONE).and_then(kerf_model::Requirement::only_value);
    assert_eq!(zone, Some("test-zone-3"));
}
