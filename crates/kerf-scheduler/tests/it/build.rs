//! Small clusters, written down quickly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::serde_json::{Map, Value, from_value, json};
use kerf_model::disruption::{NodeDisruption, PoolDisruption};
use kerf_model::labels::{
    ARCH, CAPACITY_TYPE, INSTANCE_TYPE, KnownLabels, ON_DEMAND, OS, SPOT, ZONE,
};
use kerf_model::snapshot::{Idle, by_name};
use kerf_model::{
    InstanceType, Node, Offering, Operator, Overhead, Pod, Pool, Price, Requirement, Requirements,
    Resources, Snapshot, Taint,
};
use kerf_scheduler::{Options, Plan, schedule};

pub(crate) const ZONES: [&str; 3] = ["test-zone-1", "test-zone-2", "test-zone-3"];
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// The provider of these tests knows two labels more than every provider does.
pub(crate) fn known_labels() -> KnownLabels {
    let mut labels = KnownLabels::default();
    labels.well_known.extend(["size", "special", "integer"].map(str::to_owned));
    labels.reservation_id = Some("test/reservation".to_owned());
    labels.well_known.insert("test/reservation".to_owned());
    labels
}

pub(crate) fn amounts(text: &str) -> Resources {
    text.split_whitespace()
        .map(|entry| entry.split_once('=').expect("name=amount"))
        .map(|(name, amount)| (name, amount.parse().expect("an amount")))
        .collect()
}

pub(crate) fn labels(text: &str) -> BTreeMap<String, String> {
    text.split_whitespace()
        .map(|entry| entry.split_once('=').expect("key=value"))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// `key In a b`, one per line or separated by `;`.
pub(crate) fn requirements(text: &str) -> Requirements {
    text.split(';')
        .filter(|part| !part.trim().is_empty())
        .map(|part| {
            let mut words = part.split_whitespace();
            let key = words.next().expect("a key");
            let operator: Operator =
                words.next().expect("an operator").parse().expect("an operator");
            let words: Vec<_> = words.collect();
            let (values, min) = match words.iter().position(|word| *word == "min") {
                Some(at) => (&words[..at], Some(words[at + 1].parse().expect("a number"))),
                None => (&words[..], None),
            };
            Requirement::new(key, operator, values.iter().copied()).with_min_values(min)
        })
        .collect()
}

#[derive(Clone)]
pub(crate) struct TypeSpec {
    pub(crate) name: String,
    pub(crate) capacity: Resources,
    pub(crate) arch: &'static str,
    pub(crate) os: Vec<&'static str>,
    pub(crate) offerings: Vec<(&'static str, &'static str)>,
    pub(crate) price: Option<f64>,
    /// Volumes of the driver `csi.test`.
    pub(crate) volumes: Option<u32>,
}

pub(crate) fn instance_type(name: &str, capacity: &str) -> TypeSpec {
    TypeSpec {
        name: name.to_owned(),
        capacity: amounts("cpu=4 memory=4Gi pods=5").overridden_by(&amounts(capacity)),
        arch: "amd64",
        os: vec!["darwin", "linux", "windows"],
        offerings: vec![
            (SPOT, ZONES[0]),
            (SPOT, ZONES[1]),
            (ON_DEMAND, ZONES[0]),
            (ON_DEMAND, ZONES[1]),
            (ON_DEMAND, ZONES[2]),
        ],
        price: None,
        volumes: None,
    }
}

impl TypeSpec {
    pub(crate) fn build(&self) -> Arc<InstanceType> {
        let cpu = self.capacity.amount("cpu").as_f64();
        let memory = self.capacity.amount("memory").as_f64();
        let gpus = ["fake.com/vendor-a", "fake.com/vendor-b"]
            .iter()
            .filter(|name| self.capacity.get(name).is_some())
            .count();
        let price = self.price.unwrap_or(0.1 * cpu + 0.1 * memory / 1e9 + gpus as f64);
        let large = cpu > 4.0 && memory > 8.0 * f64::from(1 << 30);
        let values = |pick: fn(&(&'static str, &'static str)) -> &'static str| {
            self.offerings.iter().map(pick).collect::<Vec<_>>()
        };
        let mut requirements = Requirements::new([
            Requirement::is_in(INSTANCE_TYPE, [&self.name]),
            Requirement::is_in(ARCH, [self.arch]),
            Requirement::is_in(OS, self.os.clone()),
            Requirement::is_in(CAPACITY_TYPE, values(|offering| offering.0)),
            Requirement::is_in(ZONE, values(|offering| offering.1)),
            Requirement::is_in("integer", [self.capacity.amount("cpu").to_string()]),
            Requirement::is_in("size", [if large { "large" } else { "small" }]),
        ]);
        requirements.add(if large {
            Requirement::is_in("special", ["optional"])
        } else {
            Requirement::does_not_exist("special")
        });
        let offerings = self
            .offerings
            .iter()
            .map(|(capacity_type, zone)| Offering {
                requirements: Requirements::new([
                    Requirement::is_in(CAPACITY_TYPE, [*capacity_type]),
                    Requirement::is_in(ZONE, [*zone]),
                ]),
                price: Price::from_f64(price),
                available: true,
                ..Offering::default()
            })
            .collect();
        let overhead =
            Overhead { kube_reserved: amounts("cpu=100m memory=10Mi"), ..Overhead::default() };
        let built =
            InstanceType::new(&self.name, requirements, offerings, self.capacity.clone(), overhead);
        let volumes = self.volumes.map(|volumes| ("csi.test".to_owned(), volumes));
        Arc::new(built.with_volume_limits(volumes.into_iter().collect()))
    }
}

