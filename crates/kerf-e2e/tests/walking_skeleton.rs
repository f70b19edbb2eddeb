//! The quick start of the README, from a pending Deployment to a node and back to nothing.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Node, Pod},
};
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, READY},
    labels,
};
use kerf_controllers::Settings;
use kerf_e2e::apply;
use kerf_stories::{Stage, World};

const QUICKSTART: &str = include_str!("../../../examples/quickstart.yaml");

#[tokio::test]
async fn a_pending_deployment_gets_a_node_and_everything_goes_when_it_goes() {
    // However long the machine takes to create six pods, they are planned together.
    let mut settings = Settings::default();
    settings.batching.idle = Duration::from_secs(5);
    let mut world = World::on_control_plane(settings).await;
    let Stage::Real(cluster) = world.stage() else { unreachable!() };
    apply(cluster, QUICKSTART).await;
    let pods = world
        .until("all pods run", async |world: &World| {
            let pods = world.list::<Pod>().await;
            let running =
                |pod: &&Pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running");
            match pods.iter().filter(running).count() {
                6 => Ok(pods),
                count => Err(format!("{count} of {} pods run", pods.len())),
            }
        })
        .await;
    // One batch, one claim: six pods of one CPU fit on one node, and nothing is launched twice.
    let claim = world
        .until("the claim is ready", async |world: &World| {
            let claim = world.only::<NodeClaim>().await?;
            if claim.is_true(READY) { Ok(claim) } else { Err(format!("{:?}", claim.status)) }
        })
        .await;
    let node = world.only::<Node>().await.unwrap();
    assert_eq!(Some(&claim.status.as_ref().unwrap().node_name), node.metadata.name.as_ref());
    assert!(pods.iter().all(|pod| pod.spec.as_ref().unwrap().node_name == node.metadata.name));
    let label = |key: &str| node.metadata.labels.as_ref().unwrap()[key].clone();
    // The cheapest type with room for six CPUs and what the node keeps for itself.
    assert_eq!(label(labels::INSTANCE_TYPE), "c-8x-amd64-linux");
    assert_eq!(label(labels::CAPACITY_TYPE), "on-demand");
    world
        .until("every pod was told where it goes", async |world: &World| {
            let events = world.list::<Event>().await;
            let told = events.iter().filter(|event| event.reason.as_deref() == Some("Nominated"));
            match told.count() {
                6 => Ok(()),
                told => Err(format!("{told} were told")),
            }
        })
        .await;

    world.delete(&world.only::<Deployment>().await.unwrap()).await;
    // Pods that are still there when their node goes are planned for elsewhere.
    world
        .until("the pods are gone", async |world: &World| {
            let left = world.list::<Pod>().await.len();
            if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
        })
        .await;
    world.delete_if_there(&claim).await;
    world
        .until("everything is gone", async |world: &World| {
            let left = (
                world.list::<NodeClaim>().await.len(),
                world.list::<Node>().await.len(),
                world.list::<Pod>().await.len(),
            );
            if left == (0, 0, 0) { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    world.stop_operator().await;
}
