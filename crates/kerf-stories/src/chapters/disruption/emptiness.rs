//! Nodes with nothing on them, and the budgets that hold them.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use kerf_api::{
    NodeClaim, ObjectExt, annotations,
    conditions::{Conditioned, INSTANCE_TERMINATING},
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{disruptable, held_by_its_pod, nothing_is_marked, told};
use crate::{
    World, build,
    chapters::{all_run, is_counted, launching::gone, no_node, one_ready_node, runs, with_pool},
};

pub async fn an_empty_node_is_removed(world: World) {
    let claim = from_empty_to_nothing(&world).await;
    let words = "Disrupting NodeClaim: Empty";
    told(&world, &claim.name_any(), "DisruptionTerminating", words).await;
    let labels = ["reason=\"empty\"", "consolidation_policy=\"when_empty_or_underutilized\""];
    is_counted(&world, "karpenter_nodeclaims_disrupted_total", &labels).await;
    let labels = ["decision=\"delete\"", "reason=\"empty\"", "consolidation_type=\"empty\""];
    is_counted(&world, "karpenter_voluntary_disruption_decisions_total", &labels).await;
}

/// A node loses its only pod, and is removed. Returns what its claim was.
pub async fn from_empty_to_nothing(world: &World) -> NodeClaim {
    with_pool(world, &disruptable()).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&pod).await;
    world.until("everything is gone", no_node).await;
    claim
}

/// Another scheduler is to bind the pod and never does. Its place is kept for it for a while, and not for ever.
pub async fn a_pod_that_is_never_bound_does_not_keep_a_node(world: World) {
    with_pool(&world, &disruptable()).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    let small = json!({"schedulerName": "another", "containers": [{
        "name": "main", "image": "main", "resources": {"requests": {"cpu": "10m"}},
    }]});
    let waiting = world.create(build::pod("b", &small)).await;
    let unschedulable = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "",
        "lastTransitionTime": world.now(),
    });
    world.patch_status(&waiting, json!({"status": {"conditions": [unschedulable]}})).await;
    let target =
        format!("Pod should schedule on: nodeclaim/{}, node/{}", claim.name_any(), node.name_any());
    told(&world, &waiting.name_any(), "Nominated", &target).await;
    world.delete(&pod).await;
    world.until("the empty node is gone", gone(&claim)).await;
}

pub async fn an_empty_node_is_kept_for_as_long_as_its_pool_says(world: World) {
    let pool = with_pool(&world, &json!({"disruption": {"consolidateAfter": "30m"}})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&pod).await;
    world.pass(Duration::from_mins(29)).await;
    assert!(world.get(&claim).await.is_some());
    world.patch(&pool, json!({"spec": {"disruption": {"consolidateAfter": "Never"}}})).await;
    world.pass(Duration::from_mins(10)).await;
    assert!(world.get(&claim).await.is_some());
    world.patch(&pool, json!({"spec": {"disruption": {"consolidateAfter": "0s"}}})).await;
    world.until("everything is gone", no_node).await;
}

pub async fn a_pod_that_comes_before_the_second_look_keeps_its_node(world: World) {
    with_pool(&world, &disruptable()).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    // The pod it was launched for is expected there for a while.
    world.pass(Duration::from_mins(1)).await;
    world.delete(&pod).await;
    world.until("the pod is gone", async |world: &World| all_run(world, 0).await).await;
    // Found empty within ten seconds, and looked at again fifteen seconds after that.
    world.pass(Duration::from_secs(12)).await;
    assert!(nothing_is_marked(&world).await.is_ok(), "nothing is written before the second look");
    world.create(build::pod("b", &json!({}))).await;
    world.pass(Duration::from_mins(5)).await;
    assert!(world.get(&claim).await.is_some(), "the node was taken from under a pod");
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let failed = "karpenter_voluntary_disruption_failed_validations_total";
    is_counted(&world, failed, &["consolidation_type=\"empty\""]).await;
}

pub async fn a_node_that_asks_for_it_is_left_alone(world: World) {
    with_pool(&world, &disruptable()).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let annotate =
        |value: Value| json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: value}}});
    let node = world.patch(&node, annotate(json!("true"))).await;
    world.delete(&pod).await;
    let words = "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation";
    told(&world, &node.name_any(), "DisruptionBlocked", words).await;
    assert!(world.get(&claim).await.is_some());
    world.patch(&node, annotate(Value::Null)).await;
    world.until("everything is gone", no_node).await;
}

pub async fn a_node_with_nothing_but_daemons_is_removed(world: World) {
    with_pool(&world, &disruptable()).await;
    world.create(build::daemon_set("d", &json!({}))).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the node is ready", one_ready_node).await;
    world.until("the pods run", async |world: &World| all_run(world, 2).await).await;
    world.delete(&pod).await;
    world.until("everything is gone", no_node).await;
}

pub async fn a_daemon_that_asks_for_it_keeps_its_node(world: World) {
    with_pool(&world, &disruptable()).await;
    let mut daemons = serde_json::to_value(build::daemon_set("d", &json!({}))).unwrap_or_default();
    let keep = json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: "true"}}});
    build::merge(&mut daemons["spec"]["template"], &keep);
    world.create(build::object::<DaemonSet>(daemons)).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pods run", async |world: &World| all_run(world, 2).await).await;
    world.delete(&pod).await;
    held_by_its_pod(&world, &claim).await;
    world.until("everything is gone", no_node).await;
}

pub async fn a_budget_of_none_keeps_empty_nodes(world: World) {
    let pool = with_pool(
        &world,
        &json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "0", "reasons": ["Empty"]}]}}),
    )
    .await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&pod).await;
    let words = "No allowed disruptions for disruption reason Empty due to blocking budget";
    told(&world, &pool.name_any(), "DisruptionBlocked", words).await;
    assert!(world.get(&claim).await.is_some());
    world.patch(&pool, json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}})).await;
    world.until("everything is gone", no_node).await;
}

pub async fn a_budget_bounds_how_many_nodes_go_at_once(world: World) {
    with_pool(
        &world,
        &json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}}),
    )
    .await;
    // Each wants a machine of its own: the ports clash.
    let port = json!({"containers": [{
        "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {"requests": {"cpu": "1"}},
    }]});
    let mut pods = Vec::new();
    for name in ["a", "b", "c"] {
        pods.push(world.create(build::pod(name, &port)).await);
    }
    world.until("the pods run", async |world: &World| all_run(world, 3).await).await;
    for pod in &pods {
        // The node of one that is left may go first: its pod fits where another has gone.
        world.delete_if_there(pod).await;
    }
    world
        .until("everything is gone", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            // A machine that is being switched off is no node of its pool any more.
            let leaving = claims
                .iter()
                .filter(|claim| claim.is_deleting() && !claim.is_true(INSTANCE_TERMINATING));
            assert!(leaving.count() <= 1, "more go than the budget allows");
            no_node(world).await
        })
        .await;
}

pub async fn a_budget_holds_while_its_window_is_open(world: World) {
    // The testbed begins at midnight.
    let closed = json!([{"nodes": "0", "schedule": "@daily", "duration": "1h"}, {"nodes": "100%"}]);
    with_pool(&world, &json!({"disruption": {"consolidateAfter": "0s", "budgets": closed}})).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.delete(&pod).await;
    world.pass(Duration::from_mins(55)).await;
    assert!(world.get(&claim).await.is_some());
    world.until("everything is gone", no_node).await;
}
