//! Choosing instance types: the cheapest, enough of them, and `minValues`.

use std::sync::Arc;

use crate::build::*;
use kerf_model::labels::{ARCH, CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, OS, SPOT, ZONE};
use kerf_model::{InstanceType, MinValuesPolicy, Pool, Price};
use kerf_scheduler::{Options, Plan, schedule};

fn best_effort() -> Options {
    Options { min_values: MinValuesPolicy::BestEffort, ..Options::default() }
}

/// Every combination of size, zone, capacity type, operating system and architecture as a type of its own.
fn assorted() -> Vec<Arc<InstanceType>> {
    let mut types = Vec::new();
    for cpu in [1, 2, 4, 8, 16] {
        for memory in [1, 2, 4, 8, 16] {
            for zone in ZONES {
                for capacity_type in [SPOT, ON_DEMAND] {
                    for os in ["linux", "windows"] {
                        for arch in ["amd64", "arm64"] {
                            let name = format!("{cpu}-{memory}-{arch}-{os}-{zone}-{capacity_type}");
                            let one = instance_type(&name, &format!("cpu={cpu} memory={memory}Gi"));
                            types.push(
                                TypeSpec {
                                    arch,
                                    os: vec![os],
                                    offerings: vec![(capacity_type, zone)],
                                    ..one
                                }
                                .build(),
                            );
                        }
                    }
                }
            }
        }
    }
    types
}

#[test]
fn the_cheapest_type_comes_first_under_every_constraint() {
    let pool = |text: &str| Pool {
        instance_types: assorted(),
        requirements: requirements(text),
        ..pool("default")
    };
    let cheapest = Price::from_f64(0.1 + 0.107_374_182_4);
    let two_cores = Price::from_f64(0.2 + 0.214_748_364_8);
    for (of_pool, of_pod) in [
        ("", ""),
        ("", "kubernetes.io/arch In amd64"),
        ("", "kubernetes.io/arch In arm64"),
        ("kubernetes.io/arch In amd64", ""),
        ("kubernetes.io/arch In arm64", ""),
        ("kubernetes.io/os In windows", ""),
        ("", "kubernetes.io/os In windows"),
        ("", "kubernetes.io/os In linux"),
        ("topology.kubernetes.io/zone In test-zone-2", ""),
        ("", "topology.kubernetes.io/zone In test-zone-2"),
        ("karpenter.sh/capacity-type In spot", ""),
        ("", "karpenter.sh/capacity-type In spot"),
        ("karpenter.sh/capacity-type In on-demand; topology.kubernetes.io/zone In test-zone-1", ""),
        ("karpenter.sh/capacity-type In spot", "topology.kubernetes.io/zone In test-zone-1"),
        (
            "kubernetes.io/arch In arm64",
            "kubernetes.io/os In windows; karpenter.sh/capacity-type In spot; topology.kubernetes.io/zone In test-zone-2",
        ),
    ] {
        let with = |requests: &str| {
            let pod = pod("web").requests(requests);
            let pod = if of_pod.is_empty() { pod } else { pod.requires(of_pod) };
            plan(&cluster(vec![pool(of_pool)], vec![pod.build()]))
        };
        let small = with("cpu=500m memory=500Mi");
        assert_eq!(small.claims[0].price, cheapest, "{of_pool} / {of_pod}");
        let wanted = requirements(&format!("{of_pool};{of_pod}"));
        for one in &small.claims[0].instance_types {
            assert!(
                one.requirements().intersects(&wanted).is_ok(),
                "{} under {wanted}",
                one.name()
            );
        }
        let prices: Vec<_> =
            small.claims[0].instance_types.iter().map(|one| one.offerings()[0].price).collect();
        assert!(prices.is_sorted(), "{of_pool} / {of_pod}");
        let larger = with("cpu=1500m memory=1500Mi");
        assert_eq!(larger.claims[0].price, two_cores, "{of_pool} / {of_pod}");
    }
}

