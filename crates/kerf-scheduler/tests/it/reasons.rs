//! What is said about a pod that goes nowhere: the cause that a user would have to mend, with its numbers.

use kerf_model::{
    Pool,
    labels::{ON_DEMAND, ZONE},
    snapshot::Idle,
};

use crate::build::{
    PodSpec, TypeSpec, ZONES, amounts, cluster, instance_type, many_types, node, plan, pod, pool,
    refusal, replicas, requirements, taint, with_nodes,
};

/// A pool of types with 1 to 4 cores, and a node of it with two.
fn check(limits: &str, pod: &PodSpec, expected: &str) {
    let limited =
        Pool { limits: amounts(limits), instance_types: many_types(4), ..pool("default") };
    let mut there = node("there", "", "cpu=2 memory=4Gi pods=20");
    there.pool = Some("default".into());
    there.taints = vec![taint("full:NoSchedule")];
    let snapshot = with_nodes(cluster(vec![limited], vec![pod.clone().build()]), vec![there]);
    assert_eq!(refusal(&plan(&snapshot), "web"), expected, "{limits}");
}

#[test]
fn a_limit_is_named_with_what_is_used_and_left() {
    let three = pod("web").requests("cpu=2500m");
    check(
        "cpu=4",
        &three,
        "pool default: every instance type that suits the pod exceeds its limits (cpu: limit 4, used 2, left 2, the smallest of them has 3)",
    );
    // Nothing is left, and it is said that it is nothing.
    check(
        "cpu=2",
        &three,
        "pool default: every instance type that suits the pod exceeds its limits (cpu: limit 2, used 2, left 0, the smallest of them has 3)",
    );
    check(
        "cpu=1",
        &three,
        "pool default: every instance type that suits the pod exceeds its limits (cpu: limit 1, used 2, left -1, the smallest of them has 3)",
    );
    // Only what stands in the way.
    check(
        "cpu=100 memory=8Gi pods=1000",
        &three,
        "pool default: every instance type that suits the pod exceeds its limits (memory: limit 8Gi, used 4Gi, left 4Gi, the smallest of them has 6Gi)",
    );
    check(
        "nodes=1",
        &three,
        "pool default: its limit of nodes is reached (limit 1, used 1, left 0)",
    );
}

#[test]
fn a_limit_is_not_named_where_the_pod_would_not_fit_without_it() {
    let huge = pod("web").requests("cpu=50");
    let room = "pool default: it asks for 50 CPU, and the largest allowed type has 4 (";
    let message = |limits: &str, pod: &PodSpec| {
        let limited = Pool {
            limits: amounts(limits),
            instance_types: many_types(4),
            taints: vec![taint("batch:NoSchedule")],
            ..pool_for_arm()
        };
        refusal(&plan(&cluster(vec![limited], vec![pod.clone().build()])), "web")
    };
    for limits in ["cpu=0", "nodes=0", ""] {
        let tolerating = huge.clone().tolerates("batch");
        assert!(message(limits, &tolerating).starts_with(room), "{}", message(limits, &tolerating));
        let taint = "pool default: did not tolerate taint batch:NoSchedule";
        assert_eq!(message(limits, &pod("web")), taint, "{limits}");
        let elsewhere = tolerating.selector("kubernetes.io/arch=arm64");
        let incompatible = "pool default: incompatible requirements, key kubernetes.io/arch";
        assert!(message(limits, &elsewhere).starts_with(incompatible), "{limits}");
    }
}

fn pool_for_arm() -> Pool {
    Pool { requirements: requirements("kubernetes.io/arch In amd64"), ..pool("default") }
}

#[test]
fn what_this_plan_launches_is_told_apart_from_what_is_there() {
    let limited =
        Pool { limits: amounts("cpu=9"), instance_types: many_types(4), ..pool("default") };
    let mut there = node("there", "", "cpu=2");
    there.pool = Some("default".into());
    there.taints = vec![taint("full:NoSchedule")];
    let pods = replicas(2, &pod("web").requests("cpu=3500m"));
    let snapshot = with_nodes(cluster(vec![limited], pods), vec![there]);
    let plan = plan(&snapshot);
    assert_eq!((plan.claims.len(), plan.failures.len()), (1, 1));
    assert_eq!(
        plan.failures[0].refusal.to_string(),
        "pool default: every instance type that suits the pod exceeds its limits (cpu: limit 9, used 2, planned 4, left 3, the smallest of them has 4)"
    );
}

