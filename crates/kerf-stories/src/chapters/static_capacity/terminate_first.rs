//! Static pools in which a node has to go before its replacement can come, with the feature gate `TerminateFirstDrift`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim, NodePool, ObjectExt, annotations,
    conditions::{Conditioned, DRIFT_BLOCKED, READY},
    labels, taints,
};
use kerf_testbed::CloudFault;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{drift, has_nodes, names, never_more_nodes_than, replaced, with_static_pool};
use crate::{
    World, build,
    chapters::{
        all_run, counted, is_counted,
        reserved::{RESERVED, terminate_first::sell_reserved_machines},
    },
};

const WENT_FIRST: &str = "karpenter_voluntary_disruption_terminate_first_decisions_total";

/// Every node is replaced though the limit has room for none beside it, one after the other.
pub async fn a_pool_at_its_limit_drifts_through(world: World) {
    let pool = at_its_limit(&world, 3).await;
    drift(&world, &pool, 2).await;
    replaced(&world, &pool, 3, 2).await;
    world.until("all pods run", async |world: &World| all_run(world, 3).await).await;
    let of_pool = format!("nodepool=\"{}\"", pool.name_any());
    let labels = [&of_pool, "reason=\"drifted\"", "terminate_first_reason=\"static-at-limit\""];
    is_counted(&world, WENT_FIRST, &labels).await;
    assert_eq!(counted(&world, WENT_FIRST, &labels), 3);
    let decided = "karpenter_voluntary_disruption_decisions_by_nodepool_total";
    assert_eq!(counted(&world, decided, &[&of_pool, "decision=\"terminate-first\""]), 3);
    let pool = world.get(&pool).await.unwrap_or_else(|| panic!("the pool is gone"));
    assert!(pool.condition(DRIFT_BLOCKED).is_none(), "it is not blocked");
    never_more_nodes_than(&world, 3);
}

/// With machines that take 30 s to end and 40 s to register. The figures are those of docs/static-capacity.md.
pub async fn capacity_is_one_short_for_as_long_as_a_machine_takes(world: World) {
    let slow = json!({"nodeRegistrationDelay": "40s"});
    world.create(build::node_class("slow", &slow)).await;
    world.cloud().at_rate(1.0, CloudFault::TerminationSlow(Duration::from_secs(30)));
    let pool = at_its_limit_with(
        &world,
        5,
        &json!({
            "template": {"spec": {"nodeClassRef": {"name": "slow"}}},
        }),
    )
    .await;
    drift(&world, &pool, 2).await;
    let began = world.now();
    let mut short = Shortage::default();
    while ready_of_version(&world, 2).await < 5 {
        world.pass(Duration::from_secs(1)).await;
        short.look(schedulable_nodes(&world).await, 5, world.now());
        let hours = world.now().duration_since(began).as_hours();
        assert!(hours < 2, "it takes too long: {short:?}");
    }
    short.look(5, 5, world.now());
    let took = world.now().duration_since(began);
    println!(
        "5 nodes drifted through in {} s, capacity was one short {} times, for {} s at the longest",
        took.as_secs(),
        short.times,
        short.longest.as_secs()
    );
    assert_eq!((short.least, short.times), (4, 5), "{short:?}");
    // 30 s to end and 40 s to register, and little beside that.
    assert!((70..=100).contains(&short.longest.as_secs()), "{short:?}");
    assert!(took.as_secs() < 600, "{took:?}");
    never_more_nodes_than(&world, 5);
}

/// Nothing can be launched when the first has gone: the others stay until it can be.
pub async fn a_pool_that_is_not_refilled_gives_up_no_other_node(world: World) {
    let pool = at_its_limit(&world, 3).await;
    let old = names(&has_nodes(&world, &pool, 3).await);
    world.cloud().at_rate(1.0, CloudFault::InsufficientCapacity);
    drift(&world, &pool, 2).await;
    world
        .until("one has gone", async |world: &World| {
            let left = left_of(world, &old).await;
            if left == 2 { Ok(()) } else { Err(format!("{left} are left")) }
        })
        .await;
    for _ in 0..120 {
        world.pass(Duration::from_mins(1)).await;
        assert_eq!(left_of(&world, &old).await, 2, "of {old:?}");
    }
    assert_eq!(counted(&world, WENT_FIRST, &["reason=\"drifted\""]), 1);
    world.cloud().clear();
    replaced(&world, &pool, 3, 2).await;
    assert_eq!(counted(&world, WENT_FIRST, &["reason=\"drifted\""]), 3);
    never_more_nodes_than(&world, 3);
}

