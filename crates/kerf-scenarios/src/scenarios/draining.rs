//! The end of a node: what its drain waits for, in which order pods go, and what cuts it short.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    storage::v1::VolumeAttachment,
};
use kerf_api::{
    NodeClaim, TERMINATION_FINALIZER, annotations, conditions::DRAINED, labels, taints,
};
use kube::ResourceExt;
use serde_json::json;

use super::{
    all_run, condition, launching::gone, let_go, on_eight_cpus, one_ready_node, runs, told,
    with_pool,
};
use crate::{World, build};

pub async fn a_protected_pod_holds_the_drain_until_its_annotation_goes(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(protected("a")).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world.delete(&claim).await;
    let blocked = world
        .until("the drain waits", async |w: &World| told(w, "FailedDraining", &node).await)
        .await;
    assert_eq!(blocked, "Failed to drain node, 1 pods are waiting to be evicted");
    let draining = world.get(&node).await.unwrap_or_else(|| panic!("the node is gone"));
    let on_node = draining.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    assert!(on_node.iter().any(|taint| taints::same(taint, &taints::disrupted())), "{on_node:?}");
    assert_eq!(draining.labels()[labels::EXCLUDE_FROM_LOAD_BALANCERS], "karpenter");
    let why = world.until("the claim says so", condition(&claim, DRAINED, "Unknown")).await;
    assert_eq!(why, "Draining: Draining");
    world
        .patch(&pod, json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: null}}}))
        .await;
    let_go(&world, &claim, &node).await;
}

pub async fn critical_pods_wait_until_the_others_are_gone(world: World) {
    with_pool(&world, &json!({})).await;
    let ordinary = world.create(protected("ordinary")).await;
    let mut critical = on_eight_cpus();
    critical["priorityClassName"] = json!("system-cluster-critical");
    let critical = world.create(build::pod("critical", &critical)).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("both run", async |world: &World| all_run(world, 2).await).await;
    world.delete(&claim).await;
    world.until("the drain waits", async |w: &World| told(w, "FailedDraining", &node).await).await;
    world.until("the taint is there", condition(&claim, DRAINED, "Unknown")).await;
    let waits = world.get(&critical).await.unwrap_or_else(|| panic!("it went first"));
    assert_eq!(waits.metadata.deletion_timestamp, None);
    let free = json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: null}}});
    world.patch(&ordinary, free).await;
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn pods_that_tolerate_the_taint_stay_to_the_end(world: World) {
    with_pool(&world, &json!({})).await;
    let tolerant = json!({"tolerations": [{"key": taints::DISRUPTED, "operator": "Exists"}]});
    let stays = world.create(build::pod("a", &tolerant)).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| runs(world, &stays).await).await;
    world.delete(&claim).await;
    world.until("the claim is gone", gone(&claim)).await;
    let evicted = told(&world, "Evicted", &stays).await;
    assert!(evicted.is_err(), "{evicted:?}");
}

