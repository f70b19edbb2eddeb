//! What daemon sets take.

use std::sync::Arc;

use crate::build::*;
use kerf_model::labels::ZONE;
use kerf_model::{Pod, Pool, Snapshot};

fn with_daemons(mut snapshot: Snapshot, daemons: Vec<Arc<Pod>>) -> Snapshot {
    snapshot.daemons = daemons;
    snapshot
}

fn web() -> PodSpec {
    pod("web").requests("cpu=1")
}

/// The cheapest type for a one-core pod with this daemon around.
fn cheapest(daemon: PodSpec, pool: Pool) -> String {
    let snapshot = with_daemons(cluster(vec![pool], vec![web().build()]), vec![daemon.build()]);
    let plan = plan(&snapshot);
    plan.claims
        .first()
        .map_or_else(|| refusal(&plan, "web"), |claim| claim.instance_types[0].name().to_owned())
}

#[test]
fn only_daemons_that_will_run_take_room() {
    let fat = || pod("d").requests("cpu=1");
    let tainted =
        |effect: &str| Pool { taints: vec![taint(&format!("t:{effect}"))], ..pool("default") };
    let small = "small-instance-type";
    let default = "default-instance-type";
    assert_eq!(cheapest(pod("d"), pool("default")), small);
    assert_eq!(cheapest(fat(), pool("default")), default, "raises the type");
    assert_eq!(cheapest(fat().selector("nothing=here"), pool("default")), small, "never matches");
    assert_eq!(
        cheapest(fat().selector("kubernetes.io/arch=arm64"), pool("default")),
        small,
        "other architecture"
    );
    assert_eq!(
        cheapest(fat().requires("unknown NotIn x"), pool("default")),
        default,
        "absence will do"
    );
    assert_eq!(
        cheapest(fat().prefers(1, "nothing In here"), pool("default")),
        default,
        "preferences do not matter"
    );
    assert_eq!(
        cheapest(
            fat().requires("nothing In here").requires("kubernetes.io/os In linux"),
            pool("default")
        ),
        default,
        "the second term will do"
    );
    assert_eq!(
        cheapest(
            fat().selector("karpenter.sh/registered=true karpenter.sh/initialized=true"),
            pool("default")
        ),
        default
    );
    let labelled = || Pool { labels: labels("team=x"), ..pool("default") };
    assert_eq!(cheapest(fat().selector("team=x"), labelled()), default, "the pool's label");
    assert_eq!(cheapest(fat().selector("team=y"), labelled()), small);
    let tolerant = |pool: Pool| {
        let pods = vec![web().tolerates("t").build()];
        let snapshot = with_daemons(cluster(vec![pool], pods), vec![fat().build()]);
        plan(&snapshot).claims[0].instance_types[0].name().to_owned()
    };
    assert_eq!(tolerant(tainted("NoSchedule")), small, "does not tolerate");
    assert_eq!(tolerant(tainted("PreferNoSchedule")), default, "soft taints do not stop daemons");
}

#[test]
fn a_daemon_too_large_for_everything_leaves_nothing() {
    let reason = cheapest(pod("d").requests("cpu=10000"), pool("default"));
    assert!(reason.ends_with("its daemons leave no room on any allowed instance type"), "{reason}");
}

#[test]
fn daemons_are_judged_per_instance_type() {
    let daemon = pod("d").requests("cpu=1").selector("size=large");
    let snapshot =
        with_daemons(cluster(vec![pool("default")], vec![web().build()]), vec![daemon.build()]);
    let plan = plan(&snapshot);
    assert_eq!(plan.claims[0].instance_types[0].name(), "small-instance-type");
    assert_eq!(plan.claims[0].requests.to_string(), "cpu 1, pods 1", "not all types run it");
    let large = with_daemons(
        cluster(vec![pool("default")], vec![web().selector("size=large").build()]),
        vec![pod("d").requests("cpu=1").selector("size=large").build()],
    );
    assert_eq!(crate::build::plan(&large).claims[0].requests.to_string(), "cpu 2, pods 2");
}

#[test]
fn requests_carry_the_daemons_once() {
    let daemon = pod("d").requests("cpu=100m memory=50Mi").build();
    let snapshot = with_daemons(
        cluster(vec![pool("default")], replicas(3, &pod("web").requests("cpu=200m"))),
        vec![daemon],
    );
    let plan = plan(&snapshot);
    assert_eq!(plan.claims.len(), 1);
    assert_eq!(plan.claims[0].requests.to_string(), "cpu 700m, memory 50Mi, pods 4");
}

#[test]
fn ports_of_daemons_are_taken() {
    let daemon = || pod("d").host_port(80).build();
    let plan_of = |daemon: Arc<Pod>, pool: Pool| {
        plan(&with_daemons(
            cluster(vec![pool], vec![pod("web").host_port(80).build()]),
            vec![daemon],
        ))
    };
    assert_eq!(plan_of(daemon(), pool("default")).claims.len(), 0);
    let elsewhere = pod("d").host_port(80).selector("kubernetes.io/arch=arm64").build();
    let claims = plan_of(elsewhere, pool("default")).claims;
    assert!(claims[0].instance_types.iter().all(|one| one.name() != "arm-instance-type"));
}