pub(crate) fn default_types() -> Vec<Arc<InstanceType>> {
    let arm = TypeSpec {
        arch: "arm64",
        os: vec!["ios", "linux", "windows", "darwin"],
        ..instance_type("arm-instance-type", "cpu=16 memory=128Gi")
    };
    vec![
        instance_type("default-instance-type", "").build(),
        instance_type("small-instance-type", "cpu=2 memory=2Gi").build(),
        instance_type("gpu-vendor-instance-type", "fake.com/vendor-a=2").build(),
        instance_type("gpu-vendor-b-instance-type", "fake.com/vendor-b=2").build(),
        arm.build(),
        instance_type("single-pod-instance-type", "pods=1").build(),
    ]
}

/// `fake-it-i` with i+1 cores, 2(i+1) Gi and 10(i+1) pods.
pub(crate) fn many_types(count: usize) -> Vec<Arc<InstanceType>> {
    (1..=count)
        .map(|size| {
            let capacity = format!("cpu={size} memory={}Gi pods={}", 2 * size, 10 * size);
            instance_type(&format!("fake-it-{}", size - 1), &capacity).build()
        })
        .collect()
}

pub(crate) fn pool(name: &str) -> Pool {
    Pool { name: name.to_owned(), instance_types: default_types(), ..Pool::default() }
}

/// A pod in JSON, with the pieces that tests vary.
#[derive(Clone)]
pub(crate) struct PodSpec {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    spec: Map<String, Value>,
    phase: &'static str,
    owners: Value,
}

pub(crate) fn pod(name: &str) -> PodSpec {
    PodSpec {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        labels: BTreeMap::new(),
        spec: Map::new(),
        phase: "Pending",
        owners: json!([]),
    }
}

impl PodSpec {
    pub(crate) fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    pub(crate) fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    pub(crate) fn labels(mut self, text: &str) -> Self {
        self.labels = labels(text);
        self
    }

    pub(crate) fn requests(self, text: &str) -> Self {
        let requests = amounts(text).to_api();
        self.set("containers", json!([{"name": "c", "resources": {"requests": requests}}]))
    }

    pub(crate) fn selector(self, text: &str) -> Self {
        let selector = labels(text);
        self.set("nodeSelector", json!(selector))
    }

    pub(crate) fn set(mut self, field: &str, value: Value) -> Self {
        self.spec.insert(field.to_owned(), value);
        self
    }

