//! Everything at once, by chance: a static pool is scaled, drifts, expires and loses nodes while the API server, the watches
//! and the cloud fail and the operator is killed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kerf_api::{NodeClaim, NodePool};
use kerf_controllers::Settings;
use kerf_testbed::{CloudFault, Fault, Matching, Random, Testbed, Verb, WatchCut};
use serde_json::json;

use super::{drift, has_nodes, most_claims_at_once, with_static_pool};
use crate::{World, build, world::Kind};

/// How a storm went.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    pub limit: usize,
    /// The most claims that there were at any instant.
    pub peak: usize,
    pub writes: usize,
}

const BLOWS: u64 = 12;

/// Plays the storm of this seed. When it is over the pool settles at its replicas, or at its limit if that is less; this
/// waits until it has. Panics if it does not.
pub fn storm(seed: u64) -> Storm {
    let played = Testbed::in_virtual_time(async {
        let mut random = Random::seeded(seed);
        let limit = 2 + i32::try_from(random.below(6)).unwrap_or_default();
        let mut world = World::on_testbed(seed, Settings::default()).await;
        disturb(&world);
        let pool = begin(&world, &mut random, limit).await;
        let mut wanted = blow(&mut world, &pool, &mut random, limit).await;
        world.faults().clear();
        world.cloud().clear();
        if random.chance(0.5) {
            wanted = scale(&world, &pool, &mut random, limit).await;
        }
        has_nodes(&world, &pool, wanted.min(limit)).await;
        let log = world.event_log();
        let (peak, writes) = (most_claims_at_once(&log), log.entries().len());
        let limit = usize::try_from(limit).unwrap_or_default();
        assert!(peak <= limit, "{peak} nodes at once, and the limit is {limit}:\n{log}");
        Storm { limit, peak, writes }
    });
    played.unwrap_or_else(|error| panic!("a runtime cannot be made: {error}"))
}

/// What goes wrong, and how often. Creations of claims lose their answers most, because that is where counts go wrong.
fn disturb(world: &World) {
    let faults = world.faults();
    let creations = || Matching::any().verb(Verb::Create).resource("nodeclaims");
    let watches = || Matching::any().verb(Verb::Watch).resource("nodeclaims");
    let second = Duration::from_secs(1);
    faults.at_rate(0.15, creations(), Fault::TimeoutAfter(5 * second));
    faults.at_rate(0.05, creations(), Fault::TimeoutBefore(5 * second));
    faults.at_rate(0.05, creations(), Fault::Delay(3 * second));
    faults.at_rate(0.5, watches(), Fault::WatchDelay(2 * second));
    let cut = |cut| Fault::Watch(cut);
    faults.at_rate(0.2, Matching::any().verb(Verb::Watch), cut(WatchCut::After(60 * second)));
    faults.at_rate(0.2, watches(), cut(WatchCut::Expired(45 * second)));
    faults.at_rate(0.02, Matching::writes(), Fault::Conflict);
    faults.at_rate(0.02, Matching::any(), Fault::InternalError);
    faults.at_rate(0.02, Matching::writes(), Fault::TimeoutAfter(second));
    let cloud = world.cloud();
    cloud.at_rate(0.1, CloudFault::InsufficientCapacity);
    cloud.at_rate(0.05, CloudFault::LaunchRefused);
    cloud.at_rate(0.05, CloudFault::LaunchAnswerLost);
    cloud.at_rate(0.05, CloudFault::LaunchSlow(30 * second));
    cloud.at_rate(0.05, CloudFault::TerminationRefused);
    cloud.at_rate(0.1, CloudFault::TerminationSlow(40 * second));
}

async fn begin(world: &World, random: &mut Random, limit: i32) -> NodePool {
    let expire_after =
        ["Never", "15m", "40m"][usize::try_from(random.below(3)).unwrap_or_default()];
    let budget = ["1", "100%"][usize::from(random.chance(0.5))];
    let changes = json!({
        "limits": {"nodes": limit.to_string()},
        "disruption": {"budgets": [{"nodes": budget}]},
        "template": {"spec": {"expireAfter": expire_after}},
    });
    let replicas = i64::try_from(random.below(5)).unwrap_or_default();
    let pool = with_static_pool(world, replicas, &changes).await;
    if random.chance(0.5) {
        let small = json!({"containers": [{"name": "main", "image": "main"}]});
        world.create(build::deployment("a", 3, &small)).await;
    }
    pool
}

/// One thing after the other, each at its time; returns what the pool wants in the end.
async fn blow(world: &mut World, pool: &NodePool, random: &mut Random, limit: i32) -> i32 {
    let mut wanted = scale(world, pool, random, limit).await;
    for blow in 0..BLOWS {
        match random.below(6) {
            0 | 1 => wanted = scale(world, pool, random, limit).await,
            2 => drift(world, pool, u32::try_from(blow).unwrap_or_default()).await,
            3 => delete_any::<NodeClaim>(world, random).await,
            4 => delete_any::<Node>(world, random).await,
            _ => {
                world.kill_operator();
                world.pass(Duration::from_millis(random.below(20_000))).await;
                world.start_operator().await;
            }
        }
        // Often the next comes while the last is not over.
        let most = if random.chance(0.5) { 2_000 } else { 300_000 };
        world.pass(Duration::from_millis(random.below(most))).await;
    }
    wanted
}

/// To any number up to one more than the limit.
async fn scale(world: &World, pool: &NodePool, random: &mut Random, limit: i32) -> i32 {
    let below = u64::try_from(limit).unwrap_or_default() + 2;
    let replicas = i32::try_from(random.below(below)).unwrap_or_default();
    world.scale(pool, replicas).await;
    replicas
}

async fn delete_any<K: Kind>(world: &World, random: &mut Random) {
    let all = world.list::<K>().await;
    let chosen = usize::try_from(random.below(all.len() as u64)).unwrap_or_default();
    if let Some(object) = all.get(chosen) {
        world.delete_if_there(object).await;
    }
}
