//! Nodes that several others could replace for less, and no single one.

use std::time::Duration;

use kerf_api::{
    NodeClaim, ObjectExt,
    conditions::{Conditioned, INITIALIZED},
    labels,
};
use kube::ResourceExt;

use super::{app, disruptable, nothing_is_marked, ready_claims, told};
use crate::{
    World,
    chapters::{all_run, is_counted, with_pool},
};

const LARGE: &str = "c-16x-amd64-linux";
/// They hold the same pods for less.
const CHEAPER: [&str; 2] = ["c-2x-amd64-linux", "c-8x-amd64-linux"];

pub async fn a_node_is_replaced_by_two_that_cost_less(world: World) {
    from_one_to_two(&world).await;
    let labels = ["decision=\"replace\"", "consolidation_type=\"many\""];
    is_counted(&world, "karpenter_voluntary_disruption_decisions_total", &labels).await;
    let created = ["reason=\"underutilized\""];
    is_counted(&world, "karpenter_nodeclaims_created_total", &created).await;
}

/// A node of sixteen cores is left with pods for more than eight: one of eight cores and one of two take its place.
pub async fn from_one_to_two(world: &World) {
    let old = a_large_node_with_three_apps(world).await;
    two_smaller_ones_are_left(world, &old).await;
    world.until("nothing is marked", nothing_is_marked).await;
}

pub async fn two_that_become_too_dear_before_the_second_look_are_not_bought(world: World) {
    let old = a_large_node_with_three_apps(&world).await;
    told(&world, &old.name_any(), "ConsolidationCandidate", "[2 replacements]").await;
    world.reprice(|name, price| if name == LARGE { price } else { price.times(10, 1) });
    told(&world, &old.name_any(), "ConsolidationRejected", "[2 replacements]").await;
    world.pass(Duration::from_mins(10)).await;
    let claims = ready_claims(&world, 1).await.expect("nothing else was launched");
    assert_eq!(claims[0].uid(), old.uid());
    nothing_is_marked(&world).await.expect("nothing was begun");
}

async fn a_large_node_with_three_apps(world: &World) -> NodeClaim {
    with_pool(world, &disruptable()).await;
    let mut filler = app("filler", "6");
    let template = filler.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
    let selector = [(labels::INSTANCE_TYPE.to_owned(), LARGE.to_owned())];
    template.expect("a pod template").node_selector = Some(selector.into());
    let filler = world.create(filler).await;
    world.until("the large node is on its way", World::only::<NodeClaim>).await;
    for (name, cpu) in [("a", "3700m"), ("b", "3700m"), ("c", "1700m")] {
        world.create(app(name, cpu)).await;
    }
    let claims = world
        .until("the large node is ready", async |world: &World| ready_claims(world, 1).await)
        .await;
    world.until("all pods run", async |world: &World| all_run(world, 4).await).await;
    world.delete(&filler).await;
    claims.into_iter().next().expect("a claim")
}

/// The large node may not go before everything that takes its place is there.
async fn two_smaller_ones_are_left(world: &World, old: &NodeClaim) {
    world
        .until("two smaller nodes are left", async |world: &World| {
            let claims = world.list::<NodeClaim>().await;
            let (before, after): (Vec<_>, Vec<_>) =
                claims.into_iter().partition(|claim| claim.uid() == old.uid());
            if before.is_empty() || before.iter().any(ObjectExt::is_deleting) {
                let ready = after.iter().filter(|claim| claim.is_true(INITIALIZED)).count();
                assert!(ready >= CHEAPER.len(), "the node goes before its replacements are ready");
            }
            let left = ready_claims(world, CHEAPER.len()).await?;
            let types = left.iter().map(|claim| claim.labels()[labels::INSTANCE_TYPE].clone());
            let mut types: Vec<_> = types.collect();
            types.sort();
            if types != CHEAPER {
                return Err(format!("{types:?} are left"));
            }
            all_run(world, 3).await.map(drop)
        })
        .await;
}
