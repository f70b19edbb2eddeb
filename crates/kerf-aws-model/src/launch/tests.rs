use kerf_api::labels::{INSTANCE_TYPE, ZONE};
use kerf_aws_api::labels::{
    CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_RESERVATION_TYPE,
    INSTANCE_FAMILY, INSTANCE_SIZE,
};
use kerf_aws_api::resources::NVIDIA_GPU;
use kerf_model::resources::CPU;
use kerf_model::{Offering, Operator, Overhead, Quantity, Requirement};

use super::*;

/// A type with offerings like `a spot 0.1`, `a reserved 0.1 cr-1 default 5`; a `!` stands before those that cannot be had.
fn mk(name: &str, cpu: i64, offerings: &[&str]) -> Arc<InstanceType> {
    let offerings: Vec<Offering> = offerings.iter().map(|text| offering(text)).collect();
    let (family, size) = name.split_once('.').unwrap();
    let all = |value: fn(&Offering) -> Option<&str>| offerings.iter().filter_map(value);
    let ids: Vec<_> = offerings
        .iter()
        .filter_map(|one| one.requirements.get(CAPACITY_RESERVATION_ID)?.only_value())
        .collect();
    let reservation = if ids.is_empty() {
        Requirement::does_not_exist(CAPACITY_RESERVATION_ID)
    } else {
        Requirement::is_in(CAPACITY_RESERVATION_ID, ids)
    };
    let requirements = Requirements::new([
        Requirement::is_in(INSTANCE_TYPE, [name]),
        Requirement::is_in(INSTANCE_FAMILY, [family]),
        Requirement::is_in(INSTANCE_SIZE, [size]),
        Requirement::is_in(ZONE, all(Offering::zone)),
        Requirement::is_in(CAPACITY_TYPE, all(Offering::capacity_type)),
        reservation,
    ]);
    let mut capacity = Resources::new().with(CPU, Quantity::from_units(cpu));
    if family.starts_with('g') {
        capacity.set(NVIDIA_GPU, Quantity::from_units(1));
    }
    Arc::new(InstanceType::new(name, requirements, offerings, capacity, Overhead::default()))
}

fn offering(text: &str) -> Offering {
    let parts: Vec<&str> = text.trim_start_matches('!').split(' ').collect();
    let mut requirements = Requirements::new([
        Requirement::is_in(ZONE, [parts[0]]),
        Requirement::is_in(CAPACITY_TYPE, [parts[1]]),
    ]);
    let reservation = |key: &str, at: usize, value: fn(&str) -> String| match parts.get(at) {
        Some(part) => Requirement::is_in(key, [value(part)]),
        None => Requirement::does_not_exist(key),
    };
    requirements.extend([
        reservation(CAPACITY_RESERVATION_ID, 3, str::to_owned),
        reservation(CAPACITY_RESERVATION_TYPE, 4, |kind| kind.replace("interruptible", "default")),
        reservation(CAPACITY_RESERVATION_INTERRUPTIBLE, 4, |kind| {
            (kind == "interruptible").to_string()
        }),
    ]);
    Offering {
        requirements,
        price: parts[2].parse().unwrap(),
        available: !text.starts_with('!'),
        reservation_capacity: parts.get(5).map_or(0, |left| left.parse().unwrap()),
        ..Offering::default()
    }
}

fn labels() -> KnownLabels {
    KnownLabels::from(&kerf_aws_api::labels::label_rules())
}

fn plan_for(
    types: &[Arc<InstanceType>],
    requirements: &[Requirement],
    cpu: i64,
) -> Result<LaunchPlan, NothingToLaunch> {
    let requests = Resources::new().with(CPU, Quantity::from_units(cpu));
    plan(
        types,
        Wish {
            requirements: &Requirements::new(requirements.iter().cloned()),
            requests: &requests,
            labels: &labels(),
            min_values: MinValuesPolicy::Strict,
        },
    )
}

fn capacity_types(values: &[&str]) -> Requirement {
    Requirement::is_in(CAPACITY_TYPE, values.iter().copied())
}

/// `type: offerings`, in the order of the plan.
fn shown(plan: &LaunchPlan) -> Vec<String> {
    let offering = |one: &Offering| {
        let id = one.requirements.get(CAPACITY_RESERVATION_ID).and_then(|id| id.only_value());
        let capacity_type = one.capacity_type().unwrap();
        format!("{}/{}", one.zone().unwrap(), id.unwrap_or(capacity_type))
    };
    let of_type = |one: &Arc<InstanceType>| {
        let offerings: Vec<_> = one.offerings().iter().map(offering).collect();
        format!("{}: {}", one.name(), offerings.join(" "))
    };
    plan.types.iter().map(of_type).collect()
}

