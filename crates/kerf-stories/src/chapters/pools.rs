//! What a pool says about itself, and what keeps one from launching nodes.

use kerf_api::{
    NodeClaim, NodePool, annotations,
    conditions::{Conditioned, NODE_CLASS_READY, READY, VALIDATION_SUCCEEDED},
};
use kube::ResourceExt;
use serde_json::json;

use super::{condition, launching::gone, one_ready_node, ready_pool, runs, told, with_pool};
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
    // A pod that is still there when its node goes is planned for elsewhere.
    world.until("the pod is gone", gone(&pod)).await;
    world.delete(&claim).await;
    assert_eq!(world.until("it has nothing again", counts("0", "0")).await, 0);
}

pub async fn the_hash_of_a_pool_follows_what_its_nodes_are_made_of(world: World) {
    let pool = with_pool(&world, &json!({})).await;
    let written = async |world: &World| {
        let pool: NodePool = world.get(&pool).await.ok_or("the pool is gone")?;
        let written = pool.annotations().get(annotations::NODE_POOL_HASH);
        match written {
            Some(written) if *written == world.served(&pool).hash() => Ok(written.clone()),
            other => Err(format!("{other:?} is written")),
        }
    };
    let hash = world.until("the hash is written", written).await;
    let weighed = world.patch(&pool, json!({"spec": {"weight": 7}})).await;
    let template = json!({"metadata": {"labels": {"example.com/a": "b"}}});
    let changed = world.patch(&pool, json!({"spec": {"template": template}})).await;
    assert_eq!(world.served(&weighed).hash(), hash);
    assert_ne!(world.served(&changed).hash(), hash);
    world.until("the new hash is written", written).await;
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
        .until("the pool gets an event", async |world: &World| {
            told(world, "NoCompatibleInstanceTypes", &impossible).await
        })
        .await;
    assert_eq!(why, "NodePool requirements filtered out all compatible available instance types");
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
}

pub async fn metrics_tell_how_things_stand(world: World) {
    let pool = with_pool(&world, &json!({"limits": {"cpu": "100"}})).await.name_any();
    let pod = world.create(build::pod("a", &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    world
        .until("the metrics say so", async |world: &World| {
            let metrics = world.metrics();
            let says = |name: &str, parts: &[&str]| {
                let line = metrics.lines().find(|line| {
                    line.starts_with(&format!("{name}{{"))
                        && parts.iter().all(|it| line.contains(it))
                });
                line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                    .ok_or_else(|| format!("no {name} with {parts:?}"))
            };
            let of_pool = format!("nodepool=\"{pool}\"");
            let of_node = format!("node_name=\"{}\"", node.name_any());
            let of_claim = format!("name=\"{}\"", claim.name_any());
            let cpu = "resource_type=\"cpu\"";
            let told = [
                says("karpenter_nodepools_limit", &[cpu, &of_pool])?,
                says("karpenter_nodepools_usage", &[cpu, &of_pool])?,
                says("karpenter_nodes_allocatable", &[cpu, &of_node])?,
                says("karpenter_nodes_total_pod_requests", &[cpu, &of_node])?,
                says(
                    "operator_nodeclaim_status_condition_count",
                    &[&of_claim, "type=\"Ready\"", "status=\"True\""],
                )?,
            ];
            let cost = format!("{:.6}", says("karpenter_nodepools_cost_total", &[&of_pool])?);
            says("karpenter_pods_state", &["name=\"a\"", "phase=\"Running\"", &of_pool])?;
            let told = format!("{told:?} {cost}");
            let price = &node.labels()["eks-node-viewer/instance-price"];
            if told == format!("[100.0, 2.0, 1.9, 1.0, 1.0] {price}") { Ok(()) } else { Err(told) }
        })
        .await;
    world.delete(&pod).await;
    world.until("the pod is gone", gone(&pod)).await;
    world.delete(&claim).await;
    world
        .until("nothing is paid for any more", async |world: &World| {
            let line = format!("karpenter_nodepools_cost_total{{nodepool=\"{pool}\"}} 0.0");
            let metrics = world.metrics();
            if metrics.lines().any(|it| it == line) { Ok(()) } else { Err(metrics) }
        })
        .await;
}
