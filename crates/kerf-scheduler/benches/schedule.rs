//! How long the pieces take: one run at several sizes, and the rules on strings that stand behind it.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use kerf_model::labels::{CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ON_DEMAND, SPOT, ZONE};
use kerf_model::pod::{Constraints, NodePolicy, PodTerm, SpreadConstraint, WhenUnsatisfiable};
use kerf_model::snapshot::by_name;
use kerf_model::{
    InstanceType, KnownLabels, Labels, Offering, Overhead, Pod, Pool, Price, Quantity, Requirement,
    Requirements, Resources, Selector, Snapshot, Undefined,
};
use kerf_scheduler::{Options, schedule};

fn instance_type(cores: i64) -> Arc<InstanceType> {
    let name = format!("type-{cores}");
    let zones = ["zone-1", "zone-2", "zone-3"];
    let requirements = Requirements::new([
        Requirement::is_in(INSTANCE_TYPE, [&name]),
        Requirement::is_in(ZONE, zones),
        Requirement::is_in(CAPACITY_TYPE, [SPOT, ON_DEMAND]),
    ]);
    let mut offerings = Vec::new();
    for zone in zones {
        for (capacity_type, share) in [(SPOT, 3), (ON_DEMAND, 10)] {
            offerings.push(Offering {
                requirements: Requirements::new([
                    Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
                    Requirement::is_in(ZONE, [zone]),
                ]),
                price: Price::from_ten_billionths(cores * share * 10_000_000),
                available: true,
                ..Offering::default()
            });
        }
    }
    let capacity = Resources::new()
        .with("cpu", Quantity::from_units(cores))
        .with("memory", Quantity::from_bytes(cores << 31))
        .with("pods", Quantity::from_units(110));
    Arc::new(InstanceType::new(name, requirements, offerings, capacity, Overhead::default()))
}

/// A fifth each: plain, spread over zones, spread over hosts, together in a zone, apart on hosts.
fn pod(at: usize) -> Arc<Pod> {
    let labels: Labels = [("app".to_owned(), format!("app-{}", at % 7))].into();
    let selector = Selector::from_labels(&labels);
    let spread = |key: &str| SpreadConstraint {
        topology_key: key.to_owned(),
        max_skew: 1,
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        selector: selector.clone(),
        min_domains: None,
        node_affinity_policy: NodePolicy::Honor,
        node_taints_policy: NodePolicy::Ignore,
    };
    let term = |key: &str| PodTerm {
        topology_key: key.to_owned(),
        selector: selector.clone(),
        namespaces: Vec::new(),
        namespace_selector: None,
    };
    let mut constraints = Constraints::default();
    match at % 5 {
        1 => constraints.spread.push(spread(ZONE)),
        2 => constraints.spread.push(spread(HOSTNAME)),
        3 => constraints.affinity.required.push(term(ZONE)),
        4 => constraints.anti_affinity.required.push(term(HOSTNAME)),
        _ => {}
    }
    let millis = [100, 250, 500, 1000, 1500][at / 5 % 5];
    Arc::new(Pod {
        namespace: "default".to_owned(),
        name: format!("pod-{at}"),
        uid: format!("{at:06}"),
        labels,
        requests: Resources::new()
            .with("cpu", Quantity::from_millis(millis))
            .with("memory", Quantity::from_bytes(millis << 20))
            .with("pods", Quantity::from_units(1)),
        constraints: Arc::new(constraints),
        ..Pod::default()
    })
}

/// One without constraints.
fn plain(at: usize) -> Arc<Pod> {
    Arc::new(Pod { constraints: Arc::default(), ..(*pod(at)).clone() })
}

fn runs(criterion: &mut Criterion) {
    let pool = Pool {
        name: "bench".to_owned(),
        instance_types: (1..=400).map(instance_type).collect(),
        ..Pool::default()
    };
    let pool = Arc::new(pool);
    let mut group = criterion.benchmark_group("schedule");
    group.sample_size(10);
    for count in [0, 100, 1000] {
        let snapshot = Snapshot {
            pools: by_name([Arc::clone(&pool)]),
            pods: (0..count).map(pod).collect(),
            ..Snapshot::default()
        };
        group.bench_with_input(BenchmarkId::new("pods", count), &snapshot, |bencher, snapshot| {
            bencher.iter(|| schedule(black_box(snapshot), &Options::default()));
        });
    }
    // A buffer as large as what is to be placed.
    let count = 10_000;
    let snapshot = Snapshot {
        pools: by_name([Arc::clone(&pool)]),
        pods: (0..count).map(plain).collect(),
        virtual_pods: (count..2 * count).map(plain).collect(),
        ..Snapshot::default()
    };
    group.bench_with_input(
        BenchmarkId::new("beside as many of a buffer", count),
        &snapshot,
        |bencher, snapshot| {
            bencher.iter(|| schedule(black_box(snapshot), &Options::default()));
        },
    );
    group.finish();
}

fn rules(criterion: &mut Criterion) {
    let labels = KnownLabels::default();
    let node = Requirements::new([
        Requirement::is_in(ZONE, ["zone-1", "zone-2", "zone-3"]),
        Requirement::is_in(CAPACITY_TYPE, [SPOT, ON_DEMAND]),
    ]);
    let wanted = Requirements::new([Requirement::is_in(ZONE, ["zone-2"])]);
    criterion.bench_function("requirements on strings", |bencher| {
        bencher.iter(|| {
            black_box(&node).compatible(black_box(&wanted), Undefined::WellKnown(&labels)).is_ok()
        });
    });
    criterion.bench_function("quantity from text", |bencher| {
        bencher.iter(|| black_box("1536Mi").parse::<Quantity>());
    });
}

criterion_group!(benches, runs, rules);
criterion_main!(benches);
