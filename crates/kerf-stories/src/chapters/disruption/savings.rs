//! What consolidations save, over a random history.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kerf_api::{
    NodeClaim, ObjectExt, annotations,
    conditions::{Conditioned, READY},
    labels,
};
use kerf_model::{InstanceType, Price};
use kerf_provider_kwok as kwok;
use kerf_testbed::Random;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use super::{app, disruptable, nothing_is_marked};
use crate::{
    Stage, World,
    chapters::{counted, with_pool},
};

const APPS: u64 = 6;
const ROUNDS: u64 = 12;

/// Workloads grow and shrink at random. Every replacement that was kept costs less than what it replaced, and no more
/// than was promised; and whenever all is quiet the nodes cost no more than before.
pub async fn every_consolidation_saves_what_it_promised(world: World, seed: u64) -> usize {
    let claims = every_claim_there_ever_is(&world);
    with_pool(&world, &disruptable()).await;
    let mut random = Random::seeded(seed);
    let mut apps = Vec::new();
    for number in 0..APPS {
        let cpu = format!("{}m", 200 + 100 * random.below(14));
        apps.push(world.create(app(&format!("app-{number}"), &cpu)).await);
    }
    for _ in 0..ROUNDS {
        for app in &apps {
            let replicas = random.below(7);
            world.patch(app, json!({"spec": {"replicas": replicas}})).await;
        }
        // The pods have their nodes before consolidation gets to them.
        world.pass(Duration::from_secs(10)).await;
        let before = world.until("there is a moment between two commands", price_at_rest).await;
        world.pass(Duration::from_mins(15)).await;
        let after = world.until("there is a moment between two commands", price_at_rest).await;
        assert!(after <= before, "consolidation made {before} an hour into {after}");
    }
    world.until("nothing is marked", nothing_is_marked).await;
    let claims = claims.lock().await;
    let mut replacements = 0;
    for claim in claims.values() {
        let Some(record) = claim.annotations().get(annotations::REPLACES) else { continue };
        let record: Record =
            serde_json::from_str(record).unwrap_or_else(|error| panic!("{record}: {error}"));
        let candidates = record.candidates.iter().map(|name| price(&claims[name]));
        let (paid, saved): (Price, Price) = (price(claim), candidates.sum());
        let at_most: Price = record.at_most.parse().unwrap_or_else(|error| panic!("{error}"));
        assert!(paid < saved, "{} costs {paid} and replaces {saved}", claim.name_any());
        assert!(paid <= at_most, "{} costs {paid}, promised {at_most}", claim.name_any());
        replacements += 1;
    }
    let removals = counted(
        &world,
        "karpenter_voluntary_disruption_decisions_total",
        &["decision=\"delete\"", "reason=\"underutilized\""],
    );
    assert_eq!(counted(&world, "karpenter_voluntary_disruption_queue_failures_total", &[]), 0);
    replacements + usize::from(removals > 0)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    candidates: Vec<String>,
    at_most: String,
}

/// What all nodes cost while none comes or goes.
async fn price_at_rest(world: &World) -> Result<Price, String> {
    nothing_is_marked(world).await?;
    let claims = world.list::<NodeClaim>().await;
    let moving = claims.iter().find(|claim| !claim.is_true(READY) || claim.is_deleting());
    match moving {
        Some(claim) => Err(format!("{} comes or goes", claim.name_any())),
        None => Ok(claims.iter().map(price).sum()),
    }
}

fn price(claim: &NodeClaim) -> Price {
    let types = kwok::generated();
    let label = |key: &str| claim.labels().get(key).map_or("", String::as_str);
    let found = types.iter().find(|one: &&InstanceType| one.name() == label(labels::INSTANCE_TYPE));
    let price = found
        .and_then(|found| found.offering_price(label(labels::ZONE), label(labels::CAPACITY_TYPE)));
    price.unwrap_or_else(|| panic!("{} has no price", claim.name_any()))
}

/// The last state of each claim, by name, those that are gone included.
fn every_claim_there_ever_is(world: &World) -> Arc<Mutex<BTreeMap<String, NodeClaim>>> {
    let Stage::Testbed { testbed, .. } = world.stage() else {
        panic!("only the testbed can be watched from the side")
    };
    let mut observer = testbed.observe(&[("karpenter.sh", "nodeclaims")]);
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let into = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            for change in observer.changes().await {
                let claim: NodeClaim = serde_json::from_value(change.object().clone())
                    .unwrap_or_else(|error| panic!("{error}"));
                into.lock().await.insert(claim.name_any(), claim);
            }
        }
    });
    seen
}
