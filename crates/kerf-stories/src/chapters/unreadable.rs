//! Objects with a time or an amount that our types cannot hold, and that the API server accepts: each is left alone, and the others live on.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{NodeClaim, ObjectExt};
use serde_json::{Value, json};

use super::{launching::gone, node_of, one_ready_node, runs, told, with_pool};
use crate::{World, build, world::Kind};

/// The last day that a time of Kubernetes can be on, and the day after the last that one of ours can be on.
const NEVER: &str = "9999-12-31T23:59:59Z";
const NOW: &str = "2026-01-01T00:00:00Z";
/// Longer than an empty node is kept, and than it takes to collect garbage.
const LONG_ENOUGH: Duration = Duration::from_mins(30);

pub async fn a_pod_that_cannot_be_read_keeps_its_node_and_no_other(mut world: World) {
    let pool = with_pool(&world, &removing_empty_nodes()).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let node = node_of(&world, &pod).await;
    world.spoil(&pod, Some("status"), json!({"status": {"startTime": NEVER}})).await;
    is_reported(&world, "Pod", "status.startTime", &pod).await;
    restart(&mut world).await;

    let (other, other_node) = runs_elsewhere(&world).await;
    world.delete(&other).await;
    world.until("the other node is gone", gone(&other_node)).await;
    // Its template asks for other nodes now.
    let labels =
        json!({"spec": {"template": {"metadata": {"labels": {"example.com/new": "yes"}}}}});
    world.patch(&pool, labels).await;
    world.pass_if_free(LONG_ENOUGH).await;
    is_kept(&world, &node).await;

    world.spoil(&pod, Some("status"), json!({"status": {"startTime": NOW}})).await;
    is_read_again(&world).await;
    world.until("the node that has drifted is gone", gone(&node)).await;
}

pub async fn a_node_that_cannot_be_read_is_left_alone(world: World) {
    let condition = |time: &str| {
        let condition = json!({
            "type": "Spoilt", "status": "True", "lastHeartbeatTime": NOW, "lastTransitionTime": time,
        });
        json!({"status": {"conditions": [condition]}})
    };
    Box::pin(an_empty_node_stays_while(
        "lastTransitionTime",
        world,
        Spoilt::Node,
        condition(NEVER),
        condition(NOW),
    ))
    .await;
}

pub async fn a_claim_that_cannot_be_read_keeps_its_instance(world: World) {
    let last_event = |time: &str| json!({"status": {"lastPodEventTime": time}});
    // An offset that custom resources may have and built-in ones may not.
    let spoilt = last_event("2026-01-01T00:00:00+99:99");
    let field = "status.lastPodEventTime";
    Box::pin(an_empty_node_stays_while(field, world, Spoilt::Claim, spoilt, last_event(NOW))).await;
}

/// The pattern of the CRD lets the amount through, and it is no quantity all the same.
pub async fn a_claim_with_an_amount_that_is_no_quantity_keeps_its_instance(world: World) {
    let allocatable = |cpu: &str| json!({"status": {"allocatable": {"cpu": cpu}}});
    let (spoilt, mended) = (allocatable("1e1.5"), allocatable("1900m"));
    Box::pin(an_empty_node_stays_while(
        "status.allocatable.cpu",
        world,
        Spoilt::Claim,
        spoilt,
        mended,
    ))
    .await;
}

/// What of a node and its claim cannot be read.
enum Spoilt {
    Node,
    Claim,
}

