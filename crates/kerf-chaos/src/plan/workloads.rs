//! Deployments, jobs, stateful sets with volumes, daemon sets, and what they ask for.
//!
//! Each can run: the pool `haven` has room for all of them, whatever becomes of the others.

use kerf_testbed::Random;
use kerf_testbed::actors::RUNS_FOR;
use serde_json::{Value, json};

use super::{Action, MINUTE, choose};

const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// At most so many at once: a run is about events, and not about size.
const MOST: usize = 9;

#[derive(Debug, Default)]
pub(super) struct Workloads {
    made: u64,
    /// Kind and name of those that are there.
    alive: Vec<(&'static str, String)>,
}

/// What workloads refer to.
pub(super) fn first() -> Vec<Value> {
    let priority = |name: &str, value: i64| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value,
        })
    };
    let disks = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disks"},
        "provisioner": "disks.kerf.sh", "volumeBindingMode": "WaitForFirstConsumer",
    });
    vec![priority("high", 1_000), priority("low", -1_000), disks]
}

impl Workloads {
    /// A new workload, perhaps with a budget.
    pub(super) fn another(&mut self, random: &mut Random) -> Vec<Value> {
        self.made += 1;
        let name = format!("w{}", self.made);
        let kind = match random.below(12) {
            0..7 => "Deployment",
            7 | 8 => "StatefulSet",
            9 => "DaemonSet",
            _ => "Job",
        };
        let replicas = 1 + random.below(9);
        let mut template = template(random, &name, kind, replicas);
        let meta = json!({"name": name, "namespace": "default"});
        let selector = json!({"matchLabels": {"app": name}});
        let object = match kind {
            "Deployment" => json!({
                "apiVersion": "apps/v1", "kind": kind, "metadata": meta,
                "spec": {"replicas": replicas, "selector": selector, "template": template},
            }),
            "StatefulSet" => {
                let volume = json!({
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"], "storageClassName": "disks",
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                });
                json!({
                    "apiVersion": "apps/v1", "kind": kind, "metadata": meta,
                    "spec": {
                        "replicas": 1 + replicas / 2, "selector": selector, "template": template,
                        "serviceName": name, "volumeClaimTemplates": [volume],
                        "podManagementPolicy": choose(random, &["OrderedReady", "Parallel"]),
                    },
                })
            }
            "DaemonSet" => {
                template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
                json!({
                    "apiVersion": "apps/v1", "kind": kind, "metadata": meta,
                    "spec": {"selector": selector, "template": template},
                })
            }
            _ => {
                template["spec"]["restartPolicy"] = json!("Never");
                let minutes = format!("{}m", 1 + random.below(30));
                template["metadata"]["annotations"][RUNS_FOR] = json!(minutes);
                json!({
                    "apiVersion": "batch/v1", "kind": kind, "metadata": meta,
                    "spec": {"parallelism": replicas, "completions": replicas, "template": template},
                })
            }
        };
        self.alive.push((kind, name.clone()));
        let mut objects = vec![object];
        if random.chance(0.35) && kind != "DaemonSet" {
            let bound = match random.below(4) {
                0 => json!({"minAvailable": replicas}),
                1 => json!({"minAvailable": "50%"}),
                _ => json!({"maxUnavailable": 1}),
            };
            let mut budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta,
                "spec": bound,
            });
            budget["spec"]["selector"] = selector;
            objects.push(budget);
        }
        objects
    }

    /// Something that a user does to a workload.
    pub(super) fn change(&mut self, random: &mut Random) -> Vec<(u64, Action)> {
        if self.alive.len() < MOST && random.chance(0.35) {
            return self.another(random).into_iter().map(|it| (0, Action::Create(it))).collect();
        }
        if self.alive.is_empty() {
            return Vec::new();
        }
        let place = usize::try_from(random.below(self.alive.len() as u64)).unwrap_or_default();
        let (kind, name) = self.alive[place].clone();
        let (kind, name) = (kind.to_owned(), name);
        if random.chance(0.2) || self.alive.len() >= MOST {
            self.alive.remove(place);
            let delete = |kind: String| (0, Action::Delete { kind, name: name.clone() });
            return vec![delete(kind), delete("PodDisruptionBudget".to_owned())];
        }
        let has_replicas = matches!(kind.as_str(), "Deployment" | "StatefulSet");
        let patch = |patch: Value| Action::Patch { kind: kind.clone(), name: name.clone(), patch };
        if has_replicas && random.chance(0.75) {
            let most = if kind == "StatefulSet" { 5 } else { 12 };
            let to = random.below(most);
            let scaled = patch(json!({"spec": {"replicas": to}}));
            if random.chance(0.3) {
                let back = patch(json!({"spec": {"replicas": 1 + random.below(6)}}));
                return vec![(0, scaled), (random.below(3 * MINUTE), back)];
            }
            return vec![(0, scaled)];
        }
        if kind == "Job" {
            return Vec::new();
        }
        // A rollout.
        let version = random.below(1_000).to_string();
        let annotations = json!({"annotations": {"version": version}});
        vec![(0, patch(json!({"spec": {"template": {"metadata": annotations}}})))]
    }
}

