//! Pools that keep a fixed number of nodes.

pub mod failing;
pub mod over_time;
pub mod sixty_days;
pub mod storm;
pub mod terminate_first;

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kerf_api::{
    NodeClaim, NodePool, ObjectExt,
    conditions::{CONSOLIDATABLE, Conditioned, DRIFT_BLOCKED, LAUNCHED, READY, REPLICAS_SATISFIED},
    labels,
};
use kerf_testbed::{EventLog, Write};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::all_run;
use crate::{World, build};

pub async fn a_pool_grows_and_shrinks_to_its_replicas(world: World) {
    let pool = with_static_pool(&world, 0, &json!({})).await;
    has_nodes(&world, &pool, 0).await;
    for replicas in [3, 5, 2, 0] {
        world.patch(&pool, json!({"spec": {"replicas": replicas}})).await;
        has_nodes(&world, &pool, replicas).await;
    }
}

pub async fn kubectl_scales_a_pool(world: World) {
    let pool = with_static_pool(&world, 1, &json!({})).await;
    has_nodes(&world, &pool, 1).await;
    for replicas in [4, 2] {
        world.scale(&pool, replicas).await;
        has_nodes(&world, &pool, replicas).await;
        let scale = world.scale_of(&pool).await;
        let status = scale.status.map(|status| status.replicas);
        assert_eq!(
            (scale.spec.and_then(|spec| spec.replicas), status),
            (Some(replicas), Some(replicas))
        );
    }
}

pub async fn a_pool_has_no_more_nodes_than_its_limit(world: World) {
    let pool = with_static_pool(&world, 4, &json!({"limits": {"nodes": "2"}})).await;
    has_nodes(&world, &pool, 2).await;
    says(&world, &pool, "NodeLimitReached").await;
    // At the limit, and above it.
    for limit in ["4", "9"] {
        world.patch(&pool, json!({"spec": {"limits": {"nodes": limit}}})).await;
        has_nodes(&world, &pool, 4).await;
        says(&world, &pool, REPLICAS_SATISFIED).await;
    }
    // What is there already is not taken away by a limit.
    world.patch(&pool, json!({"spec": {"limits": {"nodes": "3"}}})).await;
    says(&world, &pool, "NodeLimitReached").await;
    has_nodes(&world, &pool, 4).await;
    never_more_nodes_than(&world, 4);
}

/// One of four nodes goes, and three are more than the limit allows: there is nothing to do, and nothing to try again.
pub async fn a_limit_below_what_is_there_is_no_error(world: World) {
    let pool = with_static_pool(&world, 4, &json!({})).await;
    let nodes = has_nodes(&world, &pool, 4).await;
    world.patch(&pool, json!({"spec": {"limits": {"nodes": "2"}}})).await;
    says(&world, &pool, "NodeLimitReached").await;
    world.delete(&nodes[0].0).await;
    has_nodes(&world, &pool, 3).await;
    world.pass(Duration::from_mins(30)).await;
    let metrics = world.metrics();
    let errors = "controller_runtime_reconcile_errors_total{controller=\"static.capacity\"} ";
    let errors = metrics.lines().find_map(|line| line.strip_prefix(errors));
    assert_eq!(errors, Some("0"));
    never_more_nodes_than(&world, 4);
    world.patch(&pool, json!({"spec": {"limits": {"nodes": "4"}}})).await;
    has_nodes(&world, &pool, 4).await;
}

pub async fn nodes_deleted_by_hand_come_back(world: World) {
    let pool = with_static_pool(&world, 3, &json!({"limits": {"nodes": "3"}})).await;
    let nodes = has_nodes(&world, &pool, 3).await;
    world.delete(&nodes[0].0).await;
    world.delete(&nodes[1].1).await;
    let old: BTreeSet<_> = nodes[..2].iter().map(|(claim, _)| claim.name_any()).collect();
    world
        .until("others have taken their place", async |world: &World| {
            let ready = ready_nodes(world, &pool).await?;
            match ready.iter().find(|(claim, _)| old.contains(&claim.name_any())) {
                Some((claim, _)) => Err(format!("{} is still there", claim.name_any())),
                None if ready.len() == 3 => Ok(()),
                None => Err(format!("{} nodes", ready.len())),
            }
        })
        .await;
    never_more_nodes_than(&world, 3);
}

