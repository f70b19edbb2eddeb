//! What one user asks for stops nobody else.

use k8s_openapi::api::core::v1::Pod;
use kerf_api::{NodeClaim, labels};
use kube::ResourceExt;
use serde_json::json;

use super::{node_of, one_ready_node, runs, told, with_pool};
use crate::{World, build};

pub async fn an_absurd_request_keeps_no_other_pod_waiting(world: World) {
    with_pool(&world, &json!({})).await;
    let many_cores = world.create(asking("cores", "cpu", "50000000000000000")).await;
    let much_memory = world.create(asking("memory", "memory", "8Ei")).await;
    let ordinary = world.create(asking("ordinary", "cpu", "300m")).await;
    let node = node_of(&world, &ordinary).await;
    assert_eq!(node.labels()[labels::INSTANCE_TYPE], "c-1x-amd64-linux");
    for hostile in [&many_cores, &much_memory] {
        let why = world
            .until("the pod gets an event", async |w: &World| {
                told(w, "FailedScheduling", hostile).await
            })
            .await;
        assert!(why.contains("no node can have more than"), "{why}");
    }
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
}

pub async fn a_limit_beyond_all_bounds_limits_nothing(world: World) {
    let endless = "10000000000000000000";
    with_pool(&world, &json!({"limits": {"cpu": endless, "memory": endless}})).await;
    let pod = world.create(asking("a", "cpu", "300m")).await;
    world.until("the pod runs", async |w: &World| runs(w, &pod).await).await;
    let (_, node) = world.until("the node is ready", one_ready_node).await;
    assert_eq!(node.labels()[labels::INSTANCE_TYPE], "c-1x-amd64-linux");
}

pub async fn too_many_constraints_are_refused_with_a_reason(world: World) {
    with_pool(&world, &json!({})).await;
    let term = |at: usize| {
        json!({"weight": 1, "podAffinityTerm": {
            "topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": at.to_string()}},
        }})
    };
    let preferring = |name: &str, terms: usize| {
        let terms: Vec<_> = (0..terms).map(term).collect();
        let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": terms});
        build::pod(name, &json!({"affinity": {"podAffinity": preferred}}))
    };
    let hostile = world.create(preferring("hostile", 400)).await;
    let generous = world.create(preferring("generous", 128)).await;
    world.until("the other runs", async |w: &World| runs(w, &generous).await).await;
    let why = world
        .until("the pod gets an event", async |w: &World| {
            told(w, "FailedScheduling", &hostile).await
        })
        .await;
    assert!(why.contains("it has 400 affinity terms"), "{why}");
}

fn asking(name: &str, resource: &str, amount: &str) -> Pod {
    let container = json!({
        "name": "main", "image": "main", "resources": {"requests": {resource: amount}},
    });
    build::pod(name, &json!({"containers": [container]}))
}
