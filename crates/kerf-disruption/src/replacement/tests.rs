use std::sync::Arc;

use kerf_model::{
    InstanceType, Offering, Overhead, Pool, Requirements, Resources,
    churn::ChurnControls,
    disruption::Cost,
    labels::{INSTANCE_TYPE, RESERVED, ZONE},
};

use super::*;
use crate::controls::Stake;

const RESERVATION: &str = "example.com/reservation";

fn price(text: &str) -> Price {
    text.parse().unwrap()
}

fn labels() -> KnownLabels {
    KnownLabels { reservation_id: Some(RESERVATION.to_owned()), ..KnownLabels::default() }
}

/// A type with its offerings: `m: spot@a 0.3, on-demand@b 1.0 gone`.
fn instance_type(text: &str) -> Arc<InstanceType> {
    let (name, offerings) = text.split_once(": ").unwrap();
    let offering = |text: &str| {
        let mut words = text.split(' ');
        let (capacity_type, zone) = words.next().unwrap().split_once('@').unwrap();
        let mut requirements = Requirements::new([
            Requirement::is_in(CAPACITY_TYPE, [capacity_type]),
            Requirement::is_in(ZONE, [zone]),
        ]);
        if capacity_type == RESERVED {
            requirements.add(Requirement::is_in(RESERVATION, ["r-1"]));
        }
        Offering {
            requirements,
            price: price(words.next().unwrap()),
            available: words.next() != Some("gone"),
            reservation_capacity: u32::from(capacity_type == RESERVED),
            ..Offering::default()
        }
    };
    let family = name.split('-').next().unwrap();
    let requirements = Requirements::new([
        Requirement::is_in(INSTANCE_TYPE, [name]),
        Requirement::is_in("family", [family]),
    ]);
    let offerings = offerings.split(", ").map(offering).collect();
    Arc::new(InstanceType::new(
        name,
        requirements,
        offerings,
        Resources::new(),
        Overhead::default(),
    ))
}

fn claim(types: &[&str], requirements: Requirements) -> PlannedClaim {
    let mut instance_types: Vec<_> = types.iter().map(|text| instance_type(text)).collect();
    order_by_price(&mut instance_types, &requirements, &labels());
    let cheapest = instance_types[0].cheapest_price(&requirements, &labels());
    PlannedClaim {
        pool: Arc::new(Pool::default()),
        pods: Vec::new(),
        virtual_pods: Vec::new(),
        instance_types,
        requirements,
        requests: Resources::new(),
        price: cheapest,
        min_values_relaxed: false,
    }
}

/// A node with two ordinary pods: `spot m 0.5`.
fn candidate(text: &str) -> Candidate {
    let [capacity_type, type_name, value] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    let instance_type = instance_type(&format!("{type_name}: {capacity_type}@a {value}"));
    Candidate {
        pool: "default".to_owned(),
        instance_type: Some(instance_type),
        zone: Some("a".to_owned()),
        capacity_type: Some(capacity_type.to_owned()),
        price: price(value),
        rescheduling_cost: Cost(3 * Cost::ONE.0),
        disruption_cost: Cost(2 * Cost::ONE.0),
        ..Candidate::default()
    }
}

/// What upstream does: nothing but strictly cheaper.
fn parity() -> ChurnControls {
    controls("1", "0")
}

fn controls(factor: &str, threshold: &str) -> ChurnControls {
    ChurnControls {
        price_improvement_factor: factor.parse().unwrap(),
        savings_threshold: threshold.parse().unwrap(),
        ..ChurnControls::default()
    }
}

fn bought(
    candidates: &[&str],
    controls: ChurnControls,
    claim: &PlannedClaim,
    spot_to_spot: bool,
) -> Result<Purchase, Blocked> {
    let candidates: Vec<_> = candidates.iter().map(|text| candidate(text)).collect();
    let candidates: Vec<_> = candidates.iter().collect();
    let cost = candidates.iter().map(|candidate| candidate.disruption_cost.0).sum();
    let stakes = Stakes::new(vec![Stake {
        pool: "default".to_owned(),
        price: candidates.iter().map(|candidate| candidate.price).sum(),
        cost: Cost(cost),
        controls,
    }]);
    purchase(&candidates, &stakes, claim, &labels(), spot_to_spot)
}