pub async fn a_pool_that_is_not_ready_shrinks_and_does_not_grow(world: World) {
    let pool = with_static_pool(&world, 2, &json!({})).await;
    has_nodes(&world, &pool, 2).await;
    let with_class = |replicas: i32, class: &str| {
        let template = json!({"spec": {"nodeClassRef": {"name": class}}});
        json!({"spec": {"replicas": replicas, "template": template}})
    };
    world.patch(&pool, with_class(1, "missing")).await;
    let left = has_nodes(&world, &pool, 1).await;
    world.until("it is not ready", super::condition(&pool, READY, "False")).await;
    world.patch(&pool, json!({"spec": {"replicas": 3}})).await;
    says(&world, &pool, "ScalingUp").await;
    world.pass_if_free(Duration::from_mins(5)).await;
    assert_eq!(names(&has_nodes(&world, &pool, 1).await), names(&left));
    // Not even for a moment: without a class no launch succeeds, and the claims would be given up again.
    never_more_nodes_than(&world, 2);
    world.patch(&pool, with_class(3, &pool.spec.template.spec.node_class_ref.name)).await;
    has_nodes(&world, &pool, 3).await;
}

pub async fn a_deleted_pool_takes_its_nodes_along(world: World) {
    let pool = with_static_pool(&world, 2, &json!({})).await;
    has_nodes(&world, &pool, 2).await;
    world.delete(&pool).await;
    world.until("everything is gone", super::no_node).await;
}

pub async fn a_disruption_budget_holds_up_a_scale_down(world: World) {
    let pool = with_static_pool(&world, 2, &json!({"limits": {"nodes": "2"}})).await;
    has_nodes(&world, &pool, 2).await;
    let budget = world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    // One pod on each node: the ports clash.
    let port = json!({"containers": [{
        "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
    }]});
    world.create(build::deployment("a", 2, &port)).await;
    world.until("the pods run", async |world: &World| all_run(world, 2).await).await;
    world.scale(&pool, 1).await;
    let leaving = async |world: &World| {
        let claims = world.list::<NodeClaim>().await;
        let leaving = claims.iter().filter(|claim| claim.is_deleting());
        Ok::<_, String>((leaving.count(), claims.len()))
    };
    world
        .until("the drain says what holds it", async |world: &World| {
            let events = world.list::<Event>().await;
            let told = events.iter().any(|it| it.reason.as_deref() == Some("FailedDraining"));
            match leaving(world).await? {
                (1, 2) if told => Ok(()),
                counts => Err(format!("{counts:?}, told: {told}")),
            }
        })
        .await;
    // The node that cannot go is a node: its place under the limit is not free.
    world.scale(&pool, 2).await;
    world
        .until("the pool says that one is missing", async |world: &World| {
            let pool = world.get(&pool).await.ok_or("the pool is gone")?;
            match reason(&pool).as_deref() {
                Some("ScalingUp") => Ok(()),
                reason => Err(format!("{reason:?}")),
            }
        })
        .await;
    world.delete(&budget).await;
    has_nodes(&world, &pool, 2).await;
    never_more_nodes_than(&world, 2);
}

pub async fn pods_go_to_static_nodes_first(world: World) {
    let pool = with_static_pool(&world, 2, &json!({})).await;
    world.create(build::pool("dynamic", &json!({}))).await;
    let nodes = has_nodes(&world, &pool, 2).await;
    let small = json!({"containers": [
        {"name": "main", "image": "main", "resources": {"requests": {"cpu": "100m"}}},
    ]});
    world.create(build::deployment("a", 6, &small)).await;
    let pods = world.until("all pods run", async |world: &World| all_run(world, 6).await).await;
    run_on(&pods, &nodes);
    // What does not fit there gets a node of its own.
    world
        .create(build::pod(
            "large",
            &json!({"containers": [
                {"name": "main", "image": "main", "resources": {"requests": {"cpu": "8"}}},
            ]}),
        ))
        .await;
    world.until("the large pod runs", async |world: &World| all_run(world, 7).await).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 3);
}

