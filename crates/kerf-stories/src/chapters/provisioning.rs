//! Which machine a pending pod gets, and what it is told when it gets none.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
};
use kerf_api::{NodeClaim, annotations, labels};
use kerf_testbed::CSI_ZONE;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    all_run, node_of, on_eight_cpus, one_ready_node, ready_pool, runs, told, unschedulable,
    with_pool,
};
use crate::{World, build};

pub async fn pods_go_where_their_selectors_say(world: World) {
    with_pool(&world, &json!({})).await;
    let selectors = [
        (labels::ZONE, "test-zone-c"),
        (labels::INSTANCE_TYPE, "m-16x-amd64-linux"),
        (labels::CAPACITY_TYPE, "on-demand"),
        (labels::ARCH, "amd64"),
    ];
    let mut pods = Vec::new();
    for (place, (key, value)) in selectors.into_iter().enumerate() {
        let selector = json!({"nodeSelector": {key: value}});
        pods.push(world.create(build::pod(&format!("p{place}"), &selector)).await);
    }
    for (pod, (key, value)) in pods.iter().zip(selectors) {
        let node = node_of(&world, pod).await;
        assert_eq!(node.labels()[key], value);
    }
}

pub async fn a_zone_that_nobody_offers_is_named_and_keeps_nobody_waiting(world: World) {
    with_pool(&world, &json!({})).await;
    let nowhere = json!({"nodeSelector": {labels::ZONE: "test-zone-z"}});
    let lost = world.create(build::pod("lost", &nowhere)).await;
    let other = world.create(build::pod("other", &json!({}))).await;
    let why = world
        .until("the pod gets an event", async |w: &World| told(w, "FailedScheduling", &lost).await)
        .await;
    assert!(why.contains("test-zone-z"), "{why}");
    world.until("the other runs", async |w: &World| runs(w, &other).await).await;
}

pub async fn the_heaviest_pool_goes_first_unless_a_pod_names_another(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    let heavy = ready_pool(&world, build::pool("heavy", &json!({"weight": 50}))).await;
    let light = ready_pool(&world, build::pool("light", &json!({}))).await;
    let any = world.create(build::pod("any", &json!({}))).await;
    assert_eq!(node_of(&world, &any).await.labels()[labels::NODE_POOL], heavy.name_any());
    let named = json!({"nodeSelector": {labels::NODE_POOL: light.name_any()}});
    let named = world.create(build::pod("named", &named)).await;
    assert_eq!(node_of(&world, &named).await.labels()[labels::NODE_POOL], light.name_any());
}

pub async fn a_tainted_pool_takes_only_pods_that_tolerate_it(world: World) {
    let taint = json!({"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"});
    with_pool(&world, &json!({"template": {"spec": {"taints": [taint]}}})).await;
    let plain = world.create(build::pod("plain", &json!({}))).await;
    let why = world
        .until("the pod gets an event", async |w: &World| told(w, "FailedScheduling", &plain).await)
        .await;
    assert!(why.contains("example.com/gpu"), "{why}");
    let tolerating = json!({"tolerations": [{"key": "example.com/gpu", "operator": "Exists"}]});
    let tolerating = world.create(build::pod("tolerating", &tolerating)).await;
    let node = node_of(&world, &tolerating).await;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(taints.iter().any(|taint| taint.key == "example.com/gpu"), "{taints:?}");
    let plain = world.get(&plain).await.and_then(|pod| pod.spec).and_then(|spec| spec.node_name);
    assert_eq!(plain, None);
}

pub async fn labels_and_annotations_of_the_pool_reach_the_node(world: World) {
    let template = json!({
        "metadata": {"labels": {"example.com/team": "a"}, "annotations": {"example.com/note": "n"}},
        "spec": {"requirements": [
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "example.com/tier", "operator": "In", "values": ["gold"]},
        ]},
    });
    let pool = with_pool(&world, &json!({"template": template})).await;
    let pod = json!({"nodeSelector": {"example.com/tier": "gold"}});
    world.create(build::pod("a", &pod)).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    assert_eq!(node.labels()["example.com/team"], "a");
    assert_eq!(node.labels()["example.com/tier"], "gold");
    assert_eq!(node.annotations()["example.com/note"], "n");
    assert_eq!(claim.annotations()[annotations::NODE_POOL_HASH], world.served(&pool).hash());
    assert_eq!(claim.owner_references()[0].uid, pool.uid().unwrap_or_default());
}