/// The types that are left, the capacity type if one is asked for, what is saved and what may be paid.
fn outcome(result: Result<Purchase, Blocked>) -> String {
    match result {
        Ok(purchase) => {
            let types: Vec<_> =
                purchase.claim.instance_types.iter().map(|one| one.name()).collect();
            let capacity_type = purchase.claim.requirements.get(CAPACITY_TYPE);
            let capacity_type = capacity_type.and_then(Requirement::only_value).unwrap_or("any");
            // All candidates here cost 1.
            let savings = (price("1") - purchase.claim.price).exact();
            let at_most = purchase.promise.at_most.exact();
            format!("{} as {capacity_type}, saves {savings} up to {at_most}", types.join(" "))
        }
        Err(blocked) => blocked.name().to_owned(),
    }
}

fn check(candidates: &[&str], types: &[&str], expect: &str) {
    let result = bought(candidates, parity(), &claim(types, Requirements::default()), true);
    assert_eq!(outcome(result), expect, "{candidates:?} {types:?}");
}

#[test]
fn only_what_is_strictly_cheaper_is_bought() {
    check(
        &["on-demand m 1"],
        &["a: on-demand@a 0.5", "b: on-demand@a 1", "c: on-demand@a 2"],
        "a as any, saves 0.5 up to 0.9999999999",
    );
    check(&["on-demand m 1"], &["b: on-demand@a 1"], "same_or_more_expensive_replacement");
    check(&["on-demand m 0"], &["a: on-demand@a 0.5"], "unknown_price");
    check(
        &["on-demand m 1"],
        &["a: on-demand@a 0.5 gone", "b: on-demand@a 0.6"],
        "b as any, saves 0.4 up to 0.9999999999",
    );
}

#[test]
fn the_worst_offering_counts() {
    // The provider may take either zone.
    check(
        &["on-demand m 1"],
        &["a: on-demand@a 0.5, on-demand@b 1.5"],
        "same_or_more_expensive_replacement",
    );
    check(
        &["on-demand m 1"],
        &["a: on-demand@a 0.5, on-demand@b 1.5 gone"],
        "a as any, saves 0.5 up to 0.9999999999",
    );
    let here = Requirements::new([Requirement::is_in(ZONE, ["a"])]);
    let result = bought(
        &["on-demand m 1"],
        parity(),
        &claim(&["a: on-demand@a 0.5, on-demand@b 1.5"], here),
        true,
    );
    assert_eq!(outcome(result), "a as any, saves 0.5 up to 0.9999999999");
    // Any spot offering that is dearer stands in the way, however cheap the others are.
    check(
        &["on-demand m 1"],
        &["a: spot@a 0.2, spot@b 1.5, on-demand@a 0.9"],
        "same_or_more_expensive_replacement",
    );
}

#[test]
fn spot_is_insisted_on_where_the_price_was_that_of_spot() {
    // On-demand would cost more than what is there; without spot the launch has to fail.
    check(
        &["on-demand m 1"],
        &["a: spot@a 0.2, on-demand@a 2"],
        "a as spot, saves 0.8 up to 0.9999999999",
    );
    // The cheapest spot type first, though another would be the cheapest on demand.
    check(
        &["on-demand m 1"],
        &["a: spot@a 0.3, on-demand@a 0.1", "b: spot@a 0.2, on-demand@a 0.9"],
        "b a as spot, saves 0.8 up to 0.9999999999",
    );
    // Where no type has any spot the price was that of on-demand, and a launch that insists on spot would never come.
    check(
        &["on-demand m 1"],
        &["a: on-demand@a 0.5, spot@a 0.2 gone"],
        "a as any, saves 0.5 up to 0.9999999999",
    );
    let on_demand = Requirements::new([Requirement::is_in(CAPACITY_TYPE, [ON_DEMAND])]);
    let only = claim(&["a: spot@a 0.2, on-demand@a 0.5"], on_demand);
    let result = bought(&["on-demand m 1"], parity(), &only, true);
    assert_eq!(outcome(result), "a as on-demand, saves 0.5 up to 0.9999999999");
    // A mix of sources is not spot to spot, and needs no gate.
    let mixed = claim(&["a: spot@a 0.3, on-demand@a 2"], Requirements::default());
    let result = bought(&["on-demand m 0.6", "spot m 0.4"], parity(), &mixed, false);
    assert_eq!(outcome(result), "a as spot, saves 0.7 up to 0.9999999999");
}