#[test]
fn only_what_suits_and_can_be_had_is_launched() {
    let types = [
        mk("m5.large", 2, &["a spot 0.04", "a on-demand 0.1"]),
        mk("m5.xlarge", 4, &["a spot 0.08", "!a on-demand 0.2"]),
        mk("c5.xlarge", 4, &["!a spot 0.07", "!a on-demand 0.17"]),
    ];
    let both = capacity_types(&["spot", "on-demand"]);
    let check = |requirements: &[Requirement], cpu: i64, expected: &[&str], terms: Terms| {
        let plan = plan_for(&types, requirements, cpu).unwrap();
        assert_eq!(shown(&plan), expected);
        assert_eq!(plan.terms, terms);
        assert_eq!(plan.tenancy, "default");
    };
    check(
        std::slice::from_ref(&both),
        2,
        &["m5.large: a/spot a/on-demand", "m5.xlarge: a/spot a/on-demand"],
        Terms::Spot,
    );
    check(std::slice::from_ref(&both), 3, &["m5.xlarge: a/spot a/on-demand"], Terms::Spot);
    check(&[capacity_types(&["on-demand"])], 1, &["m5.large: a/spot a/on-demand"], Terms::OnDemand);
    let refused =
        |requirements: &[Requirement], cpu| plan_for(&types, requirements, cpu).unwrap_err();
    let none = NothingToLaunch::Unavailable { after: Filter::CompatibleAndAvailable };
    assert_eq!(refused(&[capacity_types(&["on-demand"])], 3), none);
    assert_eq!(refused(&[both, Requirement::is_in(ZONE, ["b"])], 1), none);
    assert_eq!(
        none.to_string(),
        "all requested instance types were unavailable during launch (compatible and available)"
    );
}

#[test]
fn a_fleet_takes_one_kind_of_reservation() {
    let check = |types: &[Arc<InstanceType>], expected: &[&str], terms: Terms| {
        let plan =
            plan_for(types, &[capacity_types(&["reserved", "spot", "on-demand"])], 1).unwrap();
        assert_eq!(shown(&plan), expected);
        assert_eq!(plan.terms, terms);
    };
    // The kind of the cheapest.
    check(
        &[
            mk("m5.large", 2, &["a reserved 0.02 cr-1 default 5", "a on-demand 1"]),
            mk(
                "m5.xlarge",
                4,
                &["a reserved 0.01 cr-2 interruptible 5", "b reserved 0.01 cr-3 default 5"],
            ),
        ],
        &["m5.xlarge: b/cr-3", "m5.large: a/cr-1"],
        Terms::Reserved(ReservationKind::Default),
    );
    check(
        &[
            mk("m5.large", 2, &["a reserved 0.02 cr-1 default 5"]),
            mk(
                "m5.xlarge",
                4,
                &["a reserved 0.01 cr-2 interruptible 5", "b reserved 0.02 cr-3 default 5"],
            ),
        ],
        &["m5.xlarge: a/cr-2"],
        Terms::Reserved(ReservationKind::Interruptible),
    );
    // One block: the cheapest.
    check(
        &[
            mk("p5.large", 2, &["a reserved 0.02 cr-1 capacity-block 5"]),
            mk(
                "p5.xlarge",
                4,
                &[
                    "a reserved 0.01 cr-2 capacity-block 1",
                    "b reserved 0.005 cr-3 capacity-block 1",
                ],
            ),
            mk("m5.large", 4, &["a reserved 0.01 cr-4 default 9"]),
        ],
        &["p5.xlarge: b/cr-3"],
        Terms::Reserved(ReservationKind::CapacityBlock),
    );
    // For each type and zone the one with most left; types without any are dropped.
    check(
        &[
            mk(
                "m5.large",
                2,
                &[
                    "a reserved 0.01 cr-1 default 2",
                    "a reserved 0.01 cr-2 default 5",
                    "b reserved 0.01 cr-3 default 1",
                    "a spot 0.3",
                ],
            ),
            mk("c5.large", 2, &["a spot 0.001"]),
        ],
        &["m5.large: a/cr-2 b/cr-3"],
        Terms::Reserved(ReservationKind::Default),
    );
    // Used up or not to be had: as if there were none.
    check(
        &[mk(
            "m5.large",
            2,
            &["a reserved 0.01 cr-1 default 0", "!b reserved 0.01 cr-2 default 4", "a spot 0.3"],
        )],
        &["m5.large: a/cr-1 b/cr-2 a/spot"],
        Terms::Spot,
    );
}

