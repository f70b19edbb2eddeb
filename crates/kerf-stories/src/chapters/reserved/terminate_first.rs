//! Nodes of dynamic pools that hold the slot in which alone their pods can run, with the feature gate `TerminateFirstDrift`.

use std::time::Duration;

use kerf_api::{NodeClaim, NodePool, labels};
use kerf_testbed::CloudFault;
use kube::ResourceExt;
use serde_json::json;

use super::{RESERVED, by_capacity_type, claims};
use crate::{
    World, build,
    chapters::{all_run, counted, with_pool},
};

const WENT_FIRST: &str = "karpenter_voluntary_disruption_terminate_first_decisions_total";

pub async fn a_node_in_the_only_slot_goes_first(mut world: World) {
    let pool = with_pods_in_reserved_machines(&mut world, 1).await;
    let old = world.only::<NodeClaim>().await.unwrap_or_else(|error| panic!("{error}"));
    drift(&world, &pool).await;
    replaced(&world, 1).await;
    assert!(world.get(&old).await.is_none());
    assert_eq!(claims(&world).await, by_capacity_type(&[(RESERVED, 1)]));
    let labels = ["reason=\"drifted\"", "terminate_first_reason=\"no-reserved-capacity\""];
    assert_eq!(counted(&world, WENT_FIRST, &labels), 1);
    super::no_claim_was_in_vain(&world, 2);
}

/// The slot of the first is gone when its pod wants it back. The pod waits, and the other node stays where it is.
pub async fn a_slot_that_another_consumer_takes_costs_one_node(mut world: World) {
    let pool = with_pods_in_reserved_machines(&mut world, 3).await;
    let old: Vec<String> =
        world.list::<NodeClaim>().await.iter().map(ResourceExt::name_any).collect();
    world.cloud().at_rate(1.0, CloudFault::InsufficientCapacity);
    drift(&world, &pool).await;
    let left = async |world: &World| {
        let claims = world.list::<NodeClaim>().await;
        claims.iter().filter(|claim| old.contains(&claim.name_any())).count()
    };
    world
        .until("one has gone", async |world: &World| {
            let left = left(world).await;
            if left == 2 { Ok(()) } else { Err(format!("{left} are left")) }
        })
        .await;
    for _ in 0..30 {
        world.pass(Duration::from_mins(1)).await;
        assert_eq!(left(&world).await, 2);
    }
    assert_eq!(counted(&world, WENT_FIRST, &["reason=\"drifted\""]), 1);
    world.cloud().clear();
    replaced(&world, 3).await;
    // Not all go first: a slot is free while a pod waits for it, and a replacement may take it.
    assert_eq!(claims(&world).await, by_capacity_type(&[(RESERVED, 3)]));
}

/// One pod on each of so many reserved machines.
async fn with_pods_in_reserved_machines(world: &mut World, places: u32) -> NodePool {
    sell_reserved_machines(world, places).await;
    let pool = with_pool(
        world,
        &json!({
            "disruption": {"budgets": [{"nodes": "100%"}]},
            "template": {"spec": {
                "terminationGracePeriod": "5m",
                "requirements": [
                    {"key": labels::CAPACITY_TYPE, "operator": "In", "values": [RESERVED]},
                ],
            }},
        }),
    )
    .await;
    let alone = json!({"containers": [{
        "name": "main", "image": "main", "resources": {"requests": {"cpu": "1500m"}},
    }]});
    world.create(build::deployment("a", places, &alone)).await;
    let pods = places as usize;
    world.until("the pods run", async |world: &World| all_run(world, pods).await).await;
    pool
}

async fn drift(world: &World, pool: &NodePool) {
    let labels = json!({"metadata": {"labels": {"version": "two"}}});
    world.patch(pool, json!({"spec": {"template": labels}})).await;
}

/// Waits until so many pods run on as many nodes, all of them new.
async fn replaced(world: &World, count: usize) {
    world
        .until("all nodes are new, and all pods run", async |world: &World| {
            all_run(world, count).await?;
            let claims = world.list::<NodeClaim>().await;
            let new = claims.iter().filter(|claim| claim.labels().contains_key("version"));
            match (new.count(), claims.len()) {
                counts if counts == (count, count) => Ok(()),
                counts => Err(format!("{counts:?}")),
            }
        })
        .await;
}

/// A cloud with one type of machine, of which so many are reserved. Nothing else is sold.
pub(crate) async fn sell_reserved_machines(world: &mut World, places: u32) {
    let catalogue = json!([{
        "name": "m5.large",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "2", "memory": "8Gi"},
        "offerings": [{
            "price": 0.0001,
            "reservationCapacity": places,
            "requirements": [
                {"key": labels::CAPACITY_TYPE, "operator": "In", "values": [RESERVED]},
                {"key": labels::ZONE, "operator": "In", "values": ["test-zone-a"]},
            ],
        }],
    }]);
    world.restart_with_catalogue(&catalogue).await;
}
