//! Five hundred pods at once: every claim that is needed, and not one more.

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, READY},
    labels,
};
use kerf_controllers::Settings;
use kerf_stories::{World, build};
use serde_json::json;

const PODS: usize = 500;
/// A machine of eight CPUs has room for seven pods of one, beside what it keeps for itself.
const CLAIMS: usize = PODS.div_ceil(7);

#[tokio::test]
async fn five_hundred_pods_get_the_claims_they_need_and_none_more() {
    let world = World::on_control_plane(Settings::default()).await;
    world.create(build::node_class("default", &json!({}))).await;
    let pool = world.create(build::pool("default", &json!({}))).await;
    world
        .until("the pool is ready", async |world: &World| {
            let pool = world.get(&pool).await.ok_or("it is gone")?;
            if pool.is_true(READY) { Ok(()) } else { Err(format!("{:?}", pool.status)) }
        })
        .await;
    let eight = json!({"nodeSelector": {labels::INSTANCE_TYPE: "c-8x-amd64-linux"}});
    let pods = (0..PODS).map(|place| world.create(build::pod(&format!("p{place}"), &eight)));
    stream::iter(pods.collect::<Vec<_>>()).buffer_unordered(50).collect::<Vec<Pod>>().await;
    let (pods, claims) = world
        .until("every claim is there", async |world: &World| {
            let (pods, claims) = (world.list::<Pod>().await, world.list::<NodeClaim>().await);
            let count = claims.len();
            if count >= CLAIMS { Ok((pods, claims)) } else { Err(format!("{count} of {CLAIMS}")) }
        })
        .await;
    // A pod joins the batch when kube-scheduler has found no place for it.
    let told = pods.iter().filter_map(unschedulable_since).max();
    let created = claims.iter().filter_map(|claim| claim.metadata.creation_timestamp.as_ref());
    let created = created.map(|time| time.0).max();
    let took = told.zip(created).map(|(told, created)| created.duration_since(told).as_secs());
    println!(
        "the last of {CLAIMS} claims was created {took:?} s after the last pod was found unschedulable, \
         in whole seconds; the batch closes {:?} after that",
        Settings::default().batching.idle,
    );
    world
        .until("all pods run", async |world: &World| {
            let pods = world.list::<Pod>().await;
            let phase = |pod: &&Pod| {
                pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Running")
            };
            let running = pods.iter().filter(phase).count();
            if running == PODS { Ok(()) } else { Err(format!("{running} of {PODS} pods run")) }
        })
        .await;
    assert_eq!(world.list::<NodeClaim>().await.len(), CLAIMS, "none is surplus");
}

fn unschedulable_since(pod: &Pod) -> Option<Timestamp> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    found.last_transition_time.as_ref().map(|time| time.0)
}
