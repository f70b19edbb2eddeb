//! A large cluster from nothing: how long until every pod runs, and how much memory that takes.
//!
//! `cargo run --release -p kerf-testbed --example scale -- [nodes] [pods]`

mod memory;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kerf_testbed::Testbed;
use kerf_testbed::actors::Actors;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use std::time::{Duration, Instant};

const DEPLOYMENTS: usize = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let nodes = numbers.next().unwrap_or(1_000);
    let pods = numbers.next().unwrap_or(10_000);
    Testbed::in_virtual_time(run(nodes, pods))?
}

async fn run(nodes: usize, pods: usize) -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let virtual_start = tokio::time::Instant::now();
    let testbed = Testbed::builder().start()?;
    let _actors = testbed.start_actors(Actors::default());
    let client = testbed.client();
    let room = json!({ "cpu": "16", "memory": "64Gi", "pods": "110" });
    let api: Api<Node> = Api::all(client.clone());
    for number in 0..nodes {
        let name = format!("node-{number:04}");
        let node = serde_json::from_value(json!({
            "metadata": {
                "name": name, "annotations": { "kwok.x-k8s.io/node": "fake" },
                "labels": {
                    "kubernetes.io/hostname": name,
                    "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
                },
            },
            "status": { "capacity": room, "allocatable": room },
        }))?;
        api.create(&PostParams::default(), &node).await?;
    }
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    for number in 0..DEPLOYMENTS {
        let app = format!("app-{number}");
        let replicas = pods / DEPLOYMENTS + usize::from(number < pods % DEPLOYMENTS);
        let mut spec = json!({ "containers": [{
            "name": "main", "image": "example.com/app:1",
            "resources": { "requests": { "cpu": format!("{}m", 100 + 50 * (number % 5)), "memory": "256Mi" } },
        }]});
        // A quarter of them are spread over the zones, so that counting by domain is part of the picture.
        if number % 4 == 0 {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": app } },
            }]);
        }
        let deployment = serde_json::from_value(json!({
            "metadata": { "name": app },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": { "app": app } },
                "template": { "metadata": { "labels": { "app": app } }, "spec": spec },
            },
        }))?;
        api.create(&PostParams::default(), &deployment).await?;
    }
    testbed
        .advance_until("all pods run", Duration::from_hours(1), async || {
            let Ok(list) = api.list(&ListParams::default()).await else { return false };
            let ready = list.items.iter().filter_map(|d| d.status.as_ref()?.available_replicas);
            usize::try_from(ready.sum::<i32>()).is_ok_and(|ready| ready == pods)
        })
        .await?;
    println!(
        "{nodes} nodes, {pods} pods: all running after {:.2?} of real time",
        started.elapsed()
    );
    println!("virtual time {:?}, {} writes", virtual_start.elapsed(), testbed.api().revision());
    println!("memory: {}", memory::most_held());
    Ok(())
}