/// A budget that never allows an eviction would keep the drain for ever, and the pool one node short.
pub async fn a_drain_without_an_end_is_not_begun(world: World) {
    let without = json!({"template": {"spec": {"terminationGracePeriod": null}}});
    let pool = at_its_limit_with(&world, 2, &without).await;
    let before = has_nodes(&world, &pool, 2).await;
    drift(&world, &pool, 2).await;
    let node = before[0].1.name_any();
    world
        .until("its node says what is missing", async |world: &World| {
            let events = world.list::<k8s_openapi::api::core::v1::Event>().await;
            let said = events.iter().filter(|it| it.involved_object.name.as_ref() == Some(&node));
            let said: Vec<_> = said.filter_map(|it| it.message.clone()).collect();
            let words = "nothing bounds its drain: set spec.template.spec.terminationGracePeriod";
            if said.iter().any(|it| it.contains(words)) { Ok(()) } else { Err(format!("{said:?}")) }
        })
        .await;
    world.pass_if_free(Duration::from_mins(30)).await;
    assert_eq!(names(&has_nodes(&world, &pool, 2).await), names(&before));
    // The claims were made without one, and get that of their pool.
    let bound = json!({"spec": {"template": {"spec": {"terminationGracePeriod": "3m"}}}});
    world.patch(&pool, bound).await;
    world
        .until("one goes, and its drain has an end", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            let going = claims.iter().find(|claim| claim.is_deleting());
            let going = going.ok_or_else(|| "none goes".to_owned())?;
            let deadline = going.annotations().get(annotations::TERMINATION_TIMESTAMP);
            deadline.map(drop).ok_or_else(|| "it has no deadline".to_owned())
        })
        .await;
    replaced(&world, &pool, 2, 2).await;
}

/// The pods of a node that goes first are evicted as their budget allows, and deleted when the time is over.
pub async fn a_drain_that_would_never_end_is_ended(world: World) {
    let pool = at_its_limit(&world, 2).await;
    world.create(build::budget("never", &json!({"maxUnavailable": 0}))).await;
    drift(&world, &pool, 2).await;
    replaced(&world, &pool, 2, 2).await;
    world.until("all pods run", async |world: &World| all_run(world, 2).await).await;
    never_more_nodes_than(&world, 2);
}

/// A pool of which every slot is reserved and taken: only what it gives back can be launched.
pub async fn a_pool_whose_reservations_are_full_drifts_through(mut world: World) {
    sell_reserved_machines(&mut world, 2).await;
    let pool = with_reserved_pool(&world, &json!({})).await;
    has_nodes(&world, &pool, 2).await;
    drift(&world, &pool, 2).await;
    replaced(&world, &pool, 2, 2).await;
    let labels = ["reason=\"drifted\"", "terminate_first_reason=\"no-reserved-capacity\""];
    assert_eq!(counted(&world, WENT_FIRST, &labels), 2);
    never_more_nodes_than(&world, 2);
    if let Some(log) = world.event_log_if_any() {
        let claims = log.entries().iter().filter(|it| &*it.resource == "nodeclaims.karpenter.sh");
        let created = claims.filter(|it| it.what == kerf_testbed::Write::Created).count();
        assert_eq!(created, 4, "no launch was tried before there was a slot\n{log}");
    }
}

/// Where a slot is free the replacement comes first, whatever the gate.
pub async fn a_free_slot_is_used_before_a_node_goes(mut world: World) {
    sell_reserved_machines(&mut world, 3).await;
    let pool = with_reserved_pool(&world, &json!({})).await;
    has_nodes(&world, &pool, 2).await;
    drift(&world, &pool, 2).await;
    replaced(&world, &pool, 2, 2).await;
    assert_eq!(counted(&world, WENT_FIRST, &["reason=\"drifted\""]), 0);
    super::never_fewer_nodes_than(&world, 2);
}

