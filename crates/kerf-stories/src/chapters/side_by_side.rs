//! Two operators in one cluster, and claims that say they have the instance of another claim.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use kerf_api::{
    NodeClaim, NodePool, ObjectExt, TERMINATION_FINALIZER, annotations::DO_NOT_DISRUPT,
    conditions::REGISTERED, labels, taints,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{condition, launching::gone, one_ready_node, runs, with_pool};
use crate::{World, build};

/// Its marks stay on its nodes, and nothing is said about its pools, its claims, its nodes and their pods.
pub async fn the_marks_of_another_operator_are_left_alone(world: World) {
    let (pool, claim, node) = of_another(&world).await;
    let mut pod = build::pod("there", &json!({"nodeName": node.name_any()}));
    pod.annotations_mut().insert(DO_NOT_DISRUPT.into(), "1h".into());
    let pod = world.create(pod).await;
    // Our own node goes by disruption meanwhile, which looks at all there is before each decision.
    emptiness_of_ours(&world).await;
    world.pass_if_free(Duration::from_mins(10)).await;
    let now = world.get(&node).await.unwrap_or_else(|| panic!("the node is gone"));
    let on_node = now.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(on_node.iter().any(|taint| taint.key == taints::DISRUPTED), "{on_node:?}");
    let same = |before: Option<String>, after: Option<String>| {
        assert!(before.is_some() && before == after, "it was written to: {before:?}, {after:?}");
    };
    same(claim.resource_version(), world.get(&claim).await.and_then(|it| it.resource_version()));
    same(pool.resource_version(), world.get(&pool).await.and_then(|it| it.resource_version()));
    let names = [pool.name_any(), claim.name_any(), node.name_any(), pod.name_any()];
    let said = world.list::<Event>().await.into_iter().filter(|event| {
        event.source.as_ref().and_then(|source| source.component.as_deref()) == Some("karpenter")
            && event.involved_object.name.as_ref().is_some_and(|name| names.contains(name))
    });
    let said: Vec<_> = said.map(|event| (event.involved_object.name, event.message)).collect();
    assert!(said.is_empty(), "{said:?}");
    world.patch(&node, json!({"metadata": {"finalizers": null}})).await;
}

/// Whether its node ever comes, and what for, only the other operator knows.
pub async fn a_claim_in_flight_of_another_operator_is_no_place_for_pods(world: World) {
    let (_, claim, node) = of_another(&world).await;
    world.patch(&node, json!({"metadata": {"finalizers": null}})).await;
    world.delete(&node).await;
    world.until("it has no node", gone(&node)).await;
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    let ours = world.list::<NodeClaim>().await.len() - 1;
    assert_eq!(ours, 1, "beside {}", claim.name_any());
}

/// A claim, made by hand, that says it has the instance of another: it gets neither its node nor its end.
pub async fn a_claim_with_the_instance_of_another_costs_nobody_an_instance(mut world: World) {
    with_pool(&world, &json!({})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    let (claim, node) = world.until("its node is ready", one_ready_node).await;
    world.kill_operator();
    let registers = pretender(&world, &claim, "registers", &["Launched"]).await;
    let registered = pretender(&world, &claim, "registered", &["Launched", REGISTERED]).await;
    world.start_operator().await;
    let why = world.until("it does not register", condition(&registers, REGISTERED, "False")).await;
    let of = format!(
        "InstanceOfAnotherNodeClaim: its instance belongs to NodeClaim {}",
        claim.name_any()
    );
    assert_eq!(why, of);
    for pretender in [&registers, &registered] {
        world.delete(pretender).await;
        world.until("the pretender is gone", gone(pretender)).await;
    }
    world.pass_if_free(Duration::from_mins(10)).await;
    let owners =
        |node: &Node| node.owner_references().iter().map(|it| it.uid.clone()).collect::<Vec<_>>();
    let now = world.get(&node).await.unwrap_or_else(|| panic!("the node is gone"));
    assert_eq!((now.uid(), now.is_deleting()), (node.uid(), false));
    assert_eq!(owners(&now), owners(&node));
    runs(&world, &pod).await.unwrap_or_else(|error| panic!("{error}"));
    let (left, _) = one_ready_node(&world).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(left.uid(), claim.uid());
    // The instance has one claim again, and goes with it.
    world.delete(&left).await;
    world.until("its node is gone", gone(&node)).await;
}

/// A pool of another operator, with a claim and a node of it that the other is about to disrupt.
async fn of_another(world: &World) -> (NodePool, NodeClaim, Node) {
    let class = json!({"group": "example.com", "kind": "Other", "name": "o"});
    let template = json!({"template": {"spec": {"nodeClassRef": class}}});
    let pool = world.create(build::pool("theirs", &template)).await;
    let mut claim = build::claim("theirs", &json!({"nodeClassRef": class}));
    let own_labels = json!({
        labels::NODE_POOL: pool.name_any(), "example.com/other": "o",
        "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        labels::INSTANCE_TYPE: "huge", labels::ZONE: "theirs", labels::CAPACITY_TYPE: "on-demand",
    });
    claim.metadata.labels = serde_json::from_value(own_labels).ok();
    let claim = world.create(claim).await;
    let provider_id = format!("other://{}", claim.name_any());
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    let is = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let claim = world
        .patch_status(
            &claim,
            json!({"status": {
                "providerID": provider_id, "capacity": amounts, "allocatable": amounts,
                "conditions": [is("Launched", "Launched"), is("DisruptionReason", "Drifted")],
            }}),
        )
        .await;
    let mut on_node = claim.labels().clone();
    on_node.insert(labels::REGISTERED.into(), "true".into());
    on_node.insert(labels::INITIALIZED.into(), "true".into());
    let node: Node = build::object(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "theirs", "labels": on_node, "finalizers": [TERMINATION_FINALIZER],
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {
            "providerID": provider_id,
            "taints": [{"key": taints::DISRUPTED, "effect": "NoSchedule"}],
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }));
    (pool, claim, world.create(node).await)
}

/// A node of ours comes for a pod and goes when the pod is gone.
async fn emptiness_of_ours(world: &World) {
    with_pool(
        world,
        &json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}),
    )
    .await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world.delete(&pod).await;
    world
        .until("our node is gone", async |world: &World| {
            let ours = world.list::<NodeClaim>().await.len() - 1;
            if ours == 0 { Ok(()) } else { Err(format!("{ours} claims")) }
        })
        .await;
}

/// A claim that never launched anything, with the provider id of another and these conditions.
async fn pretender(world: &World, of: &NodeClaim, name: &str, done: &[&str]) -> NodeClaim {
    let claim = world.create(build::claim(name, &json!({}))).await;
    let conditions: Vec<Value> = done
        .iter()
        .map(|kind| {
            json!({
                "type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
            })
        })
        .collect();
    let status = of.status.clone().unwrap_or_default();
    let status = json!({
        "providerID": status.provider_id, "nodeName": status.node_name,
        "capacity": status.capacity, "allocatable": status.allocatable, "conditions": conditions,
    });
    world.patch_status(&claim, json!({"status": status})).await
}
