//! Volumes and host ports.

use std::sync::Arc;

use crate::build::*;
use kerf_model::labels::ZONE;
use kerf_model::volume::{StorageClass, Volume, VolumeClaim, Volumes};
use kerf_model::{InstanceType, Pool, Requirement, Requirements, Snapshot};

fn zones(values: &[&str]) -> Requirements {
    Requirements::new([Requirement::is_in(ZONE, values.iter().copied())])
}

/// Unbound claims named after their class, and one claim bound to each volume.
fn storage(
    classes: &[(&str, Vec<Requirements>)],
    volumes: &[(&str, Vec<Requirements>)],
) -> Volumes {
    let mut storage = Volumes::default();
    for (name, terms) in classes {
        let class = StorageClass {
            provisioner: "csi.test".to_owned(),
            terms: terms.clone(),
            immediate: false,
        };
        storage.classes.insert((*name).to_owned(), class);
        let claim = VolumeClaim { class: Some((*name).to_owned()), ..VolumeClaim::default() };
        storage.claims.insert(("default".to_owned(), (*name).to_owned()), claim);
    }
    for (name, terms) in volumes {
        let volume =
            Volume { driver: Some("csi.test".to_owned()), terms: terms.clone(), deleting: false };
        storage.volumes.insert((*name).to_owned(), volume);
        let claim = VolumeClaim { volume: Some((*name).to_owned()), ..VolumeClaim::default() };
        storage.claims.insert(("default".to_owned(), (*name).to_owned()), claim);
    }
    storage
}

fn with_storage(mut snapshot: Snapshot, storage: Volumes) -> Snapshot {
    snapshot.volumes = Arc::new(storage);
    snapshot
}

#[test]
fn volumes_bring_their_zones() {
    let storage = || {
        storage(
            &[
                ("class-1", vec![zones(&["test-zone-1"])]),
                ("class-12", vec![zones(&["test-zone-1"]), zones(&["test-zone-2"])]),
                ("free", vec![]),
            ],
            &[
                ("vol-3", vec![zones(&["test-zone-3"])]),
                ("vol-23", vec![zones(&["test-zone-2"]), zones(&["test-zone-3"])]),
            ],
        )
    };
    let zone_of = |claims: &[&str], selector: &str| {
        let pod = claims.iter().fold(pod("web").selector(selector), |pod, claim| pod.volume(claim));
        let plan =
            plan(&with_storage(cluster(vec![pool("default")], vec![pod.build()]), storage()));
        let claim = plan.claims.first()?;
        Some(claim.requirements.get(ZONE).map(ToString::to_string).unwrap_or_default())
    };
    let only = |zone: &str| Some(format!("{ZONE} In [{zone}]"));
    assert_eq!(zone_of(&["free"], ""), Some(String::new()));
    assert_eq!(zone_of(&["class-1"], ""), only("test-zone-1"));
    assert_eq!(zone_of(&["vol-3"], ""), only("test-zone-3"));
    assert_eq!(zone_of(&["class-1", "vol-3"], ""), None, "no zone serves both");
    assert_eq!(zone_of(&["class-1"], "topology.kubernetes.io/zone=test-zone-2"), None);
    assert_eq!(
        zone_of(&["class-12"], "topology.kubernetes.io/zone=test-zone-2"),
        only("test-zone-2")
    );
    assert_eq!(
        zone_of(&["class-12", "vol-23"], ""),
        only("test-zone-2"),
        "the one combination that meets"
    );
    assert_eq!(zone_of(&["vol-23"], "karpenter.sh/capacity-type=spot"), only("test-zone-2"));
    assert_eq!(zone_of(&["missing"], ""), None);
}

#[test]
fn a_bad_volume_stops_only_its_pod() {
    let pods = vec![pod("bad").volume("missing").build(), pod("good").build()];
    let plan = plan(&with_storage(cluster(vec![pool("default")], pods), storage(&[], &[])));
    assert_eq!(plan.claims.len(), 1);
    assert!(refusal(&plan, "bad").starts_with("pod default/bad mounts claim missing"));
}

#[test]
fn relaxing_affinity_keeps_the_volume_zone() {
    let pod =
        pod("web").volume("class-1").requires("unknown In x").requires("kubernetes.io/os In linux");
    let storage = storage(&[("class-1", vec![zones(&["test-zone-1"])])], &[]);
    let plan = plan(&with_storage(cluster(vec![pool("default")], vec![pod.build()]), storage));
    assert_eq!(
        plan.claims[0].requirements.get(ZONE).and_then(Requirement::only_value),
        Some("test-zone-1")
    );
}

