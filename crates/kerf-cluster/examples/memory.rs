//! What the index weighs and what a snapshot of it costs: `cargo run --release -p kerf-cluster --example memory`.
//! With `-- whole`: what the pods would weigh if all of them were kept.
//!
//! Pods are read from the JSON that an API server sends for an ordinary pod of a web service, one by one, as a watch does.

use std::{fs, hint::black_box, time::Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_cluster::{Cluster, snapshot::Inputs};
use serde_json::json;

const POD: &str = include_str!("pod.json");
const PODS: usize = 50_000;
const NODES: usize = 5_000;
/// Pods of one workload ask for the same.
const PODS_PER_WORKLOAD: usize = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In a process of its own: memory that was given back would be used again below.
    if std::env::args().nth(1).as_deref() == Some("whole") {
        let before = resident()?;
        let whole: Vec<Pod> = (0..PODS).map(pod).collect::<Result<_, _>>()?;
        println!("kept whole: {} bytes per pod", (resident()? - before) / PODS);
        black_box(whole);
        return Ok(());
    }
    let mut cluster = Cluster::default();
    let before = resident()?;
    for number in 0..NODES {
        cluster.apply(node(number)?);
    }
    let nodes = resident()?;
    for number in 0..PODS {
        cluster.apply(pod(number)?);
    }
    let pods = resident()?;
    println!("kept in the index: {} bytes per pod", (pods - nodes) / PODS);
    println!("kept in the index: {} bytes per node", (nodes - before) / NODES);

    let now = Timestamp::now();
    for which in ["first", "second", "third"] {
        let begin = Instant::now();
        let taken = cluster.snapshot(Inputs::at(now))?;
        println!("{which} snapshot of {NODES} nodes and {PODS} pods: {:?}", begin.elapsed());
        black_box(taken);
    }
    let views = resident()?;
    println!("kept for snapshots: {} bytes per pod", (views - pods) / PODS);
    cluster.apply(pod(0)?);
    let begin = Instant::now();
    black_box(cluster.snapshot(Inputs::at(now))?);
    println!("snapshot after one pod changed: {:?}", begin.elapsed());
    Ok(())
}

fn pod(number: usize) -> Result<Pod, serde_json::Error> {
    let workload = number / PODS_PER_WORKLOAD;
    let text = POD
        .replace("x2x9v", &format!("{number:05}"))
        .replace("0c8de1a7a0c1", &format!("{number:012}"))
        .replace("7c9d8f6b5", &format!("7c9d8{workload:04}"))
        .replace("node-1", &format!("node-{}", number % NODES));
    serde_json::from_str(&text)
}

fn node(number: usize) -> Result<Node, serde_json::Error> {
    let name = format!("node-{number}");
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "labels": {
            "topology.kubernetes.io/zone": "zone-a", "kubernetes.io/hostname": name,
        }},
        "spec": {"providerID": format!("cloud://{name}")},
        "status": {
            "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "allocatable": {"cpu": "15", "memory": "60Gi", "pods": "110"},
            "images": (0..50).map(|image| json!({
                "names": [format!("registry.example.com/image-{image}@sha256:{}", "ab".repeat(32))],
                "sizeBytes": 1_000_000,
            })).collect::<Vec<_>>(),
        },
    }))
}

/// What the process has of the machine's memory, in bytes.
fn resident() -> Result<usize, Box<dyn std::error::Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kilobytes = line.split_whitespace().nth(1).ok_or("no number")?;
    Ok(kilobytes.parse::<usize>()? * 1024)
}
