//! What only a provider of its own brings: played with the example provider, on the testbed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{
    NodeClaim,
    conditions::{NODE_CLASS_READY, REGISTERED},
    labels,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    condition, is_counted, launching::gone, node_of, one_ready_node, provisioning::disk_in_zone,
    runs, with_pool,
};
use crate::{
    World, build,
    example_provider::{
        CAUSE, DRIVER_LAST_ZONE, DRIVER_ZONE, INTERRUPTED, LAST_ZONE, PARTITION, PLACEMENT_GROUP,
        RESERVATION, RESERVED_TYPE,
    },
};

/// The pool waits for the controller of its class, and follows it.
pub async fn a_controller_of_the_provider_says_whether_a_class_can_be_used(world: World) {
    let class = world.create(build::node_class("default", &json!({}))).await;
    world.patch(&class, json!({"spec": {"refuse": "it has no subnets"}})).await;
    let pool = world.create(build::pool("default", &json!({}))).await;
    let why = world
        .until("the pool says why", async |world: &World| {
            let why = condition(&pool, NODE_CLASS_READY, "False")(world).await?;
            if why.starts_with("Refused") { Ok(why) } else { Err(why) }
        })
        .await;
    assert_eq!(why, "Refused: it has no subnets");
    let pod = world.create(build::pod("a", &json!({}))).await;
    world.patch(&class, json!({"spec": {"refuse": null}})).await;
    world.until("the class is ready", condition(&pool, NODE_CLASS_READY, "True")).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
}

/// The driver has names of its own for the zone and for its values.
pub async fn a_pod_follows_its_volume_by_the_names_of_the_provider(world: World) {
    with_pool(&world, &json!({})).await;
    disk_in_zone(&world, DRIVER_ZONE, DRIVER_LAST_ZONE).await;
    let pod = world.create(build::pod("a", &super::provisioning::volume("data"))).await;
    let node = world.until("a node comes", async |world: &World| world.only::<Node>().await).await;
    assert_eq!(node.labels()[labels::ZONE], LAST_ZONE);
    world.patch(&node, json!({"metadata": {"labels": {DRIVER_ZONE: DRIVER_LAST_ZONE}}})).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
}

pub async fn a_reservation_is_used_up_before_anything_is_bought(world: World) {
    let any = json!([
        {"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["reserved", "on-demand"]},
        {"key": labels::INSTANCE_TYPE, "operator": "In", "values": [RESERVED_TYPE]},
    ]);
    with_pool(&world, &json!({"template": {"spec": {"requirements": any}}})).await;
    let large = json!({"containers": [{
        "name": "main", "image": "main", "resources": {"requests": {"cpu": "3"}},
    }]});
    let mut bought = Vec::new();
    for name in ["a", "b"] {
        let pod = world.create(build::pod(name, &large)).await;
        let node = node_of(&world, &pod).await;
        let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
        bought.push((label(labels::CAPACITY_TYPE), label(RESERVATION)));
    }
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    assert_eq!(bought, [pair("reserved", "r-1"), pair("on-demand", "")]);
}

pub async fn a_node_waits_until_its_provider_lets_it_register(world: World) {
    let group = json!({"template": {"metadata": {"labels": {PLACEMENT_GROUP: "g"}}}});
    with_pool(&world, &group).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let claim = world
        .until("the claim waits for the provider", async |world: &World| {
            let claim = world.only::<NodeClaim>().await?;
            let why = condition(&claim, REGISTERED, "Unknown")(world).await?;
            if why.starts_with("AwaitingProvider") { Ok(claim) } else { Err(why) }
        })
        .await;
    world.pass(Duration::from_mins(1)).await;
    world.until("it still waits", condition(&claim, REGISTERED, "Unknown")).await;
    let node = world.only::<Node>().await.unwrap_or_else(|error| panic!("{error}"));
    world.patch(&node, json!({"metadata": {"annotations": {PARTITION: "3"}}})).await;
    world.until("the pod runs", async |world: &World| runs(world, &pod).await).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    let partition = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get(PARTITION).cloned().unwrap_or_default()
    };
    assert_eq!((partition(claim.labels()), partition(node.labels())), ("3".into(), "3".into()));
}

/// The next machine is launched before the first has let its pod go.
pub async fn an_interrupted_node_is_replaced_and_counted_by_its_cause(world: World) {
    with_pool(&world, &json!({})).await;
    world.create(build::deployment("web", 1, &json!({}))).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    world.create(build::budget("web", &json!({"minAvailable": 1}))).await;
    world.patch(&node, json!({"metadata": {"annotations": {INTERRUPTED: "true"}}})).await;
    let claims = async |world: &World| world.list::<NodeClaim>().await.len();
    world
        .until("there is a second claim", async |world: &World| match claims(world).await {
            2 => Ok(()),
            other => Err(format!("{other} claims")),
        })
        .await;
    assert!(world.get(&claim).await.is_some(), "the budget holds the drain");
    let reason: &[&str] = &[&format!("reason=\"{CAUSE}\"")];
    is_counted(&world, "karpenter_nodeclaims_disrupted_total", reason).await;
    is_counted(&world, "karpenter_pods_disruption_initiated_total", reason).await;
    let budgets = world.list::<k8s_openapi::api::policy::v1::PodDisruptionBudget>().await;
    for budget in budgets {
        world.delete(&budget).await;
    }
    world.until("the interrupted claim is gone", gone(&claim)).await;
    world
        .until("the pod runs elsewhere", async |world: &World| {
            let pods = world.list::<Pod>().await;
            let running = pods.iter().find(|pod| super::is_running(pod));
            let elsewhere = running.and_then(|pod| pod.spec.as_ref()?.node_name.clone());
            if elsewhere.is_some_and(|it| it != node.name_any()) {
                Ok(())
            } else {
                Err("no".into())
            }
        })
        .await;
}

/// As labels go: what the provider knows may be used, and nothing else of its domain.
pub async fn labels_of_the_provider_are_restricted_to_those_it_knows(world: World) {
    world.create(build::node_class("default", &json!({}))).await;
    let check = async |name: &str, key: &str, expected: &str| {
        let requirement = json!({"key": key, "operator": "Exists"});
        let changes: Value = json!({"template": {"spec": {"requirements": [requirement]}}});
        let pool = world.create(build::pool(name, &changes)).await;
        world.until("the pool is judged", condition(&pool, "ValidationSucceeded", expected)).await
    };
    check("known", PARTITION, "True").await;
    let why = check("unknown", "cloud.example/anything", "False").await;
    assert!(why.contains("cloud.example/anything is not allowed"), "{why}");
}