#[test]
fn a_volume_zone_does_not_narrow_the_count_of_domains() {
    let storage = storage(&[], &[("vol-1", vec![zones(&["test-zone-1"])])]);
    let nodes = (0..3)
        .map(|at| {
            let mut node = node(&format!("n{at}"), &format!("{ZONE}={}", ZONES[at]), "cpu=0");
            node.pods = replicas(1, &pod(&format!("old{at}")).labels("app=web").running());
            node
        })
        .collect();
    let least = k8s_openapi::serde_json::json!({"minDomains": 3});
    let pod = pod("web")
        .labels("app=web")
        .requests("cpu=1")
        .volume("vol-1")
        .spread_with(ZONE, 1, "app=web", &least);
    let plan = plan(&with_storage(
        with_nodes(cluster(vec![pool("default")], vec![pod.build()]), nodes),
        storage,
    ));
    assert_eq!(
        plan.claims[0].requirements.get(ZONE).and_then(Requirement::only_value),
        Some("test-zone-1")
    );
}

#[test]
fn nodes_attach_no_more_than_they_can() {
    let storage = || storage(&[], &[("a", vec![]), ("b", vec![]), ("c", vec![]), ("d", vec![])]);
    let place = |running: Vec<PodSpec>, pods: Vec<PodSpec>| {
        let mut node = node("n", "", "");
        node.volume_limits = [("csi.test".to_owned(), Some(2))].into();
        node.pods = running.into_iter().map(|pod| pod.running().build()).collect();
        let pods = pods.into_iter().map(PodSpec::build).collect();
        let plan = plan(&with_storage(
            with_nodes(cluster(vec![pool("default")], pods), vec![node]),
            storage(),
        ));
        assert!(plan.failures.is_empty());
        (
            plan.placements.iter().map(|placement| placement.pods.len()).sum::<usize>(),
            plan.claims.len(),
        )
    };
    let mounting =
        |name: &str, claims: &[&str]| claims.iter().fold(pod(name), |pod, claim| pod.volume(claim));
    assert_eq!(place(vec![], vec![mounting("p", &["a", "b"])]), (1, 0));
    assert_eq!(place(vec![], vec![mounting("p", &["a", "b", "c"])]), (0, 1));
    assert_eq!(place(vec![mounting("o", &["a", "b"])], vec![mounting("p", &["c"])]), (0, 1));
    assert_eq!(
        place(vec![mounting("o", &["a", "b"])], vec![mounting("p", &["a"])]),
        (1, 0),
        "shared counts once"
    );
    assert_eq!(
        place(vec![], vec![mounting("p", &["a"]), mounting("q", &["b"]), mounting("r", &["c"])]),
        (2, 1)
    );
    assert_eq!(place(vec![mounting("o", &["a", "b"])], vec![pod("plain")]), (1, 0));
}

fn limited(name: &str, cpu: u32, volumes: Option<u32>) -> Arc<InstanceType> {
    let capacity = format!("cpu={cpu} memory={cpu}Gi pods=20");
    TypeSpec { volumes, ..instance_type(name, &capacity) }.build()
}

fn mounting(name: &str, claims: &[&str]) -> PodSpec {
    claims.iter().fold(pod(name), |pod, claim| pod.volume(claim))
}

fn volumes() -> Volumes {
    storage(&[], &["a", "b", "c", "d", "e"].map(|name| (name, vec![])))
}