    fn push(mut self, path: &[&str], value: Value) -> Self {
        let (list_field, parents) = path.split_last().expect("a path");
        let mut object = &mut self.spec;
        for field in parents {
            object = object
                .entry(*field)
                .or_insert_with(|| json!({}))
                .as_object_mut()
                .expect("an object");
        }
        let entries = object.entry(*list_field).or_insert_with(|| json!([]));
        entries.as_array_mut().expect("a list").push(value);
        self
    }

    pub(crate) fn tolerates(self, key: &str) -> Self {
        self.push(&["tolerations"], json!({"key": key, "operator": "Exists"}))
    }

    /// One more required node affinity term (they are alternatives).
    pub(crate) fn requires(self, text: &str) -> Self {
        let term = json!({"matchExpressions": expressions(text)});
        self.push(
            &[
                "affinity",
                "nodeAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution",
                "nodeSelectorTerms",
            ],
            term,
        )
    }

    pub(crate) fn prefers(self, weight: i32, text: &str) -> Self {
        self.push(
            &["affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"],
            json!({"weight": weight, "preference": {"matchExpressions": expressions(text)}}),
        )
    }

    pub(crate) fn spread(self, key: &str, max_skew: i32, selector: &str) -> Self {
        self.spread_with(key, max_skew, selector, &json!({}))
    }

    pub(crate) fn spread_with(
        self,
        key: &str,
        max_skew: i32,
        selector: &str,
        more: &Value,
    ) -> Self {
        let mut constraint = json!({
            "topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels(selector)},
        });
        let fields = constraint.as_object_mut().expect("an object");
        for (field, value) in more.as_object().expect("an object") {
            if value.is_null() {
                fields.remove(field);
            } else {
                fields.insert(field.clone(), value.clone());
            }
        }
        self.push(&["topologySpreadConstraints"], constraint)
    }

    pub(crate) fn affinity(self, key: &str, selector: &str) -> Self {
        self.required_term("podAffinity", pod_term(key, selector))
    }

    pub(crate) fn anti_affinity(self, key: &str, selector: &str) -> Self {
        self.required_term("podAntiAffinity", pod_term(key, selector))
    }

    pub(crate) fn required_term(self, kind: &str, term: Value) -> Self {
        self.push(&["affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"], term)
    }

    pub(crate) fn prefers_pods(self, kind: &str, weight: i32, key: &str, selector: &str) -> Self {
        let term = json!({"weight": weight, "podAffinityTerm": pod_term(key, selector)});
        self.push(&["affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution"], term)
    }

    pub(crate) fn host_port(self, port: i32) -> Self {
        self.set(
            "containers",
            json!([{"name": "c", "ports": [{"containerPort": port, "hostPort": port}]}]),
        )
    }

    pub(crate) fn volume(self, claim: &str) -> Self {
        self.push(
            &["volumes"],
            json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}),
        )
    }

    pub(crate) fn running(mut self) -> Self {
        self.phase = "Running";
        self
    }

    pub(crate) fn daemon(mut self) -> Self {
        self.owners = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
        self
    }

    pub(crate) fn build(mut self) -> Arc<Pod> {
        self.spec.entry("containers").or_insert_with(|| json!([]));
        let pod: k8s::Pod = from_value(json!({
            "metadata": {
                "name": self.name, "namespace": self.namespace, "uid": format!("{}/{}", self.namespace, self.name),
                "labels": self.labels, "ownerReferences": self.owners,
            },
            "spec": self.spec,
            "status": {"phase": self.phase},
        }))
        .expect("a pod");
        Arc::new(Pod::from_api(&pod, &known_labels()).expect("a readable pod"))
    }
}

pub(crate) fn pod_term(key: &str, selector: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": labels(selector)}})
}

fn expressions(text: &str) -> Value {
    let expressions: Vec<_> = requirements(text)
        .iter()
        .flat_map(Requirement::expressions)
        .map(|entry| json!({"key": entry.key, "operator": entry.operator.as_str(), "values": entry.values}))
        .collect();
    json!(expressions)
}

