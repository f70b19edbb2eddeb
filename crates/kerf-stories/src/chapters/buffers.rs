//! Room that is kept for pods to come.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Node, PodTemplate},
};
use kerf_api::{
    CapacityBuffer, NodeClaim,
    capacity_buffer::{LIMITED_BY_QUOTAS, PROVISIONING, READY_FOR_PROVISIONING},
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{all_run, no_node, on_eight_cpus, told, with_pool};
use crate::{World, build, pods};

pub async fn a_scale_up_into_a_buffer_needs_no_new_node_and_the_room_is_refilled(world: World) {
    with_pool(&world, &json!({})).await;
    let web = world.create::<Deployment>(build::deployment("web", 3, &on_eight_cpus())).await;
    let reference = json!({"kind": "Deployment", "name": "web"});
    let buffer = of(&world, &json!({"scalableRef": reference, "replicas": 4})).await;
    world.until("the pods run", async |world: &World| all_run(world, 3).await).await;
    let said = world.until("there is room", condition(&buffer, PROVISIONING, "True")).await;
    assert_eq!(said, "FitsExistingCapacity: All 4 virtual pods fit on existing capacity");
    let before = world.list::<Node>().await;
    assert_eq!(before.len(), 1, "seven pods of one core fit on eight");
    let metrics = world.metrics();
    let labels =
        ["name=\"headroom\"", "namespace=\"default\"", "type=\"Provisioning\"", "status=\"True\""];
    let says = |line: &&str| {
        line.starts_with("operator_capacitybuffer_status_condition_count{")
            && labels.iter().all(|label| line.contains(label))
    };
    let shown = metrics.lines().find(says).and_then(|line| line.rsplit(' ').next());
    assert_eq!(shown, Some("1.0"), "a gauge says how the buffer stands");

    world.patch(&web, json!({"spec": {"replicas": 7}})).await;
    let running = world.until("the pods run", async |world: &World| all_run(world, 7).await).await;
    let first = before[0].name_any();
    assert!(running.iter().all(|pod| pods::node_name(pod) == Some(first.as_str())), "{running:?}");
    world
        .until("the room is refilled", async |world: &World| {
            let nodes = world.list::<Node>().await.len();
            let said = condition(&buffer, PROVISIONING, "True")(world).await?;
            if nodes == 2 { Ok(()) } else { Err(format!("{nodes} nodes, {said}")) }
        })
        .await;
    let status = world.get(&buffer).await.and_then(|buffer| buffer.status);
    assert_eq!(status.and_then(|status| status.replicas), Some(4));
}

pub async fn a_buffer_has_room_before_any_pod_comes_and_gives_it_back(world: World) {
    from_room_to_nothing(&world).await;
    let events = world.list::<Event>().await;
    let about_pods =
        events.iter().filter(|event| event.involved_object.kind.as_deref() == Some("Pod"));
    assert_eq!(about_pods.count(), 0, "there is no pod to tell of");
}

/// A buffer gets a node without pods, and when it goes the node goes.
pub async fn from_room_to_nothing(world: &World) {
    with_pool(world, &disruptable()).await;
    with_template(world, &json!({})).await;
    let buffer =
        of(world, &json!({"podTemplateRef": {"name": "shape"}, "limits": {"cpu": "3"}})).await;
    world.until("there is room", condition(&buffer, PROVISIONING, "True")).await;
    let status = world.get(&buffer).await.and_then(|buffer| buffer.status).unwrap_or_default();
    assert_eq!(status.replicas, Some(3));
    assert_eq!(status.pod_template_ref.map(|it| it.name).as_deref(), Some("shape"));
    assert!(status.pod_template_generation.is_some());
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
    world.delete(&buffer).await;
    world.until("everything is gone", no_node).await;
}

pub async fn what_a_buffer_refers_to_may_come_later(world: World) {
    with_pool(&world, &json!({})).await;
    let buffer = of(&world, &json!({"podTemplateRef": {"name": "shape"}, "replicas": 1})).await;
    let waits = condition(&buffer, READY_FOR_PROVISIONING, "False");
    let said = world.until("it waits for its template", waits).await;
    assert_eq!(said, "PodTemplateNotFound: podtemplates \"shape\" not found");
    let waits = condition(&buffer, PROVISIONING, "False");
    let said = world.until("nothing is launched for it", waits).await;
    assert_eq!(said, "NotReadyForProvisioning: Buffer is not ReadyForProvisioning");
    with_template(&world, &json!({})).await;
    world.until("there is room", condition(&buffer, PROVISIONING, "True")).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
}

pub async fn a_limit_that_keeps_room_from_a_buffer_is_named(world: World) {
    let pool = with_pool(&world, &json!({"limits": {"nodes": "1"}})).await;
    with_template(&world, &on_eight_cpus()).await;
    let buffer = of(&world, &json!({"podTemplateRef": {"name": "shape"}, "replicas": 9})).await;
    let limited = condition(&buffer, LIMITED_BY_QUOTAS, "True");
    let said = world.until("the limit is named", limited).await;
    let expected = "PoolLimitReached: pool default: its limit of nodes is reached";
    assert!(said.starts_with(expected), "{said}");
    let waits = condition(&buffer, PROVISIONING, "False");
    let said = world.until("some room is missing", waits).await;
    assert!(said.ends_with("virtual pods required new capacity, 2 failed"), "{said}");
    let told = world
        .until("the buffer is told", async |world: &World| {
            told(world, "BufferUnschedulable", &buffer).await
        })
        .await;
    assert!(told.starts_with("No room for 2 of 9 virtual pods: pool default: "), "{told}");
    assert_eq!(world.list::<NodeClaim>().await.len(), 1);
    world.patch(&pool, json!({"spec": {"limits": {"nodes": "2"}}})).await;
    world.until("there is room for all", condition(&buffer, PROVISIONING, "True")).await;
    world.until("no limit is named", condition(&buffer, LIMITED_BY_QUOTAS, "False")).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 2);
}