#[test]
fn new_nodes_get_no_more_volumes_than_their_type_attaches() {
    // Per claim: its cheapest type, and the number of its pods.
    let check =
        |types: &[(&str, u32, Option<u32>)], pods: Vec<PodSpec>, expect: &[(&str, usize)]| {
            let instance_types = types.iter().map(|(name, cpu, most)| limited(name, *cpu, *most));
            let pool = Pool { instance_types: instance_types.collect(), ..pool("default") };
            let pods = pods.into_iter().map(PodSpec::build).collect();
            let plan = plan(&with_storage(cluster(vec![pool], pods), volumes()));
            let claims = plan.claims.iter();
            let got: Vec<_> =
                claims.map(|one| (one.instance_types[0].name(), one.pods.len())).collect();
            assert_eq!(got, expect, "{types:?}: {:?}", plan.failures);
        };
    let small_and_large = [("small", 2, Some(1)), ("large", 4, Some(3))];
    check(&small_and_large, vec![mounting("p", &["a"])], &[("small", 1)]);
    check(&small_and_large, vec![mounting("p", &["a", "b"])], &[("large", 1)]);
    check(&small_and_large, vec![mounting("p", &["a", "b", "c", "d"])], &[]);
    // The pods of a claim together, and what they share once.
    let three = |claims: [&str; 3]| {
        let pods = ["p", "q", "r"].into_iter().zip(claims);
        pods.map(|(pod, claim)| mounting(pod, &[claim])).collect::<Vec<_>>()
    };
    check(&[("two", 4, Some(2))], three(["a", "b", "c"]), &[("two", 2), ("two", 1)]);
    check(&[("two", 4, Some(2))], three(["a", "b", "a"]), &[("two", 3)]);
    check(&[("none", 4, Some(0))], three(["a", "b", "c"]), &[]);
    check(&[("none", 4, Some(0))], vec![pod("p")], &[("none", 1)]);
    // No limit for the driver, or a volume of no driver.
    check(&[("any", 4, None)], vec![mounting("p", &["a", "b", "c", "d", "e"])], &[("any", 1)]);
    let mixed = [("one", 2, Some(1)), ("any", 4, None)];
    check(&mixed, vec![mounting("p", &["a", "b"])], &[("any", 1)]);
}

#[test]
fn pods_with_more_volumes_than_any_type_attaches_hear_of_it() {
    let told = |types: Vec<Arc<InstanceType>>, claims: &[&str]| {
        let pool = Pool { instance_types: types, ..pool("default") };
        let pods = vec![mounting("web", claims).build()];
        refusal(&plan(&with_storage(cluster(vec![pool], pods), volumes())), "web")
    };
    let types = || vec![limited("small", 2, Some(1)), limited("large", 4, Some(3))];
    assert_eq!(
        told(types(), &["a", "b", "c", "d"]),
        "pool default: it mounts 4 volumes of csi.test, and no allowed instance type can attach more than 3"
    );
    assert_eq!(
        told(vec![limited("none", 4, Some(0))], &["a"]),
        "pool default: it mounts 1 volume of csi.test, and no allowed instance type can attach more than 0"
    );
}

/// The driver on a node knows better than the type, be it that it knows of no limit.
#[test]
fn a_node_without_its_driver_yet_attaches_what_its_type_does() {
    let fits = |of_type: Option<u32>, published: Option<Option<u32>>| {
        let pool = Pool { instance_types: vec![limited("it", 4, of_type)], ..pool("default") };
        let mut node = node("n", "node.kubernetes.io/instance-type=it", "cpu=4 pods=20");
        node.pool = Some("default".to_owned());
        node.volume_limits =
            published.map(|limit| ("csi.test".to_owned(), limit)).into_iter().collect();
        node.pods = vec![mounting("old", &["a"]).running().build()];
        let pods = ["b", "c", "d"].map(|claim| mounting(claim, &[claim]).build()).to_vec();
        let snapshot = with_nodes(cluster(vec![pool], pods), vec![node]);
        let plan = plan(&with_storage(snapshot, volumes()));
        plan.placements.iter().map(|placement| placement.pods.len()).sum::<usize>()
    };
    assert_eq!(fits(None, None), 3);
    assert_eq!(fits(Some(2), None), 1);
    assert_eq!(fits(Some(2), Some(Some(3))), 2);
    assert_eq!(fits(Some(4), Some(Some(1))), 0);
    assert_eq!(fits(Some(2), Some(None)), 3);
    assert_eq!(fits(None, Some(Some(2))), 1);
}

#[test]
fn host_ports_conflict_on_nodes_and_claims() {
    let two = || vec![pod("a").host_port(80).build(), pod("b").host_port(80).build()];
    let plan_claims = plan(&cluster(vec![pool("default")], two()));
    assert_eq!(plan_claims.claims.len(), 2);
    let different = vec![pod("a").host_port(80).build(), pod("b").host_port(81).build()];
    assert_eq!(plan(&cluster(vec![pool("default")], different)).claims.len(), 1);
    let mut busy = node("n", "", "");
    busy.pods = vec![pod("old").host_port(80).running().build()];
    let plan_nodes =
        plan(&with_nodes(cluster(vec![pool("default")], two()), vec![busy, node("m", "", "")]));
    assert_eq!((plan_nodes.placements.len(), plan_nodes.claims.len()), (1, 1));
    assert_eq!(plan_nodes.placements[0].node.name, "m");
}