pub async fn pods_wait_for_static_nodes_that_are_on_their_way(world: World) {
    world.create(build::node_class("slow", &json!({"nodeRegistrationDelay": "10s"}))).await;
    let slow = json!({"template": {"spec": {"nodeClassRef": {"name": "slow"}}}});
    let pool = with_static_pool(&world, 2, &slow).await;
    world
        .until("two nodes are on their way", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            let launched = claims.iter().filter(|claim| claim.is_true(LAUNCHED)).count();
            if launched == 2 { Ok(()) } else { Err(format!("{launched} are launched")) }
        })
        .await;
    world.create(build::pool("dynamic", &json!({}))).await;
    let small = json!({"containers": [
        {"name": "main", "image": "main", "resources": {"requests": {"cpu": "100m"}}},
    ]});
    world.create(build::deployment("a", 4, &small)).await;
    let pods = world.until("all pods run", async |world: &World| all_run(world, 4).await).await;
    let nodes = has_nodes(&world, &pool, 2).await;
    run_on(&pods, &nodes);
    assert_eq!(world.list::<NodeClaim>().await.len(), 2);
}

pub async fn a_drifted_pool_without_headroom_says_so(world: World) {
    let pool = with_static_pool(&world, 2, &json!({"limits": {"nodes": "2"}})).await;
    let before = has_nodes(&world, &pool, 2).await;
    drift(&world, &pool, 2).await;
    let message = world
        .until("the pool says that it is stuck", async |world: &World| {
            let pool = world.get(&pool).await.ok_or("the pool is gone")?;
            let condition = pool.condition(DRIFT_BLOCKED).ok_or("no condition")?;
            let events = world.list::<Event>().await;
            let told = events.iter().any(|it| it.reason.as_deref() == Some("DriftBlocked"));
            match &condition.message {
                message if told && message.starts_with("2 drifted nodes") => Ok(message.clone()),
                message => Err(format!("told: {told}, {message}")),
            }
        })
        .await;
    assert!(message.ends_with("set limits.nodes to 3 or more"), "{message}");
    assert_eq!(names(&has_nodes(&world, &pool, 2).await), names(&before));
}

/// One batch of pods upstream made a pool of at most 608 nodes 627 (kubernetes-sigs/karpenter#2915).
pub async fn a_dynamic_pool_has_no_more_nodes_than_its_limit(world: World) {
    super::with_pool(&world, &json!({"limits": {"nodes": "6"}})).await;
    let port = json!({"containers": [{
        "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
    }]});
    // Each pod wants a node of its own. The second batch comes while nodes of the first are on their way.
    world.create(build::deployment("a", 4, &port)).await;
    world
        .until("some nodes are on their way", async |world: &World| {
            let claims = world.list::<NodeClaim>().await.len();
            if claims > 0 { Ok(()) } else { Err("no claim".into()) }
        })
        .await;
    world.create(build::deployment("b", 10, &port)).await;
    let all_used = async |world: &World| {
        let claims = world.list::<NodeClaim>().await;
        let ready = claims.iter().filter(|claim| claim.is_true(READY)).count();
        if (ready, claims.len()) == (6, 6) { Ok(claims) } else { Err(format!("{ready} are ready")) }
    };
    let claims = world.until("the pool is at its limit", all_used).await;
    // Its pod wants a new node at once, and the limit has room only when the old one is gone.
    world.delete(&claims[0]).await;
    world
        .until("another has taken its place", async |world: &World| {
            let now = all_used(world).await?;
            let old = now.iter().any(|claim| claim.name_any() == claims[0].name_any());
            if old { Err("it is still there".into()) } else { Ok(()) }
        })
        .await;
    never_more_nodes_than(&world, 6);
}

pub async fn drifted_nodes_are_replaced_before_they_go(world: World) {
    let changes = json!({
        "limits": {"nodes": "4"}, "disruption": {"budgets": [{"nodes": "100%"}]},
    });
    let pool = with_static_pool(&world, 3, &changes).await;
    has_nodes(&world, &pool, 3).await;
    drift(&world, &pool, 2).await;
    replaced(&world, &pool, 3, 2).await;
    // One more than its replicas is all that the limit allows.
    never_more_nodes_than(&world, 4);
    never_fewer_nodes_than(&world, 3);
}