#[test]
fn claims_that_are_being_launched_count_as_used() {
    let limited = Pool {
        limits: amounts("cpu=4 nodes=2"),
        launching: amounts("cpu=4 nodes=1"),
        instance_types: many_types(4),
        ..pool("default")
    };
    let snapshot = cluster(vec![limited.clone()], vec![pod("web").build()]);
    assert_eq!(
        refusal(&plan(&snapshot), "web"),
        "pool default: every instance type that suits the pod exceeds its limits (cpu: limit 4, used 4, left 0, the smallest of them has 1)"
    );
    let limited = Pool { launching: amounts("nodes=2"), ..limited };
    let snapshot = cluster(vec![limited], vec![pod("web").build()]);
    assert_eq!(
        refusal(&plan(&snapshot), "web"),
        "pool default: its limit of nodes is reached (limit 2, used 2, left 0)"
    );
}

/// Pools that launch nothing are among the reasons, unless they are static and there are others.
#[test]
fn pools_that_launch_nothing_are_said() {
    let idle = |name: &str, why: Idle| Pool { idle: Some(why), ..pool(name) };
    let unready = || idle("a", Idle::NotReady("NodeClassReady=False".to_owned()));
    let unknown =
        || idle("b", Idle::UnknownInstanceTypes { because: "the provider said no".to_owned() });
    let fixed = |name: &str| idle(name, Idle::Static);
    let nothing =
        || Pool { requirements: requirements("kubernetes.io/arch In s390x"), ..pool("c") };
    let check = |mut pools: Vec<Pool>, idle_pools: Vec<Pool>, expected: &[&str]| {
        pools.extend(idle_pools);
        let snapshot = cluster(pools, vec![pod("web").requests("cpu=1").build()]);
        let refusal = refusal(&plan(&snapshot), "web");
        let parts: Vec<_> = refusal.split("; ").collect();
        assert_eq!(parts.len(), expected.len(), "{refusal}");
        for (part, expected) in parts.iter().zip(expected) {
            assert!(part.starts_with(expected), "{refusal}");
        }
    };
    check(vec![], vec![], &["there is no NodePool to launch a node from"]);
    check(
        vec![],
        vec![fixed("x"), fixed("y")],
        &["every NodePool is static (x, y) and keeps its replicas whatever pods need"],
    );
    check(
        vec![],
        vec![unknown(), fixed("x"), unready()],
        &[
            "pool a: it is not ready: NodeClassReady=False",
            "pool b: its instance types are unknown: the provider said no",
        ],
    );
    check(
        vec![nothing()],
        vec![unready(), fixed("x")],
        &[
            "pool c: no instance type meets all requirements: none has kubernetes.io/arch In [s390x]",
            "pool a: it is not ready: NodeClassReady=False",
        ],
    );
    let tainted = Pool { taints: vec![taint("batch:NoSchedule")], ..pool("d") };
    check(
        vec![tainted, nothing()],
        vec![fixed("x")],
        &["pool d: did not tolerate taint batch:NoSchedule", "pool c: no instance type meets"],
    );
}

/// The zone that comes first has no room for the pod. It would go to the next, were it not for the limit.
#[test]
fn a_limit_is_named_where_another_domain_would_do() {
    let in_zone = |name: &str, capacity: &str, zone| {
        let offerings = vec![(ON_DEMAND, zone)];
        TypeSpec { offerings, ..instance_type(name, capacity) }.build()
    };
    let limited = Pool {
        limits: amounts("cpu=4"),
        instance_types: vec![
            in_zone("small", "cpu=1", ZONES[0]),
            in_zone("large", "cpu=8", ZONES[1]),
        ],
        ..pool("default")
    };
    let spread = pod("web").labels("app=web").requests("cpu=2").spread(ZONE, 1, "app=web");
    assert_eq!(
        refusal(&plan(&cluster(vec![limited], vec![spread.build()])), "web"),
        "pool default: every instance type that suits the pod exceeds its limits (cpu: limit 4, used 0, left 4, the smallest of them has 8)"
    );
}