#[test]
fn nothing_matches_what_is_not_offered() {
    let pool = Pool { instance_types: assorted(), ..pool("default") };
    for text in [
        "kubernetes.io/arch In arm",
        "kubernetes.io/arch In arm; topology.kubernetes.io/zone In test-zone-2",
        "topology.kubernetes.io/zone In nowhere",
    ] {
        let plan = plan(&cluster(vec![pool.clone()], vec![pod("web").requires(text).build()]));
        assert_eq!(plan.claims.len(), 0, "{text}");
    }
}

#[test]
fn cheap_spot_in_one_zone_does_not_hide_cheap_on_demand_in_another() {
    let at = |name: &str, price: f64, offerings: Vec<(&'static str, &'static str)>| {
        TypeSpec { price: Some(price), offerings, ..instance_type(name, "") }.build()
    };
    let types = vec![
        at("mixed", 0.5, vec![(SPOT, ZONES[0]), (ON_DEMAND, ZONES[1])]),
        at("cheap-spot", 0.2, vec![(SPOT, ZONES[0])]),
        at("cheap-on-demand", 0.1, vec![(ON_DEMAND, ZONES[0])]),
    ];
    let pool = Pool {
        instance_types: types,
        requirements: requirements(&format!("{CAPACITY_TYPE} In {SPOT} {ON_DEMAND}")),
        ..pool("default")
    };
    let plan = plan(&cluster(vec![pool], vec![pod("web").build()]));
    assert_eq!(cheapest_types(&plan), ["cheap-on-demand"]);
}

fn flexible(text: &str) -> Pool {
    Pool { instance_types: many_types(10), requirements: requirements(text), ..pool("default") }
}

fn counts(plan: &Plan) -> (usize, usize) {
    (plan.claims.len(), plan.failures.len() + usize::from(!plan.unusable_pools.is_empty()) * 100)
}

#[test]
fn min_values_hold_strictly() {
    let web = || vec![pod("web").requests("cpu=7").build()];
    // Three of the ten types have seven cores and more to give.
    for (text, claims) in [
        (format!("{INSTANCE_TYPE} Exists min 3"), 1),
        (format!("{INSTANCE_TYPE} Exists min 4"), 0),
        (format!("{INSTANCE_TYPE} In fake-it-7 fake-it-8 min 2"), 1),
        ("integer Gt 7 min 3".to_owned(), 1),
        ("integer Gt 8 min 3".to_owned(), 0),
        ("integer Lt 10 min 2".to_owned(), 1),
        ("integer NotIn 9; integer In 8 9 10 min 2".to_owned(), 1),
        ("integer Gt 7 min 1; integer Lt 10 min 2".to_owned(), 1),
        ("integer Gt 7 min 1; integer Lt 9 min 2".to_owned(), 0),
        (format!("{INSTANCE_TYPE} Exists min 2; {ZONE} Exists min 3"), 1),
        (format!("{ZONE} Exists min 4"), 0),
        (format!("{CAPACITY_TYPE} Exists min 2; {ARCH} Exists min 1; {OS} Exists min 3"), 1),
    ] {
        let plan = plan(&cluster(vec![flexible(&text)], web()));
        assert_eq!(plan.claims.len(), claims, "{text}: {:?}", plan.failures);
    }
}

/// The types of these pools are sold in three zones each, as spot and on demand.
#[test]
fn values_that_a_claim_does_not_admit_are_no_alternatives() {
    for (of_pool, of_pod, claims) in [
        (format!("{ZONE} Exists min 2"), String::new(), 1),
        (format!("{ZONE} Exists min 2"), format!("{ZONE} In test-zone-1 test-zone-2"), 1),
        (format!("{ZONE} Exists min 2"), format!("{ZONE} In test-zone-1"), 0),
        (format!("{ZONE} Exists min 2"), format!("{ZONE} NotIn test-zone-1"), 1),
        (format!("{ZONE} Exists min 3"), format!("{ZONE} NotIn test-zone-1"), 0),
        (format!("{ZONE} In test-zone-1 elsewhere min 2"), String::new(), 0),
        (format!("{CAPACITY_TYPE} Exists min 2"), format!("{CAPACITY_TYPE} In {SPOT}"), 0),
        (format!("{INSTANCE_TYPE} Exists min 3"), format!("{ZONE} In test-zone-1"), 1),
    ] {
        let pod = pod("web");
        let pod = if of_pod.is_empty() { pod } else { pod.requires(&of_pod) };
        let plan = plan(&cluster(vec![flexible(&of_pool)], vec![pod.build()]));
        assert_eq!(plan.claims.len(), claims, "{of_pool} / {of_pod}: {:?}", plan.failures);
    }
}

