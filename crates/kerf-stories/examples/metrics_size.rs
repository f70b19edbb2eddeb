//! How large `/metrics` is, family by family, beside what Karpenter has for the same objects; how much memory a scrape
//! takes, and how long it keeps the watches waiting.
//!
//! `cargo run -p kerf-stories --example metrics_size -- [nodes] [pods]`
//!
//! The objects are written to an API server in this process, and an operator watches them that never leads: nothing of what
//! is counted is its own doing.

use std::{
    alloc::System,
    collections::BTreeMap,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kerf_api::{NodeClaim, NodePool};
use kerf_controllers::window::Window;
use kerf_runtime::Metrics;
use kerf_simulation::OperatorHandle;
use kerf_stories::{
    build,
    series::{Objects, sizes},
};
use kerf_testbed::Testbed;
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Of the pods on each node, those that belong to a DaemonSet.
const DAEMONS: usize = 2;
/// How often the delay of a change is measured, without and with a scrape under way.
const SCRAPES: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let nodes = numbers.next().unwrap_or(390);
    let pods = numbers.next().unwrap_or(5_200);
    Testbed::in_virtual_time(run(nodes, pods))?
}

async fn run(nodes: usize, pods: usize) -> Result<(), Box<dyn Error>> {
    let testbed = Testbed::builder().start()?;
    let objects = fill(&testbed.client(), nodes, pods).await?;
    let standby = OperatorHandle::stand_by(&testbed, Window::default()).await;
    let metrics = standby.metrics.clone();

    println!("{nodes} nodes, {pods} pods");
    compare(&objects, &metrics.text());
    let (took, peak) = memory_of_a_scrape(&metrics);
    println!("a scrape takes {took:.2?} and {:.1} MB of memory at most", megabytes(peak));
    delays(&testbed.client(), &metrics).await?;
    Ok(standby.stop().await??)
}

/// Every object as it is in a cluster at rest.
async fn fill(client: &Client, nodes: usize, pods: usize) -> Result<Objects, Box<dyn Error>> {
    let mut objects = Objects::default();
    let conditions = |types: &[&str]| -> Value {
        let one = |kind: &&str| {
            let status = if kind.ends_with("Pressure") { "False" } else { "True" };
            json!({"type": kind, "status": status, "reason": kind, "message": "",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        types.iter().map(one).collect()
    };
    let pool = build::pool("general", &json!({}));
    let said = conditions(&["ValidationSucceeded", "NodeClassReady", "Ready"]);
    let status = json!({"status": {"conditions": said}});
    objects.pools.push(put(&Api::<NodePool>::all(client.clone()), &pool, &status).await?);
    let room = json!({"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"});
    for number in 0..nodes {
        let (name, id) = (format!("general-{number:05}"), format!("kwok://general-{number:05}"));
        let labels = json!({
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "c-16x-amd64-linux",
            "topology.kubernetes.io/zone": format!("test-zone-{}", number % 3),
            "karpenter.sh/capacity-type": "on-demand",
            "karpenter.sh/nodepool": "general",
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
            "karpenter.kwok.sh/kwoknodeclass": "default",
        });
        let mut claim = build::claim(&name, &json!({}));
        claim.metadata.labels = serde_json::from_value(labels.clone())?;
        let said =
            conditions(&["Launched", "Registered", "Initialized", "Consolidatable", "Ready"]);
        let status = json!({"status": {
            "providerID": id, "nodeName": name, "capacity": room, "allocatable": room,
            "conditions": said,
        }});
        objects.claims.push(put(&Api::<NodeClaim>::all(client.clone()), &claim, &status).await?);
        let node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels}, "spec": {"providerID": id},
        }))?;
        let pressures = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
        let status = json!({"status": {
            "capacity": room, "allocatable": room, "conditions": conditions(&pressures),
        }});
        objects.nodes.push(put(&Api::<Node>::all(client.clone()), &node, &status).await?);
    }
    let status = json!({"status": {
        "phase": "Running", "conditions": [
            {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"},
        ],
    }});
    for number in 0..pods {
        let kind = if number < DAEMONS * nodes { "DaemonSet" } else { "ReplicaSet" };
        let app = format!("{}-{}", kind.to_lowercase(), number % 20);
        let pod = serde_json::from_value(json!({
            "metadata": {"name": format!("{app}-{number:05}"), "namespace": "default",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": app, "uid": app}]},
            "spec": {"nodeName": format!("general-{:05}", number % nodes), "containers": [{
                "name": "main", "image": "example.com/app:1",
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "256Mi"}},
            }]},
        }))?;
        objects
            .pods
            .push(put(&Api::<Pod>::default_namespaced(client.clone()), &pod, &status).await?);
    }
    Ok(objects)
}

