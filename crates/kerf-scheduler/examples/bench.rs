//! Times the scheduler on one input and prints one line of JSON.
//!
//! ```text
//! bench diverse <pods.csv>     pods as `kind,label,selector,cpu,memory`, new nodes only
//! bench preferences <count>    pods with a node preference and two preferred anti-affinities
//! bench existing <nodes> <pods.csv>   the pods of the file onto nodes with ten pods each
//! ```
//!
//! Pods come from Kubernetes objects, but reading them is not timed: an operator has read them long before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::serde_json::{Value, from_value, json};
use kerf_model::labels::{
    ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, KnownLabels, ON_DEMAND, OS, SPOT, ZONE,
};
use kerf_model::{
    InstanceType, Node, Offering, Overhead, Pod, Pool, Price, Quantity, Requirement, Requirements,
    Resources, Snapshot,
};
use kerf_scheduler::{Options, Plan, schedule};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let snapshot = match words.as_slice() {
        ["diverse", file] => snapshot(diverse(file), Vec::new()),
        ["preferences", count] => snapshot(preferences(number(count)), Vec::new()),
        ["existing", nodes, file] => snapshot(diverse(file), existing(number(nodes))),
        _ => {
            eprintln!(
                "usage: bench diverse <pods.csv> | preferences <count> | existing <nodes> <pods.csv>"
            );
            std::process::exit(2);
        }
    };
    let before = peak_mib();
    let mut best = Duration::MAX;
    let mut plan = Plan::default();
    for _ in 0..5 {
        drop(std::mem::take(&mut plan));
        let start = Instant::now();
        plan = schedule(&snapshot, &Options::default());
        best = best.min(start.elapsed());
    }
    let on_nodes: usize = plan.placements.iter().map(|placement| placement.pods.len()).sum();
    let result = json!({
        "name": words.join(" "),
        "pods": snapshot.pods.len(),
        "seconds": best.as_secs_f64(),
        "pods_per_s": snapshot.pods.len() as f64 / best.as_secs_f64(),
        "claims": plan.claims.len(),
        "on_existing_nodes": on_nodes,
        "failures": plan.failures.len(),
        "price": plan.price().as_f64(),
        "input_peak_mib": before,
        "peak_mib": peak_mib(),
    });
    println!("{result}");
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| {
        eprintln!("{text:?} is not a number");
        std::process::exit(2);
    })
}

/// The most memory that this process has had, where the system tells.
fn peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

fn snapshot(pods: Vec<Arc<Pod>>, nodes: Vec<Arc<Node>>) -> Snapshot {
    let pool = Pool {
        name: "bench".to_owned(),
        instance_types: (0..400).map(instance_type).collect(),
        limits: amounts(&[("cpu", "10M"), ("memory", "10000000Gi")]),
        ..Pool::default()
    };
    Snapshot {
        labels: Arc::new(known_labels()),
        pools: vec![Arc::new(pool)],
        pods,
        nodes,
        ..Snapshot::default()
    }
}

fn known_labels() -> KnownLabels {
    let mut labels = KnownLabels::default();
    labels.well_known.extend(["size", "special", "integer"].map(str::to_owned));
    labels
}

fn amounts(list: &[(&str, &str)]) -> Resources {
    list.iter().map(|(name, amount)| (*name, amount.parse().expect("an amount"))).collect()
}

fn instance_type(at: i64) -> Arc<InstanceType> {
    let (cpu, memory) = (at + 1, 2 * (at + 1) * (1 << 30));
    let name = format!("fake-it-{at}");
    let large = cpu > 4 && memory > 8 << 30;
    let requirements = Requirements::new([
        Requirement::is_in(INSTANCE_TYPE, [&name]),
        Requirement::is_in(ARCH, ["amd64"]),
        Requirement::is_in(OS, ["linux", "windows", "darwin"]),
        Requirement::is_in(ZONE, ["test-zone-1", "test-zone-2", "test-zone-3"]),
        Requirement::is_in(CAPACITY_TYPE, [SPOT, ON_DEMAND]),
        Requirement::is_in("integer", [cpu.to_string()]),
        Requirement::is_in("size", [if large { "large" } else { "small" }]),
        if large {
            Requirement::is_in("special", ["optional"])
        } else {
            Requirement::does_not_exist("special")
        },
    ]);
    // A tenth of a dollar per core and per 10^9 bytes.
    let price = Price::from_ten_billionths(cpu * 1_000_000_000 + memory);
    let offerings = [(SPOT, 1), (SPOT, 2), (ON_DEMAND, 1), (ON_DEMAND, 2), (ON_DEMAND, 3)]
        .map(|(capacity_type, zone)| Offering {
            requirements: Requirements::new([
                Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
                Requirement::is_in(ZONE, [format!("test-zone-{zone}")]),
            ]),
            price,
            available: true,
            ..Offering::default()
        })
        .to_vec();
    let capacity = Resources::new()
        .with("cpu", Quantity::from_units(cpu))
        .with("memory", Quantity::from_bytes(memory))
        .with("pods", Quantity::from_units(10 * cpu));
    let overhead = Overhead {
        kube_reserved: amounts(&[("cpu", "100m"), ("memory", "10Mi")]),
        ..Overhead::default()
    };
    Arc::new(InstanceType::new(name, requirements, offerings, capacity, overhead))
}