#[test]
fn alternatives_of_volumes_meet_other_rules() {
    let two_zones = || vec![zones(&["test-zone-1"]), zones(&["test-zone-2"])];
    let spot = || Requirements::new([Requirement::is_in("karpenter.sh/capacity-type", ["spot"])]);
    let taken = |zone: &str| {
        let mut node = node("n", &format!("{ZONE}={zone}"), "cpu=0");
        node.pods = vec![pod("old").labels("app=web").running().build()];
        node
    };
    let check = |terms: Vec<Requirements>, template: PodSpec, nodes, expect: Option<&str>| {
        let storage = storage(&[], &[("v", terms)]);
        let pods = vec![template.volume("v").build()];
        let snapshot = with_nodes(cluster(vec![pool("default")], pods), nodes);
        let plan = plan(&with_storage(snapshot, storage));
        let zone = plan.claims.first().map(|claim| {
            claim
                .requirements
                .get(ZONE)
                .and_then(Requirement::only_value)
                .unwrap_or("any")
                .to_owned()
        });
        assert_eq!(zone.as_deref(), expect, "{:?}", plan.failures);
    };
    let apart = || pod("web").labels("app=web").anti_affinity(ZONE, "app=web");
    check(two_zones(), apart(), vec![], Some("test-zone-1"));
    check(two_zones(), apart(), vec![taken("test-zone-1")], Some("test-zone-2"));
    check(vec![zones(&["test-zone-1"])], apart(), vec![taken("test-zone-1")], None);
    // The free alternative of a local volume: wherever the pod goes, there will be another one.
    check(vec![zones(&["nowhere"]), Requirements::default()], pod("web"), vec![], Some("any"));
    check(vec![Requirements::default()], pod("web"), vec![], Some("any"));
    check(
        vec![zones(&["test-zone-3"]).merged(&spot()), zones(&["test-zone-2"]).merged(&spot())],
        pod("web"),
        vec![],
        Some("test-zone-2"),
    );
    check(vec![zones(&["test-zone-3"]).merged(&spot())], pod("web"), vec![], None);
    check(
        two_zones(),
        pod("web").prefers(1, &format!("{ZONE} In test-zone-2")),
        vec![],
        Some("test-zone-2"),
    );
    check(
        two_zones(),
        pod("web").prefers(1, &format!("{ZONE} In test-zone-3")),
        vec![],
        Some("test-zone-1"),
    );
}

#[test]
fn two_volumes_a_pod_fill_a_node_of_ten() {
    let names: Vec<_> = (0..12).map(|at| format!("v{at:02}")).collect();
    let volumes: Vec<_> = names.iter().map(|name| (name.as_str(), vec![])).collect();
    let mut one = node("n", "", "cpu=100 pods=100");
    one.volume_limits = [("csi.test".to_owned(), Some(10))].into();
    let mounts =
        |at: usize| pod(&format!("p{at}")).volume(&names[2 * at]).volume(&names[2 * at + 1]);
    let pods = (0..6).map(|at| mounts(at).build()).collect();
    let snapshot = with_nodes(cluster(vec![pool("default")], pods), vec![one.clone()]);
    let plan_two = plan(&with_storage(snapshot, storage(&[], &volumes)));
    assert_eq!((plan_two.placements[0].pods.len(), plan_two.claims.len()), (5, 1));
    // The same claim for everybody is one volume.
    let shared = replicas(100, &pod("p").volume("v00"));
    let snapshot = with_nodes(cluster(vec![], shared), vec![one.clone()]);
    assert_eq!(plan(&with_storage(snapshot, storage(&[], &volumes))).placements[0].pods.len(), 100);
    // What no driver attaches has no limit: a share of a file server, for instance.
    let mut by_hand = storage(&[], &volumes);
    for volume in by_hand.volumes.values_mut() {
        volume.driver = None;
    }
    let pods = (0..6).map(|at| mounts(at).build()).collect();
    let snapshot = with_nodes(cluster(vec![], pods), vec![one]);
    assert_eq!(plan(&with_storage(snapshot, by_hand)).placements[0].pods.len(), 6);
}