pub async fn two_budgets_on_one_pod_are_told_apart_from_one(world: World) {
    with_pool(&world, &json!({})).await;
    let one = world.create(build::budget("a", &json!({"maxUnavailable": 1}))).await;
    let mut other = build::budget("a", &json!({"maxUnavailable": 1}));
    other.metadata.name = Some("other".into());
    let other = world.create(other).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world.delete(&claim).await;
    world
        .until("the drain says what holds it", async |world: &World| {
            let why = told_all(world, "FailedDraining", &node).await;
            let named = why.iter().any(|why| why.contains("does not support multiple PDBs"));
            if named { Ok(()) } else { Err(format!("{why:?}")) }
        })
        .await;
    world.delete(&one).await;
    world.delete(&other).await;
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn evicted_pods_are_told_and_find_another_node(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let pods = world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.delete(&claim).await;
    let why =
        world.until("the pod is told", async |w: &World| told(w, "Evicted", &pods[0]).await).await;
    assert_eq!(why, "Evicted pod: Forceful Termination");
    world.until("the claim is gone", gone(&claim)).await;
    world.until("its successor runs", async |world: &World| all_run(world, 1).await).await;
}

pub async fn a_pod_that_would_outlive_its_node_is_deleted_at_once(world: World) {
    let changes = json!({"template": {"spec": {"terminationGracePeriod": "60s"}}});
    with_pool(&world, &changes).await;
    let mut pod = protected("a");
    pod.spec.get_or_insert_default().termination_grace_period_seconds = Some(300);
    let pod = world.create(pod).await;
    world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world.delete(&claim).await;
    let why =
        world.until("the pod is told", async |w: &World| told(w, "Disrupted", &pod).await).await;
    assert!(why.contains("of its 300 terminationGracePeriodSeconds"), "{why}");
    let why = world
        .until("the node is told", async |world: &World| {
            told(world, "TerminationGracePeriodExpiring", &node).await
        })
        .await;
    assert!(why.starts_with("All pods will be deleted by "), "{why}");
    let_go(&world, &claim, &node).await;
}

pub async fn a_pod_that_never_ends_does_not_hold_its_node_for_ever(world: World) {
    with_pool(&world, &json!({})).await;
    let mut pod = build::pod("a", &json!({"terminationGracePeriodSeconds": 5}));
    pod.annotations_mut().insert(kerf_testbed::actors::NEVER_ENDS.into(), "true".into());
    let pod = world.create(pod).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world.delete(&claim).await;
    world.pass(Duration::from_secs(50)).await;
    assert!(world.get(&claim).await.is_some(), "a minute has not passed");
    world.until("the claim is gone", gone(&claim)).await;
}

pub async fn an_instance_waits_until_its_volumes_are_detached(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    let attachment: VolumeAttachment = build::object(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": "attachment"},
        "spec": {
            "attacher": "disks.example.com", "nodeName": node.name_any(),
            "source": {"persistentVolumeName": "disk"},
        },
    }));
    let attachment = world.create(attachment).await;
    world.delete(&pod).await;
    world.delete(&claim).await;
    let why = world
        .until("the claim waits for the volume", condition(&claim, "VolumesDetached", "Unknown"))
        .await;
    assert!(why.starts_with("AwaitingVolumeDetachment"), "{why}");
    let told = world
        .until("the node says so", async |w: &World| {
            told(w, "AwaitingVolumeDetachment", &node).await
        })
        .await;
    assert!(told.contains(&attachment.name_any()), "{told}");
    world.delete(&attachment).await;
    let_go(&world, &claim, &node).await;
}

pub async fn a_node_without_a_claim_is_drained_and_let_go(world: World) {
    let node: Node = build::object(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "stray", "finalizers": [TERMINATION_FINALIZER],
            "labels": {"karpenter.kwok.sh/kwoknodeclass": "default", "kwok.x-k8s.io/node": "fake"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"providerID": "kwok://stray"},
        "status": {"capacity": {"cpu": "4", "pods": "10", "memory": "8Gi"},
            "allocatable": {"cpu": "4", "pods": "10", "memory": "8Gi"}},
    }));
    let node = world.create(node).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    // Sooner or later it would be collected as an instance that nobody claims.
    world.delete_if_there(&node).await;
    world.until("the pod is evicted", gone(&pod)).await;
    world.until("the node is gone", gone(&node)).await;
}

pub async fn a_claim_without_an_instance_goes_at_once(world: World) {
    let class = json!({"nodeClassRef": {
        "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "slow",
    }});
    world.create(build::node_class("slow", &json!({"nodeRegistrationDelay": "24h"}))).await;
    let claim = world.create(build::claim("c", &class)).await;
    world.until("the claim is launched", condition(&claim, "Launched", "True")).await;
    world.delete(&claim).await;
    world.until("the claim is gone", gone(&claim)).await;
    assert!(world.list::<Node>().await.is_empty());
    assert!(world.list::<NodeClaim>().await.is_empty());
}

fn protected(name: &str) -> Pod {
    let mut pod = build::pod(name, &on_eight_cpus());
    pod.annotations_mut().insert(annotations::DO_NOT_DISRUPT.into(), "true".into());
    pod
}

async fn told_all(world: &World, reason: &str, node: &Node) -> Vec<String> {
    let events = world.list::<k8s_openapi::api::core::v1::Event>().await;
    let about = events.into_iter().filter(|event| {
        event.reason.as_deref() == Some(reason) && event.involved_object.name == node.metadata.name
    });
    about.filter_map(|event| event.message).collect()
}