fn diverse(file: &str) -> Vec<Arc<Pod>> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| {
        eprintln!("reading {file}: {error}");
        std::process::exit(1);
    });
    text.lines().skip(1).enumerate().map(|(at, line)| diverse_pod(at, line)).collect()
}

fn diverse_pod(at: usize, line: &str) -> Arc<Pod> {
    let fields: Vec<_> = line.split(',').collect();
    let [kind, label, selector, cpu, memory] = fields[..] else { panic!("line {at}: {line:?}") };
    let spread = |key: &str| {
        json!([{"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"my-label": selector}}}])
    };
    let term = |key: &str, label: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": {"matchLabels": label}}]});
    let (labels, mut spec) = match kind {
        "generic" => (json!({"my-label": label}), json!({})),
        "spread:topology.kubernetes.io/zone" => {
            (json!({"my-label": label}), json!({"topologySpreadConstraints": spread(ZONE)}))
        }
        "spread:kubernetes.io/hostname" => {
            (json!({"my-label": label}), json!({"topologySpreadConstraints": spread(HOSTNAME)}))
        }
        "affinity" => (
            json!({"my-affininity": label}),
            json!({"affinity": {"podAffinity": term(ZONE, json!({"my-affininity": label}))}}),
        ),
        "anti" => (
            json!({"app": "nginx"}),
            json!({"affinity": {"podAntiAffinity": term(HOSTNAME, json!({"app": "nginx"}))}}),
        ),
        _ => panic!("line {at}: {kind:?} is not a kind of pod"),
    };
    spec["containers"] =
        json!([{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]);
    pod(&format!("pod-{at:05}"), &labels, &spec, &json!([]))
}

fn preferences(count: usize) -> Vec<Arc<Pod>> {
    let anti = |key: &str, weight: i32| json!({"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "nginx"}}}});
    let spec = json!({
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}],
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["test-zone-1"]}]}}]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [anti(ZONE, 10), anti(HOSTNAME, 1)]},
        },
    });
    (0..count)
        .map(|at| pod(&format!("pod-{at:05}"), &json!({"app": "nginx"}), &spec, &json!([])))
        .collect()
}

/// Full nodes of ten cores with ten pods each.
fn existing(count: usize) -> Vec<Arc<Node>> {
    const CPU: [usize; 10] = [100, 250, 500, 1000, 1500, 1500, 1500, 1000, 1300, 1250];
    const MEMORY: [usize; 10] = [100, 256, 512, 1024, 2048, 2048, 2048, 1024, 2048, 1024];
    (0..count)
        .map(|j| {
            let name = format!("node-{j:05}");
            let pods = (0..10)
                .map(|k| {
                    let delta = 5 * ((7 * j + 13 * (k / 2)) % 10);
                    let cpu = if k % 2 == 0 { CPU[k] + delta } else { CPU[k] - delta };
                    let memory = MEMORY[k] + 4 * ((11 * j + 17 * k) % 16);
                    let label = &"abcdefg"[(j + k) % 7..=(j + k) % 7];
                    let spec = json!({"nodeName": name, "containers": [{"name": "c", "resources":
                        {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}}]});
                    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}]);
                    pod(&format!("{name}-{k}"), &json!({"my-label": label}), &spec, &owner)
                })
                .collect();
            let labels: BTreeMap<_, _> = [
                (HOSTNAME, name.clone()),
                (ZONE, format!("test-zone-{}", j % 3 + 1)),
                (INSTANCE_TYPE, "fake-it-9".to_owned()),
                (CAPACITY_TYPE, ON_DEMAND.to_owned()),
                (ARCH, "amd64".to_owned()),
                (OS, "linux".to_owned()),
            ]
            .map(|(key, value)| (key.to_owned(), value))
            .into();
            Arc::new(Node {
                claim: Some(name.clone()),
                pool: Some("bench".to_owned()),
                name,
                labels,
                capacity: amounts(&[("cpu", "10"), ("memory", "20Gi"), ("pods", "100")]),
                allocatable: amounts(&[("cpu", "9900m"), ("memory", "20470Mi"), ("pods", "100")]),
                pods,
                initialized: true,
                exists: true,
                ..Node::default()
            })
        })
        .collect()
}

fn pod(name: &str, labels: &Value, spec: &Value, owners: &Value) -> Arc<Pod> {
    let object: k8s::Pod = from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels, "ownerReferences": owners},
        "spec": spec,
        "status": {"phase": "Pending"},
    }))
    .expect("a pod");
    Arc::new(Pod::from_api(&object, &known_labels()).expect("a readable pod"))
}
