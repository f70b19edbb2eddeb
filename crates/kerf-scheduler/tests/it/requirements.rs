//! Requirements of pools and pods against each other.

use crate::build::*;
use kerf_model::Pool;
use kerf_model::labels::ZONE;

fn schedules(of_pool: &str, of_pod: &str) -> bool {
    let pool = Pool { requirements: requirements(of_pool), ..pool("default") };
    plan(&cluster(vec![pool], vec![pod("web").requires(of_pod).build()])).failures.is_empty()
}

#[test]
fn custom_labels_follow_what_the_pool_defines() {
    for (of_pool, of_pod, expect) in [
        ("", "team In x", false),
        ("", "team NotIn x", true),
        ("", "team Exists", false),
        ("", "team DoesNotExist", true),
        ("team In x", "team In x", true),
        ("team In x", "team NotIn x", false),
        ("team In x", "team Exists", true),
        ("team In x", "team DoesNotExist", false),
        ("team In x", "team In y", false),
        ("team In x", "team NotIn y", true),
        ("team Exists", "team In y", true),
        ("team NotIn x", "team In x", false),
        ("kubernetes.io/anything In x", "kubernetes.io/anything In x", true),
        ("node.k8s.io/anything In x", "node.k8s.io/anything In x", true),
    ] {
        assert_eq!(schedules(of_pool, of_pod), expect, "pool {of_pool:?}, pod {of_pod:?}");
    }
}

#[test]
fn well_known_labels_follow_what_types_offer() {
    for (of_pool, of_pod, expect) in [
        (
            "topology.kubernetes.io/zone In test-zone-2",
            "topology.kubernetes.io/zone In test-zone-2",
            true,
        ),
        (
            "topology.kubernetes.io/zone In test-zone-1",
            "topology.kubernetes.io/zone In test-zone-2",
            false,
        ),
        ("", "topology.kubernetes.io/zone In unknown test-zone-3", true),
        ("", "topology.kubernetes.io/zone NotIn test-zone-1 test-zone-2 test-zone-3", false),
        ("", "topology.kubernetes.io/zone NotIn unknown", true),
        ("", "integer Gt 8", true),
        ("", "integer Gt 16", false),
        ("", "integer Gte 16", true),
        ("", "integer Lt 2", false),
        ("", "integer Lte 2", true),
        ("integer Gt 8", "integer Lt 4", false),
        ("", "special In optional", true),
        ("", "special DoesNotExist", true),
        ("", "special In other", false),
        ("", "kubernetes.io/hostname In somewhere", false),
        ("", "kubernetes.io/hostname NotIn somewhere", true),
        (
            "",
            "karpenter.sh/capacity-type In spot; topology.kubernetes.io/zone In test-zone-3",
            false,
        ),
        (
            "",
            "karpenter.sh/capacity-type In on-demand; topology.kubernetes.io/zone In test-zone-3",
            true,
        ),
    ] {
        assert_eq!(schedules(of_pool, of_pod), expect, "pool {of_pool:?}, pod {of_pod:?}");
    }
}

#[test]
fn compatible_pods_share_and_others_do_not() {
    let claims = |a: &str, b: &str| {
        let pods = vec![pod("a").requires(a).build(), pod("b").requires(b).build()];
        let plan = plan(&cluster(
            vec![Pool { requirements: requirements("team In x y"), ..pool("default") }],
            pods,
        ));
        assert!(plan.failures.is_empty(), "{a} / {b}: {:?}", plan.failures);
        plan.claims.len()
    };
    assert_eq!(claims(&format!("{ZONE} In test-zone-1"), &format!("{ZONE} In test-zone-1")), 1);
    assert_eq!(claims(&format!("{ZONE} In test-zone-1"), &format!("{ZONE} In test-zone-2")), 2);
    assert_eq!(
        claims(
            &format!("{ZONE} In test-zone-1 test-zone-2"),
            &format!("{ZONE} In test-zone-2 test-zone-3")
        ),
        1
    );
    assert_eq!(claims("kubernetes.io/arch In amd64", "kubernetes.io/arch In arm64"), 2);
    assert_eq!(claims("kubernetes.io/os In linux", "kubernetes.io/os In windows"), 2);
    assert_eq!(claims("team In x", "team Exists"), 1);
    assert_eq!(claims("team In x", "team In y"), 2);
    assert_eq!(
        claims(
            "node.kubernetes.io/instance-type In default-instance-type",
            "node.kubernetes.io/instance-type In small-instance-type"
        ),
        2
    );
    let narrowed =
        vec![pod("a").requires("team In x").build(), pod("b").requires("team Exists").build()];
    let plan = plan(&cluster(
        vec![Pool { requirements: requirements("team In x y"), ..pool("default") }],
        narrowed,
    ));
    assert_eq!(
        plan.claims[0].requirements.get("team").map(ToString::to_string).as_deref(),
        Some("team In [x]")
    );
}

