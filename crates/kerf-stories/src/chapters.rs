//! The stories, by chapter.

pub mod buffers;
pub mod churn_controls;
pub mod conditions;
pub mod crashes;
pub mod deletion_costs;
pub mod disruption;
pub mod draining;
pub mod example_provider;
pub mod faults;
pub mod hostile_pods;
pub mod launching;
pub mod leases;
pub mod life_of_a_node;
pub mod limits;
pub mod metrics;
pub mod overlays;
pub mod pools;
pub mod provisioning;
pub mod reasons;
pub mod repair;
pub mod reserved;
pub mod side_by_side;
pub mod static_capacity;
pub mod unreadable;
pub mod writes;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kerf_api::{
    NodeClaim, NodePool,
    conditions::{Conditioned, READY},
    labels,
};
use kube::ResourceExt;
use serde_json::json;

use crate::{World, build, pods, world::Kind};

/// A pool that is ready for pods.
pub(crate) async fn with_pool(world: &World, changes: &serde_json::Value) -> NodePool {
    world.create(build::node_class("default", &json!({}))).await;
    ready_pool(world, build::pool("default", changes)).await
}

/// For pods that are to share one machine whether they are planned together or one after the other: a batch may close
/// between any two of them, and the later ones still fit on the machine that is on its way.
pub(crate) fn on_eight_cpus() -> serde_json::Value {
    json!({"nodeSelector": {labels::INSTANCE_TYPE: "c-8x-amd64-linux"}})
}

/// Creates a pool and waits until it is ready.
pub(crate) async fn ready_pool(world: &World, pool: NodePool) -> NodePool {
    let pool = world.create(pool).await;
    world
        .until("the pool is ready", async |world: &World| {
            let pool = world.get(&pool).await.ok_or("the pool is gone")?;
            if pool.is_true(READY) { Ok(pool) } else { Err(format!("{:?}", pool.status)) }
        })
        .await
}

/// All pods run; how many there are.
pub(crate) async fn all_run(world: &World, count: usize) -> Result<Vec<Pod>, String> {
    let all = world.list::<Pod>().await;
    let running = all.iter().filter(|pod| is_running(pod)).count();
    if running == count && all.len() == count {
        Ok(all)
    } else {
        Err(format!("{running} of {} pods run, {count} are wanted", all.len()))
    }
}

pub(crate) fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// The pod, if it runs.
pub(crate) async fn runs(world: &World, pod: &Pod) -> Result<Pod, String> {
    let pod = world.get(pod).await.ok_or("the pod is gone")?;
    if is_running(&pod) { Ok(pod) } else { Err(format!("{:?}", pod.status)) }
}

/// Waits until the pod runs, and gives its node.
pub(crate) async fn node_of(world: &World, pod: &Pod) -> Node {
    let pod = world.until("the pod runs", async |world: &World| runs(world, pod).await).await;
    let nodes = world.list::<Node>().await;
    let node = nodes.into_iter().find(|node| pods::node_name(&pod) == Some(&node.name_any()));
    node.unwrap_or_else(|| panic!("the pod runs on a node that is not there: {:?}", pod.spec))
}

/// kube-scheduler has given up on the pod.
pub(crate) fn unschedulable(pod: &Pod) -> impl AsyncFnMut(&World) -> Result<(), String> {
    async move |world: &World| {
        let pod = world.get(pod).await.ok_or("it is gone")?;
        if is_unschedulable(&pod) { Ok(()) } else { Err(format!("{:?}", pod.status)) }
    }
}

pub(crate) fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}

/// What the operator said about an object, under this reason.
pub(crate) async fn told<K: Kind>(
    world: &World,
    reason: &str,
    about: &K,
) -> Result<String, String> {
    let events = world.list::<Event>().await;
    let told = events.into_iter().find(|event| {
        event.reason.as_deref() == Some(reason)
            && event.involved_object.name == about.meta().name
            // kube-scheduler says FailedScheduling as well.
            && event.source.as_ref().and_then(|source| source.component.as_deref()) == Some("karpenter")
    });
    told.and_then(|event| event.message).ok_or_else(|| format!("no event {reason}"))
}

/// Waits until a condition has this status; gives its reason and message.
pub(crate) fn condition<K: Kind + Conditioned>(
    object: &K,
    kind: &str,
    status: &str,
) -> impl AsyncFnMut(&World) -> Result<String, String> {
    async move |world: &World| {
        let object = world.get(object).await.ok_or("it is gone")?;
        let condition = object.condition(kind).ok_or_else(|| format!("no condition {kind}"))?;
        let text = format!("{}: {}", condition.reason, condition.message);
        if condition.status == status { Ok(text) } else { Err(text) }
    }
}

/// The one claim there is, ready, with its node.
pub(crate) async fn one_ready_node(world: &World) -> Result<(NodeClaim, Node), String> {
    let claim = world.only::<NodeClaim>().await?;
    let node = world.only::<Node>().await?;
    if claim.is_true(READY) { Ok((claim, node)) } else { Err(format!("{:?}", claim.status)) }
}

/// Waits until the claim and its node are gone. Whether there are others by then is up to the moment: a pod that was on
/// the node may have been planned for elsewhere before it was evicted.
pub(crate) async fn let_go(world: &World, claim: &NodeClaim, node: &Node) {
    world.until("the claim is gone", launching::gone(claim)).await;
    world.until("the node is gone", launching::gone(node)).await;
}

/// Nothing is left of any node. Only where no pod is drained, or where each run is like the other: see [`let_go`].
pub(crate) async fn no_node(world: &World) -> Result<(), String> {
    let (claims, nodes) = (world.list::<NodeClaim>().await, world.list::<Node>().await);
    let bound = world.list::<Pod>().await.iter().filter(|pod| pods::is_scheduled(pod)).count();
    if claims.is_empty() && nodes.is_empty() {
        Ok(())
    } else {
        Err(format!("{} claims, {} nodes, {bound} bound pods", claims.len(), nodes.len()))
    }
}

/// Waits until the operator has counted something under this name, with these labels. It may count after it has written.
pub(crate) async fn is_counted(world: &World, name: &str, labels: &[&str]) {
    world
        .until(&format!("{name} with {labels:?} is counted"), async |world: &World| {
            if counted(world, name, labels) > 0 { Ok(()) } else { Err(world.metrics()) }
        })
        .await;
}

/// The sum over all lines with this name and these labels.
pub(crate) fn counted(world: &World, name: &str, labels: &[&str]) -> u64 {
    let metrics = world.metrics();
    let lines = metrics.lines().filter(|line| {
        line.split('{').next() == Some(name) && labels.iter().all(|one| line.contains(one))
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
