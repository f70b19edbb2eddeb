//! Times the scheduler on one input and prints one line of JSON.
//!
//! ```text
//! bench diverse <pods.csv>     pods as `kind,label,selector,cpu,memory`, new nodes only
//! bench preferences <count>    pods with a node preference and two preferred anti-affinities
//! bench existing <nodes> <pods.csv>   the pods of the file onto nodes with ten pods each
//! bench probe <tight|diverse|loose|mixed> <nodes> [threads]   each node in turn: can it go?
//! ```
//!
//! Pods come from Kubernetes objects, but reading them is not timed: an operator has read them long before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use kerf_scheduler::{Leaving, Options, Plan, Prober, Stop, schedule};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let snapshot = match words.as_slice() {
        ["diverse", file] => snapshot(diverse(file), Vec::new()),
        ["preferences", count] => snapshot(preferences(number(count)), Vec::new()),
        ["existing", nodes, file] => snapshot(diverse(file), existing(number(nodes), "tight")),
        ["probe", kind, nodes, threads @ ..] => {
            let cluster = snapshot(Vec::new(), existing(number(nodes), kind));
            let threads = threads.first().map_or(2, |threads| number(threads));
            return probe(&words.join(" "), &cluster, threads);
        }
        _ => {
            eprintln!(
                "usage: bench diverse <pods.csv> | preferences <count> | existing <nodes> <pods.csv> | probe <kind> <nodes> [threads]"
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

/// One pass of single-node consolidation: whether all pods of a node go elsewhere or to one cheaper node.
fn probe(name: &str, snapshot: &Snapshot, threads: usize) {
    let before = peak_mib();
    let start = Instant::now();
    let prober = Prober::new(snapshot, &Options::default());
    let prepared = start.elapsed();
    let price = |node: &Node| {
        let types = &snapshot.pools[0].instance_types;
        let one = types
            .iter()
            .find(|one| Some(one.name()) == node.labels.get(INSTANCE_TYPE).map(String::as_str));
        one.map(|one| one.offerings()[0].price)
    };
    let next = AtomicUsize::new(0);
    let (deleted, replaced, stopped, lost) = std::thread::scope(|scope| {
        let work = || {
            let mut counts = (0, 0, 0, 0);
            loop {
                let node = next.fetch_add(1, Ordering::Relaxed);
                let Some(candidate) = snapshot.nodes.get(node) else { return counts };
                let pods: Vec<_> = (0..candidate.pods.len()).collect();
                let stop = Stop { max_new_claims: Some(1), price_below: price(candidate) };
                let plan = prober.probe(&[Leaving { node, pods: &pods }], &stop);
                match () {
                    () if plan.stopped.is_some() => counts.2 += 1,
                    () if plan.losses().next().is_some() => counts.3 += 1,
                    () if plan.claims.is_empty() => counts.0 += 1,
                    () => counts.1 += 1,
                }
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread"))
            .fold((0, 0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2, a.3 + b.3))
    });
    let all = start.elapsed();
    let result = json!({
        "name": name,
        "nodes": snapshot.nodes.len(),
        "seconds": all.as_secs_f64(),
        "of_that_preparing": prepared.as_secs_f64(),
        "micros_per_probe": all.saturating_sub(prepared).as_secs_f64() * 1e6 / snapshot.nodes.len() as f64,
        "deleted": deleted,
        "replaced": replaced,
        "stopped": stopped,
        "lost": lost,
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

/// Nodes of ten cores with ten pods each: full ones (`tight`), with constraints (`diverse`), half full (`loose`), or
/// every tenth half full (`mixed`).
fn existing(count: usize, kind: &str) -> Vec<Arc<Node>> {
    const CPU: [usize; 10] = [100, 250, 500, 1000, 1500, 1500, 1500, 1000, 1300, 1250];
    const MEMORY: [usize; 10] = [100, 256, 512, 1024, 2048, 2048, 2048, 1024, 2048, 1024];
    const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    (0..count)
        .map(|j| {
            let name = format!("node-{j:05}");
            let kept = if kind == "mixed" && j % 10 == 0 { 5 } else { 10 };
            let pods = (0..kept)
                .map(|k| {
                    let delta = 5 * ((7 * j + 13 * (k / 2)) % 10);
                    let cpu = if k % 2 == 0 { CPU[k] + delta } else { CPU[k] - delta };
                    let cpu = if kind == "loose" { cpu / 2 } else { cpu };
                    let memory = MEMORY[k] + 4 * ((11 * j + 17 * k) % 16);
                    let mut labels = json!({"my-label": LETTERS[(j + k) % 7]});
                    let mut spec = json!({"nodeName": name, "containers": [{"name": "c", "resources":
                        {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}}]});
                    if kind == "diverse" {
                        constrain(j, k, &mut labels, &mut spec);
                    }
                    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}]);
                    pod(&format!("{name}-{k}"), &labels, &spec, &owner)
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

/// The constraints of the last four pods of node `j`.
fn constrain(j: usize, k: usize, labels: &mut Value, spec: &mut Value) {
    let letter = |at: usize| &"abcdefg"[at % 7..=at % 7];
    let (key, value) = match k {
        6 => ("zs", letter(j / 3)),
        7 => ("hs", letter(j)),
        8 => {
            let own: &[&str] = [&["a", "b"][..], &["c", "d"], &["e", "f", "g"]][j % 3];
            ("af", own[j / 3 % own.len()])
        }
        9 => ("app", "nginx"),
        _ => return,
    };
    labels[key] = json!(value);
    let selector = json!({"matchLabels": {key: value}});
    let spread = |topology: &str| json!([{"topologyKey": topology, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
    let term = |topology: &str| json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": topology, "labelSelector": selector}]});
    match k {
        6 => spec["topologySpreadConstraints"] = spread(ZONE),
        7 => spec["topologySpreadConstraints"] = spread(HOSTNAME),
        8 => spec["affinity"] = json!({"podAffinity": term(ZONE)}),
        _ => spec["affinity"] = json!({"podAntiAffinity": term(HOSTNAME)}),
    }
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
