//! What both sides get to solve: upstream's benchmark pods, its catalogue, and a cluster that is full already.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::go_random::GoRandom;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
/// Of upstream's benchmark.
const SEED: u32 = 42;
const BUFFERS: usize = 10;
/// The annotation of a virtual pod that names its buffer.
const BUFFER: &str = "karpenter.sh/capacity-buffer-name";

#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) name: String,
    pub(crate) pods: Vec<Pending>,
    /// Pods that stand for the room of buffers. Their annotation says so, as Karpenter has it.
    pub(crate) virtual_pods: Vec<Pending>,
    /// Full nodes with ten pods each that are there already.
    pub(crate) nodes: usize,
    pub(crate) filling: Filling,
    pub(crate) preferences: Preferences,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preferences {
    Respect,
    Ignore,
}

/// What the pods on nodes ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// Resources.
    Plain,
    /// Four in ten also a place beside others, or away from them.
    Diverse,
    /// Resources, all of a machine that is one core smaller than theirs, which is bought on the spot market and has no
    /// room for more pods. One type would be cheaper: a replacement is found for each, and refused because spot needs 15.
    Oversized,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    kind: Kind,
    label: &'static str,
    /// Of spread constraints, which select another label than the pod's own.
    selector: Option<&'static str>,
    pub(crate) millicores: u32,
    pub(crate) mebibytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Generic,
    ZoneSpread,
    HostSpread,
    /// To its own label, in the same zone.
    ZoneAffinity,
    /// Among all pods of this kind.
    HostAntiAffinity,
    /// A zone that can be had, a zone of its own that cannot, a host of its own that can.
    Preferring,
}

impl Problem {
    /// A fifth of each kind; what is left over is generic.
    pub(crate) fn diverse(count: usize) -> Self {
        let kinds = [
            Kind::Generic,
            Kind::ZoneSpread,
            Kind::HostSpread,
            Kind::ZoneAffinity,
            Kind::HostAntiAffinity,
        ];
        let mut random = GoRandom::seeded(SEED);
        let pods = (0..count)
            .map(|at| at.checked_div(count / kinds.len()).and_then(|share| kinds.get(share)))
            .map(|kind| Pending::drawn(*kind.unwrap_or(&Kind::Generic), &mut random))
            .collect();
        Self::pending(format!("diverse-{count}"), pods, Preferences::Respect)
    }

    pub(crate) fn generic(count: usize) -> Self {
        let mut random = GoRandom::seeded(SEED);
        let pods = (0..count).map(|_| Pending::drawn(Kind::Generic, &mut random)).collect();
        Self::pending(format!("generic-{count}"), pods, Preferences::Respect)
    }

    /// Identical pods: one draw serves all.
    pub(crate) fn preferring(count: usize, preferences: Preferences) -> Self {
        let pod = Pending::drawn(Kind::Preferring, &mut GoRandom::seeded(SEED));
        let name = match preferences {
            Preferences::Respect => format!("preferences-{count}"),
            Preferences::Ignore => format!("preferences-ignored-{count}"),
        };
        Self::pending(name, vec![pod; count], preferences)
    }

    fn pending(name: String, pods: Vec<Pending>, preferences: Preferences) -> Self {
        let virtual_pods = Vec::new();
        Self { name, pods, virtual_pods, nodes: 0, filling: Filling::Diverse, preferences }
    }

    /// Half of the pods stand for the room of ten buffers, each with pods of one shape.
    pub(crate) fn buffered(count: usize, virtual_count: usize) -> Self {
        let name = format!("diverse-{count}-and-{virtual_count}-virtual");
        let mut random = GoRandom::seeded(SEED);
        let virtual_pods = (0..BUFFERS)
            .map(|_| Pending::drawn(Kind::Generic, &mut random))
            .flat_map(|pod| vec![pod; virtual_count / BUFFERS])
            .collect();
        Self { name, virtual_pods, ..Self::diverse(count) }
    }