/// `count` pods of one template, named by number.
pub(crate) fn replicas(count: usize, template: &PodSpec) -> Vec<Arc<Pod>> {
    let name = template.name.clone();
    (0..count)
        .map(|at| PodSpec { name: format!("{name}-{at:03}"), ..template.clone() }.build())
        .collect()
}

pub(crate) fn node(name: &str, label_text: &str, capacity: &str) -> Node {
    let mut labels = labels(label_text);
    labels.entry(HOSTNAME.to_owned()).or_insert_with(|| name.to_owned());
    let allocatable = amounts("cpu=4 memory=4Gi pods=10").overridden_by(&amounts(capacity));
    Node {
        name: name.to_owned(),
        labels,
        capacity: allocatable.clone(),
        allocatable,
        initialized: true,
        exists: true,
        ..Node::default()
    }
}

pub(crate) fn taint(text: &str) -> Taint {
    let (key, effect) = text.split_once(':').expect("key:effect");
    Taint::new(key, "", kerf_model::Effect::parse(effect))
}

/// A cluster with these pools and pods.
pub(crate) fn cluster(pools: Vec<Pool>, pods: Vec<Arc<Pod>>) -> Snapshot {
    Snapshot {
        labels: Arc::new(known_labels()),
        pools: by_name(pools.into_iter().map(Arc::new)),
        pods,
        ..Snapshot::default()
    }
}

/// The pool of nodes that are still settling. It launches nothing.
const SETTLING: &str = "settling";

/// The node, where a pod has just come or gone.
pub(crate) fn settling(node: Node) -> Node {
    let initialized_at = Some(Snapshot::default().now);
    let disruption = NodeDisruption { initialized_at, ..node.disruption };
    Node { pool: Some(SETTLING.to_owned()), disruption, ..node }
}

pub(crate) fn with_nodes(mut snapshot: Snapshot, nodes: Vec<Node>) -> Snapshot {
    if nodes.iter().any(|node| node.pool.as_deref() == Some(SETTLING)) {
        let consolidate_after = Duration::from_mins(10).into();
        let disruption = PoolDisruption { consolidate_after, ..PoolDisruption::default() };
        let idle = Some(Idle::Deleting);
        let pool = Pool { name: SETTLING.to_owned(), idle, disruption, ..Pool::default() };
        snapshot.pools.insert(pool.name.clone(), Arc::new(pool));
    }
    snapshot.nodes = nodes.into_iter().map(Arc::new).collect();
    snapshot
}

pub(crate) fn plan(snapshot: &Snapshot) -> Plan {
    schedule(snapshot, &Options::default())
}

/// How many pods each value of a label gets, over claims and nodes, largest first. Claims that leave the label
/// open count under `?`.
pub(crate) fn spread_of(plan: &Plan, key: &str) -> Vec<usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (at, claim) in plan.claims.iter().enumerate() {
        let value = if key == HOSTNAME {
            format!("claim-{at}")
        } else {
            let only = claim.requirements.get(key).and_then(Requirement::only_value);
            only.unwrap_or("?").to_owned()
        };
        *counts.entry(value).or_default() += claim.pods.len();
    }
    for placement in &plan.placements {
        let value = placement.node.labels.get(key).cloned().unwrap_or_default();
        *counts.entry(value).or_default() += placement.pods.len();
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

/// The cheapest type of each claim, sorted.
pub(crate) fn cheapest_types(plan: &Plan) -> Vec<String> {
    let mut names: Vec<_> =
        plan.claims.iter().map(|claim| claim.instance_types[0].name().to_owned()).collect();
    names.sort();
    names
}

/// Why the named pod failed, as text; empty when it did not.
pub(crate) fn refusal(plan: &Plan, pod: &str) -> String {
    plan.failures
        .iter()
        .find(|failure| failure.pod.name == pod)
        .map(|failure| failure.refusal.to_string())
        .unwrap_or_default()
}
