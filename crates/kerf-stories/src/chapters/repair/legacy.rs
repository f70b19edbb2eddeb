//! Repair as it was before Karpenter 1.15 (`--legacy-node-repair`): by force.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kerf_api::annotations::DO_NOT_DISRUPT;
use kube::ResourceExt;
use serde_json::json;

use super::{is_kept, kill, three_nodes, three_nodes_of_pool, turns_true};
use crate::{
    World, build,
    chapters::{all_run, launching::gone, one_ready_node, told, with_pool},
};

pub async fn an_unwell_node_is_replaced_after_ten_minutes(world: World) {
    let nodes = three_nodes(&world).await;
    kill(&world, &nodes[..1]);
    world.pass(Duration::from_mins(9)).await;
    assert!(is_kept(&world, &nodes[0]).await, "given up too early");
    world
        .until("its claim is gone", async |world: &World| {
            if is_kept(world, &nodes[0]).await { Err("it is kept".to_owned()) } else { Ok(()) }
        })
        .await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    let counted = "karpenter_nodeclaims_unhealthy_disrupted_total{condition=\"ready\"";
    let metrics = world.metrics();
    assert!(metrics.lines().any(|line| line.starts_with(counted)), "{metrics}");
}

/// The kubelet says all the while that the node is ready.
pub async fn a_fault_that_kwok_plays_is_repaired_after_half_a_minute(world: World) {
    let nodes = three_nodes(&world).await;
    // Asks for a reboot, which there is not: the node is neither replaced nor counted among the unwell.
    turns_true(&world, &nodes[1], "KWOKRebootRequired").await;
    world.pass(Duration::from_mins(10)).await;
    assert!(is_kept(&world, &nodes[1]).await, "replaced instead of rebooted");
    turns_true(&world, &nodes[0], "KWOKUnhealthy").await;
    world.pass(Duration::from_secs(25)).await;
    assert!(is_kept(&world, &nodes[0]).await, "given up too early");
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    assert!(is_kept(&world, &nodes[1]).await && is_kept(&world, &nodes[2]).await);
    let counted = "karpenter_nodeclaims_unhealthy_disrupted_total{condition=\"kwok_unhealthy\"";
    let metrics = world.metrics();
    assert!(metrics.lines().any(|line| line.starts_with(counted)), "{metrics}");
}

/// A pod that must not be disturbed holds the drain, and then its machine dies.
pub async fn an_unwell_node_whose_drain_hangs_is_replaced(world: World) {
    with_pool(&world, &json!({})).await;
    let stays = json!({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]});
    let mut pod = build::pod("a", &stays);
    pod.annotations_mut().insert(DO_NOT_DISRUPT.into(), "true".into());
    world.create(pod).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.delete(&claim).await;
    world.pass(Duration::from_mins(5)).await;
    assert!(world.get(&claim).await.is_some(), "the pod is not respected");
    kill(&world, &[node]);
    world.until("the claim is gone", gone(&claim)).await;
}

/// Neither the pool's budget, nor its grace period, nor what nodes and pods ask for.
pub async fn nothing_holds_a_repair_back(world: World) {
    let changes = json!({
        "disruption": {"budgets": [{"nodes": "0"}]},
        "template": {"spec": {"terminationGracePeriod": "24h"}},
    });
    let nodes = three_nodes_of_pool(&world, &changes).await;
    world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    let keep = json!({"metadata": {"annotations": {DO_NOT_DISRUPT: "true"}}});
    world.patch(&nodes[0], keep.clone()).await;
    for pod in world.list::<Pod>().await {
        world.patch(&pod, keep.clone()).await;
    }
    kill(&world, &nodes[..1]);
    world.until("its node is gone", gone(&nodes[0])).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
}

pub async fn too_many_unwell_nodes_are_left_alone(world: World) {
    let nodes = three_nodes(&world).await;
    kill(&world, &nodes[..2]);
    let why = world
        .until("repair says why not", async |w: &World| {
            told(w, "NodeRepairBlocked", &nodes[0]).await
        })
        .await;
    assert_eq!(why, "more than 20% nodes are unhealthy in the nodepool");
    world.pass(Duration::from_mins(30)).await;
    assert!(is_kept(&world, &nodes[0]).await && is_kept(&world, &nodes[1]).await);
}
