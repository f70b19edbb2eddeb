//! Random clusters, small enough to be checked pair by pair and odd enough to meet every rule.

use std::sync::Arc;

use crate::build::*;
use k8s_openapi::serde_json::json;
use kerf_model::labels::{CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, SPOT, ZONE};
use kerf_model::volume::{StorageClass, VolumeClaim, Volumes};
use kerf_model::{InstanceType, Node, Pod, Pool, Requirement, Requirements, Snapshot};

/// Numbers that look random and are the same everywhere (the generator named split-mix).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).expect("less than sides")
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.roll(one_in) == 0
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.roll(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.roll(at + 1));
        }
    }
}

pub(crate) fn snapshot(seed: u64) -> Snapshot {
    let mut dice = Dice(seed);
    let pools = (0..=dice.roll(3)).map(|at| random_pool(&mut dice, at)).collect();
    let mut pods = Vec::new();
    for template in 0..=dice.roll(5) {
        let spec = random_pod(&mut dice, &format!("t{template}"));
        pods.extend(replicas(1 + dice.roll(6), &spec));
    }
    let nodes = (0..dice.roll(5)).map(|at| random_node(&mut dice, at)).collect();
    let mut snapshot = with_nodes(cluster(pools, pods), nodes);
    for at in 0..dice.roll(3) {
        let mut daemon = pod(&format!("daemon-{at}"))
            .requests(dice.pick(&["cpu=100m", "cpu=200m memory=100Mi"]));
        if dice.chance(3) {
            daemon = daemon.requires(dice.pick(&[
                "size In small",
                "kubernetes.io/os In linux",
                "team In red",
            ]));
        }
        if dice.chance(2) {
            daemon = daemon.tolerates("dedicated");
        }
        snapshot.daemons.push(daemon.build());
    }
    snapshot.volumes = Arc::new(random_storage());
    let named = [("default", "team=red"), ("other", "team=blue")];
    snapshot.namespaces =
        Arc::new(named.iter().map(|(name, text)| ((*name).to_owned(), labels(text))).collect());
    snapshot
}

/// More nodes, with pods that know where they are; those of nodes that are being deleted are to be placed.
pub(crate) fn busy_snapshot(seed: u64) -> Snapshot {
    let mut snapshot = snapshot(seed);
    let mut dice = Dice(seed ^ 0xB05B);
    let more = 2 + dice.roll(5);
    snapshot.nodes.extend((10..10 + more).map(|at| Arc::new(random_node(&mut dice, at))));
    for node in &mut snapshot.nodes {
        let node = Arc::make_mut(node);
        for pod in &mut node.pods {
            Arc::make_mut(pod).node_name = Some(node.name.clone());
        }
        if node.deleting {
            snapshot.pods.extend(node.pods.iter().cloned());
        }
    }
    snapshot
}

fn random_storage() -> Volumes {
    let mut storage = Volumes::default();
    for (at, zone) in ZONES.iter().enumerate() {
        let terms = vec![Requirements::new([Requirement::is_in(ZONE, [*zone])])];
        storage.classes.insert(
            format!("class-{at}"),
            StorageClass { provisioner: "csi.test".to_owned(), terms, immediate: false },
        );
        let claim = VolumeClaim { class: Some(format!("class-{at}")), ..VolumeClaim::default() };
        storage.claims.insert(("default".to_owned(), format!("claim-{at}")), claim);
    }
    storage
}

fn random_types(dice: &mut Dice) -> Vec<Arc<InstanceType>> {
    (0..2 + dice.roll(6))
        .map(|at| {
            let cpu = 1 + dice.roll(8);
            let capacity =
                format!("cpu={cpu} memory={}Gi pods={}", 1 + dice.roll(16), 2 + dice.roll(10));
            let mut one = instance_type(&format!("type-{at}"), &capacity);
            one.arch = dice.pick(&["amd64", "amd64", "arm64"]);
            one.offerings.retain(|_| !dice.chance(4));
            if one.offerings.is_empty() {
                one.offerings = vec![(ON_DEMAND, ZONES[dice.roll(3)])];
            }
            one.volumes = if dice.chance(4) { u32::try_from(dice.roll(3)).ok() } else { None };
            one.build()
        })
        .collect()
}

