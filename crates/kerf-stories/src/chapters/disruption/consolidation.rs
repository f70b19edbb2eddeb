//! Nodes that cost more than they have to.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod, policy::v1::PodDisruptionBudget};
use kerf_api::{NodeClaim, NodePool, ObjectExt, annotations, labels};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{app, disruptable, held_by_its_pod, nothing_is_marked, ready_claims, replaced, told};
use crate::{
    World, build,
    chapters::{all_run, counted, is_counted, one_ready_node, with_pool},
};

const SMALL: &str = "c-1x-amd64-linux";
const BIG: &str = "c-4x-amd64-linux";

pub async fn a_node_whose_pods_fit_elsewhere_is_removed(world: World) {
    from_two_nodes_to_one(&world).await;
    // If the small one went, because the larger was not yet quiet, that is replaced by another small one.
    one_small_node_is_left(&world, 2).await;
    let labels = ["decision=\"delete\"", "reason=\"underutilized\""];
    is_counted(&world, "karpenter_voluntary_disruption_decisions_total", &labels).await;
}

/// A node is left with a pod that fits on another, and goes. Which of the two that is depends on when the operator looks.
pub async fn from_two_nodes_to_one(world: &World) {
    with_pool(world, &disruptable()).await;
    let filler = world.create(app("filler", "1500m")).await;
    // Of two pods that are created at once either may be planned first, and alone.
    world.until("the first node is on its way", World::only::<NodeClaim>).await;
    world.create(app("a", "300m")).await;
    world.until("the first node is ready", one_ready_node).await;
    world.until("the pods run", async |world: &World| all_run(world, 2).await).await;
    world.create(app("b", "300m")).await;
    world.until("the second node is ready", async |w: &World| ready_claims(w, 2).await).await;
    world.until("the pods run", async |world: &World| all_run(world, 3).await).await;
    world.delete(&filler).await;
    world
        .until("one node is left", async |world: &World| {
            one_ready_node(world).await?;
            all_run(world, 2).await
        })
        .await;
    world.until("nothing is marked", nothing_is_marked).await;
}

async fn one_small_node_is_left(world: &World, pods: usize) {
    world
        .until("one small node is left", async |world: &World| {
            let (left, _) = one_ready_node(world).await?;
            all_run(world, pods).await?;
            match &left.labels()[labels::INSTANCE_TYPE] {
                small if small == SMALL => Ok(()),
                other => Err(format!("a {other} is left")),
            }
        })
        .await;
}

pub async fn a_node_that_is_too_large_is_replaced_by_a_smaller_one(world: World) {
    from_large_to_small(&world).await;
    let labels =
        ["decision=\"replace\"", "reason=\"underutilized\"", "consolidation_type=\"single\""];
    is_counted(&world, "karpenter_voluntary_disruption_decisions_total", &labels).await;
    let created = ["reason=\"underutilized\""];
    is_counted(&world, "karpenter_nodeclaims_created_total", &created).await;
}

/// A large node is left with one small pod, and a small node takes its place.
pub async fn from_large_to_small(world: &World) {
    let (_, old) = a_large_node_with_a_small_app(world, &disruptable(), &json!({})).await;
    let new = replaced(world, &old).await;
    assert_eq!(new.labels()[labels::INSTANCE_TYPE], SMALL);
    world.until("nothing is marked", nothing_is_marked).await;
}

pub async fn several_nodes_are_replaced_by_one(world: World) {
    from_several_to_one(&world).await;
    one_small_node_is_left(&world, 3).await;
    let labels = ["decision=\"replace\"", "consolidation_type=\"multi\""];
    is_counted(&world, "karpenter_voluntary_disruption_decisions_total", &labels).await;
}