pub async fn a_label_with_several_values_is_mixed_over_nodes(world: World) {
    let tier = json!({"key": "example.com/tier", "operator": "In", "values": ["gold", "silver"]});
    let plain = build::pool("default", &json!({})).spec.template.spec.requirements;
    let mut requirements: Vec<Value> = plain.iter().map(|one| json!(one)).collect();
    requirements.push(tier);
    with_pool(&world, &json!({"template": {"spec": {"requirements": requirements}}})).await;
    let apart = json!({"containers": [{
        "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
    }]});
    world.create(build::deployment("a", 12, &apart)).await;
    world.until("all run", async |world: &World| all_run(world, 12).await).await;
    let nodes = world.list::<Node>().await;
    let gold = nodes.iter().filter(|node| node.labels()["example.com/tier"] == "gold").count();
    assert!((1..12).contains(&gold), "{gold} of {} are gold", nodes.len());
}

pub async fn a_label_that_is_only_excluded_is_not_made_up(world: World) {
    with_pool(&world, &json!({})).await;
    let term = json!({"matchExpressions": [
        {"key": "example.com/tier", "operator": "NotIn", "values": ["gold"]},
    ]});
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let pod = build::pod("a", &json!({"affinity": {"nodeAffinity": required}}));
    let pod = world.create(pod).await;
    let node = node_of(&world, &pod).await;
    assert_eq!(node.labels().get("example.com/tier"), None);
}

pub async fn replicas_that_keep_apart_get_their_zones_at_once(world: World) {
    with_pool(&world, &json!({})).await;
    let term = json!({
        "topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": "a"}},
    });
    let apart = json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
    }}});
    world.create(build::deployment("a", 3, &apart)).await;
    world.until("all run", async |world: &World| all_run(world, 3).await).await;
    let claims = world.list::<NodeClaim>().await;
    let zones: BTreeSet<_> = claims.iter().map(|claim| &claim.labels()[labels::ZONE]).collect();
    assert_eq!(zones.len(), 3);
    let born: BTreeSet<_> = claims.iter().map(ResourceExt::creation_timestamp).collect();
    assert_eq!(born.len(), 1, "one plan has them all: {born:?}");
}

pub async fn daemons_are_counted_when_a_machine_is_chosen(world: World) {
    world.create::<DaemonSet>(build::daemon_set("agent", &json!({}))).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    // Nothing is planned before there is a pool, and then the operator knows of the daemons.
    world.until("kube-scheduler gives up on the pod", unschedulable(&pod)).await;
    with_pool(&world, &json!({})).await;
    let node = node_of(&world, &pod).await;
    // Two CPUs, and what the machine keeps for itself, are more than the smallest has.
    assert_eq!(node.labels()[labels::INSTANCE_TYPE], "c-4x-amd64-linux");
}

pub async fn init_containers_count_when_they_need_more(world: World) {
    with_pool(&world, &json!({})).await;
    let init = json!({"initContainers": [{
        "name": "init", "image": "init", "resources": {"requests": {"cpu": "3"}},
    }]});
    let pod = world.create(build::pod("a", &init)).await;
    let node = node_of(&world, &pod).await;
    assert_eq!(node.labels()[labels::INSTANCE_TYPE], "c-4x-amd64-linux");
}

pub async fn pods_spread_over_zones(world: World) {
    with_pool(&world, &json!({})).await;
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }]});
    world.create(build::deployment("a", 4, &spread)).await;
    world.until("all pods run", async |world: &World| all_run(world, 4).await).await;
    let nodes = world.list::<Node>().await;
    let mut zones: Vec<_> = nodes.iter().map(|node| &node.labels()[labels::ZONE]).collect();
    zones.sort();
    zones.dedup();
    assert_eq!(zones.len(), 4, "{zones:?}");
}

pub async fn pods_that_repel_each_other_get_machines_of_their_own(world: World) {
    with_pool(&world, &json!({})).await;
    let repel = json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "a"}},
        }],
    }}});
    world.create(build::deployment("a", 3, &repel)).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 3);
}

pub async fn a_preference_that_cannot_be_met_is_dropped(world: World) {
    with_pool(&world, &json!({})).await;
    let prefer = json!({"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {
            "matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": ["test-zone-z"]}],
        }}],
    }}});
    let pod = world.create(build::pod("a", &prefer)).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
}

