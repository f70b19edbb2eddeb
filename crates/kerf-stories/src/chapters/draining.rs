//! The end of a node: what its drain waits for, in which order pods go, and what cuts it short.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Node, Pod},
    storage::v1::VolumeAttachment,
};
use kerf_api::{
    NodeClaim, TERMINATION_FINALIZER, annotations,
    conditions::{Conditioned, DRAINED, READY},
    labels, taints,
};
use kerf_testbed::{CloudFault, Fault, Matching, Verb, Write};
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
    let leaving = world.get(&claim).await.unwrap_or_else(|| panic!("the claim is gone"));
    assert!(leaving.is_true(READY), "{:?}", leaving.status);
    for condition in leaving.conditions() {
        assert_eq!(condition.observed_generation, leaving.metadata.generation, "{condition:?}");
    }
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
    world.create(build::budget("a", &json!({"maxUnavailable": 1}))).await;
    world.create(build::deployment("a", 1, &json!({}))).await;
    let pods = world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.delete(&claim).await;
    let why = world
        .until("the pod gets an event", async |w: &World| told(w, "Evicted", &pods[0]).await)
        .await;
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
    let why = world
        .until("the pod gets an event", async |w: &World| told(w, "Disrupted", &pod).await)
        .await;
    assert!(why.contains("of its 300 terminationGracePeriodSeconds"), "{why}");
    let why = world
        .until("the node gets an event", async |world: &World| {
            told(world, "TerminationGracePeriodExpiring", &node).await
        })
        .await;
    assert!(why.starts_with("All pods will be deleted by "), "{why}");
    let_go(&world, &claim, &node).await;
}

/// kube-scheduler may bind one more pod before it has seen the taint.
pub async fn an_empty_node_is_watched_for_five_seconds(world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.delete(&pod).await;
    world.until("the pod is gone", gone(&pod)).await;
    world.delete(&claim).await;
    world.until("the drain begins", condition(&claim, DRAINED, "Unknown")).await;
    world.pass(Duration::from_secs(3)).await;
    let why = world.until("it goes on", condition(&claim, DRAINED, "Unknown")).await;
    assert_eq!(why, "Draining: Draining");
    assert!(world.get(&node).await.is_some(), "the node went too early");
    let_go(&world, &claim, &node).await;
}

/// One pod, whose name is that of the one before it.
fn stateful_set(name: &str) -> StatefulSet {
    let pod = json!({"metadata": {"labels": {"app": name}}, "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}],
    }});
    build::object(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1, "serviceName": name, "template": pod,
            "selector": {"matchLabels": {"app": name}},
        },
    }))
}

/// Its name is all that it has in common with the pod that was to be evicted.
pub async fn a_pod_of_the_same_name_on_another_node_stays(world: World) {
    with_pool(&world, &json!({})).await;
    let budget = world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    world.create(stateful_set("a")).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    let pods = world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&claim).await;
    world
        .until("the budget holds the drain", async |world: &World| {
            let why = told_all(world, "FailedDraining", &node).await;
            let held = why.iter().any(|why| why.contains("violates a PDB"));
            if held { Ok(()) } else { Err(format!("{why:?}")) }
        })
        .await;
    world.delete(&pods[0]).await;
    world.delete(&budget).await;
    let_go(&world, &claim, &node).await;
    let next = world.until("the next runs", async |world: &World| all_run(world, 1).await).await;
    assert_eq!(next[0].name_any(), pods[0].name_any());
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(world.get(&next[0]).await.and_then(|pod| pod.uid()), next[0].uid());
    let evicted = told(&world, "Evicted", &next[0]).await;
    assert!(evicted.is_err(), "{evicted:?}");
}