#[test]
fn resources_choose_types_and_split_pods() {
    let claims = |requests: &[&str]| {
        let pods = requests
            .iter()
            .enumerate()
            .map(|(at, text)| pod(&format!("p{at}")).requests(text).build())
            .collect();
        let plan = plan(&cluster(vec![pool("default")], pods));
        (cheapest_types(&plan), plan.failures.len())
    };
    assert_eq!(claims(&["cpu=1"]), (vec!["small-instance-type".to_owned()], 0));
    assert_eq!(claims(&["cpu=2"]), (vec!["default-instance-type".to_owned()], 0));
    assert_eq!(claims(&["cpu=10"]), (vec!["arm-instance-type".to_owned()], 0));
    assert_eq!(claims(&["cpu=100"]), (vec![], 1));
    assert_eq!(claims(&["fake.com/vendor-a=1", "fake.com/vendor-b=1"]).0.len(), 2);
    assert_eq!(claims(&["fake.com/vendor-a=1 fake.com/vendor-b=1"]), (vec![], 1));
    assert_eq!(claims(&["fake.com/vendor-a=0"]), (vec!["small-instance-type".to_owned()], 0));
    assert_eq!(claims(&["cpu=4500m", "cpu=1"]).0.len(), 1);
}

#[test]
fn memory_bound_pods_pack_by_memory() {
    let types = vec![
        instance_type("small", "cpu=2 memory=2Gi").build(),
        instance_type("default", "").build(),
    ];
    let pods = [
        replicas(40, &pod("big").requests("memory=1800M")),
        replicas(20, &pod("little").requests("memory=400M")),
    ]
    .concat();
    let plan = plan(&cluster(vec![Pool { instance_types: types, ..pool("default") }], pods));
    assert!(plan.failures.is_empty());
    assert_eq!(plan.claims.len(), 20);
    assert!(cheapest_types(&plan).iter().all(|name| name == "default"));
}

#[test]
fn refusals_say_what_is_missing() {
    let why = |of_pod: PodSpec| {
        refusal(&plan(&cluster(vec![pool("default")], vec![of_pod.build()])), "web")
    };
    assert_eq!(
        why(pod("web").requires("zone In a")),
        "pool default: incompatible requirements, label \"zone\" does not have known values (typo of \"topology.kubernetes.io/zone\"?)"
    );
    assert!(why(pod("web").requests("cpu=1M")).contains("m is a thousandth"));
    assert_eq!(
        why(pod("web").requires("kubernetes.io/arch In none")),
        "pool default: no instance type meets all requirements: none has kubernetes.io/arch In [none]"
    );
    assert_eq!(
        why(pod("web").requires(
            "karpenter.sh/capacity-type In spot; topology.kubernetes.io/zone In test-zone-3"
        )),
        "pool default: no instance type has a required offering"
    );
}

#[test]
fn pods_that_claim_devices_are_refused_by_name() {
    use k8s_openapi::serde_json::{Value, json};
    let container = |claims: Value| json!([{"name": "c", "resources": {"claims": claims}}]);
    let gpu = || json!([{"name": "gpu"}]);
    for (what, web, refused) in [
        ("the pod", pod("web").set("resourceClaims", gpu()), true),
        ("a container", pod("web").set("containers", container(gpu())), true),
        ("an init container", pod("web").set("initContainers", container(gpu())), true),
        (
            "empty lists",
            pod("web").set("containers", container(json!([]))).set("resourceClaims", json!([])),
            false,
        ),
    ] {
        let plan = plan(&cluster(vec![pool("default")], vec![web.build(), pod("other").build()]));
        assert_eq!(refusal(&plan, "web").starts_with("it asks for devices"), refused, "{what}");
        assert_eq!(refusal(&plan, "other"), "", "{what}");
    }
}