/// `count` types at 0.01, 0.02, ... as spot and twice that on demand, in two families by turns.
fn ladder(count: usize) -> Vec<String> {
    let step = |at: usize| {
        let family = if at.is_multiple_of(2) { "even" } else { "odd" };
        let cents = at + 1;
        format!("{family}-{at:02}: spot@a 0.{cents:02}, on-demand@a 0.{:02}", 2 * cents)
    };
    (0..count).map(step).collect()
}

fn spot_claim(count: usize, requirements: Requirements) -> PlannedClaim {
    let types = ladder(count);
    claim(&types.iter().map(String::as_str).collect::<Vec<_>>(), requirements)
}

#[test]
fn spot_gives_way_to_spot_only_with_a_wide_choice() {
    let check = |candidates: &[&str], count, gate, controls, expect: Result<usize, Blocked>| {
        let result =
            bought(candidates, controls, &spot_claim(count, Requirements::default()), gate);
        let kept = result.map(|purchase| {
            let wanted = purchase.claim.requirements.get(CAPACITY_TYPE);
            assert_eq!(wanted.and_then(Requirement::only_value), Some(SPOT));
            purchase.claim.instance_types.len()
        });
        assert_eq!(kept, expect, "{candidates:?} {count}");
    };
    let short_by = |have, by_price_factor, by_savings_threshold| {
        let removed = Removed { by_price_factor, by_savings_threshold };
        Err(Blocked::SpotFlexibility { have, need: 15, removed })
    };
    let short = |have| short_by(have, 0, 0);
    check(&["spot m 1"], 20, false, parity(), Err(Blocked::SpotToSpotDisabled));
    check(&["spot m 1"], 14, true, parity(), short(14));
    check(&["spot m 1"], 15, true, parity(), Ok(15));
    check(&["spot m 1"], 40, true, parity(), Ok(15));
    // Of 20 types 14 are cheaper than 0.15: the node itself is among the 15 cheapest.
    check(&["spot m 0.15"], 20, true, parity(), short(14));
    check(&["spot m 0.16"], 20, true, parity(), Ok(15));
    // The controls come before the count: 20 are cheaper than 0.25, 14 of them by 40 percent.
    check(&["spot m 0.25"], 20, true, controls("0.6", "0"), short_by(14, 6, 0));
    check(&["spot m 0.25"], 20, true, controls("0.64", "0"), Ok(15));
    // Two pods at 0.01 each: what costs 0.15 saves too little for a node of 0.16.
    check(&["spot m 0.16"], 20, true, controls("1", "0.01"), short_by(14, 0, 1));
    // The refusal says what each control removed: the one 0.15 to 0.2, the other 0.12 to 0.14.
    check(&["spot m 0.25"], 20, true, controls("0.6", "0.07"), short_by(11, 6, 3));
    check(&["spot m 0.17"], 20, true, controls("1", "0.01"), Ok(15));
    // Several nodes into one need no choice, but do need the gate.
    check(&["spot m 0.5", "spot m 0.5"], 3, true, parity(), Ok(3));
    check(&["spot m 0.5", "spot m 0.5"], 40, true, parity(), Ok(40));
    check(&["spot m 0.5", "spot m 0.5"], 3, false, parity(), Err(Blocked::SpotToSpotDisabled));
}