/// The operator hears late that the pod which its drain waits for is gone, and that another has come by its name.
pub async fn a_pod_that_came_back_by_its_name_is_not_evicted(world: World) {
    let late = Fault::WatchDelay(Duration::from_secs(20));
    let pods = Matching::any().verb(Verb::Watch).resource("pods");
    world.faults().at_rate(1.0, pods, late);
    with_pool(&world, &json!({})).await;
    world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    world.create(stateful_set("a")).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    let pods = world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&claim).await;
    world
        .until("the budget holds the drain", async |world: &World| {
            let why = told_all(world, "FailedDraining", &node).await;
            let held = why.iter().any(|why| why.contains("violates a PDB"));
            if held { Ok(()) } else { Err(format!("{why:?}")) }
        })
        .await;
    world.delete(&pods[0]).await;
    let_go(&world, &claim, &node).await;
    world.until("the next runs", async |world: &World| all_run(world, 1).await).await;
    let log = world.event_log();
    let made = log.entries().iter().filter(|it| {
        &*it.resource == "pods" && &*it.key == "default/a-0" && it.what == Write::Created
    });
    assert_eq!(made.count(), 2, "the first pod, and the one that came after it");
}

/// Two claims for one instance: nobody can say whose it is, so it is drained and let go, and no claim goes with it.
pub async fn a_node_with_two_claims_is_drained_and_let_go(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    let (one, other) = (build::claim("one", &json!({})), build::claim("other", &json!({})));
    world.create(one).await;
    let (one, node) = world.until("the first is ready", one_ready_node).await;
    world.cloud().at_rate(1.0, CloudFault::LaunchRefused);
    let other = world.create(other).await;
    let provider_id = one.status.clone().unwrap_or_default().provider_id;
    world.until("it is not launched", condition(&other, "Launched", "Unknown")).await;
    world.patch_status(&other, json!({"status": {"providerID": provider_id}})).await;
    world.delete(&node).await;
    world.until("the node is gone", gone(&node)).await;
    for claim in [&one, &other] {
        let now = world.get(claim).await.map(|claim| claim.metadata.deletion_timestamp);
        assert_eq!(now, Some(None), "{} goes as well", claim.name_any());
    }
}

pub async fn a_pod_that_leaves_too_slowly_is_hurried(world: World) {
    let changes = json!({"template": {"spec": {"terminationGracePeriod": "60s"}}});
    with_pool(&world, &changes).await;
    let mut pod = build::pod("a", &json!({"terminationGracePeriodSeconds": 600}));
    pod.annotations_mut().insert(kerf_testbed::actors::NEVER_ENDS.into(), "true".into());
    let pod = world.create(pod).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world.delete(&pod).await;
    world.delete(&claim).await;
    let ends = world
        .until("its end is moved", async |world: &World| {
            let pod = world.get(&pod).await.ok_or("it is gone")?;
            let grace = pod.metadata.deletion_grace_period_seconds;
            let ends = pod.metadata.deletion_timestamp.filter(|_| grace < Some(600));
            ends.map(|ends| ends.0).ok_or_else(|| format!("{grace:?}"))
        })
        .await;
    let claim = world.get(&claim).await.unwrap_or_else(|| panic!("the claim is gone"));
    let deadline = claim.annotations()[annotations::TERMINATION_TIMESTAMP].parse::<Timestamp>();
    assert!(deadline.is_ok_and(|deadline| ends <= deadline), "{ends}: {claim:?}");
    world.until("the claim is gone", gone(&claim)).await;
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
    let attachment = world.create(attachment_to(&node)).await;
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
    let attachment = world.create(attachment_to(&node)).await;
    // Sooner or later it would be collected as an instance that nobody claims.
    world.delete_if_there(&node).await;
    world.until("the pod is evicted", gone(&pod)).await;
    world
        .until("the node waits for its volume", async |w: &World| {
            told(w, "AwaitingVolumeDetachment", &node).await
        })
        .await;
    assert!(world.get(&node).await.is_some(), "it did not wait");
    world.delete(&attachment).await;
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

fn attachment_to(node: &Node) -> VolumeAttachment {
    build::object(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": "attachment"},
        "spec": {
            "attacher": "disks.example.com", "nodeName": node.name_any(),
            "source": {"persistentVolumeName": "disk"},
        },
    }))
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
