//! How much memory constraints take. Counted in bytes, not in time, so that a busy machine changes nothing.

use std::alloc::System;
use std::sync::Arc;

use kerf_model::labels::{CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ON_DEMAND, ZONE};
use kerf_model::pod::{
    Constraints, NodePolicy, PodTerm, SpreadConstraint, Weighted, WhenUnsatisfiable,
};
use kerf_model::snapshot::by_name;
use kerf_model::{
    InstanceType, Labels, Node, Offering, Overhead, Pod, Pool, Price, Quantity, Requirement,
    Requirements, Resources, Selector, Snapshot,
};
use kerf_scheduler::{Options, Prober, Stop};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NODES: usize = 50;

/// A kind of constraint of which a pod may have many.
type Shape = fn(&mut Constraints, usize, usize);

const SHAPES: [(&str, Shape); 6] = [
    ("required node affinity terms", |constraints, pod, at| {
        constraints.required_terms.push(nowhere(pod, at));
    }),
    ("preferred node affinity terms", |constraints, pod, at| {
        let term = nowhere(pod, at);
        constraints.preferred_terms.push(Weighted { weight: 1, term });
    }),
    ("preferred pod affinity terms", |constraints, pod, at| {
        let term = pod_term(HOSTNAME, pod, at);
        constraints.affinity.preferred.push(Weighted { weight: 1, term });
    }),
    ("preferred pod anti-affinity terms over zones", |constraints, pod, at| {
        let term = pod_term(ZONE, pod, at);
        constraints.anti_affinity.preferred.push(Weighted { weight: 1, term });
    }),
    ("required pod anti-affinity terms", |constraints, pod, at| {
        constraints.anti_affinity.required.push(pod_term(HOSTNAME, pod, at));
    }),
    ("soft spread constraints", |constraints, pod, at| {
        constraints.spread.push(SpreadConstraint {
            topology_key: ZONE.to_owned(),
            max_skew: 0,
            when_unsatisfiable: WhenUnsatisfiable::ScheduleAnyway,
            // Selects the pod itself, so that nothing ever meets it.
            selector: Selector::everything(),
            min_domains: u32::try_from(pod * 1000 + at).ok(),
            node_affinity_policy: NodePolicy::Honor,
            node_taints_policy: NodePolicy::Ignore,
        });
    }),
];

fn nowhere(pod: usize, at: usize) -> Requirements {
    Requirements::new([Requirement::is_in(ZONE, [format!("no-such-zone-{pod}-{at}")])])
}

fn pod_term(key: &str, pod: usize, at: usize) -> PodTerm {
    let labels: Labels = [("app".to_owned(), format!("app-{pod}-{at}"))].into();
    PodTerm {
        topology_key: key.to_owned(),
        selector: Selector::from_labels(&labels),
        namespaces: Vec::new(),
        namespace_selector: None,
    }
}

fn cluster(pods: usize, terms: usize, shapes: &[Shape]) -> Snapshot {
    let pod = |number: usize| {
        let mut constraints = Constraints::default();
        for at in 0..terms {
            for shape in shapes {
                shape(&mut constraints, number, at);
            }
        }
        Arc::new(Pod {
            namespace: "default".to_owned(),
            name: format!("pod-{number}"),
            uid: number.to_string(),
            requests: amounts(1),
            constraints: Arc::new(constraints),
            ..Pod::default()
        })
    };
    let node = |number: usize| {
        Arc::new(Node {
            name: format!("node-{number}"),
            labels: [(ZONE.to_owned(), format!("zone-{}", number % 3))].into(),
            capacity: amounts(8),
            allocatable: amounts(8),
            initialized: true,
            exists: true,
            ..Node::default()
        })
    };
    let zones = ["zone-0", "zone-1", "zone-2"];
    let requirements = Requirements::new([
        Requirement::is_in(INSTANCE_TYPE, ["large"]),
        Requirement::is_in(ZONE, zones),
        Requirement::is_in(CAPACITY_TYPE, [ON_DEMAND]),
    ]);
    let offering = |zone| Offering {
        requirements: Requirements::new([
            Requirement::is_in(CAPACITY_TYPE, [ON_DEMAND]),
            Requirement::is_in(ZONE, [zone]),
        ]),
        price: Price::from_ten_billionths(1),
        available: true,
        ..Offering::default()
    };
    let offerings = zones.into_iter().map(offering).collect();
    let large =
        InstanceType::new("large", requirements, offerings, amounts(64), Overhead::default());
    let pool =
        Pool { name: "pool".to_owned(), instance_types: vec![Arc::new(large)], ..Pool::default() };
    Snapshot {
        pools: by_name([Arc::new(pool)]),
        nodes: (0..NODES).map(node).collect(),
        pods: (0..pods).map(pod).collect(),
        ..Snapshot::default()
    }
}

fn amounts(cores: i64) -> Resources {
    Resources::new()
        .with("cpu", Quantity::from_units(cores))
        .with("pods", Quantity::from_units(cores))
}

/// Bytes that one run keeps, and bytes that it ever asks for.
fn bytes(pods: usize, terms: usize, shapes: &[Shape]) -> (f64, f64) {
    let snapshot = cluster(pods, terms, shapes);
    let region = Region::new(ALLOCATOR);
    let prober = Prober::new(&snapshot, &Options::default());
    let plan = prober.probe(&[], &Stop::default());
    let change = region.change();
    drop((prober, plan));
    let kept = change.bytes_allocated - change.bytes_deallocated.min(change.bytes_allocated);
    (kept as f64, change.bytes_allocated as f64)
}

/// One test, because the counter is the process's. Twice the constraints may take little more than twice the memory; when
/// each step of relaxation kept a copy, they took 3.5 times as much.
#[test]
fn memory_grows_no_faster_than_the_constraints() {
    let all = SHAPES.map(|(_, shape)| shape);
    bytes(2, 10, &all);
    let mut wrong = Vec::new();
    let mut check = |what: &str, few: (f64, f64), many: (f64, f64)| {
        let (kept, asked) = (many.0 / few.0, many.1 / few.1);
        if kept > 2.2 || asked > 2.2 {
            wrong.push(format!("{what}: keeps {kept:.2} times as much, asks for {asked:.2} times"));
        }
    };
    for (what, shape) in SHAPES {
        check(what, bytes(4, 40, &[shape]), bytes(4, 80, &[shape]));
    }
    check("pods", bytes(4, 20, &all), bytes(8, 20, &all));
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
}