async fn put<K>(api: &Api<K>, object: &K, status: &Value) -> kube::Result<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let made = api.create(&PostParams::default(), object).await?;
    let name = made.meta().name.as_deref().unwrap_or_default();
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await
}

fn compare(objects: &Objects, text: &str) {
    let karpenter = objects.at_most();
    let ours: BTreeMap<_, _> = sizes(text);
    println!("{:<66} {:>8} {:>8} {:>10}", "family", "series", "Karpenter", "bytes");
    for (name, size) in ours.iter().filter(|(_, size)| size.series > 0) {
        let upstream = karpenter.get(name.as_str()).map_or("-".to_owned(), usize::to_string);
        println!("{name:<66} {:>8} {upstream:>8} {:>10}", size.series, size.bytes);
    }
    let of_ours = |name: &str| ours.get(name).map_or(0, |size| size.series);
    let scaling: usize = karpenter.keys().map(|name| of_ours(name)).sum();
    println!(
        "in families that grow with pods or nodes: {scaling} series, Karpenter {}",
        karpenter.values().sum::<usize>()
    );
    let all: usize = ours.values().map(|size| size.series).sum();
    println!("in all: {all} series, {:.2} MB", megabytes(text.len()));
}

/// How long a scrape takes, and by how much it raises what is allocated.
fn memory_of_a_scrape(metrics: &Metrics) -> (Duration, usize) {
    let held = || {
        let stats = MEMORY.stats();
        stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
    };
    let (begin, before, mut peak) = (Instant::now(), held(), 0);
    metrics.write(|_| {
        peak = peak.max(held().saturating_sub(before));
        Ok(())
    });
    (begin.elapsed(), peak)
}

/// The longest that a change of a pod takes to be in the index, without and with a scrape under way. The watch runs on the
/// thread of this loop: while it waits for the index, so does the loop.
async fn delays(client: &Client, metrics: &Metrics) -> Result<(), Box<dyn Error>> {
    let scraping = Arc::new(AtomicBool::new(false));
    let mut longest = [Duration::ZERO; 2];
    for (with_scrapes, longest) in [false, true].into_iter().zip(&mut longest) {
        scraping.store(true, Ordering::SeqCst);
        let thread = thread::spawn({
            let (metrics, scraping) = (metrics.clone(), Arc::clone(&scraping));
            move || {
                if with_scrapes {
                    (0..SCRAPES).for_each(|_| metrics.write(|_| Ok(())));
                } else {
                    thread::sleep(Duration::from_secs(2));
                }
                scraping.store(false, Ordering::SeqCst);
            }
        });
        let api: Api<Node> = Api::all(client.clone());
        let mut number = 0;
        while scraping.load(Ordering::SeqCst) {
            number += 1;
            let change = json!({"metadata": {"annotations": {"number": number.to_string()}}});
            let begin = Instant::now();
            api.patch("general-00000", &PatchParams::default(), &Patch::Merge(change)).await?;
            // More often than there are steps from the API server to the index.
            for _ in 0..32 {
                tokio::task::yield_now().await;
            }
            *longest = (*longest).max(begin.elapsed());
        }
        thread.join().map_err(|_| "the scrape panicked")?;
        println!("{number} changes {}", if with_scrapes { "during scrapes" } else { "at rest" });
    }
    let [at_rest, during] = longest;
    println!("the longest of them: {at_rest:.2?} at rest, {during:.2?} during scrapes");
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
