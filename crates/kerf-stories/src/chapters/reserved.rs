//! Capacity that was reserved is used, and never more of it than there is.

pub mod terminate_first;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kerf_api::{NodeClaim, labels};
use kerf_testbed::{Fault, Matching, Verb, Write};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{all_run, is_running, launching::gone, node_of, with_pool};
use crate::{World, build};

const PODS: [&str; 3] = ["a", "b", "c"];

pub async fn one_pod_gets_the_only_place_and_the_others_get_bought_machines(mut world: World) {
    sell_one_reserved_machine(&mut world).await;
    for name in PODS {
        world.create(alone(name, &json!({}))).await;
    }
    world.until("all pods run", async |world: &World| all_run(world, PODS.len()).await).await;
    assert_eq!(claims(&world).await, by_capacity_type(&[(RESERVED, 1), (ON_DEMAND, 2)]));
    no_claim_was_in_vain(&world, 3);
}

/// The second batch is planned while the machine of the first is still being launched.
pub async fn a_place_is_promised_once_even_before_its_machine_is_there(mut world: World) {
    sell_one_reserved_machine(&mut world).await;
    let launches = Matching::any().verb(Verb::Create).resource("nodes");
    world.faults().at_rate(1.0, launches, Fault::Delay(Duration::from_secs(20)));
    for name in PODS {
        world.create(alone(name, &json!({}))).await;
        world.pass(Duration::from_secs(3)).await;
    }
    world.until("all pods run", async |world: &World| all_run(world, PODS.len()).await).await;
    assert_eq!(claims(&world).await, by_capacity_type(&[(RESERVED, 1), (ON_DEMAND, 2)]));
    no_claim_was_in_vain(&world, 3);
}

pub async fn pods_that_want_the_only_place_get_it_one_after_the_other(mut world: World) {
    sell_one_reserved_machine(&mut world).await;
    let reserved_only = json!({"nodeSelector": {labels::CAPACITY_TYPE: RESERVED}});
    for name in PODS {
        world.create(alone(name, &reserved_only)).await;
    }
    for left in (1..=PODS.len()).rev() {
        let running = world.until("one pod runs", the_one_that_runs).await;
        let node = node_of(&world, &running).await;
        world.pass_if_free(Duration::from_mins(10)).await;
        assert_eq!(claims(&world).await, by_capacity_type(&[(RESERVED, 1)]), "{left} pods");
        let claim = world.only::<NodeClaim>().await.unwrap_or_else(|error| panic!("{error}"));
        // The drain evicts the pod, which does not come back.
        world.delete(&claim).await;
        world.until("the node is gone", gone(&node)).await;
    }
    no_claim_was_in_vain(&world, 3);
}

pub(crate) const RESERVED: &str = "reserved";
const ON_DEMAND: &str = "on-demand";

/// A cloud with one type of machine. One such machine is reserved, any number can be bought.
async fn sell_one_reserved_machine(world: &mut World) {
    let offering = |capacity_type: &str, price: f64, places: u32| {
        json!({
            "price": price,
            "reservationCapacity": places,
            "requirements": [
                {"key": labels::CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
                {"key": labels::ZONE, "operator": "In", "values": ["test-zone-a"]},
            ],
        })
    };
    let catalogue = json!([{
        "name": "m5.large",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "2", "memory": "8Gi"},
        "offerings": [offering(RESERVED, 0.0001, 1), offering(ON_DEMAND, 0.096, 0)],
    }]);
    world.restart_with_catalogue(&catalogue).await;
    with_pool(
        world,
        &json!({"template": {"spec": {"requirements": [
            {"key": labels::CAPACITY_TYPE, "operator": "In", "values": [RESERVED, ON_DEMAND]},
        ]}}}),
    )
    .await;
}

/// A pod that shares its machine with none of its kind.
fn alone(name: &str, changes: &Value) -> Pod {
    let mut spec = json!({"containers": [{
        "name": "main", "image": "main", "resources": {"requests": {"cpu": "1500m"}},
    }]});
    build::merge(&mut spec, changes);
    build::pod(name, &spec)
}

async fn the_one_that_runs(world: &World) -> Result<Pod, String> {
    let mut running = world.list::<Pod>().await;
    running.retain(is_running);
    match (running.pop(), running.len()) {
        (Some(one), 0) => Ok(one),
        (_, others) => Err(format!("{others} others")),
    }
}

/// How many claims there are of each capacity type.
async fn claims(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for claim in world.list::<NodeClaim>().await {
        let capacity_type = claim.labels().get(labels::CAPACITY_TYPE).cloned().unwrap_or_default();
        *counts.entry(capacity_type).or_default() += 1;
    }
    counts
}

fn by_capacity_type(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(capacity_type, count)| ((*capacity_type).to_owned(), *count)).collect()
}

/// No claim was made for a place that another claim had: as many were created as became nodes.
fn no_claim_was_in_vain(world: &World, expected: usize) {
    let Some(log) = world.event_log_if_any() else { return };
    let writes = log.entries().iter().filter(|it| &*it.resource == "nodeclaims.karpenter.sh");
    let created = writes.filter(|entry| entry.what == Write::Created).count();
    assert_eq!(created, expected, "claims that were ever created\n{log}");
}