fn random_pool(dice: &mut Dice, at: usize) -> Pool {
    let mut wants = Vec::new();
    if dice.chance(3) {
        let zones = ["test-zone-1", "test-zone-1 test-zone-2", "test-zone-2 test-zone-3"];
        wants.push(format!("{ZONE} In {}", dice.pick(&zones)));
    }
    if dice.chance(4) {
        wants.push(format!("{CAPACITY_TYPE} In {}", dice.pick(&[SPOT, ON_DEMAND])));
    }
    if dice.chance(3) {
        wants.push(format!("team In {}", dice.pick(&["red", "red blue"])));
    }
    if dice.chance(6) {
        wants.push(format!("{INSTANCE_TYPE} Exists min {}", 1 + dice.roll(3)));
    }
    Pool {
        weight: i32::try_from(dice.roll(3)).expect("small"),
        requirements: requirements(&wants.join(";")),
        instance_types: random_types(dice),
        taints: match dice.roll(6) {
            0 => vec![taint("dedicated:NoSchedule")],
            1 => vec![taint("soft:PreferNoSchedule")],
            _ => vec![],
        },
        limits: match dice.roll(6) {
            0 => amounts(&format!("cpu={}", 4 + dice.roll(20))),
            1 => amounts(&format!("nodes={}", dice.roll(4))),
            _ => amounts(""),
        },
        ..pool(&format!("pool-{at}"))
    }
}

fn random_pod(dice: &mut Dice, name: &str) -> PodSpec {
    let app = dice.pick(&["app=a", "app=b", "app=c"]);
    let mut one = pod(name).labels(app);
    if dice.chance(8) {
        one = one.namespace("other");
    }
    one = one.requests(&format!(
        "cpu={}m memory={}Mi",
        100 * (1 + dice.roll(20)),
        100 * (1 + dice.roll(20))
    ));
    let keys = [ZONE, HOSTNAME, CAPACITY_TYPE, "team"];
    if dice.chance(4) {
        let skew = 1 + i32::try_from(dice.roll(2)).expect("small");
        let more = match dice.roll(6) {
            0 => json!({"whenUnsatisfiable": "ScheduleAnyway"}),
            1 => json!({"minDomains": 2}),
            2 => json!({"nodeTaintsPolicy": "Honor"}),
            3 => json!({"nodeAffinityPolicy": "Ignore"}),
            _ => json!({}),
        };
        one = one.spread_with(dice.pick(&keys), skew, app, &more);
        if dice.chance(3) {
            one = one.spread(dice.pick(&keys), 1, dice.pick(&["app=a", "app=b"]));
        }
    }
    if dice.chance(5) {
        one = one.affinity(dice.pick(&keys[..3]), dice.pick(&["app=a", "app=b", app]));
    }
    if dice.chance(4) {
        one = one.anti_affinity(dice.pick(&keys), dice.pick(&["app=a", "app=b", app]));
    }
    if dice.chance(6) {
        let kind = dice.pick(&["podAffinity", "podAntiAffinity"]);
        one = one.prefers_pods(
            kind,
            1 + i32::try_from(dice.roll(9)).expect("small"),
            dice.pick(&keys),
            dice.pick(&["app=a", app]),
        );
    }
    if dice.chance(5) {
        one = one.requires(dice.pick(&[
            "topology.kubernetes.io/zone In test-zone-1 test-zone-3",
            "team In red",
            "team NotIn red",
            "size In small",
            "integer Gt 3",
        ]));
        if dice.chance(3) {
            one = one.requires("kubernetes.io/os In linux");
        }
    }
    if dice.chance(6) {
        one = one.prefers(
            5,
            dice.pick(&[
                "team In blue",
                "topology.kubernetes.io/zone In test-zone-2",
                "karpenter.sh/capacity-type In spot",
            ]),
        );
    }
    if dice.chance(3) {
        one = one.tolerates("dedicated");
    }
    if dice.chance(12) {
        one = one.host_port(8080);
    } else if dice.chance(10) {
        one = one.volume(&format!("claim-{}", dice.roll(3)));
    }
    one
}

fn random_node(dice: &mut Dice, at: usize) -> Node {
    let name = format!("node-{at}");
    let mut carried =
        vec![format!("{CAPACITY_TYPE}={} kubernetes.io/os=linux", dice.pick(&[SPOT, ON_DEMAND]))];
    if !dice.chance(6) {
        carried.push(format!("{ZONE}={}", dice.pick(&ZONES)));
    }
    if dice.chance(3) {
        carried.push("team=red".to_owned());
    }
    let mut node = node(&name, &carried.join(" "), &format!("cpu={} memory=8Gi", 1 + dice.roll(8)));
    node.initialized = !dice.chance(4);
    node.exists = !dice.chance(6);
    node.deleting = dice.chance(8);
    node.pool = dice.chance(2).then(|| "pool-0".to_owned());
    if dice.chance(6) {
        node.taints = vec![taint("dedicated:NoSchedule")];
    }
    if dice.chance(4) {
        node.volume_limits = [("csi.test".to_owned(), Some(1))].into();
    }
    let mut room = node.allocatable.clone();
    for bound in 0..dice.roll(4) {
        let spec = random_pod(dice, &format!("bound-{at}-{bound}")).running();
        let mut candidate: Pod = (*spec.build()).clone();
        candidate.deleting = dice.chance(8);
        if candidate.requests.fits_in(&room) {
            room = room.minus(&candidate.requests);
            node.pods.push(candidate.into());
        }
    }
    node
}
