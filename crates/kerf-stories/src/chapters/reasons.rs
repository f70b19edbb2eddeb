//! A pod that gets no node is told the cause.

use k8s_openapi::api::core::v1::Pod;
use kerf_testbed::CloudFault;
use serde_json::json;

use super::{ready_pool, told, with_pool};
use crate::{World, build};

pub async fn a_pod_is_told_that_there_is_no_pool_or_only_static_ones(world: World) {
    let pod = world.create(build::pod("a", &json!({}))).await;
    hears(&world, &pod, "there is no NodePool to launch a node from").await;
    world.create(build::node_class("default", &json!({}))).await;
    ready_pool(&world, build::pool("fixed", &json!({"replicas": 0}))).await;
    let pod = world.create(build::pod("b", &json!({}))).await;
    hears(&world, &pod, "every NodePool is static (fixed)").await;
}

pub async fn a_pod_is_told_that_instance_types_are_unknown(world: World) {
    with_pool(&world, &json!({})).await;
    world.cloud().at_rate(1.0, CloudFault::CatalogueRefused);
    let pod = world.create(build::pod("a", &json!({}))).await;
    hears(&world, &pod, "pool default: its instance types are unknown: injected").await;
    world.cloud().clear();
    super::node_of(&world, &pod).await;
}

async fn hears(world: &World, pod: &Pod, words: &str) {
    world
        .until(words, async |world: &World| {
            let told = told(world, "FailedScheduling", pod).await?;
            if told.contains(words) { Ok(()) } else { Err(told) }
        })
        .await;
}