/// Three nodes are left with a small pod each, and become one. When all are looked at together, another takes their place.
pub async fn from_several_to_one(world: &World) {
    let pool = with_pool(world, &json!({"disruption": {"budgets": [{"nodes": "100%"}]}})).await;
    let mut fillers = Vec::new();
    for (place, name) in ["a", "b", "c"].into_iter().enumerate() {
        fillers.push(world.create(app(&format!("filler-{name}"), "1600m")).await);
        world.create(app(name, "250m")).await;
        world.until("its node is ready", async |w: &World| ready_claims(w, place + 1).await).await;
        let pods = 2 * (place + 1);
        world.until("its pods run", async |world: &World| all_run(world, pods).await).await;
    }
    for filler in &fillers {
        world.delete(filler).await;
    }
    world.until("the small pods are alone", async |w: &World| all_run(w, 3).await).await;
    // The pods it was launched for are expected on the last node for a while.
    world.pass(Duration::from_mins(1)).await;
    world.patch(&pool, json!({"spec": disruptable()})).await;
    world
        .until("one node is left", async |world: &World| {
            one_ready_node(world).await?;
            all_run(world, 3).await
        })
        .await;
    world.until("nothing is marked", nothing_is_marked).await;
}

pub async fn a_pod_that_asks_for_it_keeps_its_node(world: World) {
    let keep = json!({"metadata": {"annotations": {annotations::DO_NOT_DISRUPT: "true"}}});
    let (_, old) = a_large_node_with_a_small_app(&world, &disruptable(), &keep).await;
    held_by_its_pod(&world, &old).await;
    replaced(&world, &old).await;
}

pub async fn a_disruption_budget_keeps_its_node(world: World) {
    let budget = world.create(build::budget("a", &json!({"maxUnavailable": 0}))).await;
    let (_, old) = a_large_node_with_a_small_app(&world, &disruptable(), &json!({})).await;
    told(&world, &old.name_any(), "DisruptionBlocked", "Pdb prevents pod evictions").await;
    world.delete::<PodDisruptionBudget>(&budget).await;
    replaced(&world, &old).await;
}

pub async fn a_spot_node_stays_where_spot_may_not_replace_spot(world: World) {
    let (_, old) = a_large_node_with_a_small_app(&world, &spot(), &json!({})).await;
    let words = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node";
    told(&world, &old.name_any(), "Unconsolidatable", words).await;
}

pub async fn a_spot_node_needs_fifteen_cheaper_types_to_be_replaced(world: World) {
    let (_, old) = a_large_node_with_a_small_app(&world, &spot(), &json!({})).await;
    let words = "SpotToSpotConsolidation requires 15 cheaper instance type options";
    told(&world, &old.name_any(), "Unconsolidatable", words).await;
}

pub async fn a_spot_node_with_fifteen_cheaper_types_is_replaced(world: World) {
    with_pool(&world, &spot()).await;
    // Thirty CPUs take a machine than which just enough are cheaper.
    let filler = world.create(app("filler", "30")).await;
    world.create(app("a", "300m")).await;
    let (old, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pods run", async |world: &World| all_run(world, 2).await).await;
    assert_eq!(old.labels()[labels::INSTANCE_TYPE], "c-32x-amd64-linux");
    world.delete(&filler).await;
    let new = replaced(&world, &old).await;
    assert_eq!(new.labels()[labels::INSTANCE_TYPE], SMALL);
    assert_eq!(new.labels()[labels::CAPACITY_TYPE], labels::CAPACITY_TYPE_SPOT);
}

/// Machines that are bought on the spot market.
fn spot() -> Value {
    let mut pool = disruptable();
    pool["template"] = json!({"spec": {"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
    ]}});
    pool
}

pub async fn a_pool_that_asks_for_a_wide_choice_keeps_it(world: World) {
    let mut pool = disruptable();
    // Every launch has so many types to choose from; not so many are cheaper than the node.
    pool["template"] = json!({"spec": {"requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 10},
    ]}});
    let (_, old) = a_large_node_with_a_small_app(&world, &pool, &json!({})).await;
    told(&world, &old.name_any(), "Unconsolidatable", "Filtering by price: minValues").await;
}

