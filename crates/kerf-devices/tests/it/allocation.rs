//! Allocations, case by case.

use std::collections::{BTreeMap, BTreeSet};

use kerf_devices::allocator::{Allocation, CLAIMS_LIMIT, DEVICES_LIMIT, Nodes};
use kerf_devices::claim::Claim;
use kerf_devices::device::{Effect, Portions, Toleration};
use kerf_devices::pool::{Pools, Unusable};
use kerf_devices::reach::{Condition, NodeSelector, Reach, Requirement, Term};
use kerf_devices::refusal::Refusal;
use kerf_devices::slice::Content;
use kerf_devices::usage::Usage;

use crate::builders::{
    Asking, Constrained, With, all, allocate, allocate_within, amount, claim, count, counters,
    device, devices, distinct, exactly, first_available, local, matching, one, pools, slice, told,
    used,
};

/// The allocation as text, or the name of the refusal.
fn answer(result: &Result<Vec<Allocation>, Box<Refusal>>) -> String {
    match result {
        Ok(allocations) => told(allocations),
        Err(refusal) => refusal.name().to_owned(),
    }
}

fn check(pools: &Pools, claims: &[Claim], expect: &str) {
    assert_eq!(answer(&allocate(pools, &Usage::default(), claims)), expect);
}

#[test]
fn takes_the_first_devices_that_are_free() {
    let pools = pools(devices(["a", "b", "c"]), []);
    let first = allocate(&pools, &Usage::default(), &[claim("x", [exactly("r", count(2))])]);
    assert_eq!(answer(&first), "r: a, r: b");
    let usage = used(&first.unwrap());
    assert_eq!(answer(&allocate(&pools, &usage, &[claim("y", [exactly("r", one())])])), "r: c");
    let refused = allocate(&pools, &usage, &[claim("y", [exactly("r", count(2))])]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "claim default/y: request r needs 2, and 1 of 3 devices are usable (2 in use)"
    );
    assert!(!refused.ends_scheduling());
}

#[test]
fn no_requests_need_no_devices() {
    check(&Pools::default(), &[claim("x", [])], "");
    check(&Pools::default(), &[], "");
}

#[test]
fn the_order_is_driver_pool_slice_device_and_those_with_conditions_last() {
    let mut conditional = device("conditional");
    conditional.has_binding_conditions = true;
    let pools = Pools::gather([
        slice("a", "2", 2, local(devices(["n"]))),
        slice("b", "1", 1, local(devices(["x"]))),
        slice("a", "1", 2, local(devices(["z", "m"]))),
        slice("0", "1", 1, local(vec![conditional])),
    ]);
    check(
        &pools,
        &[claim("x", [exactly("r", count(5))])],
        "r: z, r: m, r: n, r: x, r: conditional",
    );
}