    pub(crate) fn existing(count: usize, nodes: usize) -> Self {
        let name = format!("diverse-{count}-on-{nodes}-nodes");
        Self { name, nodes, ..Self::diverse(count) }
    }

    /// Nobody waits, and every node is full: none can go, and each has to be looked at to know.
    pub(crate) fn full(nodes: usize, filling: Filling) -> Self {
        let name = match filling {
            Filling::Plain => format!("tight-{nodes}"),
            Filling::Diverse => format!("tight-diverse-{nodes}"),
            Filling::Oversized => format!("oversized-{nodes}"),
        };
        Self { nodes, filling, ..Self::pending(name, Vec::new(), Preferences::Respect) }
    }

    /// Whether resources alone decide where pods can go.
    pub(crate) fn is_unconstrained(&self) -> bool {
        self.nodes == 0
            && self.virtual_pods.is_empty()
            && self.pods.iter().all(|pod| match pod.kind {
                Kind::Generic => true,
                Kind::Preferring => self.preferences == Preferences::Ignore,
                _ => false,
            })
    }

    /// At least this many nodes are needed: pods with anti-affinity to each other are each on one of their own.
    pub(crate) fn hosts(&self) -> usize {
        self.pods.iter().filter(|pod| pod.kind == Kind::HostAntiAffinity).count()
    }

    /// One JSON object per line, so that neither side has to hold the text of all of them.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for instance_type in catalogue() {
            writeln!(out, "{}", instance_type.to_json())?;
        }
        for node in 0..self.nodes {
            writeln!(out, "{}", node_json(node, self.filling))?;
            for pod in 0..10 {
                writeln!(out, "{}", bound_pod_json(node, pod, self.filling))?;
            }
        }
        for (at, pod) in self.pods.iter().enumerate() {
            writeln!(out, "{}", pod.to_json(at))?;
        }
        for (at, pod) in self.virtual_pods.iter().enumerate() {
            let mut pod = pod.to_json(at);
            let buffer = at * BUFFERS / self.virtual_pods.len();
            let name = format!("capacity-buffer-{buffer}-{at}");
            pod["metadata"]["annotations"] = json!({BUFFER: buffer.to_string()});
            pod["metadata"]["name"] = name.clone().into();
            pod["metadata"]["uid"] = name.into();
            writeln!(out, "{pod}")?;
        }
        Ok(())
    }
}

impl Pending {
    fn drawn(kind: Kind, random: &mut GoRandom) -> Self {
        let label = match kind {
            Kind::HostAntiAffinity | Kind::Preferring => "nginx",
            _ => random.pick(&LETTERS),
        };
        let selector =
            matches!(kind, Kind::ZoneSpread | Kind::HostSpread).then(|| random.pick(&LETTERS));
        Self {
            kind,
            label,
            selector,
            millicores: random.pick(&[100, 250, 500, 1000, 1500]),
            mebibytes: random.pick(&[100, 256, 512, 1024, 2048, 4096]),
        }
    }

    fn to_json(&self, at: usize) -> Value {
        let key = match self.kind {
            Kind::Generic | Kind::ZoneSpread | Kind::HostSpread => "my-label",
            // Upstream spells it so.
            Kind::ZoneAffinity => "my-affininity",
            Kind::HostAntiAffinity | Kind::Preferring => "app",
        };
        let labels = json!({ key: self.label });
        let constraint = match self.kind {
            Kind::Generic => json!({}),
            Kind::ZoneSpread => spread(ZONE, &json!({ key: self.selector })),
            Kind::HostSpread => spread(HOSTNAME, &json!({ key: self.selector })),
            Kind::ZoneAffinity => affinity("podAffinity", ZONE, &labels),
            Kind::HostAntiAffinity => affinity("podAntiAffinity", HOSTNAME, &labels),
            Kind::Preferring => preferences(&labels),
        };
        let requests = requests(self.millicores, self.mebibytes);
        pod_json(&format!("pod-{at:05}"), &labels, constraint, &requests)
    }
}