#[test]
fn the_savings_example_of_the_proposal_with_numbers_that_exist() {
    // 50 types cheaper than 0.40, 8 pods: 12 at 0.33 to 0.38 save too little, 38 at 0.10 to 0.32 pass, 15 are bought.
    let ladder: Vec<String> = (0..50)
        .map(|at| match at {
            0..38 => format!("t-{at:02}: spot@a 0.{:04}", 1000 + at * 59),
            _ => format!("t-{at:02}: spot@a 0.{:04}", 3300 + (at - 38) * 45),
        })
        .collect();
    let claim =
        claim(&ladder.iter().map(String::as_str).collect::<Vec<_>>(), Requirements::default());
    let mut sources = [candidate("spot m 0.40"), candidate("spot m 0.40")];
    for source in &mut sources {
        source.disruption_cost = Cost(8 * Cost::ONE.0);
    }
    let kept = |number: usize| {
        let stakes = Stakes::new(vec![Stake {
            pool: "default".to_owned(),
            price: price("0.40"),
            cost: Cost(8 * Cost::ONE.0),
            controls: controls("1", "0.01"),
        }]);
        let sources: Vec<_> = sources.iter().take(number).collect();
        let purchase = purchase(&sources, &stakes, &claim, &labels(), true).unwrap();
        (purchase.claim.instance_types.len(), purchase.promise.at_most)
    };
    assert_eq!(kept(1), (15, price("0.32")));
    // Without the cut, as for several nodes, it shows how many pass.
    assert_eq!(kept(2).0, 38);
}

/// Its edge case: 50 types are cheaper, 36 save less than the 0.08 that 8 pods are worth, and 14 are too few for spot.
#[test]
fn what_saves_too_little_is_no_choice() {
    let bought = |enough: usize| {
        let types: Vec<String> = (0..50)
            .map(|at| match at {
                at if at < enough => format!("t-{at:02}: spot@a 0.{:04}", 2500 + at * 50),
                at => format!("t-{at:02}: spot@a 0.{:04}", 3300 + at * 10),
            })
            .collect();
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        let mut source = candidate("spot m 0.40");
        source.disruption_cost = Cost(8 * Cost::ONE.0);
        let stakes = Stakes::new(vec![Stake {
            pool: "default".to_owned(),
            price: source.price,
            cost: source.disruption_cost,
            controls: controls("1", "0.01"),
        }]);
        let claim = claim(&types, Requirements::default());
        let result = purchase(&[&source], &stakes, &claim, &labels(), true);
        result.map(|purchase| purchase.claim.instance_types.len())
    };
    let removed = Removed { by_price_factor: 0, by_savings_threshold: 36 };
    assert_eq!(bought(14), Err(Blocked::SpotFlexibility { have: 14, need: 15, removed }));
    assert_eq!(bought(15), Ok(15));
}

#[test]
fn the_controls_may_leave_less_than_the_pool_asks_for() {
    let types = ["a-1: on-demand@a 0.5", "a-2: on-demand@a 0.6", "b-1: on-demand@a 0.9"];
    let check = |controls, key: &str, count, expect: &str| {
        let wide = Requirements::new([Requirement::exists(key).with_min_values(Some(count))]);
        let result = bought(&["on-demand m 1"], controls, &claim(&types, wide), true);
        assert_eq!(outcome(result), expect, "{key} {count}");
    };
    check(parity(), "family", 2, "a-1 a-2 b-1 as any, saves 0.5 up to 0.9999999999");
    // All are cheaper; by the factor two are, of one family.
    check(controls("0.7", "0"), "family", 1, "a-1 a-2 as any, saves 0.5 up to 0.6999999999");
    check(controls("0.7", "0"), "family", 2, "min_values");
    check(controls("0.7", "0"), INSTANCE_TYPE, 3, "min_values");
    // Two pods: 0.2 is required, and the third saves 0.1.
    check(controls("1", "0.1"), INSTANCE_TYPE, 2, "a-1 a-2 as any, saves 0.5 up to 0.8");
    check(controls("1", "0.1"), "family", 2, "min_values");
    check(controls("1", "0.1"), INSTANCE_TYPE, 3, "min_values");
}