#[test]
fn selectors_of_class_and_request_have_to_match() {
    let sized = |name: &str, size: &str| device(name).text("size", size);
    let pools = pools(
        vec![sized("a", "small"), sized("b", "large").int("n", 1), sized("c", "large").int("n", 2)],
        [],
    );
    check(&pools, &[claim("x", [exactly("r", one().of("large"))])], "r: b");
    let second = one().of("large").selecting(r#"device.attributes["gpu.example.com"].n == 2"#);
    check(&pools, &[claim("x", [exactly("r", second)])], "r: c");
    let none = one().of("large").selecting(r#"device.attributes["gpu.example.com"].n > 2"#);
    let refused = allocate(&pools, &Usage::default(), &[claim("x", [exactly("r", none)])]);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "claim default/x: request r needs 1, and 0 of 3 devices is usable \
         (1 not matching selector 1 of DeviceClass large, 2 not matching selector 1 of the request)"
    );
}

#[test]
fn a_selector_that_fails_ends_the_allocation() {
    let pools = pools(vec![device("a"), device("b").text("size", "small")], []);
    let refused =
        allocate(&pools, &Usage::default(), &[claim("x", [exactly("r", one().of("small"))])]);
    let refused = refused.unwrap_err();
    assert!(refused.ends_scheduling());
    assert_eq!(
        refused.to_string(),
        "selector 1 of DeviceClass small, which request r of claim default/x uses, fails for device \
         gpu.example.com/pool/a: there is no size"
    );
}

#[test]
fn a_device_in_use_is_not_asked() {
    let pools = pools(vec![device("a"), device("b").text("size", "small")], []);
    let usage =
        used(&allocate(&pools, &Usage::default(), &[claim("x", [exactly("r", one())])]).unwrap());
    let small = [claim("y", [exactly("r", one().of("small"))])];
    assert_eq!(answer(&allocate(&pools, &usage, &small)), "r: b");
}

#[test]
fn refuses_what_cannot_be_read() {
    let pools = pools(devices(["a"]), []);
    check(&pools, &[claim("x", [exactly("r", one().of("none"))])], "NoDeviceClass");
    check(&pools, &[claim("x", [exactly("r", one().selecting("devices"))])], "InvalidSelector");
    check(&pools, &[claim("x", [exactly("r", count(33))])], "TooManyDevices");
}

#[test]
fn all_means_each_matching_device() {
    let sized = |name: &str, size: &str| device(name).text("size", size);
    let three = pools(vec![sized("a", "small"), sized("b", "large"), sized("c", "large")], []);
    check(&three, &[claim("x", [exactly("r", all().of("large"))])], "r: b, r: c");
    check(&three, &[claim("x", [exactly("r", all())])], "r: a, r: b, r: c");
    // One of them is taken, so it is not all.
    let taken = used(
        &allocate(&three, &Usage::default(), &[claim("x", [exactly("r", one().of("large"))])])
            .unwrap(),
    );
    assert_eq!(
        answer(&allocate(&three, &taken, &[claim("y", [exactly("r", all().of("large"))])])),
        "TooFewDevices"
    );
    assert_eq!(
        answer(&allocate(&three, &taken, &[claim("y", [exactly("r", all().of("small"))])])),
        "r: a"
    );
    // None is not all.
    let small = pools(vec![sized("a", "small")], []);
    check(&small, &[claim("x", [exactly("r", all().of("large"))])], "TooFewDevices");
    let either = first_available("r", [("large", all().of("large")), ("small", all().of("small"))]);
    check(&small, &[claim("x", [either])], "r/small: a");
    // An earlier request takes one of them; there is no other order.
    check(&three, &[claim("x", [exactly("q", one()), exactly("r", all())])], "NoCombination");
    let most: Vec<_> = (0..33).map(|number| device(&format!("d{number}"))).collect();
    check(&pools(most, []), &[claim("x", [exactly("r", all())])], "TooManyDevices");
}

#[test]
fn all_against_a_constraint_ends_the_allocation() {
    let pools = pools(vec![device("a").int("numa", 0), device("b").int("numa", 1)], []);
    let wanted = claim("x", [exactly("r", all())]).constrained(matching("numa", []));
    check(&pools, &[wanted], "AllAgainstConstraint");
    let apart = claim("x", [exactly("r", all())]).constrained(distinct("numa", []));
    check(&pools, &[apart], "r: a, r: b");
}

#[test]
fn alternatives_are_tried_in_their_order() {
    let sized = |name: &str, size: &str| device(name).text("size", size);
    let pools = pools(vec![sized("a", "small"), sized("b", "small"), sized("c", "large")], []);
    let either = |name: &str| {
        first_available(name, [("big", one().of("large")), ("two", count(2).of("small"))])
    };
    check(&pools, &[claim("x", [either("r")])], "r/big: c");
    check(&pools, &[claim("x", [either("r"), either("s")])], "r/big: c, s/two: a, s/two: b");
    // The first request steps back where the second has no alternative.
    let only = exactly("s", one().of("large"));
    check(&pools, &[claim("x", [either("r"), only])], "r/two: a, r/two: b, s: c");
    let refused = allocate(
        &pools,
        &Usage::default(),
        &[claim(
            "x",
            [first_available(
                "r",
                [("big", count(2).of("large")), ("three", count(3).of("small"))],
            )],
        )],
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        "claim default/x: request r/big needs 2, and 1 of 3 devices are usable \
         (2 not matching selector 1 of DeviceClass large); request r/three needs 3, and 2 of 3 devices are usable \
         (1 not matching selector 1 of DeviceClass small)"
    );
}

#[test]
fn constraints_hold_across_requests() {
    let at = |name: &str, numa: i64| device(name).int("numa", numa);
    let four = pools(vec![at("a", 0), at("b", 1), at("c", 1), device("d")], []);
    let two = || [exactly("r", one()), exactly("s", one())];
    check(&four, &[claim("x", two())], "r: a, s: b");
    check(&four, &[claim("x", two()).constrained(matching("numa", []))], "r: b, s: c");
    check(&four, &[claim("x", two()).constrained(distinct("numa", []))], "r: a, s: b");
    check(
        &four,
        &[claim("x", [exactly("r", count(3))]).constrained(distinct("numa", []))],
        "NoCombination",
    );
    check(
        &four,
        &[claim("x", [exactly("r", count(2))]).constrained(matching("numa", ["r"]))],
        "r: b, r: c",
    );
    // It does not concern the other request.
    check(&four, &[claim("x", two()).constrained(matching("numa", ["s"]))], "r: a, s: b");
    // Of another claim it says nothing.
    let other = claim("y", [exactly("t", one())]);
    check(
        &four,
        &[claim("x", two()).constrained(matching("numa", [])), other],
        "r: b, s: c | t: a",
    );
}

#[test]
fn constraints_name_alternatives_with_their_request() {
    let at = |name: &str, numa: i64| device(name).int("numa", numa).text("size", "small");
    let three = pools(vec![at("a", 0), at("b", 1), at("c", 1)], []);
    let requests = || [exactly("r", one()), first_available("s", [("t", one().of("small"))])];
    for (names, expect) in [
        (["r", "s"], "r: b, s/t: c"),
        (["r", "s/t"], "r: b, s/t: c"),
        (["r", "s/u"], "r: a, s/t: b"),
        (["r", "t"], "r: a, s/t: b"),
    ] {
        check(&three, &[claim("x", requests()).constrained(matching("numa", names))], expect);
    }
}

#[test]
fn attributes_with_several_values_match_where_they_have_one_in_common() {
    use kerf_devices::device::Attribute::Ints;
    let at = |name: &str, numas: &[i64]| device(name).attribute("numa", Ints(numas.to_vec()));
    let three =
        || pools(vec![at("a", &[0, 1]), at("b", &[1, 2]), at("c", &[0, 2]), at("d", &[1])], []);
    let several = |number| claim("x", [exactly("r", count(number))]);
    check(&three(), &[several(2).constrained(matching("numa", []))], "r: a, r: b");
    // Each two of a, b and c have something in common, all three do not.
    check(&three(), &[several(3).constrained(matching("numa", []))], "r: a, r: b, r: d");
    check(&three(), &[several(2).constrained(distinct("numa", []))], "r: c, r: d");
}

#[test]
fn admin_access_takes_nothing() {
    let two = pools(
        vec![device("a").consumes("slices", 4), device("b").consumes("slices", 4)],
        [("slices", 4)],
    );
    let ordinary = || claim("x", [exactly("r", one())]);
    let watching = || claim("w", [exactly("w", all().admin())]);
    // Before others, beside them and after them.
    check(&two, &[watching(), ordinary()], "w: a, w: b | r: a");
    check(&two, &[ordinary(), watching()], "r: a | w: a, w: b");
    let usage = used(&allocate(&two, &Usage::default(), &[ordinary()]).unwrap());
    let watched = allocate(&two, &usage, &[watching()]).unwrap();
    assert_eq!(told(&watched), "w: a, w: b");
    let unused = used(&watched);
    assert_eq!(answer(&allocate(&two, &unused, &[ordinary()])), "r: a");
    // Within one claim, no device is given twice.
    let both = claim("x", [exactly("r", one()), exactly("w", one().admin())]);
    check(&two, &[both], "r: a, w: b");
    let apart = claim("x", [exactly("w", count(2).admin()), exactly("r", one())]);
    check(&two, &[apart], "NoCombination");
}

#[test]
fn the_same_request_of_two_claims_can_have_what_claims_can_have_apart() {
    let two = pools(devices(["a", "b"]), []);
    // Who watches gets the same device in each claim.
    let watching = |name: &str| claim(name, [exactly("w", count(2).admin())]);
    check(&two, &[watching("x"), watching("y")], "w: a, w: b | w: a, w: b");
    // The first claim watches the device that the second one gets: theirs cannot be exchanged.
    let both = claim("x", [exactly("w", one().admin()), exactly("r", one())]);
    check(&two, &[both, claim("y", [exactly("r", one())])], "w: a, r: b | r: a");
}

#[test]
fn a_claim_has_thirty_two_devices_at_most() {
    let many = pools((0..60).map(|number| device(&format!("d{number:02}"))).collect(), []);
    let either = first_available("r", [("many", count(20)), ("few", count(5))]);
    let found =
        allocate(&many, &Usage::default(), &[claim("x", [either, exactly("s", count(20))])]);
    let found = told(&found.unwrap());
    assert!(found.starts_with("r/few: d00, ") && found.ends_with(", s: d24"), "{found}");
}

#[test]
fn taints_keep_requests_away_that_do_not_tolerate_them() {
    let two = pools(vec![device("a").tainted("broken"), device("b")], []);
    check(&two, &[claim("x", [exactly("r", one())])], "r: b");
    let mut tolerant = one();
    tolerant.tolerations.push(Toleration {
        key: Some("broken".into()),
        value: None,
        effect: Some(Effect::NoSchedule),
    });
    check(&two, &[claim("x", [exactly("r", tolerant)])], "r: a");
    let refused = allocate(&two, &Usage::default(), &[claim("x", [exactly("r", all())])]);
    assert!(refused.unwrap_err().to_string().ends_with("(1 tainted)"));
}

#[test]
fn counters_are_shared_by_the_devices_of_a_pool() {
    let parts = ["a", "b", "c"].map(|name| device(name).consumes("slices", 3)).to_vec();
    let gpu = pools(parts, [("slices", 7)]);
    check(&gpu, &[claim("x", [exactly("r", count(2))])], "r: a, r: b");
    check(&gpu, &[claim("x", [exactly("r", count(3))])], "NoCombination");
    let usage =
        used(&allocate(&gpu, &Usage::default(), &[claim("x", [exactly("r", count(2))])]).unwrap());
    let refused = allocate(&gpu, &usage, &[claim("y", [exactly("r", one())])]).unwrap_err();
    assert!(
        refused.to_string().ends_with("(2 in use, 1 with too much of the shared counters in use)"),
        "{refused}"
    );
}

#[test]
fn devices_on_other_nodes_consume_counters_too() {
    let here = device("here").consumes("slices", 4).at(Reach::Node("node".into()));
    let there = device("there").consumes("slices", 4).at(Reach::Node("other".into()));
    let pools = Pools::gather([
        slice("pool", "devices", 2, Content::ScatteredDevices(vec![there, here])),
        slice("pool", "counters", 2, counters([("slices", 7)])),
    ]);
    check(&pools, &[claim("x", [exactly("r", one())])], "r: here");
    let mut usage = Usage::default();
    let mut elsewhere =
        allocate(&pools, &Usage::default(), &[claim("x", [exactly("r", one())])]).unwrap();
    elsewhere[0].devices[0].device.device = "there".into();
    usage.take(&elsewhere[0].devices[0]);
    assert_eq!(
        answer(&allocate(&pools, &usage, &[claim("y", [exactly("r", one())])])),
        "TooFewDevices"
    );
    usage.release(&elsewhere[0].devices[0]);
    assert_eq!(answer(&allocate(&pools, &usage, &[claim("y", [exactly("r", one())])])), "r: here");
}

#[test]
fn shares_of_a_device_fill_its_capacity() {
    let gpu = || device("a").shared().capacity("memory", "40Gi").consumes("slices", 1);
    let stepped = Portions::Range { min: amount("4Gi"), max: None, step: Some(amount("4Gi")) };
    let pools = pools(vec![gpu().policy("memory", "8Gi", stepped)], [("slices", 1)]);
    let asking = |memory: &str| exactly("r", one().asking("memory", memory));
    let two = [claim("x", [asking("9Gi")]), claim("y", [exactly("r", one())])];
    let shared = allocate(&pools, &Usage::default(), &two).unwrap();
    assert_eq!(told(&shared), "r: a | r: a");
    let share = |number: usize| shared[number].devices[0].share.as_ref().unwrap()["memory"];
    assert_eq!((share(0), share(1)), (amount("12Gi"), amount("8Gi")));
    let usage = used(&shared);
    assert_eq!(answer(&allocate(&pools, &usage, &[claim("z", [asking("20Gi")])])), "r: a");
    let refused = allocate(&pools, &usage, &[claim("z", [asking("21Gi")])]).unwrap_err();
    assert!(refused.to_string().ends_with("(1 with too much of the capacity in use)"), "{refused}");
    let refused = allocate(&pools, &usage, &[claim("z", [asking("41Gi")])]).unwrap_err();
    assert!(refused.to_string().ends_with("(1 without the capacity)"), "{refused}");
    // Two requests of one claim may have it, unless they shall have two devices.
    let both = claim("x", [exactly("r", one()), exactly("s", one())]);
    check(&pools, std::slice::from_ref(&both), "r: a, s: a");
    check(&pools, &[both.constrained(distinct("uuid", []))], "NoCombination");
}

#[test]
fn all_means_devices_with_too_much_in_use_as_well() {
    let gpu = |name: &str| device(name).shared().capacity("memory", "40Gi");
    let pools = pools(vec![gpu("a"), gpu("b")], []);
    let asking =
        |wanted: kerf_devices::claim::Wanted| exactly("r", wanted.asking("memory", "30Gi"));
    let first = allocate(&pools, &Usage::default(), &[claim("x", [asking(one())])]).unwrap();
    let refused = allocate(&pools, &used(&first), &[claim("y", [asking(all())])]).unwrap_err();
    assert!(
        refused.to_string().ends_with(
            "needs all, and 1 of 2 devices are usable (1 with too much of the capacity in use)"
        ),
        "{refused}"
    );
}

#[test]
fn a_device_that_is_not_shared_needs_the_capacity_that_is_asked_for() {
    let pools = pools(
        vec![
            device("a").capacity("memory", "20Gi"),
            device("b").capacity("memory", "40Gi"),
            device("c"),
        ],
        [],
    );
    check(&pools, &[claim("x", [exactly("r", one().asking("memory", "30Gi"))])], "r: b");
    check(&pools, &[claim("x", [exactly("r", all().asking("memory", "30Gi"))])], "r: b");
    check(&pools, &[claim("x", [exactly("r", one().asking("cores", "1"))])], "TooFewDevices");
}

#[test]
fn pools_that_are_not_whole_are_not_used() {
    let pools = Pools::gather([
        slice("half", "1", 2, local(devices(["a"]))),
        slice("whole", "1", 1, local(devices(["b"]))),
    ]);
    check(&pools, &[claim("x", [exactly("r", one())])], "r: b");
    check(&pools, &[claim("x", [exactly("r", all())])], "AllOfUnusablePool");
    let refused =
        allocate(&pools, &Usage::default(), &[claim("x", [exactly("r", count(2))])]).unwrap_err();
    assert!(
        refused.to_string().ends_with(
            "; the pool gpu.example.com/half cannot be used: 1 of its 2 slices of generation 1 are there"
        ),
        "{refused}"
    );
}

#[test]
fn only_the_newest_generation_counts() {
    let mut newer = slice("pool", "1", 2, local(devices(["new"])));
    newer.generation = 2;
    let older = slice("pool", "2", 1, local(devices(["old"])));
    for slices in [[newer.clone(), older.clone()], [older.clone(), newer.clone()]] {
        let pools = Pools::gather(slices);
        let states: Vec<_> = pools.unusable().map(|(_, why)| why.clone()).collect();
        assert!(matches!(&states[..], [Unusable::Incomplete { found: 1, generation: 2, .. }]));
        check(&pools, &[claim("x", [exactly("r", one())])], "TooFewDevices");
    }
    newer.slices = older.slices;
    check(&Pools::gather([older, newer]), &[claim("x", [exactly("r", one())])], "r: new");
}

#[test]
fn pools_that_contradict_themselves_are_not_used() {
    let same = local(devices(["a", "a"]));
    let unknown = local(vec![device("a").consumes("none", 1)]);
    let twice = [
        slice("pool", "1", 3, counters([("slices", 7)])),
        slice("pool", "2", 3, counters([("slices", 7)])),
        slice("pool", "3", 3, local(devices(["a"]))),
    ];
    for slices in
        [vec![slice("pool", "1", 1, same)], vec![slice("pool", "1", 1, unknown)], twice.to_vec()]
    {
        let pools = Pools::gather(slices);
        assert_eq!(pools.unusable().count(), 1);
        check(&pools, &[claim("x", [exactly("r", one())])], "TooFewDevices");
    }
}

#[test]
fn devices_are_used_from_the_nodes_in_their_reach() {
    let zone = |zone: &str| {
        let condition = Condition::In(vec![zone.into()]);
        let labels = vec![Requirement { key: "zone".into(), condition }];
        Reach::Nodes(NodeSelector { terms: vec![Term { labels, fields: vec![] }] })
    };
    let everywhere = |reach, names: &[&str]| Content::Devices {
        reach,
        devices: names.iter().map(|name| device(name)).collect(),
    };
    let pools = Pools::gather([
        slice("a", "1", 1, everywhere(zone("b"), &["far"])),
        slice("b", "1", 1, everywhere(zone("a"), &["near"])),
        slice("c", "1", 1, everywhere(Reach::AllNodes, &["any"])),
        slice(
            "d",
            "1",
            1,
            Content::ScatteredDevices(vec![
                device("unreachable"),
                device("other").at(Reach::Node("other".into())),
                device("own").at(Reach::Node("node".into())),
            ]),
        ),
    ]);
    check(&pools, &[claim("x", [exactly("r", all())])], "r: near, r: any, r: own");
    let nodes = |number| {
        let found =
            allocate(&pools, &Usage::default(), &[claim("x", [exactly("r", count(number))])]);
        found.unwrap()[0].nodes.clone()
    };
    let Reach::Nodes(near) = zone("a") else { unreachable!() };
    assert_eq!(nodes(1), Nodes::Selected(near.clone()));
    assert_eq!(nodes(2), Nodes::Selected(near));
    assert_eq!(nodes(3), Nodes::This);
    let any = one().selecting("true");
    let only = Pools::gather([slice("c", "1", 1, everywhere(Reach::AllNodes, &["any"]))]);
    let found = allocate(&only, &Usage::default(), &[claim("x", [exactly("r", any)])]);
    assert_eq!(found.unwrap()[0].nodes, Nodes::All);
}

#[test]
fn pods_that_share_a_claim_run_where_its_devices_are() {
    let pools = pools(devices(["a"]), []);
    let found = allocate(&pools, &Usage::default(), &[claim("x", [exactly("r", one())])]).unwrap();
    let standing = found[0].standing(&"node".into(), &"pod-1".into());
    let labels = BTreeMap::new();
    assert!(standing.can_be_used_on("node", &labels));
    assert!(!standing.can_be_used_on("other", &labels));
    let pods = |uids: &[&str]| uids.iter().map(|uid| (*uid).into()).collect::<BTreeSet<_>>();
    assert!(standing.ends_with(&pods(&["pod-1", "pod-2"])));
    assert!(!standing.ends_with(&pods(&["pod-2"])));
}

#[test]
fn a_search_ends_with_its_budget() {
    // Pairs that no three of which agree: each device tells itself apart, so no twins are left out.
    let many = (0..30).map(|number| device(&format!("d{number:02}")).int("pair", number / 2));
    let pools = pools(many.collect(), []);
    let three = [claim("x", [exactly("r", one()), exactly("s", one()), exactly("t", one())])
        .constrained(matching("pair", []))];
    let refused = allocate(&pools, &Usage::default(), &three).unwrap_err();
    let Refusal::NoCombination { steps, .. } = *refused else { panic!("{refused}") };
    assert!(steps > 500, "{steps}");
    let ended = allocate_within(500, &pools, &Usage::default(), &three).unwrap_err();
    assert_eq!(*ended, Refusal::SearchEnded { steps: 500 });
    let enough = allocate_within(steps, &pools, &Usage::default(), &three).unwrap_err();
    assert_eq!(enough.name(), "NoCombination");
}

#[test]
fn twins_are_tried_once() {
    // Twenty equal devices, of which two times ten are wanted beside one that cannot be had together with them.
    let mut parts: Vec<_> = (0..20)
        .map(|number| {
            device(&format!("d{number:02}")).consumes("slices", 1).text("uuid", &number.to_string())
        })
        .collect();
    parts.push(device("whole").text("size", "large").consumes("slices", 11));
    for part in &mut parts[..20] {
        *part = part.clone().text("size", "small");
    }
    let pools = pools(parts, [("slices", 20)]);
    let wanted =
        [claim("x", [exactly("r", count(10).of("small")), exactly("s", one().of("large"))])];
    let refused = allocate(&pools, &Usage::default(), &wanted).unwrap_err();
    let Refusal::NoCombination { steps, .. } = *refused else { panic!("{refused}") };
    // Without twins there are 184,756 ways to choose ten of twenty.
    assert!(steps < 500, "{steps}");
}

#[test]
fn as_many_claims_and_devices_as_allowed_fit_the_stack() {
    let all: Vec<_> =
        (0..CLAIMS_LIMIT * DEVICES_LIMIT).map(|number| device(&format!("d{number:04}"))).collect();
    let pools = pools(all, []);
    let claims = |number| {
        let claims =
            (0..number).map(|number| claim(&format!("x{number}"), [exactly("r", count(32))]));
        claims.collect::<Vec<_>>()
    };
    let found = allocate(&pools, &Usage::default(), &claims(CLAIMS_LIMIT)).unwrap();
    let devices: usize = found.iter().map(|one| one.devices.len()).sum();
    assert_eq!(devices, CLAIMS_LIMIT * DEVICES_LIMIT);
    check(&pools, &claims(CLAIMS_LIMIT + 1), "TooManyClaims");
}
