//! What a pool says about itself, and what keeps one from launching nodes.

use kerf_api::{
    NodeClaim, NodePool, annotations,
    conditions::{Conditioned, NODE_CLASS_READY, READY, VALIDATION_SUCCEEDED},
};
use kube::ResourceExt;
use serde_json::json;

use super::{condition, one_ready_node, ready_pool, runs, told, with_pool};
use crate::{World, build};

pub async fn a_pool_counts_what_it_has(world: World) {
    let pool = with_pool(&world, &json!({})).await;
    let counts = |nodes: &'static str, cpu: &'static str| {
        let pool = pool.clone();
        async move |world: &World| {
            let status = world.get(&pool).await.and_then(|pool| pool.status).unwrap_or_default();
            let amount = |name: &str| status.resources.get(name).map(|it| it.0.clone());
            match (amount("nodes").as_deref(), amount("cpu").as_deref()) {
                (Some(n), Some(c)) if n == nodes && c == cpu => Ok(status.nodes),
                other => Err(format!("{other:?}")),
            }
        }
    };
    assert_eq!(world.until("it has nothing", counts("0", "0")).await, 0);
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    assert_eq!(world.until("it has one machine", counts("1", "2")).await, 1);
    world.delete(&pod).await;
    world.delete(&claim).await;
    assert_eq!(world.until("it has nothing again", counts("0", "0")).await, 0);
}

pub async fn the_hash_of_a_pool_follows_what_its_nodes_are_made_of(world: World) {
    let pool = with_pool(&world, &json!({})).await;
    let hash = pool.annotations()[annotations::NODE_POOL_HASH].clone();
    let weighed = world.patch(&pool, json!({"spec": {"weight": 7}})).await;
    let template = json!({"metadata": {"labels": {"example.com/a": "b"}}});
    let changed = world.patch(&pool, json!({"spec": {"template": template}})).await;
    assert_eq!(weighed.hash(), hash);
    assert_ne!(changed.hash(), hash);
    world
        .until("the new hash is written", async |world: &World| {
            let pool: NodePool = world.get(&pool).await.ok_or("the pool is gone")?;
            let written = &pool.annotations()[annotations::NODE_POOL_HASH];
            if *written == pool.hash() { Ok(()) } else { Err(format!("{written} is old")) }
        })
        .await;
}

pub async fn a_pool_whose_class_goes_launches_nothing_more(world: World) {
    let mut class = build::node_class("default", &json!({}));
    class.finalizers_mut().push("example.com/held".into());
    let class = world.create(class).await;
    let pool = ready_pool(&world, build::pool("default", &json!({}))).await;
    world.delete(&class).await;
    let why = world.until("it is not ready", condition(&pool, NODE_CLASS_READY, "False")).await;
    assert_eq!(why, "NodeClassTerminating: NodeClass is Terminating");
    let pod = world.create(build::pod("a", &json!({}))).await;
    let other = build::node_class("other", &json!({}));
    let other = world.create(other).await;
    // The pool is given a class that stays, and goes on from there.
    let class_ref = json!({"nodeClassRef": {"name": other.name_any()}});
    world.patch(&pool, json!({"spec": {"template": {"spec": class_ref}}})).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world.patch(&class, json!({"metadata": {"finalizers": null}})).await;
}

pub async fn a_pool_that_contradicts_itself_says_so_and_keeps_nobody_waiting(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    // Only the operator can see this: the API server compares no list with another.
    let taint = json!([{"key": "example.com/t", "effect": "NoSchedule"}]);
    let template = json!({"template": {"spec": {"taints": taint, "startupTaints": taint}}});
    let broken = world.create(build::pool("broken", &template)).await;
    let why = world.until("it says so", condition(&broken, VALIDATION_SUCCEEDED, "False")).await;
    assert!(why.starts_with("NodePoolValidationFailed: "), "{why}");
    assert!(why.contains("example.com/t"), "{why}");
    let ready = world.get(&broken).await.map(|pool: NodePool| pool.is_true(READY));
    assert_eq!(ready, Some(false));
    ready_pool(&world, build::pool("sound", &json!({}))).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
}

pub async fn a_pool_that_no_machine_can_meet_says_so_and_keeps_nobody_waiting(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    let none =
        json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["none"]}]);
    let impossible = build::pool("none", &json!({"template": {"spec": {"requirements": none}}}));
    let impossible = ready_pool(&world, impossible).await;
    ready_pool(&world, build::pool("sound", &json!({}))).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    let why = world
        .until("the pool is told", async |world: &World| {
            told(world, "NoCompatibleInstanceTypes", &impossible).await
        })
        .await;
    assert_eq!(why, "NodePool requirements filtered out all compatible available instance types");
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
}