#[test]
fn the_choice_stays_as_wide_as_the_pool_asks() {
    let at_least = |key: &str, count| {
        Requirements::new([Requirement::exists(key).with_min_values(Some(count))])
    };
    let check = |requirements, count, expect: Result<usize, &str>| {
        let result = bought(&["spot m 1"], parity(), &spot_claim(count, requirements), true);
        let kept = result.map(|purchase| purchase.claim.instance_types.len());
        assert_eq!(kept.as_ref().map_err(Blocked::name), expect.as_ref().map_err(|name| *name));
    };
    // Fewer than 15 are asked for: 15 it is. More: as many as that takes.
    check(at_least(INSTANCE_TYPE, 10), 40, Ok(15));
    check(at_least(INSTANCE_TYPE, 18), 40, Ok(18));
    check(at_least("family", 2), 40, Ok(15));
    check(at_least("family", 3), 40, Err("min_values"));
    // The filter by price may take too much, here for on-demand nodes.
    let narrow = |requirements| {
        claim(&["a-1: on-demand@a 0.5", "a-2: on-demand@a 0.6", "b-1: on-demand@a 2"], requirements)
    };
    for (key, count, expect) in [
        ("family", 1, "a-1 a-2 as any, saves 0.5 up to 0.9999999999"),
        ("family", 2, "min_values"),
        (INSTANCE_TYPE, 2, "a-1 a-2 as any, saves 0.5 up to 0.9999999999"),
        (INSTANCE_TYPE, 3, "min_values"),
    ] {
        let result = bought(&["on-demand m 1"], parity(), &narrow(at_least(key, count)), true);
        assert_eq!(outcome(result), expect, "{key} {count}");
    }
    // What the scheduler lowered for pods that wait is not lowered for pods that run.
    let relaxed = PlannedClaim { min_values_relaxed: true, ..narrow(at_least(INSTANCE_TYPE, 1)) };
    assert_eq!(outcome(bought(&["on-demand m 1"], parity(), &relaxed, true)), "min_values");
}

#[test]
fn several_nodes_are_not_merged_into_one_of_their_own_type() {
    let two = ["on-demand m 0.5", "on-demand m 0.5"];
    check(&two, &["m: on-demand@a 0.5"], "same_or_more_expensive_replacement");
    check(
        &two,
        &["m: on-demand@a 0.5", "n: on-demand@a 0.6"],
        "same_or_more_expensive_replacement",
    );
    // Cheaper than the type that would come back is fine, and so is anything when none would.
    check(
        &two,
        &["m: on-demand@a 0.5", "n: on-demand@a 0.4"],
        "n as any, saves 0.6 up to 0.4999999999",
    );
    check(&two, &["n: on-demand@a 0.6"], "n as any, saves 0.4 up to 0.9999999999");
    // The cheapest of the types that would come back is the measure.
    check(
        &["on-demand m 0.7", "on-demand n 0.3"],
        &["m: on-demand@a 0.7", "n: on-demand@a 0.3", "o: on-demand@a 0.29"],
        "o as any, saves 0.71 up to 0.2999999999",
    );
    // No replacement is cheaper than an unknown price.
    check(
        &["on-demand m 1", "on-demand n 0"],
        &["n: on-demand@a 0.3", "o: on-demand@a 0.2"],
        "same_or_more_expensive_replacement",
    );
    // The same type elsewhere, for less.
    check(&two, &["m: on-demand@b 0.4"], "m as any, saves 0.6 up to 0.4999999999");
    // A single node may well move to its own type, if that is cheaper somewhere.
    check(&["on-demand m 1"], &["m: on-demand@b 0.4"], "m as any, saves 0.6 up to 0.9999999999");
    // What is left has to be wide enough still.
    let wide = Requirements::new([Requirement::exists(INSTANCE_TYPE).with_min_values(Some(2))]);
    let types = claim(&["m: on-demand@a 0.5", "n: on-demand@a 0.4"], wide);
    assert_eq!(outcome(bought(&two, parity(), &types, true)), "min_values");
}