pub async fn a_pool_that_only_removes_empty_nodes_says_so(world: World) {
    let when_empty = json!({"disruption": {
        "consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}],
    }});
    let (_, old) = a_large_node_with_a_small_app(&world, &when_empty, &json!({})).await;
    let words = "has consolidation policy WhenEmpty, but node is not empty";
    told(&world, &old.name_any(), "Unconsolidatable", words).await;
    let labels = ["reason=\"consolidation_disabled\""];
    is_counted(&world, "karpenter_consolidation_blocked_total", &labels).await;
}

pub async fn a_balanced_pool_is_consolidated_where_it_pays(world: World) {
    let balanced = json!({"disruption": {
        "consolidateAfter": "0s", "consolidationPolicy": "Balanced", "budgets": [{"nodes": "100%"}],
    }});
    let (_, old) = a_large_node_with_a_small_app(&world, &balanced, &json!({})).await;
    told(&world, &old.name_any(), "ConsolidationApproved", ">= threshold 0.50 (k: 2, savings")
        .await;
    replaced(&world, &old).await;
    let labels = ["reason=\"underutilized\"", "consolidation_policy=\"balanced\""];
    is_counted(&world, "karpenter_nodeclaims_disrupted_total", &labels).await;
}

pub async fn a_pod_that_comes_before_the_second_look_stops_a_replacement(world: World) {
    let (_, old) = a_large_node_with_a_small_app(&world, &disruptable(), &json!({})).await;
    let words = "Consolidation candidate: replace: [";
    told(&world, &old.name_any(), "ConsolidationCandidate", words).await;
    world.create(app("late", "3")).await;
    let words = "Consolidation rejected: replace: [";
    told(&world, &old.name_any(), "ConsolidationRejected", words).await;
    world.until("the pods run", async |world: &World| all_run(world, 2).await).await;
    let (claim, _) = world.until("there is one node", one_ready_node).await;
    assert_eq!(claim.uid(), old.uid());
}

pub async fn a_replacement_that_turns_out_too_dear_is_undone(world: World) {
    let (_, old) = a_large_node_with_a_small_app(&world, &disruptable(), &json!({})).await;
    told(&world, &old.name_any(), "ConsolidationCandidate", "replace: [").await;
    // Between the decision and the launch everything but the large type becomes dearer than it.
    world.reprice(|name, price| if name == BIG { price } else { price.times(10, 1) });
    let words = "replacement costs $0.2715/h and may cost at most $";
    told(&world, &old.name_any(), "Unconsolidatable", words).await;
    world.until("the replacement is gone", one_ready_node).await;
    world.until("nothing is marked", nothing_is_marked).await;
    let (claim, _) = world.until("there is one node", one_ready_node).await;
    assert_eq!(claim.uid(), old.uid(), "the node went although nothing was saved");
    let pods = world.list::<Pod>().await;
    assert!(pods.iter().all(|pod| !pod.is_deleting()));
    let labels = ["reason=\"promised_savings_lost\""];
    is_counted(&world, "karpenter_consolidation_blocked_total", &labels).await;
    world.pass(Duration::from_mins(30)).await;
    assert_eq!(counted(&world, "karpenter_consolidation_blocked_total", &labels), 1);
}

/// A node for four CPUs, on which one pod with a third of a CPU is left.
pub(super) async fn a_large_node_with_a_small_app(
    world: &World,
    pool: &Value,
    pod: &Value,
) -> (NodePool, NodeClaim) {
    let pool = with_pool(world, pool).await;
    let mut small = serde_json::to_value(app("a", "300m")).unwrap_or_default();
    build::merge(&mut small["spec"]["template"], pod);
    let filler = world.create(app("filler", "3")).await;
    // Were the small pod the first of the two to come, a batch with it alone would get it a small node.
    world.until("the large node is on its way", World::only::<NodeClaim>).await;
    world.create(build::object::<Deployment>(small)).await;
    let (old, _) = world.until("the node is ready", one_ready_node).await;
    world.until("the pods run", async |world: &World| all_run(world, 2).await).await;
    assert_eq!(old.labels()[labels::INSTANCE_TYPE], BIG);
    world.delete(&filler).await;
    world.until("the small pod is alone", async |world: &World| all_run(world, 1).await).await;
    (pool, old)
}