#[test]
fn best_effort_lowers_to_what_the_claim_admits() {
    let pool = flexible(&format!("{ZONE} Exists min 3"));
    let pod = pod("web").requires(&format!("{ZONE} In test-zone-1")).build();
    let plan = schedule(&cluster(vec![pool], vec![pod]), &best_effort());
    let zone = plan.claims[0].requirements.get(ZONE).unwrap();
    assert_eq!((zone.only_value(), zone.min_values()), (Some(ZONES[0]), Some(1)));
    assert!(plan.claims[0].min_values_relaxed);
}

#[test]
fn every_pod_that_joins_keeps_the_flexibility() {
    let pool = flexible(&format!("{INSTANCE_TYPE} Exists min 3"));
    let plan = plan(&cluster(vec![pool], replicas(4, &pod("web").requests("cpu=2500m"))));
    assert!(plan.failures.is_empty());
    assert!(plan.claims.iter().all(|claim| claim.instance_types.len() >= 3));
    assert!(plan.claims.len() > 1, "a third pod would leave one type");
}

#[test]
fn min_values_hold_after_the_cut() {
    let pool = flexible("integer Exists min 5");
    let snapshot = cluster(vec![pool], vec![pod("web").build()]);
    let cut = |max| schedule(&snapshot, &Options { max_instance_types: max, ..Options::default() });
    assert_eq!(counts(&cut(5)), (1, 0));
    assert_eq!(counts(&cut(4)), (0, 1));
    assert!(refusal(&cut(4), "web").contains("too few instance types left"));
}

#[test]
fn best_effort_lowers_what_cannot_be_met() {
    let snapshot =
        |text: &str| cluster(vec![flexible(text)], vec![pod("web").requests("cpu=7").build()]);
    let plan = schedule(
        &snapshot(&format!("{INSTANCE_TYPE} Exists min 5; {ZONE} Exists min 9")),
        &best_effort(),
    );
    assert_eq!(plan.claims.len(), 1, "{:?}", plan.failures);
    assert!(plan.claims[0].min_values_relaxed);
    let left = |key: &str| {
        plan.claims[0].requirements.get(key).and_then(kerf_model::Requirement::min_values)
    };
    assert_eq!((left(INSTANCE_TYPE), left(ZONE)), (Some(3), Some(3)));
    let met = schedule(&snapshot(&format!("{INSTANCE_TYPE} Exists min 3")), &best_effort());
    assert!(!met.claims[0].min_values_relaxed);
}

#[test]
fn best_effort_relaxes_before_it_tries_a_lighter_pool() {
    let heavy = Pool {
        weight: 2,
        name: "heavy".to_owned(),
        ..flexible(&format!("{INSTANCE_TYPE} Exists min 50"))
    };
    let light = Pool { weight: 1, name: "light".to_owned(), ..flexible("") };
    let snapshot = cluster(vec![heavy, light], vec![pod("web").build()]);
    assert_eq!(schedule(&snapshot, &best_effort()).claims[0].pool.name, "heavy");
    let strict = schedule(&snapshot, &Options::default());
    assert_eq!(strict.claims[0].pool.name, "light");
    assert_eq!(strict.unusable_pools[0].pool, "heavy");
}

#[test]
fn a_pool_without_anything_to_buy_is_named() {
    let nothing =
        Pool { requirements: requirements("kubernetes.io/arch In s390x"), ..pool("default") };
    let plan = plan(&cluster(vec![nothing], vec![pod("web").build()]));
    assert_eq!(plan.unusable_pools.len(), 1);
    assert!(
        refusal(&plan, "web").starts_with("pool default: no instance type meets all requirements")
    );
}
