//! Five hundred pods at once: every claim that is needed, and not one more.

use std::time::Instant;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, READY},
    labels,
};
use kerf_controllers::Settings;
use kerf_scenarios::{World, build};
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
    let created = Instant::now();
    world
        .until("every claim is there", async |world: &World| {
            let claims = world.list::<NodeClaim>().await.len();
            if claims >= CLAIMS { Ok(()) } else { Err(format!("{claims} of {CLAIMS} claims")) }
        })
        .await;
    let batching = Settings::default().batching.idle;
    println!(
        "{CLAIMS} claims were there {:?} after the last pod; the batch closes {batching:?} after it",
        created.elapsed()
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