#[test]
fn reserved_capacity_is_next_to_nothing() {
    let pinned = || {
        Requirements::new([
            Requirement::is_in(CAPACITY_TYPE, [RESERVED]),
            Requirement::is_in(RESERVATION, ["r-1"]),
        ])
    };
    let check = |source: &str, types: &[&str], controls, expect: &str| {
        let result = bought(&[source], controls, &claim(types, pinned()), false);
        assert_eq!(outcome(result), expect, "{source}");
    };
    let same_type = ["m: reserved@a 0.0000001, spot@a 0.2, on-demand@a 1"];
    let expect = "m as reserved, saves 0.9999999 up to 0.9999999999";
    check("on-demand m 1", &same_type, parity(), expect);
    // To reserved is not spot to spot: the gate is shut here.
    check("spot m 1", &same_type, parity(), expect);
    check(
        "on-demand m 1",
        &same_type,
        controls("0.01", "0"),
        "m as reserved, saves 0.9999999 up to 0.0099999999",
    );
    // From reserved to a cheaper reservation.
    check("reserved n 1", &same_type, parity(), expect);
    check("reserved n 0.0000001", &same_type, parity(), "same_or_more_expensive_replacement");
    // Nothing that costs so little saves what moving two pods is worth.
    check("reserved n 0.0000002", &same_type, controls("1", "0.01"), "savings_threshold");
}

#[test]
fn refusals_say_what_the_best_offer_was() {
    let blocked = |factor, threshold| {
        let types = claim(
            &["a: on-demand@a 0.8, on-demand@b 0.9", "b: on-demand@a 0.95"],
            Requirements::default(),
        );
        bought(&["on-demand m 1"], controls(factor, threshold), &types, true).unwrap_err()
    };
    assert_eq!(
        blocked("0.85", "0"),
        Blocked::PriceFactor {
            pool: "default".to_owned(),
            price: price("1"),
            factor: "0.85".parse().unwrap(),
            cheapest: price("0.9")
        }
    );
    assert_eq!(
        blocked("1", "0.06"),
        Blocked::SavingsThreshold {
            pool: "default".to_owned(),
            savings: price("0.1"),
            required: price("0.12"),
            cost: Cost(2 * Cost::ONE.0)
        }
    );
    // Not even the cheapest offering would do, so the search ended there.
    assert_eq!(
        blocked("0.5", "0"),
        Blocked::PriceFactor {
            pool: "default".to_owned(),
            price: price("1"),
            factor: "0.5".parse().unwrap(),
            cheapest: price("0.8")
        }
    );
}

#[test]
fn a_promise_is_kept_by_asking_only_for_what_keeps_it() {
    let check = |candidates: &[&str], types: &[&str], at_most: &str, expect: &str| {
        let claim = claim(types, Requirements::default());
        let mut purchase = bought(candidates, parity(), &claim, true).unwrap();
        purchase.keep_to(price(at_most), &labels());
        assert_eq!(outcome(Ok(purchase)), expect, "{types:?}");
    };
    let node = ["on-demand m 1"];
    let types = ["a: on-demand@a 0.2", "b: on-demand@a 0.5", "c: on-demand@a 0.6"];
    check(&node, &types, "0.55", "a b as any, saves 0.8 up to 0.55");
    check(&node, &types, "0.9", "a b c as any, saves 0.8 up to 0.9");
    // The cheapest is sold for more elsewhere; the next one is sure, and its savings are reported.
    let uneven = ["a: on-demand@a 0.2, on-demand@b 0.7", "b: on-demand@a 0.3"];
    check(&node, &uneven, "0.5", "b as any, saves 0.7 up to 0.5");
    // Nothing is sure: whatever is bought is looked at when it is there.
    check(&node, &uneven[..1], "0.5", "a as any, saves 0.8 up to 0.5");
    // Among spot a wide choice counts for more.
    let ladder = ladder(20);
    let ladder: Vec<&str> = ladder.iter().map(String::as_str).collect();
    let claim = claim(&ladder, Requirements::default());
    let mut purchase = bought(&["spot m 1"], parity(), &claim, true).unwrap();
    purchase.keep_to(purchase.claim.price, &labels());
    assert_eq!(purchase.claim.instance_types.len(), SPOT_FLEXIBILITY);
}
