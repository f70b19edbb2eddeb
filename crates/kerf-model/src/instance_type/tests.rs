use super::*;
use crate::requirement::Requirement;

fn offering(capacity_type: &str, zone: &str, price: &str) -> Offering {
    Offering {
        requirements: [
            Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
            Requirement::is_in(ZONE, [zone]),
        ]
        .into_iter()
        .collect(),
        price: price.parse().unwrap(),
        available: true,
        ..Offering::default()
    }
}

fn amounts(list: &[(&str, &str)]) -> Resources {
    list.iter().map(|(name, amount)| (*name, amount.parse().unwrap())).collect()
}

fn instance_type(
    offerings: Vec<Offering>,
    capacity: Resources,
    overhead: Resources,
) -> InstanceType {
    let overhead = Overhead { kube_reserved: overhead, ..Overhead::default() };
    InstanceType::new("t", Requirements::default(), offerings, capacity, overhead)
}

#[test]
fn allocatable_is_capacity_without_overhead_and_huge_pages() {
    let check = |capacity: &[(&str, &str)], overhead: &[(&str, &str)], expect: &[(&str, &str)]| {
        let instance_type = instance_type(vec![], amounts(capacity), amounts(overhead));
        assert_eq!(*instance_type.allocatable(), amounts(expect));
    };
    check(
        &[("cpu", "2"), ("memory", "4Gi")],
        &[("cpu", "100m")],
        &[("cpu", "1900m"), ("memory", "4Gi")],
    );
    check(&[("cpu", "2")], &[("memory", "1Gi")], &[("cpu", "2")]);
    check(&[("cpu", "1")], &[("cpu", "2")], &[("cpu", "-1")]);
    check(
        &[("memory", "4Gi"), ("hugepages-2Mi", "1Gi"), ("hugepages-1Gi", "1Gi")],
        &[("memory", "1Gi")],
        &[("memory", "1Gi"), ("hugepages-2Mi", "1Gi"), ("hugepages-1Gi", "1Gi")],
    );
    check(
        &[("memory", "1Gi"), ("hugepages-2Mi", "2Gi")],
        &[],
        &[("memory", "0"), ("hugepages-2Mi", "2Gi")],
    );
}

#[test]
fn offerings_with_the_same_override_share_a_group() {
    let gpu = amounts(&[("gpu", "1")]);
    let with_gpu =
        |zone| Offering { capacity_override: Some(gpu.clone()), ..offering(SPOT, zone, "1") };
    let lean = Overhead { kube_reserved: amounts(&[("cpu", "50m")]), ..Overhead::default() };
    let offerings = vec![
        with_gpu("a"),
        offering(SPOT, "a", "1"),
        with_gpu("b"),
        Offering { available: false, ..offering(SPOT, "c", "1") },
        Offering { overhead_override: Some(lean), ..offering(SPOT, "d", "1") },
    ];
    let instance_type =
        instance_type(offerings, amounts(&[("cpu", "2")]), amounts(&[("cpu", "100m")]));
    let groups: Vec<_> = instance_type
        .groups()
        .iter()
        .map(|group| (group.allocatable.to_string(), group.offerings.clone()))
        .collect();
    assert_eq!(
        groups,
        [
            ("cpu 1900m".to_owned(), vec![1]),
            ("cpu 1900m, gpu 1".to_owned(), vec![0, 2]),
            ("cpu 1950m".to_owned(), vec![4]),
        ]
    );
}

#[test]
fn the_base_group_exists_without_offerings() {
    let instance_type = instance_type(vec![], amounts(&[("cpu", "2")]), Resources::new());
    assert_eq!(instance_type.groups().len(), 1);
    assert!(instance_type.groups()[0].offerings.is_empty());
}

#[test]
fn prices_depend_on_what_can_be_bought() {
    let labels = KnownLabels::default();
    let instance_type = instance_type(
        vec![
            offering(SPOT, "a", "0.30"),
            offering(SPOT, "b", "0.20"),
            offering(ON_DEMAND, "a", "1.00"),
            offering(ON_DEMAND, "b", "1.10"),
            Offering { available: false, ..offering(SPOT, "c", "0.10") },
            Offering { available: false, ..offering(SPOT, "d", "0.90") },
        ],
        Resources::new(),
        Resources::new(),
    );
    let requirements = |list: &[(&str, &str)]| {
        list.iter().map(|(key, value)| Requirement::is_in(key, [*value])).collect::<Requirements>()
    };
    for (wanted, cheapest, worst) in [
        (&[][..], "0.20", "0.30"),
        (&[(ZONE, "a")], "0.30", "0.30"),
        (&[(CAPACITY_TYPE, ON_DEMAND)], "1.00", "1.10"),
        (&[(CAPACITY_TYPE, ON_DEMAND), (ZONE, "b")], "1.10", "1.10"),
    ] {
        let wanted = requirements(wanted);
        assert_eq!(
            instance_type.cheapest_price(&wanted, &labels),
            cheapest.parse().unwrap(),
            "{wanted}"
        );
        assert_eq!(
            instance_type.worst_launch_price(&wanted, &labels),
            worst.parse().unwrap(),
            "{wanted}"
        );
    }
    let nowhere = requirements(&[(ZONE, "z")]);
    assert_eq!(instance_type.cheapest_price(&nowhere, &labels), Price::MAX);
    assert_eq!(instance_type.worst_launch_price(&nowhere, &labels), Price::MAX);
    assert_eq!(instance_type.offering_price("c", SPOT), Some("0.10".parse().unwrap()));
    assert_eq!(instance_type.offering_price("z", SPOT), None);
}

#[test]
fn a_reservation_is_what_a_launch_would_take_first() {
    let labels = KnownLabels {
        reservation_id: Some("example.com/reservation".to_owned()),
        ..KnownLabels::default()
    };
    let mut reserved = Offering { reservation_capacity: 1, ..offering(RESERVED, "a", "0.01") };
    reserved.requirements.add(Requirement::is_in("example.com/reservation", ["r-1"]));
    // A pool that may buy reservations names the label; otherwise the offering asks for something undefined.
    let any: Requirements = [Requirement::exists("example.com/reservation")].into_iter().collect();
    let used_up = Offering { reservation_capacity: 0, ..reserved.clone() };
    let buying = |offerings| instance_type(offerings, Resources::new(), Resources::new());
    let without = buying(vec![offering(SPOT, "a", "0.30"), used_up]);
    assert_eq!(without.worst_launch_price(&any, &labels), "0.30".parse().unwrap());
    let instance_type = buying(vec![offering(SPOT, "a", "0.30"), reserved]);
    assert_eq!(instance_type.worst_launch_price(&any, &labels), "0.01".parse().unwrap());
    assert_eq!(instance_type.offerings()[1].reservation_id(&labels), Some("r-1"));
    assert_eq!(instance_type.offerings()[0].reservation_id(&labels), None);
}
