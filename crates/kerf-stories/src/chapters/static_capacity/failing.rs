//! Static pools whose cloud fails, or whose nodes do.

use k8s_openapi::api::core::v1::Event;
use kerf_api::{
    NodeClaim, NodePool,
    conditions::{Conditioned, LAUNCHED},
    labels,
};
use kerf_testbed::{CloudFault, Fault, Matching, Verb};
use kube::ResourceExt;
use serde_json::json;

use super::{
    drift, has_nodes, names, never_more_nodes_than, ready_nodes, replaced, says, with_static_pool,
};
use crate::{
    World,
    chapters::{counted, told},
};

pub async fn a_pool_whose_launches_fail_goes_on_when_they_can_succeed(world: World) {
    let requirements = |instance_type: &str| {
        json!({"template": {"spec": {"requirements": [
            {"key": labels::INSTANCE_TYPE, "operator": "In", "values": [instance_type]},
        ]}}})
    };
    let pool = with_static_pool(&world, 2, &requirements("no-such-type")).await;
    world
        .until("launches fail", async |world: &World| {
            let events = world.list::<Event>().await;
            let failed = events
                .iter()
                .filter(|event| event.reason.as_deref() == Some("InsufficientCapacityError"));
            // Twice at first, for each of the two, and then again after a while.
            let failed = failed.count();
            if failed > 2 { Ok(()) } else { Err(format!("{failed} have failed")) }
        })
        .await;
    world.patch(&pool, json!({"spec": requirements("c-1x-amd64-linux")})).await;
    has_nodes(&world, &pool, 2).await;
}

/// A quota, say. The claims wait and are launched when they can be; none is created beside them.
pub async fn launches_that_are_refused_are_tried_again(world: World) {
    world.cloud().at_rate(1.0, CloudFault::LaunchRefused);
    let pool = with_static_pool(&world, 3, &json!({"limits": {"nodes": "3"}})).await;
    let refused = world
        .until("the claims say why they are not launched", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            let refused = claims.iter().filter(|claim| {
                claim.condition(LAUNCHED).is_some_and(|it| it.reason == "LaunchRefused")
            });
            let refused: Vec<_> = refused.map(ResourceExt::name_any).collect();
            if refused.len() == 3 { Ok(refused) } else { Err(format!("{refused:?} are refused")) }
        })
        .await;
    says(&world, &pool, "ScalingUp").await;
    world.cloud().clear();
    let nodes = names(&has_nodes(&world, &pool, 3).await);
    assert!(nodes.iter().all(|claim| refused.contains(claim)), "{nodes:?} of {refused:?}");
    never_more_nodes_than(&world, 3);
}

/// What was reserved for a claim that did not come is free again, and a node that could not be deleted still counts.
pub async fn claims_that_cannot_be_created_or_deleted_are_tried_again(world: World) {
    let claims = |verb| Matching::any().verb(verb).resource("nodeclaims");
    world.faults().on_next(4, claims(Verb::Create), Fault::InternalError);
    let pool = with_static_pool(&world, 3, &json!({"limits": {"nodes": "3"}})).await;
    has_nodes(&world, &pool, 3).await;
    world.faults().on_next(4, claims(Verb::Delete), Fault::InternalError);
    world.scale(&pool, 1).await;
    has_nodes(&world, &pool, 1).await;
    never_more_nodes_than(&world, 3);
}

/// The instance runs, and nobody ever hears of it again: given up after 15 minutes, and its place is taken.
pub async fn a_node_that_never_comes_is_replaced(world: World) {
    world.cloud().on_next(1, CloudFault::NeverRegisters);
    let pool = with_static_pool(&world, 2, &json!({"limits": {"nodes": "2"}})).await;
    has_nodes(&world, &pool, 2).await;
    assert!(world.cloud().nodeless().is_empty(), "the first instance is terminated");
    never_more_nodes_than(&world, 2);
}

/// With node repair. The replacement comes first, so that it needs room under the limit.
pub async fn a_node_that_dies_is_replaced_where_the_limit_leaves_room(world: World) {
    let pool = with_static_pool(&world, 3, &json!({"limits": {"nodes": "3"}})).await;
    let (claim, node) = has_nodes(&world, &pool, 3).await.swap_remove(1);
    world.kill_node(&node.name_any());
    let why = world
        .until("repair says why not", async |w: &World| told(w, "DisruptionBlocked", &node).await)
        .await;
    assert_eq!(
        why,
        "static NodePool is at its node limit and cannot stage a replacement (nodes=3, including those that are being launched or \
         deleted, limits.nodes=3)"
    );
    world.patch(&pool, json!({"spec": {"limits": {"nodes": "4"}}})).await;
    has_been_replaced(&world, &pool, &claim).await;
    never_more_nodes_than(&world, 4);
}

/// With the gate `TerminateFirstRepair`, where the limit leaves none.
pub async fn a_node_that_dies_at_the_limit_goes_first(world: World) {
    let pool = with_static_pool(&world, 3, &json!({"limits": {"nodes": "3"}})).await;
    let (claim, node) = has_nodes(&world, &pool, 3).await.swap_remove(1);
    world.kill_node(&node.name_any());
    has_been_replaced(&world, &pool, &claim).await;
    never_more_nodes_than(&world, 3);
    let went_first = "karpenter_voluntary_disruption_terminate_first_decisions_total";
    let labels = ["reason=\"unhealthy\"", "terminate_first_reason=\"static-at-limit\""];
    assert_eq!(counted(&world, went_first, &labels), 1);
}

/// With node repair, as it was before.
pub async fn a_node_that_dies_is_replaced(world: World) {
    let pool = with_static_pool(&world, 3, &json!({"limits": {"nodes": "3"}})).await;
    let (claim, node) = has_nodes(&world, &pool, 3).await.swap_remove(1);
    world.kill_node(&node.name_any());
    has_been_replaced(&world, &pool, &claim).await;
    never_more_nodes_than(&world, 3);
}

/// Two commands are left behind when the operator ends. Marking the node of the second fails at first, and the first goes on.
pub async fn a_command_that_cannot_be_taken_up_again_keeps_no_other_waiting(mut world: World) {
    let every = json!({"disruption": {"budgets": [{"nodes": "100%"}]}});
    let pool = with_static_pool(&world, 2, &every).await;
    let old = has_nodes(&world, &pool, 2).await;
    let deletions = Matching::any().verb(Verb::Delete).resource("nodeclaims");
    world.faults().from_call(1, deletions, Fault::InternalError);
    drift(&world, &pool, 2).await;
    world
        .until("all replacements are ready", async |world: &World| {
            let ready = ready_nodes(world, &pool).await?.len();
            if ready == 4 { Ok(()) } else { Err(format!("{ready} are ready")) }
        })
        .await;
    world.kill_operator();
    world.faults().clear();
    // Commands are taken up in the order of the claims that go.
    let (_, second) = &old[1];
    world.patch(second, json!({"spec": {"taints": []}})).await;
    let marks = Matching::writes().resource("nodes").name(second.name_any());
    // As often as one marking is tried.
    world.faults().on_next(4, marks, Fault::InternalError);
    world.start_operator().await;
    replaced(&world, &pool, 2, 2).await;
}

/// The pool has three nodes again, and this is none of them.
async fn has_been_replaced(world: &World, pool: &NodePool, claim: &NodeClaim) {
    world
        .until("another has taken its place", async |world: &World| {
            let names = names(&ready_nodes(world, pool).await?);
            match names.len() {
                3 if !names.contains(&claim.name_any()) => Ok(()),
                _ => Err(format!("{names:?}")),
            }
        })
        .await;
}