#[test]
fn nodes_keep_room_for_daemons_that_are_to_come() {
    let check = |running: Vec<Arc<Pod>>, daemon: PodSpec, cpu: &str, fits: bool| {
        let mut node = node("n", &format!("{ZONE}=test-zone-1"), "cpu=4");
        node.pods = running;
        let snapshot = with_nodes(
            cluster(vec![], vec![pod("web").requests(&format!("cpu={cpu}")).build()]),
            vec![node],
        );
        let plan = plan(&with_daemons(snapshot, vec![daemon.build()]));
        assert_eq!(plan.placements.len(), usize::from(fits), "cpu={cpu}");
    };
    let daemon = || pod("d").requests("cpu=1");
    let ours = |name: &str, cpu: &str| {
        pod(name).requests(&format!("cpu={cpu}")).daemon().running().build()
    };
    check(vec![], daemon(), "3", true);
    check(vec![], daemon(), "3100m", false);
    check(vec![ours("d1", "1")], daemon(), "3", true);
    check(vec![ours("d1", "500m")], daemon(), "3", true);
    check(vec![ours("d1", "500m")], daemon(), "3100m", false);
    // A daemon that nobody expected takes its room and no more.
    check(vec![ours("d1", "2")], daemon(), "2", true);
    check(vec![ours("d1", "2")], daemon(), "2100m", false);
    check(vec![], daemon().selector(&format!("{ZONE}=test-zone-2")), "4", true);
    check(vec![], daemon().requires("kubernetes.io/os In linux"), "4", true);
}

#[test]
fn daemons_take_what_their_containers_need() {
    let containers = |name: &str, cpu: &str| k8s_openapi::serde_json::json!([{"name": name, "resources": {"requests": {"cpu": cpu}}}]);
    let with = |main: &str, init: &str| {
        pod("d")
            .set("containers", containers("c", main))
            .set("initContainers", containers("i", init))
    };
    for (what, daemon, expect) in [
        ("an init container within the rest", with("500m", "500m"), "small-instance-type"),
        ("an init container beyond it", with("100m", "1"), "default-instance-type"),
        ("an init container too large", with("0", "100"), ""),
        ("both too large together", with("100", "100"), ""),
        (
            "nothing asked",
            pod("d").set("containers", k8s_openapi::serde_json::json!([{"name": "c"}])),
            "small-instance-type",
        ),
        ("memory", pod("d").requests("memory=3Gi"), "default-instance-type"),
    ] {
        let got = cheapest(daemon, pool("default"));
        let is_type = got.ends_with("-type");
        assert_eq!(if is_type { got.as_str() } else { "" }, expect, "{what}: {got}");
    }
}

#[test]
fn several_daemons_add_up_where_they_run() {
    let small = || pod("small").requests("cpu=500m");
    for (selectors, cpu) in [
        (&[""][..], "1500m"),
        (&["", ""], "2"),
        (&["", "kubernetes.io/os=linux"], "2"),
        (&["", "kubernetes.io/os=plan9"], "1500m"),
        // Some of the types will run it, so it is not part of what every one of them must have.
        (&["", "kubernetes.io/arch=arm64"], "1500m"),
    ] {
        let daemons = selectors
            .iter()
            .enumerate()
            .map(|(at, selector)| small().named(&format!("d{at}")).selector(selector).build());
        let snapshot = cluster(vec![pool("default")], vec![web().build()]);
        let plan = plan(&with_daemons(snapshot, daemons.collect()));
        assert_eq!(plan.claims[0].requests.amount("cpu").to_string(), cpu, "{selectors:?}");
    }
}

#[test]
fn soft_taints_keep_no_daemon_from_nodes_that_are_there_or_on_their_way() {
    for (effect, runs) in [("PreferNoSchedule", true), ("NoSchedule", false), ("NoExecute", false)]
    {
        for exists in [true, false] {
            let tainted = kerf_model::Node {
                taints: vec![taint(&format!("t:{effect}"))],
                exists,
                initialized: exists,
                ..node("n", "", "cpu=2")
            };
            let placed = |cpu: &str| {
                let pods = vec![pod("web").requests(cpu).tolerates("t").build()];
                let daemons = vec![pod("d").requests("cpu=1").build()];
                let snapshot = with_daemons(cluster(vec![], pods), daemons);
                plan(&with_nodes(snapshot, vec![tainted.clone()])).placements.len()
            };
            assert_eq!(placed("cpu=1"), 1, "{effect} exists={exists}: beside the daemon");
            assert_eq!(placed("cpu=1500m"), usize::from(!runs), "{effect} exists={exists}");
        }
    }
}
