//! `arrival CASE MACHINE BATCHING SEED NODE-READY` lets a thousand pods arrive in a cluster without nodes, waits until nothing happens
//! any more, and prints a line of JSON. `cargo xtask bench arrival` starts it.
#![expect(clippy::expect_used, reason = "what is wrong here ends the measurement")]

use std::{collections::BTreeMap, time::Duration};

use kerf_simulation::{BASELINE, DecisionKind, Play, Policy, Scenario};
use kerf_testbed::{
    Random, Testbed,
    actors::{ClientPace, Pause, RUNS_FOR},
};
use serde_json::{Value, json};

const PODS: usize = 1000;
/// How exactly times are measured.
const STEP: Duration = Duration::from_millis(100);
/// A cluster in which nothing has happened for so long is at rest.
const REST: Duration = Duration::from_mins(5);
const AT_MOST: Duration = Duration::from_hours(2);
/// Decisions that are shown of a cluster that does not come to rest.
const LAST: usize = 10;
/// `kubectl apply` writes one object after the other.
const BETWEEN_OBJECTS: Duration = Duration::from_millis(20);

/// The requests of upstream's benchmark, from which each workload draws.
const CPU: [&str; 5] = ["100m", "250m", "500m", "1", "1500m"];
const MEMORY: [&str; 6] = ["100Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi"];

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [case, machine, batching, seed, node_ready] = &arguments[..] else {
        panic!("write: arrival CASE MACHINE BATCHING SEED NODE-READY");
    };
    let seed = seed.parse().expect("the seed is a number");
    let run = Testbed::in_virtual_time(play(case, machine, batching, seed, node_ready));
    println!("{}", run.expect("there is a runtime"));
}

/// What the cluster looks like, as far as it comes to rest.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    nodes: usize,
    launched: u64,
    evictions: u64,
    decisions: usize,
    running: usize,
    pending: usize,
}

impl Look {
    fn at(play: &Play) -> Self {
        let ledger = play.ledger();
        Self {
            nodes: ledger.nodes().len(),
            launched: ledger.totals().launched,
            evictions: ledger.totals().evictions,
            // That nothing can be done about a node is said again every few minutes.
            decisions: ledger
                .decisions()
                .iter()
                .filter(|it| it.kind != DecisionKind::Refuse)
                .count(),
            running: ledger.running_pods(),
            pending: ledger.pending_pods(),
        }
    }
}

async fn play(case: &str, machine: &str, batching: &str, seed: u64, node_ready: &str) -> Value {
    let yaml = format!(
        "length: 3h
timing: {{nodeReady: {node_ready}, podStart: 1s, podTerminate: 1s}}
pools:
- name: default
  spec: {{template: {{spec: {{requirements: [
    {{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}},
    {{key: kubernetes.io/arch, operator: In, values: [amd64]}},
    {{key: kubernetes.io/os, operator: In, values: [linux]}}]}}}}}}
workloads: []
"
    );
    let mut scenario = Scenario::from_yaml(&yaml, "arrival").expect("the scenario can be read");
    (scenario.seed, scenario.pace) = (seed, pace(machine));
    let mut play = Play::start(&scenario, &policy(machine, batching)).await.expect("it starts");
    let begin = play.elapsed();
    for object in objects(case, seed) {
        play.create(&object).await.expect("the object is valid");
        play.until(play.elapsed() + BETWEEN_OBJECTS).await.expect("it goes on");
    }
    let since = |play: &Play| play.elapsed().saturating_sub(begin).as_secs_f64();
    let mut line = json!({"case": case, "machine": machine, "batching": batching, "seed": seed});
    let (mut last, mut changed) = (Look::at(&play), play.elapsed());
    while play.elapsed() < changed + REST && play.elapsed() < AT_MOST {
        play.until(play.elapsed() + STEP).await.expect("it goes on");
        let look = Look::at(&play);
        if look != last {
            (last, changed) = (look, play.elapsed());
        }
        if line["arrived"].is_null() && look.running + look.pending >= PODS {
            line["arrived"] = since(&play).into();
        }
        if line["end"].is_null() && look.running >= PODS {
            line["end"] = figures(&play, since(&play));
            line["waits"] = json!([0.5, 0.99].map(|part| quantile(play.ledger().waits(), part)));
        }
    }
    line["rest"] = figures(&play, changed.saturating_sub(begin).as_secs_f64());
    let is_at_rest = last.running == PODS && play.elapsed() < AT_MOST;
    line["isAtRest"] = is_at_rest.into();
    if !is_at_rest {
        // What it does all the time.
        let last = play.ledger().decisions().iter().rev().take(LAST);
        line["last"] = last.map(|one| format!("{} {}", one.at, one.text)).collect();
        line["pending"] = play.ledger().pending_pods().into();
    }
    line
}

