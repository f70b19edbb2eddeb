//! Volumes: made and bound for claims, attached where pods are, gone with their claims.

use crate::harness::{
    Cluster, background, name_of, node, node_of, pod, storage_class, volume_claim, with,
};
use kerf_testbed::actors::NEVER_DETACHES;
use serde_json::{Value, json};
use std::time::Duration;

const ZONE: &str = "topology.kubernetes.io/zone";

fn in_zone(name: &str, zone: &str) -> Value {
    let mut node = node(name);
    node["metadata"]["labels"][ZONE] = zone.into();
    node
}

fn with_claim(name: &str, claim: &str) -> Value {
    let volume = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    with(pod(name, name, "1"), "spec.volumes", volume)
}

/// A volume that someone made by hand.
fn volume(name: &str, size: &str, zone: &str) -> Value {
    let here = json!({ "key": ZONE, "operator": "In", "values": [zone] });
    json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
            "csi": { "driver": "disks.example.com", "volumeHandle": name },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [here] }] } },
        },
    })
}

fn by_hand(mode: &str) -> Value {
    with(storage_class("disks", mode), "provisioner", json!("kubernetes.io/no-provisioner"))
}

async fn phase(cluster: &Cluster, kind: &str, name: &str) -> String {
    let object = cluster.get(kind, name).await;
    object["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

async fn refused_with(cluster: &Cluster, pod: &str, message: &str) {
    cluster
        .until(&format!("pod {pod} is refused with {message:?}"), async || {
            let pod = cluster.get("Pod", pod).await;
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let mut said = conditions.filter_map(|one| one["message"].as_str());
            said.any(|said| said.contains(message))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_in_the_zone_of_its_first_pod_and_keeps_the_next_there() {
    let cluster = Cluster::start();
    cluster.create("StorageClass", storage_class("disks", "WaitForFirstConsumer")).await;
    cluster.create("PersistentVolumeClaim", volume_claim("data", "disks")).await;
    cluster.pass(Duration::from_mins(1)).await;
    assert_eq!(phase(&cluster, "PersistentVolumeClaim", "data").await, "Pending");
    cluster.create("Node", in_zone("a", "zone-a")).await;
    cluster.create("Pod", with_claim("first", "data")).await;
    cluster.until_running("first", 1).await;
    assert_eq!(phase(&cluster, "PersistentVolumeClaim", "data").await, "Bound");
    let volumes = cluster.list("PersistentVolume").await;
    assert_eq!(volumes[0]["status"]["phase"], "Bound");
    let affinity = volumes[0]["spec"]["nodeAffinity"].to_string();
    assert!(affinity.contains("zone-a"), "{affinity}");

    cluster.create("Node", in_zone("b", "zone-b")).await;
    cluster.until_ready("b").await;
    cluster.patch("Node", "a", json!({ "spec": { "unschedulable": true } })).await;
    cluster.create("Pod", with_claim("second", "data")).await;
    refused_with(&cluster, "second", "1 node(s) didn't match PersistentVolume's node affinity")
        .await;
    cluster.patch("Node", "a", json!({ "spec": { "unschedulable": false } })).await;
    cluster.until_running("second", 1).await;
    assert_eq!(node_of(&cluster.pods("second").await[0]), "a");
}

#[tokio::test(start_paused = true)]
async fn a_claim_takes_the_smallest_volume_that_will_do() {
    let cluster = Cluster::start();
    cluster.create("StorageClass", by_hand("Immediate")).await;
    for (name, size) in [("tiny", "100Mi"), ("large", "10Gi"), ("right", "2Gi")] {
        cluster.create("PersistentVolume", volume(name, size, "zone-a")).await;
    }
    cluster.create("PersistentVolumeClaim", volume_claim("data", "disks")).await;
    cluster
        .until("the claim is bound", async || {
            phase(&cluster, "PersistentVolumeClaim", "data").await == "Bound"
        })
        .await;
    let claim = cluster.get("PersistentVolumeClaim", "data").await;
    assert_eq!(claim["spec"]["volumeName"], "right");
    assert_eq!(phase(&cluster, "PersistentVolume", "right").await, "Bound");
    assert_eq!(phase(&cluster, "PersistentVolume", "large").await, "Available");
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_where_a_volume_is_to_be_had() {
    let cluster = Cluster::start();
    cluster.create("StorageClass", by_hand("WaitForFirstConsumer")).await;
    cluster.create("Node", in_zone("a", "zone-a")).await;
    cluster.create("PersistentVolumeClaim", volume_claim("data", "disks")).await;
    cluster.create("Pod", with_claim("web", "data")).await;
    refused_with(&cluster, "web", "1 node(s) didn't find available persistent volumes to bind")
        .await;
    cluster.create("PersistentVolume", volume("there", "1Gi", "zone-b")).await;
    cluster.create("Node", in_zone("b", "zone-b")).await;
    cluster.until_running("web", 1).await;
    assert_eq!(node_of(&cluster.pods("web").await[0]), "b");
    cluster
        .until("the claim is bound", async || {
            phase(&cluster, "PersistentVolumeClaim", "data").await == "Bound"
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_claims_that_are_missing_or_unbound() {
    let cluster = Cluster::start();
    cluster.create("Node", in_zone("a", "zone-a")).await;
    cluster.create("Pod", with_claim("web", "data")).await;
    refused_with(&cluster, "web", "persistentvolumeclaim \"data\" not found").await;
    cluster.create("PersistentVolumeClaim", volume_claim("data", "disks")).await;
    refused_with(&cluster, "web", "pod has unbound immediate PersistentVolumeClaims").await;
    cluster.create("StorageClass", storage_class("disks", "Immediate")).await;
    cluster.until_running("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_on_its_node_as_long_as_a_pod_needs_it() {
    let cluster = Cluster::start();
    cluster.create("StorageClass", storage_class("disks", "WaitForFirstConsumer")).await;
    cluster.create("PersistentVolumeClaim", volume_claim("data", "disks")).await;
    cluster.create("Node", in_zone("a", "zone-a")).await;
    cluster.create("Pod", with_claim("web", "data")).await;
    cluster.until_running("web", 1).await;
    let attached = async |count: usize| {
        cluster
            .until(&format!("{count} volumes are attached"), async || {
                let all = cluster.list("VolumeAttachment").await;
                all.len() == count && all.iter().all(|one| one["status"]["attached"] == true)
            })
            .await;
    };
    attached(1).await;
    let attachment = cluster.list("VolumeAttachment").await.remove(0);
    assert_eq!(attachment["spec"]["nodeName"], "a");
    let stuck = |yes: Value| json!({ "metadata": { "annotations": { NEVER_DETACHES: yes } } });
    cluster.patch("VolumeAttachment", name_of(&attachment), stuck("true".into())).await;
    cluster.delete("Pod", "web", background()).await;
    cluster.until_gone("Pod", "web").await;
    cluster.pass(Duration::from_hours(1)).await;
    attached(1).await;
    cluster.patch("VolumeAttachment", name_of(&attachment), stuck(Value::Null)).await;
    attached(0).await;
}

#[tokio::test(start_paused = true)]
async fn claims_and_volumes_in_use_stay_until_they_are_not() {
    let cluster = Cluster::start();
    cluster.create("StorageClass", storage_class("disks", "WaitForFirstConsumer")).await;
    cluster.create("PersistentVolumeClaim", volume_claim("data", "disks")).await;
    cluster.create("Node", in_zone("a", "zone-a")).await;
    cluster.create("Pod", with_claim("web", "data")).await;
    cluster.until_running("web", 1).await;
    let volume = cluster.list("PersistentVolume").await.remove(0);
    cluster.delete("PersistentVolumeClaim", "data", background()).await;
    cluster.pass(Duration::from_mins(10)).await;
    assert!(cluster.find("PersistentVolumeClaim", "data").await.is_some(), "a pod has it mounted");
    cluster.delete("Pod", "web", background()).await;
    cluster.until_gone("PersistentVolumeClaim", "data").await;
    cluster.until_gone("PersistentVolume", name_of(&volume)).await;
}
