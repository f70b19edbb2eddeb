//! What the operator writes, and how often: each launch is asked for once, and its controllers do not get in each other's
//! way.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{NodeClaim, labels};
use kerf_testbed::{Fault, Matching, Verb};
use kube::ResourceExt;
use serde_json::json;

use super::{all_run, no_node, one_ready_node, with_pool};
use crate::{World, build};

/// As many as there were when 565 launches were logged for 391 claims, with 764 conflicts.
const PODS: usize = 391;

/// A pod that gets a machine to itself.
fn alone() -> serde_json::Value {
    json!({"nodeSelector": {labels::INSTANCE_TYPE: "c-2x-amd64-linux"}})
}

/// Writes take a while, and the watches tell of them a while later, as on a busy API server.
pub async fn claims_come_and_go_without_conflicts_among_the_controllers(world: World) {
    let (write, watch) = (Duration::from_millis(40), Duration::from_millis(250));
    world.faults().at_rate(1.0, Matching::any().verb(Verb::Watch), Fault::WatchDelay(watch));
    world.faults().at_rate(1.0, Matching::writes(), Fault::Delay(write));
    let policy = json!({
        "consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", "budgets": [{"nodes": "100%"}],
    });
    with_pool(&world, &json!({"disruption": policy})).await;
    for place in 0..PODS {
        world.create(build::pod(&format!("p{place}"), &alone())).await;
    }
    until_at_last(&world, async |world: &World| all_run(world, PODS).await).await;
    let claims = world.list::<NodeClaim>().await.len();
    assert_eq!(claims, PODS);
    assert_eq!(launch_calls(&world), claims, "calls to launch {claims} claims");
    let instances = world.list::<Node>().await;
    let instances = instances.iter().filter_map(|node| node.spec.as_ref()?.provider_id.as_deref());
    assert_eq!(instances.collect::<BTreeSet<_>>().len(), claims, "instances of {claims} claims");
    for pod in world.list::<Pod>().await {
        world.delete(&pod).await;
    }
    until_at_last(&world, no_node).await;
    assert_eq!(world.faults().conflicts("nodeclaims"), 0, "conflicts on {claims} claims");
}

/// Somebody else writes the claim just when it was launched.
pub async fn a_launch_that_cannot_be_noted_is_not_asked_for_again(world: World) {
    with_pool(&world, &json!({})).await;
    let noting = Matching::writes().resource("nodeclaims").subresource("status");
    world.faults().on_next(4, noting, Fault::Conflict);
    world.create(build::pod("a", &alone())).await;
    let (claim, node) = world.until("the node is ready", one_ready_node).await;
    assert_eq!(
        launch_calls(&world),
        1,
        "calls to launch {} as {}",
        claim.name_any(),
        node.name_any()
    );
}

/// Its watch has brought it already.
pub async fn a_launch_does_not_ask_the_api_server_for_its_node_class(world: World) {
    let asked = world.faults().times(Matching::any().verb(Verb::Get).name("default"));
    with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &alone())).await;
    world.until("the node is ready", one_ready_node).await;
    assert_eq!(asked.so_far().len(), 0, "requests for the NodeClass");
}

/// Asks every ten seconds: among thousands of writes, asking after each is most of the work.
async fn until_at_last<T>(world: &World, mut ask: impl AsyncFnMut(&World) -> Result<T, String>) {
    let mut last = String::new();
    for _ in 0..90 {
        world.pass(Duration::from_secs(10)).await;
        match ask(world).await {
            Ok(_) => return,
            Err(error) => last = error,
        }
    }
    panic!("after a quarter of an hour: {last}");
}

/// How often the cloud was asked to launch.
fn launch_calls(world: &World) -> usize {
    let metrics = world.metrics();
    let calls = metrics.lines().filter(|line| {
        line.starts_with("karpenter_cloudprovider_duration_seconds_count{")
            && line.contains("method=\"Create\"")
    });
    calls.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum()
}