fn figures(play: &Play, seconds: f64) -> Value {
    let Look { nodes, launched, evictions, .. } = Look::at(play);
    let price = play.ledger().price_per_hour().as_f64();
    json!({"seconds": seconds, "nodes": nodes, "price": price, "launched": launched, "evictions": evictions})
}

/// In seconds.
fn quantile(waits: &BTreeMap<i64, u64>, part: f64) -> f64 {
    let all: u64 = waits.values().sum();
    let mut seen = 0;
    let found = waits.iter().find(|(_, count)| {
        seen += **count;
        seen as f64 >= all as f64 * part
    });
    found.map_or(0.0, |(ms, _)| *ms as f64 / 1000.0)
}

fn pace(machine: &str) -> Option<ClientPace> {
    let quiet = ClientPace::default();
    match machine {
        "at-once" => None,
        "quiet" => Some(quiet),
        // A second of work, and then two for others.
        "busy" => {
            let lasts = jiff::SignedDuration::from_secs(2);
            Some(ClientPace { burst: 1, pause: Some(Pause { after: 20, lasts }), ..quiet })
        }
        other => panic!("the machine is at-once, quiet or busy, not {other}"),
    }
}

/// Karpenter's consolidation. For the price of planning all at once there is none: nothing is to be tidied up.
fn policy(machine: &str, batching: &str) -> Policy {
    let name = if machine == "at-once" { BASELINE } else { "parity" };
    let mut policy = Policy::named(&[name.to_owned()], &[]).expect("it is built in").remove(0);
    let (batching, packing) =
        batching.split_once('+').map_or((batching, false), |(way, with)| (way, with == "packing"));
    let (how, max) = batching.split_once('-').unwrap_or((batching, "10s"));
    policy.operator.insert("packing".to_owned(), json!(packing));
    policy.operator.insert("owner-aware-batching".to_owned(), json!(how == "owners"));
    policy.operator.insert("batch-max-duration".to_owned(), json!(max));
    policy
}

/// A thousand pods. Each workload has its own requests, which follow from the seed.
fn objects(case: &str, seed: u64) -> Vec<Value> {
    let mut random = Random::seeded(seed);
    let mut of = |kind: &str, name: String, pods: usize| {
        let cpu = CPU[usize::try_from(random.below(5)).expect("it is small")];
        let memory = MEMORY[usize::try_from(random.below(6)).expect("it is small")];
        workload(kind, &name, pods, &json!({"cpu": cpu, "memory": memory}))
    };
    match case {
        "ten" => (0..10).map(|at| of("Deployment", format!("web-{at}"), 100)).collect(),
        "one" => vec![of("Deployment", "web".to_owned(), PODS)],
        "fifty" => (0..50).map(|at| of("Deployment", format!("web-{at:02}"), 20)).collect(),
        "mixed" => [of("StatefulSet", "store".to_owned(), 200)]
            .into_iter()
            .chain((0..8).map(|at| of("Job", format!("batch-{at}"), 100)).collect::<Vec<_>>())
            .collect(),
        other => panic!("the case is ten, one, fifty or mixed, not {other}"),
    }
}

fn workload(kind: &str, name: &str, pods: usize, requests: &Value) -> Value {
    let labels = json!({"app": name});
    let container =
        json!({"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let metadata = json!({"name": name, "namespace": "default"});
    let selector = json!({"matchLabels": labels});
    match kind {
        "Job" => {
            let mut template = template;
            template["spec"]["restartPolicy"] = "Never".into();
            template["metadata"]["annotations"] = json!({RUNS_FOR: "24h"});
            json!({
                "apiVersion": "batch/v1", "kind": kind, "metadata": metadata,
                // Pods that are evicted count as failures, and are to be made again.
                "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 100_000, "template": template},
            })
        }
        "StatefulSet" => json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": metadata,
            "spec": {
                "replicas": pods, "selector": selector, "template": template, "serviceName": name,
                "podManagementPolicy": "Parallel",
            },
        }),
        _ => json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": metadata,
            "spec": {"replicas": pods, "selector": selector, "template": template},
        }),
    }
}