pub async fn drift_waits_for_its_budget(world: World) {
    let changes = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}});
    let pool = with_static_pool(&world, 2, &changes).await;
    let before = has_nodes(&world, &pool, 2).await;
    drift(&world, &pool, 2).await;
    world
        .until("a budget is said to be in the way", async |world: &World| {
            let events = world.list::<Event>().await;
            let told = events.iter().any(|event| {
                event.reason.as_deref() == Some("DisruptionBlocked")
                    && event.message.as_deref().is_some_and(|it| it.contains("reason Drifted"))
            });
            if told { Ok(()) } else { Err("no event".into()) }
        })
        .await;
    let drifted = has_nodes(&world, &pool, 2).await;
    assert_eq!(names(&drifted), names(&before));
    // Both would be written at once.
    let quiet = drifted.iter().filter(|(claim, _)| claim.condition(CONSOLIDATABLE).is_some());
    assert_eq!(quiet.count(), 0, "what a static pool has is not there to be consolidated");
    world.patch(&pool, json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}})).await;
    replaced(&world, &pool, 2, 2).await;
}

pub async fn with_the_gate_off_a_pool_is_left_alone(world: World) {
    let pool = with_static_pool(&world, 2, &json!({})).await;
    says(&world, &pool, "FeatureGateDisabled").await;
    let pod = world.create(build::pod("a", &json!({}))).await;
    world
        .until("the pod gets an event: nothing can be launched", async |world: &World| {
            super::told(world, "FailedScheduling", &pod).await
        })
        .await;
    assert!(world.list::<NodeClaim>().await.is_empty());
}

pub async fn metrics_tell_what_is_wanted_and_what_is_there(world: World) {
    let pool = with_static_pool(&world, 3, &json!({"limits": {"nodes": "2"}})).await;
    has_nodes(&world, &pool, 2).await;
    let name = pool.name_any();
    let line = |metric: &str, value: u32| {
        format!("karpenter_nodepools_{metric}{{nodepool=\"{name}\"}} {value}")
    };
    let has = |text: &str, line: String| text.lines().any(|one| one == line);
    world
        .until("the metrics say so", async |world: &World| {
            let text = world.metrics();
            let told = has(&text, line("replicas", 3)) && has(&text, line("replicas_actual", 2));
            if told { Ok(()) } else { Err(text) }
        })
        .await;
    world.delete(&pool).await;
    world
        .until("the pool is forgotten", async |world: &World| {
            let text = world.metrics();
            if text.contains(&format!("replicas{{nodepool=\"{name}\"")) {
                Err(text)
            } else {
                Ok(())
            }
        })
        .await;
}

/// A static pool of the smallest machines.
async fn with_static_pool(world: &World, replicas: i64, changes: &Value) -> NodePool {
    world.create(build::node_class("default", &json!({}))).await;
    let pool = build::pool("static", &json!({"replicas": replicas}));
    let mut spec = serde_json::to_value(&pool.spec).unwrap_or_default();
    build::merge(&mut spec, changes);
    world.create(build::pool("static", &spec)).await
}

/// Waits until the pool has exactly so many nodes, all ready and nothing on its way out, and says so; in the order of names.
async fn has_nodes(world: &World, pool: &NodePool, count: i32) -> Vec<(NodeClaim, Node)> {
    world
        .until(&format!("the pool has {count} nodes"), async |world: &World| {
            let ready = ready_nodes(world, pool).await?;
            let nodes = world.get(pool).await.and_then(|pool| Some(pool.status?.nodes));
            if ready.len() == usize::try_from(count).unwrap_or_default()
                && nodes == Some(count.into())
            {
                Ok(ready)
            } else {
                Err(format!("{} are ready, and status.nodes is {nodes:?}", ready.len()))
            }
        })
        .await
}

/// The nodes of the pool, if every claim of it has one and all of them are ready.
async fn ready_nodes(world: &World, pool: &NodePool) -> Result<Vec<(NodeClaim, Node)>, String> {
    let of_pool = |object: &dyn Labelled| object.label(labels::NODE_POOL) == Some(pool.name_any());
    let mut claims = world.list::<NodeClaim>().await;
    claims.retain(|claim| of_pool(claim));
    claims.sort_by_key(ResourceExt::name_any);
    let mut nodes = world.list::<Node>().await;
    nodes.retain(|node| of_pool(node));
    if nodes.len() != claims.len() {
        return Err(format!("{} claims and {} nodes", claims.len(), nodes.len()));
    }
    let mut ready = Vec::new();
    for claim in claims {
        let name = claim.node_name();
        let node = nodes.iter().find(|node| node.name_any() == name);
        match node {
            Some(node) if claim.is_true(READY) && !claim.is_deleting() => {
                ready.push((claim, node.clone()));
            }
            _ => return Err(format!("{} is not ready", claim.name_any())),
        }
    }
    Ok(ready)
}