/// The field cannot be read, and the object is named for it. The node is empty and would go, also for an operator that starts
/// anew; it goes when the field can be read again.
async fn an_empty_node_stays_while(
    field: &str,
    mut world: World,
    what: Spoilt,
    spoilt: Value,
    mended: Value,
) {
    with_pool(&world, &removing_empty_nodes()).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let node = node_of(&world, &pod).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    match what {
        Spoilt::Node => {
            world.spoil(&node, Some("status"), spoilt).await;
            is_reported(&world, "Node", field, &node).await;
        }
        Spoilt::Claim => {
            world.spoil(&claim, Some("status"), spoilt).await;
            is_reported(&world, "NodeClaim", field, &claim).await;
        }
    }
    world.delete(&pod).await;
    restart(&mut world).await;
    runs_elsewhere(&world).await;
    world.pass_if_free(LONG_ENOUGH).await;
    is_kept(&world, &claim).await;
    is_kept(&world, &node).await;

    match what {
        Spoilt::Node => world.spoil(&node, Some("status"), mended).await,
        Spoilt::Claim => world.spoil(&claim, Some("status"), mended).await,
    }
    world.until("the empty node is gone", gone(&node)).await;
    world.until("its claim is gone", gone(&claim)).await;
}

pub async fn a_pool_that_cannot_be_read_launches_nothing_and_keeps_its_nodes(mut world: World) {
    let pool = with_pool(&world, &removing_empty_nodes()).await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    let node = node_of(&world, &pod).await;
    let with_condition = async |world: &World, time: &str| {
        let pool = world.get(&pool).await.unwrap_or_else(|| panic!("the pool is gone"));
        let mut conditions = json!(pool.status.unwrap_or_default().conditions);
        let condition = json!({
            "type": "Spoilt", "status": "True", "reason": "Spoilt", "message": "",
            "lastTransitionTime": time,
        });
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.retain(|one| one["type"] != "Spoilt");
            conditions.push(condition);
        }
        json!({"status": {"conditions": conditions}})
    };
    let spoilt = with_condition(&world, NEVER).await;
    world.spoil(&pool, Some("status"), spoilt).await;
    is_reported(&world, "NodePool", "lastTransitionTime", &pool).await;
    world.delete(&pod).await;
    restart(&mut world).await;
    let other = world.create(build::pod("b", &of_twelve_cpus())).await;
    world.pass_if_free(LONG_ENOUGH).await;
    is_kept(&world, &node).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 1, "nothing is launched");

    let mended = with_condition(&world, NOW).await;
    world.spoil(&pool, Some("status"), mended).await;
    world.until("the other pod runs", async |world: &World| runs(world, &other).await).await;
    world.until("the empty node is gone", gone(&node)).await;
}

/// More than the first machine has.
fn of_twelve_cpus() -> Value {
    json!({"containers": [{
        "name": "main", "image": "main", "resources": {"requests": {"cpu": "12"}},
    }]})
}

fn removing_empty_nodes() -> Value {
    json!({"disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"}})
}

/// One object that cannot be read once kept an operator from ever starting again.
async fn restart(world: &mut World) {
    world.kill_operator();
    world.start_operator().await;
}

async fn is_reported<K: Kind>(world: &World, kind: &str, field: &str, object: &K) {
    let said = world
        .until("it is reported", async |world: &World| told(world, "Unreadable", object).await)
        .await;
    assert!(said.contains(field), "{said}");
    let line = format!("karpenter_cluster_state_unreadable_objects{{kind=\"{kind}\"}} 1");
    let metrics = world.metrics();
    assert!(metrics.lines().any(|it| it.starts_with(&line)), "{line} is not in\n{metrics}");
}

async fn is_read_again(world: &World) {
    world
        .until("it is read again", async |world: &World| {
            let metrics = world.metrics();
            let unreadable = "karpenter_cluster_state_unreadable_objects{";
            let left = metrics.lines().find(|line| line.starts_with(unreadable));
            left.map_or(Ok(()), |line| Err(line.to_owned()))
        })
        .await;
}

/// A pod that fits on no node gets one: what cannot be read keeps no other waiting.
async fn runs_elsewhere(world: &World) -> (Pod, Node) {
    let other: Pod = world.create(build::pod("b", &of_twelve_cpus())).await;
    let node = node_of(world, &other).await;
    (other, node)
}

async fn is_kept<K: Kind>(world: &World, object: &K) {
    let there = world.get(object).await.map(|object| object.is_deleting());
    assert_eq!(
        there,
        Some(false),
        "{} {}",
        K::kind(&()),
        object.meta().name.as_deref().unwrap_or("")
    );
}