/// The nodes of a pool at its limit drift, for operators that die and APIs that fail.
pub async fn from_drifted_to_drifted_through(world: &World) {
    let pool = at_its_limit(world, 2).await;
    drift(world, &pool, 2).await;
    replaced(world, &pool, 2, 2).await;
    world.until("all pods run", async |world: &World| all_run(world, 2).await).await;
    world.until("nothing is marked", crate::chapters::disruption::nothing_is_marked).await;
    never_more_nodes_than(world, 2);
}

async fn at_its_limit(world: &World, replicas: u32) -> NodePool {
    at_its_limit_with(world, replicas, &json!({})).await
}

/// A pool whose limit is its replicas, with a pod on each node.
async fn at_its_limit_with(world: &World, replicas: u32, changes: &Value) -> NodePool {
    let mut spec = json!({
        "limits": {"nodes": replicas.to_string()},
        "disruption": {"budgets": [{"nodes": "100%"}]},
        "template": {"spec": {"terminationGracePeriod": "5m"}},
    });
    build::merge(&mut spec, changes);
    let pool = with_static_pool(world, i64::from(replicas), &spec).await;
    has_nodes(world, &pool, i32::try_from(replicas).unwrap_or_default()).await;
    let port = json!({"containers": [{
        "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
    }]});
    world.create(build::deployment("a", replicas, &port)).await;
    let pods = replicas as usize;
    world.until("the pods run", async |world: &World| all_run(world, pods).await).await;
    pool
}

async fn with_reserved_pool(world: &World, changes: &Value) -> NodePool {
    let mut spec = json!({
        "disruption": {"budgets": [{"nodes": "100%"}]},
        "template": {"spec": {"requirements": [
            {"key": labels::CAPACITY_TYPE, "operator": "In", "values": [RESERVED]},
        ]}},
    });
    build::merge(&mut spec, changes);
    with_static_pool(world, 2, &spec).await
}

async fn left_of(world: &World, old: &[String]) -> usize {
    let claims = world.list::<NodeClaim>().await;
    claims.iter().filter(|claim| old.contains(&claim.name_any())).count()
}

/// Nodes that are ready and take pods.
async fn schedulable_nodes(world: &World) -> usize {
    let claims = world.list::<NodeClaim>().await;
    let ready = |name: &str| {
        let mut of_node = claims.iter().filter(|claim| claim.node_name() == name);
        of_node.any(|claim| claim.is_true(READY) && !claim.is_deleting())
    };
    let nodes = world.list::<Node>().await;
    let takes_pods = |node: &&Node| {
        let on_node = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        let mut on_node = on_node.unwrap_or_default().iter();
        !on_node.any(|taint| taint.key == taints::DISRUPTED) && ready(&node.name_any())
    };
    nodes.iter().filter(takes_pods).count()
}

async fn ready_of_version(world: &World, version: u32) -> usize {
    let version = version.to_string();
    let nodes = world.list::<Node>().await;
    let current = nodes.iter().filter(|node| node.labels().get("version") == Some(&version));
    if current.count() < 5 { 0 } else { schedulable_nodes(world).await }
}

/// For how long at a time there were fewer nodes than there should be.
#[derive(Debug, Default)]
struct Shortage {
    since: Option<Timestamp>,
    longest: jiff::SignedDuration,
    times: usize,
    least: usize,
}

impl Shortage {
    fn look(&mut self, nodes: usize, wanted: usize, now: Timestamp) {
        self.least = if self.times == 0 { nodes } else { self.least.min(nodes) };
        if nodes < wanted {
            if self.since.is_none() {
                (self.since, self.times) = (Some(now), self.times + 1);
            }
            return;
        }
        if let Some(since) = self.since.take() {
            self.longest = self.longest.max(now.duration_since(since));
        }
    }
}
