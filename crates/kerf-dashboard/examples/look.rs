//! What a look of the page at a large cluster costs: `cargo run --release -p kerf-dashboard --example look -- [nodes] [pods]`.
//!
//! A standby watches a cluster on the testbed. The four parts of a look are timed apart: the index gives a snapshot, while the
//! operator's other tasks wait for the index; then the view is computed, written and hashed.

use std::{sync::Arc, time::Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{NodeClaim, NodePool};
use kerf_controllers::window::Window;
use kerf_dashboard::{About, Board, View};
use kerf_provider_kwok::KwokNodeClass;
use kerf_simulation::OperatorHandle;
use kerf_testbed::Testbed;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

const TYPES: [&str; 4] =
    ["c-16x-amd64-linux", "m-16x-amd64-linux", "s-32x-amd64-linux", "c-64x-amd64-linux"];

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let nodes = numbers.next().unwrap_or(5_000);
    let pods = numbers.next().unwrap_or(50_000);
    Testbed::in_virtual_time(run(nodes, pods))?
}

async fn run(nodes: usize, pods: usize) -> Result<(), Failure> {
    let testbed = Testbed::builder().start()?;
    fill(&testbed, nodes, pods).await?;
    let window = Window::watched();
    let standby = OperatorHandle::stand_by(&testbed, window.clone()).await;

    let changed: Api<Pod> = Api::default_namespaced(testbed.client());
    println!("{nodes} nodes, {pods} pods; in milliseconds:");
    println!("{:<28}{:>9}{:>9}{:>9}{:>9}", "", "snapshot", "view", "write", "in all");
    for which in ["first", "second", "after 100 pods changed", "and again"] {
        if which.ends_with("changed") || which.ends_with("again") {
            for number in 0..100 {
                let mut pod = changed.get(&format!("pod-{number}")).await?;
                pod.metadata.annotations.get_or_insert_default().insert("n".into(), which.into());
                changed.replace(&format!("pod-{number}"), &PostParams::default(), &pod).await?;
            }
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        }
        let begin = Instant::now();
        let look = window.look().await?;
        let snapshot = begin.elapsed();
        let view = View::of(&look, &[], &[], &About::default());
        let viewed = begin.elapsed();
        let body = serde_json::to_string(&view)?;
        let written = begin.elapsed();
        let milliseconds = |time: std::time::Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        println!(
            "{which:<28}{:>9}{:>9}{:>9}{:>9}   {} kB",
            milliseconds(snapshot),
            milliseconds(viewed.saturating_sub(snapshot)),
            milliseconds(written.saturating_sub(viewed)),
            milliseconds(written),
            body.len() / 1000
        );
    }
    let board = Board::new(window, About::default(), Arc::new(|_, _| None));
    let begin = Instant::now();
    board.renew().await;
    println!("a whole renewal: {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    Ok(standby.stop().await??)
}

/// Nodes of one pool with their claims, and pods that run on them.
async fn fill(testbed: &Testbed, nodes: usize, pods: usize) -> Result<(), Failure> {
    let client = testbed.client();
    let class: KwokNodeClass = serde_json::from_value(json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": {},
    }))?;
    Api::<KwokNodeClass>::all(client.clone()).create(&PostParams::default(), &class).await?;
    let reference =
        json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let pool: NodePool = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}},
    }))?;
    Api::<NodePool>::all(client.clone()).create(&PostParams::default(), &pool).await?;
    let (claims_api, nodes_api, pods_api): (Api<NodeClaim>, Api<Node>, Api<Pod>) = (
        Api::all(client.clone()),
        Api::all(client.clone()),
        Api::default_namespaced(client.clone()),
    );
    let room = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
    for number in 0..nodes {
        let name = format!("node-{number:05}");
        let labels = labels(number, &name);
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("general-{number:05}"), "labels": labels},
            "spec": {"requirements": [], "nodeClassRef": reference},
        }))?;
        let mut claim = claims_api.create(&PostParams::default(), &claim).await?;
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let conditions = ["Launched", "Registered", "Initialized"].map(condition);
        claim.status = serde_json::from_value(json!({
            "providerID": format!("kwok://{name}"), "nodeName": name, "capacity": room, "allocatable": room,
            "conditions": conditions,
        }))?;
        let of_claim = claim.metadata.name.clone().unwrap_or_default();
        claims_api.replace_status(&of_claim, &PostParams::default(), &claim).await?;
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels}, "spec": {"providerID": format!("kwok://{name}")},
            "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
        }))?;
        nodes_api.create(&PostParams::default(), &node).await?;
    }
    for number in 0..pods {
        let cpu = format!("{}m", 100 + 50 * (number % 40));
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": format!("pod-{number}"), "labels": {"app": format!("app-{}", number / 50)}},
            "spec": {
                "nodeName": format!("node-{:05}", number % nodes),
                "containers": [{"name": "main", "image": "example.com/app:1",
                                "resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}}],
            },
            "status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        }))?;
        pods_api.create(&PostParams::default(), &pod).await?;
    }
    Ok(())
}

fn labels(number: usize, name: &str) -> Value {
    json!({
        "karpenter.sh/nodepool": "general", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": TYPES[number % TYPES.len()],
        "topology.kubernetes.io/zone": format!("test-zone-{}", ["a", "b", "c"][number % 3]),
    })
}