pub(super) fn pod_json(name: &str, labels: &Value, constraint: Value, requests: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    });
    pod["spec"] = constraint;
    pod["spec"]["containers"] =
        json!([{"name": "c", "image": "pause", "resources": {"requests": requests}}]);
    pod
}

fn requests(millicores: u32, mebibytes: u32) -> Value {
    json!({"cpu": format!("{millicores}m"), "memory": format!("{mebibytes}Mi")})
}

pub(super) fn spread(key: &str, labels: &Value) -> Value {
    json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }]})
}

pub(super) fn affinity(kind: &str, key: &str, labels: &Value) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": labels}});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn preferences(labels: &Value) -> Value {
    let apart = |weight: u32, key: &str| {
        let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": labels}});
        json!({"weight": weight, "podAffinityTerm": term})
    };
    let zone = json!({"key": ZONE, "operator": "In", "values": ["test-zone-1"]});
    json!({"affinity": {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [zone]}},
        ]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            apart(10, ZONE), apart(1, HOSTNAME),
        ]},
    }})
}

/// A machine of upstream's benchmark catalogue.
pub(crate) struct InstanceType {
    cores: u32,
}

pub(crate) fn catalogue() -> impl Iterator<Item = InstanceType> {
    (1..=400).map(|cores| InstanceType { cores })
}

impl InstanceType {
    /// A tenth of a dollar per core and per 10^9 bytes.
    pub(crate) fn price(&self) -> f64 {
        let cores = f64::from(self.cores);
        0.1 * cores + 0.1 * (2.0 * cores * f64::from(1 << 30)) / 1e9
    }

    /// What pods can have: millicores, mebibytes, pods.
    pub(crate) fn allocatable(&self) -> [u64; 3] {
        [1000 * self.cores - 100, 2048 * self.cores - 10, 10 * self.cores].map(u64::from)
    }

    fn to_json(&self) -> Value {
        let cores = self.cores;
        let name = format!("fake-it-{}", cores - 1);
        let offerings: Vec<_> =
            [("spot", 1), ("spot", 2), ("on-demand", 1), ("on-demand", 2), ("on-demand", 3)]
                .map(|(capacity_type, zone)| {
                    let zone = format!("test-zone-{zone}");
                    json!({"capacityType": capacity_type, "zone": zone, "price": self.price()})
                })
                .into();
        let special: &[&str] = if cores > 4 { &["optional"] } else { &[] };
        json!({
            "kind": "InstanceType",
            "name": name,
            "capacity": {
                "cpu": cores.to_string(),
                "memory": format!("{}Gi", 2 * cores),
                "pods": (10 * cores).to_string(),
            },
            "overhead": {"cpu": "100m", "memory": "10Mi"},
            "labels": {
                "node.kubernetes.io/instance-type": [name],
                "kubernetes.io/arch": ["amd64"],
                "kubernetes.io/os": ["linux", "windows", "darwin"],
                ZONE: ["test-zone-1", "test-zone-2", "test-zone-3"],
                "karpenter.sh/capacity-type": ["spot", "on-demand"],
                "integer": [cores.to_string()],
                "size": [if cores > 4 { "large" } else { "small" }],
                "special": special,
            },
            "offerings": offerings,
        })
    }
}

fn node_json(node: usize, filling: Filling) -> Value {
    let name = format!("node-{node:05}");
    // Spot is sold in two of the zones only.
    let (cores, capacity_type, zones, pods) = match filling {
        Filling::Oversized => (11, "spot", 2, 10),
        Filling::Plain | Filling::Diverse => (10, "on-demand", 3, 100),
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {
            HOSTNAME: name,
            ZONE: format!("test-zone-{}", node % zones + 1),
            "node.kubernetes.io/instance-type": format!("fake-it-{}", cores - 1),
            "karpenter.sh/capacity-type": capacity_type,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "karpenter.sh/nodepool": "bench",
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
        }},
        "spec": {"providerID": format!("fake:///{name}")},
        "status": {
            "capacity": {
                "cpu": cores.to_string(), "memory": format!("{}Gi", 2 * cores), "pods": pods.to_string(),
            },
            "allocatable": {
                "cpu": format!("{}m", 1000 * cores - 100),
                "memory": format!("{}Mi", 2048 * cores - 10),
                "pods": pods.to_string(),
            },
        },
    })
}