#[test]
fn a_hostname_that_no_new_node_can_have_is_named() {
    for (asked, expected) in [
        ("In there", "label \"kubernetes.io/hostname\" does not have known values"),
        (
            "DoesNotExist",
            "key kubernetes.io/hostname, kubernetes.io/hostname DoesNotExist not in kubernetes.io/hostname Exists",
        ),
    ] {
        let pod = pod("web").requires(&format!("kubernetes.io/hostname {asked}"));
        let refusal = refusal(&plan(&cluster(vec![pool("default")], vec![pod.build()])), "web");
        assert_eq!(refusal, format!("pool default: incompatible requirements, {expected}"));
    }
}

/// Where types are allowed the pod is too large for them, and the largest is named; otherwise the requirement is.
#[test]
fn the_cause_is_what_a_user_would_change() {
    let types = || {
        let gpu = instance_type("gpu", "cpu=8 memory=64Gi nvidia.com/gpu=2").build();
        let wide = instance_type("wide", "cpu=16 memory=16Gi").build();
        let tall = instance_type("tall", "cpu=4 memory=128Gi").build();
        let huge = TypeSpec { arch: "arm64", ..instance_type("huge", "cpu=64 memory=256Gi") };
        vec![gpu, wide, tall, huge.build()]
    };
    let on_amd = || {
        let requirements = requirements("kubernetes.io/arch In amd64");
        Pool { requirements, instance_types: types(), ..pool("default") }
    };
    let no_gpu = || {
        let mut pool = on_amd();
        pool.requirements
            .extend(requirements("node.kubernetes.io/instance-type NotIn gpu").iter().cloned());
        pool
    };
    let check = |pool: Pool, of_pod: PodSpec, daemon: Option<PodSpec>, expected: &str| {
        let mut snapshot = cluster(vec![pool], vec![of_pod.build()]);
        snapshot.daemons.extend(daemon.map(PodSpec::build));
        let found = refusal(&plan(&snapshot), "web");
        assert_eq!(found, format!("pool default: {expected}"));
    };
    check(
        on_amd(),
        pod("web").requests("cpu=64"),
        None,
        "it asks for 64 CPU, and the largest allowed type has 16 (wide)",
    );
    check(
        on_amd(),
        pod("web").requests("cpu=16"),
        None,
        "it asks for 16 CPU, and the largest allowed type leaves 15900m to pods (wide)",
    );
    check(
        on_amd(),
        pod("web").requests("cpu=15600m"),
        Some(pod("d").requests("cpu=500m")),
        "it asks for 15600m CPU, and the largest allowed type leaves 15400m to pods (wide)",
    );
    check(
        on_amd(),
        pod("web").requests("cpu=20 memory=200Gi"),
        None,
        "it asks for 20 CPU, and the largest allowed type has 16 (wide); \
         it asks for 200Gi of memory, and the largest allowed type has 128Gi (tall)",
    );
    check(
        on_amd(),
        pod("web").requests("nvidia.com/gpu=4"),
        None,
        "it asks for 4 of nvidia.com/gpu, and the largest allowed type has 2 (gpu)",
    );
    check(
        no_gpu(),
        pod("web").requests("nvidia.com/gpu=1"),
        None,
        "no allowed instance type has nvidia.com/gpu, and it asks for 1",
    );
    check(
        on_amd(),
        pod("web").requests("cpu=12 memory=100Gi"),
        None,
        "no allowed instance type has all of what it asks for at once: cpu 12, memory 100Gi, pods 1",
    );
    check(
        on_amd(),
        pod("web").requests("cpu=1").requires("node.kubernetes.io/instance-type In huge"),
        None,
        "no instance type meets all requirements",
    );
    check(
        on_amd(),
        pod("web").requires(&format!("{ZONE} In nowhere")),
        None,
        &format!("no instance type meets all requirements: none has {ZONE} In [nowhere]"),
    );
    // Another pool has a node with it, so the name is known; this pool has none.
    let plain = Pool {
        instance_types: vec![instance_type("wide", "cpu=16 memory=16Gi").build()],
        ..pool("default")
    };
    let mut there = node("there", "", "cpu=1 nvidia.com/gpu=1");
    there.taints = vec![taint("full:NoSchedule")];
    let asks = pod("web").requests("nvidia.com/gpu=1").build();
    let snapshot = with_nodes(cluster(vec![plain], vec![asks]), vec![there]);
    assert_eq!(
        refusal(&plan(&snapshot), "web"),
        "pool default: no instance type has nvidia.com/gpu, and it asks for 1"
    );
}