pub async fn min_values_that_cannot_be_met_launch_nothing(world: World) {
    let zones = json!({"key": labels::ZONE, "operator": "Exists", "minValues": 5});
    let pool = with_pool(&world, &json!({"template": {"spec": {"requirements": [zones]}}})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let why = world
        .until("the pool gets an event", async |world: &World| {
            told(world, "NoCompatibleInstanceTypes", &pool).await
        })
        .await;
    assert!(why.ends_with("due to minValues incompatibility"), "{why}");
    world
        .until("the pod gets an event", async |w: &World| told(w, "FailedScheduling", &pod).await)
        .await;
    assert!(world.list::<NodeClaim>().await.is_empty());
}

/// Each type is sold in several zones. For a pod that has to be in one of them the others are no alternatives.
pub async fn min_values_count_the_zones_that_a_pod_leaves_open(world: World) {
    let zones = json!({"key": labels::ZONE, "operator": "Exists", "minValues": 2});
    with_pool(&world, &json!({"template": {"spec": {"requirements": [zones]}}})).await;
    let one_zone = json!({"nodeSelector": {labels::ZONE: "test-zone-b"}});
    let pinned = world.create(build::pod("pinned", &one_zone)).await;
    let why = world
        .until("the pod gets an event", async |w: &World| {
            told(w, "FailedScheduling", &pinned).await
        })
        .await;
    assert!(why.contains("minValues requirement is not met"), "{why}");
    let free = world.create(build::pod("free", &json!({}))).await;
    world.until("the other pod runs", async |world: &World| runs(world, &free).await).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
}

pub async fn a_pool_that_is_being_deleted_launches_nothing(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    let mut going = build::pool("going", &json!({"weight": 100}));
    going.finalizers_mut().push("example.com/held".into());
    let going = ready_pool(&world, going).await;
    ready_pool(&world, build::pool("staying", &json!({}))).await;
    world.delete(&going).await;
    world
        .until("the pool is going", async |world: &World| {
            let pool = world.get(&going).await.ok_or("it is gone")?;
            pool.metadata.deletion_timestamp.ok_or_else(|| "not yet".to_owned())
        })
        .await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let node = node_of(&world, &pod).await;
    assert!(node.labels()[labels::NODE_POOL].ends_with("staying"), "{:?}", node.labels());
    world.patch(&going, json!({"metadata": {"finalizers": null}})).await;
}

pub async fn a_pod_that_comes_before_its_pool_gets_a_node_all_the_same(world: World) {
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("kube-scheduler gives up on the pod", unschedulable(&pod)).await;
    with_pool(&world, &json!({})).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
}

pub async fn the_pods_of_a_node_that_goes_move_to_one_other(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::deployment("a", 3, &on_eight_cpus())).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    let (first, _) = world.until("the node is ready", one_ready_node).await;
    world.delete(&first).await;
    let second = world
        .until("all pods run on another node", async |world: &World| {
            all_run(world, 3).await?;
            let (second, _) = one_ready_node(world).await?;
            if second.uid() == first.uid() { Err("still the first".into()) } else { Ok(second) }
        })
        .await;
    // The pods were planned for while they still ran on the first, and again while they were pending: for one machine.
    assert_ne!(first.name_any(), second.name_any());
}

pub async fn a_volume_that_is_not_there_is_named_and_keeps_nobody_waiting(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &volume("missing"))).await;
    let other = world.create(build::pod("other", &json!({}))).await;
    let why = world
        .until("the pod gets an event", async |w: &World| told(w, "FailedScheduling", &pod).await)
        .await;
    assert!(why.contains("missing"), "{why}");
    world.until("the other runs", async |world: &World| runs(world, &other).await).await;
}

pub async fn a_pod_follows_its_volume_into_its_zone(world: World) {
    with_pool(&world, &json!({})).await;
    disk_in_zone(&world, labels::ZONE, "test-zone-d").await;
    let pod = world.create(build::pod("a", &volume("data"))).await;
    assert_eq!(node_of(&world, &pod).await.labels()[labels::ZONE], "test-zone-d");
}

/// A driver of volumes calls the zone by a name of its own, and writes it on nodes only when it runs there.
pub async fn a_pod_follows_the_volume_of_a_driver_into_its_zone(world: World) {
    with_pool(&world, &json!({})).await;
    disk_in_zone(&world, CSI_ZONE, "test-zone-d").await;
    let pod = world.create(build::pod("a", &volume("data"))).await;
    let node = world.until("a node comes", async |world: &World| world.only::<Node>().await).await;
    assert_eq!(node.labels()[labels::ZONE], "test-zone-d");
    world.patch(&node, json!({"metadata": {"labels": {CSI_ZONE: "test-zone-d"}}})).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
}

pub async fn a_pod_whose_claim_comes_late_is_told_and_then_runs(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &volume("data"))).await;
    world
        .until("the pod gets an event", async |w: &World| told(w, "FailedScheduling", &pod).await)
        .await;
    disk_in_zone(&world, labels::ZONE, "test-zone-b").await;
    assert_eq!(node_of(&world, &pod).await.labels()[labels::ZONE], "test-zone-b");
}