/// Ten pods that use up all cores of a node, a little different on each node; the last four may be bound by
/// spread, affinity and anti-affinity, as far as their places allow it.
fn bound_pod_json(node: usize, pod: usize, filling: Filling) -> Value {
    const MILLICORES: [u32; 10] = [100, 250, 500, 1000, 1500, 1500, 1500, 1000, 1300, 1250];
    const MEBIBYTES: [u32; 10] = [100, 256, 512, 1024, 2048, 2048, 2048, 1024, 2048, 1024];
    let small = |number: usize| u32::try_from(number).unwrap_or_default();
    let moved = 5 * small((7 * node + 13 * (pod / 2)) % 10);
    let millicores =
        if pod.is_multiple_of(2) { MILLICORES[pod] + moved } else { MILLICORES[pod] - moved };
    let mebibytes = MEBIBYTES[pod] + 4 * small((11 * node + 17 * pod) % 16);
    let row = node / 3;
    let role = if filling == Filling::Diverse { pod } else { 0 };
    let (key, value) = match role {
        6 => ("zs", LETTERS[row % 7]),
        7 => ("hs", LETTERS[node % 7]),
        8 => {
            // Pods with affinity to each other are in one zone, so each zone has letters of its own.
            let letters = [&LETTERS[..2], &LETTERS[2..4], &LETTERS[4..]][node % 3];
            ("af", letters[row % letters.len()])
        }
        9 => ("app", "nginx"),
        _ => ("my-label", LETTERS[(node + pod) % 7]),
    };
    let labels = json!({ key: value });
    let constraint = match role {
        6 => spread(ZONE, &labels),
        7 => spread(HOSTNAME, &labels),
        8 => affinity("podAffinity", ZONE, &labels),
        9 => affinity("podAntiAffinity", HOSTNAME, &labels),
        _ => json!({}),
    };
    let name = format!("node-{node:05}-pod-{pod}");
    let mut object = pod_json(&name, &labels, constraint, &requests(millicores, mebibytes));
    object["spec"]["nodeName"] = json!(format!("node-{node:05}"));
    object["status"] = json!({"phase": "Running"});
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "bench", "uid": "bench", "controller": true,
    }]);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_the_pods_of_upstream() {
        let pods = Problem::diverse(50).pods;
        let expect = [
            (0, Kind::Generic, "f", None, 500, 512),
            (1, Kind::Generic, "b", None, 1000, 256),
            (9, Kind::Generic, "c", None, 500, 4096),
            (10, Kind::ZoneSpread, "a", Some("c"), 100, 100),
        ];
        for (at, kind, label, selector, millicores, mebibytes) in expect {
            let drawn = Pending { kind, label, selector, millicores, mebibytes };
            assert_eq!(pods[at], drawn, "pod {at}");
        }
    }

    #[test]
    fn fills_up_with_generic_pods() {
        let kinds: Vec<_> = Problem::diverse(7).pods.iter().map(|pod| pod.kind).collect();
        assert_eq!(kinds[4..], [Kind::HostAntiAffinity, Kind::Generic, Kind::Generic]);
    }

    #[test]
    fn existing_pods_use_up_their_node() {
        for node in 0..30 {
            let used: u32 = (0..10)
                .map(|pod| bound_pod_json(node, pod, Filling::Diverse))
                .filter_map(|pod| {
                    let cpu = &pod["spec"]["containers"][0]["resources"]["requests"]["cpu"];
                    cpu.as_str()?.strip_suffix('m')?.parse::<u32>().ok()
                })
                .sum();
            assert_eq!(used, 9900, "node {node}");
        }
    }
}
