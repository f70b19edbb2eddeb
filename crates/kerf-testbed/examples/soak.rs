//! Thirty days of a cluster with 50 nodes and hourly cron jobs, in virtual time.
//!
//! `cargo run --release -p kerf-testbed --example soak -- [days] [file for the log]`

mod memory;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_testbed::Testbed;
use kerf_testbed::actors::Actors;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NODES: usize = 50;
const CRON_JOBS: usize = 10;
const DEPLOYMENTS: usize = 10;
/// FNV-1a's start and prime, to name a log of many lines by one number.
const DIGEST: (u64, u64) = (0xcbf2_9ce4_8422_2325, 0x0000_0100_0000_01b3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let days = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(30);
    Testbed::in_virtual_time(run(days))?
}

fn template(app: &str, cpu: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app } }, "spec": { "containers": [{
        "name": "main", "image": "example.com/app:1", "resources": { "requests": { "cpu": cpu, "memory": "256Mi" } },
    }]}})
}

async fn run(days: u64) -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let testbed = Testbed::builder().start()?;
    let actors = testbed.start_actors(Actors::default());
    let client = testbed.client();
    let params = PostParams::default();
    let room = json!({ "cpu": "8", "memory": "32Gi", "pods": "110" });
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..NODES {
        let node = json!({
            "metadata": { "name": format!("node-{number:02}"), "annotations": { "kwok.x-k8s.io/node": "fake" } },
            "status": { "capacity": room, "allocatable": room },
        });
        nodes.create(&params, &serde_json::from_value(node)?).await?;
    }
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    for number in 0..DEPLOYMENTS {
        let app = format!("app-{number}");
        let deployment = json!({ "metadata": { "name": app }, "spec": {
            "replicas": 20, "selector": { "matchLabels": { "app": app } }, "template": template(&app, "500m"),
        }});
        deployments.create(&params, &serde_json::from_value(deployment)?).await?;
    }
    let daemons: Api<DaemonSet> = Api::default_namespaced(client.clone());
    let daemon = json!({ "metadata": { "name": "agent" }, "spec": {
        "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent", "100m"),
    }});
    daemons.create(&params, &serde_json::from_value(daemon)?).await?;
    let cron_jobs: Api<CronJob> = Api::default_namespaced(client.clone());
    for number in 0..CRON_JOBS {
        let name = format!("hourly-{number}");
        let mut template = template(&name, "250m");
        template["spec"]["restartPolicy"] = "Never".into();
        template["metadata"]["annotations"] = json!({ "testbed.kerf.sh/runs-for": "300" });
        let cron_job = json!({ "metadata": { "name": name }, "spec": {
            "schedule": format!("{} * * * *", number * 5),
            "jobTemplate": { "spec": { "template": template } },
        }});
        cron_jobs.create(&params, &serde_json::from_value(cron_job)?).await?;
    }
    // Each day a deployment breathes, and a node dies for an hour.
    for day in 0..days {
        let app = format!("app-{}", day % DEPLOYMENTS as u64);
        let node = format!("node-{:02}", day % NODES as u64);
        for (hour, replicas) in [(8, 40), (20, 20)] {
            tokio::time::sleep(Duration::from_hours(hour - if hour == 20 { 8 } else { 0 })).await;
            let scale = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
            deployments.patch(&app, &PatchParams::default(), &scale).await?;
        }
        actors.kill_node(&node);
        tokio::time::sleep(Duration::from_hours(1)).await;
        actors.revive_node(&node);
        tokio::time::sleep(Duration::from_hours(3)).await;
    }
    let pods: Api<Pod> = Api::default_namespaced(client);
    let running = pods.list(&ListParams::default().fields("status.phase=Running")).await?;
    let log = testbed.event_log();
    let digest = log
        .to_string()
        .bytes()
        .fold(DIGEST.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(DIGEST.1));
    if let Some(file) = std::env::args().nth(2) {
        std::fs::write(file, log.to_string())?;
    }
    println!("{days} days of {NODES} nodes: {:.2?} of real time", started.elapsed());
    println!(
        "{} pods running at the end, {} writes, log {digest:016x}",
        running.items.len(),
        log.entries().len()
    );
    println!("memory: {}", memory::most_held());
    Ok(())
}