#[test]
fn reservations_stay_out_of_launches_that_do_not_allow_them() {
    let types = [mk("m5.large", 2, &["a reserved 0.01 cr-1 default 2", "a on-demand 0.3"])];
    let plan = plan_for(&types, &[capacity_types(&["on-demand"])], 1).unwrap();
    assert_eq!(plan.terms, Terms::OnDemand);
    assert_eq!(shown(&plan), ["m5.large: a/cr-1 a/on-demand"]);
}

#[test]
fn exotic_types_are_for_those_who_ask_for_them() {
    let types = [
        mk("m5.large", 2, &["a on-demand 0.3"]),
        mk("m5.metal", 96, &["a on-demand 0.2"]),
        mk("g5.large", 2, &["a on-demand 0.1"]),
    ];
    let names = |requirements: &[Requirement], cpu| -> Vec<String> {
        let plan = plan_for(&types, requirements, cpu).unwrap();
        plan.types.iter().map(|one| one.name().to_owned()).collect()
    };
    assert_eq!(names(&[], 1), ["m5.large"]);
    assert_eq!(names(&[], 50), ["m5.metal"]);
    assert_eq!(names(&[Requirement::is_in(INSTANCE_FAMILY, ["g5"])], 1), ["g5.large"]);
    let flexible =
        Requirement::new(INSTANCE_FAMILY, Operator::Exists, [""; 0]).with_min_values(Some(2));
    assert_eq!(names(&[flexible], 1), ["g5.large", "m5.metal", "m5.large"]);
    let plan = plan_for(&types, &[], 1).unwrap();
    assert_eq!(
        plan.left_out,
        [(Filter::Exotic, vec!["m5.metal".to_owned(), "g5.large".to_owned()])]
    );
}

#[test]
fn spot_is_not_dearer_than_on_demand_in_mixed_launches() {
    let types = [
        mk("m5.large", 2, &["a spot 0.3", "b spot 0.05", "a on-demand 0.1"]),
        mk("m5.xlarge", 4, &["a spot 0.2"]),
        mk("c5.large", 2, &["a spot 0.1", "a on-demand 0.2"]),
    ];
    let check = |requirements: &[Requirement], expected: &[&str]| {
        assert_eq!(shown(&plan_for(&types, requirements, 1).unwrap()), expected);
    };
    check(
        &[capacity_types(&["spot", "on-demand"])],
        &["m5.large: b/spot a/on-demand", "c5.large: a/spot a/on-demand"],
    );
    check(
        &[capacity_types(&["spot"])],
        &[
            "m5.large: a/spot b/spot a/on-demand",
            "c5.large: a/spot a/on-demand",
            "m5.xlarge: a/spot",
        ],
    );
    let flexible =
        Requirement::new(INSTANCE_FAMILY, Operator::Exists, [""; 0]).with_min_values(Some(2));
    check(
        &[capacity_types(&["spot", "on-demand"]), flexible],
        &[
            "m5.large: a/spot b/spot a/on-demand",
            "c5.large: a/spot a/on-demand",
            "m5.xlarge: a/spot",
        ],
    );
}

#[test]
fn the_cheapest_60_types_are_asked_for() {
    let types: Vec<_> = (0..80)
        .map(|at| mk(&format!("m{at}.large"), 2, &[&format!("a on-demand {}.5", 100 - at)]))
        .collect();
    let plan = plan_for(&types, &[], 1).unwrap();
    assert_eq!(plan.types.len(), 60);
    assert_eq!((plan.types[0].name(), plan.types[59].name()), ("m79.large", "m20.large"));
    let flexible = |least| {
        Requirement::new(INSTANCE_FAMILY, Operator::Exists, [""; 0]).with_min_values(Some(least))
    };
    assert_eq!(plan_for(&types, &[flexible(60)], 1).unwrap().types.len(), 60);
    let error = plan_for(&types, &[flexible(61)], 1).unwrap_err();
    assert!(matches!(error, NothingToLaunch::TooFewValues(_)), "{error}");
}

#[test]
fn tenancy_and_flexibility_are_told() {
    let types = [mk("m5.large", 2, &["a on-demand 0.3", "!a spot 0.1"])];
    for (tenancies, expected) in [
        (&["default", "dedicated"][..], "default"),
        (&["dedicated"], "dedicated"),
        (&["default"], "default"),
    ] {
        let requirement = Requirement::is_in(INSTANCE_TENANCY, tenancies.iter().copied());
        assert_eq!(plan_for(&types, &[requirement], 1).unwrap().tenancy, expected);
    }
    let plan = |values: &[&str]| plan_for(&types, &[capacity_types(values)], 1).unwrap();
    assert_eq!(plan(&["spot", "on-demand"]).inflexible, Some(1));
    assert_eq!(plan(&["on-demand"]).inflexible, None);
}