/// Upstream they are stuck: a node with nothing but room is neither empty nor a candidate for consolidation.
pub async fn the_nodes_of_a_buffer_become_fewer_and_smaller_and_stay(world: World) {
    with_pool(&world, &disruptable()).await;
    with_template(&world, &json!({})).await;
    let buffer = of(&world, &json!({"podTemplateRef": {"name": "shape"}, "replicas": 40})).await;
    world.until("there is room", condition(&buffer, PROVISIONING, "True")).await;
    let cores = async |world: &World| {
        let nodes = world.list::<Node>().await;
        let cores = |node: &Node| -> Option<u32> {
            node.status.as_ref()?.capacity.as_ref()?.get("cpu")?.0.parse().ok()
        };
        nodes.iter().filter_map(cores).sum::<u32>()
    };
    assert!(cores(&world).await > 40);
    world.patch(&buffer, json!({"spec": {"replicas": 1}})).await;
    world
        .until("one small node is left", async |world: &World| {
            // A claim outlives its Node by the time that the instance takes to go.
            world.only::<NodeClaim>().await?;
            let (nodes, cores) = (world.list::<Node>().await.len(), cores(world).await);
            if (nodes, cores) == (1, 2) { Ok(()) } else { Err(format!("{nodes} of {cores}")) }
        })
        .await;
    let last = world.only::<NodeClaim>().await;
    // Neither consolidation nor the provisioner finds anything to do.
    world.pass(Duration::from_hours(24)).await;
    let names = [last, world.only::<NodeClaim>().await].map(|claim| claim.map(|it| it.name_any()));
    assert_eq!(names[0], names[1]);
    world.until("there is room", condition(&buffer, PROVISIONING, "True")).await;
}

pub async fn an_expired_node_of_a_buffer_is_replaced(world: World) {
    with_pool(&world, &json!({"template": {"spec": {"expireAfter": "1h"}}})).await;
    with_template(&world, &json!({})).await;
    let buffer = of(&world, &json!({"podTemplateRef": {"name": "shape"}, "replicas": 2})).await;
    world.until("there is room", condition(&buffer, PROVISIONING, "True")).await;
    let first = world.only::<NodeClaim>().await.map(|claim| claim.name_any());
    world.pass(Duration::from_mins(65)).await;
    world
        .until("another node has the room", async |world: &World| {
            let now = world.only::<NodeClaim>().await?.name_any();
            condition(&buffer, PROVISIONING, "True")(world).await?;
            if first.as_ref() == Ok(&now) { Err("still the first".to_owned()) } else { Ok(()) }
        })
        .await;
}

pub async fn with_the_gate_off_a_buffer_is_left_alone(world: World) {
    with_pool(&world, &json!({})).await;
    with_template(&world, &json!({})).await;
    let buffer = of(&world, &json!({"podTemplateRef": {"name": "shape"}, "replicas": 2})).await;
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 0);
    let status = world.get(&buffer).await.and_then(|buffer| buffer.status);
    assert_eq!(status, None);
}

/// A pool that lets go at once what it does not need.
fn disruptable() -> Value {
    json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}})
}

/// The PodTemplate `shape`: pods of one CPU, with `changes` merged into their spec.
async fn with_template(world: &World, changes: &Value) -> PodTemplate {
    let pod = build::pod("shape", changes);
    world
        .create(build::object(json!({
            "apiVersion": "v1", "kind": "PodTemplate",
            "metadata": {"name": "shape", "namespace": "default"},
            "template": {"metadata": {"labels": {"app": "shape"}}, "spec": pod.spec},
        })))
        .await
}

async fn of(world: &World, spec: &Value) -> CapacityBuffer {
    world
        .create(build::object(json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
            "metadata": {"name": "headroom", "namespace": "default"}, "spec": spec,
        })))
        .await
}

/// Waits until a condition has this status; gives its reason and message.
fn condition(
    buffer: &CapacityBuffer,
    kind: &str,
    status: &str,
) -> impl AsyncFnMut(&World) -> Result<String, String> {
    async move |world: &World| {
        let buffer = world.get(buffer).await.ok_or("it is gone")?;
        let condition = buffer.condition(kind).ok_or_else(|| format!("no condition {kind}"))?;
        let text = format!("{}: {}", condition.reason, condition.message);
        if condition.status == status { Ok(text) } else { Err(text) }
    }
}
