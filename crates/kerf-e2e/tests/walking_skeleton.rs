//! From a pending pod to a node and back to nothing, through every room of the house.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Node, Pod},
};
use kerf_api::{
    NodeClaim, NodePool, TERMINATION_FINALIZER,
    conditions::{Conditioned, READY},
    labels, taints,
};
use kerf_e2e::{Kerf, apply, eventually};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};

const QUICKSTART: &str = include_str!("../../../examples/quickstart.yaml");

#[tokio::test]
async fn a_pending_deployment_gets_a_node_and_everything_goes_when_it_goes() {
    let kerf = Kerf::start().await;
    let client = kerf.cluster.client();
    apply(&kerf.cluster, QUICKSTART).await;

    let pods = eventually("running", async || {
        let pods = list::<Pod>(&client).await;
        let running = |pod: &&Pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Running");
        let count = pods.iter().filter(running).count();
        if count == 6 { Ok(pods) } else { Err(format!("{count} of {} pods run", pods.len())) }
    })
    .await;

    // One batch, one claim: six pods of one CPU fit on one node, and nothing is launched twice.
    let claim = eventually("ready", async || {
        let claims = list::<NodeClaim>(&client).await;
        match claims.as_slice() {
            [claim] if claim.is_true(READY) => Ok(claim.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let nodes = list::<Node>(&client).await;
    let [node] = nodes.as_slice() else { panic!("{nodes:?}") };
    assert_eq!(claim.status.as_ref().unwrap().node_name, node.name_any());
    assert!(pods.iter().all(|pod| pod.spec.as_ref().unwrap().node_name == Some(node.name_any())));
    assert_eq!(node.labels()[labels::NODE_POOL], "default");
    assert_eq!(node.labels()[labels::CAPACITY_TYPE], "on-demand");
    assert_eq!(node.labels()[labels::ARCH], "amd64");
    assert_eq!(node.labels()[labels::REGISTERED], "true");
    assert_eq!(node.labels()[labels::INITIALIZED], "true");
    assert!(node.finalizers().iter().any(|finalizer| finalizer == TERMINATION_FINALIZER));
    let on_node = node.spec.as_ref().unwrap().taints.clone().unwrap_or_default();
    assert!(!on_node.iter().any(|taint| taint.key == taints::UNREGISTERED), "{on_node:?}");
    // The cheapest type with room for six CPUs and what the node keeps for itself.
    assert_eq!(node.labels()[labels::INSTANCE_TYPE], "c-8x-amd64-linux");

    let pool = Api::<NodePool>::all(client.clone()).get("default").await.unwrap();
    assert!(pool.is_true(READY));
    eventually("told where they go", async || {
        let events = list::<Event>(&client).await;
        let told =
            events.iter().filter(|event| event.reason.as_deref() == Some("Nominated")).count();
        if told == 6 { Ok(()) } else { Err(told) }
    })
    .await;

    delete::<Deployment>(&Api::default_namespaced(client.clone()), "hello").await;
    delete::<NodeClaim>(&Api::all(client.clone()), &claim.name_any()).await;
    eventually("gone", async || {
        let (claims, nodes) = (list::<NodeClaim>(&client).await, list::<Node>(&client).await);
        let pods = list::<Pod>(&client).await;
        if claims.is_empty() && nodes.is_empty() && pods.is_empty() {
            Ok(())
        } else {
            Err(format!("{} claims, {} nodes, {} pods", claims.len(), nodes.len(), pods.len()))
        }
    })
    .await;
    kerf.stop_operator().await;
}

#[tokio::test]
async fn a_pod_that_fits_nowhere_is_told_why_and_keeps_nobody_waiting() {
    let kerf = Kerf::start().await;
    let client = kerf.cluster.client();
    let too_big = QUICKSTART.replace("name: hello", "name: huge").replace("cpu: \"1\"", "cpu: 1k");
    apply(&kerf.cluster, &too_big).await;
    let message = eventually("told why", async || {
        let events = list::<Event>(&client).await;
        let failed = events.into_iter().find(|event| {
            event.reason.as_deref() == Some("FailedScheduling")
                && event.source.as_ref().and_then(|source| source.component.as_deref())
                    == Some("karpenter")
        });
        failed.and_then(|event| event.message).ok_or("no event")
    })
    .await;
    assert!(message.starts_with("Failed to schedule pod, "), "{message}");

    apply(&kerf.cluster, QUICKSTART).await;
    eventually("running", async || {
        let deployment = Api::<Deployment>::default_namespaced(client.clone()).get("hello").await;
        let ready = deployment.unwrap().status.unwrap_or_default().ready_replicas;
        if ready == Some(6) { Ok(()) } else { Err(ready) }
    })
    .await;
    assert_eq!(list::<NodeClaim>(&client).await.len(), 1);
    kerf.stop_operator().await;
}

async fn list<K>(client: &Client) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    Api::<K>::all(client.clone()).list(&ListParams::default()).await.unwrap().items
}

async fn delete<K>(api: &Api<K>, name: &str)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.delete(name, &DeleteParams::default()).await.unwrap();
}