pub async fn a_pod_that_names_its_node_is_told_and_keeps_nobody_waiting(world: World) {
    with_pool(&world, &json!({})).await;
    let names = json!({"nodeSelector": {labels::HOSTNAME: "my-node"}});
    let pod = world.create(build::pod("a", &names)).await;
    let other = world.create(build::pod("other", &json!({}))).await;
    let why = world
        .until("the pod gets an event", async |w: &World| told(w, "FailedScheduling", &pod).await)
        .await;
    assert!(why.contains(labels::HOSTNAME), "{why}");
    world.until("the other runs", async |w: &World| runs(w, &other).await).await;
}

/// Nothing changes in the cluster when a cloud has something new.
pub async fn instance_types_that_come_are_planned_with_at_once(world: World) {
    with_pool(&world, &json!({})).await;
    let wanted = "c-2x-amd64-linux";
    world.withdraw(wanted);
    let only = json!({"nodeSelector": {labels::INSTANCE_TYPE: wanted}});
    let pod = world.create(build::pod("a", &only)).await;
    world.until("the pod waits", async |w: &World| told(w, "FailedScheduling", &pod).await).await;
    // In the middle between two looks at pods that wait.
    world.pass(Duration::from_secs(4)).await;
    let start = world.now();
    world.reprice(|_, price| price);
    world.until("there is a claim", async |world: &World| world.only::<NodeClaim>().await).await;
    let took = world.now().duration_since(start);
    assert!(took.as_secs() < 3, "it took {took}");
}

pub async fn a_pod_for_nodes_of_no_pool_is_left_alone(world: World) {
    with_pool(&world, &json!({})).await;
    let none = json!({"key": labels::NODE_POOL, "operator": "DoesNotExist"});
    let elsewhere = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [none]}]}}}});
    let pod = world.create(build::pod("a", &elsewhere)).await;
    world.until("kube-scheduler finds no node for the pod", unschedulable(&pod)).await;
    let other = world.create(build::pod("other", &json!({}))).await;
    world.until("the other runs", async |w: &World| runs(w, &other).await).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
    let said = told(&world, "FailedScheduling", &pod).await;
    assert!(said.is_err(), "it is not our business: {said:?}");
}

pub async fn a_deployment_that_grows_uses_the_room_there_is_first(world: World) {
    with_pool(&world, &json!({})).await;
    let deployment = world.create::<Deployment>(build::deployment("a", 1, &on_eight_cpus())).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.patch(&deployment, json!({"spec": {"replicas": 7}})).await;
    world.until("all pods run", async |world: &World| all_run(world, 7).await).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
    world.patch(&deployment, json!({"spec": {"replicas": 8}})).await;
    world.until("all pods run", async |world: &World| all_run(world, 8).await).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 2);
}

/// A disk in this zone, by this key, and the claim `data` that is bound to it.
pub(super) async fn disk_in_zone(world: &World, key: &str, zone: &str) {
    let zone = json!([{"matchExpressions": [
        {"key": key, "operator": "In", "values": [zone]},
    ]}]);
    let disk: PersistentVolume = build::object(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "disks.example.com", "volumeHandle": "d"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": zone}},
        },
    }));
    let disk = world.create(disk).await;
    let claim: PersistentVolumeClaim = build::object(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data", "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "disk",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }));
    let claim = world.create(claim).await;
    // What the volume controller would do sooner or later.
    let bound = json!({"spec": {"claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name_any(),
        "namespace": claim.namespace(), "uid": claim.uid(),
    }}});
    world.patch(&disk, bound).await;
    world.patch_status(&claim, json!({"status": {"phase": "Bound"}})).await;
}

pub(super) fn volume(claim: &str) -> Value {
    json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]})
}

pub async fn the_pods_of_a_rollout_get_their_node_together(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::deployment("web", 5, &json!({}))).await;
    world.until("the pods run", async |world: &World| all_run(world, 5).await).await;
    world.until("the node is ready", one_ready_node).await;
}

/// Without the flag a batch is closed when nothing has come for a second.
pub async fn a_rollout_that_is_complete_does_not_wait_for_quiet(world: World) {
    with_pool(&world, &json!({})).await;
    assert!(planned_within(&world, "web", 5).await < Duration::from_millis(300));
    world.until("the pods run", async |world: &World| all_run(world, 5).await).await;
}

/// How long it takes from the creation of a Deployment until there is a claim more.
async fn planned_within(world: &World, name: &str, replicas: u32) -> Duration {
    let (before, begin) = (world.list::<NodeClaim>().await.len(), world.now());
    world.create(build::deployment(name, replicas, &json!({}))).await;
    world
        .until("there is a claim", async |world: &World| {
            let claims = world.list::<NodeClaim>().await.len();
            if claims > before { Ok(()) } else { Err(format!("{claims} claims")) }
        })
        .await;
    world.now().duration_since(begin).unsigned_abs()
}