fn template(random: &mut Random, name: &str, kind: &str, replicas: u64) -> Value {
    let cpu = choose(random, &["100m", "250m", "500m", "1", "1", "2", "3500m", "7"]);
    let memory = choose(random, &["64Mi", "256Mi", "512Mi", "1Gi", "2Gi", "6Gi"]);
    let (cpu, memory) = if kind == "DaemonSet" { (&"50m", &"32Mi") } else { (cpu, memory) };
    let mut container = json!({
        "name": "main", "image": "main",
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    });
    let mut spec = json!({"terminationGracePeriodSeconds": choose(random, &[0, 1, 30, 30, 120])});
    let selector = json!({"matchLabels": {"app": name}});
    let spread = |key: &str, skew: u64, when: &str| {
        json!([{
            "topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": selector,
        }])
    };
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": selector});
    // One of these at most: two of them together may leave no place.
    if kind != "DaemonSet" {
        match random.below(16) {
            0 => spec["topologySpreadConstraints"] = spread(ZONE, 1, "DoNotSchedule"),
            1 => spec["topologySpreadConstraints"] = spread(HOST, 1, "DoNotSchedule"),
            2 => spec["topologySpreadConstraints"] = spread(ZONE, 2, "ScheduleAnyway"),
            3 => spec["topologySpreadConstraints"] = spread(CAPACITY_TYPE, 1, "ScheduleAnyway"),
            4 => {
                let required = json!([term(HOST)]);
                spec["affinity"] = json!({"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": required,
                }});
            }
            5 => {
                let preferred = json!([{"weight": 50, "podAffinityTerm": term(ZONE)}]);
                spec["affinity"] = json!({"podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                }});
            }
            6 if kind != "StatefulSet" => {
                let required = json!([term(ZONE)]);
                spec["affinity"] = json!({"podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": required,
                }});
            }
            7 if kind != "StatefulSet" => {
                spec["nodeSelector"] = json!({ZONE: choose(random, &ZONES)});
            }
            8 => spec["nodeSelector"] = json!({CAPACITY_TYPE: "on-demand"}),
            9 => spec["nodeSelector"] = json!({"kubernetes.io/arch": "arm64"}),
            10 => {
                let zones = [choose(random, &ZONES), choose(random, &ZONES)];
                let terms = [json!({"matchExpressions": [
                    {"key": ZONE, "operator": "NotIn", "values": zones},
                ]})];
                spec["affinity"] = json!({"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                }});
            }
            11 => container["ports"] = json!([{"containerPort": 80, "hostPort": 8_000 + replicas}]),
            _ => {}
        }
    }
    match random.below(6) {
        0 => spec["priorityClassName"] = json!("high"),
        1 => spec["priorityClassName"] = json!("low"),
        _ => {}
    }
    if random.chance(0.3) {
        spec["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]);
    }
    spec["containers"] = json!([container]);
    let mut annotations = json!({});
    if random.chance(0.15) && kind != "DaemonSet" {
        annotations["karpenter.sh/do-not-disrupt"] = json!("true");
    }
    if random.chance(0.1) {
        let cost = choose(random, &["-100", "0", "1000000", "abc"]);
        annotations["controller.kubernetes.io/pod-deletion-cost"] = json!(cost);
    }
    let labels = json!({"app": name, "can-run": "true"});
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
}