fn names(nodes: &[(NodeClaim, Node)]) -> Vec<String> {
    nodes.iter().map(|(claim, _)| claim.name_any()).collect()
}

/// Changes the pool's template, so that nodes of any other version are out of date.
async fn drift(world: &World, pool: &NodePool, version: u32) {
    let labels = json!({"version": version.to_string()});
    world.patch(pool, json!({"spec": {"template": {"metadata": {"labels": labels}}}})).await;
}

/// Waits until the pool has so many ready nodes, all of this version.
async fn replaced(world: &World, pool: &NodePool, count: usize, version: u32) {
    world
        .until(&format!("all nodes are of version {version}"), async |world: &World| {
            let ready = ready_nodes(world, pool).await?;
            let current = ready.iter().filter(|(_, node)| {
                node.labels().get("version").is_some_and(|it| *it == version.to_string())
            });
            match (current.count(), ready.len()) {
                counts if counts == (count, count) => Ok(()),
                counts => Err(format!("{counts:?}")),
            }
        })
        .await;
}

trait Labelled {
    fn label(&self, key: &str) -> Option<String>;
}

impl<K: ResourceExt> Labelled for K {
    fn label(&self, key: &str) -> Option<String> {
        self.labels().get(key).cloned()
    }
}

fn reason(pool: &NodePool) -> Option<String> {
    pool.condition(REPLICAS_SATISFIED).map(|condition| condition.reason.clone())
}

/// Waits until the pool says this of its replicas.
async fn says(world: &World, pool: &NodePool, expected: &str) {
    world
        .until(&format!("the pool says {expected}"), async |world: &World| {
            let pool = world.get(pool).await.ok_or("the pool is gone")?;
            if reason(&pool).as_deref() == Some(expected) {
                Ok(())
            } else {
                Err(format!("{:?}", pool.condition(REPLICAS_SATISFIED)))
            }
        })
        .await;
}

fn run_on(pods: &[Pod], nodes: &[(NodeClaim, Node)]) {
    let names: BTreeSet<_> = nodes.iter().map(|(_, node)| node.name_any()).collect();
    for pod in pods {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        assert!(node.as_ref().is_some_and(|node| names.contains(node)), "{node:?} of {names:?}");
    }
}

/// Looks at every single write: at no instant were there more claims than `limit`. Only the testbed knows every write.
fn never_more_nodes_than(world: &World, limit: usize) {
    if let Some(log) = world.event_log_if_any() {
        let peak = most_claims_at_once(&log);
        assert!(peak <= limit, "{peak} claims at once, and the limit is {limit}:\n{log}");
    }
}

/// From the time that there were so many, there were never fewer.
fn never_fewer_nodes_than(world: &World, least: usize) {
    let Some(log) = world.event_log_if_any() else { return };
    let counts: Vec<_> = claims_over_time(&log).collect();
    let since = counts.iter().position(|count| *count >= least).unwrap_or(counts.len());
    assert!(counts[since..].iter().all(|count| *count >= least), "{counts:?}");
}

/// The most NodeClaims that there were at any instant.
pub fn most_claims_at_once(log: &EventLog) -> usize {
    claims_over_time(log).max().unwrap_or(0)
}

/// How many NodeClaims there were after each write that changed their number.
fn claims_over_time(log: &EventLog) -> impl Iterator<Item = usize> {
    let claims = log.entries().iter().filter(|it| &*it.resource == "nodeclaims.karpenter.sh");
    let writes = claims.filter(|entry| entry.what != Write::Changed);
    writes.scan(BTreeSet::new(), |present, entry| {
        match entry.what {
            Write::Created => present.insert(&entry.key),
            _ => present.remove(&entry.key),
        };
        Some(present.len())
    })
}
